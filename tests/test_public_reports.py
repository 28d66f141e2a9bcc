"""Faults that people reported in public, each played through a whole run over real HTTP.

The inputs lie beside the clone and are not part of it; where they are absent these tests skip. Each kind
has a test of our own besides, among those of the part that it is about.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runner.playing import ANSWER, Played, a_request, completion, play
from tests.runner.scripted_http import Handler, reply

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases" / "cases.json"
REPORTS: list[dict[str, Any]] = json.loads(CASES.read_text(encoding="utf-8")) if CASES.exists() else []

REASONS = {
    "not_single_json": "ambiguous",
    "unclosed_reasoning": "ambiguous",
    "multiple_json": "ambiguous",
    "empty_content": "empty",
    "truncated": "truncated",
    "invalid_json": "invalid_json",
    "duplicate_key": "invalid_json",
    "not_object": "not_object",
    "invalid_unicode": "invalid_unicode",
    "too_deep": "too_deep",
    "invalid_fields": "invalid_fields",
    "missing_fields": "missing_fields",
    "refusal": "refused",
    "too_large": "too_large",
}
"""The reports' own words for what went wrong, and ours."""

AMBIGUOUS = {"promptfoo/promptfoo#10654"}
"""Said to be invalid JSON there; two objects stand in the text, which is our ambiguous."""


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """One database will do: these are about what is recorded, not where."""
    return f"sqlite:///{tmp_path / 'ledger.db'}"


pytestmark = pytest.mark.skipif(not REPORTS, reason="the public reports are not beside this clone")


def group(letter: str) -> list[Any]:
    return [pytest.param(one, id=one["source"]) for one in REPORTS if one["group"] == letter]


def model_reply(report: dict[str, Any]) -> bytes:
    content = report["input"]
    if "input_gen" in report:
        made = report["input_gen"]
        content = made["prefix"] + made["repeat"] * made["count"] + made["suffix"]
    extra = dict(report.get("reply_extra", {}))
    message = extra.pop("message", {"role": "assistant", "content": content})
    if message.get("content") == "<input>":
        message["content"] = content
    body = {
        "id": "chatcmpl-1",
        "model": "test-model",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message} | extra],
        "usage": {"prompt_tokens": 120, "completion_tokens": 40, "total_tokens": 160},
    }
    return reply(json.dumps(body).encode())


@pytest.mark.parametrize("fault", group("A"))
async def test_odd_model_output_ends_as_it_should(ledger_url: str, fault: dict[str, Any]) -> None:
    played = await play(ledger_url, [a_request()], model_reply(fault))
    expect = fault["expect"]
    result = played.results[0]
    assert len(played.sent) in expect["calls"]
    if expect["fallback_used"] != "either":
        assert result["fallback_used"] is expect["fallback_used"]
    check_values(result, expect)
    if result["fallback_used"]:
        wanted = "ambiguous" if fault["source"] in AMBIGUOUS else REASONS.get(expect.get("reason_hint", ""), "")
        assert result["error"].startswith(f"model_output_{wanted}"), result["error"]
        assert result["model_output"]["blocked_by_policy"]
        assert result["model_output"]["requires_human_approval"]
    for field in expect.get("fields", ()):
        assert field in result["error"].partition(":")[2].split(",")
        assert field in played.sent[1].decode()
    for text in expect.get("second_request_contains", ()):
        assert text in played.sent[1].decode()
    assert len(played.of("ModelCalled")) == len(played.sent)
    assert played.report["results"] == played.report["requests"] == 1


def check_values(result: dict[str, Any], expect: dict[str, Any]) -> None:
    for name, value in expect.get("never", {}).items():
        assert result["model_output"][name] != value
    wanted = expect.get("values") or (None if result["fallback_used"] else expect.get("values_if_accepted"))
    if wanted:
        assert {name: result["model_output"][name] for name in wanted} == wanted


