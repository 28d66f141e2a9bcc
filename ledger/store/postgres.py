"""What is Postgres' own: the transaction in few round trips, COPY, reads. Sessions: ``postgres_session.py``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal

import orjson
import psycopg
from psycopg.pq import TransactionStatus

from ledger.store.backend import (
    HEAD_SQL,
    KNOWN_COLUMNS,
    LARGEST_ID_SQL,
    NO_PARAMS,
    RECORD_COLUMNS,
    Opening,
    Params,
    Row,
    as_known,
    checked_head,
    head_row,
    insert_sql,
    possibly_known,
)
from ledger.store.changes import bulk_statement, columns_of, in_bulk, statement
from ledger.store.errors import (
    LedgerReadOnly,
)
from ledger.store.place import Dialect, Place
from ledger.store.postgres_session import (
    WRITER_SETTINGS,
    Connection,
    check_server,
    driver,
    make_engine,
    own_connection,
    pyformat,
    take_lock,
    translated,
)
from ledger.store.records import Checkpoint, Head, Known, Rows, Stream

_COPY_FROM: Final = 20
"""Rows from which COPY is quicker than pipelined INSERTs."""

_COPY_TYPES: Final = {
    "events": (
        *("int8", "text", "text", "int4", "text", "int8", "text", "int8", "timestamptz", "text", "text", "text"),
        "bytea",
    ),
    "contents": ("int8", "bytea", "text", "text"),
}
_RECORDED_AT: Final = RECORD_COLUMNS["events"].index("recorded_at")
_STREAM_ROWS: Final = 2000
_KNOWN_SQL: Final = f"""
SELECT {KNOWN_COLUMNS} FROM events AS e
LEFT JOIN contents AS c ON c.position = e.position LEFT JOIN redactions AS r ON r.position = e.position
WHERE e.event_id = ANY(%s)
"""  # noqa: S608 - our own columns
# One descent of an index a stream.
_RUN_VERSIONS_SQL: Final = """
SELECT asked.run_id, (
  SELECT e.run_version FROM events AS e WHERE e.run_id = asked.run_id ORDER BY e.run_version DESC LIMIT 1
)
FROM unnest(%s::text[]) AS asked (run_id)
"""
_REQUEST_VERSIONS_SQL: Final = """
SELECT asked.run_id, asked.request_id, (
  SELECT e.request_version FROM events AS e WHERE e.run_id = asked.run_id AND e.request_id = asked.request_id
  ORDER BY e.request_version DESC LIMIT 1
)
FROM unnest(%s::text[], %s::text[]) AS asked (run_id, request_id)
"""
_MOVE_HEAD_SQL: Final = (
    "UPDATE ledger_head SET size = %s, root = %s, frontier = %s, recorded_at = %s::timestamptz WHERE id = 1"
)
_TABLES_SQL: Final = """
SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')
"""


class PostgresBackend:
    """An open Postgres ledger: one connection that writes, a pool of those that read."""

    dialect: Final[Dialect] = "postgresql"
    payload_column = "payload"

    def __init__(self, place: Place, *, writes: bool) -> None:
        self.place = place
        self.engine = make_engine(place)
        self._writes = writes
        self._writer: Connection | None = None
        self._lock = threading.RLock()

    def exclusive(self) -> AbstractContextManager[object]:
        return self._lock

    def translated(self) -> AbstractContextManager[None]:
        return translated(self.place)

    def tables(self) -> set[str]:
        return {row[0] for row in self.fetch(_TABLES_SQL)}

    def ready(self) -> None:
        _ = self.connection

    # --- the transaction -------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """The writing connection. Raises ``LedgerReadOnly`` where the ledger is open for reading."""
        if not self._writes:
            raise LedgerReadOnly(f"{self.place.shown} is open for reading")
        if self._writer is None:
            owned = own_connection(self.engine, self.place)
            with translated(self.place):
                owned.execute(WRITER_SETTINGS)
            self._writer = owned
        return self._writer

    def begin(self, event_ids: Sequence[str], streams: Sequence[Stream]) -> Opening:
        connection = self.connection
        with translated(self.place), connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            head = connection.execute(HEAD_SQL + " FOR UPDATE", prepare=True)
            # A statement of its own: inside the one that waits for the lock, the clock would be
            # read before the wait.
            clock = connection.execute("SELECT clock_timestamp()", prepare=True)
            last = connection.execute(LARGEST_ID_SQL, prepare=True)
            versions = self._ask_versions(connection, streams)
        row, now, largest = head.fetchone(), clock.fetchone(), last.fetchone()
        assert now is not None
        assert largest is not None
        known = self._known(possibly_known(event_ids, largest[0]))
        return Opening(checked_head(row, self.place.shown), _moment(now[0]), known, _read_versions(versions))

    def _known(self, event_ids: Sequence[str]) -> dict[str, Known]:
        if not event_ids:
            return {}
        with translated(self.place):
            return as_known(self.connection.execute(_KNOWN_SQL, (event_ids,)).fetchall())

    def versions(self, streams: Sequence[Stream]) -> dict[Stream, int]:
        with translated(self.place):
            return _read_versions(self._ask_versions(self.connection, streams))

    def _ask_versions(self, connection: Connection, streams: Sequence[Stream]) -> list[psycopg.Cursor[Row]]:
        runs = [run_id for run_id, request_id in streams if request_id is None]
        requests = [(run_id, request_id) for run_id, request_id in streams if request_id is not None]
        asked = []
        if runs:
            asked.append(connection.execute(_RUN_VERSIONS_SQL, (runs,), prepare=True))
        if requests:
            columns = tuple(map(list, zip(*requests, strict=True)))
            asked.append(connection.execute(_REQUEST_VERSIONS_SQL, columns, prepare=True))
        return asked

    def erasable(self, positions: Sequence[int]) -> set[int]:
        sql = "SELECT position FROM contents WHERE position = ANY(%s)"
        with translated(self.place):
            return {row[0] for row in self.connection.execute(sql, (list(positions),))}

    def write(self, rows: Rows) -> None:
        with translated(self.place):
            self._copy_many(rows)
            with self.connection.pipeline(), self.connection.cursor() as cursor:
                _send(cursor, rows)

    def finish(self, rows: Rows, head: Head) -> None:
        # What COPY does not carry goes out in one breath, COMMIT and all: one wait for the server.
        with translated(self.place):
            self._copy_many(rows)
            with self.connection.pipeline(), self.connection.cursor() as cursor:
                _send(cursor, rows)
                cursor.execute(_MOVE_HEAD_SQL, (head.size, head.root, head.frontier, head.recorded_at), prepare=True)
                cursor.execute("COMMIT")

    def _copy_many(self, rows: Rows) -> None:
        for table, group in (("events", rows.events), ("contents", rows.contents)):
            if len(group) < _COPY_FROM:
                continue
            columns = ", ".join(RECORD_COLUMNS[table])
            # In the server's own form of each value, of which it has nothing to parse: a fifth quicker.
            sql = f"COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)"
            with self.connection.cursor() as cursor, cursor.copy(sql) as copy:
                copy.set_types(_COPY_TYPES[table])
                for row in map(_timed, group) if table == "events" else group:
                    copy.write_row(row)

    def write_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        with translated(self.place), self.connection.cursor() as cursor:
            cursor.executemany(insert_sql("checkpoints", "%s"), checkpoints)

    def write_head(self, head: Head) -> None:
        with translated(self.place):
            self.connection.execute(insert_sql("ledger_head", "%s"), head_row(head))

    def allow_idle(self) -> None:
        with translated(self.place):
            self.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

    def execute(self, sql: str, params: Params = NO_PARAMS) -> None:
        with translated(self.place):
            self.connection.execute(pyformat(sql), params)

    def commit(self) -> None:
        with translated(self.place):
            self.connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._writer is None:
            return
        if self._writer.info.transaction_status != TransactionStatus.IDLE:
            try:
                self._writer.execute("ROLLBACK")
            except psycopg.Error:
                self.reconnect()

    def reconnect(self) -> None:
        if self._writer is not None:
            with suppress(psycopg.Error):
                self._writer.close()
            self._writer = None

    # --- reads -----------------------------------------------------------------------------

    def fetch(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        with self._reader() as connection:
            return connection.execute(pyformat(sql), params).fetchall()

    def stream(self, sql: str, params: Params = NO_PARAMS) -> Iterator[Row]:
        with self._reader() as connection, connection.transaction(), connection.cursor(name="rows") as cursor:
            cursor.itersize = _STREAM_ROWS
            yield from cursor.execute(pyformat(sql), params)

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        with self._reader() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            try:
                yield _Snapshot(connection)
            finally:
                if not connection.closed:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _reader(self) -> Iterator[Connection]:
        with translated(self.place):
            pooled = self.engine.raw_connection()
            connection = driver(pooled)
            try:
                yield connection
            finally:
                if connection.closed:
                    pooled.invalidate()
                else:
                    pooled.close()

    # --- the rest --------------------------------------------------------------------------

    @contextmanager
    def driver_lock(self, run_id: str, holder: str) -> Iterator[None]:
        connection = own_connection(self.engine, self.place)
        try:
            with translated(self.place):
                take_lock(connection, run_id, holder)
            yield
        finally:
            # The end of the session frees the lock as well, but some time after ``close`` has returned.
            with suppress(psycopg.Error):
                connection.execute("SELECT pg_advisory_unlock_all()")
            connection.close()

    def erase_traces(self) -> None:
        """Nothing that a client could do: VACUUM, replicas and archives are the administrator's."""

    def close(self) -> None:
        self.reconnect()
        self.engine.dispose()


