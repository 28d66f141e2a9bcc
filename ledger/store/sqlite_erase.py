"""After a redaction on SQLite: see that the file and its write-ahead log hold nothing of what was erased."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ledger.store.sqlite_pages import holds_old_rows

_WAIT_MS: Final = 5000
_TRIES: Final = 3
_PASSING: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL})
_ROOT_SQL: Final = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = 'contents'"


def erase_traces(connection: sqlite3.Connection, path: Path) -> Path | None:
    """Cut the write-ahead log to nothing, and where pages still hold copies of rows, write the file anew.

    Gives the file that may still hold erased content, None where none does: somebody reads or writes
    without a pause, or there is no room for the file twice.
    """
    log = path.with_name(f"{path.name}-wal")
    anew = False
    for _ in range(_TRIES):
        if not _truncate(connection):
            return log
        old = _holds_old_rows(connection, path, log)
        if old is False:
            return None
        if old and anew:
            return path
        if old:
            anew = True
            if not _write_anew(connection):
                return path
    return log


def _truncate(connection: sqlite3.Connection) -> bool:
    """Fold the write-ahead log into the file and cut it to nothing; False where a reader prevents it."""
    with _waiting_at_most(connection, _WAIT_MS):
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _holds_old_rows(connection: sqlite3.Connection, path: Path, log: Path) -> bool | None:
    """None where somebody has written meanwhile, so that nothing can be said."""
    connection.execute("BEGIN")
    try:
        # A reader that began on an empty log reads from the file alone, and as long as it reads, nobody
        # may fold new events into the file: it stands still, and others may append.
        row = connection.execute(_ROOT_SQL).fetchone()
        if log.exists() and log.stat().st_size:
            return None
        return row is None or holds_old_rows(path, row[0])
    except (ValueError, struct.error):
        return True
    finally:
        connection.execute("ROLLBACK")


def _write_anew(connection: sqlite3.Connection) -> bool:
    """VACUUM, through a file and not through memory; False where there is no room, or no pause, for it."""
    try:
        connection.execute("PRAGMA temp_store = FILE")
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _PASSING:
            raise
        return False
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")
    return True


@contextmanager
def _waiting_at_most(connection: sqlite3.Connection, milliseconds: int) -> Iterator[None]:
    (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {min(before, milliseconds)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {before}")
