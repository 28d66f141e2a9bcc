"""Every way to put grades into bytes, by format and version. What is read besides is as of their own position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ledger.projections.grades import each_grade
from ledger.render import grades_html, grades_junit, grades_md, grades_text, report_json
from ledger.store import Store

Grades = Mapping[str, Any]
Form = Callable[[Store, Grades], Iterator[bytes]]


def _alone(render: Callable[[Grades], bytes]) -> Form:
    return lambda store, made: iter([render(made)])


def _html(version: int) -> Form:
    return _alone(lambda made: grades_html.render(made, version))


def _junit(store: Store, made: Grades) -> Iterator[bytes]:
    return grades_junit.render(made, each_grade(store, made["run_id"], made["as_of"]["position"]))


FORMS: Final[Mapping[tuple[str, int], Form]] = {
    ("json", report_json.RENDERER_VERSION): _alone(report_json.render),
    ("text", grades_text.RENDERER_VERSION): _alone(grades_text.render),
    **{("html", version): _html(version) for version in grades_html.RENDERERS},
    ("md", grades_md.RENDERER_VERSION): _alone(grades_md.render),
    ("junit", grades_junit.RENDERER_VERSION): _junit,
}
"""By format and version. Versions stay for ever."""

NEWEST: Final = dict(sorted(FORMS))
"""The version that is used unless another is asked for."""


def render(store: Store, made: Grades, form: str, version: int | None = None) -> Iterator[bytes]:
    """The grades ``made`` of a run in the store, in that format. Raises ``KeyError`` for one that never was."""
    return FORMS[form, NEWEST[form] if version is None else version](store, made)
