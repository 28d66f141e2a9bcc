"""Copying a ledger unchanged, between files and databases of either kind.

The copy is one transaction: whatever interrupts it leaves an empty target, which a second attempt
takes again. Everything is hashed again on the way, so a copy that was made is the same ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from itertools import islice

from ledger.integrity.merkle import Frontier
from ledger.store import read
from ledger.store.backend import HEAD_SQL, Backend, Fetches
from ledger.store.changes import RowChange, TableFold, no_fold
from ledger.store.envelope import Envelopes, check_members, commitment
from ledger.store.errors import CopyRefused, InvalidEvent, LedgerMalformed
from ledger.store.migrate import run_migrations, table_names, transaction
from ledger.store.open import check_ledger, open_backend
from ledger.store.place import parse
from ledger.store.records import Checkpoint, ContentRow, EventRow, Head, Record, Rows, Unreadable, decode_content

Progress = Callable[[int, int], None]
"""Called with (events copied, events in all)."""


def copy_ledger(source: str, target: str, progress: Progress | None = None, *, fold: TableFold = no_fold) -> Head:
    """Copy the ledger at ``source`` to ``target``, where there must be none; give its head.

    Ids, times, salts, redactions, checkpoints and nodes stay as they are; ``fold`` fills the
    projection tables anew. Events appended to the source meanwhile are left out.

    Raises ``CopyRefused`` where the target holds a ledger, or the source is not whole: then nothing
    was copied. Otherwise as ``open_store``.
    """
    with closing(open_backend(parse(source), "read")) as origin, closing(open_backend(parse(target), "create")) as copy:
        check_ledger(origin)
        copy.ready()
        with origin.snapshot() as snapshot, copy.exclusive(), transaction(copy) as connection:
            if table_names(connection):
                raise CopyRefused(f"{copy.place.shown} is not empty: a copy needs a place of its own")
            run_migrations(connection)
            copy.allow_idle()
            return _Copying(snapshot, copy, fold).run(progress)


class _Copying:
    """One copy on its way: the tree over what was copied so far."""

    def __init__(self, source: Fetches, target: Backend, fold: TableFold) -> None:
        self._source, self._target, self._fold = source, target, fold
        self._head = Head(*source.fetch(HEAD_SQL)[0])
        self._envelopes = Envelopes(self._head.origin)
        self._frontier = Frontier()
        self._last_time: str | None = None

    def run(self, progress: Progress | None) -> Head:
        total = self._head.size
        records = read.records(self._source, 0, total)
        while chunk := list(islice(records, read.PAGE)):
            self._target.write(self._rows(chunk))
            if progress is not None:
                progress(self._frontier.size, total)
        self._compare_with_head()
        self._copy_redactions()
        self._copy_checkpoints()
        self._target.write_head(self._head)
        return self._head

    def _rows(self, chunk: list[Record]) -> Rows:
        rows = Rows([], [], [], [], self._changes(chunk))
        for record in chunk:
            try:
                self._check(record)
            except (TypeError, AttributeError, UnicodeError):  # SQLite keeps what it is given, of any type
                raise CopyRefused(f"position {self._frontier.size + 1}: a value of the wrong kind") from None
            rows.events.append(_event_row(record))
            content = _content_row(record)
            if content is not None:
                rows.contents.append(content)
            rows.nodes.extend(self._frontier.append(record.leaf_hash))
            self._last_time = record.recorded_at
        return rows

    def _changes(self, chunk: list[Record]) -> list[RowChange]:
        changes: list[RowChange] = []
        for event in read.decoded([record[:10] for record in chunk]):
            if isinstance(event, Unreadable):
                raise CopyRefused(f"position {event.position} cannot be read: {event.reason}")
            changes.extend(self._fold(event))
        return changes

    def _check(self, record: Record) -> None:
        """Raise ``CopyRefused`` unless the row is the next one and hashes to what it says."""
        at = record.position
        if at != self._frontier.size + 1:
            raise CopyRefused(f"position {self._frontier.size + 1} is missing")
        try:
            check_members(record.event_id, record.type, record.schema, record.run_id, record.request_id)
        except InvalidEvent as error:
            raise CopyRefused(f"position {at}: {error}") from None
        if sha256(record.payload.encode("utf-8")).hexdigest() != record.payload_sha256:
            raise CopyRefused(f"position {at}: the payload does not have its digest")
        self._check_content(record)
        envelope = self._envelopes.encode(*record[:9], record.payload_sha256, record.content_commitment)
        if sha256(b"\x00" + envelope).digest() != record.leaf_hash:
            raise CopyRefused(f"position {at}: the envelope does not have its hash")

    def _check_content(self, record: Record) -> None:
        at, committed = record.position, record.content_commitment
        content = _content_row(record)
        if content is None:
            if committed is not None and record.redacted_by is None:
                raise CopyRefused(f"position {at}: the content is missing, and no redaction says so")
            return
        if record.redacted_by is not None:
            raise CopyRefused(f"position {at}: the content is there against a redaction")
        _, salt, encoding, body = content
        try:
            found = commitment(salt, decode_content(at, encoding, body))
        except LedgerMalformed as error:
            raise CopyRefused(str(error)) from None
        if found != committed:
            raise CopyRefused(f"position {at}: the content does not match its commitment")

    def _compare_with_head(self) -> None:
        head, frontier = self._head, self._frontier
        computed = (frontier.size, frontier.root(), frontier.to_bytes(), self._last_time)
        if computed != (head.size, head.root, head.frontier, head.recorded_at):
            raise CopyRefused("the events do not lead to the source's head")

    def _copy_redactions(self) -> None:
        sql = "SELECT position, event_position FROM redactions WHERE event_position <= :size ORDER BY position"
        redactions = [(position, by) for position, by in self._source.fetch(sql, {"size": self._head.size})]
        self._target.write(Rows([], [], [], redactions, []))

    def _copy_checkpoints(self) -> None:
        sql = "SELECT size, root, note FROM checkpoints WHERE size <= :size ORDER BY size"
        rows = self._source.fetch(sql, {"size": self._head.size})
        self._target.write_checkpoints([Checkpoint(size, root, note) for size, root, note in rows])


def _event_row(record: Record) -> EventRow:
    return (*record[:12], record.leaf_hash)


def _content_row(record: Record) -> ContentRow | None:
    if record.salt is None or record.encoding is None or record.body is None:
        return None
    return record.position, record.salt, record.encoding, record.body
