"""What an append will write, worked out before anything is written. Pure: no database, no clock.

A group holds many callers' batches. They see one another's versions in order, and a batch that
cannot be appended fails alone: it leaves no trace in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, cast

from ledger.events import EVENT_TYPES, LEDGER_RUN_ID, Event, NewEvent, placed_event
from ledger.integrity.merkle import Frontier
from ledger.store.changes import RowChange, TableFold
from ledger.store.envelope import SALT_BYTES, Envelopes, check, commitment
from ledger.store.errors import EventIdReused, InvalidEvent, LedgerError, PartialBatch, VersionConflict
from ledger.store.expected import Expected, holds
from ledger.store.records import Batch, Head, Known, Receipt, Rows, Stream, encode_content
from ledger.upcast import upcast

FIRST_TYPE: Final = "LedgerCreated"

# What a named tuple's own constructor ends in (see ``placed_event``).
_receipt: Final = cast("Callable[[tuple[Any, ...]], Receipt]", partial(tuple.__new__, Receipt))


class Planner:
    """Takes batches one by one and gathers the rows of those that can be appended.

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
        self._envelope = Envelopes(head.origin).encode
        self._frontier = Frontier.from_bytes(head.size, head.frontier)
        self.rows = Rows([], [], [], [], [])

    def add(self, batch: Batch) -> list[Receipt] | LedgerError:
        """Plan one caller's events: their receipts, or why they cannot be appended."""
        try:
            return self._add(batch)
        except LedgerError as error:
            return error

    def head(self) -> Head:
        """Where the log will stand."""
        frontier = self._frontier
        moved = self._time if self.rows.events else self._head.recorded_at
        return self._head._replace(
            size=frontier.size, root=frontier.root(), frontier=frontier.to_bytes(), recorded_at=moved
        )

    def _add(self, batch: Batch) -> list[Receipt]:
        events = batch.events
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
        self.rows.changes.extend(changes)
        self.rows.redactions.extend(erased)
        self._erasable.difference_update(position for position, _ in erased)
        return self._write(events, placed)

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
        known, time, position = self.versions, self._time, self._frontier.size
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

    def _write(self, events: Sequence[NewEvent], placed: Sequence[Event]) -> list[Receipt]:
        """Write the rows of events, contents and nodes. One loop, as it runs for every event."""
        add_event, add_content = self.rows.events.append, self.rows.contents.append
        grow, envelope, salts, planned = self._frontier.append, self._envelope, self._salts(events), self._planned
        receipts = []
        for event, at in zip(events, placed, strict=True):
            event_id, _, _, _, _, _, payload_json, content, salt = event
            facts = position, _, _, _, _, run_version, _, request_version, time = at[:9]
            committed = None
            if content is not None:
                salt = salt or next(salts)
                add_content((position, salt, *encode_content(content)))
                committed = sha256(b"\x02" + salt + content).hexdigest()
            digest = sha256(payload_json).hexdigest()
            leaf = sha256(b"\x00" + envelope(*facts, digest, committed)).digest()
            add_event((*facts, payload_json.decode(), digest, committed, leaf))
            completed = grow(leaf)
            if completed:
                self.rows.nodes.extend(completed)
            receipt = _receipt((position, event_id, run_version, request_version, time))
            receipts.append(receipt)
            planned[event_id] = (event, receipt)
        return receipts

    def _salts(self, events: Sequence[NewEvent]) -> Iterator[bytes]:
        """A fresh salt for each content that comes without one, drawn by one system call."""
        fresh = sum(event.content is not None and event.salt is None for event in events)
        drawn = self._entropy(SALT_BYTES * fresh)
        return (drawn[at : at + SALT_BYTES] for at in range(0, len(drawn), SALT_BYTES))


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