class _Snapshot:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        return self._connection.execute(pyformat(sql), params).fetchall()


@lru_cache(maxsize=8)
def _moment(text: str) -> datetime:
    """The same few come again and again: all events of a group were recorded at one time."""
    return datetime.fromisoformat(text)


def _timed(event: Row) -> Row:
    """An event's row with its time as the driver takes it in binary."""
    return (*event[:_RECORDED_AT], _moment(event[_RECORDED_AT]), *event[_RECORDED_AT + 1 :])


def _read_versions(cursors: Sequence[psycopg.Cursor[Row]]) -> dict[Stream, int]:
    found: dict[Stream, int] = {}
    for cursor in cursors:
        for row in cursor:
            run_id, request_id, version = row if len(row) == 3 else (row[0], None, row[1])
            found[run_id, request_id] = version or 0
    return found


def _send(cursor: psycopg.Cursor[Row], rows: Rows) -> None:
    """Send what COPY does not carry, without waiting for answers (within a pipeline)."""
    few = (("events", rows.events), ("contents", rows.contents))
    for table, group in (*((t, g) for t, g in few if len(g) < _COPY_FROM), ("tree_nodes", rows.nodes)):
        if group:
            cursor.executemany(insert_sql(table, "%s"), group)
    if rows.redactions:
        # One statement: what checks it takes an event's list of positions apart, once a statement.
        positions, events = map(list, zip(*rows.redactions, strict=True))
        named = "INSERT INTO redactions (position, event_position) SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
        cursor.execute(named, (positions, events))
        cursor.execute("DELETE FROM contents WHERE position = ANY(%s)", (positions,))
    for change, values in in_bulk(rows.changes):
        if change.kind == "delete":
            cursor.executemany(statement(change, "%s"), values)
            continue
        columns = columns_of(change)
        objects = [dict(zip(columns, row, strict=True)) for row in values]
        cursor.execute(bulk_statement(change), (orjson.dumps(objects).decode(),), prepare=True)


def open_backend(place: Place, mode: Literal["read", "write", "create"]) -> PostgresBackend:
    """Connect to a database without asking whether it is a ledger."""
    backend = PostgresBackend(place, writes=mode != "read")
    try:
        check_server(backend, place.shown)
    except BaseException:
        backend.close()
        raise
    return backend
