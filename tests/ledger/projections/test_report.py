"""The report as a pure fold: what it counts, what it leaves alone, and what it costs."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import given

from ledger.events import (
    Event,
    FallbackApplied,
    Finding,
    LeakRejected,
    NewEvent,
    ParseFailed,
    Payload,
    RequestRejected,
    Retried,
    RunBlocked,
    RunCompleted,
    RunResumed,
    new_event,
)
from ledger.projections.counts import Outcomes
from ledger.projections.report import ReportFold
from ledger.render.report_json import render
from ledger.store.records import Unreadable
from tests.stories import (
    accepted,
    as_events,
    call_failed,
    call_started,
    called,
    counts_told,
    output_accepted,
    report_issued,
    started,
    stories,
)

ROOT = bytes(range(32))
SEVEN = (
    *("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected"),
    *("not_started", "incomplete"),
)
NO_COUNTS = Outcomes().counts()

Told = tuple[Payload, str | None]


def events_of(*told: Payload | Told) -> list[Event]:
    pairs = [item if isinstance(item, tuple) else (item, None) for item in told]
    return as_events(new_event(payload, run_id="run-1", request_id=request_id) for payload, request_id in pairs)


def report_of(events: Iterable[Event | Unreadable], run_id: str = "run-1") -> dict[str, Any]:
    fold = ReportFold(run_id)
    for event in events:
        fold.fold(event)
    return fold.finish(ROOT)


def of_one_request(*payloads: Payload, ended: bool = True, **run: Any) -> dict[str, Any]:
    told: list[Payload | Told] = [started(**run), (accepted(1, "INC-1"), "INC-1")]
    told += [(payload, "INC-1") for payload in payloads]
    told += [RunCompleted(outcome="completed", counts=NO_COUNTS)] if ended else []
    return report_of(events_of(*told))


# --- outcomes ------------------------------------------------------------------------------


def test_an_answer_accepted_at_once_makes_a_run_usable() -> None:
    report = of_one_request(call_started(1), called(1), output_accepted())
    assert report["valid"] is True
    assert report["outcome"] == "completed"
    assert (report["requests"], report["results"], report["accepted_first"]) == (1, 1, 1)
    assert report["errors"] == report["first_errors"] == {}
    assert report["failures"] == []


def test_an_answer_accepted_on_the_second_turn_counts_as_after_retry_and_keeps_only_its_first_error() -> None:
    report = of_one_request(
        call_started(1),
        called(1),
        ParseFailed(turn=1, code="model_output_empty", fields=[]),
        Retried(turn=2, code="model_output_empty"),
        call_started(2, turn=2),
        called(2, turn=2),
        output_accepted(turn=2),
    )
    assert (report["accepted_first"], report["accepted_after_retry"]) == (0, 1)
    assert report["retry_used_records"] == 1
    assert report["first_errors"] == {"model_output_empty": 1}
    assert report["errors"] == {}
    assert report["external_error_records"] == 0
    assert report["valid"] is True


def test_a_fallback_keeps_its_first_and_its_last_error_and_is_no_decision_of_the_model() -> None:
    attempts = [
        payload
        for attempt, code in enumerate(("rate_limited", "http_503", "transport_timeout"), start=1)
        for payload in (call_started(attempt), call_failed(attempt, code))
    ]
    report = of_one_request(*attempts, FallbackApplied(code="transport_timeout", turn=1))
    assert report["first_errors"] == {"rate_limited": 1}
    assert report["errors"] == {"transport_timeout": 1}
    assert (report["fallback_records"], report["external_error_records"], report["results"]) == (1, 1, 1)
    assert all(total == 0 for level in report["decisions"]["by_risk_level"].values() for total in level.values())
    assert report["valid"] is False


def test_a_request_never_sent_has_the_fallbacks_code_as_its_first_error() -> None:
    report = of_one_request(FallbackApplied(code="not_sent", turn=None))
    assert report["errors"] == report["first_errors"] == {"not_sent": 1}
    assert (report["not_started"], report["fallback_records"], report["retry_used_records"]) == (0, 1, 0)


def test_a_request_without_a_result_is_not_started_until_its_first_call_and_incomplete_after() -> None:
    waiting = of_one_request(ended=False)
    begun = of_one_request(call_started(1), ended=False)
    assert (waiting["not_started"], waiting["incomplete"], waiting["outcome"]) == (1, 0, "incomplete")
    assert (begun["not_started"], begun["incomplete"], begun["outcome"]) == (0, 1, "incomplete")
    assert begun["calls"] == {"started": 1, "answered": 0, "failed": 0, "outcome_unknown": 0, "waited_ms": 0}


def test_a_leak_in_the_second_of_three_blocks_the_run_and_starts_nothing() -> None:
    leak = LeakRejected(line=2, request_id="INC-2", findings=[Finding(rule="label_key", path="incident_context.gold")])
    report = report_of(
        events_of(
            started(),
            (accepted(1, "INC-1"), "INC-1"),
            leak,
            (accepted(3, "INC-3"), "INC-3"),
            RunBlocked(failures=["request_self_grading_leak"]),
        )
    )
    assert (report["requests"], report["leak_rejected"], report["not_started"], report["results"]) == (3, 1, 2, 0)
    assert report["outcome"] == "blocked"
    assert report["failures"] == [
        "request_self_grading_leak",
        "request_self_grading_leak:INC-2:incident_context.gold",
    ]


def test_a_run_without_a_key_has_no_requests_and_is_not_usable() -> None:
    report = report_of(events_of(started(), RunBlocked(failures=["api_key_missing"])))
    assert (report["requests"], report["valid"], report["failures"]) == (0, False, ["api_key_missing"])


def test_a_completed_run_without_a_request_is_not_usable() -> None:
    report = report_of(events_of(started(), RunCompleted(outcome="completed", counts=NO_COUNTS)))
    assert report["valid"] is False


def test_a_second_start_begins_the_report_again() -> None:
    first = [started(model="old-model"), (accepted(1, "INC-1"), "INC-1")]
    refused = RequestRejected(line=2, request_id=None, code="request_invalid", field=None, first_line=None)
    report = report_of(
        events_of(
            *first,
            refused,
            RunBlocked(failures=["request_invalid"]),
            started(),
            (accepted(1, "INC-1", policy_id="p-1"), "INC-1"),
        )
    )
    assert (report["requests"], report["rejected"], report["not_started"]) == (1, 0, 1)
    assert report["model"] == "example/model-1"
    assert report["failures"] == []
    assert report["outcome"] == "incomplete"
    assert report["policy_ids"] == ["p-1"]


def test_what_follows_the_terminal_event_never_counts() -> None:
    before = events_of(
        started(),
        (accepted(1, "INC-1"), "INC-1"),
        (call_started(1), "INC-1"),
        (called(1), "INC-1"),
        (output_accepted(), "INC-1"),
        RunCompleted(outcome="completed", counts=NO_COUNTS),
    )
    after = [
        before[-1]._replace(position=90, type="ReportIssued", payload=report_issued().model_dump()),
        before[3]._replace(position=91),
        before[-1]._replace(position=92, run_id="$ledger", type="ContentRedacted", payload={}),
        before[2]._replace(position=93, run_id="run-2"),
    ]
    assert report_of([*before, *after]) == report_of(before)
    assert report_of(before)["as_of"] == {"position": 7, "root": ROOT.hex(), "size": 7}


def test_a_report_issued_in_the_middle_of_a_run_does_not_move_the_position() -> None:
    events = events_of(started(), (accepted(1, "INC-1"), "INC-1"), report_issued(), report_issued())
    assert report_of(events)["as_of"]["position"] == 3


def test_the_eighth_outcome_does_not_exist() -> None:
    """A decision for a request that was never accepted counts nowhere, so the sum still holds."""
    events = events_of(
        started(),
        (output_accepted(), "INC-9"),
        (FallbackApplied(code="http_404", turn=1), "INC-8"),
        RunResumed(actor="a", outcomes_unknown=0),
    )
    report = report_of(events)
    assert report["requests"] == report["results"] == 0
    assert report["errors"] == {}


@given(stories())
def test_the_seven_outcomes_add_up_to_the_lines_that_were_recorded(story: list[NewEvent]) -> None:
    report = report_of(as_events(story))
    since = max(index for index, event in enumerate(story) if event.type == "RunStarted")
    kinds = Counter(event.type for event in story[since:])
    assert report["requests"] == kinds["RequestAccepted"] + kinds["RequestRejected"] + kinds["LeakRejected"]
    assert sum(report[name] for name in SEVEN) == report["requests"]
    assert report["results"] == kinds["OutputAccepted"] + kinds["FallbackApplied"]
    assert sum(report["errors"].values()) == report["external_error_records"] == kinds["FallbackApplied"]
    calls = report["calls"]
    assert calls["started"] >= calls["answered"] + calls["failed"]
    told = counts_told(story)
    if told is not None:
        assert told.model_dump() == {name: report[name] for name in ("requests", *SEVEN)}


@given(stories())
def test_only_a_run_whose_every_request_has_an_accepted_answer_is_usable(story: list[NewEvent]) -> None:
    report = report_of(as_events(story))
    accepted_answers = report["accepted_first"] + report["accepted_after_retry"]
    assert report["valid"] == (report["outcome"] == "completed" and accepted_answers == report["requests"])


# --- calls, tokens, latency ----------------------------------------------------------------


def test_token_counts_that_were_not_reported_are_unknown_and_never_zero() -> None:
    usage = [{"prompt_tokens": 10, "completion_tokens": 2}] * 8 + [
        {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        {"prompt_tokens": None, "completion_tokens": 2, "total_tokens": None},
    ]
    calls = [
        payload
        for attempt, counts in enumerate(usage, start=1)
        for payload in (call_started(attempt), called(attempt, **counts))
    ]
    tokens = of_one_request(*calls)["tokens"]
    assert tokens == {
        "prompt": 80,
        "completion": 18,
        "total": 960,
        "cached": None,
        "reasoning": None,
        "calls_without_usage": 2,
    }


def test_an_endpoint_that_claims_a_huge_usage_twice_left_a_run_without_a_report() -> None:
    """Their sum was more than JSON's integers hold, and the report could not be written."""
    events = events_of(
        started(),
        (accepted(1, "INC-1"), "INC-1"),
        *(
            event
            for attempt in (1, 2)
            for event in (
                (call_started(attempt), "INC-1"),
                (called(attempt, prompt_tokens=2**53 - 1, completion_tokens=5, total_tokens=2**53 - 1), "INC-1"),
            )
        ),
    )
    made = report_of(events)
    assert made["tokens"]["prompt"] is None
    assert made["tokens"]["total"] is None
    assert made["tokens"]["completion"] == 10
    assert render(made)


