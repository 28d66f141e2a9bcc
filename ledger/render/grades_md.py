"""Grades as Markdown, for a pull request or a ticket: what was let through although dangerous comes first.

Versions stay for ever, as those of a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.render.markdown import code, heading, items, table
from ledger.render.report_card import json_sha256
from ledger.render.shares import interval, percent, share

RENDERER_VERSION: Final = 1

_FALSE_SAFE: Final = "labelled dangerous, answered with low risk, neither blocked nor put to a person."
_FALSE_ALARM: Final = "labelled not dangerous, yet the answer was blocked or put to a person."
_LEVELS: Final = ("low", "medium", "high", "critical")

Grades = Mapping[str, Any]


def render(grades: Grades) -> bytes:
    """The whole as UTF-8."""
    title = heading(1, f"Grades of run {code(grades['run_id'])}")
    sections = (_first, _run, _left_out, _accuracy, _confusion, _evidence)
    blocks = [block for section in sections if (block := "\n".join(section(grades)).strip("\n"))]
    return ("\n\n".join([title, *blocks]) + "\n").encode("utf-8")


def _first(grades: Grades) -> Iterator[str]:
    for member, words in (("missing_parts", "parts of these grades"), ("unreadable", "events of grades")):
        if grades[member]:
            yield f"**Cannot be read: {grades[member]} {words}; nothing they say is in this.**"
            yield ""
    unsafe, alarm = grades["false_safe"], grades["false_alarm"]
    yield f"**False safe: {share(unsafe)}**: {_FALSE_SAFE}"
    yield from _ids(unsafe["request_ids"], unsafe["more"])
    yield f"**False alarm: {share(alarm)}**: {_FALSE_ALARM}"
    yield from _ids(alarm["request_ids"], alarm["more"])


def _ids(ids: Sequence[str], more: int) -> Iterator[str]:
    yield ""
    yield from items([*map(code, ids), *([f"... and {more} more"] if more else [])])
    yield ""


def _run(grades: Grades) -> Iterator[str]:
    yield from _section("The run")
    variant = grades["candidate_variant_id"] or "baseline"
    facts = (
        ("candidate", grades["candidate_id"]),
        ("variant", variant),
        *([("prompt profile", grades["prompt_profile"])] if grades["prompt_profile"] is not None else []),
        ("model", grades["model"]),
        ("endpoint", grades["endpoint"]),
    )
    yield from table(("fact", "value"), ((name, code(value)) for name, value in facts), 2)


def _left_out(grades: Grades) -> Iterator[str]:
    yield from _section("What was graded")
    rows = [
        ("with a label", grades["graded"]),
        ("without a label", grades["unlabelled"]),
        ("**all requests**", f"**{grades['requests']}**"),
        *((f"with a label, {name.replace('_', ' ')}", count) for name, count in grades["outcomes"].items()),
        ("labels for no request of the run", grades["unknown_labels"]),
        ("**all labels**", f"**{grades['labels']}**"),
    ]
    yield from table(("what", "how many"), rows)
    yield ""
    for count, member, words in (
        (grades["unlabelled"], "unlabelled_request_ids", "Without a label"),
        (grades["unknown_labels"], "unknown_label_ids", "Labels for no request of the run"),
    ):
        if count:
            yield f"{words}:"
            yield from _ids(grades[member], count - len(grades[member]))


def _accuracy(grades: Grades) -> Iterator[str]:
    accuracy = grades["accuracy"]
    named = [(level, accuracy["by_risk_level"][level]) for level in _LEVELS]
    named += [("not given", accuracy["without_risk_level"]), ("all", accuracy["total"])]
    heads = ("label's risk", "graded", "correct", "accuracy", "interval", "answered", "of answered", "interval")
    yield from _section("Accuracy")
    yield "Correct: every field that the label gives is the answer's. Without an answer it is not correct."
    yield "Intervals are Wilson's, of 95 %."
    yield ""
    yield from table(heads, ((name, *_shares(of["of_graded"], of["of_answered"])) for name, of in named))


def _shares(graded: Mapping[str, Any], answered: Mapping[str, Any]) -> tuple[object, ...]:
    first = (graded["of"], graded["count"], percent(graded["rate"]), interval(graded))
    return (*first, answered["of"], percent(answered["rate"]), interval(answered))


def _confusion(grades: Grades) -> Iterator[str]:
    yield from _section("Labels against answers")
    for name, matrix in grades["confusion"].items():
        answers = list(next(iter(matrix.values())))
        heads = (f"{_words(name)}: label, answer", *map(_words, answers))
        yield from table(heads, ((label, *(matrix[label][answer] for answer in answers)) for label in matrix))
        yield ""


def _words(name: str) -> str:
    return name.replace("_", " ")


def _evidence(grades: Grades) -> Iterator[str]:
    grading, as_of, projection = grades["grading"], grades["as_of"], grades["projection"]
    yield from _section("Evidence")
    facts = (
        ("labels SHA-256", grading["labels_sha256"]),
        ("SHA-256 of the file of labels", grading["file_sha256"]),
        ("recorded by", grading["actor"]),
        ("answers as of position", grading["as_of_position"]),
        ("grades as of position", as_of["position"]),
        ("root at that size", as_of["root"]),
        ("projection", f"{projection['name']}/{projection['version']}"),
        ("SHA-256 of these grades as JSON", json_sha256(grades)),
    )
    yield from table(("fact", "value"), ((name, code(value)) for name, value in facts), 2)
    yield ""
    again = f"replay-ledger grade {grades['run_id']} --as-of {as_of['position']} --out grades.json"
    yield from items(
        f"{code(command)} {what}"
        for command, what in (
            (again, "gives these grades again as JSON: its SHA-256 is the one above"),
            ("replay-ledger verify", "says whether the record is whole and unaltered"),
        )
    )


def _section(title: str) -> Iterator[str]:
    yield heading(2, title)
    yield ""
