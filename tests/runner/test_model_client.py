"""One attempt over real sockets: whatever a server does, it ends in time as an exchange or a typed fault."""

from __future__ import annotations

import asyncio
import gc
import gzip
import random
import socket
import time
import tracemalloc
import warnings
import zlib
from datetime import UTC, datetime

import pytest

from runner.body_reader import BODY_CEILING, KEPT_OF_LARGE_BODY
from runner.endpoint import Endpoint
from runner.model_client import ClientConfigError, ModelClient
from runner.reply import CallFailure, Exchange, TransportFault, classify
from tests.runner.scripted_http import BODY, GOOD, exchange_with, fault_with, post_once, raw_server, reply


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


def test_a_whole_reply_comes_back_byte_for_byte() -> None:
    exchange = asyncio.run(exchange_with(reply()))
    assert exchange == Exchange(200, GOOD, len(GOOD), False, "application/json", None, exchange.duration_us, 0)
    assert exchange.duration_us > 0


def test_the_body_goes_out_as_it_was_given_with_our_headers_and_no_others() -> None:
    async def sent() -> bytes:
        async with (
            raw_server(reply()) as server,
            ModelClient(server.endpoint, api_key="k-0123456789", headers={"X-Tenant": "blue"}) as client,
        ):
            await client.post(b'{"a":  "\xc3\xa9"}', 5)
        return server.requests[0]

    head, _, body = asyncio.run(sent()).partition(b"\r\n\r\n")
    assert body == b'{"a":  "\xc3\xa9"}'
    first, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert headers.pop("host").startswith("127.0.0.1:")
    assert headers.pop("user-agent").startswith("replay-ledger/")
    assert headers == {
        "accept": "application/json",
        "accept-encoding": "identity",
        "authorization": "Bearer k-0123456789",
        "content-length": "12",
        "content-type": "application/json",
        "x-tenant": "blue",
    }
    assert len(lines) == len(headers) + 2


def test_without_a_key_no_authorization_is_sent() -> None:
    async def sent() -> bytes:
        async with raw_server(reply()) as server:
            await post_once(server)
        return server.requests[0]

    assert b"authorization" not in asyncio.run(sent()).lower()


def test_connections_are_kept_and_used_again() -> None:
    async def connections() -> tuple[int, int]:
        async with raw_server(reply(), keep_open=True) as server, ModelClient(server.endpoint) as client:
            for _ in range(5):
                assert isinstance(await client.post(BODY, 5), Exchange)
        return server.connections, len(server.requests)

    assert asyncio.run(connections()) == (1, 5)


# --- the status comes before the body --------------------------------------------------------


@pytest.mark.parametrize("status", ["502 Bad Gateway", "401 Unauthorized", "403 Forbidden", "404 Not Found", "500 X"])
def test_an_error_page_is_its_status_and_not_a_json_error(status: str) -> None:
    exchange = asyncio.run(exchange_with(reply(b"<html><h1>Oh</h1></html>", status, "Content-Type: text/html")))
    assert exchange.http_status == int(status[:3])
    assert exchange.content_type == "text/html"
    assert exchange.body == b"<html><h1>Oh</h1></html>"


@pytest.mark.parametrize("status", ["401 Unauthorized", "429 Slow", "503 Busy"])
def test_a_status_whose_body_was_cut_is_still_that_status(status: str) -> None:
    exchange = asyncio.run(exchange_with(reply(b'{"err', status, "Retry-After: 7", length=900)))
    assert (exchange.http_status, exchange.retry_after_ms) == (int(status[:3]), 7000)
    assert (exchange.body, exchange.truncated) == (b'{"err', True)


def test_a_status_whose_body_never_ends_is_still_that_status() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"x", "401 Unauthorized", length=10))
        await reader.read()

    assert asyncio.run(exchange_with(trickle, timeout=0.3)).http_status == 401


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_told_and_not_followed(status: str) -> None:
    async def redirected() -> tuple[Exchange | TransportFault, int]:
        async with raw_server(reply()) as target:
            async with raw_server(reply(b"", status, f"Location: {target.base_url}")) as server:
                outcome = await post_once(server, api_key="k-0123456789")
            return outcome, target.connections

    outcome, reached = asyncio.run(redirected())
    assert isinstance(outcome, Exchange)
    assert outcome.http_status == int(status[:3])
    assert reached == 0


