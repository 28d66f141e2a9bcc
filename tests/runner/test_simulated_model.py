"""The simulated endpoint answers by script, says that it is simulated, and counts what it was asked."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.demo_incidents import DEMO_EXPECTED, DEMO_SCRIPTS, LEAKING_REQUESTS, demo_files
from runner.endpoint import Endpoint
from runner.model_client import ModelClient
from runner.reply import CallFailure, Exchange, Reply, TransportFault, classify
from runner.simulated_model import SimulatedEndpoint
from runner.simulated_replies import OTHER_MODEL, REPLIES, SIMULATED_FINGERPRINT, SIMULATED_MODEL, Script
from tests.runner.scripted_http import BODY

ROOT = Path(__file__).resolve().parents[2]


def body_about(incident: str) -> bytes:
    context = json.dumps({"incident_id": incident, "title": "something broke"}, separators=(",", ":"))
    messages = [
        {"role": "system", "content": "You propose."},
        {"role": "user", "content": f"What now?\n\nINCIDENT CONTEXT (JSON):\n{context}"},
    ]
    return json.dumps({"model": SIMULATED_MODEL, "messages": messages, "stream": False}).encode()


def outcomes(script: Script, calls: int, timeout: float = 5.0) -> list[Exchange | TransportFault]:
    async def ask(base_url: str) -> list[Exchange | TransportFault]:
        async with ModelClient(Endpoint.parse(base_url)) as client:
            return [await client.post(body_about("INC-1"), timeout) for _ in range(calls)]

    with SimulatedEndpoint({"INC-1": script}) as endpoint:
        result = asyncio.run(ask(endpoint.base_url))
        assert endpoint.calls == {"INC-1": calls}
    return result


def one(reply: str, timeout: float = 5.0) -> Exchange | TransportFault:
    return outcomes(Script(replies=(reply,)), 1, timeout)[0]


def test_a_reply_says_that_it_is_simulated() -> None:
    reply = classify(one("well"))
    assert isinstance(reply, Reply)
    assert (reply.model, reply.system_fingerprint) == (SIMULATED_MODEL, SIMULATED_FINGERPRINT)
    assert reply.response_id == "chatcmpl-simulated-INC-1-1"
    assert "simulated" in SIMULATED_MODEL
    assert "simulated" in OTHER_MODEL


def test_each_call_about_an_incident_gets_the_next_reply_and_then_the_last_for_ever() -> None:
    script = Script(replies=("rate_limited", "unavailable", "well"))
    statuses = [outcome.http_status for outcome in outcomes(script, 5) if isinstance(outcome, Exchange)]
    assert statuses == [429, 503, 200, 200, 200]


def test_incidents_are_counted_apart_and_unknown_ones_are_answered_well() -> None:
    async def ask(base_url: str) -> list[Exchange | TransportFault]:
        async with ModelClient(Endpoint.parse(base_url)) as client:
            bodies = [body_about("A"), body_about("B"), body_about("A"), body_about("C"), BODY]
            return [await client.post(body, 5) for body in bodies]

    with SimulatedEndpoint({"A": Script(replies=("unavailable", "well"))}) as endpoint:
        result = asyncio.run(ask(endpoint.base_url))
        assert [getattr(outcome, "http_status", None) for outcome in result] == [503, 200, 200, 200, 200]
        assert endpoint.calls == {"A": 2, "B": 1, "C": 1, "": 1}
        assert endpoint.total_calls == 5


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("rate_limited", "rate_limited"),
        ("unavailable", "http_503"),
        ("bad_request", "http_400"),
        ("unauthorized", "auth_error"),
        ("error_in_200", "provider_error"),
        ("html", "not_json_response"),
        ("cut", "transport_cut"),
        ("dropped", "transport_cut"),
        ("hangs", "transport_timeout"),
    ],
)
def test_a_failing_reply_fails_as_a_real_one_would(reply: str, code: str) -> None:
    failure = classify(one(reply, timeout=0.5))
    assert isinstance(failure, CallFailure)
    assert failure.code == code


def test_a_limit_comes_with_the_wait_it_asks_for() -> None:
    outcome = one("rate_limited")
    assert isinstance(outcome, Exchange)
    assert outcome.retry_after_ms == 1000


@pytest.mark.parametrize(
    "name", [name for name, reply in REPLIES.items() if reply.body is None and reply.way == "whole"]
)
def test_every_other_reply_is_a_completion(name: str) -> None:
    assert isinstance(classify(one(name)), Reply)


@pytest.mark.parametrize("replies", [(), ("well", "no such reply")])
def test_a_script_of_unknown_replies_is_refused(replies: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="a script names"):
        Script(replies=replies)


def test_what_is_no_chat_request_is_refused_and_counted() -> None:
    async def ask(base_url: str) -> Exchange | TransportFault:
        async with ModelClient(Endpoint.parse(base_url)) as client:
            return await client.post(b"{not json", 5)

    with SimulatedEndpoint({}) as endpoint:
        outcome = asyncio.run(ask(endpoint.base_url))
        assert endpoint.total_calls == 1
    assert isinstance(outcome, Exchange)
    assert outcome.http_status == 400


def test_a_port_that_is_taken_is_told() -> None:
    with SimulatedEndpoint({}) as endpoint:
        taken = int(endpoint.base_url.rpartition(":")[2].removesuffix("/v1"))
        with pytest.raises(OSError, match="address already in use"), SimulatedEndpoint({}, port=taken):
            pass


def test_it_runs_as_a_program_and_prints_how_to_reach_it() -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "runner.simulated_model", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        base_url = line.partition("--base-url ")[2].split()[0]

        async def ask() -> Exchange | TransportFault:
            async with ModelClient(Endpoint.parse(base_url)) as client:
                return await client.post(body_about("INC-1"), 5)

        assert isinstance(asyncio.run(ask()), Exchange)
    finally:
        process.terminate()
        process.communicate(timeout=10)


# --- the demo's incidents ---------------------------------------------------------------------


def test_the_demo_files_hold_one_request_an_incident_and_one_that_leaks(tmp_path: Path) -> None:
    files = demo_files(tmp_path)
    requests = [json.loads(line) for line in files.incidents_path.read_text(encoding="utf-8").splitlines()]
    assert [request["incident_id"] for request in requests] == list(files.expected) == list(DEMO_SCRIPTS)
    assert len(requests) >= 24
    leaking = files.leaking_path.read_text(encoding="utf-8").splitlines()
    assert ["evaluation_labels" in line for line in leaking] == [False, True, False]
    assert len(leaking) == LEAKING_REQUESTS


def test_the_demo_shows_every_kind_of_outcome() -> None:
    assert {expected["outcome"] for expected in DEMO_EXPECTED.values()} == {
        "accepted_first",
        "accepted_after_retry",
        "fallback",
    }
    errors = {expected["error"] for expected in DEMO_EXPECTED.values()}
    assert errors >= {None, "transport_timeout", "transport_cut", "http_503", "http_400", "not_json_response"}
    assert errors >= {"model_output_ambiguous", "model_output_truncated", "model_output_refused"}


def test_so_few_demo_calls_fail_that_they_never_look_like_an_endpoint_that_is_down() -> None:
    down = {"unavailable", "dropped", "cut", "hangs"}
    failing = 0
    for script in DEMO_SCRIPTS.values():
        failing += sum(reply in down for reply in script.replies[:-1]) + 3 * (script.replies[-1] in down)
    assert failing < 20