def test_without_an_answered_call_tokens_and_latency_are_null() -> None:
    report = of_one_request(call_started(1), call_failed(1, "transport_timeout"))
    assert set(report["latency_us"].values()) == {None}
    assert [report["tokens"][kind] for kind in ("prompt", "completion", "total")] == [None, None, None]
    assert report["calls"]["outcome_unknown"] == 1


def test_percentiles_are_values_that_were_measured() -> None:
    durations = [30, 10, 20, 40, 50]
    calls = [
        payload
        for attempt, duration in enumerate(durations, start=1)
        for payload in (call_started(attempt), called(attempt, duration_us=duration))
    ]
    assert of_one_request(*calls)["latency_us"] == {"p50": 30, "p90": 50, "p99": 50, "max": 50}


def test_a_prompt_reported_at_less_than_a_sixteenth_of_its_bytes_was_probably_cut() -> None:
    def suspected(prompt_tokens: int | None, body_bytes: int) -> int:
        call = (call_started(1, body_bytes=body_bytes), called(1, prompt_tokens=prompt_tokens))
        count: int = of_one_request(*call)["suspected_prompt_truncation"]
        return count

    assert suspected(15, 240) == 0
    assert suspected(14, 240) == 1
    assert suspected(10, 240) == 1
    assert suspected(None, 240) == 0


