"""Giving a report out so that it can be shown later to be the one: a ``ReportIssued`` event for its bytes.

What may be issued is one table, ``RENDERINGS``: by kind, format and version of the rendering, so that a
report issued in an old version is made again with the same bytes. The same bytes are issued once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ledger.events import ReportIssued, new_event
from ledger.projections.grades import GradesFold, grades
from ledger.projections.projection import find_pass, resolve_as_of
from ledger.projections.report import ReportFold, report
from ledger.projections.results import ResultFold, results
from ledger.render import grades_forms, report_forms, results_csv, results_jsonl
from ledger.store import Store

AsOf = int | str | None
_REPORT: Final = f"{ReportFold.NAME}/{ReportFold.VERSION}"
_GRADES: Final = f"{GradesFold.NAME}/{GradesFold.VERSION}"
PROJECTIONS: Final = {_REPORT: report}
"""Every version of the report that there ever was, by its name: what makes it."""

_RESULTS: Final = f"{ResultFold.NAME}/{ResultFold.VERSION}"
_Render = Callable[[Store, str, AsOf], Iterator[bytes]]


class Rendering(NamedTuple):
    """One way to put a run into bytes, and all that must be known to do it again."""

    kind: str
    format: str
    projection: str
    version: int
    render: _Render


class Issued(NamedTuple):
    """Where a ``ReportIssued`` event stands, and what it says; ``new`` where it was appended just now."""

    position: int
    run_id: str
    kind: str
    format: str
    projection: str
    renderer_version: int
    as_of_position: int
    sha256: str
    new: bool = False


def _made(make: Callable[[Store, str, AsOf], dict[str, Any]], form: report_forms.Form) -> _Render:
    return lambda store, run_id, as_of: form(store, make(store, run_id, as_of))


def _of_results(
    render: Callable[[Iterable[dict[str, Any]]], Iterator[bytes]],
) -> _Render:
    return lambda store, run_id, as_of: render(results(store, run_id, as_of))


RENDERINGS: Final = (
    *(
        Rendering("report", form, projection, version, _made(make, render))
        for projection, make in PROJECTIONS.items()
        for (form, version), render in report_forms.FORMS.items()
    ),
    Rendering("results", "jsonl", _RESULTS, results_jsonl.RENDERER_VERSION, _of_results(results_jsonl.render)),
    Rendering("results", "csv", _RESULTS, results_csv.RENDERER_VERSION, _of_results(results_csv.render)),
    *(
        Rendering("grades", form, _GRADES, version, _made(grades, render))
        for (form, version), render in grades_forms.FORMS.items()
    ),
)


def rendering(kind: str, form: str, version: int | None = None, projection: str | None = None) -> Rendering:
    """The newest rendering of that kind and format, or that version of it. Raises ``KeyError`` where there is none."""
    found = [
        item
        for item in RENDERINGS
        if (item.kind, item.format) == (kind, form)
        and version in (None, item.version)
        and projection in (None, item.projection)
    ]
    if not found:
        raise KeyError(f"no rendering of {kind} as {form}")
    return max(found, key=lambda item: item.version)


_LAST_EVENT_SQL: Final = """
SELECT max(position) FROM events
WHERE run_id = :run_id AND position >= :first AND position <= :last AND type NOT IN ('ReportIssued', 'GradesRecorded')
"""


def last_consumed(store: Store, run_id: str, as_of: AsOf = None) -> int:
    """Position of the last event that a report of the run consumes: its ``as_of``. Errors as for ``report``."""
    of = find_pass(store, run_id, resolve_as_of(store, as_of))
    ((position,),) = store.rows(_LAST_EVENT_SQL, {"run_id": run_id, "first": of.first, "last": of.last})
    return int(position)


def issue(store: Store, run_id: str, of: Rendering, *, as_of_position: int, sha256: str, actor: str) -> Issued:
    """Record that the run's report in this rendering, with these bytes (``sha256`` in hex), was given out.

    Nothing is appended where that is on record already; the first such event is given then. Raises
    ``LedgerError``.
    """
    said = (of.kind, of.format, of.projection, of.version, as_of_position, sha256)
    for before in issued(store, sha256):
        if before[1:8] == (run_id, *said):
            return before
    payload = ReportIssued(
        kind=of.kind,
        format=of.format,
        projection=of.projection,
        renderer_version=of.version,
        as_of_position=as_of_position,
        sha256=sha256,
        actor=actor,
    )
    (receipt,) = store.append([new_event(payload, run_id=run_id)])
    return Issued(receipt.position, run_id, *said, new=True)


_ISSUED_SQL: Final = """
SELECT e.position, e.run_id, e.payload
FROM reports AS r JOIN events AS e ON e.position = r.position
WHERE r.sha256 = :sha256 AND e.type = 'ReportIssued' ORDER BY e.position
"""
_FACTS: Final = ("kind", "format", "projection", "renderer_version", "as_of_position", "sha256")


def issued(store: Store, sha256: str) -> list[Issued]:
    """Where these bytes were issued, of whatever run, oldest first: found by a table, told by the events."""
    found = []
    for position, run_id, text in store.rows(_ISSUED_SQL, {"sha256": sha256}):
        payload = json.loads(text)
        if payload.get("sha256") == sha256:
            found.append(Issued(position, run_id, *(payload[fact] for fact in _FACTS)))
    return found


_ERASED_SINCE_SQL: Final = """
SELECT count(*) FROM redactions AS r JOIN events AS e ON e.position = r.position
WHERE e.run_id = :run_id AND r.event_position > :position
"""


def erased_since(store: Store, report: Issued) -> int:
    """How many contents of the report's run were erased after it was issued."""
    ((count,),) = store.rows(_ERASED_SINCE_SQL, {"run_id": report.run_id, "position": report.position})
    return int(count)
