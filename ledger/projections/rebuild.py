"""The projection tables against a fresh fold of all events: compared, and put right where they differ.

``check`` only reads. ``rebuild`` then replaces each table that differs, in one transaction under
the lock of the head, so that nothing appended meanwhile is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from ledger.projections.scratch import TABLES, ProjectionTable, Row, Scratch
from ledger.store import Store, Transaction
from ledger.store.errors import LedgerBusy

MAX_DIFFERENCES: Final = 1000
_TRIES: Final = 8
_ROWS_AT_ONCE: Final = 2000

Kind = Literal["missing", "extra", "altered"]


class Difference(NamedTuple):
    """A row that is not what the events say.

    ``key``: the values of the table's primary key. ``columns``: those that differ, where altered.
    """

    table: str
    key: tuple[Any, ...]
    kind: Kind
    columns: tuple[str, ...] = ()


class RebuildResult(NamedTuple):
    """``size``: events folded. ``differences``: the first of them. ``replaced``: tables written anew."""

    size: int
    differences: list[Difference]
    replaced: tuple[str, ...]


def check(store: Store, limit: int = MAX_DIFFERENCES) -> list[Difference]:
    """Fold all events into a scratch database and compare: at most ``limit`` differences, none where all is well.

    Needs read access alone. Raises ``UnreadableEvent``, naming the position, for an event that
    cannot be folded, and ``LedgerBusy`` where the ledger grows faster than it can be compared.
    """
    with Scratch() as scratch:
        return _settled(store, scratch, limit)


def rebuild(store: Store, limit: int = MAX_DIFFERENCES) -> RebuildResult:
    """Compare as ``check`` does, and write every table that differs anew. Errors as for ``check``."""
    with Scratch() as scratch:
        # The long part, without the lock; what was appended meanwhile is folded under it.
        if not _settled(store, scratch, 1):
            return RebuildResult(scratch.size, [], ())
        with store.exclusively() as transaction:
            scratch.catch_up(store)
            differences: list[Difference] = []
            replaced = []
            for table in TABLES:
                found = list(islice(_compare(store, scratch, table), max(1, limit - len(differences))))
                if found:
                    differences += found
                    replaced.append(table.name)
                    _replace(transaction, scratch, table)
        return RebuildResult(scratch.size, differences[:limit], tuple(replaced))


def _settled(store: Store, scratch: Scratch, limit: int) -> list[Difference]:
    """Differences at a moment at which nothing was being appended."""
    for _ in range(_TRIES):
        scratch.catch_up(store)
        found = list(islice(_differences(store, scratch), limit))
        # The tables may have been read after a later append: then a difference means nothing yet.
        if not found or store.head().size == scratch.size:
            return found
    raise LedgerBusy(f"{store.shown}: events were appended faster than the tables could be compared: try again")


def _differences(store: Store, scratch: Scratch) -> Iterator[Difference]:
    for table in TABLES:
        yield from _compare(store, scratch, table)


def _compare(store: Store, scratch: Scratch, table: ProjectionTable) -> Iterator[Difference]:
    """Merge the rows that are there with those that should be, both in order of key."""
    stored, folded = store.rows(table.select), scratch.rows(table)
    there, due = next(stored, None), next(folded, None)
    while there is not None or due is not None:
        there_key, due_key = _key(table, there), _key(table, due)
        if due_key is None or (there_key is not None and _rank(there_key) < _rank(due_key)):
            yield Difference(table.name, there_key or (), "extra")
            there = next(stored, None)
        elif there_key is None or _rank(due_key) < _rank(there_key):
            yield Difference(table.name, due_key, "missing")
            due = next(folded, None)
        else:
            columns = _altered(table, there or (), due or ())
            if columns:
                yield Difference(table.name, due_key, "altered", columns)
            there, due = next(stored, None), next(folded, None)


def _key(table: ProjectionTable, row: Row | None) -> tuple[Any, ...] | None:
    return None if row is None else tuple(row[index] for index in table.key_at)


def _rank(key: tuple[Any, ...]) -> tuple[tuple[int, Any], ...]:
    """Keys in the order of SQLite, which lets a value of any type into a column: numbers, text, bytes.

    Postgres has text in the same order, as its columns are COLLATE "C".
    """
    return tuple((_TYPE_ORDER.get(type(value), 0), value if value is not None else 0) for value in key)


_TYPE_ORDER: Final = {int: 1, float: 1, str: 2, bytes: 3}


def _altered(table: ProjectionTable, there: Row, due: Row) -> tuple[str, ...]:
    # Python's True equals 1: flags are bools from Postgres and 0 and 1 from SQLite.
    return tuple(column for column, stored, folded in zip(table.columns, there, due, strict=True) if stored != folded)


def _replace(transaction: Transaction, scratch: Scratch, table: ProjectionTable) -> None:
    transaction.execute(f"DELETE FROM {table.name}")  # noqa: S608 - a table of ours
    rows = scratch.rows(table)
    while page := list(islice(rows, _ROWS_AT_ONCE)):
        transaction.change([table.insert(row) for row in page])
