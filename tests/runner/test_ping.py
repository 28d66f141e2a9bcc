"""What an endpoint can do is found out before a long run, and nothing it says is an error of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from runner.endpoint import Endpoint
from runner.model_client import ModelClient
from runner.ping import PingResult, ping
from runner.simulated_model import SimulatedEndpoint
from runner.simulated_replies import SIMULATED_MODEL
from tests.runner.scripted_http import raw_server

KEY = "nv-key-0123456789"


class Server:
    """An endpoint with a list of models or none, a key or none, with JSON mode or without."""

    def __init__(self, *, models: Any = None, content: str = '{"ready": true}', json_mode: bool = True) -> None:
        self.models, self.content, self.json_mode = models, content, json_mode
        self.bodies: list[dict[str, Any]] = []

    async def complete(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response(
                {"error": {"message": f"bad key {request.headers.get('Authorization')}"}}, status=401
            )
        body = await request.json()
        self.bodies.append(body)
        if "response_format" in body and not self.json_mode:
            return web.json_response({"error": {"message": "response_format is not supported"}}, status=400)
        content = '{"ready": true}' if "response_format" in body else self.content
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        return web.json_response({"id": "x", "model": body["model"], "choices": [choice]})

    async def listed(self, request: web.Request) -> web.Response:
        return web.json_response(self.models) if self.models is not None else web.Response(status=404)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.listed)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def pinged(server: Server, model: str = "m-1", key: str | None = KEY, **extra: Any) -> PingResult:
    async def ask() -> PingResult:
        async with server.running() as base_url, ModelClient(Endpoint.parse(base_url), api_key=key) as client:
            return await ping(client, model, timeout=5, extra=extra)

    return asyncio.run(ask())


def verdicts(result: PingResult) -> dict[str, str]:
    return {check.name: check.verdict for check in result.checks}


def test_an_endpoint_that_can_do_everything() -> None:
    result = pinged(Server(models={"data": [{"id": "m-1"}, {"id": "m-2"}]}))
    assert result.ok
    assert set(verdicts(result).values()) == {"yes"}
    assert list(verdicts(result)) == ["reachable", "key", "model", "answers", "json_without_mode", "json_mode"]


def test_no_list_of_models_is_tolerated() -> None:
    result = pinged(Server())
    assert result.ok
    assert verdicts(result)["model"] == "unknown"


@pytest.mark.parametrize("models", [[], {"data": "x"}, {"data": [1, {"id": 2}]}, "text", {"object": "list"}])
def test_an_odd_list_of_models_is_tolerated(models: Any) -> None:
    assert pinged(Server(models=models)).ok


def test_a_model_that_is_not_listed_but_answers_is_there() -> None:
    result = pinged(Server(models={"data": [{"id": "m-2"}]}))
    assert verdicts(result)["model"] == "yes"


def test_a_refused_key_is_told_apart_and_not_repeated() -> None:
    result = pinged(Server(), key="nv-wrong-key-0123456789")
    assert not result.ok
    assert verdicts(result) == {"reachable": "yes", "key": "no", "model": "unknown", "answers": "no"}
    assert "nv-wrong-key" not in json.dumps(result.as_dict())


def test_an_endpoint_without_json_mode_is_fit_for_a_run() -> None:
    result = pinged(Server(json_mode=False))
    assert result.ok
    assert verdicts(result)["json_mode"] == "no"
    assert verdicts(result)["json_without_mode"] == "yes"


@pytest.mark.parametrize("content", ["Sure! Here it is.", "[1]", "", '{"a": 1} {"b": 2}'])
def test_an_answer_that_is_not_json_alone_is_told(content: str) -> None:
    result = pinged(Server(content=content))
    assert verdicts(result)["json_without_mode"] == "no"
    assert verdicts(result)["json_mode"] == "yes"


def test_only_what_was_given_is_sent() -> None:
    server = Server()
    pinged(server, max_tokens=64)
    first, second = server.bodies
    assert first.keys() == {"model", "messages", "stream", "max_tokens"}
    assert second.keys() == first.keys() | {"response_format"}


def test_an_endpoint_that_is_not_there_is_no_error_of_ours() -> None:
    async def ask() -> PingResult:
        async with ModelClient(Endpoint.parse("http://127.0.0.1:9")) as client:
            return await ping(client, "m-1", timeout=2)

    result = asyncio.run(ask())
    assert not result.ok
    assert verdicts(result) == {"reachable": "no", "key": "unknown", "model": "unknown", "answers": "no"}


def test_an_endpoint_that_speaks_no_http_is_no_error_of_ours() -> None:
    async def ask() -> PingResult:
        async with raw_server(b"SSH-2.0-OpenSSH_9.6\r\n") as server, ModelClient(server.endpoint) as client:
            return await ping(client, "m-1", timeout=2)

    assert not asyncio.run(ask()).ok


def test_the_simulated_endpoint_says_that_another_model_answers() -> None:
    async def ask(base_url: str, model: str) -> PingResult:
        async with ModelClient(Endpoint.parse(base_url)) as client:
            return await ping(client, model, timeout=5)

    with SimulatedEndpoint({}) as endpoint:
        assert asyncio.run(ask(endpoint.base_url, SIMULATED_MODEL)).ok
        other = asyncio.run(ask(endpoint.base_url, "gpt-x"))
    assert verdicts(other)["model"] == "no"
    assert any(SIMULATED_MODEL in check.detail for check in other.checks if check.name == "answers")
