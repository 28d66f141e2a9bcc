"""``results/1``: what was decided for each request, in line order, with the model's text.

The facts are a pure fold over a request's events; the text is joined in from ``contents``, and is
null once it was lawfully erased. Streamed: a page of requests at a time, and 16 bytes a request to
know their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar, Final

from ledger.events import Event
from ledger.projections.answers import accepted_output, erased, texts
from ledger.projections.line_order import by_line
from ledger.projections.projection import Pass, find_pass, pass_events, resolve_as_of
from ledger.store import Store
from ledger.store.records import Unreadable

SCHEMA_VERSION: Final = "agent_nemotron_external_result_v1"
PAGE: Final = 200
_RUN_FACTS: Final = ("candidate_id", "candidate_variant_id", "model")
_REPLY_FACTS: Final = ("attempt", "turn", "http_status", "finish_reason", "model", "response_id")
_USAGE: Final = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")
FALLBACK_OUTPUT: Final = {
    "proposed_action": "",
    "action_plan": [],
    "risk_level": "critical",
    "requires_human_approval": True,
    "blocked_by_policy": True,
}
"""The fail-closed result: typed as an answer is, and no model's decision."""


class ResultFold:
    """One request's result: start, ``fold`` its events in order of position, ``finish``."""

    NAME: ClassVar[str] = "results"
    VERSION: ClassVar[int] = 1

    def __init__(self) -> None:
        self.accepted: Event | None = None
        """``RequestAccepted``; a request has no result without it."""
        self.decision: Event | None = None
        """``OutputAccepted`` or ``FallbackApplied``."""
        self._errors: list[str] = []
        self._retry_used = False
        self._outcomes_known = True
        self._open: set[int] = set()
        self._trace: list[dict[str, Any]] = []

    def fold(self, event: Event | Unreadable) -> None:
        """Take the next event; one that cannot be read changes nothing (the report lists it)."""
        if not isinstance(event, Event):
            return
        p = event.payload
        match event.type:
            case "RequestAccepted":
                self.accepted = event
            case "ModelCallStarted":
                self._open.add(p["attempt"])
                self._retry_used = self._retry_used or p["turn"] == 2
            case "ModelCalled":
                self._open.discard(p["attempt"])
                self._trace.append(_trace_event(p))
            case "ModelCallFailed":
                self._open.discard(p["attempt"])
                self._outcomes_known = self._outcomes_known and not p["outcome_unknown"]
                self._errors.append(p["code"])
            case "ParseFailed":
                self._errors.append(p["code"])
            case "OutputAccepted" | "FallbackApplied":
                self.decision = event

    @property
    def answer(self) -> int | None:
        """Position of ``OutputAccepted``, whose content is the answer; None for a fallback."""
        decision = self.decision
        return decision.position if decision is not None and decision.type == "OutputAccepted" else None

    def evidence(self) -> list[int]:
        """Positions of the contents that a result stands on: the request's line and the answer."""
        return [event.position for event in (self.accepted, self.decision) if event is not None]

    def finish(self, run_id: str, run: Mapping[str, Any], content: bytes | None, *, redacted: bool) -> dict[str, Any]:
        """The result. ``run``: the facts of ``RunStarted``; ``content``: ``OutputAccepted``'s, None once erased.

        Only where there are ``accepted`` and ``decision``. Raises ``LedgerMalformed`` for a content
        that is no JSON object.
        """
        assert self.accepted is not None
        assert self.decision is not None
        fallback = self.decision.type == "FallbackApplied"
        errors = [*self._errors, self.decision.payload["code"]] if fallback else self._errors
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "request_id": self.accepted.request_id,
            "incident_id": self.accepted.payload["incident_id"],
            **run,
            "model_output": _output(self.decision, content),
            "error": errors[-1] if fallback else None,
            "first_error": errors[0] if errors else None,
            "retry_used": self._retry_used,
            "fallback_used": fallback,
            "trace_complete": not fallback and self._outcomes_known and not self._open,
            "allowances": [] if fallback else self.decision.payload["allowances"],
            "redacted": redacted,
            "trace_events": self._trace,
        }


def _trace_event(reply: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{fact: reply[fact] for fact in _REPLY_FACTS},
        "usage": {count: reply[count] for count in _USAGE},
        "duration_us": reply["duration_us"],
    }


def _output(decision: Event, content: bytes | None) -> dict[str, Any]:
    if decision.type == "FallbackApplied":
        return dict(FALLBACK_OUTPUT)
    return accepted_output(decision.position, decision.payload, content)


def results(
    store: Store, run_id: str, as_of: int | str | None = None, request_ids: Collection[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Each request's result in line order, from the run's last pass, as they are read; only ``request_ids``' if given.

    ``as_of`` and errors as for ``report``. Also raises ``LedgerMalformed`` where the text of an accepted answer
    is missing and no redaction says why, and ``ContentAltered`` where it is not the one that was recorded.
    """
    of = find_pass(store, run_id, resolve_as_of(store, as_of))
    return _results(store, of, request_ids)


def _results(store: Store, of: Pass, request_ids: Collection[str] | None) -> Iterator[dict[str, Any]]:
    run = _run_facts(store, of)
    order = _in_line_order(store, of, request_ids)
    for start in range(0, len(order), PAGE):
        yield from _page(store, of, run, order[start : start + PAGE])


def _run_facts(store: Store, of: Pass) -> dict[str, Any]:
    started = next(pass_events(store, of))
    return {fact: started.payload[fact] if isinstance(started, Event) else None for fact in _RUN_FACTS}


def _in_line_order(store: Store, of: Pass, request_ids: Collection[str] | None) -> Sequence[int]:
    """Positions of the pass's ``RequestAccepted`` events, by line. All of them come before its ``IntakeCompleted``."""
    lines, positions = array("q"), array("q")
    for event in takewhile(lambda event: event.type != "IntakeCompleted", pass_events(store, of)):
        if request_ids is not None and event.request_id not in request_ids:
            continue
        if event.type == "RequestAccepted" and isinstance(event, Event):
            lines.append(event.payload["line"])
            positions.append(event.position)
    return by_line(lines, positions)


def _page(store: Store, of: Pass, run: Mapping[str, Any], accepted: Sequence[int]) -> Iterator[dict[str, Any]]:
    folds = {position: ResultFold() for position in accepted}
    by_request: dict[str | None, ResultFold] = {}
    for event in store.request_events(accepted, after=of.first - 1, upto=of.last):
        if event.position in folds:
            by_request[event.request_id] = folds[event.position]
        if event.request_id in by_request:
            by_request[event.request_id].fold(event)
    decided = [fold for fold in folds.values() if fold.decision is not None]
    # In this order: a text that is erased between the two is null, and known to be erased.
    contents = texts(store, [fold.answer for fold in decided if fold.answer is not None])
    gone = erased(store, [position for fold in decided for position in fold.evidence()])
    for fold in decided:
        content = None if fold.answer is None or fold.answer in gone else contents[fold.answer]
        yield fold.finish(of.run_id, run, content, redacted=not gone.isdisjoint(fold.evidence()))
