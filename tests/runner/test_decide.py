from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.events import EVENT_TYPES, Payload
from runner.decide import (
    MAY_FOLLOW,
    STEPS,
    Done,
    ImpossibleHistory,
    Past,
    Record,
    RecordedRequest,
    RetryPlan,
    StartCall,
    call_failed_payload,
    decide,
    model_called_payload,
    plan_retry,
    recorded_reply,
)
from runner.prompts import first_body
from runner.reply import CallFailure, Exchange, Reply, TransportFault, classify
from runner.settings import RunSettings
from runner.variants import BASELINE, CONTRACT_TUNED
from tests.runner.asked import ANSWER, completion, exchange, request

GOOD = exchange(completion(json.dumps(ANSWER)))
BAD = exchange(completion("I would restart the pod."))
MISSING = exchange(completion("{}"))
Outcome = Exchange | TransportFault
TIMEOUT = TransportFault("transport_timeout", outcome_unknown=True, detail="no answer", duration_us=1)
CONNECT = TransportFault("transport_connect", outcome_unknown=False, detail="refused", duration_us=1)


def status(code: int, **members: Any) -> Exchange:
    return exchange(b"{}", status=code, **members)


def recorded(*, tuned: bool = True, **settings: Any) -> RecordedRequest:
    variant = CONTRACT_TUNED if tuned else BASELINE
    return RecordedRequest("INC-1", request(tuned=tuned), variant, "test-model", RunSettings(**settings))


def never(body: bytes) -> bool:
    return False


class Life:
    """A request driven to its end. ``outcomes`` answer the calls in turn; the last one stays.

    ``stop_after``: so many calls are answered before the run is stopped by a refused key.
    """

    def __init__(
        self,
        asked: RecordedRequest,
        outcomes: list[Outcome],
        *,
        stop_after: int | None = None,
        scan_quote: Callable[[bytes], bool] = never,
    ) -> None:
        self.past = [Past("RequestAccepted", {}, None)]
        self.calls: list[StartCall] = []
        self._asked, self._outcomes = asked, outcomes
        while True:
            stopping = stop_after is not None and len(self.calls) >= stop_after
            step = decide(asked, self.past, scan_quote=scan_quote, stopping=stopping)
            assert step == decide(asked, list(self.past), scan_quote=scan_quote, stopping=stopping)
            if isinstance(step, Done):
                break
            if isinstance(step, Record):
                self._add(*step.events)
            else:
                self._call(step)
            assert len(self.calls) <= asked.variant.turns * asked.settings.max_attempts

    def _add(self, *events: tuple[Payload, bytes | None]) -> None:
        self.past += [Past(payload.TYPE, payload.model_dump(), content) for payload, content in events]

    def _call(self, step: StartCall) -> None:
        self.calls.append(step)
        self._add((step.payload, step.body))
        outcome = self._outcomes[min(len(self.calls), len(self._outcomes)) - 1]
        told = classify(outcome)
        attempt, turn = step.payload.attempt, step.payload.turn
        if isinstance(told, Reply):
            assert isinstance(outcome, Exchange)
            self._add((model_called_payload(told, outcome, attempt, turn), outcome.body))
            return
        in_turn = sum(call.payload.turn == turn for call in self.calls)
        plan = plan_retry(told, attempts_in_turn=in_turn, settings=self._asked.settings, elapsed_seconds=1, jitter=0.5)
        self._add(call_failed_payload(told, attempt, turn, *plan))

    @property
    def story(self) -> list[str]:
        """The types after the acceptance, with the code or turn that tells them apart."""
        return [" ".join([event.type, *self._told(event)]) for event in self.past[1:]]

    @staticmethod
    def _told(event: Past) -> list[str]:
        payload = event.payload
        if event.type in ("FallbackApplied", "ModelCallFailed", "ParseFailed"):
            return [payload["code"], str(payload["turn"])]
        return [str(payload["turn"])]


def story(asked: RecordedRequest, *outcomes: Outcome, **how: Any) -> list[str]:
    return Life(asked, list(outcomes), **how).story


# --- the stories that runs tell ------------------------------------------------------------


