"""Runs to compare and to grade: each request an id and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from ledger.events import (
    ContentRedacted,
    FallbackApplied,
    IntakeCompleted,
    LeakRejected,
    NewEvent,
    OutputAccepted,
    RunCompleted,
    new_event,
)
from ledger.projections.counts import Outcomes
from ledger.projections.decisions import Decisions
from ledger.projections.projection import fold_all
from ledger.store import Store
from tests.stories import accepted, as_events, call_started, digest, output_accepted, output_text, started

LOW = {"risk_level": "low", "requires_human_approval": False, "blocked_by_policy": False}
HIGH = {"risk_level": "high", "requires_human_approval": True, "blocked_by_policy": False}
BLOCKED = {"risk_level": "low", "requires_human_approval": False, "blocked_by_policy": True}
FALLBACK = "transport_timeout"
NOTHING = None

Asked = tuple[str, str, Mapping[str, Any] | str | None]
"""Request, incident, and an answer's three fields, or a fallback's code, or nothing (then it was begun)."""


def asked(*requests: Asked | tuple[str, Mapping[str, Any] | str | None]) -> list[Asked]:
    return [(one[0], one[0], one[1]) if len(one) == 2 else one for one in requests]


def a_run(
    run_id: str,
    requests: Sequence[Asked],
    *,
    action: str = "restart it",
    leaks: int = 0,
    ended: bool = True,
    answer: Mapping[str, Any] | None = None,
    **asked_with: Any,
) -> list[NewEvent]:
    """The events of a run. ``action`` and ``answer`` are the text and further fields of every answer."""
    made = [new_event(started(), run_id=run_id)]
    for line, (request_id, incident_id, _) in enumerate(requests, start=1):
        payload = accepted(line, incident_id, **asked_with)
        made.append(new_event(payload, run_id=run_id, request_id=request_id, content="{}"))
    lines = len(requests) + leaks
    refused = [LeakRejected(line=line, request_id=None, findings=[]) for line in range(len(requests) + 1, lines + 1)]
    made += [new_event(payload, run_id=run_id, content="{}") for payload in refused]
    intake = IntakeCompleted(
        lines=lines,
        accepted=len(requests),
        rejected=0,
        leaking=leaks,
        input_sha256=digest(str([request_id for request_id, *_ in requests])),
        selection=None,
    )
    made.append(new_event(intake, run_id=run_id))
    for request_id, _, became in requests:
        made.append(new_event(call_started(1), run_id=run_id, request_id=request_id, content="{}"))
        if isinstance(became, str):
            made.append(new_event(FallbackApplied(code=became, turn=1), run_id=run_id, request_id=request_id))
        elif became is not None:
            facts: OutputAccepted = output_accepted(**became)
            text = output_text(facts, action, **(answer or {}))
            made.append(new_event(facts, run_id=run_id, request_id=request_id, content=text))
    if ended:
        made.append(new_event(RunCompleted(outcome="completed", counts=Outcomes().counts()), run_id=run_id))
    return made


def folded(events: Sequence[NewEvent]) -> Decisions:
    """What became of each request, without a store."""
    return fold_all(Decisions(events[0].run_id), as_events(events)).seal()


def redact(store: Store, *positions: int) -> None:
    payload = ContentRedacted(positions=list(positions), reason="erasure_request", actor="dpo-2")
    store.append([new_event(payload, run_id="$ledger", content="{}")])


def contents_of(store: Store, run_id: str, event_type: str) -> list[int]:
    return [event.position for event in store.events(run_id) if event.type == event_type]


VERDICTS = st.one_of(
    st.fixed_dictionaries(
        {
            "risk_level": st.sampled_from(["low", "medium", "high", "critical"]),
            "requires_human_approval": st.booleans(),
            "blocked_by_policy": st.booleans(),
        }
    ),
    st.sampled_from([FALLBACK, NOTHING]),
)
RUNS = st.lists(
    st.tuples(st.integers(0, 8).map("r{}".format), st.integers(0, 5).map("INC-{}".format), VERDICTS),
    max_size=8,
    unique_by=lambda one: one[0],
)
"""Requests of a run: few ids, so that two runs share some, and incidents that are asked more than once."""
