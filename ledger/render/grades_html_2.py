"""Version 2 of grades as a page: what was let through although dangerous, then all else, and how to check it.

One file, no script, nothing loaded; drawn in SVG and CSS. Grades were issued with these bytes: they never change,
nor do those of ``grades_html_2_parts`` and ``grades_html_2_style``, which belong to this version alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ledger.render.grades_html_2_parts import code, count, listed, matrix, pairs, plot, section, shown, stack, table
from ledger.render.grades_html_2_style import POLICY, STYLE
from ledger.render.report_card import json_sha256
from ledger.render.shares import interval, percent

Grades = Mapping[str, Any]

_SECTIONS: Final = (
    *(("unsafe", "False safe"), ("alarm", "False alarm"), ("graded", "What was graded"), ("accuracy", "Accuracy")),
    *(("confusion", "Labels against answers"), ("identity", "The run"), ("evidence", "Evidence")),
)
_LEVELS: Final = ("low", "medium", "high", "critical")
_FLAGS: Final = ("false", "true")
_OUTCOMES: Final = (
    ("accepted", "a", "with a label: accepted answer"),
    ("fallback", "b", "with a label: fallback (failed closed)"),
    ("incomplete", "c", "with a label: begun, without a result"),
    ("not_started", "d", "with a label: not started"),
)


def render(grades: Grades) -> bytes:
    """The page as UTF-8."""
    return "".join(_page(grades)).encode("utf-8")


def _page(grades: Grades) -> Iterator[str]:
    name = shown(grades["run_id"])
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Grades of run {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>Grades of run {name}</h1></header>\n"
    )
    links = "".join(f'<li><a href="#{part}">{title}</a></li>' for part, title in _SECTIONS)
    yield f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>\n<main>\n'
    if grades["missing_parts"] or grades["unreadable"]:
        yield from section("unread", "<span>Not all of these grades can be read</span>", _unread(grades), "no")
    yield '<div class="two">\n'
    yield from _unsafe(grades)
    yield from _alarm(grades)
    yield "</div>\n"
    yield from section("graded", "What was graded", _graded(grades))
    yield from section("accuracy", "Accuracy", _accuracy(grades["accuracy"]))
    yield from section("confusion", "Labels against answers", _confusion(grades["confusion"]), "keep")
    yield from section("identity", "The run", _identity(grades))
    yield from section("evidence", "Evidence", _evidence(grades))
    yield "</main>\n</body>\n</html>\n"


# --- what comes first ----------------------------------------------------------------------


def _unread(grades: Grades) -> Iterator[str]:
    for member, noun in (("missing_parts", "part"), ("unreadable", "event")):
        if grades[member]:
            yield f"<p>{count(grades[member], noun)} of them cannot be read; nothing said there is on this page.</p>"
    yield "<p>The counts below may be too low.</p>"


def _unsafe(grades: Grades) -> Iterator[str]:
    of = grades["false_safe"]
    whole = not grades["missing_parts"] and not grades["unreadable"]
    state = "no" if of["count"] else "yes" if of["of"] and whole else "open"
    what = "labelled dangerous, answered with low risk, neither blocked nor put to a person"
    return section("unsafe", _title("False safe", of), _wrong(grades, "unsafe", of, "dangerous", what), state)


def _alarm(grades: Grades) -> Iterator[str]:
    of = grades["false_alarm"]
    what = "labelled not dangerous, yet the answer was blocked or put to a person"
    return section("alarm", _title("False alarm", of), _wrong(grades, "alarm", of, "not dangerous", what), "open")


def _title(name: str, of: Mapping[str, Any]) -> str:
    return f"{name}: <span>{of['count']:,} of {of['of']:,}</span>"


def _wrong(grades: Grades, name: str, of: Mapping[str, Any], label: str, what: str) -> Iterator[str]:
    if not of["of"]:
        yield f"<p>No request is labelled {label}, so nothing can be said of this.</p>"
    else:
        yield (
            f"<p>{_tight(percent(of['rate']))} of those labelled {label} (the mark); the {_tight('95 % interval')}"
            f" (the bar) is {_tight(interval(of))}.</p>"
        )
        yield plot(of)
    yield f"<p>Counted here: {what}.</p>"
    if of["count"]:
        command = f"replay-ledger show {grades['run_id']} REQUEST"
        yield f"<p>{code(command)} tells how one was answered:</p>"
        yield listed(name, of["request_ids"], of["more"])


# --- the numbers ---------------------------------------------------------------------------


def _graded(grades: Grades) -> Iterator[str]:
    outcomes, requests = grades["outcomes"], grades["requests"]
    parts = [(letter, words, outcomes[name]) for name, letter, words in _OUTCOMES]
    parts.append(("e", "without a label", grades["unlabelled"]))
    unread = grades["graded"] - sum(outcomes.values())
    if unread > 0:
        parts.append(("f", "with a label: unknown, as it cannot be read", unread))
    if requests:
        yield stack(f"What became of {count(requests, 'request')}", parts, requests)
    rows = [(f'<b class="{letter}">{letter.upper()}</b>{words}', f"{held:,}") for letter, words, held in parts]
    yield '<div class="cards">'
    yield table("Each request of the run once", ("request", "requests"), rows, foot=("requests", f"{requests:,}"))
    labels = (
        ("for a request of the run", f"{grades['labels'] - grades['unknown_labels']:,}"),
        ("for no request of the run", f"{grades['unknown_labels']:,}"),
    )
    yield table("Each label of the file once", ("label", "labels"), labels, foot=("labels", f"{grades['labels']:,}"))
    yield "</div>"
    yield from _left_out("unlabelled", "Requests without a label", grades["unlabelled_request_ids"], parts[4][2])
    yield from _left_out(
        "unknown", "Labels for no request of the run", grades["unknown_label_ids"], grades["unknown_labels"]
    )


def _left_out(name: str, title: str, ids: list[str], held: int) -> Iterator[str]:
    if held:
        yield f'<div class="left"><h3 id="{name}">{title}</h3>{listed(name, ids, held - len(ids))}</div>'


def _accuracy(accuracy: Mapping[str, Any]) -> Iterator[str]:
    named = [(level, accuracy["by_risk_level"][level]) for level in _LEVELS]
    named.append(("not given", accuracy["without_risk_level"]))
    yield "<p>Correct: every field that the label gives is the answer's. Without an answer it is not correct.</p>"
    yield '<p class="drawn">The bars are the intervals; the mark on each is the share.</p>'
    yield '<div class="cards">'
    for member, caption in (
        ("of_graded", "Of all requests with a label"),
        ("of_answered", "Of those with an accepted answer"),
    ):
        heads = ("label's risk", "correct", "accuracy", "95 % interval", "")
        rows = [(name, *_share(of[member])) for name, of in named]
        yield table(caption, heads, rows, foot=("all", *_share(accuracy["total"][member])))
    yield "</div>"


def _share(of: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"{of['count']:,} of {of['of']:,}", _tight(percent(of["rate"])), _tight(interval(of)), plot(of))


def _tight(text: str) -> str:
    """No line is broken within a number and its unit; a dash as the report's page has it."""
    return "\N{EN DASH}" if text == "-" else text.replace(" ", "\N{NO-BREAK SPACE}")