def test_a_clean_request_is_one_call_and_its_output() -> None:
    life = Life(recorded(tuned=False), [GOOD])
    assert life.story == ["ModelCallStarted 1", "ModelCalled 1", "OutputAccepted 1"]
    output = life.past[-1]
    assert output.content is not None
    assert json.loads(output.content) == ANSWER
    assert output.payload == {
        "turn": 1,
        "risk_level": "medium",
        "requires_human_approval": True,
        "blocked_by_policy": False,
        "allowances": [],
    }
    assert life.calls[0].body == first_body(request(tuned=False), BASELINE, "test-model", RunSettings())
    assert life.calls[0].payload.body_bytes == len(life.calls[0].body)


def test_a_broken_answer_under_the_baseline_is_the_fallback_at_once() -> None:
    assert story(recorded(tuned=False), BAD) == [
        "ModelCallStarted 1",
        "ModelCalled 1",
        "ParseFailed model_output_invalid_json 1",
        "FallbackApplied model_output_invalid_json 1",
    ]


def test_a_broken_answer_and_then_a_good_one() -> None:
    life = Life(recorded(), [MISSING, GOOD])
    assert life.story[2:] == [
        f"ParseFailed model_output_missing_fields:{','.join(ANSWER)} 1",
        "Retried 2",
        "ModelCallStarted 2",
        "ModelCalled 2",
        "OutputAccepted 2",
    ]
    assert b"Previous model output was invalid" in life.calls[1].body
    assert [call.payload.attempt for call in life.calls] == [1, 2]


def test_two_broken_answers_are_the_fallback_of_the_second() -> None:
    assert story(recorded(), BAD, MISSING)[-1].startswith("FallbackApplied model_output_missing_fields:")


def test_failures_a_broken_answer_and_three_timeouts() -> None:
    life = Life(recorded(), [status(429), status(503), BAD, TIMEOUT])
    assert life.story == [
        "ModelCallStarted 1",
        "ModelCallFailed rate_limited 1",
        "ModelCallStarted 1",
        "ModelCallFailed http_503 1",
        "ModelCallStarted 1",
        "ModelCalled 1",
        "ParseFailed model_output_invalid_json 1",
        "Retried 2",
        *["ModelCallStarted 2", "ModelCallFailed transport_timeout 2"] * 3,
        "FallbackApplied transport_timeout 2",
    ]
    assert [call.payload.attempt for call in life.calls] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(status(404), "http_404"), (status(302), "unexpected_redirect"), (exchange(b"<html>"), "not_json_response")],
)
def test_what_is_not_tried_again_is_the_fallback_at_once(outcome: Exchange, code: str) -> None:
    assert story(recorded(), outcome)[1:] == [f"ModelCallFailed {code} 1", f"FallbackApplied {code} 1"]


def test_the_waits_that_were_planned_are_kept() -> None:
    life = Life(recorded(), [status(429, retry_after_ms=1500), GOOD])
    assert [call.wait_ms for call in life.calls] == [0, 1500]


# --- a run that a refused key has stopped --------------------------------------------------


def test_the_refused_request_says_so_itself() -> None:
    assert story(recorded(), status(401), stop_after=1)[-1] == "FallbackApplied auth_error 1"


def test_a_request_that_was_never_sent_says_so() -> None:
    assert story(recorded(), GOOD, stop_after=0) == ["FallbackApplied not_sent None"]


def test_a_request_that_needs_another_attempt_is_sent_no_more() -> None:
    assert story(recorded(), CONNECT, stop_after=1)[-1] == "FallbackApplied not_sent None"


def test_a_request_that_needs_another_turn_is_sent_no_more() -> None:
    told = story(recorded(), BAD, stop_after=1)
    assert told[-2:] == ["ParseFailed model_output_invalid_json 1", "FallbackApplied not_sent None"]
    assert "Retried 2" not in told


def test_a_reply_in_flight_is_decided_all_the_same() -> None:
    assert story(recorded(), GOOD, stop_after=1)[-1] == "OutputAccepted 1"
    assert story(recorded(tuned=False), BAD, stop_after=1)[-1] == "FallbackApplied model_output_invalid_json 1"
    assert story(recorded(), status(404), stop_after=1)[-1] == "FallbackApplied http_404 1"
    assert story(recorded(max_attempts=1), CONNECT, stop_after=1)[-1] == "FallbackApplied transport_connect 1"


