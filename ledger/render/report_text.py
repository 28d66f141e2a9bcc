"""A report in words, for a person at a terminal.

It never says a bare "valid": it says whether the run is usable as evaluation and why, and beside
it what vouches for the record. Numbers are plain digits: no locale has a say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.render import report_words as words
from ledger.render.columns import line, widths
from ledger.render.safe import terminal

RENDERER_VERSION: Final = 1

_FIRST_IS_TEXT: Final = frozenset(range(1, 8))


def render(report: Mapping[str, Any]) -> bytes:
    """The whole report as UTF-8 text."""
    sections = (_head, _usable, _requests, _decisions, _errors, _calls, _models, _facets, _failures, _voucher)
    blocks = ["\n".join(lines) for section in sections if (lines := list(section(report)))]
    return ("\n\n".join(blocks) + "\n").encode("utf-8")


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
        yield f"Usable as evaluation: yes, {words.why_usable(report)}."
        return
    yield "Usable as evaluation: no, because"
    for reason in words.why_not_usable(report):
        yield f"  - {reason}"


def _requests(report: Mapping[str, Any]) -> Iterator[str]:
    rows = [(name, str(report[member])) for member, name in words.OUTCOMES]
    rows.append(("= requests", str(report["requests"])))
    yield "Requests"
    yield from _table(rows)


def _decisions(report: Mapping[str, Any]) -> Iterator[str]:
    levels = report["decisions"]["by_risk_level"]
    rows: list[Sequence[str]] = [("risk level", "total", "blocked by policy", "needs approval", "neither")]
    rows += [(level, *(str(levels[level][member]) for member in words.DECISIONS)) for level in words.RISK_LEVELS]
    yield "Decisions (accepted answers only)"
    yield from _table(rows)
    yield '  "Blocked by policy" is what the model said of its own answer; no policy engine was asked.'


def _errors(report: Mapping[str, Any]) -> Iterator[str]:
    for member, title in words.ERRORS:
        if report[member]:
            yield title
            yield from _table(_by_frequency(report[member]))
    if report["refusals"]:
        yield f"The model refused to answer {words.count(report['refusals'], 'time')}."


def _by_frequency(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(terminal(code), str(number)) for code, number in words.by_frequency(counts)]


def _calls(report: Mapping[str, Any]) -> Iterator[str]:
    calls, latency, tokens = report["calls"], report["latency_us"], report["tokens"]
    yield "Model calls"
    yield f"  {words.calls(calls)}"
    yield f"  latency of answered calls, waits apart: {words.latencies(latency)}"
    yield f"  waited between attempts: {words.milliseconds(calls['waited_ms'] * 1000)}"
    yield f"  tokens: {words.tokens(tokens)}"
    if tokens["calls_without_usage"]:
        yield f"  usage unknown: {tokens['calls_without_usage']} of {words.count(calls['answered'], 'answered call')}"
    if report["suspected_prompt_truncation"]:
        yield f"  prompts that the server seems to have cut: {report['suspected_prompt_truncation']}"


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
