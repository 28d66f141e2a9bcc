"""What is Postgres' own: sessions, the transaction with few round trips, COPY, and errors put in words."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, cast

import orjson
import psycopg
import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from sqlalchemy.pool import PoolProxiedConnection

from ledger.store.backend import (
    HEAD_SQL,
    KNOWN_COLUMNS,
    LOCK_SECONDS,
    NO_PARAMS,
    RECORD_COLUMNS,
    Opening,
    Params,
    Row,
    as_head,
    as_known,
    head_row,
    insert_sql,
)
from ledger.store.changes import bulk_statement, columns_of, in_bulk, statement
from ledger.store.errors import (
    ConnectionLost,
    LedgerBusy,
    LedgerError,
    LedgerFull,
    LedgerMalformed,
    LedgerNotFound,
    LedgerReadOnly,
    LedgerUnreachable,
    NotALedger,
    RunLocked,
    StatementRefused,
)
from ledger.store.lock import lock_key
from ledger.store.place import Dialect, Place
from ledger.store.records import Checkpoint, Head, Rows, Stream

OLDEST: Final = 150000
"""server_version of the oldest Postgres that is supported."""

APPLICATION: Final = "replay-ledger"
_COPY_FROM: Final = 20
"""Rows from which COPY is quicker than pipelined INSERTs."""

_STREAM_ROWS: Final = 2000
_CONNECT: Final = {
    "autocommit": True,  # transactions are begun and ended by our own statements
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,  # milliseconds; a peer that is gone is noticed
}
_SESSION: Final = """
SET TIME ZONE 'UTC'; SET datestyle = 'ISO'; SET client_min_messages = warning;
SET default_transaction_read_only = on
"""
# A writer only ever looks rows up by key. Plans made while the tables were tiny must not scan them
# once they are large, so every plan but look-ups is ruled out (and few are kept: ``_own_connection``).
# A plan that must scan all the same looks dear, so without ``jit = off`` it would be compiled first.
# Durability is not left to the role's settings, and a writer that hangs, or is cut off, does not hold the
# head for as long as others wait for it.
_WRITER: Final = f"""
RESET default_transaction_read_only;
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET enable_sort = off; SET enable_bitmapscan = off; SET jit = off;
SET lock_timeout = '{LOCK_SECONDS}s'; SET idle_in_transaction_session_timeout = '20s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""

_KNOWN_SQL: Final = f"""
SELECT {KNOWN_COLUMNS} FROM events AS e
LEFT JOIN contents AS c ON c.position = e.position LEFT JOIN redactions AS r ON r.position = e.position
WHERE e.event_id = ANY(%s)
"""  # noqa: S608 - our own columns
# One descent of an index a stream. These are kept prepared: with sorting and bitmaps ruled out, the
# index that gives the order is the only way, however small the table was at first.
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
_HOLDER_SQL: Final = """
SELECT coalesce(a.application_name, ''), a.pid FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = %s AND l.objid = %s AND l.objsubid = 1
"""

_TABLES_SQL: Final = """
SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')
"""

Connection = psycopg.Connection[tuple[Any, ...]]


class _UtcText(Loader):
    """TIMESTAMPTZ as RFC 3339 text, as it is on SQLite. The session's time zone is UTC."""

    def load(self, data: Buffer) -> str:
        moment, _, fraction = bytes(data).decode("ascii").removesuffix("+00").partition(".")
        return f"{moment[:10]}T{moment[11:]}.{fraction:0<6}Z"


def make_engine(place: Place) -> sa.Engine:
    """An engine whose connections read only until told otherwise. Raises ``NotALedger``."""
    try:
        url = sa.make_url(place.url)
        if "application_name" not in url.query:
            url = url.update_query_dict({"application_name": APPLICATION})
        engine = sa.create_engine(url, connect_args=dict(_CONNECT), pool_pre_ping=True, max_overflow=15)
    except (sa.exc.ArgumentError, ValueError):  # its text repeats the URL
        raise NotALedger(f"{place.shown}: not a Postgres URL") from None
    sa.event.listen(engine, "connect", _begin_session)
    return engine


def _begin_session(connection: Connection, _: object) -> None:
    connection.execute(_SESSION)
    connection.adapters.register_loader("timestamptz", _UtcText)