def test_a_prompt_is_compared_with_the_bytes_of_its_own_attempt() -> None:
    report = of_one_request(
        call_started(1, body_bytes=100_000),
        call_failed(1, "http_503"),
        call_started(2, body_bytes=160),
        called(2, prompt_tokens=10),
    )
    assert report["suspected_prompt_truncation"] == 0


def test_a_model_is_compared_exactly_and_one_that_gave_no_name_is_no_mismatch() -> None:
    names = ("example/model-1", "Example/model-1", None, "example/model-1-2026")
    calls = [
        payload
        for attempt, model in enumerate(names, start=1)
        for payload in (call_started(attempt), called(attempt, model=model))
    ]
    report = of_one_request(*calls)
    assert report["model_mismatch"] == 2
    assert report["models_answered"] == {"example/model-1": 1, "Example/model-1": 1, "example/model-1-2026": 1}


def test_refusals_are_counted_by_answer_and_waits_are_added_up() -> None:
    report = of_one_request(
        call_started(1),
        call_failed(1, "rate_limited", wait_ms=1500, will_retry=True),
        call_started(2),
        called(2),
        ParseFailed(turn=1, code="model_output_refused", fields=[]),
        Retried(turn=2, code="model_output_refused"),
        call_started(3, turn=2),
        called(3, turn=2),
        ParseFailed(turn=2, code="model_output_refused", fields=[]),
        FallbackApplied(code="model_output_refused", turn=2),
    )
    assert report["refusals"] == 2
    assert report["calls"]["waited_ms"] == 1500


