"""What is SQLite's own: opening a file safely, the transaction, reads, and errors put in words."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import orjson

from ledger.store.backend import (
    HEAD_SQL,
    KNOWN_COLUMNS,
    LOCK_SECONDS,
    NO_PARAMS,
    Opening,
    Params,
    Row,
    as_head,
    as_known,
    head_row,
    insert_sql,
)
from ledger.store.changes import in_bulk, statement
from ledger.store.errors import (
    LedgerBusy,
    LedgerError,
    LedgerFull,
    LedgerMalformed,
    LedgerNotFound,
    LedgerReadOnly,
    LedgerUnreachable,
    NotALedger,
    StatementRefused,
    UnsafeFilesystem,
)
from ledger.store.lock import file_lock, local_lock
from ledger.store.mounts import read_mounts, unsafe_filesystem
from ledger.store.place import Dialect, Place
from ledger.store.records import Checkpoint, Head, Known, Rows, Stream

# FULL, not NORMAL: with WAL, NORMAL loses the last commits when the power fails.
# secure_delete: erased content is overwritten. recursive_triggers: a REPLACE fires delete triggers too.
_WRITER_PRAGMAS: Final = (
    *("synchronous = FULL", "secure_delete = ON", "recursive_triggers = ON", "trusted_schema = OFF"),
    *("cell_size_check = ON", "cache_size = -32000", "temp_store = MEMORY"),
)
# Not trusted_schema = OFF: SQLite (seen with 3.40) then refuses json_extract in a view, as in `results`. No function of
# our own is registered and extensions cannot be loaded, so a doctored schema has nothing harmful to call.
_READER_PRAGMAS: Final = ("query_only = ON", "cell_size_check = ON", "cache_size = -16000")
_STREAM_ROWS: Final = 1000

_KNOWN_SQL: Final = f"""
SELECT {KNOWN_COLUMNS} FROM json_each(?) AS asked CROSS JOIN events AS e ON e.event_id = asked.value
LEFT JOIN contents AS c ON c.position = e.position LEFT JOIN redactions AS r ON r.position = e.position
"""  # noqa: S608 - our own columns
_RUN_VERSIONS_SQL: Final = """
SELECT value, (SELECT max(run_version) FROM events WHERE run_id = value) FROM json_each(?)
"""
_REQUEST_VERSIONS_SQL: Final = """
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),
  (SELECT max(request_version) FROM events
   WHERE run_id = json_extract(value, '$[0]') AND request_id = json_extract(value, '$[1]'))
FROM json_each(?)
"""
_ERASABLE_SQL: Final = "SELECT c.position FROM json_each(?) AS j CROSS JOIN contents AS c ON c.position = j.value"
_MOVE_HEAD_SQL: Final = "UPDATE ledger_head SET size = ?, root = ?, frontier = ?, recorded_at = ? WHERE id = 1"


def open_for_writing(place: Place, *, create: bool) -> sqlite3.Connection:
    """A connection that may write; the file is made where absent and ``create``.

    The journal mode is left alone until the file is known to be a ledger: see ``prepare``.
    """
    if place.path is None:
        return _connect(place, ":memory:")
    path = _checked(place.path, must_exist=not create)
    kind = unsafe_filesystem(path.parent.resolve(), read_mounts())
    if kind is not None:
        raise UnsafeFilesystem(
            f"{path} is on a {kind} file system, where SQLite can lose writes: keep the ledger on a local disk, "
            "or use Postgres"
        )
    if path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise LedgerReadOnly(f"{path} and its folder must be writable to append")
    return _connect(place, f"{path.as_uri()}?mode={'rwc' if create else 'rw'}")


def open_for_reading(place: Place) -> sqlite3.Connection:
    """A connection that never changes the file."""
    assert place.path is not None
    path = _checked(place.path, must_exist=True)
    uri = f"{path.as_uri()}?mode=ro"
    if not os.access(path.parent, os.W_OK):
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise LedgerReadOnly(
                f"{path.parent} cannot be written, and {wal.name} holds events that are not in {path.name} yet: "
                f"copy both files, {path.name} and {wal.name}, to a folder of your own and read them there"
            )
        # Without a WAL the file cannot change under us, as nobody can make one here.
        uri += "&immutable=1"
    connection = _connect(place, uri)
    with translated(place):
        for pragma in _READER_PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    return connection


def prepare(connection: sqlite3.Connection, place: Place) -> None:
    """Make a connection fit to append: write-ahead log, full durability, erasure."""
    with translated(place):
        _set_wal(connection, in_memory=place.path is None)
        for pragma in _WRITER_PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")


def _set_wal(connection: sqlite3.Connection, *, in_memory: bool) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            # SQLite does not wait here when another process is making the same switch.
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
            continue
        if mode != "wal" and not in_memory:
            raise LedgerReadOnly(f"the database stays in journal mode {mode}: a write-ahead log is needed")
        return


def _checked(path: Path, *, must_exist: bool) -> Path:
    path = path.absolute()
    try:
        if not path.parent.is_dir():
            raise LedgerNotFound(f"{path.parent}: no such folder")
        if path.is_dir():
            raise NotALedger(f"{path} is a folder, not a ledger's file")
        if must_exist and not path.exists():
            raise LedgerNotFound(f"no ledger at {path}")
    except OSError as error:  # a name too long, a folder that cannot be entered
        raise LedgerUnreachable(f"{path}: {os.strerror(error.errno or errno.EIO)}") from None
    return path


def _connect(place: Place, uri: str) -> sqlite3.Connection:
    with translated(place):
        return sqlite3.connect(
            uri, uri=True, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )


def _code(error: sqlite3.Error) -> int:
    """The primary result code: the extended one's low byte."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


