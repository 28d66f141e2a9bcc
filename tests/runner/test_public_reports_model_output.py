"""Odd model output that people reported in public, judged by the pure core alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.contract import Accepted, Broken, Contract, judge
from runner.decide import Done, Past, Record, RecordedRequest, StartCall, decide, model_called_payload
from runner.prompts import CONTRACT_TUNED
from runner.reply import Exchange, Reply, classify
from runner.settings import RunSettings
from tests.runner.asked import ANSWER, exchange, request

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "cases.json"
NULL_CHARACTER = "Helicone/helicone#600"
LONG_INTEGERS = "earendil-works/pi#8943"
FRAGMENT_BEFORE_OBJECT = "promptfoo/promptfoo#10654"
CEILING = 1 << 20

CODES = {
    "truncated": "truncated",
    "invalid_json": "invalid_json",
    "duplicate_key": "invalid_json",
    "not_single_json": "ambiguous",
    "multiple_json": "ambiguous",
    "unclosed_reasoning": "ambiguous",
    "not_object": "not_object",
    "invalid_unicode": "invalid_unicode",
    "too_deep": "too_deep",
    "too_large": "too_large",
    "invalid_fields": "invalid_fields",
    "missing_fields": "missing_fields",
    "empty_content": "empty",
    "refusal": "refused",
}


def _cases() -> list[dict[str, Any]]:
    if not CASES.exists():
        return []
    held = json.loads(CASES.read_text(encoding="utf-8"))
    cases: list[dict[str, Any]] = held if isinstance(held, list) else held["cases"]
    return [case for case in cases if case["group"] == "A" or _is_judged_here(case)]


def _is_judged_here(case: dict[str, Any]) -> bool:
    return case["source"] in (NULL_CHARACTER, LONG_INTEGERS) or (case["group"] == "B" and "expect" in case)


def _case(source: str) -> dict[str, Any]:
    return next(case for case in _cases() if case["source"] == source)


pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the public bug reports are not at hand")


def _exchange(case: dict[str, Any]) -> Exchange:
    if case["group"] == "B":
        given = case["input"]
        return exchange(given["body"].encode(), status=given["status"], content_type=given["headers"]["content-type"])
    content = case["input"]
    if "input_gen" in case:
        made = case["input_gen"]
        content = made["prefix"] + made["repeat"] * made["count"] + made["suffix"]
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    for name, value in case.get("reply_extra", {}).items():
        choice[name] = value
        if name == "message" and value.get("content") == "<input>":
            choice[name] = {**value, "content": content}
    body = json.dumps({"id": "x", "model": "test-model", "choices": [choice]}).encode()
    large = len(body) > CEILING
    return exchange(body[: CEILING // 16] if large else body, truncated=large, body_bytes=len(body))


def _play(answers: Exchange) -> tuple[int, Record, list[bytes]]:
    """The request's whole life where every call is answered alike: calls, last step, bodies sent."""
    recorded = RecordedRequest("INC-1", request(), CONTRACT_TUNED, "test-model", RunSettings())
    past = [Past("RequestAccepted", {}, None)]
    bodies: list[bytes] = []
    last: Record | None = None
    while not isinstance(step := decide(recorded, past, scan_quote=lambda _: False), Done):
        if isinstance(step, StartCall):
            bodies.append(step.body)
            told = classify(answers)
            assert isinstance(told, Reply)
            called = model_called_payload(told, answers, step.payload.attempt, step.payload.turn)
            past += [
                Past("ModelCallStarted", step.payload.model_dump(), step.body),
                Past("ModelCalled", called.model_dump(), answers.body),
            ]
        else:
            last = step
            past += [Past(payload.TYPE, payload.model_dump(), content) for payload, content in step.events]
    assert last is not None
    return len(bodies), last, bodies


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in _cases()])
def test_a_public_report_ends_as_it_should(case: dict[str, Any]) -> None:
    expect = case.get("expect", {})
    calls, last, bodies = _play(_exchange(case))
    payload, content = last.events[-1]
    fell_back = payload.TYPE == "FallbackApplied"
    if "calls" in expect:
        assert calls in expect["calls"]
    if expect.get("fallback_used") in (True, False):
        assert fell_back is expect["fallback_used"]
    if not fell_back:
        assert content is not None
        output = json.loads(content)
        wanted = expect.get("values") or expect.get("values_if_accepted") or ANSWER
        assert {name: output[name] for name in wanted} == wanted
        assert not any(output.get(name) == value for name, value in expect.get("never", {}).items())
    for text in expect.get("second_request_contains", ()):
        assert text.encode() in bodies[1]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in _cases() if "reason_hint" in case.get("expect", {})]
)
def test_a_public_report_has_the_code_that_tells_it_from_others(case: dict[str, Any]) -> None:
    told = classify(_exchange(case))
    assert isinstance(told, Reply)
    verdict = judge(told, Contract())
    assert isinstance(verdict, Broken)
    hint = CODES[case["expect"]["reason_hint"]]
    code = verdict.code.partition(":")[0].removeprefix("model_output_")
    # A fragment of an object and a whole one after prose: no one object, so ambiguous rather than invalid.
    assert code == ("ambiguous" if case["source"] == FRAGMENT_BEFORE_OBJECT else hint)
    assert sorted(verdict.fields) == sorted(case["expect"].get("fields", ()))


def test_an_escaped_null_character_is_refused_before_any_database_sees_it() -> None:
    told = classify(_exchange(_case(NULL_CHARACTER)))
    assert isinstance(told, Reply)
    verdict = judge(told, Contract())
    assert isinstance(verdict, Broken)
    assert verdict.code == "model_output_invalid_unicode"


def test_integers_of_64_bits_keep_their_digits_and_larger_ones_are_refused() -> None:
    case = _case(LONG_INTEGERS)
    told = classify(_exchange(case))
    assert isinstance(told, Reply)
    assert isinstance(judge(told, Contract()), Broken)
    smaller = {**case, "input": case["input"].replace(',"big":9223372036854775808', "")}
    told = classify(_exchange(smaller))
    assert isinstance(told, Reply)
    verdict = judge(told, Contract({"properties": {"ticket": {"type": "integer"}}}))
    assert isinstance(verdict, Accepted)
    assert verdict.output["ticket"] == 4111222333444555667
