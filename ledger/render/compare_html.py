"""A comparison as one HTML page: the numbers, then the gravest differences, each with both answers side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ledger.projections.compare import Comparison
from ledger.projections.decisions import OUTCOMES, RISK_LEVELS
from ledger.render import page
from ledger.render.compare_text import FACTS, QUESTIONS, caveats, cost, text, verdict
from ledger.render.page import shown
from ledger.render.shares import difference, interval, p_value, percent, share

RENDERER_VERSION: Final = 1
SHOWN: Final = 500
"""Differences, and incidents of one run alone, that are shown; all are counted."""

_STYLE: Final = """.numbers, .texts { margin-bottom: 1rem; min-width: min(28rem, 100%) } dl { margin-bottom: 1rem }
.numbers td, .numbers th { overflow-wrap: normal } .texts th, .answers th { overflow-wrap: normal }
@media screen and (max-width: 40rem) {
  dl { grid-template-columns: minmax(0, 1fr); gap: 0 } dd { margin-bottom: .5rem }
  .answers th:first-child { width: 6rem }
}
"""
_LONGEST: Final = 2000
_STEPS: Final = 50
_VERDICT: Final = ("risk_level", "requires_human_approval", "blocked_by_policy")
_LEVELS: Final[dict[str, tuple[Any, ...]]] = {
    "outcome": OUTCOMES,
    "risk_level": RISK_LEVELS,
    "requires_human_approval": (False, True),
    "blocked_by_policy": (False, True),
}


def render(comparison: Comparison) -> Iterator[bytes]:
    """The page in pieces, UTF-8. Errors as for ``Comparison.differences``."""
    summary = comparison.summary()
    runs = [summary[side]["run_id"] for side in ("first", "second")]
    pieces = (_numbers(summary), _differences(comparison, summary), _alone(comparison, summary), _voucher(summary))
    yield page.head(f"Runs {runs[0]} and {runs[1]} compared", _STYLE).encode()
    for section in pieces:
        for piece in section:
            yield piece.encode("utf-8")
    yield page.FOOT.encode()


def _numbers(summary: Mapping[str, Any]) -> Iterator[str]:
    sides = [summary["first"], summary["second"]]
    yield page.first(verdict(summary), bad=bool(summary["differences"]))
    found = list(caveats(summary))
    if found:
        yield page.items(found)
    yield page.heading("The two runs")
    rows = [(name.replace("_", " "), *(side[name] for side in sides)) for name in ("run_id", *FACTS, "endpoint")]
    yield page.table("Who was asked", ("", "first", "second"), rows, "texts")
    counts = ("requests", *OUTCOMES, "rejected", "leak_rejected")
    rows = [(name.replace("_", " "), *(side[name] for side in sides)) for name in counts]
    rows.append(("cost", *(cost(side["cost"]) for side in sides)))
    yield page.table("What became of the requests", ("", "first", "second"), rows)
    yield page.heading("Agreement")
    yield page.pairs(
        ("Incidents", summary["incidents"]),
        ("In both runs", summary["pairs"]),
        ("Only in the first", summary["only_first"]),
        ("Only in the second", summary["only_second"]),
        ("Answered alike in every field", share(summary["agreement"])),
        ("Of the pairs with two accepted answers", share(summary["agreement_of_comparable"])),
    )
    yield page.table(
        "Every incident of either run stands in every row",
        ("field", "same", "different", "not comparable", "one run only", "agreement", "95 % interval"),
        [_field(name, of) for name, of in summary["fields"].items()],
    )
    yield from (_flips(name, of["values"]) for name, of in summary["fields"].items() if of["values"])
    yield page.heading("Could it be chance?")
    yield page.table(
        "McNemar's exact test over the pairs; not corrected for asking five questions",
        ("question", "pairs", "first", "second", "only first", "only second", "difference", "p"),
        [_test(name, of) for name, of in summary["tests"].items()],
    )


def _field(name: str, of: Mapping[str, Any]) -> Sequence[object]:
    counts = (of["same"], of["different"], of["not_comparable"], of["only_first"] + of["only_second"])
    return (name.replace("_", " "), *counts, percent(of["agreement"]["rate"]), interval(of["agreement"]))


def _flips(name: str, values: Iterable[Mapping[str, Any]]) -> str:
    counted = {(of["first"], of["second"]): of["count"] for of in values}
    levels = _LEVELS[name]
    rows = [(one, *(counted.get((one, other), 0) for other in levels)) for one in levels]
    caption = f"{name.replace('_', ' ')}: rows the first run, columns the second"
    return page.table(caption, ("first \\ second", *map(_word, levels)), rows)


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _test(name: str, of: Mapping[str, Any]) -> Sequence[object]:
    shares = (percent(of["first"]["rate"]), percent(of["second"]["rate"]))
    counts = (of["first_only"], of["second_only"])
    return (QUESTIONS[name], of["pairs"], *shares, *counts, difference(of["difference"]), p_value(of))


def _differences(comparison: Comparison, summary: Mapping[str, Any]) -> Iterator[str]:
    if not summary["differences"]:
        return
    yield page.heading("Differences, the gravest first")
    for one in islice(comparison.differences(), SHOWN):
        yield _difference(one)
    if summary["differences"] > SHOWN:
        yield page.paragraph(f"... and {summary['differences'] - SHOWN} more; --format json lists every one.")


def _difference(one: Mapping[str, Any]) -> str:
    sides = (one["first"], one["second"])
    rows = [_row("outcome", [_outcome(side) for side in sides], "outcome" in one["fields"])]
    for name in _VERDICT:
        cells = [shown(None if side["model_output"] is None else side["model_output"][name]) for side in sides]
        rows.append(_row(name.replace("_", " "), cells, name in one["fields"]))
    rows.append(_row("proposed action", [_action(side) for side in sides], False))
    rows.append(_row("action plan", [_plan(side) for side in sides], False))
    if any(_added(side) for side in sides):
        rows.append(_row("further fields", [shown(text(_added(side), _LONGEST)) for side in sides], False))
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("field", "first", "second"))
    caption = f"differs in {', '.join(one['fields'])}".replace("_", " ")
    return (
        f"{page.heading(one['incident_id'], 3)}"
        f'<table class="answers"><caption>{shown(caption)}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>\n"
    )


def _row(name: str, cells: Sequence[str], differs: bool) -> str:
    mark = ' class="differs"' if differs else ""
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td{mark}>{cell}</td>" for cell in cells)}</tr>'


def _outcome(side: Mapping[str, Any]) -> str:
    return shown(f"{side['outcome']} ({side['error']})" if side["error"] else side["outcome"])


def _action(side: Mapping[str, Any]) -> str:
    if side["model_output"] is None:
        return shown(None)
    return "[redacted]" if side["redacted"] else shown(side["model_output"]["proposed_action"], _LONGEST)


def _plan(side: Mapping[str, Any]) -> str:
    if side["model_output"] is None:
        return shown(None)
    if side["redacted"]:
        return "[redacted]"
    steps = side["model_output"]["action_plan"]
    more = [f"<li>... and {len(steps) - _STEPS} more</li>"] if len(steps) > _STEPS else []
    return f"<ol>{''.join([f'<li>{shown(step, _LONGEST)}</li>' for step in steps[:_STEPS]] + more)}</ol>"


def _added(side: Mapping[str, Any]) -> dict[str, Any]:
    known = ("proposed_action", "action_plan", *_VERDICT)
    return {name: value for name, value in (side["model_output"] or {}).items() if name not in known}


def _alone(comparison: Comparison, summary: Mapping[str, Any]) -> Iterator[str]:
    for side, found in (("first", comparison.only_first()), ("second", comparison.only_second())):
        count = summary[f"only_{side}"]
        if not count:
            continue
        yield page.heading(f"Only in the {side} run")
        names = ("incident_id", "request_id", "outcome", *_VERDICT)
        rows = ([one[name] for name in names] for one in islice(found, SHOWN))
        yield page.table(f"Incidents of the {side} run alone", [name.replace("_", " ") for name in names], rows)
        if count > SHOWN:
            yield page.paragraph(f"... and {count - SHOWN} more; --format json lists every one.")


def _voucher(summary: Mapping[str, Any]) -> Iterator[str]:
    yield page.heading("What vouches for this")
    for side in ("first", "second"):
        as_of = summary[side]["as_of"]
        name = f"{side.capitalize()} run, position and root"
        yield page.pairs((name, f"{as_of['position']}, {as_of['root']}"))
    yield page.paragraph(
        "This says nothing of whether the record is whole. replay-ledger verify does, "
        "and an audit bundle shows it to others."
    )
