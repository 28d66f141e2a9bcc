"""The programming interface, with a client that has only `post`, `raise_for_status` and `json`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import runner
from commands._ledger import find_run
from ledger import open_ledger
from ledger.events import LATEST
from runner import (
    NEMOTRON_CONTRACT_TUNED_VARIANT_ID,
    NemotronExternalRunnerConfig,
    RunExists,
    run_nemotron_external_replay,
)
from runner.caller_client import AdaptedClient
from runner.reply import Exchange
from runner.scrub import Scrubber
from tests.runner.playing import ANSWER, a_request, completion
from tests.runner.scripted_http import raw_server


class Reply:
    def __init__(self, body: Any) -> None:
        self._body = body

    def raise_for_status(self) -> None:
        if isinstance(self._body, Exception):
            raise self._body

    def json(self) -> Any:
        return self._body


class Double:
    """Answers its calls in order, the last answer for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    async def post(self, url: str, *, json: Any, headers: dict[str, str]) -> Reply:
        self.calls.append({"url": url, "json": json, "headers": headers})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer)


def said(content: str | None) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content}}]}


GOOD = said(json.dumps(ANSWER))


def config(**options: Any) -> NemotronExternalRunnerConfig:
    return NemotronExternalRunnerConfig(**{"api_key": "key-for-tests", "concurrency": 1} | options)


async def test_results_are_dicts_and_the_report_has_its_members_as_attributes() -> None:
    client = Double(GOOD)
    results, report = await run_nemotron_external_replay(
        requests=[a_request(1, tuned=False), a_request(2, tuned=False)], config=config(), client=client
    )
    assert [result["model_output"] for result in results] == [ANSWER, ANSWER]
    assert report.valid is True
    assert report.requests == 2
    assert client.calls[0]["url"] == "https://integrate.api.nvidia.com/v1/chat/completions"
    assert client.calls[0]["headers"]["Authorization"] == "Bearer key-for-tests"
    assert client.calls[0]["json"]["model"] == "nvidia/llama-3.3-nemotron-super-49b-v1.5"
    with pytest.raises(AttributeError):
        _ = report.no_such_member


async def test_an_empty_key_makes_no_call() -> None:
    client = Double(GOOD)
    results, report = await run_nemotron_external_replay(
        requests=[a_request()], config=config(api_key=""), client=client
    )
    assert results == []
    assert report.valid is False
    assert report.failures == ["api_key_missing"]
    assert client.calls == []


async def test_a_leak_makes_no_call() -> None:
    client = Double(GOOD)
    leaking = a_request(2, incident_context={"evaluation_labels": {"repair_success": True}})
    results, report = await run_nemotron_external_replay(
        requests=[a_request(), leaking], config=config(), client=client
    )
    assert results == []
    assert report.valid is False
    assert any(failure.startswith("request_self_grading_leak:INC-2") for failure in report.failures)
    assert client.calls == []


async def test_an_answer_that_is_not_json_fails_closed_under_the_baseline() -> None:
    results, report = await run_nemotron_external_replay(
        requests=[a_request(tuned=False)], config=config(), client=Double(said("Restart it."))
    )
    assert report.external_error_records == 1
    assert len(results) == 1
    assert results[0]["fallback_used"] is True
    assert results[0]["model_output"]["blocked_by_policy"] is True


async def test_the_tuned_variant_corrects_once() -> None:
    assert NEMOTRON_CONTRACT_TUNED_VARIANT_ID == "nemo_nemotron_fabric__contract_tuned_v1"
    client = Double(said('{"risk_level": "low"}'), GOOD)
    results, report = await run_nemotron_external_replay(requests=[a_request()], config=config(), client=client)
    assert report.accepted_after_retry == 1
    assert results[0]["retry_used"] is True
    assert "Previous model output was invalid" in client.calls[1]["json"]["messages"][1]["content"]


class SlowError(Exception):
    """A client's own time-out, by name."""


