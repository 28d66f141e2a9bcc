"""What is derived from the log: are the projection tables, and the counts that runs ended with, what the events say?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from ledger.events import Counts
from ledger.integrity.pool import Slicer
from ledger.integrity.verdict import MAX_FINDINGS, Findings, printable
from ledger.projections import rebuild
from ledger.projections.counts import counts
from ledger.projections.projection import fold_all
from ledger.projections.report import ReportFold
from ledger.projections.tally import Fold, Tally, Uncounted, Unusual
from ledger.store import Store
from ledger.store.errors import LedgerBusy
from ledger.tables import PROJECTION_TABLES

_TRIES: Final = 3

_ENDS_SQL: Final = """
SELECT e.position, e.run_id, e.payload, r.ended_position
FROM events e LEFT JOIN runs r ON r.run_id = e.run_id
WHERE e.type IN ('RunCompleted', 'RunAbandoned') AND e.position <= :size
ORDER BY e.position
"""


class Derived:
    """Follows what the slices' events make of the tables, and compares at the end.

    Where the sums do not settle it, the tables are compared row by row, which names the rows.
    """

    def __init__(self, store: Store, key: bytes | None) -> None:
        self._store, self.key = store, key
        self._tally = None if key is None else Tally(key)
        self._agreed = False

    def take(self, fold: Fold | None) -> None:
        """The next slice's; None where its events are unusual."""
        try:
            if fold is None:
                raise Unusual
            if self._tally is not None:
                self._tally.join(fold)
        except Unusual:
            self._tally = None

    def doubt(self) -> None:
        """Something else about the events is wrong, on which the sums rely."""
        self._tally = None

    def add_up(self, slicer: Slicer, size: int) -> None:
        """Add up the tables as they are stored; ``size``: how many events were taken."""
        self._agreed = self._tally is not None and self._agree(self._tally, slicer, size)

    def check(self, found: Findings, unchecked: list[str]) -> None:
        """The tables, against all events; then the counts."""
        if self._tally is None or not self._agreed:
            _check_rows(self._store, found, unchecked)
            return
        for position, run_id, said in self._tally.uncounted:
            _compare(found, position, said, counts(self._store, run_id).model_dump())

    def check_counts(self, size: int, found: Findings) -> None:
        """The counts alone, of the runs that ended by position ``size``: the tables tell of later events too."""
        ends = _ends(self._store, size) if self._tally is None else self._tally.uncounted
        for position, run_id, said in ends:
            made = fold_all(ReportFold(run_id), self._store.events(run_id, upto=position)).finish(bytes(32))
            _compare(found, position, said, {name: made[name] for name in Counts.model_fields})

    def _agree(self, tally: Tally, slicer: Slicer, size: int) -> bool:
        """Do the sums over the stored rows and over what the events make of them agree?"""
        try:
            for _ in range(_TRIES):
                if tally.agrees(slicer.totals(PROJECTION_TABLES)):
                    return True
                # The tables may have been read after a later append: then a difference means nothing yet.
                now = self._store.head().size
                if now == size:
                    return False
                for part in slicer.parts(size, now):
                    if part.checked.fold is None:
                        return False
                    tally.join(part.checked.fold)
                size = now
        except Unusual:
            pass
        return False


def _check_rows(store: Store, found: Findings, unchecked: list[str]) -> None:
    try:
        differences = rebuild.check(store, MAX_FINDINGS + 1)
    except LedgerBusy:
        unchecked.append("the projection tables: events were appended faster than they could be compared")
        return
    for table, key, kind, columns in differences:
        row = ", ".join(printable(part) for part in key)
        detail = f" in {', '.join(columns)}" if columns else ""
        found.add(None, table, "projection altered", f"row ({row}): {kind}{detail}")
    if differences:
        return
    for position, run_id, payload, ended_position in store.rows(_ENDS_SQL, {"size": store.head().size}):
        if ended_position != position:
            unchecked.append(f"the counts at position {position}: run {printable(run_id)} went on after its end")
        else:
            _compare(found, position, orjson.loads(payload)["counts"], counts(store, run_id).model_dump())


def _ends(store: Store, size: int) -> Iterator[Uncounted]:
    for position, run_id, payload, _ in store.rows(_ENDS_SQL, {"size": size}):
        yield Uncounted(position, run_id, orjson.loads(payload)["counts"])


def _compare(found: Findings, position: int, said: Mapping[str, int], made: Mapping[str, Any]) -> None:
    if said != made:
        found.add(position, "payload", "edited", "the run's counts are not what its events add up to")
