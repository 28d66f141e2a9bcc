"""``report/1``: what one pass of a run came to, as a pure fold over its events.

Integers and strings only. Nothing in it comes from the clock, the host, the locale or the hash
seed of the moment, and no content enters: a report keeps its bytes after every prompt and answer
has been erased. It consumes the events from the last ``RunStarted`` to the terminal event.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

from ledger.events import AFTER_TERMINAL_TYPES, TERMINAL_TYPES, Event
from ledger.projections.calls import CallTotals
from ledger.projections.cost import CostTotals, Prices
from ledger.projections.counts import Outcomes, Pending
from ledger.projections.projection import find_pass, fold_all, pass_events, resolve_as_of
from ledger.store import Store
from ledger.store.records import Unreadable

SCHEMA_VERSION: Final = "agent_nemotron_external_report_v1"
RISK_LEVELS: Final = ("low", "medium", "high", "critical")
MAX_LEAK_FINDINGS: Final = 100
_RUN_FACTS: Final = ("candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint")


class _Totals:
    """All that is remembered of the events since the last ``RunStarted``."""

    def __init__(self) -> None:
        self.run: dict[str, str | None] = dict.fromkeys(_RUN_FACTS)
        self.outcome = "incomplete"
        self.ended = False
        self.outcomes = Outcomes()
        self.calls = CallTotals()
        self.cost = CostTotals()
        self.policy_ids: set[str] = set()
        self.retry_used_records = 0
        self.refusals = 0
        self.decisions = {
            level: dict.fromkeys(("total", "blocked_by_policy", "requires_human_approval", "neither"), 0)
            for level in RISK_LEVELS
        }
        self.errors: Counter[str] = Counter()
        self.first_errors: Counter[str] = Counter()
        self.allowances: Counter[str] = Counter()
        self.facets: dict[str, dict[str, dict[str, int]]] = {}
        self.run_failures: list[str] = []
        self.leaks: list[tuple[int, int, int, str]] = []
        self.leak_findings = 0
        self.unreadable = array("q")


class ReportFold:
    """Start, ``fold`` each event of the run in order of position, ``finish``.

    Events of other runs and of ``$ledger``, issued reports and grades, and whatever follows the
    terminal event pass without a trace. Memory grows with the requests that have no result yet
    (a dict entry each) and by 8 bytes a call.
    """

    NAME: ClassVar[str] = "report"
    VERSION: ClassVar[int] = 1

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.position = 0
        """Position of the last event consumed; 0 before the first."""
        self._totals = _Totals()

    def fold(self, event: Event | Unreadable) -> None:
        """Take the next event."""
        kind = event.type
        if event.run_id != self.run_id or kind in AFTER_TERMINAL_TYPES:
            return
        if kind == "RunStarted":
            self._totals = _Totals()
        elif self._totals.ended:
            return
        if isinstance(event, Event):
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(self._totals, event)
        else:
            _unreadable(self._totals, event)
        self.position = event.position

    def finish(self, root: bytes) -> dict[str, Any]:
        """The report. ``root``: the ledger's root at size ``position``, 32 bytes."""
        t = self._totals
        counts = t.outcomes.counts()
        accepted = counts.accepted_first + counts.accepted_after_retry
        valid = t.outcome == "completed" and 0 < accepted == counts.requests and not t.unreadable
        return {
            "schema_version": SCHEMA_VERSION,
            "valid": valid,
            "run_id": self.run_id,
            **t.run,
            "policy_ids": sorted(t.policy_ids),
            "outcome": t.outcome,
            **counts.model_dump(),
            "results": accepted + counts.fallback_records,
            "external_error_records": counts.fallback_records,
            "retry_used_records": t.retry_used_records,
            "unreadable": len(t.unreadable),
            "decisions": {"by_risk_level": t.decisions},
            "errors": dict(t.errors),
            "first_errors": dict(t.first_errors),
            "allowances": dict(t.allowances),
            "refusals": t.refusals,
            "models_answered": dict(t.calls.models_answered),
            "model_mismatch": t.calls.model_mismatch,
            "suspected_prompt_truncation": t.calls.suspected_prompt_truncation,
            "tokens": t.calls.tokens(),
            "cost": t.cost.member(unreadable=bool(t.unreadable)),
            "calls": t.calls.calls(),
            "latency_us": t.calls.latency_us(),
            "facets": t.facets,
            "failures": _failures(t),
            "as_of": {"position": self.position, "root": root.hex(), "size": self.position},
            "projection": {"name": self.NAME, "version": self.VERSION},
        }


def report(
    store: Store, run_id: str, as_of: int | str | None = None, progress: Callable[[int], Any] | None = None
) -> dict[str, Any]:
    """The run's report, at or below ``as_of``: a position, or an RFC 3339 time with an offset.

    ``progress`` is told of the events taken, a thousand at a time. Raises ``RunNotFound`` where the run had not
    started by then, ``ValueError`` for an ``as_of`` that is neither.
    """
    of = find_pass(store, run_id, resolve_as_of(store, as_of))
    fold = fold_all(ReportFold(run_id), pass_events(store, of, progress))
    return fold.finish(store.root_at(fold.position))


def _failures(t: _Totals) -> list[str]:
    more = t.leak_findings - len(t.leaks)
    return [
        *t.run_failures,
        *(text for *_, text in t.leaks),
        *([f"more:{more}"] if more else []),
        *(f"unreadable:{position}" for position in t.unreadable),
    ]


