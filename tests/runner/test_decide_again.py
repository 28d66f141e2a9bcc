"""A request's recorded events decided again: the same where nothing changed, and what differs where something did."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import contract as contract_module
from runner import decide_again as module
from runner.answer import AnswerError, read_answer
from runner.contract import Contract
from runner.decide import Past, RecordedRequest
from runner.decide_again import CUT, STANDS_ON, Again, Difference, Recorded, decide_again, judge_again, read_again
from runner.reply import Reply
from runner.variants import BASELINE, CONTRACT_TUNED
from tests.runner.asked import ANSWER, completion, document, exchange, request
from tests.runner.test_decide import BAD, GOOD, MISSING, Life, Outcome, never, outcomes, recorded, status

FENCED = exchange(completion(f"```json\n{json.dumps(ANSWER)}\n```"))
ERROR_IN_200 = exchange(b'{"choices":null,"error":{"message":"busy"}}')
DECISIONS = ("ModelCallStarted", "OutputAccepted", "ParseFailed", "Retried", "FallbackApplied")


def events_of(past: list[Past]) -> list[Recorded]:
    return [Recorded(number, event.type, event.payload, event.content) for number, event in enumerate(past, 1)]


def again(asked: RecordedRequest, past: list[Past], *, stop_after: int | None = None, **how: Any) -> Again:
    """Decide a life again; the run was stopped once so many calls had been made."""

    def stopping(position: int) -> bool:
        before = sum(event.type == "ModelCallStarted" for event in past[: position - 1])
        return stop_after is not None and before >= stop_after

    return decide_again(asked, events_of(past), **{"scan_quote": never, "stopping": stopping} | how)


def differences(told: Again) -> list[tuple[str, str, list[str]]]:
    return [(one.event, one.kind, [member.name for member in one.members]) for one in told.differences]


@given(
    st.lists(outcomes | st.sampled_from([FENCED, ERROR_IN_200]), min_size=1, max_size=8),
    st.booleans(),
    st.integers(1, 4),
    st.none() | st.integers(0, 4),
    st.booleans(),
)
def test_what_this_program_recorded_it_decides_so_again(
    answers: list[Outcome], tuned: bool, max_attempts: int, stop_after: int | None, leaky: bool
) -> None:
    asked = recorded(tuned=tuned, max_attempts=max_attempts)
    life = Life(asked, answers, stop_after=stop_after, scan_quote=lambda body: leaky)
    told = again(asked, life.past, stop_after=stop_after, scan_quote=lambda body: leaky)
    assert told == Again([], sum(event.type in DECISIONS for event in life.past), None)


@given(st.lists(outcomes, min_size=1, max_size=6), st.booleans(), st.data())
def test_a_life_that_was_not_over_is_the_same_as_far_as_it_went(
    answers: list[Outcome], tuned: bool, data: st.DataObject
) -> None:
    asked = recorded(tuned=tuned)
    past = Life(asked, answers).past
    assert again(asked, past[: data.draw(st.integers(1, len(past)))]).differences == []


@given(st.lists(outcomes, min_size=1, max_size=6), st.booleans(), st.data())
def test_a_decision_that_was_recorded_otherwise_is_the_only_one_told(
    answers: list[Outcome], tuned: bool, data: st.DataObject
) -> None:
    asked = recorded(tuned=tuned)
    past = Life(asked, answers).past
    at = data.draw(st.sampled_from([n for n, event in enumerate(past) if event.type in DECISIONS]))
    name = data.draw(st.sampled_from(sorted(past[at].payload)))
    changed = past[at]._replace(payload={**past[at].payload, name: "something else"})
    (told,) = again(asked, [*past[:at], changed, *past[at + 1 :]]).differences
    assert (told.position, told.event) == (at + 1, changed.type)
    assert [member.name for member in told.members] == [name]
    assert told.members[0].recorded == "something else"
    assert told.members[0].today == past[at].payload[name]


@given(st.lists(outcomes, min_size=1, max_size=6), st.booleans(), st.data())
def test_events_that_are_missing_or_twice_there_never_pass_and_never_raise(
    answers: list[Outcome], tuned: bool, data: st.DataObject
) -> None:
    asked = recorded(tuned=tuned)
    past = Life(asked, answers).past
    at = data.draw(st.integers(0, len(past) - 2))
    shorter = [*past[:at], *past[at + 1 :]]
    assert again(asked, shorter).differences, "an event was taken out of the middle"
    assert again(asked, [*past[: at + 1], *past[at:]]).differences, "an event stands twice"


def test_a_body_of_which_one_byte_differs_is_told_by_its_place_and_never_by_its_text() -> None:
    asked = recorded()
    past = Life(asked, [GOOD]).past
    sent = past[1].content
    assert sent is not None
    past[1] = past[1]._replace(content=sent[:10] + b"~" + sent[11:])
    (told,) = again(asked, past).differences
    assert (told.kind, told.event, told.position) == ("body", "ModelCallStarted", 2)
    assert told.members[0] == ("body", f"{len(sent)} bytes", f"{len(sent)} bytes, other from byte 11 on")


def test_an_output_that_differs_is_told_by_its_place_and_never_by_its_text() -> None:
    asked = recorded()
    past = Life(asked, [GOOD]).past
    past[-1] = past[-1]._replace(content=b'{"proposed_action":"rm -rf"}')
    (told,) = again(asked, past).differences
    assert told.members[0].name == "output"
    assert "rm -rf" not in repr(told)


def test_a_fallback_as_not_sent_needs_a_run_that_was_stopped() -> None:
    asked = recorded()
    past = Life(asked, [BAD], stop_after=1).past
    assert again(asked, past, stop_after=1).differences == []
    assert differences(again(asked, past)) == [("FallbackApplied", "decision", ["type", "code"])]


def test_a_quote_that_today_would_be_sent_is_told_as_the_guards() -> None:
    asked = recorded()
    past = Life(asked, [BAD, GOOD], scan_quote=lambda body: True).past
    (told,) = again(asked, past).differences
    assert (told.kind, told.event) == ("guard", "ModelCallStarted")
    assert ("quote_withheld", True, False) in told.members


def test_a_reading_that_differs_is_told_and_the_decisions_after_it_are_still_compared() -> None:
    asked = recorded()
    past = Life(asked, [GOOD]).past
    past[2] = past[2]._replace(payload={**past[2].payload, "prompt_tokens": 7})
    past[3] = past[3]._replace(payload={**past[3].payload, "risk_level": "low"})
    assert differences(again(asked, past)) == [
        ("ModelCalled", "reply", ["prompt_tokens"]),
        ("OutputAccepted", "decision", ["risk_level"]),
    ]


def test_a_reply_that_today_is_none_is_told_with_the_code_it_would_have() -> None:
    asked = recorded()
    past = Life(asked, [GOOD]).past
    past[2] = past[2]._replace(content=b"[]")
    (told,) = again(asked, past).differences
    assert [(m.recorded, m.today) for m in told.members] == [("ModelCalled", "ModelCallFailed"), (None, "bad_envelope")]


# --- failures ------------------------------------------------------------------------------


def test_a_failed_call_whose_body_today_is_a_reply_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(max_attempts=1)
    past = Life(asked, [ERROR_IN_200]).past
    assert again(asked, past).differences == []
    monkeypatch.setattr(module, "classify", lambda outcome: Reply(content="x"))
    (told,) = again(asked, past).differences
    assert (told.event, told.members[0].today) == ("ModelCallFailed", "ModelCalled")


@pytest.mark.parametrize(
    "failed",
    [
        exchange(b"<html>" + b"x" * 100_000, content_type="text/html; charset=utf-8"),
        exchange(b"data: x\n\n" * 20_000, content_type="text/event-stream"),
        exchange(b"{}", content_type="text/html"),
        exchange(b""),
        exchange(b"\n\n\n\n"),
        exchange(b'{"choices":[]}', status=None),
        status(503),
        status(302),
        status(418),
    ],
)
def test_a_failed_call_is_read_again_from_what_was_kept_of_it(failed: Outcome) -> None:
    asked = recorded(max_attempts=2)
    assert again(asked, Life(asked, [failed]).past).differences == []


def test_a_failed_call_of_which_too_little_was_kept_is_not_guessed_at() -> None:
    long = exchange(json.dumps({"error": {"message": "x" * 100_000}}).encode())
    asked = recorded(max_attempts=1)
    told = again(asked, Life(asked, [long]).past)
    assert (told.differences, told.undecided) == ([], CUT)


def test_a_code_that_today_is_not_tried_again_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded()
    past = Life(asked, [status(429), GOOD]).past
    monkeypatch.setattr(module, "is_retried", lambda code: False)
    assert differences(again(asked, past)) == [("ModelCallFailed", "decision", ["will_retry"])]


def test_a_status_that_today_has_another_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded()
    past = Life(asked, [status(429), GOOD]).past
    monkeypatch.setattr(module, "status_code", lambda status: None if status == 200 else f"http_{status}")
    (told,) = again(asked, past).differences
    assert told.members == (("code", "rate_limited", "http_429"),)


# --- another template ----------------------------------------------------------------------


def test_under_another_template_only_the_verdicts_on_replies_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded()
    past = [
        event._replace(content=b"another prompt") if event.type == "ModelCallStarted" else event
        for event in Life(asked, [FENCED]).past
    ]
    assert again(asked, past, same_template=False) == Again([], 1, None)
    monkeypatch.setattr(contract_module, "read_answer", without_fences)
    assert differences(again(asked, past, same_template=False)) == [("OutputAccepted", "decision", ["type", "code"])]


def test_under_another_template_nobody_guesses_how_many_turns_it_had() -> None:
    asked = recorded()
    past = Life(asked, [BAD, MISSING, GOOD]).past
    one_turn = RecordedRequest(asked.request_id, asked.request, BASELINE, asked.model, asked.settings)
    assert again(one_turn, past, same_template=False).differences == []
    assert again(one_turn, past).differences != []


def without_fences(content: str) -> tuple[Any, tuple[str, ...]]:
    value, allowances = read_answer(content)
    if "fence" in allowances:
        raise AnswerError("ambiguous", "A fence stood round the answer.")
    return value, allowances


# --- the line ------------------------------------------------------------------------------


def a_line(**members: Any) -> Recorded:
    raw = json.dumps(document(**members)).encode()
    facts = module._accepted(request(**members)).facts()
    return Recorded(4, "RequestAccepted", facts, raw)


def test_a_line_reads_as_the_request_that_was_recorded() -> None:
    read = read_again(a_line(policy_id="p-1"), "INC-1", CONTRACT_TUNED)
    assert not isinstance(read, Difference)
    assert read.policy_id == "p-1"


def test_a_line_that_today_is_no_request_is_told_with_code_and_field() -> None:
    line = a_line()
    told = read_again(line._replace(content=b'{"schema_version":"other"}'), "INC-1", BASELINE)
    assert isinstance(told, Difference)
    assert (told.kind, [member.today for member in told.members]) == (
        "request",
        ["RequestRejected", "request_invalid", "schema_version"],
    )


def test_a_line_that_today_says_something_else_is_told_by_member() -> None:
    line = a_line()
    told = read_again(line._replace(payload={**line.payload, "policy_id": "p-2"}), "INC-9", BASELINE)
    assert isinstance(told, Difference)
    assert [member.name for member in told.members] == ["request_id", "policy_id"]


# --- another contract ----------------------------------------------------------------------

SAFE_ONLY = Contract({"properties": {"risk_level": {"enum": ["low"]}}})


@pytest.mark.parametrize(
    ("tuned", "answers", "contract", "outcome", "flips"),
    [
        (False, [GOOD], Contract(), "accept", 0),
        (False, [GOOD], SAFE_ONLY, "refuse", 1),
        (False, [BAD], Contract(), "refuse", 0),
        (True, [GOOD], SAFE_ONLY, "ask_again", 1),
        (True, [BAD, GOOD], Contract(), "accept", 0),
        (True, [BAD, GOOD], SAFE_ONLY, "refuse", 1),
        (True, [BAD, MISSING], SAFE_ONLY, "refuse", 0),
        (True, [status(404)], SAFE_ONLY, "no_reply", 0),
    ],
)
def test_recorded_replies_are_held_against_another_contract(
    tuned: bool, answers: list[Outcome], contract: Contract, outcome: str, flips: int
) -> None:
    asked = recorded(tuned=tuned)
    judged = judge_again(events_of(Life(asked, answers).past), contract, asked.variant.turns)
    assert (judged.outcome, len(judged.differences)) == (outcome, flips)


def test_an_answer_that_the_other_contract_takes_ends_the_request_there() -> None:
    strict = recorded().request
    asked = RecordedRequest("INC-1", request(response_contract=SAFE_SCHEMA), CONTRACT_TUNED, "m", recorded().settings)
    life = Life(asked, [GOOD])
    assert life.story[-1].startswith("FallbackApplied")
    judged = judge_again(events_of(life.past), strict.contract, 2)
    assert judged.outcome == "accept"
    assert [(one.event, one.members[0].today) for one in judged.differences] == [("ParseFailed", "OutputAccepted")]


SAFE_SCHEMA = {"properties": {"risk_level": {"enum": ["low"]}}}


def test_what_a_request_stands_on_has_content_in_every_life() -> None:
    for event in Life(recorded(), [status(503), BAD, GOOD]).past[1:]:
        assert (event.type not in STANDS_ON) or event.content is not None
