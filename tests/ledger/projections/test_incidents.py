"""Incidents: each line of a run as facts, and together what the report counts."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings

from ledger.events import (
    FallbackApplied,
    Finding,
    LeakRejected,
    NewEvent,
    ParseFailed,
    Payload,
    RequestRejected,
    Retried,
    RunBlocked,
    new_event,
)
from ledger.projections.calls import nearest_rank
from ledger.projections.incidents import Incident, incidents
from ledger.projections.report import report
from ledger.projections.tables import fold
from ledger.store import Store, open_store
from ledger.store.errors import RunNotFound
from tests.ledger.projections.test_results import answer, completed, intake, redact, request, told
from tests.stories import accepted, call_failed, call_started, called, output_accepted, started, stories, story

SEVEN = (
    *("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected"),
    *("not_started", "incomplete"),
)


def rejected(line: int, request_id: str | None = None, field: str | None = None) -> RequestRejected:
    return RequestRejected(line=line, request_id=request_id, code="request_invalid", field=field, first_line=None)


def of_one(store: Store, *payloads: Payload) -> Incident:
    store.append(told(started(), request(1, "INC-1"), intake(1), *((payload, "INC-1", "{}") for payload in payloads)))
    (incident,) = incidents(store, "run-1")
    return incident


def test_an_accepted_answer_is_told_with_its_verdict_and_without_an_error(store: Store) -> None:
    payload = accepted(7, "incident-A", facets={"severity": "critical"}, policy_id="p-1")
    store.append(told(started(), (payload, "A", "{}"), intake(1), *answer("A"), completed()))
    (incident,) = incidents(store, "run-1")
    assert incident == Incident(
        line=7,
        request_id="A",
        incident_id="incident-A",
        outcome="accepted_first",
        risk_level="medium",
        blocked_by_policy=False,
        requires_human_approval=True,
        allowances=("code_fence",),
        error=None,
        first_error=None,
        where=None,
        attempts=1,
        retried=False,
        replies_us=(20_000,),
        failed_us=0,
        waited_ms=0,
        facets={"severity": "critical"},
        policy_id="p-1",
        position=3,
        decided=7,
    )
    assert (incident.name, incident.sent, incident.accepted, incident.call_us) == ("A", True, True, 20_000)
    assert not incident.low_and_neither


def test_errors_that_were_overcome_are_kept_as_the_first_and_waits_are_kept_apart(store: Store) -> None:
    incident = of_one(
        store,
        call_started(1),
        call_failed(1, "rate_limited", wait_ms=250, will_retry=True),
        call_started(2),
        called(2),
        ParseFailed(turn=1, code="model_output_empty", fields=[]),
        Retried(turn=2, code="model_output_empty"),
        call_started(3, turn=2),
        called(3, turn=2, duration_us=5),
        output_accepted(turn=2),
    )
    assert (incident.outcome, incident.error, incident.first_error) == ("accepted_after_retry", None, "rate_limited")
    assert (incident.attempts, incident.retried) == (3, True)
    assert (incident.replies_us, incident.failed_us, incident.waited_ms) == ((20_000, 5), 1_200, 250)
    assert incident.call_us == 21_205


def test_a_fallback_has_its_last_error_and_no_verdict_since_none_is_the_models(store: Store) -> None:
    incident = of_one(
        store,
        call_started(1),
        call_failed(1, "outcome_unknown", duration_us=None),
        call_started(2),
        call_failed(2, "http_503"),
        FallbackApplied(code="http_503", turn=1),
    )
    assert (incident.outcome, incident.error, incident.first_error) == (
        "fallback_records",
        "http_503",
        "outcome_unknown",
    )
    assert (incident.risk_level, incident.blocked_by_policy, incident.requires_human_approval) == (None, None, None)
    assert (incident.accepted, incident.low_and_neither) == (False, False)


def test_a_time_that_nobody_measured_is_unknown_and_not_nothing(store: Store) -> None:
    unknown = of_one(store, call_started(1), call_failed(1, "outcome_unknown", duration_us=None))
    assert (unknown.outcome, unknown.failed_us, unknown.call_us) == ("incomplete", None, None)


def test_a_call_that_is_still_open_has_an_unknown_time_and_one_never_made_has_none(store: Store) -> None:
    store.append(told(started(), request(1, "A"), request(2, "B"), intake(2), (call_started(1), "A", "{}")))
    begun, waiting = incidents(store, "run-1")
    assert (begun.outcome, begun.sent, begun.failed_us, begun.call_us) == ("incomplete", True, None, None)
    assert (waiting.outcome, waiting.sent, waiting.failed_us, waiting.call_us) == ("not_started", False, 0, None)


def test_lines_that_were_refused_stand_among_the_others_in_line_order_with_their_reason(store: Store) -> None:
    leak = LeakRejected(
        line=3,
        request_id=None,
        findings=[Finding(rule="label_key", path="incident_context.gold"), Finding(rule="label_key", path="gold")],
    )
    blocked = RunBlocked(failures=["request_invalid"])
    store.append(
        told(started(), rejected(1, "B", "system_prompt"), request(4, "D"), request(2, "A"), leak, intake(4), blocked)
    )
    found = list(incidents(store, "run-1"))
    assert [(one.line, one.name, one.outcome, one.error, one.where) for one in found] == [
        (1, "B", "rejected", "request_invalid", "system_prompt"),
        (2, "A", "not_started", None, None),
        (3, "line-3", "leak_rejected", "request_self_grading_leak", "incident_context.gold"),
        (4, "D", "not_started", None, None),
    ]
    assert [one.position for one in found] == [3, 5, 6, 4]


def test_a_second_start_begins_anew_and_as_of_shows_what_was_known_then(store: Store) -> None:
    store.append(told(started(), request(1, "A"), rejected(2), intake(2), RunBlocked(failures=["request_invalid"])))
    store.append(told(started(), request(1, "A"), intake(1), *answer("A"), completed()))
    assert [one.outcome for one in incidents(store, "run-1")] == ["accepted_first"]
    assert [one.outcome for one in incidents(store, "run-1", 9)] == ["not_started"]
    assert [one.outcome for one in incidents(store, "run-1", 6)] == ["not_started", "rejected"]
    with pytest.raises(RunNotFound):
        incidents(store, "run-1", 1)
    with pytest.raises(RunNotFound):
        incidents(store, "run-2")


def test_an_answer_that_lets_through_is_one_of_low_risk_that_asks_nobody() -> None:
    (one,) = _incidents_of(told(started(), request(1, "A"), (output_accepted(risk_level="low"), "A")))
    assert not one.low_and_neither
    let_through = output_accepted(risk_level="low", requires_human_approval=False)
    (one,) = _incidents_of(told(started(), request(1, "A"), (let_through, "A")))
    assert one.low_and_neither


def _incidents_of(events: list[NewEvent]) -> list[Incident]:
    with open_store("sqlite://", "create", fold=fold) as store:
        store.append(events)
        return list(incidents(store, "run-1"))


@settings(max_examples=40)
@given(stories())
def test_together_they_are_what_the_report_counts(events: list[NewEvent]) -> None:
    with open_store("sqlite://", "create", fold=fold) as store:
        store.append(events)
        made, found = report(store, "run-1"), list(incidents(store, "run-1"))
    assert Counter(one.outcome for one in found) == Counter({name: made[name] for name in SEVEN})
    assert [one.line for one in found] == sorted(one.line for one in found)
    assert Counter(one.error for one in found if one.outcome == "fallback_records") == Counter(made["errors"])
    decided = [one for one in found if one.decided is not None]
    assert Counter(one.first_error for one in decided if one.first_error is not None) == Counter(made["first_errors"])
    assert sum(one.retried for one in decided) == made["retry_used_records"]
    assert sum(one.attempts for one in found) == made["calls"]["started"]
    assert sum(one.waited_ms for one in found) == made["calls"]["waited_ms"]
    assert sum(one.low_and_neither for one in found) == made["decisions"]["by_risk_level"]["low"]["neither"]
    replies = sorted(took for one in found for took in one.replies_us)
    assert nearest_rank(replies, 90) == made["latency_us"]["p90"]


def test_both_databases_tell_the_same_and_an_erasure_changes_nothing(either: Store) -> None:
    events = max((story(Random(seed), max_lines=12) for seed in range(40)), key=len)
    either.append(events)
    before = list(incidents(either, "run-1"))
    assert [one._replace(position=0, decided=None) for one in before] == [
        one._replace(position=0, decided=None) for one in _incidents_of(events)
    ]
    redact(either, *(one.position for one in before))
    assert list(incidents(either, "run-1")) == before


def test_what_is_held_of_a_long_run_is_a_page_and_a_few_bytes_a_line() -> None:
    def peak(lines: int) -> int:
        with open_store("sqlite://", "create", fold=fold) as store:
            made: list[NewEvent] = [new_event(started(), run_id="run-1")]
            made += [
                new_event(accepted(line, f"I-{line}"), run_id="run-1", request_id=f"I-{line}") for line in range(lines)
            ]
            store.append(made)
            del made
            tracemalloc.start()
            try:
                assert sum(1 for _ in incidents(store, "run-1")) == lines
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    small = peak(2_000)
    assert peak(8_000) - small < 6_000 * 64