_MEANINGS: Final[dict[int, tuple[type[LedgerError], str]]] = {
    sqlite3.SQLITE_BUSY: (LedgerBusy, "another process holds the ledger"),
    sqlite3.SQLITE_LOCKED: (LedgerBusy, "another connection holds the ledger"),
    sqlite3.SQLITE_FULL: (LedgerFull, "no room to write"),
    sqlite3.SQLITE_READONLY: (LedgerReadOnly, "cannot be written to"),
    sqlite3.SQLITE_CORRUPT: (LedgerMalformed, "the file is damaged"),
    sqlite3.SQLITE_NOTADB: (NotALedger, "not a SQLite database"),
    sqlite3.SQLITE_CANTOPEN: (LedgerUnreachable, "cannot be opened"),
    sqlite3.SQLITE_PERM: (LedgerUnreachable, "cannot be opened"),
    sqlite3.SQLITE_AUTH: (LedgerUnreachable, "cannot be opened"),
    sqlite3.SQLITE_IOERR: (LedgerUnreachable, "the disk reported an error"),
}


@contextmanager
def translated(place: Place) -> Iterator[None]:
    """Raise SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        if "decode to UTF-8" in str(error):
            raise LedgerMalformed(f"{place.shown}: text that is not UTF-8") from None
        kind, meaning = _MEANINGS.get(_code(error), (StatementRefused, "refused"))
        raise kind(f"{place.shown}: {meaning} ({place.scrub(str(error))})") from error


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
            if row is None:
                raise LedgerMalformed(f"{self.place.shown}: the ledger has no head")
            now = datetime.now(UTC)
            return Opening(as_head(row), now, self._known(event_ids), self.versions(streams))

    def _known(self, event_ids: Sequence[str]) -> dict[str, Known]:
        # Ids begin with their time, so most are larger than all that are there, and so are new.
        (largest,) = self.connection.execute("SELECT max(event_id) FROM events").fetchone()
        possible = [event_id for event_id in event_ids if largest is not None and event_id <= largest]
        return as_known(self.connection.execute(_KNOWN_SQL, (_json(possible),)).fetchall()) if possible else {}

    def versions(self, streams: Sequence[Stream]) -> dict[Stream, int]:
        runs = [run_id for run_id, request_id in streams if request_id is None]
        requests = [stream for stream in streams if stream[1] is not None]
        found: dict[Stream, int] = {}
        with translated(self.place):
            for run_id, version in self.connection.execute(_RUN_VERSIONS_SQL, (_json(runs),)) if runs else ():
                found[run_id, None] = version or 0
            rows = self.connection.execute(_REQUEST_VERSIONS_SQL, (_json(requests),)) if requests else ()
            for run_id, request_id, version in rows:
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
            self.connection.executemany(insert_sql(table, "?"), rows)

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

    def erase_traces(self) -> bool:
        """Fold the write-ahead log into the file and cut it to nothing; False where a reader prevents it."""
        with self._lock, translated(self.place):
            busy, _, _ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

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
