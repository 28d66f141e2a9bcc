"""Servers on loopback that speak HTTP by the byte, so that they can also speak it badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from runner.endpoint import Endpoint
from runner.model_client import ModelClient
from runner.reply import Exchange, TransportFault

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BODY = b'{"model":"m","messages":[]}'
GOOD = b'{"id":"x","choices":[{"message":{"role":"assistant","content":"{}"}}]}'


@dataclass
class RawServer:
    """``requests``: each request as it came, head and body."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint.parse(self.base_url)


def reply(body: bytes = GOOD, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """A whole reply; `length` overrides the Content-Length."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    if not any(header.lower().startswith("content-type:") for header in headers):
        head.append("Content-Type: application/json")
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request; empty where the client has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def raw_server(*scripts: bytes | Handler, keep_open: bool = False) -> AsyncIterator[RawServer]:
    """A server that answers its requests by `scripts`, in order of arrival, the last one for ever.

    Bytes are sent and the connection is closed (or served on, with `keep_open`); a function is given the
    streams, once the request has been read.
    """
    served = iter(scripts)
    last: list[bytes | Handler] = []
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while request := await read_request(reader):
                server.requests.append(request)
                last[:] = [next(served, last[0] if last else b"")]
                script = last[0]
                if isinstance(script, bytes):
                    writer.write(script)
                    await writer.drain()
                else:
                    await script(reader, writer)
                if not keep_open:
                    return
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    server = RawServer(listening.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.sleep(0)


async def post_once(server: RawServer, timeout: float = 5.0, **options: object) -> Exchange | TransportFault:
    """One attempt by a client of its own."""
    async with ModelClient(server.endpoint, **options) as client:  # type: ignore[arg-type]
        return await client.post(BODY, timeout)


async def exchange_with(*scripts: bytes | Handler, timeout: float = 5.0, **options: object) -> Exchange:
    async with raw_server(*scripts) as server:
        outcome = await post_once(server, timeout, **options)
    assert isinstance(outcome, Exchange), outcome
    return outcome


async def fault_with(*scripts: bytes | Handler, timeout: float = 5.0, **options: object) -> TransportFault:
    async with raw_server(*scripts) as server:
        outcome = await post_once(server, timeout, **options)
    assert isinstance(outcome, TransportFault), outcome
    return outcome
