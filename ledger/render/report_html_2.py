"""Version 2 of a report as a page: what it comes to, how that came about, each incident, how to check it all.

One file, no script, nothing loaded; drawn in SVG and CSS. It holds facts of payloads alone, so it keeps its
bytes when content is erased. Reports were issued with these bytes: they never change, nor do those of
``report_html_2_parts``, ``_style``, ``_figures`` and ``_incidents``, which belong to this version alone,
nor those of ``durations``, which it shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from ledger.integrity.canonical import CanonicalError
from ledger.projections.identity import Identity, Place
from ledger.projections.incidents import Incident
from ledger.render import report_html_2_figures as figures
from ledger.render import report_json
from ledger.render.report_html_2_incidents import Incidents
from ledger.render.report_html_2_parts import between, code, count, items, named, number, pairs, plain, section, shown
from ledger.render.report_html_2_style import POLICY, STYLE

Report = Mapping[str, Any]

_SECTIONS: Final = (
    *(("verdict", "Usable?"), ("identity", "The run"), ("outcomes", "Outcomes"), ("decisions", "Decisions")),
    *(("errors", "Errors"), ("time", "Time"), ("tokens", "Tokens"), ("facets", "Facets"), ("cost", "Cost")),
    *(("incidents", "Incidents"), ("evidence", "Evidence")),
)
_ENDS: Final = {
    "completed": "completed",
    "blocked": "blocked before any call",
    "abandoned": "abandoned",
    "auth_error": "stopped: the endpoint refused the key",
    "incomplete": "has not ended",
}
_WHY: Final = (
    ("fallback_records", "without an answer that could be accepted"),
    ("leak_rejected", "refused for holding evaluation labels"),
    ("rejected", "refused as no valid request"),
    ("not_started", "never put to the model"),
    ("incomplete", "begun, without a result"),
)


def render(report: Report, who: Identity, incidents: Iterable[Incident], origin: str) -> Iterator[bytes]:
    """The page as UTF-8, in pieces. ``who`` and ``incidents`` are of the report's run, as of its position.

    ``origin``: the ledger's name. The incidents are taken once.
    """
    told = Incidents(incidents)
    yield "".join(_before(report, who, told)).encode()
    yield "".join(_incidents_head(report, told)).encode()
    yield from told.tables
    yield "".join(_after(report, origin)).encode()


def _before(report: Report, who: Identity, told: Incidents) -> Iterator[str]:
    name = shown(report["run_id"])
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Report of run {plain(report['run_id'])}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>Report of run {name}</h1></header>\n"
    )
    links = "".join(f'<li><a href="#{part}">{title}</a></li>' for part, title in _SECTIONS)
    yield f'<nav aria-label="Parts of this report"><ul>{links}</ul></nav>\n<main>\n'
    yield '<div class="two">\n'
    yield from _usable(report)
    yield from section("voucher", "What vouches for the record", _voucher(report))
    yield "</div>\n"
    yield from section("identity", "The run", _identity(report, who))
    yield from section("outcomes", "What became of the requests", figures.outcomes(report))
    yield from section("decisions", "Decisions", figures.decisions(report, told))
    yield from section("errors", "Errors, by frequency", figures.errors(report))
    yield from section("time", "Time", figures.time(report, told))
    yield from section("tokens", "Tokens", figures.tokens(report))
    yield from section("facets", "Facets", figures.facets(report))
    yield from section("cost", "Cost", figures.cost(report))


# --- what comes first ----------------------------------------------------------------------


def _usable(report: Report) -> Iterator[str]:
    if report["valid"]:
        requests = report["requests"]
        every = "The only request has" if requests == 1 else f"All {requests:,} requests have"
        why = f"<p>{every} an accepted answer, and none was refused.</p>"
        return section("verdict", "Usable as evaluation: <span>yes</span>", [why], "yes")
    why = f"<p>Because:</p>{items(_reasons(report))}"
    return section("verdict", "Usable as evaluation: <span>no</span>", [why], "no")


def _reasons(report: Report) -> Iterator[str]:
    if report["outcome"] != "completed":
        yield f"the run {_end(report)}" if report["outcome"] == "incomplete" else f"the run was {_end(report)}"
    if not report["requests"]:
        yield "there is no request in it"
    for member, what in _WHY:
        if report[member]:
            yield f"{count(report[member], 'request')} {what}"
    if report["unreadable"]:
        yield f"{count(report['unreadable'], 'event')} that cannot be read"


def _end(report: Report) -> str:
    return _ENDS.get(report["outcome"], shown(report["outcome"]))


def _voucher(report: Report) -> Iterator[str]:
    as_of = report["as_of"]
    yield pairs((("As of position", number(as_of["position"])), ("Root", code(as_of["root"]))))
    yield f"<p>Whether the record is whole, this page cannot say: {code('replay-ledger verify')} does.</p>"


def _identity(report: Report, who: Identity) -> Iterator[str]:
    yield '<div class="cards">'
    yield pairs(
        (
            ("Candidate", shown(who.candidate_id)),
            ("Variant", _variant(who)),
            ("Model asked", shown(who.model)),
            ("Models answered", _answered(report)),
            ("Endpoint", shown(who.endpoint)),
            ("Policies", items(map(shown, report["policy_ids"])) if report["policy_ids"] else "none named"),
            ("Settings", named(_without_prices(who.settings), "none given: the endpoint's own hold")),
            ("Prompts", f"version {shown(who.template_version)}, {_digest(who.template_sha256)}"),
            ("Leak rules", f"version {shown(who.leak_rules_version)}"),
        )
    )
    yield pairs(_story(report, who))
    yield "</div>"


def _story(report: Report, who: Identity) -> Iterator[tuple[str, str]]:
    yield "Run", shown(who.run_id)
    yield "State", _end(report)
    yield "Requests", _selection(who)
    yield "File", _digest(who.input_sha256)
    yield "Run by", shown(who.actor)
    if who.resumed_by:
        yield (
            "Taken up again",
            f"{count(len(who.resumed_by), 'time')}, by {shown(', '.join(sorted(set(who.resumed_by))))}",
        )
    if who.abandoned_by is not None:
        yield "Abandoned", f"by {shown(who.abandoned_by)}: {shown(who.abandoned_for)}"
    yield "Tags", named(who.tags, "none")
    yield "Program", f"replay-ledger {shown(who.software_version)}"
    yield "First event", _place(who.first)
    yield "Last event", _place(who.last)
    if who.first is not None and who.last is not None:
        yield "From first to last", between(who.first.recorded_at, who.last.recorded_at)


def _variant(who: Identity) -> str:
    if who.candidate_id is None:
        return shown(None)
    if who.candidate_variant_id is None:
        return "baseline"
    return f"{shown(who.candidate_variant_id)} (profile {shown(who.prompt_profile)})"


def _answered(report: Report) -> str:
    """By their own word; a reply that names no model is in none of these."""
    answered = sorted(report["models_answered"].items(), key=lambda item: (-item[1], item[0]))
    return items(f"{shown(model)}, {count(held, 'time')}" for model, held in answered) if answered else "none named"


def _without_prices(settings: Mapping[str, str | int | bool] | None) -> Mapping[str, str | int | bool] | None:
    """Prices stand with the cost."""
    if settings is None:
        return None
    return {
        name: value
        for name, value in settings.items()
        if ":" not in name and name not in ("prices_sha256", "prices_currency")
    }


def _selection(who: Identity) -> str:
    if who.lines is None or who.taken is None:
        return "unknown of how many lines: that the file was read to its end is not on record"
    if who.selection is None and who.taken == who.lines:
        return f"all {count(who.lines, 'line')} of the file"
    chosen = "" if who.selection is None else named(who.selection, "")
    return f"{number(who.taken)} of {count(who.lines, 'line')}{chosen}"


def _digest(sha256_hex: str | None) -> str:
    return shown(None) if sha256_hex is None else f"SHA-256 {code(sha256_hex)}"


def _place(place: Place | None) -> str:
    return shown(None) if place is None else f"position {number(place.position)}, {shown(place.recorded_at)}"


# --- the incidents and the evidence --------------------------------------------------------


def _incidents_head(report: Report, told: Incidents) -> Iterator[str]:
    yield '<section aria-labelledby="incidents">\n<h2 id="incidents">Incidents</h2>\n'
    if not told.number:
        yield "<p>None is on record.</p>\n"
        return
    command = f"replay-ledger show {report['run_id']} REQUEST"
    yield (
        f"<p>{count(told.number, 'line')} in the order of the file. {code(command)} shows a request's timeline, event"
        " by event: “events” are the positions of its first and of the one that gave its result. A refused line"
        " has one, and no timeline.</p>\n"
    )


def _after(report: Report, origin: str) -> Iterator[str]:
    yield "</section>\n"
    yield from section("evidence", "Evidence", _evidence(report, origin))
    yield "</main>\n</body>\n</html>\n"


def _json_digest(report: Report) -> str:
    try:
        return _digest(sha256(report_json.render(report)).hexdigest())
    except CanonicalError:  # a server may claim token counts whose sum JSON cannot hold exactly
        return "there is none: a number in it is larger than JSON can hold"


def _evidence(report: Report, origin: str) -> Iterator[str]:
    as_of, projection = report["as_of"], report["projection"]
    name = f"{projection['name']}/{projection['version']}"
    run_id = report["run_id"]
    again = f"replay-ledger report {run_id} --as-of {as_of['position']} --projection {name} --format json"
    yield pairs(
        (
            ("Ledger", code(origin)),
            ("As of position", str(as_of["position"])),
            ("Root at that size", code(as_of["root"])),
            ("Size", count(as_of["size"], "event")),
            ("Report as json", _json_digest(report)),
            ("Counted by", shown(name)),
        )
    )
    yield "<h3>How to check it</h3>"
    steps = (
        (code("replay-ledger verify"), "says whether the record is whole and unaltered, by the root that was signed."),
        (code(again), "gives the report as json once more; its SHA-256 is the one above."),
        (code("replay-ledger report-check FILE"), "says whether this file is one that was issued, and makes it again."),
        (code(f"replay-ledger bundle {run_id}"), "packs the run with its proofs and reports, for others to check."),
    )
    yield "<ol>" + "".join(f"<li>{command} {does}</li>" for command, does in steps) + "</ol>"
    yield (
        f"<p>Marked, as {shown(chr(0x202E))} is here: a character that acts or hides, as an escape. The same letters"
        " without the mark are letters.</p>"
    )
