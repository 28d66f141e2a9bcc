"""Chat completions over HTTP: one attempt in, an `Exchange` or a `TransportFault` out.

The one place where a socket is opened. Nothing here decides what a reply means (`reply`) or whether to try
again (`decide`); it sees to it that an attempt ends by its deadline however slowly bytes trickle in, that no
reply fills the memory, that nothing comes from the environment (proxies, netrc, certificates), that no
redirect is followed and no cookie kept, and that the key leaves by the request's header alone.

httpx's own pool costs milliseconds of CPU a request at a concurrency of 64; its aiohttp transport costs a
tenth of that (`benchmarks/model_client.py`). Requests go to the transport itself: what `httpx.AsyncClient`
would add is redirects, cookies and authentication, none of which is wanted.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from importlib.metadata import version
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote

import aiohttp
import httpx
from aiohttp.http_exceptions import HttpProcessingError
from httpx_aiohttp import AiohttpTransport

from runner.body_reader import BODY_CEILING, KEPT_OF_LARGE_BODY, BodyReader
from runner.endpoint import Endpoint
from runner.reply import Exchange, TransportFault
from runner.retry_after import retry_after_ms
from runner.scrub import Scrubber

__all__ = ["BODY_CEILING", "KEPT_OF_LARGE_BODY", "ClientConfigError", "ModelClient"]

USER_AGENT: Final = f"replay-ledger/{version('replay-ledger')}"

# Servers commonly close an idle connection after five seconds. A request put on a connection that is being
# closed is lost with an unknown outcome, so ours are given up before.
_KEEPALIVE_S: Final = 4.0
_MAX_DETAIL_CHARS: Final = 300
_MAX_CONTENT_TYPE_CHARS: Final = 200
_NO_TIMEOUTS: Final = aiohttp.ClientTimeout(total=None, sock_connect=None)

_OWN_HEADERS: Final = frozenset(
    {
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect"),
        *("host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding"),
        "upgrade",
    }
)
_FAILURES: Final = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    EOFError,
    ValueError,
)
"""All that the libraries and the system raise about a connection; ``ValueError`` holds ``UnicodeError``."""


class ClientConfigError(ValueError):
    """A key, header, certificate file or proxy that cannot be used. The text never repeats the value."""


class _Attempt:
    """How far one attempt came. ``connected``: from here on the request may have been sent."""

    __slots__ = ("body", "connected", "response")

    def __init__(self) -> None:
        self.connected = False
        self.response: httpx.Response | None = None
        self.body = BodyReader()


_ATTEMPT: ContextVar[_Attempt] = ContextVar("attempt")


class ModelClient:
    """A pool of connections to one endpoint; an async context manager, used by one event loop.

    `headers`: further ones, whose values are secrets. `ca_file`: a PEM file of the authorities to trust
    instead of the public ones. `proxy`: an http or https URL, with user info or without; no other proxy is
    ever used. `scrubber`: None makes one from the key, the header values and the proxy's password. `clock`
    gives Unix seconds (for dates in ``Retry-After``), `ticks` monotonic nanoseconds.

    Raises `ClientConfigError`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        concurrency: int = 16,
        ca_file: str | None = None,
        proxy: str | None = None,
        scrubber: Scrubber | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.endpoint = endpoint
        extra = _checked_headers(headers or {}, api_key)
        self._proxy: httpx.Proxy | None
        self._proxy, proxy_secret = _proxy(proxy) if proxy else (None, None)
        secrets = [secret for secret in (api_key, proxy_secret, *extra.values()) if secret]
        self.scrubber = scrubber or Scrubber(secrets)
        self._concurrency = concurrency
        self._tls = _tls_context(ca_file, wanted=endpoint.scheme == "https" or (proxy or "").startswith("https:"))
        self._url = httpx.URL(endpoint.url)
        self._headers = httpx.Headers(self._request_headers(api_key, extra))
        self._clock = clock
        self._ticks = ticks
        self._transport: AiohttpTransport | None = None

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_mark_connected)
        trace.on_connection_reuseconn.append(_mark_connected)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=_KEEPALIVE_S, ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_NO_TIMEOUTS,
            trust_env=False,
            trace_configs=[trace],
        )
        self._transport = AiohttpTransport(verify=self._tls, trust_env=False, proxy=self._proxy, client=session)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    async def post(self, body: bytes, timeout: float) -> Exchange | TransportFault:
        """One attempt: send `body` as it is, read the reply, within `timeout` seconds all in all.

        Raises nothing that a server or a network can cause. Cancellation passes through.
        """
        return await self._attempt("POST", self._url, body, timeout)

    async def models(self, timeout: float) -> Exchange | TransportFault:
        """The endpoint's list of models, as it gives it; many endpoints have none."""
        return await self._attempt("GET", httpx.URL(self.endpoint.models_url), None, timeout)

    def _request_headers(self, api_key: str | None, extra: Mapping[str, str]) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
        }
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        if self._proxy is not None and self.endpoint.scheme == "http":
            # Over TLS the proxy's password goes into the CONNECT request; without, into the request itself.
            headers.update(self._proxy.headers)
        own = {name.lower() for name in headers} - {name.lower() for name in extra}
        return {name: value for name, value in headers.items() if name.lower() in own} | dict(extra)

    async def _attempt(
        self, method: str, url: httpx.URL, body: bytes | None, timeout: float
    ) -> Exchange | TransportFault:
        began = self._ticks()
        attempt = _Attempt()
        current = _ATTEMPT.set(attempt)
        failure: Exception | None = None
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                await self._receive(httpx.Request(method, url, headers=self._headers, content=body), attempt)
        except _FAILURES as error:  # a deadline's TimeoutError is an OSError
            failure = error
        finally:
            _ATTEMPT.reset(current)
        duration_us = max(0, (self._ticks() - began) // 1000)
        response = attempt.response
        # The status decides before the body does: a 401 whose body was cut is still a 401.
        if response is not None and (failure is None or response.status_code != 200):
            return self._exchange(response, attempt.body, failure is not None, duration_us)
        assert failure is not None  # without a failure there is a response
        return self._fault(failure, attempt.connected, deadline.expired(), duration_us)

    async def _receive(self, request: httpx.Request, attempt: _Attempt) -> None:
        if self._transport is None:
            raise RuntimeError("the client is not open: use it in 'async with'")
        response = await self._transport.handle_async_request(request)
        try:
            headers = response.headers
            attempt.body = body = BodyReader(headers.get("content-encoding"), _integer(headers.get("content-length")))
            attempt.response = response
            async for chunk in response.aiter_raw():
                body.feed(chunk)
                if body.too_large:
                    return
            body.end()
        finally:
            # A body that was not read to its end takes its connection with it.
            await response.aclose()

    def _exchange(self, response: httpx.Response, reader: BodyReader, cut: bool, duration_us: int) -> Exchange:
        # Scrubbed before it is shortened, so that no key is left in half at the end.
        body, scrubbed = self.scrubber.scrub(reader.body)
        content_type, in_type = self._content_type(response)
        headers = response.headers
        return Exchange(
            http_status=response.status_code,
            body=body[:KEPT_OF_LARGE_BODY] if reader.too_large else body,
            body_bytes=reader.body_bytes,
            truncated=cut or reader.too_large,
            content_type=content_type,
            retry_after_ms=retry_after_ms(
                headers.get_list("retry-after-ms"), headers.get_list("retry-after"), self._clock()
            ),
            duration_us=duration_us,
            scrubbed=scrubbed + in_type,
        )

    def _content_type(self, response: httpx.Response) -> tuple[str | None, int]:
        value = response.headers.get("content-type")
        if value is None:
            return None, 0
        text, scrubbed = self.scrubber.scrub_text(value)
        return text[:_MAX_CONTENT_TYPE_CHARS], scrubbed

    def _fault(self, error: Exception, connected: bool, expired: bool, duration_us: int) -> TransportFault:
        detail, scrubbed = self.scrubber.scrub_text(_detail(error, connected, expired))
        return TransportFault(
            code=("transport_timeout" if expired else "transport_cut") if connected else "transport_connect",
            outcome_unknown=connected,
            detail=detail[:_MAX_DETAIL_CHARS],
            duration_us=duration_us,
            scrubbed=scrubbed,
        )


async def _mark_connected(*_: Any) -> None:
    _ATTEMPT.get().connected = True


def _detail(error: Exception, connected: bool, expired: bool) -> str:
    """What went wrong. Once connected, an error's text may hold pieces of the reply, so only its kind is told."""
    cause = error.__cause__ or error
    if expired:
        return "no whole reply within the attempt's time" if connected else "no connection within the attempt's time"
    if connected:
        return f"{type(cause).__name__}: the connection ended, or the reply broke off or was no HTTP"
    return f"{type(cause).__name__}: {cause}"


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def _checked_headers(headers: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    if api_key and not _is_header_value(api_key, spaces=False):
        raise ClientConfigError("the API key holds white space or characters that a header cannot carry")
    for name, value in headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ClientConfigError(f"{name!r} is not a header's name")
        if name.lower() in _OWN_HEADERS:
            raise ClientConfigError(f"the header {name} cannot be given: the client sets it itself")
        if name.lower() == "authorization" and api_key:
            raise ClientConfigError("the header Authorization and an API key cannot both be given")
        if not _is_header_value(value, spaces=True):
            raise ClientConfigError(f"the value of the header {name} holds characters that a header cannot carry")
    return dict(headers)


def _is_header_value(value: str, *, spaces: bool) -> bool:
    return value.isascii() and value.isprintable() and value == value.strip() and (spaces or " " not in value)


def _proxy(url: str) -> tuple[httpx.Proxy, str | None]:
    """The proxy, with its user info turned into a header, and its password."""
    try:
        parsed = httpx.URL(url)
        user, colon, password = parsed.userinfo.decode("ascii").partition(":")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ClientConfigError("the proxy must be an http or https URL with a host")
        bare = parsed.copy_with(username=None, password=None)
        if not user and not colon:
            return httpx.Proxy(bare), None
        credentials = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode("ascii")
        return httpx.Proxy(bare, headers={"Proxy-Authorization": f"Basic {credentials}"}), unquote(password)
    except httpx.InvalidURL:
        raise ClientConfigError("the proxy is not a URL") from None


def _tls_context(ca_file: str | None, *, wanted: bool) -> ssl.SSLContext:
    """Verifies against `ca_file` or the public authorities. Where no TLS is spoken, none are loaded: it takes 50 ms."""
    if ca_file is not None:
        try:
            return ssl.create_default_context(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise ClientConfigError(f"the certificates in {ca_file} cannot be read: {error}") from None
    return httpx.create_ssl_context(trust_env=False) if wanted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
