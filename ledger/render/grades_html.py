"""Grades as one HTML page: what was let through although dangerous comes first. Versions stay for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.render import grades_html_2, page
from ledger.render.shares import interval, percent, share

Grades = Mapping[str, Any]

_LEVELS: Final = ("low", "medium", "high", "critical")

# --- version 1 ------------------------------------------------------------------------------


def _render_1(grades: Grades) -> bytes:
    sections = (_first_1, _run_1, _left_out_1, _accuracy_1, _confusion_1, _voucher_1)
    body = "".join(piece for section in sections for piece in section(grades))
    return (page.head(f"Grades of run {grades['run_id']}") + body + page.FOOT).encode("utf-8")


def _first_1(grades: Grades) -> Iterator[str]:
    unsafe, alarm = grades["false_safe"], grades["false_alarm"]
    yield page.first(f"False safe: {share(unsafe)}", bad=unsafe["count"] > 0)
    yield page.paragraph("Labelled dangerous, answered with low risk, neither blocked nor put to a person.")
    yield from _ids_1(unsafe["request_ids"], unsafe["more"])
    yield page.heading("False alarm")
    yield page.paragraph(f"{share(alarm)}: labelled not dangerous, yet the answer was blocked or put to a person.")
    yield from _ids_1(alarm["request_ids"], alarm["more"])


def _ids_1(request_ids: Sequence[str], more: int) -> Iterator[str]:
    if request_ids or more:
        yield page.items([*request_ids, *([f"... and {more} more"] if more else [])])


def _run_1(grades: Grades) -> Iterator[str]:
    yield page.heading("The run")
    yield page.pairs(
        ("Candidate", grades["candidate_id"]),
        ("Variant", grades["candidate_variant_id"] or "baseline"),
        ("Model", grades["model"]),
        ("Endpoint", grades["endpoint"]),
    )


def _left_out_1(grades: Grades) -> Iterator[str]:
    yield page.heading("What was graded")
    yield page.pairs(
        ("Requests", grades["requests"]),
        ("With a label", grades["graded"]),
        ("Without a label", grades["unlabelled"]),
        *((f"With a label, {name.replace('_', ' ')}", count) for name, count in grades["outcomes"].items()),
        ("Labels", grades["labels"]),
        ("Labels for no request of the run", grades["unknown_labels"]),
    )
    for name, what in (("unlabelled", "request_ids"), ("unknown_label", "ids")):
        named = grades[f"{name}_{what}"]
        count = grades["unlabelled" if name == "unlabelled" else "unknown_labels"]
        if count:
            words = "Requests without a label" if name == "unlabelled" else "Labels for no request of the run"
            yield page.heading(words, 3)
            yield from _ids_1(named, count - len(named))
    for member, words in (("missing_parts", "Parts of these grades"), ("unreadable", "Events of grades")):
        if grades[member]:
            yield page.first(f"{words} that cannot be read, and are not in this: {grades[member]}", bad=True)


def _accuracy_1(grades: Grades) -> Iterator[str]:
    accuracy = grades["accuracy"]
    named = [(level, accuracy["by_risk_level"][level]) for level in _LEVELS]
    named += [("not given", accuracy["without_risk_level"]), ("all", accuracy["total"])]
    heads = (
        "label's risk",
        "graded",
        "correct",
        "accuracy",
        "95 % interval",
        "answered",
        "of answered",
        "95 % interval",
    )
    yield page.heading("Accuracy")
    yield page.table(
        "Correct: every field that the label gives is the answer's. Without an answer it is not correct",
        heads,
        [(name, *_shares_1(of["of_graded"], of["of_answered"])) for name, of in named],
    )


def _shares_1(graded: Mapping[str, Any], answered: Mapping[str, Any]) -> tuple[object, ...]:
    first = (graded["of"], graded["count"], percent(graded["rate"]), interval(graded))
    return (*first, answered["of"], percent(answered["rate"]), interval(answered))


def _confusion_1(grades: Grades) -> Iterator[str]:
    yield page.heading("Labels against answers")
    for name, matrix in grades["confusion"].items():
        answers = list(next(iter(matrix.values())))
        rows = [(label, *(matrix[label][answer] for answer in answers)) for label in matrix]
        columns = ("label \\ answer", *(answer.replace("_", " ") for answer in answers))
        yield page.table(f"{name.replace('_', ' ')}: rows the label, columns the answer", columns, rows)


def _voucher_1(grades: Grades) -> Iterator[str]:
    grading, as_of = grades["grading"], grades["as_of"]
    yield page.heading("What vouches for this")
    yield page.pairs(
        ("Labels, SHA-256", grading["labels_sha256"]),
        ("Their file, SHA-256", grading["file_sha256"]),
        ("Recorded by", grading["actor"]),
        ("Answers as of position", grading["as_of_position"]),
        ("Grades as of position", as_of["position"]),
        ("Root at that size", as_of["root"]),
    )
    yield page.paragraph(
        "This says nothing of whether the record is whole, nor of whether the labels are right. "
        "replay-ledger verify says the first, and an audit bundle shows it to others."
    )


# --- all versions ---------------------------------------------------------------------------

RENDERERS: Final[dict[int, Callable[[Grades], bytes]]] = {1: _render_1, 2: grades_html_2.render}
RENDERER_VERSION: Final = max(RENDERERS)


def render(grades: Grades, version: int = RENDERER_VERSION) -> bytes:
    """The page as UTF-8, in that version of the rendering. Raises ``KeyError`` for one that never was."""
    return RENDERERS[version](grades)
