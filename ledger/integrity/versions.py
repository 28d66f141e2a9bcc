"""Versions: 1, 2, 3 ... within each run and each request, in order of position. Asked of the database."""

from __future__ import annotations

from typing import Final

from ledger.integrity.verdict import MAX_FINDINGS, Findings, Kind
from ledger.store import Store

RUN_VERSION: Final = "run_version"
REQUEST_VERSION: Final = "request_version"

_VERSIONS_SQL: Final = """
SELECT position, {version}, version_before, position_before FROM (
  SELECT position, {version},
    lag({version}) OVER stream AS version_before, lag(position) OVER stream AS position_before
  FROM events WHERE {version} IS NOT NULL AND position <= :upto
  WINDOW stream AS (PARTITION BY {stream} ORDER BY {version}, position)
) AS numbered
WHERE {version} <> coalesce(version_before, 0) + 1 OR position_before > position
ORDER BY position LIMIT {limit}
"""
_STREAMS: Final = {RUN_VERSION: "run_id", REQUEST_VERSION: "run_id, request_id"}


def check_versions(store: Store, found: Findings, version: str, upto: int) -> None:
    """The versions of one kind, of the events up to a position."""
    sql = _VERSIONS_SQL.format(version=version, stream=_STREAMS[version], limit=MAX_FINDINGS + 1)
    for position, number, before, position_before in store.rows(sql, {"upto": upto}):
        kind, text = _fault(number, before or 0, position_before is not None and position_before > position)
        found.add(position, version, kind, text)


def _fault(number: object, before: object, backwards: bool) -> tuple[Kind, str]:
    if not isinstance(number, int) or not isinstance(before, int):
        return "edited", "no version"
    if number > before + 1:
        return "removed", f"{number} follows {before} in its stream"
    if backwards:
        return "reordered", "stands before an event of a smaller version"
    return "inserted", f"{number} is there more than once, or is no version"
