"""A report as Markdown, for a pull request or a ticket: short enough to paste, and nothing left out unsaid.

Versions stay for ever: a report that was issued in one must come out with the same bytes years later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.projections.identity import Identity
from ledger.projections.incidents import Incident
from ledger.render import report_card as card
from ledger.render import report_words as words
from ledger.render.markdown import code, heading, items, table
from ledger.render.picked import Picked

RENDERER_VERSION: Final = 1

_INCIDENTS: Final = 50
_ROWS: Final = 20
_OUTCOMES: Final = dict(words.OUTCOMES)

Report = Mapping[str, Any]


def render(report: Report, who: Identity, incidents: Iterable[Incident], origin: str) -> Iterator[bytes]:
    """The whole as UTF-8. ``who``, ``incidents``: the run's as of the report's position; ``origin``: the ledger's."""
    sections: list[Iterable[str]] = [
        *([heading(1, f"Report of run {code(report['run_id'])}")], _usable(report), _vouched(report, origin)),
        *(_run(report, who), _requests(report), _decisions(report), _errors(report), _calls(report)),
        *(_models(report), _facets(report), _failures(report), _incidents(report, incidents)),
        _evidence(report, origin),
    ]
    blocks = [block for section in sections if (block := "\n".join(section).strip("\n"))]
    yield ("\n\n".join(blocks) + "\n").encode("utf-8")


def _usable(report: Report) -> Iterator[str]:
    if report["valid"]:
        yield f"**Usable as evaluation: yes**, {words.why_usable(report)}."
        return
    yield "**Usable as evaluation: no**, because"
    yield ""
    yield from items(words.why_not_usable(report))


def _vouched(report: Report, origin: str) -> Iterator[str]:
    as_of = report["as_of"]
    yield (
        f"What vouches for it: position {as_of['position']} of the ledger {code(origin)}, "
        f"whose root there is {code(as_of['root'])}. Whether the record is whole: {code('replay-ledger verify')}."
    )


def _run(report: Report, who: Identity) -> Iterator[str]:
    yield from _section("The run")
    yield from table(("fact", "value"), ((name, _values(values)) for name, values in card.facts(report, who)), 2)


def _values(values: Sequence[str]) -> str:
    return ", ".join(map(code, values)) or "unknown"


def _requests(report: Report) -> Iterator[str]:
    yield from _section("Requests")
    rows = [(name, report[member]) for member, name in words.OUTCOMES]
    yield from table(("outcome", "requests"), [*rows, ("**all requests**", f"**{report['requests']}**")])


def _decisions(report: Report) -> Iterator[str]:
    levels = report["decisions"]["by_risk_level"]
    rows = [(level, *(levels[level][member] for member in words.DECISIONS)) for level in words.RISK_LEVELS]
    yield from _section("Decisions")
    yield "Accepted answers only. “Blocked by policy” is what the model said of itself; no policy engine was asked."
    yield ""
    yield from table(("risk level", "total", "blocked by policy", "needs approval", "neither"), rows)


def _errors(report: Report) -> Iterator[str]:
    counted = [(title, report[member]) for member, title in words.ERRORS if report[member]]
    if counted or report["refusals"]:
        yield heading(2, "Errors")
    for title, counts in counted:
        yield ""
        yield from table((title, "results"), _by_frequency(counts))
    if report["refusals"]:
        yield ""
        yield f"The model refused to answer {words.count(report['refusals'], 'time')}."


def _by_frequency(counts: Mapping[str, int]) -> Iterator[Sequence[object]]:
    ordered = words.by_frequency(counts)
    yield from ((code(name), number) for name, number in ordered[:_ROWS])
    if rest := ordered[_ROWS:]:
        yield f"... and {len(rest)} more", sum(number for _, number in rest)


