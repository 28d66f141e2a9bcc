"""``incidents``: each line of a run's file as facts, in line order: what a reader of a report looks one up by.

A pure fold over payloads, so that no erasure of content changes a byte of what is made of it. Streamed:
a page of requests at a time; what is held of the rest is 16 bytes a request, and of each line that was
refused a small tuple. Which of the seven outcomes a line has is what ``report/1`` counts it as.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar, Final, NamedTuple

from ledger.events import Event
from ledger.projections.line_order import by_line
from ledger.projections.projection import Pass, find_pass, pass_events, resolve_as_of
from ledger.store import Store
from ledger.store.records import Unreadable

PAGE: Final = 200
LEAK_CODE: Final = "request_self_grading_leak"


class Incident(NamedTuple):
    """One line of the run's file. The answer's three fields are null unless an answer was accepted."""

    line: int
    request_id: str | None
    """Null where the line was refused and its id leaks, or is no id: it is then known as ``line-N``."""
    incident_id: str | None
    """Null where the line was refused."""
    outcome: str
    """One of the seven counts of ``report/1``: accepted_first, accepted_after_retry, fallback_records,
    leak_rejected, rejected, not_started, incomplete."""
    risk_level: str | None
    blocked_by_policy: bool | None
    requires_human_approval: bool | None
    allowances: tuple[str, ...]
    """Tolerances that the parser used for the accepted answer."""
    error: str | None
    """The last code where no answer was accepted, or of the refusal; null where one was."""
    first_error: str | None
    """The first code, overcome or not."""
    where: str | None
    """Of a refused line, the field that is no valid one, or the path of the first leak; never a value."""
    attempts: int
    """Calls that were started; ``sent`` where there is one."""
    retried: bool
    """The corrective turn was begun."""
    replies_us: tuple[int, ...]
    """How long each whole reply took, in order, microseconds: what the report's percentiles are over."""
    failed_us: int | None
    """How long the attempts without one took together; null where that is not known of one, 0 without any."""
    waited_ms: int
    """Time waited between attempts; in neither of the two above."""
    facets: Mapping[str, str]
    policy_id: str | None
    position: int
    """Of the line's first event: where ``show`` begins."""
    decided: int | None
    """Position of the event that gave the result; null where there is none."""

    @property
    def name(self) -> str:
        """The request's id, or which line it is, as leak findings are named."""
        return f"line-{self.line}" if self.request_id is None else self.request_id

    @property
    def sent(self) -> bool:
        """Something of it may have reached the model."""
        return self.attempts > 0

    @property
    def accepted(self) -> bool:
        """An answer of the model was accepted."""
        return self.risk_level is not None

    @property
    def low_and_neither(self) -> bool:
        """An answer that lets through: low risk, neither blocked nor put to a person."""
        return self.risk_level == "low" and not self.requires_human_approval and not self.blocked_by_policy

    @property
    def call_us(self) -> int | None:
        """How long its attempts took together, waits apart; null where that is not known of one, or none was made."""
        if not self.sent or self.failed_us is None:
            return None
        return sum(self.replies_us) + self.failed_us


class IncidentFold:
    """One accepted request: start with its ``RequestAccepted``, ``fold`` its later events in order, ``finish``."""

    NAME: ClassVar[str] = "incidents"
    VERSION: ClassVar[int] = 1

    def __init__(self, accepted: Event) -> None:
        self._accepted = accepted
        self._decision: Event | None = None
        self._first_error: str | None = None
        self._last_error: str | None = None
        self._attempts = 0
        self._open = 0
        self._retried = False
        self._replies: list[int] = []
        self._failed_us: int | None = 0
        self._waited_ms = 0

    def fold(self, event: Event | Unreadable) -> None:
        """Take the next event. Of one that cannot be read, the envelope may still say that a call began."""
        if self._decision is not None:  # what follows counts nowhere, as in the report
            return
        if event.type == "ModelCallStarted":
            self._attempts += 1
            self._open += 1
            self._retried = self._retried or (isinstance(event, Event) and event.payload["turn"] == 2)
        elif isinstance(event, Event):
            self._fold_readable(event)

    def _fold_readable(self, event: Event) -> None:
        p = event.payload
        match event.type:
            case "ModelCalled":
                self._open -= 1
                self._replies.append(p["duration_us"])
            case "ModelCallFailed":
                self._open -= 1
                took = p["duration_us"]
                self._failed_us = None if took is None or self._failed_us is None else self._failed_us + took
                self._waited_ms += p["wait_ms"] or 0
                self._note_error(p["code"])
            case "ParseFailed":
                self._note_error(p["code"])
            case "OutputAccepted":
                self._decision = event
            case "FallbackApplied":
                self._decision = event
                self._note_error(p["code"])

    def _note_error(self, code: str) -> None:
        self._first_error = self._first_error or code
        self._last_error = code

    def finish(self) -> Incident:
        """The request as it stands after the events taken so far."""
        p, decision = self._accepted.payload, self._decision
        accepted = decision is not None and decision.type == "OutputAccepted"
        answer: Mapping[str, Any] = decision.payload if decision is not None and accepted else {}
        return Incident(
            line=p["line"],
            request_id=self._accepted.request_id,
            incident_id=p["incident_id"],
            outcome=self._outcome(),
            risk_level=answer.get("risk_level"),
            blocked_by_policy=answer.get("blocked_by_policy"),
            requires_human_approval=answer.get("requires_human_approval"),
            allowances=tuple(answer.get("allowances", ())),
            error=None if accepted else self._last_error,
            first_error=self._first_error,
            where=None,
            attempts=self._attempts,
            retried=self._retried,
            replies_us=tuple(self._replies),
            failed_us=None if self._open > 0 else self._failed_us,
            waited_ms=self._waited_ms,
            facets=p["facets"],
            policy_id=p["policy_id"],
            position=self._accepted.position,
            decided=None if decision is None else decision.position,
        )

    def _outcome(self) -> str:
        if self._decision is None:
            return "incomplete" if self._attempts else "not_started"
        if self._decision.type == "FallbackApplied":
            return "fallback_records"
        return "accepted_first" if self._decision.payload["turn"] == 1 else "accepted_after_retry"