@pytest.mark.parametrize("fault", group("C"))
async def test_a_leaking_request_is_never_sent_and_a_clean_one_is(ledger_url: str, fault: dict[str, Any]) -> None:
    request = a_request() | fault["input"]
    request["incident_id"] = request["request_id"]
    others = [a_request(2), a_request(3)]
    first = completion("no JSON at all") if fault["expect"]["calls"] == [2] else completion()
    played = await play(ledger_url, [request, *others], first, completion(), on_leak="reject")
    rejected = played.of("LeakRejected")
    if not fault["expect"]["rejected"]:
        assert not rejected
        assert len(played.sent) == fault["expect"]["calls"][0] + 2
        return
    assert len(rejected) == 1
    assert len(played.sent) == 2, "the others still ran"
    assert all(request["request_id"].encode() not in body for body in played.sent)
    paths = [finding["path"] for finding in rejected[0].payload["findings"]]
    if "path" in fault["expect"]:
        assert fault["expect"]["path"] in paths
    assert not played.report["valid"]
    assert any(failure.startswith("request_self_grading_leak:") for failure in played.report["failures"])
    blocked = await play(ledger_url, [request, *others], completion(), run_id="aborting")
    assert (blocked.outcome.state, blocked.sent) == ("blocked", [])


def http_reply(fault: dict[str, Any], number: int = 0) -> bytes:
    given = fault["input"]
    status = given["status"] if isinstance(given["status"], int) else given["status"][number]
    body = given["body"] if isinstance(given["body"], str) else given["body"][number]
    headers = [f"{name}: {value}" for name, value in given["headers"].items()]
    return reply(body.encode(), f"{status} Status", *headers)


async def one(ledger_url: str, *scripts: bytes | Handler, **changes: Any) -> Played:
    return await play(ledger_url, [a_request()], *scripts, **changes)


def by_source(source: str) -> dict[str, Any]:
    return next((report for report in REPORTS if report["source"] == source), {"input": {}})


async def fails_closed(ledger_url: str, source: str, code: str, calls: int, **changes: Any) -> Played:
    changes = {"max_attempts": 2} | changes
    played = await one(ledger_url, http_reply(by_source(source)), **changes)
    assert played.results[0]["error"] == code
    assert played.results[0]["fallback_used"] is True
    assert len(played.sent) == calls
    assert played.of("ParseFailed") == [], "a failed call uses up no turn"
    return played


@pytest.mark.parametrize(
    ("source", "code", "calls"),
    [
        ("UKGovernmentBEIS/inspect_ai#1534", "provider_error", 2),
        ("openai/openai-agents-python#2850", "no_choices", 2),
        ("opensoar-hq/opensoar-core#105", "http_502", 2),
        ("run-llama/llama_index#10231", "transport_cut", 2),
        ("safe-global/safe-eth-py#1171", "http_503", 1),
        ("coder/xum#544", "auth_error", 1),
    ],
)
async def test_provider_trouble_fails_closed_under_its_own_code(
    ledger_url: str, source: str, code: str, calls: int
) -> None:
    if source == "run-llama/llama_index#10231":
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
        played = await one(ledger_url, head + b'14\r\n{"choices":[{"mess\r\n', max_attempts=calls)
        assert played.results[0]["error"] == code
        assert all(event.payload["outcome_unknown"] for event in played.of("ModelCallFailed"))
        return
    played = await fails_closed(ledger_url, source, code, calls)
    if source == "safe-global/safe-eth-py#1171":
        assert played.of("ModelCallFailed")[0].payload["retry_after_ms"] == 3_600_000


async def test_a_wait_until_another_century_is_not_waited_for(ledger_url: str) -> None:
    played = await fails_closed(ledger_url, "CopilotKit/CopilotKit#3842", "rate_limited", 1)
    assert played.of("ModelCallFailed")[0].payload["retry_after_ms"] > 10**12


async def test_null_usage_is_unknown_usage(ledger_url: str) -> None:
    played = await one(ledger_url, http_reply(by_source("run-llama/llama_index#22812")))
    assert played.results[0]["model_output"] == ANSWER
    assert played.results[0]["trace_events"][0]["usage"]["prompt_tokens"] is None
    assert played.report["tokens"]["prompt"] is None
    assert played.report["tokens"]["calls_without_usage"] == 1