def _calls(report: Report) -> Iterator[str]:
    tokens = report["tokens"]
    yield from _section("Model calls")
    rows = [
        ("calls", words.calls(report["calls"])),
        ("latency of answered calls, waits apart", words.latencies(report["latency_us"])),
        ("waited between attempts", words.milliseconds(report["calls"]["waited_ms"] * 1000)),
        ("tokens", words.tokens(tokens)),
        (
            "usage unknown",
            f"{tokens['calls_without_usage']} of {words.count(report['calls']['answered'], 'answered call')}",
        ),
        ("cost", code(card.cost(report["cost"])) if report["cost"] else card.cost(None)),
    ]
    if report["cost"]:
        rows.append(("prices SHA-256", code(report["cost"]["prices_sha256"])))
    if report["suspected_prompt_truncation"]:
        rows.append(("prompts that the server seems to have cut", str(report["suspected_prompt_truncation"])))
    yield from table(("fact", "value"), rows, 2)


def _models(report: Report) -> Iterator[str]:
    if report["models_answered"]:
        yield from _section("Models that answered, by their own word")
        yield from table(("model", "answers"), _by_frequency(report["models_answered"]))
    if report["model_mismatch"]:
        yield ""
        yield f"Answers by another model than was asked for: {report['model_mismatch']}."


def _facets(report: Report) -> Iterator[str]:
    members = ("requests", "accepted", "fallback")
    for name, values in sorted(report["facets"].items()):
        ordered = sorted(values.items())
        rows = [(code(value), *(of[member] for member in members)) for value, of in ordered[:_ROWS]]
        if rest := ordered[_ROWS:]:
            rows.append((f"... and {len(rest)} more", *(sum(of[member] for _, of in rest) for member in members)))
        yield from _section(f"By {code(name)}")
        yield from table((code(name), *members), rows)
        yield ""


def _failures(report: Report) -> Iterator[str]:
    if report["failures"]:
        yield from _section("Failures")
        more = f"... and {{}} more: {code('--format json')} lists them"
        yield from items(words.bounded(map(code, report["failures"]), _ROWS, more))


def _more(picked: Picked, run_id: str) -> Iterator[str]:
    """That there are others, and where every one is listed."""
    if picked.more:
        yield ""
        command = code(f"replay-ledger report {run_id} --format junit")
        yield f"... and {picked.more} more; {command} lists every request."
    yield ""


def _incidents(report: Report, incidents: Iterable[Incident]) -> Iterator[str]:
    accepted = report["accepted_first"] + report["accepted_after_retry"]
    without = Picked(report["requests"] - accepted, _INCIDENTS)
    let_through = Picked(report["decisions"]["by_risk_level"]["low"]["neither"], _ROWS)
    for one in () if without.full and let_through.full else incidents:
        if not one.accepted:
            without.add(one)
        elif one.low_and_neither:
            let_through.add(one)
        if without.full and let_through.full:
            break
    if without.count:
        yield from _section(f"Without an accepted answer: {without.count}")
        yield from table(
            ("request", "outcome", "last error", "first error", "line", "attempts", "time in calls", "position"),
            map(_row, without.first),
            4,
        )
        yield from _more(without, report["run_id"])
    if let_through.count:
        yield from _section(f"Low risk, neither blocked nor put to a person: {let_through.count}")
        yield from items(f"{code(one.name)}, position {one.decided}" for one in let_through.first)
        yield from _more(let_through, report["run_id"])
    if without.count or let_through.count:
        show = code(f"replay-ledger show {report['run_id']} REQUEST")
        yield f"{show} gives the timeline of one of them."


def _row(of: Incident) -> Sequence[object]:
    error = "-" if of.error is None else code(of.error if of.where is None else f"{of.error} at {of.where}")
    first = "-" if of.first_error in (None, of.error) else code(of.first_error)
    took = "unknown" if of.call_us is None else words.milliseconds(of.call_us)
    return (
        *(code(of.name), _OUTCOMES[of.outcome], error, first, of.line, of.attempts),
        *(took if of.sent else "-", of.position),
    )


def _evidence(report: Report, origin: str) -> Iterator[str]:
    yield from _section("Evidence")
    yield from table(("fact", "value"), ((name, code(value)) for name, value in card.evidence(report, origin)), 2)
    yield ""
    yield from items(f"{code(command)} {what}" for command, what in card.checks(report))


def _section(title: str) -> Iterator[str]:
    yield heading(2, title)
    yield ""
