"""A comparison in words, for a person at a terminal: the gravest differences, each with both answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ledger.integrity.canonical import encode_keeping_integers
from ledger.projections.compare import Comparison
from ledger.render.columns import line, widths
from ledger.render.safe import terminal
from ledger.render.shares import difference, interval, p_value, percent, share

RENDERER_VERSION: Final = 1
SHOWN: Final = 50
"""Differences, and incidents of one run alone, that are shown; all are counted."""

_LONGEST: Final = 300
QUESTIONS: Final = {
    "accepted": "an answer was accepted",
    "low_and_neither": "low risk, neither blocked nor approval",
    "high_or_critical": "high or critical risk",
    "requires_human_approval": "requires human approval",
    "blocked_by_policy": "blocked by policy",
}
FACTS: Final = ("candidate_id", "candidate_variant_id", "model", "state")


def render(comparison: Comparison) -> Iterator[bytes]:
    """The whole as UTF-8 text, a block at a time. Errors as for ``Comparison.differences``."""
    summary = comparison.summary()
    blocks = (_head(summary), _counts(summary), _fields(summary), _tests(summary), _differences(comparison, summary))
    between = ""
    for block in (*blocks, _alone(comparison, summary), _voucher(summary)):
        lines = list(block)
        if lines:
            yield (between + "\n".join(lines) + "\n").encode("utf-8")
            between = "\n"


def verdict(summary: Mapping[str, Any]) -> str:
    """What it comes to, in one sentence."""
    alone = summary["only_first"] + summary["only_second"]
    if not summary["pairs"]:
        return "The two runs have no incident in common."
    if not summary["differences"] and not alone:
        return f"No difference in {_count(summary['pairs'], 'incident')}."
    told = f"{_count(summary['differences'], 'incident')} of {summary['incidents']} decided differently"
    return f"{told}; {alone} asked in one run only." if alone else f"{told}."


def caveats(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know before believing the numbers."""
    lacking = summary["pairs"] - summary["comparable"]
    if lacking:
        lack = "1 pair lacks" if lacking == 1 else f"{lacking} pairs lack"
        yield f"{lack} an accepted answer on one side or both: no agreement, and the fields are compared with nothing."
    for name, what in (("system_prompt", "system prompt"), ("contract", "response contract"), ("policy_id", "policy")):
        if summary["asked_differently"][name]:
            count = summary["asked_differently"][name]
            yield f"{_count(count, 'pair')} {'was' if count == 1 else 'were'} asked with another {what}."
    costs = [summary[side]["cost"] for side in ("first", "second")]
    if all(costs) and costs[0]["prices_sha256"] != costs[1]["prices_sha256"]:
        yield "The two runs were priced by different lists."
    if summary["same_input"] is False:
        yield "The two runs read different files, so an incident's context may differ too."
    for side in ("first", "second"):
        run = summary[side]
        refused = run["rejected"] + run["leak_rejected"]
        if refused:
            yield f"The {side} run refused {_count(refused, 'line')} of its file, whose incidents are not on record."
        if run["state"] == "incomplete":
            yield f"The {side} run has not ended."
        if run["unreadable"]:
            yield f"{_count(run['unreadable'], 'event')} of the {side} run cannot be read; nothing they say is in this."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _head(summary: Mapping[str, Any]) -> Iterator[str]:
    sides = [summary["first"], summary["second"]]
    rows = [("", "first", "second"), ("run", *(terminal(side["run_id"]) for side in sides))]
    rows += [(name.removesuffix("_id"), *(_shown(side[name]) for side in sides)) for name in FACTS]
    rows += [(name, *(str(side[name]) for side in sides)) for name in ("requests", "accepted", "fallback")]
    rows.append(("cost", *(terminal(cost(side["cost"])) for side in sides)))
    found = widths(rows)
    yield verdict(summary)
    yield ""
    yield from (line(row, found) for row in rows)


def cost(of: Mapping[str, Any] | None) -> str:
    """What a run cost, in a cell; the reports tell more."""
    if of is None:
        return "not priced"
    known = f"{of['known']} {of['currency']}"
    return known if of["total"] is not None else f"unknown, at least {known}"


def _shown(value: str | None) -> str:
    return "-" if value is None else terminal(value)


