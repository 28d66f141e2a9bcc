"""A report as one HTML page: no script, nothing loaded from anywhere, every value escaped.

Versions stay for ever: a report that was issued in one must come out with the same bytes years
later, so a page is changed by adding a version, a module of its own, never by editing one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ledger.projections.identity import identity
from ledger.projections.incidents import incidents
from ledger.render import report_html_1, report_html_2
from ledger.store import Store

Report = Mapping[str, Any]


def _version_1(_store: Store, report: Report) -> Iterator[bytes]:
    return iter([report_html_1.render(report)])


def _version_2(store: Store, report: Report) -> Iterator[bytes]:
    run_id, position = report["run_id"], report["as_of"]["position"]  # what is appended meanwhile changes nothing
    who, lines = identity(store, run_id, position), incidents(store, run_id, position)
    return report_html_2.render(report, who, lines, store.head().origin)


RENDERERS: Final[dict[int, Callable[[Store, Report], Iterator[bytes]]]] = {1: _version_1, 2: _version_2}
RENDERER_VERSION: Final = max(RENDERERS)


def render(store: Store, report: Report, version: int = RENDERER_VERSION) -> Iterator[bytes]:
    """The page of ``report``, one of the ledger in ``store``, as UTF-8 in pieces, in that version of the rendering.

    Raises ``KeyError`` for a version that never was.
    """
    return RENDERERS[version](store, report)