class _Refused(NamedTuple):
    """A line that intake refused, as small as it can be held."""

    line: int
    position: int
    request_id: str | None
    outcome: str
    code: str
    where: str | None


def incidents(store: Store, run_id: str, as_of: int | str | None = None) -> Iterator[Incident]:
    """Every line of the run's file that is on record since its last start, in line order, as they are read.

    ``as_of`` and errors as for ``report``. Lines that are blank, or that a selection left out, are no
    incidents; events that cannot be read are the report's to tell.
    """
    of = find_pass(store, run_id, resolve_as_of(store, as_of))
    return _incidents(store, of)


def _incidents(store: Store, of: Pass) -> Iterator[Incident]:
    lines, positions, refused = _intake(store, of)
    positions = by_line(lines, positions)
    refused.sort()
    accepted = (
        incident for start in range(0, len(positions), PAGE) for incident in _page(store, of, positions[start:][:PAGE])
    )
    return heapq.merge(accepted, map(_refused, refused), key=lambda incident: (incident.line, incident.position))


def _intake(store: Store, of: Pass) -> tuple[array[int], array[int], list[_Refused]]:
    """Lines and positions of the requests accepted, and the lines refused. All come before ``IntakeCompleted``."""
    lines, positions, refused = array("q"), array("q"), list[_Refused]()
    for event in takewhile(lambda event: event.type != "IntakeCompleted", pass_events(store, of)):
        if not isinstance(event, Event):
            continue
        p = event.payload
        if event.type == "RequestAccepted":
            lines.append(p["line"])
            positions.append(event.position)
        elif event.type == "RequestRejected":
            known = (p["request_id"], "rejected", p["code"], p["field"])
            refused.append(_Refused(p["line"], event.position, *known))
        elif event.type == "LeakRejected":
            where = p["findings"][0]["path"] if p["findings"] else None
            refused.append(_Refused(p["line"], event.position, p["request_id"], "leak_rejected", LEAK_CODE, where))
    return lines, positions, refused


def _page(store: Store, of: Pass, accepted: Sequence[int]) -> Iterator[Incident]:
    named = set(accepted)
    folds: dict[int, IncidentFold] = {}
    by_request: dict[str | None, IncidentFold] = {}
    for event in store.request_events(accepted, after=of.first - 1, upto=of.last):
        if event.position in named and isinstance(event, Event):
            by_request[event.request_id] = folds[event.position] = IncidentFold(event)
        elif event.request_id in by_request:
            by_request[event.request_id].fold(event)
    return (folds[position].finish() for position in accepted if position in folds)


def _refused(of: _Refused) -> Incident:
    return Incident(
        line=of.line,
        request_id=of.request_id,
        incident_id=None,
        outcome=of.outcome,
        risk_level=None,
        blocked_by_policy=None,
        requires_human_approval=None,
        allowances=(),
        error=of.code,
        first_error=of.code,
        where=of.where,
        attempts=0,
        retried=False,
        replies_us=(),
        failed_us=0,
        waited_ms=0,
        facets={},
        policy_id=None,
        position=of.position,
        decided=None,
    )