class ReadTimeout(SlowError):
    pass


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ReadTimeout("slow"), "transport_timeout"),
        (TimeoutError("slow"), "transport_timeout"),
        (OSError("refused"), "transport_connect"),
        ({"choices": float("nan")}, "bad_envelope"),
        ({"choices": object()}, "bad_envelope"),
        ({"choices": []}, "no_choices"),
        ({"error": {"message": "busy"}}, "provider_error"),
    ],
)
async def test_whatever_a_callers_client_does_ends_under_a_code(answer: Any, code: str) -> None:
    results, _ = await run_nemotron_external_replay(
        requests=[a_request()], config=config(max_attempts=1), client=Double(answer)
    )
    assert results[0]["error"] == code


async def test_a_status_error_of_a_client_without_status_is_a_failed_call() -> None:
    class Refusing(Double):
        async def post(self, url: str, *, json: Any, headers: dict[str, str]) -> Reply:
            return Reply(RuntimeError("502"))

    results, _ = await run_nemotron_external_replay(
        requests=[a_request()], config=config(max_attempts=1), client=Refusing(GOOD)
    )
    assert results[0]["error"] == "transport_connect"


async def test_the_deadline_holds_for_a_callers_client_too() -> None:
    class Hanging(Double):
        async def post(self, url: str, *, json: Any, headers: dict[str, str]) -> Reply:
            await asyncio.sleep(60)
            raise AssertionError

    results, _ = await run_nemotron_external_replay(
        requests=[a_request()], config=config(max_attempts=1, attempt_timeout="0.1"), client=Hanging(GOOD)
    )
    assert results[0]["error"] == "transport_timeout"


async def test_with_a_ledger_it_is_recorded_there_and_a_known_run_is_refused(ledger_url: str) -> None:
    await run_nemotron_external_replay(requests=[a_request()], config=config(), client=Double(GOOD), ledger=ledger_url)
    with open_ledger(ledger_url, "read") as store:
        assert store.version("played") > 0
    with pytest.raises(RunExists):
        await run_nemotron_external_replay(
            requests=[a_request()], config=config(), client=Double(GOOD), ledger=ledger_url
        )


async def test_without_a_client_ours_is_used_over_real_http() -> None:
    async with raw_server(completion()) as server:
        _, report = await run_nemotron_external_replay(
            requests=[a_request(), a_request(2)], config=config(base_url=server.base_url)
        )
        assert report.valid is True
        assert len(server.requests) == 2


def test_the_key_is_not_in_the_configurations_repr(tmp_path: Path) -> None:
    assert "key-for-tests" not in repr(config())
    assert "NemotronExternalRunnerConfig" in runner.__all__


async def test_a_request_that_json_cannot_hold_is_named() -> None:
    with pytest.raises(ValueError, match="request 2 cannot be written as JSON"):
        await run_nemotron_external_replay(
            requests=[a_request(), {"x": object()}], config=config(), client=Double(GOOD)
        )


async def test_a_key_across_the_edge_of_a_large_reply_is_not_left_in_half() -> None:
    key = "sekret-0123456789abcdef"
    large = {"p": "x" * (64 * 1024 - 20), "q": key, "r": "y" * 2**20}
    client = AdaptedClient(Double(large), "http://h/v1", {}, Scrubber([key]))
    exchange = await client.post(b"{}", 5)
    assert isinstance(exchange, Exchange)
    assert exchange.truncated
    assert key[:6].encode() not in exchange.body


@pytest.mark.parametrize("wrong", [{"run_id": "latest"}, {"max_tokens": 2**53}, {"rpm": 2**53}, {"sample": 2**53}])
def test_what_no_run_can_have_was_taken_until_the_ledger_was_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        config(**wrong)


async def test_a_run_named_latest_before_the_word_was_reserved_hid_every_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = f"sqlite:///{tmp_path / 'l.db'}"
    for run_id, reserved in (("latest", ""), ("newer", LATEST)):
        monkeypatch.setattr("runner.replay.LATEST", reserved)
        requests = [a_request(run_id=run_id)]
        await run_nemotron_external_replay(requests=requests, config=config(), client=Double(GOOD), ledger=ledger)
    with open_ledger(ledger, "read") as store:
        assert find_run(store, "latest") == "newer"
        assert find_run(store, "lates") == "latest"
