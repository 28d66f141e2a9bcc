"""A scratch database into which a ledger is folded afresh: the projection tables and nothing else."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from sqlalchemy import Boolean, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable
from sqlmodel import SQLModel

from ledger.events import Event
from ledger.projections.tables import fold
from ledger.store import Store
from ledger.store.changes import Change, RowChange, in_bulk, statement
from ledger.store.errors import LedgerFull, LedgerMalformed
from ledger.tables import PROJECTION_TABLES

Row = tuple[Any, ...]

_EVENTS_AT_ONCE: Final = 2000
_PRAGMAS: Final = ("journal_mode = OFF", "synchronous = OFF", "cache_size = -32000", "temp_store = MEMORY")


class UnreadableEvent(LedgerMalformed):
    """An event that no fold can take: a rebuild stops at it."""

    exit_code = 1

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        super().__init__(f"event {position} cannot be read: {reason}")


class ProjectionTable:
    """Name, columns and key of a projection table, as the schema declares them."""

    def __init__(self, name: str) -> None:
        self.declared: Table = SQLModel.metadata.tables[name]
        self.name = name
        self.columns = tuple(column.name for column in self.declared.columns)
        self.key = tuple(column.name for column in self.declared.primary_key)
        self.key_at = tuple(self.columns.index(column) for column in self.key)
        self._flags = [index for index, column in enumerate(self.declared.columns) if isinstance(column.type, Boolean)]
        self.select = f"SELECT {', '.join(self.columns)} FROM {name} ORDER BY {', '.join(self.key)}"  # noqa: S608
        rest = tuple(column for column in self.columns if column not in self.key)
        self._insert = Change("insert", name, self.key, rest)
        self._order = [self.columns.index(column) for column in (*rest, *self.key)]

    def insert(self, row: Row) -> RowChange:
        """The change that makes a scratch row a row of the ledger's table, on either database."""
        values = list(row)
        for index in self._flags:
            values[index] = None if values[index] is None else bool(values[index])
        return self._insert, tuple(values[index] for index in self._order)


TABLES: Final = tuple(ProjectionTable(name) for name in PROJECTION_TABLES)


class Scratch:
    """All events up to ``size``, folded. A temporary file, gone at the end; memory stays bounded."""

    def __init__(self) -> None:
        self.size = 0
        self._folder = tempfile.TemporaryDirectory(prefix="replay-ledger-")
        self._database = sqlite3.connect(Path(self._folder.name, "scratch.db"), isolation_level=None)
        for pragma in _PRAGMAS:
            self._database.execute(f"PRAGMA {pragma}")
        for table in TABLES:
            self._database.execute(str(CreateTable(table.declared).compile(dialect=sqlite.dialect())))

    def catch_up(self, store: Store) -> None:
        """Fold what was appended since. Raises ``UnreadableEvent`` at an event that cannot be read."""
        end = store.head().size
        events = store.events(after=self.size, upto=end)
        while group := list(islice(events, _EVENTS_AT_ONCE)):
            for event in group:
                if not isinstance(event, Event):
                    raise UnreadableEvent(event.position, event.reason)
            self._apply(
                chain.from_iterable(fold(event) for event in group if isinstance(event, Event)), group[-1].position
            )
        self.size = end

    def _apply(self, changes: Iterable[RowChange], last: int) -> None:
        try:
            self._database.execute("BEGIN")
            for change, values in in_bulk(changes):
                self._database.executemany(statement(change, "?"), values)
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise LedgerFull(f"{self._folder.name}: no room for a fold of the ledger ({error})") from None
        except (sqlite3.IntegrityError, OverflowError) as error:
            # Rows that no writer appends: a request accepted twice, an attempt started twice.
            raise LedgerMalformed(f"the events up to position {last} contradict one another: {error}") from None

    def rows(self, table: ProjectionTable) -> Iterator[Row]:
        """The rows that the table should hold, by key, streamed. Flags are 0 and 1."""
        cursor = self._database.execute(table.select)
        while page := cursor.fetchmany(_EVENTS_AT_ONCE):
            yield from page

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._folder.cleanup()
