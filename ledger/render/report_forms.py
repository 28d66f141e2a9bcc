"""Every way to put a report into bytes, by format and version: those that need the report alone, and those
that show the run's identity, its incidents and the ledger's name beside it.

Each is given the report as it was made, so that a run is folded once; what else it needs is read as of the
report's own position, so that what is appended meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ledger.projections.identity import Identity, identity
from ledger.projections.incidents import Incident, incidents
from ledger.render import report_html, report_json, report_junit, report_md, report_text
from ledger.store import Store

Report = Mapping[str, Any]
Form = Callable[[Store, Report], Iterator[bytes]]


def _alone(render: Callable[[Report], bytes]) -> Form:
    return lambda store, made: iter([render(made)])


def _whole(render: Callable[[Report, Identity, Iterable[Incident], str], Iterable[bytes]]) -> Form:
    def form(store: Store, made: Report) -> Iterator[bytes]:
        run_id, position = made["run_id"], made["as_of"]["position"]
        who = identity(store, run_id, position)
        return iter(render(made, who, _read(store, run_id, position), store.head().origin))

    return form


def _read(store: Store, run_id: str, position: int) -> Iterator[Incident]:
    """The incidents; nothing is read before the first is asked for, and a rendering may ask for none."""
    yield from incidents(store, run_id, position)


FORMS: Final[Mapping[tuple[str, int], Form]] = {
    ("json", report_json.RENDERER_VERSION): _alone(report_json.render),
    ("text", 1): _alone(report_text.render_1),
    ("text", 2): _whole(lambda made, who, _incidents, origin: report_text.render_2(made, who, origin)),
    **{("html", version): form for version, form in report_html.RENDERERS.items()},
    ("md", report_md.RENDERER_VERSION): _whole(report_md.render),
    ("junit", report_junit.RENDERER_VERSION): _whole(report_junit.render),
}
"""By format and version. Versions stay for ever."""

NEWEST: Final = dict(sorted(FORMS))
"""The version that is used unless another is asked for."""


def render(store: Store, made: Report, form: str, version: int | None = None) -> Iterator[bytes]:
    """The report ``made`` of a run in the store, in that format. Raises ``KeyError`` for one that never was."""
    return FORMS[form, NEWEST[form] if version is None else version](store, made)
