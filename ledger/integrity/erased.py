"""Whose texts an erasure took: the runs and requests of the positions that its event names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ledger.integrity.verdict import MAX_SCOPES, Scope, printable
from ledger.store import Store

MAX_POSITIONS: Final = 1000
"""An event names no more; one that was made up may."""


def scopes_of(store: Store, positions: Iterable[int], before: int) -> tuple[tuple[Scope, ...], int]:
    """The first few, in order, with how many contents each, and how many more there are.

    Taken from the events at the positions, as far as they are there and stand before position ``before``.
    """
    wanted = sorted(position for position in positions if 0 < position < before)[:MAX_POSITIONS]
    if not wanted:
        return (), 0
    sql = f"""
        SELECT run_id, request_id, count(*) FROM events WHERE position IN ({", ".join(map(str, wanted))})
        GROUP BY run_id, request_id
    """  # noqa: S608 - numbers alone
    found = [
        Scope(printable(run_id), None if request_id is None else printable(request_id), count)
        for run_id, request_id, count in store.rows(sql)
    ]
    found.sort(key=lambda scope: (scope.run_id, scope.request_id or ""))
    return tuple(found[:MAX_SCOPES]), max(0, len(found) - MAX_SCOPES)