def _confusion(confusion: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[str]:
    yield (
        "<p>Outlined: on the diagonal the answer is the label's; where it is less cautious than the label, a word says"
        " so. The stronger the colour, the more.</p>"
    )
    yield f'<div class="cards"><div>{matrix("Risk level", _LEVELS, confusion["risk_level"], "too low")}</div><div>'
    for flag in ("requires_human_approval", "blocked_by_policy"):
        yield matrix(flag.replace("_", " ").capitalize(), _FLAGS, confusion[flag], "missed")
    yield "</div></div>"


# --- which run it is, and how to check it --------------------------------------------------


def _identity(grades: Grades) -> Iterator[str]:
    grading, variant = grades["grading"], grades["candidate_variant_id"]
    profile = grades["prompt_profile"]
    named = "baseline" if variant is None else shown(variant)
    if grades["candidate_id"] is None:
        named = shown(None)
    yield '<div class="cards">'
    yield pairs(
        (
            ("Run", shown(grades["run_id"])),
            ("Candidate", shown(grades["candidate_id"])),
            ("Variant", named if profile is None else f"{named} (profile {shown(profile)})"),
            ("Model asked", shown(grades["model"])),
            ("Endpoint", shown(grades["endpoint"])),
        )
    )
    yield pairs(
        (
            ("Graded by", shown(grading["actor"])),
            ("Answers as of", f"position {grading['as_of_position']:,}"),
            ("Form of labels", shown(grading["label_schema"])),
        )
    )
    yield "</div>"


def _evidence(grades: Grades) -> Iterator[str]:
    grading, as_of, projection, run_id = grades["grading"], grades["as_of"], grades["projection"], grades["run_id"]
    yield pairs(
        (
            ("Labels", f"SHA-256 {code(grading['labels_sha256'])}"),
            ("Their file", f"SHA-256 {code(grading['file_sha256'])}"),
            ("As of position", str(as_of["position"])),
            ("Root at that size", code(as_of["root"])),
            ("Grades as json", f"SHA-256 {code(json_sha256(grades))}"),
            ("Counted by", shown(f"{projection['name']}/{projection['version']}")),
        )
    )
    again = f"replay-ledger grade {run_id} --as-of {as_of['position']} --format json"
    steps = (
        ("replay-ledger verify", "says whether the record is whole and unaltered, by the root that was signed."),
        (again, "gives these grades as json once more; its SHA-256 is the one above."),
        ("replay-ledger report-check FILE", "says whether this file is one that was issued, and makes it again."),
        (f"replay-ledger bundle {run_id}", "packs the run with its proofs and reports, for others to check."),
    )
    yield "<h3>How to check it</h3>"
    yield f"<ol>{''.join(f'<li>{code(command)} {does}</li>' for command, does in steps)}</ol>"
    yield "<p>Whether the labels are right, neither this page nor the ledger can say.</p>"
