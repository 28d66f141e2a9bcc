"""What a pass over a file has seen, kept off the heap: a file may hold millions of ids."""

from __future__ import annotations

import sqlite3
from typing import Final

_TABLES: Final = """
CREATE TABLE ids (id TEXT PRIMARY KEY, place TEXT NOT NULL, copies INTEGER NOT NULL DEFAULT 1) WITHOUT ROWID;
CREATE TABLE incidents (incident TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class Seen:
    """Ids with the place of the first of each, and incidents. A temporary file of SQLite's, gone with this object."""

    def __init__(self) -> None:
        # An empty name is a private database that SQLite writes to a file of its own only as it outgrows its cache.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES} BEGIN;")

    def close(self) -> None:
        self._database.close()

    def place_of(self, request_id: str) -> str | None:
        """Where the id stood first; None where it has not been seen."""
        row = self._database.execute("SELECT place FROM ids WHERE id = ?", (request_id,)).fetchone()
        return None if row is None else str(row[0])

    def add(self, request_id: str, place: str) -> None:
        self._database.execute("INSERT INTO ids (id, place) VALUES (?, ?)", (request_id, place))

    def next_copy(self, request_id: str) -> int:
        """2 for the first that would have the same id, then 3: so that finding a free number takes one step."""
        update = "UPDATE ids SET copies = copies + 1 WHERE id = ? RETURNING copies"
        (copies,) = self._database.execute(update, (request_id,)).fetchone()
        return int(copies)

    def is_new(self, incident: str) -> bool:
        """Whether this incident is seen for the first time."""
        done = self._database.execute("INSERT OR IGNORE INTO incidents VALUES (?)", (incident,))
        return done.rowcount == 1