# --- the quote -----------------------------------------------------------------------------


def test_a_quote_that_leaks_is_left_out_and_this_is_recorded() -> None:
    life = Life(recorded(), [exchange(completion("gold: restart")), GOOD], scan_quote=lambda body: b"gold" in body)
    assert [call.payload.quote_withheld for call in life.calls] == [False, True]
    assert b"gold" not in life.calls[1].body
    assert b"Previous model output was invalid" in life.calls[1].body


def test_a_quote_that_does_not_leak_is_sent() -> None:
    life = Life(recorded(), [BAD, GOOD])
    assert not life.calls[1].payload.quote_withheld
    assert b"I would restart the pod." in life.calls[1].body


def test_nothing_is_withheld_where_there_is_nothing_to_quote() -> None:
    life = Life(recorded(), [exchange(completion(None)), GOOD], scan_quote=lambda body: True)
    assert not life.calls[1].payload.quote_withheld


# --- properties ----------------------------------------------------------------------------

outcomes = st.sampled_from(
    [
        GOOD,
        BAD,
        MISSING,
        TIMEOUT,
        CONNECT,
        status(401),
        status(404),
        status(429, retry_after_ms=10),
        status(503, retry_after_ms=10**9),
        exchange(b""),
        exchange(b"<html>"),
        exchange(completion(None)),
        exchange(completion("{", finish_reason="length")),
        exchange(completion(json.dumps(ANSWER))[:50], truncated=True),
        exchange(completion('"\ud83d')),
    ]
)


@given(
    st.lists(outcomes, min_size=1, max_size=8),
    st.booleans(),
    st.integers(1, 4),
    st.none() | st.integers(0, 4),
    st.booleans(),
)
def test_every_life_ends_in_exactly_one_result_within_its_bounds(
    answers: list[Outcome], tuned: bool, max_attempts: int, stop_after: int | None, leaky: bool
) -> None:
    life = Life(
        recorded(tuned=tuned, max_attempts=max_attempts), answers, stop_after=stop_after, scan_quote=lambda body: leaky
    )
    types = [event.type for event in life.past]
    assert types[-1] in ("OutputAccepted", "FallbackApplied")
    assert sum(kind in ("OutputAccepted", "FallbackApplied") for kind in types) == 1
    assert types.count("Retried") <= 1
    assert [call.payload.attempt for call in life.calls] == list(range(1, len(life.calls) + 1))
    before: str | None = None
    for kind in types:
        assert kind in MAY_FOLLOW[before]
        before = kind


@given(st.lists(st.sampled_from(sorted(EVENT_TYPES)), max_size=4))
def test_a_history_out_of_order_is_an_error_by_name(types: list[str]) -> None:
    before: str | None = None
    in_order = bool(types)
    for kind in types:
        in_order = in_order and kind in MAY_FOLLOW.get(before, frozenset())
        before = kind
    if not in_order:
        with pytest.raises(ImpossibleHistory):
            decide(recorded(), [Past(kind, {}, None) for kind in types], scan_quote=never)


def test_the_two_tables_speak_of_the_same_events() -> None:
    followed = set().union(*MAY_FOLLOW.values())
    assert set(STEPS) == set(MAY_FOLLOW) - {None} == followed
    assert followed <= EVENT_TYPES.keys()


def test_a_call_whose_outcome_is_not_known_must_be_closed_first() -> None:
    first = decide(recorded(), [Past("RequestAccepted", {}, None)], scan_quote=never)
    assert isinstance(first, StartCall)
    past = [Past("RequestAccepted", {}, None), Past("ModelCallStarted", first.payload.model_dump(), first.body)]
    with pytest.raises(ImpossibleHistory, match="open"):
        decide(recorded(), past, scan_quote=never)