_BY_STATE: Final[dict[str, tuple[type[LedgerError], str]]] = {
    "40001": (LedgerBusy, "another writer came between"),
    "40P01": (LedgerBusy, "another writer came between"),
    "55P03": (LedgerBusy, "another writer holds the ledger"),
    "57014": (LedgerBusy, "the statement took longer than the server allows"),
    "53300": (LedgerUnreachable, "the server has no connection left"),
    "53100": (LedgerFull, "no room to write"),
    "53400": (LedgerFull, "a limit of the server is reached"),
    "25006": (LedgerReadOnly, "cannot be written to"),
    "3D000": (LedgerNotFound, "no such database"),
    "42501": (LedgerReadOnly, "the role has no right to that"),
    "42P01": (NotALedger, "a table of the ledger is missing"),
    "XX001": (LedgerMalformed, "the database is damaged"),
    "XX002": (LedgerMalformed, "the database is damaged"),
}
_LOST: Final = frozenset({"57P01", "57P02", "57P03", "25P03", "08000", "08003", "08006", "08007"})


@contextmanager
def translated(place: Place) -> Iterator[None]:
    """Raise Postgres' errors as ours, without a password and without the values of a statement."""
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, place) from None
    except sa.exc.DBAPIError as error:
        raise _translate(error.orig, place) from None
    except sa.exc.SQLAlchemyError as error:
        raise LedgerUnreachable(f"{place.shown}: {place.scrub(str(error))}") from None


def _translate(error: BaseException | None, place: Place) -> LedgerError:
    diagnostic = getattr(error, "diag", None)
    state = getattr(error, "sqlstate", None) or ""
    # The primary message alone: the detail quotes rows, which may be content.
    said = place.scrub(getattr(diagnostic, "message_primary", None) or str(error))
    if isinstance(error, psycopg.OperationalError) and (not state or state in _LOST):
        return _unreachable(said, place)
    kind, meaning = _BY_STATE.get(state, (StatementRefused, "refused"))
    return kind(f"{place.shown}: {meaning} ({said})")


def _unreachable(said: str, place: Place) -> LedgerError:
    # Before a session exists there is no SQLSTATE, only libpq's text.
    if re.search(r'database "[^"]*" does not exist', said):
        return LedgerNotFound(f"{place.shown}: no such database")
    if "authentication failed" in said or "no password supplied" in said:
        return LedgerUnreachable(f"{place.shown}: the server refused the credentials ({said})")
    return ConnectionLost(f"{place.shown}: {said}")


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
            owned = self._own_connection()
            with translated(self.place):
                owned.execute(_WRITER)
            self._writer = owned
        return self._writer

    def _own_connection(self) -> Connection:
        """A connection outside the pool: closing it ends the session, and its settings and locks with it."""
        with translated(self.place):
            pooled = self.engine.raw_connection()
            pooled.detach()
            connection = _driver(pooled)
            # Nothing is prepared unasked: a plan kept from when the tables were tiny may go by the wrong index.
            connection.prepare_threshold = None
            return connection

    def begin(self, event_ids: Sequence[str], streams: Sequence[Stream]) -> Opening:
        connection = self.connection
        with translated(self.place), connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            head = connection.execute(HEAD_SQL + " FOR UPDATE", prepare=True)
            # A statement of its own: inside the one that waits for the lock, the clock would be
            # read before the wait.
            clock = connection.execute("SELECT clock_timestamp()")
            known = connection.execute(_KNOWN_SQL, (list(event_ids),), prepare=True)
            versions = self._ask_versions(connection, streams)
        row, now = head.fetchone(), clock.fetchone()
        if row is None or now is None:
            raise LedgerMalformed(f"{self.place.shown}: the ledger has no head")
        return Opening(as_head(row), _moment(now[0]), as_known(known.fetchall()), _read_versions(versions))

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
                cursor.execute(_MOVE_HEAD_SQL, (head.size, head.root, head.frontier, head.recorded_at))
                cursor.execute("COMMIT")

    def _copy_many(self, rows: Rows) -> None:
        for table, group in (("events", rows.events), ("contents", rows.contents)):
            if len(group) < _COPY_FROM:
                continue
            columns = ", ".join(RECORD_COLUMNS[table])
            with self.connection.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                for row in group:
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
            self.connection.execute(_pyformat(sql), params)

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
            return connection.execute(_pyformat(sql), params).fetchall()

    def stream(self, sql: str, params: Params = NO_PARAMS) -> Iterator[Row]:
        with self._reader() as connection, connection.transaction(), connection.cursor(name="rows") as cursor:
            cursor.itersize = _STREAM_ROWS
            yield from cursor.execute(_pyformat(sql), params)

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
            connection = _driver(pooled)
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
        connection = self._own_connection()
        try:
            with translated(self.place):
                self._take_lock(connection, run_id, holder)
            yield
        finally:
            connection.close()  # the session ends, and its lock with it

    def _take_lock(self, connection: Connection, run_id: str, holder: str) -> None:
        (schema,) = _one(connection.execute("SELECT current_schema()"))
        key = lock_key(f"{schema}/{run_id}")
        name = f"{APPLICATION}: {holder}".encode("ascii", "replace")[:63].decode("ascii")
        connection.execute("SELECT set_config('application_name', %s, false)", (name,))
        (taken,) = _one(connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)))
        if not taken:
            halves = (key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF)
            found = connection.execute(_HOLDER_SQL, halves).fetchone()
            # The name of another role's session is not shown to everybody.
            name, pid = found or ("", None)
            held = name.removeprefix(f"{APPLICATION}: ") or "another process"
            raise RunLocked(run_id, f"{held} (database session {pid})" if pid else held)

    def erase_traces(self) -> bool:
        """Nothing that a client could do: VACUUM, replicas and archives are the administrator's."""
        return True

    def close(self) -> None:
        self.reconnect()
        self.engine.dispose()