def _counts(summary: Mapping[str, Any]) -> Iterator[str]:
    alone = f"{summary['only_first']} only in the first, {summary['only_second']} only in the second"
    yield f"Incidents {summary['incidents']}: {summary['pairs']} in both runs, {alone}."
    yield f"Answered alike in every field: {share(summary['agreement'])}"
    yield f"  of the pairs with two accepted answers: {share(summary['agreement_of_comparable'])}"
    yield from caveats(summary)


def _fields(summary: Mapping[str, Any]) -> Iterator[str]:
    heads = ("field", "same", "different", "not comparable", "one run only", "agreement", "95 % interval")
    rows = [heads]
    for name, of in summary["fields"].items():
        alone = of["only_first"] + of["only_second"]
        counts = (of["same"], of["different"], of["not_comparable"], alone)
        rows.append((name, *map(str, counts), percent(of["agreement"]["rate"]), interval(of["agreement"])))
    found = widths(rows)
    yield from (line(row, found, frozenset(range(1, 7))) for row in rows)
    for name, of in summary["fields"].items():
        flips = [
            f"{_value(v['first'])} -> {_value(v['second'])}: {v['count']}"
            for v in of["values"]
            if v["first"] != v["second"]
        ]
        if flips:
            yield f"  {name}: {', '.join(flips)}"


def _tests(summary: Mapping[str, Any]) -> Iterator[str]:
    rows = [("question", "pairs", "first", "second", "only first", "only second", "difference", "p (McNemar, exact)")]
    for name, of in summary["tests"].items():
        shares = (percent(of["first"]["rate"]), percent(of["second"]["rate"]))
        only = (str(of["first_only"]), str(of["second_only"]))
        gap = difference(of["difference"])
        rows.append((QUESTIONS[name], str(of["pairs"]), *shares, *only, gap, p_value(of)))
    found = widths(rows)
    yield from (line(row, found, frozenset(range(1, 8))) for row in rows)


def _differences(comparison: Comparison, summary: Mapping[str, Any]) -> Iterator[str]:
    if not summary["differences"]:
        return
    yield "Differences, the gravest first:"
    for one in islice(comparison.differences(), SHOWN):
        yield from _difference(one)
    more = summary["differences"] - SHOWN
    if more > 0:
        yield f"... and {more} more; --format json lists every one"


def _difference(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"{terminal(one['incident_id'])}: {', '.join(one['fields'])}"
    for side in ("first", "second"):
        yield from _answer(side, one[side])


def _answer(side: str, of: Mapping[str, Any]) -> Iterator[str]:
    output = of["model_output"]
    if output is None:
        error = f" ({terminal(of['error'])})" if of["error"] else ""
        yield f"  {side:<6}  {of['outcome']}{error}"
        return
    flags = [name for name in ("requires_human_approval", "blocked_by_policy") if output[name]]
    yield f"  {side:<6}  {output['risk_level']}, {', '.join(flags) or 'neither approval nor blocked'}"
    if of["redacted"]:
        yield "          [redacted]"
        return
    yield f"          {text(output['proposed_action'])}"
    yield from (f"          - {text(step)}" for step in output["action_plan"][:10])
    if len(output["action_plan"]) > 10:
        yield f"          ... and {len(output['action_plan']) - 10} more steps"


def text(value: Any, limit: int = _LONGEST) -> str:
    """A text of an answer, or any value of it as JSON, on one line on which nothing acts."""
    return terminal(value if isinstance(value, str) else encode_keeping_integers(value).decode("utf-8"), limit)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return terminal(str(value))


def _alone(comparison: Comparison, summary: Mapping[str, Any]) -> Iterator[str]:
    for side, found in (("first", comparison.only_first()), ("second", comparison.only_second())):
        count = summary[f"only_{side}"]
        if count:
            yield f"Only in the {side} run:"
            yield from _lone(found, count)


def _lone(found: Iterable[Mapping[str, Any]], count: int) -> Iterator[str]:
    for one in islice(found, SHOWN):
        risk = f", {one['risk_level']}" if one["risk_level"] else ""
        yield f"  {terminal(one['incident_id'])}: {one['outcome']}{risk}"
    if count > SHOWN:
        yield f"  ... and {count - SHOWN} more; --format json lists every one"


def _voucher(summary: Mapping[str, Any]) -> Iterator[str]:
    for side in ("first", "second"):
        as_of = summary[side]["as_of"]
        yield f"The {side} run as of position {as_of['position']}, root {as_of['root']}"
    yield "Whether the record is whole: replay-ledger verify"