# --- one function an event type ------------------------------------------------------------


def _run_started(t: _Totals, event: Event) -> None:
    t.run = {fact: event.payload[fact] for fact in _RUN_FACTS}
    t.cost = CostTotals(Prices.from_settings(event.payload["settings"]))


def _request_accepted(t: _Totals, event: Event) -> None:
    facets, policy_id = event.payload["facets"], event.payload["policy_id"]
    t.outcomes.accept(event.request_id or "", tuple(sorted(facets.items())))
    if policy_id is not None:
        t.policy_ids.add(policy_id)
    for name, value in facets.items():
        values = t.facets.setdefault(name, {})
        if value not in values:
            values[value] = {"requests": 0, "accepted": 0, "fallback": 0}
        values[value]["requests"] += 1


def _request_rejected(t: _Totals, event: Event) -> None:
    t.outcomes.rejected += 1


def _leak_rejected(t: _Totals, event: Event) -> None:
    line, findings = event.payload["line"], event.payload["findings"]
    t.outcomes.leak_rejected += 1
    t.leak_findings += len(findings)
    named = event.payload["request_id"] or f"line-{line}"
    # The first by line, whatever order they were recorded in, and never more in memory.
    for index, finding in enumerate(findings[:MAX_LEAK_FINDINGS]):
        text = f"request_self_grading_leak:{named}:{finding['path']}"
        insort(t.leaks, (line, event.position, index, text))
    del t.leaks[MAX_LEAK_FINDINGS:]


def _run_blocked(t: _Totals, event: Event) -> None:
    t.outcome, t.ended = "blocked", True
    t.run_failures = list(event.payload["failures"])


def _run_completed(t: _Totals, event: Event) -> None:
    t.outcome, t.ended = event.payload["outcome"], True


def _run_abandoned(t: _Totals, event: Event) -> None:
    t.outcome, t.ended = "abandoned", True


def _call_started(t: _Totals, event: Event) -> None:
    t.calls.started += 1
    t.cost.add_start()
    pending = t.outcomes.begin(event.request_id or "")
    if pending is not None:
        pending.sent = (event.payload["attempt"], event.payload["body_bytes"])
        pending.retried = pending.retried or event.payload["turn"] == 2


def _called(t: _Totals, event: Event) -> None:
    pending = t.outcomes.begun(event.request_id or "")
    sent_bytes = None
    if pending is not None and pending.sent is not None and pending.sent[0] == event.payload["attempt"]:
        sent_bytes = pending.sent[1]
    t.calls.add_reply(event.payload, asked_model=t.run["model"], sent_bytes=sent_bytes)
    t.cost.add_reply(event.payload)


def _call_failed(t: _Totals, event: Event) -> None:
    t.calls.add_failure(event.payload)
    t.cost.add_failure(event.payload)
    _note_error(t, event)


def _parse_failed(t: _Totals, event: Event) -> None:
    t.refusals += event.payload["code"] == "model_output_refused"
    _note_error(t, event)


def _note_error(t: _Totals, event: Event) -> None:
    pending = t.outcomes.begun(event.request_id or "")
    if pending is not None:
        pending.note_error(event.payload["code"])


def _output_accepted(t: _Totals, event: Event) -> None:
    p = event.payload
    pending = t.outcomes.accept_output(event.request_id or "", p["turn"])
    if pending is None:
        return
    blocked, approval = p["blocked_by_policy"], p["requires_human_approval"]
    decisions = t.decisions[p["risk_level"]]
    decisions["total"] += 1
    decisions["blocked_by_policy"] += blocked
    decisions["requires_human_approval"] += approval
    decisions["neither"] += not (blocked or approval)
    if p["allowances"]:
        t.allowances.update(set(p["allowances"]))
    _count_result(t, pending, "accepted")


def _fallback_applied(t: _Totals, event: Event) -> None:
    code = event.payload["code"]
    pending = t.outcomes.apply_fallback(event.request_id or "")
    if pending is None:
        return
    pending.note_error(code)
    t.errors[code] += 1
    _count_result(t, pending, "fallback")


def _count_result(t: _Totals, pending: Pending, kind: str) -> None:
    t.retry_used_records += pending.retried
    if pending.first_error is not None:
        t.first_errors[pending.first_error] += 1
    for name, value in pending.facets:
        t.facets[name][value][kind] += 1


def _unreadable(t: _Totals, event: Unreadable) -> None:
    t.unreadable.append(event.position)
    if event.type == "ModelCallStarted":
        # Its envelope still says that a call began.
        t.outcomes.begin(event.request_id or "")
    elif event.type in TERMINAL_TYPES:
        t.ended = True


_HANDLERS: Final[dict[str, Callable[[_Totals, Event], None]]] = {
    "RunStarted": _run_started,
    "RequestAccepted": _request_accepted,
    "RequestRejected": _request_rejected,
    "LeakRejected": _leak_rejected,
    "RunBlocked": _run_blocked,
    "ModelCallStarted": _call_started,
    "ModelCalled": _called,
    "ModelCallFailed": _call_failed,
    "ParseFailed": _parse_failed,
    "OutputAccepted": _output_accepted,
    "FallbackApplied": _fallback_applied,
    "RunCompleted": _run_completed,
    "RunAbandoned": _run_abandoned,
}
