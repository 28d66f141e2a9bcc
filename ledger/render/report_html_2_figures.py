"""The numbers of version 2 of a report's page: outcomes, decisions, errors, time, tokens, facets, cost.

Reports were issued with these bytes: they never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.render.report_html_2_incidents import OUTCOMES, Incidents
from ledger.render.report_html_2_parts import (
    breaking,
    code,
    columns,
    count,
    meter,
    milliseconds,
    number,
    pairs,
    percent,
    shown,
    stack,
    table,
)

Report = Mapping[str, Any]

_RISK_LEVELS: Final = ("low", "medium", "high", "critical")
_SAID: Final = (
    ("total", "answers"),
    ("blocked_by_policy", "blocked by policy"),
    ("requires_human_approval", "needs approval"),
    ("neither", "neither"),
)
_MOST_CODES: Final = 50
_MOST_VALUES: Final = 25


def outcomes(report: Report) -> Iterator[str]:
    """One bar that adds up to the requests, and its numbers."""
    whole = report["requests"]
    told = "; ".join(f"{letter.upper()} {words}: {report[member]:,}" for member, letter, words in OUTCOMES)
    if whole:
        parts = [(letter, report[member]) for member, letter, _ in OUTCOMES]
        yield (
            '<figure class="stack"><svg width="100%" height="44" role="img" aria-labelledby="bar-t bar-d">'
            f'<title id="bar-t">What became of {count(whole, "request")}</title><desc id="bar-d">{told}</desc>'
            f"{stack(parts, whole, 44)}</svg></figure>"
        )
    rows = [
        (f'<b class="{letter}">{letter.upper()}</b>{words}', number(report[member]), percent(report[member], whole))
        for member, letter, words in OUTCOMES
    ]
    total = ("requests", number(whole), percent(whole, whole))
    yield table("What became of each request", ("outcome", "requests", "share"), rows, foot=total, classes="narrow")


def decisions(report: Report, told: Incidents) -> Iterator[str]:
    """Risk against what the answer says is to happen, and the answers that ask nobody."""
    levels = report["decisions"]["by_risk_level"]
    most = max(levels[level][member] for level in _RISK_LEVELS for member, _ in _SAID[1:])
    body = "".join(
        f'<tr><th scope="row">{level}</th><td>{number(levels[level]["total"])}</td>'
        + "".join(_heat(level, member, levels[level][member], most) for member, _ in _SAID[1:])
        + "</tr>"
        for level in _RISK_LEVELS
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("risk level", *(head for _, head in _SAID)))
    yield '<div class="cards wide"><div>'
    yield (
        '<table class="heat keep"><caption>Accepted answers only, by the risk level that the model gave. One that is'
        " both blocked and for approval counts under both; the stronger the colour, the more.</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )
    yield "<p>“Blocked by policy” is what the model said of its own answer; no policy engine was asked.</p>"
    yield '</div><div><h3 id="let-through">Low risk, neither blocked nor for approval</h3>'
    if not told.let_through:
        yield "<p>No answer: none would have been acted on without asking.</p></div></div>"
        return
    yield f"<p>{count(len(told.let_through), 'answer')} would have been acted on without asking anybody:</p>"
    listed = "".join(told.let_through)
    yield f'<ul class="list" tabindex="0" role="list" aria-labelledby="let-through">{listed}</ul></div></div>'


def _heat(level: str, member: str, held: int, most: int) -> str:
    shade = -(-held * 5 // most) if most else 0
    if (level, member) != ("low", "neither") or not held:
        return f'<td class="h{shade}">{number(held)}</td>'
    return f'<td class="h{shade} watch"><a href="#let-through">{number(held)}<br><small>listed</small></a></td>'


def errors(report: Report) -> Iterator[str]:
    """Codes, the most frequent first, and what failed of the run as a whole."""
    counted = (
        ("errors", "Last code of a result without an accepted answer"),
        ("first_errors", "First code of a result, overcome or not"),
        ("allowances", "What the parser tolerated in accepted answers"),
    )
    if not (any(report[member] for member, _ in counted) or report["refusals"] or report["failures"]):
        yield "<p>None.</p>"
        return
    tables = [_codes(caption, report[member]) for member, caption in counted if report[member]]
    if tables:
        yield f'<div class="cards wide">{"".join(f"<div>{of}</div>" for of in tables)}</div>'
    if report["refusals"]:
        yield f"<p>Answers in which the model refused: {number(report['refusals'])}.</p>"
    if report["failures"]:
        failures = "".join(f"<li>{code(failure)}</li>" for failure in report["failures"])
        yield '<h3 id="failures">Failures of the run</h3>'
        yield f'<ul class="list long" tabindex="0" role="list" aria-labelledby="failures">{failures}</ul>'


def _codes(caption: str, counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    most = ordered[0][1]
    rows: list[tuple[str, ...]] = [
        (breaking(name), number(held), meter(held, most)) for name, held in ordered[:_MOST_CODES]
    ]
    rows += _rest([held for _, held in ordered[_MOST_CODES:]], most, "codes")
    return table(caption, ("code", "results", ""), rows)


def _rest(left: Sequence[int], most: int, what: str) -> list[tuple[str, ...]]:
    """One row for all that are not shown, each with fewer than those that are."""
    if not left:
        return []
    return [(f'<span class="dim">{len(left):,} further {what}, in the report as json</span>', number(sum(left)), "")]


def time(report: Report, told: Incidents) -> Iterator[str]:
    """How long whole replies took, and apart from it what was waited."""
    calls, latency = report["calls"], report["latency_us"]
    yield '<div class="flow"><div class="keep"><h3>Whole replies</h3>'
    if any(told.replies):
        yield columns("replies", "Whole replies by how long they took", told.replies)
        yield pairs((name, milliseconds(latency[name])) for name in ("p50", "p90", "p99", "max"))
    else:
        yield "<p>No call was answered.</p>"
    yield '</div><div class="keep"><h3>Waits between attempts</h3>'
    if told.waited:
        yield columns("waits", "Requests that waited, by how long in all", told.waits)
    yield pairs(
        (
            ("in all", f"{number(calls['waited_ms'])} ms"),
            ("requests", number(told.waited)),
            ("longest", f"{number(told.longest_wait_ms)} ms"),
        )
    )
    yield '</div><div class="keep"><h3>Calls</h3>'
    unmeasured = f", and {count(told.unmeasured, 'request')} where it is unknown" if told.unmeasured else ""
    yield pairs(
        (
            ("started", number(calls["started"])),
            ("answered", number(calls["answered"])),
            ("failed", number(calls["failed"])),
            ("outcome unknown", number(calls["outcome_unknown"])),
            ("failed ones took", milliseconds(told.failed_us) + unmeasured),
        )
    )
    yield "</div></div>"


def tokens(report: Report) -> Iterator[str]:
    """What the replies counted; what none counted is unknown."""
    of, answered = report["tokens"], report["calls"]["answered"]
    kinds = ("prompt", "completion", "total", "cached", "reasoning")
    rows = [(kind, number(of[kind])) for kind in kinds]
    yield '<div class="cards"><div>'
    yield table(
        "As the replies counted them, over the calls that reported each", ("tokens", "in all"), rows, classes="narrow"
    )
    yield "</div><div>"
    yield pairs(
        (
            ("Reported none", f"{number(of['calls_without_usage'])} of {count(answered, 'answered call')}"),
            ("Prompt seems cut", f"by the server, for {count(report['suspected_prompt_truncation'], 'answered call')}"),
            ("Another model", f"than was asked for answered {count(report['model_mismatch'], 'call')}"),
        )
    )
    if of["calls_without_usage"]:
        yield "<p>What was not reported is not known, and is in none of the sums.</p>"
    yield "</div></div>"


def facets(report: Report) -> Iterator[str]:
    """One small table a facet, all drawn alike."""
    if not report["facets"]:
        yield "<p>The requests have none.</p>"
        return
    yield (
        '<p><b class="a">A</b>accepted <b class="c">C</b>fallback <b class="f">F</b>without a result;'
        " within a facet all bars are on one scale.</p>"
    )
    cards = "".join(f"<div>{_facet(name, values)}</div>" for name, values in sorted(report["facets"].items()))
    yield f'<div class="cards">{cards}</div>'


def _facet(name: str, values: Mapping[str, Mapping[str, int]]) -> str:
    ordered = sorted(values.items(), key=lambda item: (-item[1]["requests"], item[0]))
    most = ordered[0][1]["requests"]
    rows = [_value(value, of, most) for value, of in ordered[:_MOST_VALUES]]
    left = [of["requests"] for _, of in ordered[_MOST_VALUES:]]
    rows += [(*cells[:2], "", "", "", "") for cells in _rest(left, most, "values")]
    return table(f"By {name}", (shown(name), "all", "A", "C", "F", ""), rows)


def _value(value: str, of: Mapping[str, int], most: int) -> tuple[str, ...]:
    rest = of["requests"] - of["accepted"] - of["fallback"]
    drawn = stack((("a", of["accepted"]), ("c", of["fallback"]), ("f", rest)), most, 10)
    bar = f'<svg width="100%" height="10" aria-hidden="true">{drawn}</svg>'
    return (shown(value), *map(number, (of["requests"], of["accepted"], of["fallback"], rest)), bar)


def cost(report: Report) -> Iterator[str]:
    """What is known of the cost; where not all of it is, that is said first."""
    of = report["cost"]
    if of is None:
        yield "<p>Not priced: no prices were given when the run began, so what it cost is unknown.</p>"
        return
    currency = shown(of["currency"])
    whole = "unknown" if of["total"] is None else f"{shown(of['total'])} {currency}"
    yield pairs(
        (
            ("In all", f"<strong>{whole}</strong>"),
            ("Known of it", f"{shown(of['known'])} {currency}"),
            ("Calls priced", number(of["calls_priced"])),
            ("Not billed", number(of["calls_not_billed"])),
            ("Cost unknown", number(of["calls_without_cost"])),
            ("Prices, SHA-256", code(of["prices_sha256"])),
        )
    )
    if of["prices"]:
        yield _prices(of["prices"], currency)


def _prices(prices: Mapping[str, Mapping[str, str]], currency: str) -> str:
    kinds: Iterable[str] = ("prompt", "completion", "cached", "reasoning")
    rows = [
        (shown(model), *(shown(of[kind]) if kind in of else "\N{EN DASH}" for kind in kinds))
        for model, of in sorted(prices.items())
    ]
    return table(f"Prices of a million tokens, in {currency}", ("model", *kinds), rows, classes="narrow")