async def test_trickling_bytes_do_not_extend_the_deadline(ledger_url: str) -> None:
    import asyncio
    import time

    async def trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(400):
            writer.write(b"1\r\n \r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    began = time.monotonic()
    played = await one(ledger_url, trickle, attempt_timeout="0.5", max_attempts=1)
    assert time.monotonic() - began < 5
    assert played.results[0]["error"] == "transport_timeout"


async def test_no_empty_assistant_turn_is_sent_and_a_400_is_not_tried_again(ledger_url: str) -> None:
    fault = by_source("ogx-ai/ogx#1751")
    played = await one(ledger_url, http_reply(fault, 0), http_reply(fault, 1))
    assert played.story() == "RS RA IC MCS MC PF RT MCS MCF FA RC"
    assert all(message["role"] != "assistant" for message in json.loads(played.sent[1])["messages"])
    assert played.results[0]["error"] == "http_400"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
async def test_each_form_of_the_base_url_reaches_the_one_path(ledger_url: str, suffix: str) -> None:
    from tests.runner.scripted_http import raw_server

    async with raw_server(completion()) as server:
        base = server.base_url.removesuffix("/v1") + suffix
        played = await play(ledger_url, [a_request()], completion(), base_url=base)
        assert [request.split(b" ")[1] for request in server.requests] == [b"/v1/chat/completions"]
    assert played.report["valid"] is True


async def test_a_proxy_in_the_environment_is_not_used(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert (await one(ledger_url, completion())).report["valid"] is True


async def test_a_body_that_is_not_utf_8_is_a_bad_envelope(ledger_url: str) -> None:
    text = json.dumps({"choices": [{"message": {"content": json.dumps(ANSWER | {"proposed_action": "CAFE"})}}]})
    body = text.replace("CAFE", "café").encode("iso-8859-1")
    played = await one(
        ledger_url, reply(body, "200 OK", "Content-Type: application/json; charset=iso-8859-1"), max_attempts=1
    )
    assert played.results[0]["error"] == "bad_envelope"
    assert played.contents[played.of("ModelCallFailed")[0].position]


async def test_an_answer_by_another_model_is_marked(ledger_url: str) -> None:
    played = await one(ledger_url, http_reply(by_source("NVIDIA/NemoClaw#994")))
    assert played.report["model_mismatch"] == 1
    assert played.report["models_answered"] == {"some-other-model": 1}
    assert played.results[0]["trace_events"][0]["model"] == "some-other-model"


async def test_far_fewer_prompt_tokens_than_were_sent_are_suspected_to_be_a_cut_prompt(ledger_url: str) -> None:
    long = a_request(incident_context={"log": "connection refused by upstream " * 1200})
    played = await play(ledger_url, [long], http_reply(by_source("ollama/ollama#4967")))
    assert played.report["suspected_prompt_truncation"] == 1


@pytest.mark.parametrize(("number", "code"), [(0, "auth_error"), (1, "http_404")])
async def test_a_refusal_is_told_by_its_status_not_by_its_words(ledger_url: str, number: int, code: str) -> None:
    played = await one(ledger_url, http_reply(by_source("tarigelamin1997/jobfetcher#2"), number))
    assert played.results[0]["error"] == code
    assert len(played.sent) == 1


@pytest.mark.parametrize("source", ["Helicone/helicone#600", "MemMachine/MemMachine#1558"])
def test_the_database_reports_are_there(source: str) -> None:
    assert by_source(source)["group"] == "D"


async def test_an_answer_with_u0000_is_invalid_by_rule_and_its_reply_is_kept_to_the_byte(ledger_url: str) -> None:
    content = by_source("Helicone/helicone#600")["input"]
    sent = completion(content)
    played = await one(ledger_url, sent)
    assert played.results[0]["error"] == "model_output_invalid_unicode"
    assert played.contents[played.of("ModelCalled")[0].position] == sent.partition(b"\r\n\r\n")[2]


async def test_an_integer_beyond_64_bits_is_refused_and_one_within_keeps_its_digits(ledger_url: str) -> None:
    content = by_source("earendil-works/pi#8943")["input"]
    played = await one(ledger_url, completion(content))
    assert played.results[0]["error"] == "model_output_invalid_json"
    small = content.replace('"big":9223372036854775808', '"big":9223372036854775807')
    contract = {"type": "object", "properties": {"ticket": {"type": "integer"}, "big": {"type": "integer"}}}
    played = await play(ledger_url, [a_request(response_contract=contract)], completion(small), run_id="within")
    output = played.contents[played.of("OutputAccepted")[0].position]
    assert b"4111222333444555667" in output
    assert b"9223372036854775807" in output
    assert played.results[0]["model_output"]["ticket"] == 4111222333444555667