def test_cookies_are_not_kept() -> None:
    async def second_request() -> bytes:
        setting = reply(GOOD, "200 OK", "Set-Cookie: session=1")
        async with raw_server(setting, keep_open=True) as server, ModelClient(server.endpoint) as client:
            await client.post(BODY, 5)
            await client.post(BODY, 5)
        return server.requests[1]

    assert b"cookie" not in asyncio.run(second_request()).lower()


# --- Retry-After --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("Retry-After: 3600", 3_600_000),
        ("Retry-After: Mon, 30 Nov 2026 12:01:00 GMT", 60_000),
        ("Retry-After: Mon, 30 Nov 2026 11:00:00 GMT", 0),
        ("Retry-After: soon", None),
        ("retry-after-ms: 20", 20),
        ("X-Other: 1", None),
    ],
)
def test_the_wait_asked_for_is_read_against_the_clock_that_was_given(header: str, wait: int | None) -> None:
    noon = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC).timestamp()
    exchange = asyncio.run(exchange_with(reply(b"", "429 Too Many Requests", header), clock=lambda: noon))
    assert exchange.retry_after_ms == wait


# --- cut short ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        reply(b'{"choices":[{"mess', length=500),
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12\r\n{"choices":[{"mess\r\n',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\n",
        b"",
    ],
)
def test_a_reply_that_breaks_off_is_cut_with_unknown_outcome(sent: bytes) -> None:
    fault = asyncio.run(fault_with(sent))
    assert (fault.code, fault.outcome_unknown) == ("transport_cut", True)


def test_a_body_that_ends_with_its_connection_is_whole() -> None:
    assert asyncio.run(exchange_with(b"HTTP/1.1 200 OK\r\n\r\n" + GOOD)).body == GOOD


def test_a_connection_reset_after_the_request_was_sent_is_cut() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    fault = asyncio.run(fault_with(reset))
    assert (fault.code, fault.outcome_unknown) == ("transport_cut", True)


def test_a_kept_connection_that_the_server_closes_on_us_is_cut_and_not_silently_sent_again() -> None:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def second() -> tuple[Exchange | TransportFault, int]:
        async with raw_server(reply(), closing, keep_open=True) as server, ModelClient(server.endpoint) as client:
            assert isinstance(await client.post(BODY, 5), Exchange)
            return await client.post(BODY, 5), len(server.requests)

    outcome, requests = asyncio.run(second())
    assert isinstance(outcome, TransportFault)
    assert (outcome.code, outcome.outcome_unknown) == ("transport_cut", True)
    assert requests == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 5_000 + b"\r\n",
        b"HTTP/1.1 200 " + b"O" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_what_is_no_http_reply_is_a_typed_fault_or_no_completion(sent: bytes) -> None:
    async def outcome() -> Exchange | TransportFault:
        async with raw_server(sent) as server:
            return await post_once(server)

    result = asyncio.run(outcome())
    assert isinstance(classify(result), CallFailure)
    if isinstance(result, TransportFault):
        assert (result.code, result.outcome_unknown) == ("transport_cut", True)


def test_no_garbage_raises() -> None:
    seeded = random.Random(7)
    whole = reply(GOOD, "200 OK", "Retry-After: 1", "Content-Encoding: identity")

    def mangled() -> bytes:
        data = bytearray(whole)
        for _ in range(seeded.randrange(1, 6)):
            data[seeded.randrange(len(data))] = seeded.randrange(256)
        return bytes(data[: seeded.randrange(len(data) + 1)])

    async def outcomes() -> list[object]:
        async with raw_server(*(mangled() for _ in range(300))) as server, ModelClient(server.endpoint) as client:
            return [await client.post(BODY, 0.5) for _ in range(300)]

    assert {type(outcome) for outcome in asyncio.run(outcomes())} == {Exchange, TransportFault}


# --- no connection --------------------------------------------------------------------------------


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid", "xn--bcher-kva.invalid"])
def test_where_nothing_was_sent_the_outcome_is_known(host: str) -> None:
    async def outcome() -> Exchange | TransportFault:
        async with ModelClient(Endpoint.parse(f"http://{host}:{_closed_port()}")) as client:
            return await client.post(BODY, 10)

    fault = asyncio.run(outcome())
    assert isinstance(fault, TransportFault)
    assert (fault.code, fault.outcome_unknown) == ("transport_connect", False)
    assert "Error" in fault.detail


def test_speaking_tls_to_a_server_that_does_not_is_no_connection() -> None:
    async def outcome() -> Exchange | TransportFault:
        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(reply(b"", "400 Bad Request"))
            writer.close()

        async with await asyncio.start_server(plain, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            async with ModelClient(Endpoint.parse(f"https://127.0.0.1:{port}")) as client:
                return await client.post(BODY, 5)

    fault = asyncio.run(outcome())
    assert isinstance(fault, TransportFault)
    assert (fault.code, fault.outcome_unknown) == ("transport_connect", False)
    assert "ssl" in fault.detail.lower()


def test_a_connection_that_is_never_made_ends_by_the_deadline_with_nothing_sent() -> None:
    async def outcome() -> Exchange | TransportFault:
        with socket.socket() as full:  # a listener whose queue is full lets nobody in
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            blockers = [socket.socket() for _ in range(4)]
            for blocker in blockers:
                blocker.setblocking(False)
                blocker.connect_ex(full.getsockname())
            try:
                async with ModelClient(Endpoint.parse(f"http://127.0.0.1:{full.getsockname()[1]}")) as client:
                    return await client.post(BODY, 0.3)
            finally:
                for blocker in blockers:
                    blocker.close()

    fault = asyncio.run(outcome())
    assert isinstance(fault, TransportFault)
    assert (fault.code, fault.outcome_unknown) == ("transport_connect", False)


# --- the deadline ---------------------------------------------------------------------------------


async def _one_space_at_a_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(b"", length=100_000))
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def _one_header_at_a_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _interim_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("server", [hang, _one_space_at_a_time, _one_header_at_a_time, _interim_for_ever])
def test_an_attempt_ends_by_its_deadline_however_bytes_trickle(server: object) -> None:
    began = time.monotonic()
    fault = asyncio.run(fault_with(server, timeout=0.5))  # type: ignore[arg-type]
    assert time.monotonic() - began < 3
    assert (fault.code, fault.outcome_unknown) == ("transport_timeout", True)
    assert 400_000 < fault.duration_us < 2_000_000


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
def test_a_body_that_the_server_never_reads_ends_by_the_deadline() -> None:
    async def outcome() -> Exchange | TransportFault:
        callers: list[asyncio.StreamWriter] = []

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            callers.append(writer)

        async with await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024) as listening:
            port = listening.sockets[0].getsockname()[1]
            async with ModelClient(Endpoint.parse(f"http://127.0.0.1:{port}")) as client:
                result = await client.post(b"x" * 30_000_000, 0.5)
            for writer in callers:
                writer.transport.abort()
            await asyncio.sleep(0.1)
            return result

    fault = asyncio.run(outcome())
    assert isinstance(fault, TransportFault)
    assert (fault.code, fault.outcome_unknown) == ("transport_timeout", True)


