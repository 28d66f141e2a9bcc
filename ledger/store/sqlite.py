"""What is SQLite's own: the transaction and reads. Opening files: ``sqlite_file.py``."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import orjson

from ledger.store.backend import (
    HEAD_SQL,
    KNOWN_COLUMNS,
    LARGEST_ID_SQL,
    NO_PARAMS,
    Opening,
    Params,
    Row,
    as_known,
    checked_head,
    head_row,
    insert_sql,
    possibly_known,
)
from ledger.store.changes import in_bulk, statement
from ledger.store.errors import (
    LedgerNotFound,
    LedgerReadOnly,
    LedgerUnreachable,
    NotKept,
)
from ledger.store.lock import file_lock, local_lock
from ledger.store.place import Dialect, Place
from ledger.store.records import Checkpoint, Head, Known, Rows, Stream
from ledger.store.sqlite_erase import erase_traces
from ledger.store.sqlite_file import open_for_reading, open_for_writing, prepare, translated

_STREAM_ROWS: Final = 1000

_KNOWN_SQL: Final = f"""
SELECT {KNOWN_COLUMNS} FROM json_each(?) AS asked CROSS JOIN events AS e ON e.event_id = asked.value
LEFT JOIN contents AS c ON c.position = e.position LEFT JOIN redactions AS r ON r.position = e.position
"""  # noqa: S608 - our own columns
_RUN_VERSIONS_SQL: Final = """
SELECT value, (SELECT max(run_version) FROM events WHERE run_id = value) FROM json_each(?)
"""
_REQUEST_VERSIONS_SQL: Final = """
SELECT value, (SELECT max(request_version) FROM events WHERE run_id = ? AND request_id = value) FROM json_each(?)
"""
_ERASABLE_SQL: Final = "SELECT c.position FROM json_each(?) AS j CROSS JOIN contents AS c ON c.position = j.value"
_MOVE_HEAD_SQL: Final = "UPDATE ledger_head SET size = ?, root = ?, frontier = ?, recorded_at = ? WHERE id = 1"


class SqliteBackend:
    """An open SQLite ledger. In memory there is one connection, for reads too, used under the lock."""

    dialect: Final[Dialect] = "sqlite"
    # Bytes: text that is not UTF-8 then spoils its own event alone.
    payload_column = "CAST(payload AS BLOB)"

    def __init__(self, place: Place, writer: sqlite3.Connection | None) -> None:
        self.place = place
        self._writer = writer
        self._lock = threading.RLock()
        self._idle: list[sqlite3.Connection] = []
        self._in_memory = place.path is None
        self._closed = False
        self._driven: dict[str, list[str]] = {}

    def exclusive(self) -> AbstractContextManager[object]:
        return self._lock

    def translated(self) -> AbstractContextManager[None]:
        return translated(self.place)

    def tables(self) -> set[str]:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        return {row[0] for row in self.fetch(sql)}

    def ready(self) -> None:
        prepare(self.connection, self.place)

    # --- the transaction -------------------------------------------------------------------

    @property
    def connection(self) -> sqlite3.Connection:
        """The writing connection. Raises ``LedgerReadOnly`` where the ledger is open for reading."""
        if self._writer is None:
            raise LedgerReadOnly(f"{self.place.shown} is open for reading")
        return self._writer

    def begin(self, event_ids: Sequence[str], streams: Sequence[Stream]) -> Opening:
        connection = self.connection
        with translated(self.place):
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(HEAD_SQL).fetchone()
            now = datetime.now(UTC)
            return Opening(checked_head(row, self.place.shown), now, self._known(event_ids), self.versions(streams))

    def _known(self, event_ids: Sequence[str]) -> dict[str, Known]:
        (largest,) = self.connection.execute(LARGEST_ID_SQL).fetchone()
        possible = possibly_known(event_ids, largest)
        return as_known(self.connection.execute(_KNOWN_SQL, (_json(possible),)).fetchall()) if possible else {}

    def versions(self, streams: Sequence[Stream]) -> dict[Stream, int]:
        requests: dict[str, list[str]] = {}
        runs = []
        for run_id, request_id in streams:
            if request_id is None:
                runs.append(run_id)
            else:
                requests.setdefault(run_id, []).append(request_id)
        found: dict[Stream, int] = {}
        with translated(self.place):
            for run_id, version in self.connection.execute(_RUN_VERSIONS_SQL, (_json(runs),)) if runs else ():
                found[run_id, None] = version or 0
            for run_id, asked in requests.items():
                for request_id, version in self.connection.execute(_REQUEST_VERSIONS_SQL, (run_id, _json(asked))):
                    found[run_id, request_id] = version or 0
        return found

    def erasable(self, positions: Sequence[int]) -> set[int]:
        with translated(self.place):
            return {row[0] for row in self.connection.execute(_ERASABLE_SQL, (_json(positions),))}

    def write(self, rows: Rows) -> None:
        with translated(self.place):
            self._insert("events", rows.events)
            self._insert("contents", rows.contents)
            self._insert("tree_nodes", rows.nodes)
            self._insert("redactions", rows.redactions)
            erased = [(position,) for position, _ in rows.redactions]
            self.connection.executemany("DELETE FROM contents WHERE position = ?", erased)
            for change, values in in_bulk(rows.changes):
                self.connection.executemany(statement(change, "?"), values)

    def write_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        with translated(self.place):
            self._insert("checkpoints", checkpoints)

    def write_head(self, head: Head) -> None:
        with translated(self.place):
            self._insert("ledger_head", [head_row(head)])

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            # Whatever is refused undoes the whole transaction anyway. Said so in the statement, SQLite need not
            # keep copies of pages by which to undo one row.
            sql = insert_sql(table, "?").replace("INSERT INTO", "INSERT OR ROLLBACK INTO")
            kept = self.connection.executemany(sql, rows).rowcount
            if kept != len(rows):  # a foreign trigger can leave a row out without an error
                raise NotKept(f"{self.place.shown}: the database did not keep what was written to {table}")

    def allow_idle(self) -> None:
        """Nothing to do: SQLite never ends a transaction by itself."""

    def execute(self, sql: str, params: Params = NO_PARAMS) -> None:
        with translated(self.place):
            self.connection.execute(sql, params)

    def finish(self, rows: Rows, head: Head) -> None:
        self.write(rows)
        with translated(self.place):
            moved = (head.size, head.root, head.frontier, head.recorded_at)
            self.connection.execute(_MOVE_HEAD_SQL, moved)
            self.connection.execute("COMMIT")

    def commit(self) -> None:
        with translated(self.place):
            self.connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._writer is not None and self._writer.in_transaction:
            with suppress(sqlite3.Error):  # a full disk may have rolled it back already
                self._writer.execute("ROLLBACK")

    def reconnect(self) -> None:
        raise LedgerUnreachable(f"{self.place.shown}: the connection is gone")

    # --- reads -----------------------------------------------------------------------------

    def fetch(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        with self._reader() as connection, translated(self.place):
            return connection.execute(sql, params).fetchall()

    def stream(self, sql: str, params: Params = NO_PARAMS) -> Iterator[Row]:
        if self._in_memory:  # the one connection cannot be left in the middle of a SELECT
            yield from self.fetch(sql, params)
            return
        with self._reader() as connection, translated(self.place), closing(connection.execute(sql, params)) as cursor:
            while rows := cursor.fetchmany(_STREAM_ROWS):
                yield from rows

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        with self._reader() as connection, translated(self.place):
            connection.execute("BEGIN")
            try:
                yield _Snapshot(connection)
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        if self._in_memory:
            with self._lock:
                yield self.connection
            return
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = open_for_reading(self.place)
        try:
            yield connection
        finally:
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)

    # --- the rest --------------------------------------------------------------------------

    def driver_lock(self, run_id: str, holder: str) -> AbstractContextManager[None]:
        if self.place.path is None:
            return local_lock(self._driven, run_id, holder)
        return file_lock(self.place.path.absolute(), run_id, holder)

    def erase_traces(self) -> Path | None:
        if self.place.path is None:
            return None
        with self._lock, translated(self.place):
            return erase_traces(self.connection, self.place.path)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            while self._idle:
                self._idle.pop().close()
            if self._writer is not None:
                self._writer.close()


class _Snapshot:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def fetch(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        return self._connection.execute(sql, params).fetchall()


def _json(value: object) -> str:
    return orjson.dumps(value).decode("utf-8")


def open_backend(place: Place, mode: Literal["read", "write", "create"]) -> SqliteBackend:
    """Open a database without asking whether it is a ledger. Its journal mode stays as it is."""
    if place.path is None and mode != "create":
        raise LedgerNotFound("a ledger in memory begins empty: there is none to open")
    if mode != "read":
        return SqliteBackend(place, open_for_writing(place, create=mode == "create"))
    backend = SqliteBackend(place, None)
    backend.tables()  # says now, rather than later, that it cannot be read
    return backend