def test_no_recorded_plan_makes_a_request_go_on_beyond_its_attempts() -> None:
    told = classify(CONNECT)
    assert isinstance(told, CallFailure)
    past = [Past("RequestAccepted", {}, None)]
    for attempt in (1, 2, 3):
        past.append(Past("ModelCallStarted", {"attempt": attempt, "turn": 1}, None))
        failed, content = call_failed_payload(told, attempt, 1, True, 5)
        past.append(Past("ModelCallFailed", failed.model_dump(), content))
    step = decide(recorded(), past, scan_quote=never)
    assert isinstance(step, Record)
    assert step.events[0][0].TYPE == "FallbackApplied"


# --- what was recorded is read again -------------------------------------------------------


@given(st.lists(outcomes, min_size=1, max_size=6))
def test_a_recorded_reply_reads_as_it_did_when_it_came(answers: list[Outcome]) -> None:
    for outcome in answers:
        told = classify(outcome)
        if isinstance(told, Reply):
            assert isinstance(outcome, Exchange)
            called = model_called_payload(told, outcome, 1, 1)
            assert recorded_reply(Past("ModelCalled", called.model_dump(), outcome.body)) == told


def test_a_reply_whose_body_was_erased_cannot_be_decided_on() -> None:
    called = model_called_payload(Reply(content="x"), GOOD, 1, 1)
    with pytest.raises(ImpossibleHistory, match="no longer"):
        recorded_reply(Past("ModelCalled", called.model_dump(), None))


def test_a_recorded_body_that_is_no_reply_is_an_error_by_name() -> None:
    called = model_called_payload(Reply(content="x"), GOOD, 1, 1)
    with pytest.raises(ImpossibleHistory, match="bad_envelope"):
        recorded_reply(Past("ModelCalled", called.model_dump(), b"{"))


# --- waits ---------------------------------------------------------------------------------


def planned(
    outcome: Outcome, *, attempts: int = 1, elapsed: float = 0, jitter: float = 0, **settings: Any
) -> RetryPlan:
    told = classify(outcome)
    assert isinstance(told, CallFailure)
    return plan_retry(
        told, attempts_in_turn=attempts, settings=RunSettings(**settings), elapsed_seconds=elapsed, jitter=jitter
    )


def test_waits_double_up_to_twenty_seconds() -> None:
    waits = [planned(CONNECT, attempts=n, max_attempts=100).wait_ms for n in (1, 2, 3, 4, 5, 6, 7, 90)]
    assert waits == [500, 1000, 2000, 4000, 8000, 16000, 20000, 20000]


def test_jitter_takes_up_to_half_of_a_wait() -> None:
    assert [planned(CONNECT, jitter=jitter).wait_ms for jitter in (0, 0.5, 1)] == [500, 375, 250]


@pytest.mark.parametrize("after_ms", [0, 7, 12_000])
def test_the_servers_own_wait_is_honoured(after_ms: int) -> None:
    assert planned(status(429, retry_after_ms=after_ms), jitter=1) == (True, after_ms)


def test_a_wait_beyond_the_requests_budget_fails_at_once() -> None:
    assert planned(status(503, retry_after_ms=3_600_000)) == (False, None)
    assert planned(status(429, retry_after_ms=10_000), elapsed=289) == (True, 10_000)
    assert planned(status(429, retry_after_ms=10_000), elapsed=290) == (False, None)
    assert planned(CONNECT, elapsed=300) == (False, None)


def test_the_last_attempt_of_a_turn_is_the_last() -> None:
    assert planned(CONNECT, attempts=2).will_retry
    assert not planned(CONNECT, attempts=3).will_retry


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422, 302])
def test_what_cannot_pass_is_not_tried_again(code: int) -> None:
    assert planned(status(code, retry_after_ms=1)) == (False, None)


@given(st.integers(1, 200), st.floats(0, 1), st.floats(0, 1e6), st.none() | st.integers(0, 10**12))
def test_a_planned_wait_fits_the_budget(attempts: int, jitter: float, elapsed: float, after: int | None) -> None:
    plan = planned(
        status(503, retry_after_ms=after), attempts=attempts, jitter=jitter, elapsed=elapsed, max_attempts=100
    )
    if plan.will_retry:
        assert plan.wait_ms is not None
        assert elapsed + plan.wait_ms / 1000 < 300
    else:
        assert plan.wait_ms is None
