"""One pass over a ledger in order of position: every row, its place, and the tree above it.

Memory does not grow with the ledger: beside the tree's frontier it holds the names of runs without
an end, and what other tables say is read alongside, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ledger.events import AFTER_TERMINAL_TYPES, LEDGER_RUN_ID, TERMINAL_TYPES, Event
from ledger.integrity.checkpoint import Checkpoint, parse_checkpoint
from ledger.integrity.merkle import FANOUT_BITS, HASH_BYTES, Frontier, TreeNode
from ledger.integrity.note import NoteError, parse_note
from ledger.integrity.rows import RowChecker
from ledger.integrity.verdict import MAX_LISTED, Findings, Redaction, printable
from ledger.store import Store
from ledger.store.envelope import FORMAT
from ledger.store.errors import LedgerMalformed
from ledger.store.read import decoded
from ledger.store.records import EVENT_COLUMNS, Head, Record, Unreadable

Progress = Callable[[int, int], None]
"""Called now and then with (events done, events in all)."""

PROGRESS_EVERY: Final = 4096
FIRST_TYPE: Final = "LedgerCreated"

_DECODED_COLUMNS: Final = EVENT_COLUMNS.index("payload") + 1

_REDACTIONS_SQL: Final = "SELECT event_position, position FROM redactions ORDER BY event_position, position"
_CHECKPOINTS_SQL: Final = "SELECT size, root, note FROM checkpoints ORDER BY size"
_NODES_SQL: Final = "SELECT node_index, hash FROM tree_nodes WHERE level = :level ORDER BY node_index"


class Cursor:
    """Rows of another table, ordered by their first column, taken as far as the walk has come."""

    def __init__(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._table, self._rows = table, iter(rows)
        self._row: tuple[Any, ...] | None = None
        self.key: float = math.inf
        """First column of the next row; infinite where there is none."""

    def open(self) -> Cursor:
        """Read the first row: from here on the database shows what it holds at this moment."""
        self._advance()
        return self

    def _advance(self) -> None:
        self._row = next(self._rows, None)
        key = math.inf if self._row is None else self._row[0]
        if not isinstance(key, (int, float)):
            raise LedgerMalformed(f"{self._table} holds a key that is no number")
        self.key = key

    def upto(self, key: float) -> Iterator[tuple[Any, ...]]:
        """Take the rows whose first column is at most ``key``."""
        while self.key <= key and self._row is not None:
            row = self._row
            self._advance()
            yield row


class Walk:
    """The pass and what it learned; what does not match goes to ``found``.

    ``head_sound``: whether ``head`` is the stored one, to be compared with what was read.

    Others may append meanwhile. The head was read first and the events up to it are judged; what
    other tables say of later events is left to the next verification, so long as a head read
    after them covers it.
    """

    def __init__(self, store: Store, found: Findings, head: Head, *, head_sound: bool = True) -> None:
        self._store, self._found = store, found
        self.head, self._head_sound = head, head_sound
        self._redactions = Cursor("redactions", store.rows(_REDACTIONS_SQL, {}))
        self._checkpoints = Cursor("checkpoints", store.rows(_CHECKPOINTS_SQL, {}))
        self._size_after = self.head.size
        self._nodes: dict[int, Cursor] = {}
        self._rows = RowChecker(self.head.origin, found)
        self._frontier = Frontier()
        self._gapless = True
        self.events = 0
        self.checkpoints = 0
        self.last_position = 0
        self.first_time: str | None = None
        self.last_time: str | None = None
        self.open_runs: dict[str, None] = {}
        self.redactions: list[Redaction] = []
        self.redactions_left_out = 0

    def run(self, progress: Progress | None = None) -> None:
        """Read every event and compare; then the head with what was read. Raises ``LedgerMalformed``."""
        self._redactions.open()
        self._checkpoints.open()
        if self._head_sound:
            self._size_after = self._store.head().size
        for record, event in _decoded(self._store.records(upto=self.head.size)):
            self._take(record, event)
            if progress is not None and self.events % PROGRESS_EVERY == 0:
                progress(self.events, self.head.size)
        self._finish()
        if progress is not None:
            progress(self.events, self.head.size)

    def _take(self, record: Record, event: Event | Unreadable) -> None:
        self.events += 1
        self._check_place(record)
        self._rows.check(record, event)
        self._grow(record)
        self._follow_run(record)
        if record.type == "ContentRedacted":
            self._check_redaction(record, event)
        if self.last_position >= self._checkpoints.key:
            self._check_checkpoints()

    # --- order -----------------------------------------------------------------------------

    def _check_place(self, record: Record) -> None:
        expected = self.last_position + 1
        if record.position != expected:
            self._gapless = False
            self._found.add(expected, "events", "removed", "no such event", last=record.position - 1)
        self.last_position = record.position
        if (record.type == FIRST_TYPE) != (record.position == 1):
            self._found.add(record.position, "type", "inserted", f"{FIRST_TYPE} stands at position 1 and nowhere else")
        elif record.position == 1 and record.run_id != LEDGER_RUN_ID:
            self._found.add(1, "run_id", "edited", f"{FIRST_TYPE} stands in {LEDGER_RUN_ID}")
        time = str(record.recorded_at)
        if self.last_time is not None and time < self.last_time:
            self._found.add(record.position, "recorded_at", "edited", "earlier than the event before")
        self.first_time, self.last_time = self.first_time or time, time

    def _follow_run(self, record: Record) -> None:
        if record.type in TERMINAL_TYPES:
            self.open_runs.pop(record.run_id, None)
        elif record.run_id != LEDGER_RUN_ID and record.type not in AFTER_TERMINAL_TYPES:
            self.open_runs[record.run_id] = None

    # --- the tree --------------------------------------------------------------------------

    def _grow(self, record: Record) -> None:
        leaf = record.leaf_hash
        if not _is_hash(leaf):
            self._found.add(record.position, "leaf_hash", "edited", "a leaf hash has 32 bytes")
            leaf = bytes(HASH_BYTES)
        # The stored leaf, which the row was just compared with: so an edited row is one finding
        # at its position, and the nodes above tell of leaves that were edited as well.
        for node in self._frontier.append(leaf):
            self._check_node(node)

    def _check_node(self, node: TreeNode) -> None:
        level, index, expected = node
        if level not in self._nodes:
            self._nodes[level] = Cursor("tree_nodes", self._store.rows(_NODES_SQL, {"level": level})).open()
        stored = list(self._nodes[level].upto(index))
        if not self._gapless:  # with events missing, no node can match; that much is found already
            return
        first, last = (index << level * FANOUT_BITS) + 1, (index + 1) << level * FANOUT_BITS
        if not stored:
            self._found.add(first, "tree_nodes", "removed", f"the node of level {level} is missing", last=last)
        elif len(stored) > 1 or stored[0] != (index, expected):
            self._found.add(
                first, "tree_nodes", "edited", f"the node of level {level} is not over these leaves", last=last
            )

    def _check_checkpoints(self) -> None:
        for size, root, note in self._checkpoints.upto(self.last_position):
            self.checkpoints += 1
            if size != self._frontier.size or root != self._frontier.root():
                if self._gapless:
                    self._found.add(size, "checkpoints", "forked", "the root signed is not the root of these events")
            elif not _note_says(note, Checkpoint(self.head.origin, size, root)):
                self._found.add(size, "checkpoints", "edited", "the note says something else than its row")

    # --- redactions ------------------------------------------------------------------------

    def _check_redaction(self, record: Record, event: Event | Unreadable) -> None:
        """The event's positions, and the rows that name it, are the same ones."""
        self._refuse_redactions(record.position - 1)
        erased = {row[1] for row in self._redactions.upto(record.position)}
        named: set[int] = set()
        reason = actor = "unreadable"
        if isinstance(event, Event):
            named.update(_positions(event))
            reason, actor = printable(event.payload["reason"]), printable(event.payload["actor"])
        if record.run_id != LEDGER_RUN_ID:
            named.clear()
            self._found.add(record.position, "run_id", "inserted", f"redactions stand in {LEDGER_RUN_ID}")
        for position in sorted(erased - named | {p for p in erased if p >= record.position}):
            self._unauthorised(position)
        for position in sorted(named - erased):
            self._found.add(position, "redactions", "removed", "an event says that this content was erased")
        if len(self.redactions) < MAX_LISTED:
            self.redactions.append(Redaction(record.position, len(named), reason, actor))
        else:
            self.redactions_left_out += 1

    def _refuse_redactions(self, upto: float) -> None:
        if self._redactions.key <= upto:
            for _, position in self._redactions.upto(upto):
                self._unauthorised(position)

    def _unauthorised(self, position: int) -> None:
        self._found.add(position, "redactions", "redacted without authority", "no event orders this erasure")

    # --- the end ---------------------------------------------------------------------------

    def _finish(self) -> None:
        self._refuse_redactions(self.head.size)
        for event_position, position in self._redactions.upto(math.inf):
            if event_position > self._size_after:
                self._unauthorised(position)
        for size, *_ in self._checkpoints.upto(math.inf):
            self.checkpoints += 1
            if size > self._size_after:
                self._found.add(size, "checkpoints", "rolled back", "the ledger is shorter than this checkpoint")
        self._check_head()

    def _check_head(self) -> None:
        head, end = self.head, self.last_position
        if not self.events:
            self._found.add(1, "events", "truncated", "a ledger has its first event at least")
        if not self._head_sound:
            return
        self._compare_head("format", head.format, FORMAT)
        if head.size > end:
            self._found.add(end + 1, "events", "truncated", "the head says that there are more events", last=head.size)
        elif self._gapless:
            self._compare_head("root", head.root, self._frontier.root())
            self._compare_head("frontier", head.frontier, self._frontier.to_bytes())
            self._compare_head("recorded_at", head.recorded_at, self.last_time)

    def _compare_head(self, member: str, stored: object, computed: object) -> None:
        if stored != computed:
            text = f"its {member} does not follow from the events"
            self._found.add(self.last_position or None, "ledger_head", "edited", text)


def _decoded(records: Iterable[Record]) -> Iterator[tuple[Record, Event | Unreadable]]:
    """Each row with what folds would read of it."""
    current: list[Record] = []

    def rows() -> Iterator[tuple[Any, ...]]:
        for record in records:
            current[:] = [record]
            yield record[:_DECODED_COLUMNS]

    for event in decoded(rows()):  # one for one, in step
        yield current[0], event


def _positions(redaction: Event) -> Iterator[int]:
    positions = redaction.payload["positions"]
    yield from (item for item in positions if type(item) is int) if isinstance(positions, list) else ()


def _is_hash(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == HASH_BYTES


def _note_says(note: object, expected: Checkpoint) -> bool:
    """Does the stored note's text say this? Whose the signatures are is not looked at here."""
    if not isinstance(note, str):
        return False
    try:
        return parse_checkpoint(parse_note(note).text) == expected
    except NoteError:
        return False
