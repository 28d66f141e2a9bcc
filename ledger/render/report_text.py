"""A report in words, for a person at a terminal.

It never says a bare "valid": it says whether the run is usable as evaluation and why, and beside
it what vouches for the record. Numbers are plain digits: no locale has a say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.render.columns import line, widths
from ledger.render.safe import terminal

RENDERER_VERSION: Final = 1

_OUTCOMES: Final = (
    ("accepted_first", "accepted at first"),
    ("accepted_after_retry", "accepted after a retry"),
    ("fallback_records", "fallback (failed closed)"),
    ("leak_rejected", "refused: holds its own labels"),
    ("rejected", "refused: no valid request"),
    ("not_started", "not started"),
    ("incomplete", "begun, without a result"),
)
_RISK_LEVELS: Final = ("low", "medium", "high", "critical")
_ENDS: Final = {
    "blocked": "the run was blocked before any call",
    "abandoned": "the run was abandoned",
    "auth_error": "the endpoint refused the key",
    "incomplete": "the run has not ended",
}
_FIRST_IS_TEXT: Final = frozenset(range(1, 8))


def render(report: Mapping[str, Any]) -> bytes:
    """The whole report as UTF-8 text."""
    sections = (_head, _usable, _requests, _decisions, _errors, _calls, _models, _facets, _failures, _voucher)
    blocks = ["\n".join(lines) for section in sections if (lines := list(section(report)))]
    return ("\n\n".join(blocks) + "\n").encode("utf-8")


def why_not_usable(report: Mapping[str, Any]) -> list[str]:
    """The reasons why a run is not usable as evaluation; empty where it is."""
    reasons = []
    if report["outcome"] != "completed":
        reasons.append(_ENDS[report["outcome"]])
    if not report["requests"]:
        reasons.append("there is no request in it")
    for member, what in (
        ("fallback_records", "without an answer that could be accepted"),
        ("leak_rejected", "refused for holding the labels it is judged by"),
        ("rejected", "refused as no valid request"),
        ("not_started", "never put to the model"),
        ("incomplete", "begun, without a result"),
    ):
        if report[member]:
            reasons.append(f"{_count(report[member], 'request')} {what}")
    if report["unreadable"]:
        reasons.append(f"{_count(report['unreadable'], 'event')} that cannot be read")
    return reasons


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _head(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"Run {terminal(report['run_id'])}"
    variant = report["candidate_variant_id"] or "baseline"
    yield f"  candidate  {_shown(report['candidate_id'])} ({terminal(variant)})"
    yield f"  model      {_shown(report['model'])}"
    yield f"  endpoint   {_shown(report['endpoint'])}"
    yield f"  outcome    {report['outcome']}"
    if report["policy_ids"]:
        yield f"  policies   {', '.join(map(terminal, report['policy_ids']))}"


def _shown(text: str | None) -> str:
    return "unknown" if text is None else terminal(text)


def _usable(report: Mapping[str, Any]) -> Iterator[str]:
    if report["valid"]:
        requests = report["requests"]
        every = "the only request has" if requests == 1 else f"all {requests} requests have"
        yield f"Usable as evaluation: yes, because {every} an accepted answer and none was refused."
        return
    yield "Usable as evaluation: no, because"
    for reason in why_not_usable(report):
        yield f"  - {reason}"


def _requests(report: Mapping[str, Any]) -> Iterator[str]:
    rows = [(name, str(report[member])) for member, name in _OUTCOMES]
    rows.append(("= requests", str(report["requests"])))
    yield "Requests"
    yield from _table(rows)


def _decisions(report: Mapping[str, Any]) -> Iterator[str]:
    levels = report["decisions"]["by_risk_level"]
    rows: list[Sequence[str]] = [("risk level", "total", "blocked by policy", "needs approval", "neither")]
    for level in _RISK_LEVELS:
        of = levels[level]
        members = ("total", "blocked_by_policy", "requires_human_approval", "neither")
        rows.append((level, *(str(of[member]) for member in members)))
    yield "Decisions (accepted answers only)"
    yield from _table(rows)
    yield '  "Blocked by policy" is what the model said of its own answer; no policy engine was asked.'


def _errors(report: Mapping[str, Any]) -> Iterator[str]:
    for member, title in (
        ("errors", "Last error of a result"),
        ("first_errors", "First error of a result, overcome or not"),
        ("allowances", "Tolerances the parser used"),
    ):
        if report[member]:
            yield title
            yield from _table(_by_frequency(report[member]))
    if report["refusals"]:
        yield f"The model refused to answer {_count(report['refusals'], 'time')}."


def _by_frequency(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(terminal(code), str(number)) for code, number in ordered]


def _calls(report: Mapping[str, Any]) -> Iterator[str]:
    calls, latency, tokens = report["calls"], report["latency_us"], report["tokens"]
    yield "Model calls"
    yield (
        f"  {calls['started']} started, {calls['answered']} answered, {calls['failed']} failed, "
        f"{calls['outcome_unknown']} of unknown outcome"
    )
    yield f"  latency of answered calls, waits apart: {_latencies(latency)}"
    yield f"  waited between attempts: {_milliseconds(calls['waited_ms'] * 1000)}"
    kinds = ("prompt", "completion", "total", "cached", "reasoning")
    yield f"  tokens: {', '.join(f'{kind} {_or_unknown(tokens[kind])}' for kind in kinds)}"
    if tokens["calls_without_usage"]:
        yield f"  usage unknown: {tokens['calls_without_usage']} of {_count(calls['answered'], 'answered call')}"
    if report["suspected_prompt_truncation"]:
        yield f"  prompts that the server seems to have cut: {report['suspected_prompt_truncation']}"


def _latencies(latency: Mapping[str, int | None]) -> str:
    named = ((name, latency[name]) for name in ("p50", "p90", "p99", "max"))
    return ", ".join(f"{name} {'unknown' if value is None else _milliseconds(value)}" for name, value in named)


def _milliseconds(microseconds: int) -> str:
    return f"{microseconds // 1000}.{microseconds % 1000:03d} ms"


def _or_unknown(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _models(report: Mapping[str, Any]) -> Iterator[str]:
    if report["models_answered"]:
        yield "Models that answered, by their own word"
        yield from _table(_by_frequency(report["models_answered"]))
    if report["model_mismatch"]:
        yield f"  answers by another model than was asked for: {report['model_mismatch']}"


def _facets(report: Mapping[str, Any]) -> Iterator[str]:
    for name, values in sorted(report["facets"].items()):
        rows: list[Sequence[str]] = [(terminal(name), "requests", "accepted", "fallback")]
        for value, of in sorted(values.items()):
            rows.append((terminal(value), *(str(of[member]) for member in ("requests", "accepted", "fallback"))))
        yield f"By {terminal(name)}"
        yield from _table(rows)


def _failures(report: Mapping[str, Any]) -> Iterator[str]:
    if report["failures"]:
        yield "Failures"
        for failure in report["failures"]:
            yield f"  {terminal(failure)}"


def _voucher(report: Mapping[str, Any]) -> Iterator[str]:
    as_of = report["as_of"]
    yield "What vouches for this"
    yield f"  position {as_of['position']} of the ledger, whose root at size {as_of['size']} is"
    yield f"  {as_of['root']}"
    yield "  This report says nothing of whether the record is whole; this does: replay-ledger verify"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    column_widths = widths(rows)
    for cells in rows:
        yield "  " + line(cells, column_widths, _FIRST_IS_TEXT)
