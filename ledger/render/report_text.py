"""A report in words, for a person at a terminal.

It never says a bare "valid": it says whether the run is usable as evaluation and why, and beside
it what vouches for the record. Numbers are plain digits: no locale has a say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.projections.identity import Identity
from ledger.render import report_card as card
from ledger.render import report_words as words
from ledger.render.columns import line, widths
from ledger.render.safe import terminal

Report = Mapping[str, Any]

_FIRST_IS_TEXT: Final = frozenset(range(1, 8))


def render_1(report: Report) -> bytes:
    """The whole report as UTF-8 text, in version 1."""
    sections = (_head, _usable, _requests, _decisions, _errors, _calls, _models, _facets, _failures, _voucher)
    return _blocks(section(report) for section in sections)


def render_2(report: Report, who: Identity, origin: str) -> Iterator[bytes]:
    """The same with the run's identity, what it cost, and the evidence.

    ``who``: the run's as of the report's position; ``origin``: the ledger's.
    """
    sections = [
        *([f"Run {terminal(report['run_id'])}"], _usable(report), _card(report, who), _requests(report)),
        *(_decisions(report), _errors(report), _calls_2(report), _models(report), _facets(report)),
        *(_failures(report), _elsewhere(report), _evidence(report, origin)),
    ]
    yield _blocks(sections)


def _blocks(sections: Iterable[Iterable[str]]) -> bytes:
    blocks = ["\n".join(lines) for section in sections if (lines := list(section))]
    return ("\n\n".join(blocks) + "\n").encode("utf-8")


def _head(report: Report) -> Iterator[str]:
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


def _usable(report: Report) -> Iterator[str]:
    if report["valid"]:
        yield f"Usable as evaluation: yes, {words.why_usable(report)}."
        return
    yield "Usable as evaluation: no, because"
    for reason in words.why_not_usable(report):
        yield f"  - {reason}"


def _requests(report: Report) -> Iterator[str]:
    rows = [(name, str(report[member])) for member, name in words.OUTCOMES]
    rows.append(("= requests", str(report["requests"])))
    yield "Requests"
    yield from _table(rows)


def _decisions(report: Report) -> Iterator[str]:
    levels = report["decisions"]["by_risk_level"]
    rows: list[Sequence[str]] = [("risk level", "total", "blocked by policy", "needs approval", "neither")]
    rows += [(level, *(str(levels[level][member]) for member in words.DECISIONS)) for level in words.RISK_LEVELS]
    yield "Decisions (accepted answers only)"
    yield from _table(rows)
    yield '  "Blocked by policy" is what the model said of its own answer; no policy engine was asked.'


def _errors(report: Report) -> Iterator[str]:
    for member, title in words.ERRORS:
        if report[member]:
            yield title
            yield from _table(_by_frequency(report[member]))
    if report["refusals"]:
        yield f"The model refused to answer {words.count(report['refusals'], 'time')}."


def _by_frequency(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(terminal(code), str(number)) for code, number in words.by_frequency(counts)]


def _calls(report: Report) -> Iterator[str]:
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


def _models(report: Report) -> Iterator[str]:
    if report["models_answered"]:
        yield "Models that answered, by their own word"
        yield from _table(_by_frequency(report["models_answered"]))
    if report["model_mismatch"]:
        yield f"  answers by another model than was asked for: {report['model_mismatch']}"


def _facets(report: Report) -> Iterator[str]:
    for name, values in sorted(report["facets"].items()):
        rows: list[Sequence[str]] = [(terminal(name), "requests", "accepted", "fallback")]
        for value, of in sorted(values.items()):
            rows.append((terminal(value), *(str(of[member]) for member in ("requests", "accepted", "fallback"))))
        yield f"By {terminal(name)}"
        yield from _table(rows)


def _failures(report: Report) -> Iterator[str]:
    if report["failures"]:
        yield "Failures"
        for failure in report["failures"]:
            yield f"  {terminal(failure)}"


def _voucher(report: Report) -> Iterator[str]:
    as_of = report["as_of"]
    yield "What vouches for this"
    yield f"  position {as_of['position']} of the ledger, whose root at size {as_of['size']} is"
    yield f"  {as_of['root']}"
    yield "  This report says nothing of whether the record is whole; this does: replay-ledger verify"


# --- what version 2 has besides ---------------------------------------------------------------


def _card(report: Report, who: Identity) -> Iterator[str]:
    yield from _pairs((name, ", ".join(map(terminal, values)) or "unknown") for name, values in card.facts(report, who))


def _calls_2(report: Report) -> Iterator[str]:
    yield from _calls(report)
    yield f"  cost: {terminal(card.cost(report['cost']))}"
    if report["cost"]:
        yield f"  prices SHA-256: {terminal(report['cost']['prices_sha256'])}"


def _elsewhere(report: Report) -> Iterator[str]:
    """Where single incidents are told: to find them here, every event would be read once more."""
    without = report["requests"] - report["accepted_first"] - report["accepted_after_retry"]
    if without:
        run_id = terminal(report["run_id"])
        yield f"Without an accepted answer: {without}"
        yield f"  which they are: replay-ledger report {run_id} --format md (the first 50), junit or html (all)"
        yield f"  the timeline of one: replay-ledger show {run_id} REQUEST"


def _evidence(report: Report, origin: str) -> Iterator[str]:
    yield "What vouches for this"
    yield from _pairs((name, terminal(value)) for name, value in card.evidence(report, origin))
    for command, what in card.checks(report):
        yield f"  {terminal(command)}"
        yield f"    {what}"


def _pairs(of: Iterable[tuple[str, str]]) -> Iterator[str]:
    rows = list(of)
    found = widths(rows)
    yield from ("  " + line(cells, found) for cells in rows)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    column_widths = widths(rows)
    for cells in rows:
        yield "  " + line(cells, column_widths, _FIRST_IS_TEXT)
