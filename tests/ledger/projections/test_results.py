"""Results: facts folded from events, text joined from contents, erased text null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ledger.events import (
    ContentRedacted,
    FallbackApplied,
    IntakeCompleted,
    NewEvent,
    ParseFailed,
    Payload,
    Retried,
    RunBlocked,
    RunCompleted,
    new_event,
)
from ledger.projections import results as results_module
from ledger.projections.counts import Outcomes
from ledger.projections.results import results
from ledger.store import Store
from ledger.store.errors import LedgerMalformed, RunNotFound
from tests.stories import accepted, call_failed, call_started, called, digest, output_accepted, output_text, started

Told = Payload | tuple[Payload, str] | tuple[Payload, str, str]


def told(*events: Told, run_id: str = "run-1") -> list[NewEvent]:
    made = []
    for item in events:
        payload, request_id, content = (*item, None, None)[:3] if isinstance(item, tuple) else (item, None, None)
        made.append(new_event(payload, run_id=run_id, request_id=request_id, content=content))
    return made


def request(line: int, request_id: str) -> Told:
    return accepted(line, f"incident-{request_id}"), request_id, f'{{"request_id":"{request_id}"}}'


def answer(request_id: str, attempt: int = 1, turn: int = 1, **added: Any) -> list[Told]:
    facts = output_accepted(turn, allowances=["code_fence"])
    return [
        (call_started(attempt, turn), request_id, "{}"),
        (called(attempt, turn), request_id, "{}"),
        (facts, request_id, output_text(facts, **added)),
    ]


def completed() -> RunCompleted:
    return RunCompleted(outcome="completed", counts=Outcomes().counts())


def intake(lines: int) -> IntakeCompleted:
    return IntakeCompleted(
        lines=lines, accepted=lines, rejected=0, leaking=0, input_sha256=digest("input"), selection=None
    )


def position_of(store: Store, event_type: str, request_id: str) -> int:
    (position,) = [event.position for event in store.events("run-1", request_id=request_id) if event.type == event_type]
    return position


def redact(store: Store, *positions: int) -> None:
    payload = ContentRedacted(positions=list(positions), reason="erasure_request", actor="dpo-2")
    store.append([new_event(payload, run_id="$ledger", content="{}")])


def test_a_result_holds_exactly_its_members(store: Store) -> None:
    store.append(told(started(), request(1, "INC-1"), intake(1), *answer("INC-1"), completed()))
    (result,) = results(store, "run-1")
    assert result == {
        "schema_version": "agent_nemotron_external_result_v1",
        "run_id": "run-1",
        "request_id": "INC-1",
        "incident_id": "incident-INC-1",
        "candidate_id": "nemo_nemotron_fabric",
        "candidate_variant_id": None,
        "model": "example/model-1",
        "model_output": {
            "proposed_action": "rollout restart checkout €",
            "action_plan": ["inspect", "restart"],
            "risk_level": "medium",
            "requires_human_approval": True,
            "blocked_by_policy": False,
        },
        "error": None,
        "first_error": None,
        "retry_used": False,
        "fallback_used": False,
        "trace_complete": True,
        "allowances": ["code_fence"],
        "redacted": False,
        "trace_events": [
            {
                "attempt": 1,
                "turn": 1,
                "http_status": 200,
                "finish_reason": "stop",
                "model": "example/model-1",
                "response_id": "chatcmpl-1",
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 20,
                    "total_tokens": 120,
                    "cached_tokens": None,
                    "reasoning_tokens": None,
                },
                "duration_us": 20_000,
            }
        ],
    }


def test_a_fallback_fails_closed_and_has_one_trace_event_for_its_one_reply(either: Store) -> None:
    attempts: list[Told] = [
        (call_started(1), "INC-1"),
        (call_failed(1, "rate_limited"), "INC-1"),
        (call_started(2), "INC-1"),
        (call_failed(2, "http_503"), "INC-1"),
        (call_started(3), "INC-1"),
        (called(3), "INC-1"),
        (ParseFailed(turn=1, code="model_output_empty", fields=[]), "INC-1"),
        (Retried(turn=2, code="model_output_empty"), "INC-1"),
    ]
    for attempt in (4, 5, 6):
        attempts += [
            (call_started(attempt, 2), "INC-1"),
            (call_failed(attempt, "transport_timeout", 2), "INC-1"),
        ]
    fallback = (FallbackApplied(code="transport_timeout", turn=2), "INC-1")
    either.append(told(started(), request(1, "INC-1"), *attempts, fallback, completed()))
    (result,) = results(either, "run-1")
    assert result["model_output"] == {
        "proposed_action": "",
        "action_plan": [],
        "risk_level": "critical",
        "requires_human_approval": True,
        "blocked_by_policy": True,
    }
    assert (result["first_error"], result["error"]) == ("rate_limited", "transport_timeout")
    assert (result["retry_used"], result["fallback_used"], result["trace_complete"]) == (True, True, False)
    assert [event["attempt"] for event in result["trace_events"]] == [3]


@pytest.mark.parametrize(
    ("code", "complete"), [("http_503", True), ("transport_timeout", False), ("outcome_unknown", False)]
)
def test_a_trace_is_complete_only_where_the_outcome_of_each_call_is_known(
    store: Store, code: str, complete: bool
) -> None:
    failed = [(call_started(1), "INC-1"), (call_failed(1, code), "INC-1")]
    store.append(told(started(), request(1, "INC-1"), *failed, *answer("INC-1", attempt=2)))
    (result,) = results(store, "run-1")
    assert (result["trace_complete"], result["first_error"], result["error"]) == (complete, code, None)


def test_an_integer_beyond_floating_point_keeps_its_digits(store: Store) -> None:
    store.append(told(started(), request(1, "INC-1"), *answer("INC-1", ticket=9_223_372_036_854_775_807)))
    (result,) = results(store, "run-1")
    assert result["model_output"]["ticket"] == 9_223_372_036_854_775_807


@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5), (5, 3, 1, 2, 4)])
def test_results_stand_in_line_order_whatever_order_they_were_decided_in(
    either: Store, monkeypatch: pytest.MonkeyPatch, order: Sequence[int]
) -> None:
    monkeypatch.setattr(results_module, "PAGE", 2)
    requests = [request(line, f"INC-{9 - line}") for line in order]
    answers = [event for line in (4, 1, 3, 5, 2) for event in answer(f"INC-{9 - line}")]
    either.append(told(started(), *requests, intake(5), *answers))
    assert [result["request_id"] for result in results(either, "run-1")] == [
        "INC-8",
        "INC-7",
        "INC-6",
        "INC-5",
        "INC-4",
    ]


def test_a_request_without_a_decision_has_no_result(store: Store) -> None:
    store.append(told(started(), request(1, "INC-1"), request(2, "INC-2"), *answer("INC-2")))
    assert [result["request_id"] for result in results(store, "run-1")] == ["INC-2"]


def test_after_a_second_start_only_the_later_pass_counts(either: Store) -> None:
    first = told(started(model="old-model"), request(1, "INC-1"), request(2, "INC-2"), *answer("INC-1"))
    blocked = told(RunBlocked(failures=["request_invalid"]))
    either.append([*first, *blocked])
    end_of_first = either.head().size
    either.append(told(started(), request(1, "INC-1"), (FallbackApplied(code="not_sent", turn=None), "INC-1")))
    (result,) = results(either, "run-1")
    assert (result["model"], result["error"], result["trace_events"]) == ("example/model-1", "not_sent", [])
    (before,) = results(either, "run-1", end_of_first)
    assert (before["model"], before["error"], before["fallback_used"]) == ("old-model", None, False)


def test_two_runs_with_the_same_requests_do_not_mix(store: Store) -> None:
    store.append(told(started(), request(1, "INC-1"), *answer("INC-1"), run_id="run-1"))
    fallback = (FallbackApplied(code="http_404", turn=1), "INC-1")
    store.append(told(started(), request(1, "INC-1"), fallback, run_id="run-2"))
    assert [result["error"] for run_id in ("run-1", "run-2") for result in results(store, run_id)] == [None, "http_404"]


def test_as_of_an_earlier_position_later_decisions_are_not_there(store: Store) -> None:
    store.append(told(started(), request(1, "INC-1"), request(2, "INC-2"), *answer("INC-1"), *answer("INC-2")))
    decided = position_of(store, "OutputAccepted", "INC-1")
    assert [result["request_id"] for result in results(store, "run-1", decided)] == ["INC-1"]
    assert list(results(store, "run-1", decided - 1)) == []


def test_an_erased_answer_is_null_and_its_verdict_stays(either: Store) -> None:
    either.append(told(started(), request(1, "INC-1"), *answer("INC-1", ticket=7), completed()))
    redact(either, position_of(either, "RequestAccepted", "INC-1"), position_of(either, "OutputAccepted", "INC-1"))
    (result,) = results(either, "run-1")
    assert result["redacted"] is True
    assert result["model_output"] == {
        "proposed_action": None,
        "action_plan": None,
        "risk_level": "medium",
        "requires_human_approval": True,
        "blocked_by_policy": False,
    }


def test_a_fallback_keeps_its_output_when_its_request_is_erased(store: Store) -> None:
    fallback = (FallbackApplied(code="not_sent", turn=None), "INC-1")
    store.append(told(started(), request(1, "INC-1"), fallback, completed()))
    (before,) = results(store, "run-1")
    redact(store, position_of(store, "RequestAccepted", "INC-1"))
    (after,) = results(store, "run-1")
    assert after == {**before, "redacted": True}


def test_an_answer_that_is_gone_without_a_redaction_is_an_error_and_never_null(store: Store) -> None:
    facts = output_accepted()
    store.append(told(started(), request(1, "INC-1"), (facts, "INC-1")))
    with pytest.raises(LedgerMalformed, match=r"position 4 is missing and no redaction"):
        list(results(store, "run-1"))


def test_an_answer_that_is_no_json_object_is_an_error(store: Store) -> None:
    store.append(told(started(), request(1, "INC-1"), (output_accepted(), "INC-1", "[1]")))
    with pytest.raises(LedgerMalformed, match="no JSON object"):
        list(results(store, "run-1"))


def test_a_run_that_is_not_there_is_refused_at_once(store: Store) -> None:
    store.append(told(started(), request(1, "INC-1")))
    with pytest.raises(RunNotFound):
        results(store, "run-9")
    with pytest.raises(RunNotFound, match="at or below position 1"):
        results(store, "run-1", 1)
