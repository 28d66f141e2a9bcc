"""A slice of a ledger, some thousand positions in a row, read and verified by itself: in this process or another.

What comes out fits in a message: roots of blocks of 256 leaves, a few summaries, and what the events
make of the projection tables. ``walk.py`` joins slices in order of position, and looks at a slice that is
not whole row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ledger.events import AFTER_TERMINAL_TYPES, LEDGER_RUN_ID, TERMINAL_TYPES, Event
from ledger.integrity.bulk import Off, Page, block_roots, check_page
from ledger.integrity.merkle import FANOUT
from ledger.projections.collector import paused_collector
from ledger.projections.tally import Fold, Folding, Unusual
from ledger.store import Store
from ledger.store.records import EVENT_COLUMNS

SLICE: Final = 64 * FANOUT
FIRST_TYPE: Final = "LedgerCreated"
REDACTION_TYPE: Final = "ContentRedacted"
SPECIAL_TYPES: Final = frozenset({FIRST_TYPE, "KeyRotated", REDACTION_TYPE})

_PAGE: Final = FANOUT
_ROWS_SQL: Final = f"""
SELECT {", ".join(f"e.{column}" for column in EVENT_COLUMNS)}, c.salt, c.encoding, c.body, r.event_position
FROM events AS e
LEFT JOIN contents AS c ON c.position = e.position LEFT JOIN redactions AS r ON r.position = e.position
WHERE e.position > :at AND e.position <= :end ORDER BY e.position
"""  # noqa: S608 - our own columns


class RunSpan(NamedTuple):
    """A run's events in a slice: first and last version, dense between. ``open``: None where they do not tell."""

    first_version: int
    last_version: int
    open: bool | None


class Slice(NamedTuple):
    """Positions ``first`` to ``last``, every row of which is as it should be.

    ``roots``: of its blocks of 256 leaves; ``leaves``: what is left after them. ``events``: those that
    are looked at one by one: redactions, and those that name a key.
    """

    first: int
    last: int
    roots: list[bytes]
    leaves: list[bytes]
    first_time: str
    last_time: str
    runs: dict[str, RunSpan]
    events: list[Event]


class Checked(NamedTuple):
    """``whole``: None where a row must be looked at by itself. ``fold``: None where the events are unusual."""

    whole: Slice | None
    fold: Fold | None


def check_slice(store: Store, origin: str, first: int, last: int, key: bytes | None) -> Checked:
    """Read positions ``first`` to ``last`` and verify them. ``key``: None leaves the projections out.

    Raises ``LedgerError`` where they cannot be read.
    """
    reading = _Reading(origin, first, key)
    with paused_collector():
        for at in range(first - 1, last, _PAGE):
            rows = list(store.rows(_ROWS_SQL, {"at": at, "end": min(at + _PAGE, last)}))
            if not reading.take(rows, min(_PAGE, last - at)):
                return Checked(None, None)
    return reading.done(last)


class _Reading:
    def __init__(self, origin: str, first: int, key: bytes | None) -> None:
        self._origin, self._first = origin, first
        self._next = first
        self._folding = None if key is None else Folding(key)
        self._roots: list[bytes] = []
        self._leaves: list[bytes] = []
        self._first_time = self._last_time = ""
        self._runs: dict[str, RunSpan] = {}
        self._events: list[Event] = []

    def take(self, rows: Sequence[tuple[Any, ...]], due: int) -> bool:
        """The next page; False where it is not whole."""
        try:
            if len(rows) != due:
                raise Off
            page = check_page(rows, self._next, self._origin)
            self._follow(page)
        except Off:
            return False
        self._next += due
        if due == FANOUT:
            self._roots += block_roots(page.leaves)
        else:
            self._leaves += page.leaves
        if self._folding is not None:
            try:
                self._folding.take(page.events())
            except Unusual:
                self._folding = None
        return True

    def done(self, last: int) -> Checked:
        spans = (self._first_time, self._last_time, self._runs, self._events)
        whole = Slice(self._first, last, self._roots, self._leaves, *spans)
        return Checked(whole, None if self._folding is None else self._folding.done())

    def _follow(self, page: Page) -> None:
        if page.times[0] < self._last_time:
            raise Off
        self._first_time, self._last_time = self._first_time or page.times[0], page.times[-1]
        if (self._next == 1) != (page.types[0] == FIRST_TYPE) or FIRST_TYPE in page.types[1:]:
            raise Off
        if page.run_ids.count(page.run_ids[0]) == len(page.run_ids):
            self._follow_run(page.run_ids[0], list(page.run_versions), page.types)
        else:
            for run_id, version, type_ in zip(page.run_ids, page.run_versions, page.types, strict=True):
                self._follow_run(run_id, [version], (type_,))
        if not SPECIAL_TYPES.isdisjoint(page.types):
            special = [event for event in page.events() if event.type in SPECIAL_TYPES]
            if any(event.run_id != LEDGER_RUN_ID for event in special):
                raise Off
            self._events += special

    def _follow_run(self, run_id: str, versions: list[int], types: Sequence[str]) -> None:
        known = self._runs.get(run_id)
        first = versions[0] if known is None else known.last_version + 1
        if versions != list(range(first, first + len(versions))):
            raise Off
        opened = None if known is None else known.open
        if run_id != LEDGER_RUN_ID:
            telling = next((type_ for type_ in reversed(types) if type_ not in AFTER_TERMINAL_TYPES), None)
            opened = opened if telling is None else telling not in TERMINAL_TYPES
        self._runs[run_id] = RunSpan(first if known is None else known.first_version, versions[-1], opened)
