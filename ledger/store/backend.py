"""What the two databases have in common, as seen by the store: a transaction and two ways to read.

``sqlite.py`` and ``postgres.py`` hold what differs. Everything they raise is a ``LedgerError``:
``LedgerBusy`` where trying again may help, ``ConnectionLost`` where a new connection is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from ledger.integrity.merkle import HASH_BYTES
from ledger.store.errors import LedgerMalformed
from ledger.store.place import Dialect, Place
from ledger.store.records import CONTENT_COLUMNS, EVENT_COLUMNS, Checkpoint, Head, Known, Receipt, Rows, Stream

Params = Mapping[str, Any]
Row = tuple[Any, ...]
NO_PARAMS: Final[Params] = {}

LOCK_SECONDS: Final = 30
"""How long a writer waits for another before it gives up with ``LedgerBusy``."""


class Opening(NamedTuple):
    """What the start of a transaction finds, all of it read under the lock on the head.

    ``now`` is the time of the database's clock (the host's on SQLite), taken once the lock is held.
    """

    head: Head
    now: datetime
    known: dict[str, Known]
    versions: dict[Stream, int]


class Fetches(Protocol):
    """What can run a SELECT of our own."""

    def fetch(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        """All rows, with ``:name`` parameters."""


class Backend(Protocol):
    """One open ledger. The transaction belongs to one thread at a time; reads may come from any."""

    place: Place
    payload_column: str
    """How ``events.payload`` is selected where it is going to be decoded."""

    @property
    def dialect(self) -> Dialect:
        """``sqlite`` or ``postgresql``."""

    @property
    def connection(self) -> Any:
        """The driver's writing connection. Raises ``LedgerReadOnly`` where the ledger is open for reading."""

    def translated(self) -> AbstractContextManager[None]:
        """Raise the driver's errors within as ours."""

    def tables(self) -> set[str]:
        """Names of the tables where the ledger's are, or would be made."""

    def ready(self) -> None:
        """Make the writing connection fit to append."""

    def exclusive(self) -> AbstractContextManager[object]:
        """Held from ``begin`` to ``finish``, ``commit`` or ``rollback``."""

    def begin(self, event_ids: Sequence[str], streams: Sequence[Stream]) -> Opening:
        """Begin a transaction, lock the head, and look up event ids and versions (0: no event yet)."""

    def versions(self, streams: Sequence[Stream]) -> dict[Stream, int]:
        """Versions of further streams, within the transaction."""

    def erasable(self, positions: Sequence[int]) -> set[int]:
        """Those of the positions that have content, within the transaction."""

    def write(self, rows: Rows) -> None:
        """Write rows, within the transaction."""

    def allow_idle(self) -> None:
        """Let the transaction stay open while the client thinks; a server else ends it after a while."""

    def execute(self, sql: str, params: Params = NO_PARAMS) -> None:
        """Run a statement of our own, within the transaction."""

    def write_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Write signed checkpoints, within the transaction."""

    def write_head(self, head: Head) -> None:
        """Write the head of a ledger that begins, within the transaction."""

    def finish(self, rows: Rows, head: Head) -> None:
        """Write rows, move the head, and commit: durable once this returns."""

    def commit(self) -> None:
        """Commit what was written: durable once this returns."""

    def rollback(self) -> None:
        """End the transaction without a trace; no error where there is none or the connection is gone."""

    def reconnect(self) -> None:
        """Give up the writing connection for a new one."""

    def fetch(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        """All rows of a SELECT with ``:name`` parameters."""

    def stream(self, sql: str, params: Params = NO_PARAMS) -> Iterator[Row]:
        """The same, row by row in bounded memory."""

    def snapshot(self) -> AbstractContextManager[Fetches]:
        """Reads that all see the ledger as it is now."""

    def driver_lock(self, run_id: str, holder: str) -> AbstractContextManager[None]:
        """See ``Store.driver_lock``."""

    def erase_traces(self) -> Path | None:
        """See ``Store.erase_traces``."""

    def close(self) -> None:
        """Close every connection."""


HEAD_SQL: Final = "SELECT origin, format, size, root, frontier, recorded_at FROM ledger_head WHERE id = 1"
KNOWN_COLUMNS: Final = (
    "e.event_id, e.position, e.run_version, e.request_version, e.recorded_at, e.type, e.schema, e.run_id,"
    " e.request_id, e.payload_sha256, e.content_commitment, c.salt, r.position"
)


def insert_sql(table: str, mark: str) -> str:
    """INSERT of whole rows into a table of the record."""
    columns = RECORD_COLUMNS[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"  # noqa: S608


RECORD_COLUMNS: Final = {
    "events": EVENT_COLUMNS,
    "contents": CONTENT_COLUMNS,
    "tree_nodes": ("level", "node_index", "hash"),
    "redactions": ("position", "event_position"),
    "checkpoints": ("size", "root", "note"),
    "ledger_head": ("id", "origin", "format", "size", "root", "frontier", "recorded_at"),
}


def head_row(head: Head) -> Row:
    """A row of ``ledger_head``."""
    return 1, *head


def checked_head(row: Row | None, shown: str) -> Head:
    """A head that can be built on, from ``HEAD_SQL``'s row. Raises ``LedgerMalformed`` where it is none."""
    if row is None:
        raise LedgerMalformed(f"{shown}: the ledger has no head")
    origin, format_, size, root, frontier, recorded_at = row
    # SQLite keeps what it is given, of any type.
    if not (isinstance(root, bytes) and isinstance(frontier, bytes) and isinstance(size, int) and size >= 0):
        raise LedgerMalformed(f"{shown}: the ledger's head is damaged: values of the wrong kind")
    if len(frontier) != HASH_BYTES * size.bit_count():
        raise LedgerMalformed(f"{shown}: the ledger's head is damaged: its frontier is not one of {size} events")
    return Head(origin, format_, size, root, frontier, recorded_at)


LARGEST_ID_SQL: Final = "SELECT max(event_id) FROM events"


def possibly_known(event_ids: Sequence[str], largest: str | None) -> list[str]:
    """The ids that the ledger may hold already, where ``largest`` is the largest that it holds.

    Ids begin with their time, so most are larger than all that are there, and so are new.
    """
    return [event_id for event_id in event_ids if largest is not None and event_id <= largest]


def as_known(rows: Sequence[Row]) -> dict[str, Known]:
    """Known events by id, from rows of ``KNOWN_COLUMNS``."""
    found = {}
    for row in rows:
        event_id, position, run_version, request_version, recorded_at = row[:5]
        type_, schema, run_id, request_id, payload_sha256, committed, salt, redacted_by = row[5:]
        receipt = Receipt(position, event_id, run_version, request_version, recorded_at)
        redacted = redacted_by is not None
        found[event_id] = Known(receipt, type_, schema, run_id, request_id, payload_sha256, committed, salt, redacted)
    return found