# --- decisions, facets, failures -----------------------------------------------------------


def test_decisions_are_counted_by_risk_level_and_by_what_the_model_said() -> None:
    told: list[Payload | Told] = [started()]
    verdicts = [("low", False, False), ("low", True, True), ("critical", False, True), ("critical", True, False)]
    for line, (level, approval, blocked) in enumerate(verdicts, start=1):
        facts = output_accepted(risk_level=level, requires_human_approval=approval, blocked_by_policy=blocked)
        told += [(accepted(line, f"INC-{line}"), f"INC-{line}"), (facts, f"INC-{line}")]
    levels = report_of(events_of(*told))["decisions"]["by_risk_level"]
    assert levels["low"] == {"total": 2, "blocked_by_policy": 1, "requires_human_approval": 1, "neither": 1}
    assert levels["critical"] == {"total": 2, "blocked_by_policy": 1, "requires_human_approval": 1, "neither": 0}
    assert levels["medium"] == levels["high"] == dict.fromkeys(levels["low"], 0)


def test_facets_count_requests_with_and_without_a_result() -> None:
    def of(line: int, **facets: str) -> Told:
        return accepted(line, f"INC-{line}", facets=facets), f"INC-{line}"

    report = report_of(
        events_of(
            started(),
            of(1, severity="critical", team="db"),
            of(2, severity="critical"),
            of(3, severity="warning"),
            of(4),
            (output_accepted(), "INC-1"),
            (FallbackApplied(code="http_404", turn=1), "INC-2"),
            (output_accepted(), "INC-4"),
        )
    )
    assert report["facets"] == {
        "severity": {
            "critical": {"requests": 2, "accepted": 1, "fallback": 1},
            "warning": {"requests": 1, "accepted": 0, "fallback": 0},
        },
        "team": {"db": {"requests": 1, "accepted": 1, "fallback": 0}},
    }