class _Snapshot:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        return self._connection.execute(_pyformat(sql), params).fetchall()


def _driver(connection: PoolProxiedConnection) -> Connection:
    return cast("Connection", connection.dbapi_connection)


def _one(cursor: psycopg.Cursor[Row]) -> Row:
    row = cursor.fetchone()
    assert row is not None
    return row


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


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
    always = (("tree_nodes", rows.nodes), ("redactions", rows.redactions))
    for table, group in (*((t, g) for t, g in few if len(g) < _COPY_FROM), *always):
        if group:
            cursor.executemany(insert_sql(table, "%s"), group)
    if rows.redactions:
        erased = [position for position, _ in rows.redactions]
        cursor.execute("DELETE FROM contents WHERE position = ANY(%s)", (erased,))
    for change, values in in_bulk(rows.changes):
        if change.kind == "delete":
            cursor.executemany(statement(change, "%s"), values)
            continue
        columns = columns_of(change)
        objects = [dict(zip(columns, row, strict=True)) for row in values]
        cursor.execute(bulk_statement(change), (orjson.dumps(objects).decode(),))


# Quoted text and casts are passed over; a percent sign means something to the driver.
_NAMES: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|::)|:([A-Za-z_][A-Za-z0-9_]*)|(%)""")


@lru_cache(maxsize=512)
def _pyformat(sql: str) -> str:
    """``:name`` as ``%(name)s``."""

    def replaced(found: re.Match[str]) -> str:
        kept, name, percent = found.groups()
        if kept:
            return str(kept).replace("%", "%%")
        return "%%" if percent else f"%({name})s"

    return _NAMES.sub(replaced, sql)


def check_server(backend: PostgresBackend) -> None:
    """Raise ``LedgerUnreachable`` unless the server is one that a ledger can live on."""
    ((version, encoding, schema),) = backend.fetch(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_schema()"
    )
    shown = backend.place.shown
    if version < OLDEST:
        raise LedgerUnreachable(f"{shown}: Postgres {version // 10000} is too old; 15 or newer is needed")
    if encoding != "UTF8":
        raise LedgerUnreachable(f"{shown}: the database's encoding is {encoding}; UTF8 is needed")
    if schema is None:
        raise LedgerNotFound(f"{shown}: no schema of the search path exists")


def open_backend(place: Place, mode: Literal["read", "write", "create"]) -> PostgresBackend:
    """Connect to a database without asking whether it is a ledger."""
    backend = PostgresBackend(place, writes=mode != "read")
    try:
        check_server(backend)
    except BaseException:
        backend.close()
        raise
    return backend
