"""The key leaves by the request's header alone; a proxy is used where one was named, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import subprocess
from dataclasses import astuple
from pathlib import Path

import pytest

from runner.endpoint import Endpoint
from runner.model_client import ModelClient
from runner.reply import Exchange, TransportFault
from tests.runner.scripted_http import BODY, GOOD, exchange_with, fault_with, post_once, raw_server, reply

KEY = "nv-Zk31337-secret/value+0123456789"
TENANT = "tenant-secret-0123456789"


def holds_a_secret(outcome: Exchange | TransportFault) -> bool:
    text = repr(astuple(outcome))
    return any(secret in text or secret[3:-3] in text for secret in (KEY, TENANT))


def test_a_key_that_the_endpoint_echoes_is_nowhere_in_what_comes_out() -> None:
    echo = f'{{"echo":"{KEY}","t":"{TENANT}","h":"Authorization: Bearer {KEY}"}}'.encode()
    sent = reply(echo, "200 OK", f"X-Echo: Bearer {KEY}", f"Content-Type: application/json; key={KEY}")
    exchange = asyncio.run(exchange_with(sent, api_key=KEY, headers={"X-Tenant": TENANT}))
    assert not holds_a_secret(exchange)
    assert exchange.scrubbed == 4
    assert exchange.body == b'{"echo":"[scrubbed]","t":"[scrubbed]","h":"Authorization: Bearer [scrubbed]"}'


@pytest.mark.parametrize(
    "sent",
    [
        f"HTTP/1.1 200 OK\r\nBearer {KEY}\r\n\r\n".encode(),
        f"HTTP/1.1 200 OK\r\n{KEY}: {KEY}\0\r\n\r\n".encode(),
        f"{KEY} {KEY}\r\n\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nX: {'a' * 7000}{KEY * 100}\r\n\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{KEY}\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Length: {KEY}\r\n\r\n".encode(),
        reply(KEY.encode(), length=5000),
    ],
)
def test_an_error_about_a_reply_that_holds_the_key_does_not_repeat_it(sent: bytes) -> None:
    fault = asyncio.run(fault_with(sent, api_key=KEY))
    assert not holds_a_secret(fault)


def test_a_key_across_the_end_of_what_is_kept_is_not_left_in_half() -> None:
    body = b"x" * (65536 - 10) + KEY.encode() + b"y" * 1_200_000
    exchange = asyncio.run(exchange_with(reply(body), api_key=KEY))
    assert exchange.truncated
    assert len(exchange.body) == 65536
    assert KEY.encode()[:8] not in exchange.body


def test_key_like_text_that_is_not_our_key_is_removed_too() -> None:
    exchange = asyncio.run(exchange_with(reply(b'{"m":"sk-abcdefghij0123456789"}')))
    assert (exchange.body, exchange.scrubbed) == (b'{"m":"[scrubbed]"}', 1)


def test_the_representation_of_a_client_shows_no_secret() -> None:
    client = ModelClient(
        Endpoint.parse("http://h/v1"), api_key=KEY, headers={"X-T": TENANT}, proxy=f"http://u:{TENANT}@p"
    )
    assert "secret" not in repr(client) + repr(client.scrubber) + str(client)


def test_the_environment_chooses_no_proxy_and_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def outcome() -> tuple[Exchange | TransportFault, bytes, int]:
        async with raw_server(reply(b"proxied")) as proxy, raw_server(reply()) as server:
            for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
            netrc = tmp_path / "netrc"
            netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
            monkeypatch.setenv("NETRC", str(netrc))
            return await post_once(server), server.requests[0], proxy.connections

    result, request, proxied = asyncio.run(outcome())
    assert isinstance(result, Exchange)
    assert result.body == GOOD
    assert proxied == 0
    assert b"authorization" not in request.lower()


@pytest.mark.parametrize("user", ["", "me:p%40ss-word-0123@"])
def test_a_proxy_is_used_where_one_is_named(user: str) -> None:
    async def through() -> tuple[Exchange | TransportFault, bytes]:
        async with raw_server(reply(b'{"you":"p@ss-word-0123"}')) as proxy:
            endpoint = Endpoint.parse("http://model.invalid:81/v1")
            async with ModelClient(endpoint, proxy=f"http://{user}127.0.0.1:{proxy.port}") as client:
                return await client.post(BODY, 5), proxy.requests[0]

    outcome, request = asyncio.run(through())
    assert isinstance(outcome, Exchange)
    assert request.startswith(b"POST http://model.invalid:81/v1/chat/completions HTTP/1.1\r\n")
    credentials = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss-word-0123")
    assert (credentials.lower() in request.lower()) is bool(user)
    assert outcome.body == (b'{"you":"[scrubbed]"}' if user else b'{"you":"p@ss-word-0123"}')


def test_over_tls_the_proxys_password_goes_to_the_proxy_and_a_refusal_is_no_connection() -> None:
    async def through() -> tuple[Exchange | TransportFault, bytes]:
        async with raw_server(reply(b"no", "407 Proxy Authentication Required")) as proxy:
            endpoint = Endpoint.parse("https://model.invalid/v1")
            async with ModelClient(
                endpoint, api_key=KEY, proxy=f"http://me:pass-0123@127.0.0.1:{proxy.port}"
            ) as client:
                return await client.post(BODY, 5), proxy.requests[0]

    outcome, request = asyncio.run(through())
    assert isinstance(outcome, TransportFault)
    assert (outcome.code, outcome.outcome_unknown) == ("transport_connect", False)
    assert request.startswith(b"CONNECT model.invalid:443 HTTP/1.1\r\n")
    assert b"proxy-authorization: basic " + base64.b64encode(b"me:pass-0123").lower() in request.lower()
    assert KEY.encode() not in request
    assert "pass-0123" not in outcome.detail


def test_a_proxy_that_cannot_be_reached_is_no_connection() -> None:
    async def through() -> Exchange | TransportFault:
        async with ModelClient(Endpoint.parse("http://h/v1"), proxy="http://me:pass-0123@127.0.0.1:9") as client:
            return await client.post(BODY, 5)

    outcome = asyncio.run(through())
    assert isinstance(outcome, TransportFault)
    assert (outcome.code, outcome.outcome_unknown) == ("transport_connect", False)
    assert "pass-0123" not in outcome.detail


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) for 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl program")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_is_trusted_only_by_the_file_that_was_named(
    trusted: bool, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))

    async def outcome() -> Exchange | TransportFault:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as listening:
            endpoint = Endpoint.parse(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
            async with ModelClient(endpoint, ca_file=str(certificate[0]) if trusted else None) as client:
                result = await client.post(BODY, 5)
            await asyncio.sleep(0.05)
            return result

    result = asyncio.run(outcome())
    if trusted:
        assert isinstance(result, Exchange)
    else:
        assert isinstance(result, TransportFault)
        assert (result.code, result.outcome_unknown) == ("transport_connect", False)
        assert "certificate" in result.detail.lower()