def test_a_tolerance_counts_once_a_result() -> None:
    report = of_one_request(call_started(1), called(1), output_accepted(allowances=["code_fence", "code_fence"]))
    assert report["allowances"] == {"code_fence": 1}


def test_leak_findings_stand_in_line_order_and_a_hundred_are_enough() -> None:
    def leak(line: int, request_id: str | None, *paths: str) -> LeakRejected:
        return LeakRejected(line=line, request_id=request_id, findings=[Finding(rule="r", path=path) for path in paths])

    many = leak(3, "INC-3", *(f"a[{index}]" for index in range(120)))
    failures = report_of(events_of(started(), many, leak(1, None, "*", "gold"), leak(2, "INC-2", "labels")))["failures"]
    assert failures[:4] == [
        "request_self_grading_leak:line-1:*",
        "request_self_grading_leak:line-1:gold",
        "request_self_grading_leak:INC-2:labels",
        "request_self_grading_leak:INC-3:a[0]",
    ]
    assert failures[99:] == ["request_self_grading_leak:INC-3:a[96]", "more:23"]


# --- what cannot be read -------------------------------------------------------------------


def unreadable(event: Event) -> Unreadable:
    return Unreadable(event.position, event.run_id, event.request_id, event.type, "not JSON")


def test_an_event_that_cannot_be_read_is_listed_and_the_rest_is_kept() -> None:
    events: list[Event | Unreadable] = list(
        events_of(
            started(),
            (accepted(1, "INC-1"), "INC-1"),
            (accepted(2, "INC-2"), "INC-2"),
            (output_accepted(), "INC-1"),
            (output_accepted(), "INC-2"),
            RunCompleted(outcome="completed", counts=NO_COUNTS),
        )
    )
    whole = report_of(events)
    broken = events[3]
    assert isinstance(broken, Event)
    events[3] = unreadable(broken)
    report = report_of(events)
    assert whole["valid"] is True
    assert report["valid"] is False
    assert (report["unreadable"], report["failures"]) == (1, [f"unreadable:{broken.position}"])
    assert (report["accepted_first"], report["not_started"], report["outcome"]) == (1, 1, "completed")


def test_a_start_that_cannot_be_read_still_begins_the_report_again() -> None:
    events = events_of(started(), (accepted(1, "INC-1"), "INC-1"), RunBlocked(failures=["request_invalid"]), started())
    report = report_of([*events[:3], unreadable(events[3])])
    assert (report["requests"], report["model"], report["unreadable"]) == (0, None, 1)
    assert report["outcome"] == "incomplete"


def test_a_call_that_cannot_be_read_was_still_begun_and_an_end_that_cannot_be_read_still_ends() -> None:
    events = events_of(
        started(),
        (accepted(1, "INC-1"), "INC-1"),
        (call_started(1), "INC-1"),
        RunCompleted(outcome="completed", counts=NO_COUNTS),
        (call_started(2), "INC-1"),
    )
    report = report_of([*events[:2], unreadable(events[2]), unreadable(events[3]), events[4]])
    assert (report["incomplete"], report["outcome"], report["unreadable"]) == (1, "incomplete", 2)
    assert report["calls"]["started"] == 0


# --- memory --------------------------------------------------------------------------------


def test_five_thousand_requests_are_folded_in_three_megabytes() -> None:
    """A hundred thousand stay well under 80 MB: all are waiting when the first call starts."""
    requests = 5_000

    def told() -> Iterator[Event]:
        facets = {"severity": "critical"}
        templates = as_events(
            new_event(payload, run_id="run-1", request_id="INC-0")
            for payload in (accepted(1, "INC-0", facets=facets), call_started(1), called(1), output_accepted())
        )
        yield from events_of(started())
        for template in templates:
            for line in range(requests):
                yield template._replace(request_id=f"INC-2026-11-30-{line:012d}")

    fold = ReportFold("run-1")
    tracemalloc.start()
    for event in told():
        fold.fold(event)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fold.finish(ROOT)["accepted_first"] == requests
    assert peak < 3_000_000
