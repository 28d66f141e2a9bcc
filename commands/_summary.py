"""What a run came to, in a few lines for a person, and the exit code for a script. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from commands._failures import NO, OK, STOPPED, UNAVAILABLE, WRONG_USE
from commands._output import counted
from ledger.projections.cost import Prices
from ledger.render.report_words import by_frequency, count, why_not_usable
from runner.codes import lookup
from runner.plan import RunOutcome

_FOR_PEOPLE: Final = {
    "accepted_first": "accepted at once",
    "accepted_after_retry": "accepted after a retry",
    "fallback_records": "fail-closed fallback",
    "leak_rejected": "left out as leaking",
    "rejected": "rejected as invalid",
    "not_started": "never started",
    "incomplete": "without a result yet",
}


def exit_code(outcome: RunOutcome, report: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """The exit code of ``run`` and ``resume``.

    A signal comes first, then an endpoint that refused or never answered, then why a run was
    blocked, then a leak, then the gates that were given, or where none was, whether the run is valid.
    """
    if outcome.stopped_by in STOPPED:
        return STOPPED[outcome.stopped_by]
    if outcome.state in ("incomplete", "auth_error") or never_answered(report):
        return UNAVAILABLE
    if report["leak_rejected"]:
        return NO
    if outcome.state == "blocked":
        return WRONG_USE
    gates = gates_given(settings)
    if report["unreadable"]:
        return NO
    if gates:
        return NO if any(past(name, report, rate) for name, rate in gates.items()) else OK
    return OK if report["valid"] else NO


def never_answered(report: Mapping[str, Any]) -> bool:
    """Calls were made, and not one brought a whole reply."""
    return bool(report["calls"]["started"] and not report["calls"]["answered"])


def unanswered_lines(outcome: RunOutcome, report: Mapping[str, Any]) -> Iterator[str]:
    """Why a completed run ends with 4: gates may have passed, and the counts alone would not say."""
    if outcome.state != "completed" or not never_answered(report):
        return
    calls = count(report["calls"]["started"], "call")
    often = "".join(
        f"; most often {code} ({number:,} of {counted(report['requests'], 'request')})"
        for code, number in by_frequency(report["errors"])[:1]
    )
    yield f"the endpoint never answered: {calls}, not one answer{often}"
    yield f"so the exit code is {UNAVAILABLE}, whatever the gates say"


def gates_given(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: settings[name] for name in ("max_fallback_rate", "max_error_rate") if settings.get(name) is not None}


def past(gate: str, report: Mapping[str, Any], rate: str) -> bool:
    """Is the run past the gate? Exact: whole numbers against a decimal."""
    return Decimal(gated(gate, report)) > Decimal(rate) * int(report["requests"])


def gated(gate: str, report: Mapping[str, Any]) -> int:
    """How many requests a gate counts: fallbacks, or those by a transport code."""
    if gate == "max_fallback_rate":
        return int(report["fallback_records"])
    return sum(count for code, count in report["errors"].items() if lookup(code).group == "transport")


def counts_line(report: Mapping[str, Any]) -> str:
    """``120 requests: 110 accepted at once, 10 fail-closed fallback``."""
    told = [f"{report[name]:,} {words}" for name, words in _FOR_PEOPLE.items() if report[name]]
    return counted(report["requests"], "request") + (f": {', '.join(told)}" if told else "")


def gate_lines(report: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    """One line for each gate that was given."""
    for name, rate in gates_given(settings).items():
        verdict = "past" if past(name, report, rate) else "within"
        requests = counted(report["requests"], "request")
        yield f"{verdict} --{name.replace('_', '-')} {rate}: {gated(name, report):,} of {requests}"


def prices_lines(prices: Prices | None, model: str) -> Iterator[str]:
    """What the calls will be priced by, and whether the model that is asked for is among it."""
    if prices is None:
        return
    models = "1 model" if len(prices.models) == 1 else f"{len(prices.models)} models"
    yield f"Prices in {prices.currency} of {models}; SHA-256 of the file {prices.sha256}"
    if model not in prices.models:
        yield f"Warning: there is no price of {model}: what it answers under that name has an unknown cost."


def cost_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What the calls cost, where prices were given; what is unknown is never passed over."""
    cost = report["cost"]
    if cost is None:
        return
    known = f"{cost['known']} {cost['currency']}"
    if cost["total"] is not None:
        yield f"cost: {known}"
    elif cost["calls_without_cost"]:
        calls = counted(report["calls"]["started"], "call")
        yield f"cost: unknown for {cost['calls_without_cost']:,} of {calls}; {known} else"
    else:
        yield f"cost: unknown, as there are events that cannot be read; {known} by those that can"


def usable_line(report: Mapping[str, Any]) -> str:
    """Never a bare "valid": whether the run is usable as evaluation, and why not."""
    reasons = why_not_usable(report)
    return f"usable as evaluation: no: {'; '.join(reasons)}" if reasons else "usable as evaluation: yes"
