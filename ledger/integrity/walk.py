"""One pass over a ledger in order of position: every row, its place, and the tree above it.

Slices that were found whole (``slices.py``) are joined; the rows of others are looked at one by one,
and what is wrong with them is named. Both leave the same state behind, so the verdict does not depend
on which it was.

Memory does not grow with the ledger: beside the tree's frontier it holds the names of runs without
an end, the last version of each run, and what other tables say is read alongside, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Final

from ledger.events import AFTER_TERMINAL_TYPES, LEDGER_RUN_ID, TERMINAL_TYPES, Event
from ledger.integrity.checkpoint import Checkpoint, parse_checkpoint
from ledger.integrity.cursor import Cursor
from ledger.integrity.erased import scopes_of
from ledger.integrity.merkle import FANOUT, FANOUT_BITS, HASH_BYTES, Frontier, TreeNode, root
from ledger.integrity.note import NoteError, parse_note
from ledger.integrity.rows import RowChecker
from ledger.integrity.slices import FIRST_TYPE, REDACTION_TYPE, SPECIAL_TYPES, Slice
from ledger.integrity.verdict import MAX_LISTED, Findings, Redaction, printable
from ledger.store import Store
from ledger.store.envelope import FORMAT
from ledger.store.errors import LedgerMalformed
from ledger.store.read import decoded
from ledger.store.records import EVENT_COLUMNS, Head, Record, Unreadable

Progress = Callable[[int, int], None]
"""Called now and then with (events done, events in all)."""

PROGRESS_EVERY: Final = 4096

_DECODED_COLUMNS: Final = EVENT_COLUMNS.index("payload") + 1

_REDACTIONS_SQL: Final = "SELECT event_position, position FROM redactions ORDER BY event_position, position"
_CHECKPOINTS_SQL: Final = "SELECT size, root, note FROM checkpoints ORDER BY size"
_NODES_SQL: Final = "SELECT node_index, hash FROM tree_nodes WHERE level = :level ORDER BY node_index"


class Walk:
    """The pass and what it learned; what does not match goes to ``found``.

    ``head_sound``: whether ``head`` is the stored one, to be compared with what was read. ``judged``:
    how many events are; fewer than the head says where a checkpoint in the middle is judged by. ``marks``:
    the sizes at which the tree's root is wanted; ``roots`` has those that could be computed.

    Others may append meanwhile. The head was read first and the events up to it are judged; what
    other tables say of later events is left to the next verification, so long as a head read
    after them covers it.
    """

    def __init__(
        self,
        store: Store,
        found: Findings,
        head: Head,
        *,
        head_sound: bool = True,
        judged: int | None = None,
        marks: Collection[int] = (),
    ) -> None:
        self._store, self._found = store, found
        self.head, self._head_sound = head, head_sound
        self.judged = head.size if judged is None else judged
        # Not a method, which would tie the two in a circle: rows not read to the end then kept the database open.
        odd = partial(_odd_redaction, found, self.judged)
        self._redactions = Cursor("redactions", store.rows(_REDACTIONS_SQL, {}), odd)
        self._checkpoints = Cursor("checkpoints", store.rows(_CHECKPOINTS_SQL, {}))
        self._size_after = self.head.size
        self._nodes: dict[int, Cursor | None] = {}
        self._rows = RowChecker(self.head.origin, found)
        self._frontier = Frontier()
        self._marks = sorted(marks, reverse=True)
        self._gapless = True
        self._versions: dict[str, int] = {}
        self.versions_doubtful = False
        self.events = 0
        self.forked: set[int] = set()
        self.roots: dict[int, bytes] = {}
        self.last_position = 0
        self.last_time: str | None = None
        self.open_runs: dict[str, None] = {}
        self.redactions: list[Redaction] = []
        self.redactions_left_out = 0
        self.later_redactions = 0
        self.keys_named: list[tuple[int, Any]] = []
        """Position and vkey of the events that name the ledger's key, as they say it."""

    # --- from outside ----------------------------------------------------------------------

    def begin(self) -> None:
        """Read what other tables say first."""
        self._redactions.open()
        self._checkpoints.open()
        if self._head_sound:
            self._size_after = self._store.head().size

    def fits(self, part: Slice) -> bool:
        """May the slice be joined as it is? Otherwise its rows have to be read one by one."""
        if part.first != self.last_position + 1 or (self.last_time is not None and part.first_time < self.last_time):
            return False
        return self._frontier.size % FANOUT == 0 or not self._gapless

    def join(self, part: Slice) -> None:
        """Take a slice that fits."""
        for run_id, span in part.runs.items():
            self.versions_doubtful |= span.first_version != self._versions.get(run_id, 0) + 1
            self._versions[run_id] = span.last_version
            if span.open is not None:
                self._follow_run(run_id, opened=span.open)
        for event in part.events:
            self._follow_special(event.position, event.run_id, event)
        if self._gapless:
            for each in part.roots:
                self._append_block(each)
            for leaf in part.leaves:
                self._append_leaf(leaf)
        self.events += part.last - part.first + 1
        self.last_position, self.last_time = part.last, part.last_time
        self._check_checkpoints(part.last)

    def read(self, first: int, last: int, progress: Callable[[], None]) -> None:
        """Read positions ``first`` to ``last`` one by one. Raises ``LedgerMalformed``."""
        self.versions_doubtful = True
        for record, event in _decoded(self._store.records(after=first - 1, upto=last)):
            self._take(record, event)
            if self.events % PROGRESS_EVERY == 0:
                progress()

    def finish(self) -> None:
        """All was read: look at what is left in other tables, and at the head."""
        self._refuse_redactions(self.judged)
        for event_position, position in self._redactions.upto(math.inf):
            if event_position > self._size_after:
                self._unauthorised(position)
            elif self.judged < self.head.size and position <= self.judged:
                self._check_later_redaction(event_position, position)
        for size, *_ in self._checkpoints.upto(math.inf):
            if size > self._size_after:
                self._found.add(size, "checkpoints", "rolled back", "the ledger is shorter than this checkpoint")
        self._check_head()

    # --- one by one ------------------------------------------------------------------------

    def _take(self, record: Record, event: Event | Unreadable) -> None:
        self.events += 1
        self._check_place(record)
        self._rows.check(record, event)
        self._append_row(record)
        if record.type in TERMINAL_TYPES:
            self._follow_run(record.run_id, opened=False)
        elif record.run_id != LEDGER_RUN_ID and record.type not in AFTER_TERMINAL_TYPES:
            self._follow_run(record.run_id, opened=True)
        if record.type in SPECIAL_TYPES:
            self._follow_special(record.position, record.run_id, event)
        self._check_checkpoints(self.last_position)

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
        self.last_time = time

    def _append_row(self, record: Record) -> None:
        leaf = record.leaf_hash
        if not _is_hash(leaf):
            self._found.add(record.position, "leaf_hash", "edited", "a leaf hash has 32 bytes")
            leaf = bytes(HASH_BYTES)
        # The stored leaf, which the row was just compared with: so an edited row is one finding
        # at its position, and the nodes above tell of leaves that were edited as well.
        self._append_leaf(leaf)

    def _follow_run(self, run_id: str, *, opened: bool) -> None:
        if opened:
            self.open_runs[run_id] = None
        else:
            self.open_runs.pop(run_id, None)

    def _follow_special(self, position: int, run_id: object, event: Event | Unreadable) -> None:
        if event.type == REDACTION_TYPE:
            self._check_redaction(position, run_id, event)
        elif isinstance(event, Event) and run_id == LEDGER_RUN_ID:
            self.keys_named.append((position, event.payload["vkey"]))

    # --- the tree --------------------------------------------------------------------------

    def _append_block(self, block: bytes) -> None:
        end = self._frontier.size + FANOUT
        # Within a block only its leaves tell a root; they were hashed again a moment ago.
        if min(self._checkpoints.key, self._marks[-1] if self._marks else math.inf) < end:
            leaves = self._store.read_leaves(end - FANOUT, FANOUT)
            if len(leaves) == FANOUT and all(map(_is_hash, leaves)) and root(leaves) == block:
                for leaf in leaves:
                    self._append_leaf(leaf)
                return
            self._found.add(end - FANOUT + 1, "events", "edited", "changed while they were verified", last=end)
        for node in self._frontier.append_block(block):
            self._check_node(node)
        self._stand_at(end)

    def _append_leaf(self, leaf: bytes) -> None:
        for node in self._frontier.append(leaf):
            self._check_node(node)
        self._stand_at(self._frontier.size)

    def _stand_at(self, size: int) -> None:
        """The tree has this size: is its root asked for?"""
        if not self._gapless:
            return
        while self._marks and self._marks[-1] <= size:
            if self._marks.pop() == size:
                self.roots[size] = self._frontier.root()
        if self._checkpoints.key <= size:
            self._check_checkpoints(size)

    def _check_node(self, node: TreeNode) -> None:
        level, index, expected = node
        stored = self._stored_nodes(level, index)
        if stored is None or not self._gapless:  # with events missing, no node can match: that is found already
            return
        first, last = (index << level * FANOUT_BITS) + 1, (index + 1) << level * FANOUT_BITS
        if not stored:
            self._found.add(first, "tree_nodes", "removed", f"the node of level {level} is missing", last=last)
        elif len(stored) > 1 or stored[0] != (index, expected):
            self._found.add(
                first, "tree_nodes", "edited", f"the node of level {level} is not over these leaves", last=last
            )

    def _stored_nodes(self, level: int, index: int) -> list[tuple[Any, ...]] | None:
        """The next nodes of the level, as far as this one; None where they could not be read, which is found once."""
        try:
            if level not in self._nodes:
                self._nodes[level] = None
                self._nodes[level] = Cursor("tree_nodes", self._store.rows(_NODES_SQL, {"level": level})).open()
            cursor = self._nodes[level]
            return None if cursor is None else list(cursor.upto(index))
        except LedgerMalformed as error:
            self._nodes[level] = None
            self._found.add(None, "tree_nodes", "edited", printable(error))
            return None

    def _check_checkpoints(self, position: int) -> None:
        if self._checkpoints.key > position:
            return
        for size, signed_root, note in self._checkpoints.upto(position):
            if size != self._frontier.size or signed_root != self._frontier.root():
                self.forked.add(size)
                if self._gapless:
                    self._found.add(size, "checkpoints", "forked", "the root signed is not the root of these events")
            elif not _note_says(note, Checkpoint(self.head.origin, size, signed_root)):
                self._found.add(size, "checkpoints", "edited", "the note says something else than its row")

    # --- redactions ------------------------------------------------------------------------

    def _check_redaction(self, position: int, run_id: object, event: Event | Unreadable) -> None:
        """The event's positions, and the rows that name it, are the same ones."""
        self._refuse_redactions(position - 1)
        erased = {row[1] for row in self._redactions.upto(position)}
        named: set[int] = set()
        reason = actor = "unreadable"
        if isinstance(event, Event):
            named.update(_positions(event))
            reason, actor = printable(event.payload["reason"]), printable(event.payload["actor"])
        if run_id != LEDGER_RUN_ID:
            named.clear()
            self._found.add(position, "run_id", "inserted", f"redactions stand in {LEDGER_RUN_ID}")
        for each in sorted(erased - named | {p for p in erased if p >= position}):
            self._unauthorised(each)
        for each in sorted(named - erased):
            self._found.add(each, "redactions", "removed", "an event says that this content was erased")
        if len(self.redactions) < MAX_LISTED:
            whose = scopes_of(self._store, named, position)
            self.redactions.append(Redaction(position, len(named), reason, actor, *whose))
        else:
            self.redactions_left_out += 1

    def _check_later_redaction(self, event_position: int, position: int) -> None:
        """An event after those that are judged erased content of theirs: it is there, but nothing vouches for it."""
        event = next(iter(self._store.events(after=event_position - 1, upto=event_position)), None)
        if (
            isinstance(event, Event)
            and event.type == REDACTION_TYPE
            and event.run_id == LEDGER_RUN_ID
            and (position in _positions(event))
        ):
            self.later_redactions += 1
        else:
            self._unauthorised(position)

    def _refuse_redactions(self, upto: float) -> None:
        if self._redactions.key <= upto:
            for _, position in self._redactions.upto(upto):
                self._unauthorised(position)

    def _unauthorised(self, position: int) -> None:
        self._found.add(position, "redactions", "redacted without authority", "no event orders this erasure")

    # --- the end ---------------------------------------------------------------------------

    def _check_head(self) -> None:
        head, end = self.head, self.last_position
        if not self.events:
            self._found.add(1, "events", "truncated", "a ledger has its first event at least")
        if not self._head_sound:
            return
        self._compare_head("format", head.format, FORMAT)
        if self.judged > end:
            said = "the head says that there are more events"
            self._found.add(end + 1, "events", "truncated", said, last=self.judged)
        elif self._gapless and self.judged == head.size:
            self._compare_head("root", head.root, self._frontier.root())
            self._compare_head("frontier", head.frontier, self._frontier.to_bytes())
            self._compare_head("recorded_at", head.recorded_at, self.last_time)

    def _compare_head(self, member: str, stored: object, computed: object) -> None:
        if stored != computed:
            text = f"its {member} does not follow from the events"
            self._found.add(self.last_position or None, "ledger_head", "edited", text)


def _decoded(records: Iterable[Record]) -> Iterator[tuple[Record, Event | Unreadable]]:
    """Each row with what folds would read of it."""
    for record in records:
        (event,) = decoded([record[:_DECODED_COLUMNS]])
        yield record, event


def _odd_redaction(found: Findings, judged: int, row: tuple[Any, ...]) -> None:
    """A row that no event leads to, since a column of it is no whole number. The rows after it are still read."""
    _, position = row
    if type(position) is not int:
        found.add(None, "redactions", "edited", "the position of a row is no whole number")
    elif position <= judged:
        found.add(position, "redactions", "edited", "the event that it names is no whole number")


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
