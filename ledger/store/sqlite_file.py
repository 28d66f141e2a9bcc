"""SQLite files: opening one safely, fit to append or never to be changed, and errors put in words."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Final

from ledger.store.backend import LOCK_SECONDS
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
from ledger.store.mounts import read_mounts, unsafe_filesystem
from ledger.store.place import Place

# FULL, not NORMAL: with WAL, NORMAL loses the last commits when the power fails.
# secure_delete: erased content is overwritten. recursive_triggers: a REPLACE fires delete triggers too.
_WRITER_PRAGMAS: Final = (
    *("synchronous = FULL", "secure_delete = ON", "recursive_triggers = ON", "trusted_schema = OFF"),
    *("cell_size_check = ON", "cache_size = -32000", "temp_store = MEMORY"),
)
# Of a file made now; one that is there keeps its own. Twice SQLite's usual: an append writes half as many pages.
_PAGE_SIZE: Final = "PRAGMA page_size = 8192"
# Not trusted_schema = OFF: SQLite (seen with 3.40) then refuses json_extract in a view, as in `results`. No function of
# our own is registered and extensions cannot be loaded, so a doctored schema has nothing harmful to call.
_READER_PRAGMAS: Final = ("query_only = ON", "cell_size_check = ON", "cache_size = -16000")

# What the driver does with these by itself, but it first asks each value whether it would rather be adapted: dearer
# than all else it does to bind one.
sqlite3.register_adapter(bool, int)
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(NoneType, lambda _: None)


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
    connection = _connect(place, f"{path.as_uri()}?mode={'rwc' if create else 'rw'}")
    connection.execute(_PAGE_SIZE)
    return connection


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
    try:
        with translated(place):
            for pragma in _READER_PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
    except LedgerError:
        connection.close()
        raise
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
