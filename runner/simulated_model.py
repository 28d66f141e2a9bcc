"""A chat-completions endpoint on loopback that answers by script: no key, no network, no model.

It says so in every reply: in a header, in the model's name, in the fingerprint and in each id. What it
answers to an incident is chosen by the ``"incident_id"`` in the user's message, so the same incident gets the
same treatment whatever else is in flight.

    python -m runner.simulated_model --port 8900
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from runner.demo_incidents import DEMO_SCRIPTS
from runner.simulated_replies import SIMULATED_MODEL, Script, SimulatedReply, completion

SIMULATED_HEADER: Final = "X-Simulated"
_HOST: Final = "127.0.0.1"
_INCIDENT: Final = re.compile(r'"incident_id":\s*"([A-Za-z0-9._:@-]{1,128})"')
_START_WITHIN_S: Final = 10.0
_LARGEST_REQUEST: Final = 64 << 20


class SimulatedEndpoint:
    """The endpoint, in a thread of its own, while the ``with`` block lasts.

    `scripts`: incident id -> its script; any other incident is answered well. `delay_s` comes before each
    reply. ``calls`` counts the completions asked for by incident id ("" where none was found), at their
    arrival; ``total_calls`` all of them.
    """

    def __init__(self, scripts: Mapping[str, Script] = DEMO_SCRIPTS, *, port: int = 0, delay_s: float = 0.0) -> None:
        self.calls: Counter[str] = Counter()
        self._scripts = scripts
        self._port = port
        self._delay_s = delay_s
        self._unscripted = Script()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="simulated-endpoint", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_START_WITHIN_S):
            raise TimeoutError("the simulated endpoint did not start")
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def base_url(self) -> str:
        """What to give as the base URL; ends in ``/v1``."""
        return f"http://{_HOST}:{self._port}/v1"

    @property
    def total_calls(self) -> int:
        """Completions asked for so far."""
        return self.calls.total()

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        except OSError as error:  # the port is taken; told to whoever waits in __enter__
            self._failure = error
        finally:
            self._ready.set()

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=_LARGEST_REQUEST)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.on_response_prepare.append(_mark_as_simulated)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, _HOST, self._port, backlog=1024)
            await site.start()
            self._port = runner.addresses[0][1]
            self._ready.set()
            await self._stopping.wait()
        finally:
            await runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": SIMULATED_MODEL, "object": "model", "owned_by": "simulated"}
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        prompt = _user_prompt(await request.read())
        found = _INCIDENT.search(prompt or "")
        incident = found[1] if found else ""
        self.calls[incident] += 1
        call = self.calls[incident]
        if prompt is None:
            return web.json_response({"error": {"message": "simulated: no chat completion request"}}, status=400)
        script = self._scripts.get(incident, self._unscripted)
        reply = script.reply(call)
        await asyncio.sleep(self._delay_s + reply.delay_s)
        served_id = f"chatcmpl-simulated-{incident or 'unscripted'}-{call}"
        body = reply.body if reply.body is not None else completion(reply, script.answer, served_id, len(prompt))
        return await _send(request, reply, body)


async def _send(request: web.Request, reply: SimulatedReply, body: str) -> web.StreamResponse:
    if reply.way == "hangs":
        await asyncio.Event().wait()
    if reply.way == "dropped":
        _abort(request)
        return web.Response()
    response = web.Response(status=reply.status, text=body, headers=reply.headers, content_type=reply.content_type)
    if reply.way == "cut":
        cut = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
        await cut.prepare(request)
        await cut.write(body.encode("utf-8")[: len(body) // 2])
        _abort(request)
        return cut
    return response


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _mark_as_simulated(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[SIMULATED_HEADER] = "true"


def _user_prompt(raw: bytes) -> str | None:
    """The last user message's text; None where the request is no chat completion."""
    try:
        messages: Any = json.loads(raw)["messages"]
        return "".join([message["content"] for message in messages if message["role"] == "user"][-1:])
    except (ValueError, KeyError, TypeError):
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m runner.simulated_model", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="before each reply")
    given = parser.parse_args(arguments)
    with SimulatedEndpoint(port=given.port, delay_s=given.delay_ms / 1000) as endpoint:
        print(f"simulated endpoint: --base-url {endpoint.base_url} --model {SIMULATED_MODEL} --no-api-key", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"{endpoint.total_calls} calls")


if __name__ == "__main__":
    main()