def test_one_attempt_that_hangs_does_not_hold_up_the_others() -> None:
    async def timed() -> float:
        async with raw_server(hang, reply(), keep_open=True) as server, ModelClient(server.endpoint) as client:
            hanging = asyncio.create_task(client.post(BODY, 30))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            assert isinstance(await client.post(BODY, 5), Exchange)
            elapsed = time.monotonic() - began
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            return elapsed

    assert asyncio.run(timed()) < 1


def test_cancellation_passes_through_and_leaves_the_client_usable() -> None:
    async def after_cancelling() -> Exchange | TransportFault:
        async with raw_server(hang, reply()) as server, ModelClient(server.endpoint, concurrency=1) as client:
            task = asyncio.create_task(client.post(BODY, 30))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await client.post(BODY, 5)

    assert isinstance(asyncio.run(after_cancelling()), Exchange)


# --- the ceiling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
def test_twenty_megabytes_cost_one(chunked: bool) -> None:
    size, piece = 20_000_000, b"x" * 65536
    written = 0

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.transport.set_write_buffer_limits(high=65536)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % size)
        while written < size:
            writer.write(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
            await writer.drain()
            written += len(piece)

    tracemalloc.start()
    try:
        exchange = asyncio.run(exchange_with(large))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert exchange.truncated
    assert exchange.body == b"x" * KEPT_OF_LARGE_BODY
    assert exchange.body_bytes == size if not chunked else BODY_CEILING < exchange.body_bytes < size
    assert written < size
    assert peak < 12_000_000


def test_a_body_of_just_the_ceiling_is_kept_whole() -> None:
    exchange = asyncio.run(exchange_with(reply(b"x" * BODY_CEILING)))
    assert (exchange.truncated, len(exchange.body)) == (False, BODY_CEILING)


def test_a_large_body_takes_its_connection_with_it_and_the_next_attempt_is_sound() -> None:
    async def outcomes() -> tuple[Exchange | TransportFault, Exchange | TransportFault]:
        big = reply(b"x" * 3_000_000)
        async with raw_server(big, reply(), keep_open=True) as server, ModelClient(server.endpoint) as client:
            return await client.post(BODY, 5), await client.post(BODY, 5)

    first, second = asyncio.run(outcomes())
    assert isinstance(first, Exchange)
    assert first.truncated
    assert isinstance(second, Exchange)
    assert second.body == GOOD


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_reply_compressed_against_our_wish_is_read(encoding: str) -> None:
    packed = gzip.compress(GOOD) if encoding == "gzip" else zlib.compress(GOOD)
    assert asyncio.run(exchange_with(reply(packed, "200 OK", f"Content-Encoding: {encoding}"))).body == GOOD


def test_a_compressed_bomb_is_a_large_body() -> None:
    bomb = gzip.compress(b" " * 50_000_000, 1)
    exchange = asyncio.run(exchange_with(reply(bomb, "200 OK", "Content-Encoding: gzip")))
    assert exchange.truncated
    assert len(exchange.body) == KEPT_OF_LARGE_BODY


def test_a_charset_other_than_utf8_is_handed_on_as_bytes_and_never_guessed() -> None:
    body = GOOD.replace(b"{}", b"caf\xe9")
    exchange = asyncio.run(exchange_with(reply(body, "200 OK", "Content-Type: application/json; charset=iso-8859-1")))
    assert exchange.body == body
    failure = classify(exchange)
    assert isinstance(failure, CallFailure)
    assert failure.code == "bad_envelope"


# --- tidiness -------------------------------------------------------------------------------------


def test_nothing_is_left_open(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for script in (reply(), b"", hang, reply(b"x" * 2_000_000)):

            async def once(script: object = script) -> None:
                async with raw_server(script) as server:  # type: ignore[arg-type]
                    await post_once(server, 0.3)

            asyncio.run(once())
        gc.collect()
    assert not caplog.records


def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(ModelClient(Endpoint.parse("http://127.0.0.1:9")).post(BODY, 1))


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": "key with space-0123456789"},
        {"api_key": "key-0123456789\n"},
        {"api_key": "kéy-0123456789"},
        {"headers": {"X-A": "secret-0123\r\nX-B: 1"}},
        {"headers": {"X-A": "secret-0123é"}},
        {"headers": {"X A": "secret-0123"}},
        {"headers": {"Host": "secret-0123"}},
        {"headers": {"content-length": "0"}},
        {"headers": {"Authorization": "secret-0123"}, "api_key": "key-0123456789"},
        {"proxy": "socks5://u:secret-0123@h:1"},
        {"proxy": "http://u:secret-0123@"},
        {"proxy": "not a url \x00"},
        {"ca_file": "/no/such/file.pem"},
        {"ca_file": __file__},
    ],
)
def test_what_cannot_be_used_is_refused_at_once_without_repeating_it(options: dict[str, object]) -> None:
    with pytest.raises(ClientConfigError) as caught:
        ModelClient(Endpoint.parse("http://h/v1"), **options)  # type: ignore[arg-type]
    assert "0123" not in str(caught.value)
