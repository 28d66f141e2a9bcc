"""What an append will write, worked out before anything is written. Pure: no database, no clock.

A group holds many callers' batches. They see one another's versions in order, and a batch that
cannot be appended fails alone: it leaves no trace in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, cast

from ledger.events import EVENT_TYPES, LEDGER_RUN_ID, Event, NewEvent, placed_event
from ledger.integrity.merkle import Frontier
from ledger.store.changes import RowChange, TableFold
from ledger.store.envelope import SALT_BYTES, Envelopes, are_fit, check, commitment
from ledger.store.errors import EventIdReused, InvalidEvent, LedgerError, PartialBatch, VersionConflict
from ledger.store.expected import Expected, holds
from ledger.store.records import Batch, ContentRow, Head, Known, Receipt, Rows, Stream, encode_content
from ledger.upcast import upcast

FIRST_TYPE: Final = "LedgerCreated"

# What a named tuple's own constructor ends in (see ``placed_event``).
_receipt: Final = cast("Callable[[tuple[Any, ...]], Receipt]", partial(tuple.__new__, Receipt))


class Planner:
    """Takes batches and gathers what can be appended of them; at the end it gives the rows of all that.

    ``head``: where the log stands. ``recorded_at``: the time of the whole group. ``versions``: of
    every stream that the batches name (0: no event yet). ``known``: by event id, what of the
    batches' events the ledger holds already. ``erasable``: positions up to the head whose content
    is still there, as far as ``ContentRedacted`` events in the batches name them.
    """

    def __init__(
        self,
        head: Head,
        recorded_at: str,
        *,
        versions: Mapping[Stream, int],
        known: Mapping[str, Known],
        erasable: set[int],
        fold: TableFold,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._head, self._time = head, recorded_at
        self.versions = dict(versions)
        self._known, self._erasable = known, erasable
        self._planned: dict[str, tuple[NewEvent, Receipt]] = {}
        self._fold, self._entropy = fold, entropy
        self._envelopes = Envelopes(head.origin)
        self._events: list[NewEvent] = []
        self._placed: list[Event] = []
        self._changes: list[RowChange] = []
        self._redactions: list[tuple[int, int]] = []

    def add(self, batches: Sequence[Batch]) -> list[list[Receipt] | LedgerError]:
        """Plan each caller's events: their receipts, or why they cannot be appended."""
        fit = _are_fit([event for batch in batches for event in batch.events])
        return [self._tried(batch, fit) for batch in batches]

    def finish(self) -> tuple[Rows, Head]:
        """The rows of all that was planned, and where the log will stand. To be asked once, at the end."""
        frontier = Frontier.from_bytes(self._head.size, self._head.frontier)
        rows = self._rows(frontier) if self._placed else Rows([], [], [], [], [])
        moved = self._time if self._placed else self._head.recorded_at
        head = self._head._replace(
            size=frontier.size, root=frontier.root(), frontier=frontier.to_bytes(), recorded_at=moved
        )
        return rows, head

    def _tried(self, batch: Batch, fit: bool) -> list[Receipt] | LedgerError:
        try:
            return self._add(batch, fit)
        except LedgerError as error:
            return error

    def _add(self, batch: Batch, fit: bool) -> list[Receipt]:
        events = batch.events
        if not fit:
            for event in events:
                check(event)
        before = self._receipts_of_known(events)
        if before is not None:
            return before
        self._check_expected(batch.expected)
        versions: dict[Stream, int] = {}
        placed = self._place(events, versions)
        changes = self._fold_all(placed)
        erased = self._erasures(placed)
        # Nothing may fail from here on.
        self.versions.update(versions)
        self._changes += changes
        self._redactions += erased
        self._erasable.difference_update(position for position, _ in erased)
        self._events += events
        self._placed += placed
        receipts = [_receipt((at[0], at[1], at[5], at[7], at[8])) for at in placed]
        self._planned.update(zip([event.event_id for event in events], zip(events, receipts, strict=True), strict=True))
        return receipts

    # --- may it be appended? ---------------------------------------------------------------

    def _receipts_of_known(self, events: Sequence[NewEvent]) -> list[Receipt] | None:
        ids = {event.event_id for event in events}
        if len(ids) != len(events):
            raise EventIdReused("an event id occurs twice in one batch")
        if ids.isdisjoint(self._planned) and ids.isdisjoint(self._known):
            return None
        receipts = [receipt for event in events if (receipt := self._receipt_of_known(event)) is not None]
        if len(receipts) != len(events):
            raise PartialBatch(f"{len(receipts)} of {len(events)} events of a batch are in the ledger already")
        return receipts

    def _receipt_of_known(self, event: NewEvent) -> Receipt | None:
        planned = self._planned.get(event.event_id)
        if planned is not None:
            first, receipt = planned
            same = _facts(first) == _facts(event) and first.content == event.content
        else:
            known = self._known.get(event.event_id)
            if known is None:
                return None
            receipt, same = known.receipt, _is_same(known, event)
        if not same:
            raise EventIdReused(f"event id {event.event_id} belongs to another event, at position {receipt.position}")
        return receipt

    def _check_expected(self, expectations: Sequence[Expected]) -> None:
        for run_id, request_id, expected in expectations:
            actual = self.versions[run_id, request_id]
            if not holds(expected, actual):
                raise VersionConflict(run_id, request_id, expected, actual)

    def _place(self, events: Sequence[NewEvent], versions: dict[Stream, int]) -> list[Event]:
        """The events as they will stand in the log; their streams' new versions go into ``versions``."""
        placed = []
        known, time, position = self.versions, self._time, self._head.size + len(self._placed)
        for event in events:
            position += 1
            type_, run_id, request_id = event.type, event.run_id, event.request_id
            if (type_ == FIRST_TYPE) != (position == 1):
                raise InvalidEvent(f"{type_} cannot stand at position {position}: a ledger begins with {FIRST_TYPE}")
            run, request = (run_id, None), (run_id, request_id)
            run_version = versions[run] = (versions.get(run) or known[run]) + 1
            request_version = None
            if request_id is not None:
                request_version = versions[request] = (versions.get(request) or known[request]) + 1
            schema, payload = event.schema, event.payload
            if schema != EVENT_TYPES[type_].SCHEMA:
                payload = upcast(type_, schema, payload)
            id_ = event.event_id
            placed.append(
                placed_event(
                    (position, id_, type_, schema, run_id, run_version, request_id, request_version, time, payload)
                )
            )
        return placed

    def _fold_all(self, placed: Sequence[Event]) -> list[RowChange]:
        changes: list[RowChange] = []
        for event in placed:
            try:
                changes.extend(self._fold(event))
            except (LookupError, TypeError, ValueError) as error:
                raise InvalidEvent(f"the payload of {event.type} is not of its form") from error
        return changes

    def _erasures(self, placed: Sequence[Event]) -> list[tuple[int, int]]:
        """The contents that go with ``ContentRedacted`` events: event and erasure are one step."""
        erased: dict[int, int] = {}
        for event in placed:
            if event.type != "ContentRedacted":
                continue
            if event.run_id != LEDGER_RUN_ID:
                raise InvalidEvent(f"ContentRedacted belongs into {LEDGER_RUN_ID}")
            for position in event.payload["positions"]:
                if position not in self._erasable or position in erased:
                    raise InvalidEvent(f"position {position} has no content to erase")
                erased[position] = event.position
        return list(erased.items())

    # --- rows ------------------------------------------------------------------------------

    def _rows(self, frontier: Frontier) -> Rows:
        """The rows of what was planned. Column by column, of all batches at once: it runs for every event."""
        *_, payloads, contents, salts = zip(*self._events, strict=True)
        *facts, _ = zip(*self._placed, strict=True)
        digests = [sha256(payload).hexdigest() for payload in payloads]
        committed, content_rows = self._committed(facts[0], contents, salts)
        leaves = self._envelopes.leaf_hashes(zip(*facts, digests, committed, strict=True))
        texts = map(bytes.decode, payloads)
        event_rows = list(zip(*facts, texts, digests, committed, leaves, strict=True))
        return Rows(event_rows, content_rows, frontier.extend(leaves), self._redactions, self._changes)

    def _committed(
        self, positions: Sequence[int], contents: Sequence[bytes | None], salts: Sequence[bytes | None]
    ) -> tuple[list[str | None], list[ContentRow]]:
        """The commitment to each content, None where there is none, and the rows of those that are there."""
        # A fresh salt for each content that comes without one, drawn by one system call.
        drawn = self._entropy(SALT_BYTES * (salts.count(None) - contents.count(None)))
        fresh = iter([drawn[at : at + SALT_BYTES] for at in range(0, len(drawn), SALT_BYTES)])
        committed: list[str | None] = []
        rows: list[ContentRow] = []
        for position, content, given in zip(positions, contents, salts, strict=True):
            if content is None:
                committed.append(None)
                continue
            salt = given or next(fresh)
            rows.append((position, salt, *encode_content(content)))
            committed.append(commitment(salt, content))
        return committed, rows


def _are_fit(events: Sequence[NewEvent]) -> bool:
    """May all of them enter a ledger? Where not, ``check`` tells which and why."""
    if not events:
        return True
    ids, types, schemas, run_ids, request_ids, _, _, _, salts = zip(*events, strict=True)
    return are_fit(ids, set(zip(types, schemas, strict=True)), run_ids, request_ids, salts)


def _facts(event: NewEvent) -> tuple[object, ...]:
    return event.type, event.schema, event.run_id, event.request_id, event.payload_json


def _is_same(known: Known, event: NewEvent) -> bool:
    if (known.type, known.schema, known.run_id, known.request_id) != _facts(event)[:4]:
        return False
    if known.payload_sha256 != sha256(event.payload_json).hexdigest():
        return False
    if event.content is None or known.content_commitment is None:
        return event.content is None and known.content_commitment is None
    if known.salt is None:
        return known.redacted
    return known.content_commitment == commitment(known.salt, event.content)
