"""A report as JUnit XML: a case a request, for whatever shows test results in continuous integration.

An accepted answer passes. A fallback is a failure, its type the code; what was never put to the model, or not
to its end, is an error: it was not tested. A gate (``--max-fallback-rate``) changes nothing of it. Versions
stay for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from ledger.projections.identity import Identity
from ledger.projections.incidents import Incident
from ledger.render import junit
from ledger.render import report_card as card
from ledger.render import report_words as words
from ledger.render.junit import Bad, Tally

RENDERER_VERSION: Final = 1

_OUTCOMES: Final = dict(words.OUTCOMES)
_ERRORS: Final = ("leak_rejected", "rejected", "not_started", "incomplete")
_NOT_SENT: Final = "not_sent"

Report = Mapping[str, Any]


def render(report: Report, who: Identity, incidents: Iterable[Incident], origin: str) -> Iterator[bytes]:
    """The whole as UTF-8, a case at a time. Arguments as for ``report_md.render``."""
    run_id, of_requests = report["run_id"], _tally(report)
    itself = None if report["valid"] or of_requests.failures + of_requests.errors else _not_usable(report)
    total = of_requests if itself is None else of_requests.plus(Tally(1, 0, 1))
    yield junit.suites(run_id, total).encode("utf-8")
    yield junit.suite(run_id, of_requests, _properties(report, who, origin), time=_took(who), at=_began(who)).encode()
    classname = f"{who.candidate_id or 'unknown'}.{who.candidate_variant_id or 'baseline'}"
    for one in incidents:
        yield _case(classname, run_id, one).encode("utf-8")
    yield junit.SUITE_FOOT.encode("utf-8")
    if itself is not None:
        yield junit.suite(f"{run_id} as a whole", Tally(1, 0, 1), ()).encode("utf-8")
        yield junit.case(classname, "usable as evaluation", itself).encode("utf-8")
        yield junit.SUITE_FOOT.encode("utf-8")
    yield junit.FOOT.encode("utf-8")


def _tally(report: Report) -> Tally:
    """By the report's own counts, so that the first line can be written before the last case is read."""
    not_sent = report["errors"].get(_NOT_SENT, 0)
    errors = sum(report[outcome] for outcome in _ERRORS) + not_sent
    return Tally(report["requests"], report["fallback_records"] - not_sent, errors)


def _not_usable(report: Report) -> Bad:
    """A run whose every request passed, or that has none, and that is not usable all the same: no green light."""
    reasons = words.why_not_usable(report)
    return Bad("error", "not_usable", "; ".join(reasons), (*reasons, *report["failures"]))


def _properties(report: Report, who: Identity, origin: str) -> Iterator[tuple[str, str]]:
    as_of = report["as_of"]
    yield "run_id", report["run_id"]
    yield "usable_as_evaluation", "yes" if report["valid"] else "no"
    if not report["valid"]:
        yield "why_not_usable", "; ".join(words.why_not_usable(report))
    for name, values in card.facts(report, who):
        yield name.replace("-", "").replace(" ", "_").lower(), ", ".join(values) or "unknown"
    yield "ledger", origin
    yield "as_of_position", str(as_of["position"])
    yield "root", as_of["root"]
    yield "report_json_sha256", card.json_sha256(report)
    yield "cost", card.cost(report["cost"])
    if report["failures"]:
        yield "failures", ", ".join(report["failures"])


def _took(who: Identity) -> str | None:
    """From the first event to the last. Requests run side by side: their times add up to more."""
    if who.first is None or who.last is None:
        return None
    between = datetime.fromisoformat(who.last.recorded_at) - datetime.fromisoformat(who.first.recorded_at)
    return words.seconds((between.days * 86_400 + between.seconds) * 1_000_000 + between.microseconds)


def _began(who: Identity) -> str | None:
    return None if who.first is None else who.first.recorded_at


def _case(classname: str, run_id: str, of: Incident) -> str:
    # A line that was refused may bear the id of another: that it is a duplicate is then why.
    refused = of.outcome in ("leak_rejected", "rejected") and of.request_id is not None
    name = f"{of.name} (line {of.line})" if refused else of.name
    return junit.case(classname, name, None if of.accepted else _bad(run_id, of), time=_time(of))


def _time(of: Incident) -> str | None:
    if not of.sent:
        return words.seconds(0)
    return None if of.call_us is None else words.seconds(of.call_us)


def _bad(run_id: str, of: Incident) -> Bad:
    failed = of.outcome == "fallback_records" and of.error != _NOT_SENT
    code = of.outcome if of.error is None or of.outcome == "incomplete" else of.error
    message = f"{_OUTCOMES[of.outcome]}: {code}"
    return Bad("failure" if failed else "error", code, message, tuple(_told(run_id, of)))


def _told(run_id: str, of: Incident) -> Iterator[str]:
    yield f"line: {of.line}" if of.incident_id is None else f"incident: {of.incident_id}, line {of.line}"
    if of.where is not None:
        yield f"where: {of.where}"
    if of.first_error != of.error:
        yield f"first error: {of.first_error}"
    if of.error is not None:
        yield f"last error: {of.error}"
    if of.sent:
        waited = f", and {words.milliseconds(of.waited_ms * 1000)} between them" if of.waited_ms else ""
        took = "unknown time" if of.call_us is None else words.milliseconds(of.call_us)
        yield f"attempts: {of.attempts}, which took {took}{waited}"
    yield from (f"{name}: {value}" for name, value in sorted(of.facets.items()))
    yield f"position: {of.position}" + (f", decided at {of.decided}" if of.decided is not None else "")
    if of.outcome not in ("leak_rejected", "rejected"):
        yield f"replay-ledger show {run_id} {of.name}"
