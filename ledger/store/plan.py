"""What an append will write, worked out before anything is written. Pure: no database, no clock.

A group holds many callers' batches. They see one another's versions in order, and a batch that
cannot be appended fails alone: it leaves no trace in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

from ledger.events import EVENT_TYPES, LEDGER_RUN_ID, Event, NewEvent, placed_event
from ledger.integrity.merkle import Frontier
from ledger.store.changes import RowChange, TableFold
from ledger.store.envelope import COMMITTED, SALT_BYTES, Envelopes, are_fit, check, commitment
from ledger.store.errors import EventIdReused, InvalidEvent, LedgerError, PartialBatch, VersionConflict
from ledger.store.expected import Expected, holds
from ledger.store.records import Batch, Head, Known, Receipt, Rows, Stream, encode_content
from ledger.upcast import upcast

FIRST_TYPE: Final = "LedgerCreated"

# What a named tuple's own constructor ends in (see ``placed_event``).
_receipt: Final = cast("Callable[[tuple[Any, ...]], Receipt]", partial(tuple.__new__, Receipt))


class _Columns(NamedTuple):
    """The members of a batch's events, each for all of them: what C does for a column, Python need not for each."""

    ids: tuple[str, ...]
    types: tuple[str, ...]
    schemas: tuple[int, ...]
    run_ids: tuple[str, ...]
    request_ids: tuple[str | None, ...]
    payloads: tuple[Mapping[str, Any], ...]
    payload_jsons: tuple[bytes, ...]
    contents: tuple[bytes | None, ...]
    salts: tuple[bytes | None, ...]


class _Places(NamedTuple):
    """Where a batch's events will stand, and since when."""

    positions: Sequence[int]
    run_versions: Sequence[int]
    request_versions: Sequence[int | None]
    times: Sequence[str]


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
        self._envelopes = Envelopes(head.origin)
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
        if not events:
            self._check_expected(batch.expected)
            return []
        columns = _Columns(*zip(*events, strict=True))
        kinds = set(zip(columns.types, columns.schemas, strict=True))
        if not are_fit(columns.ids, kinds, columns.run_ids, columns.request_ids, columns.salts):
            for event in events:
                check(event)
        before = self._receipts_of_known(events, columns.ids)
        if before is not None:
            return before
        self._check_expected(batch.expected)
        versions: dict[Stream, int] = {}
        places = self._place(columns, versions)
        placed = _placed(columns, places, kinds)
        changes = self._fold_all(placed)
        erased = self._erasures(placed) if "ContentRedacted" in columns.types else []
        # Nothing may fail from here on.
        self.versions.update(versions)
        self.rows.changes.extend(changes)
        self.rows.redactions.extend(erased)
        self._erasable.difference_update(position for position, _ in erased)
        receipts = self._write(columns, places)
        self._planned.update(zip(columns.ids, zip(events, receipts, strict=True), strict=True))
        return receipts

    # --- may it be appended? ---------------------------------------------------------------

    def _receipts_of_known(self, events: Sequence[NewEvent], event_ids: Sequence[str]) -> list[Receipt] | None:
        ids = set(event_ids)
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

    def _place(self, columns: _Columns, versions: dict[Stream, int]) -> _Places:
        """Where the events will stand in the log; their streams' new versions go into ``versions``."""
        size, run_ids, count = self._frontier.size, columns.run_ids, len(columns.ids)
        positions = range(size + 1, size + 1 + count)
        if not size or FIRST_TYPE in columns.types:
            _check_first(positions, columns.types)
        known = self.versions
        run_id = run_ids[0]
        run_versions: Sequence[int]
        if run_ids.count(run_id) == count:
            before = known[run_id, None]
            run_versions = range(before + 1, before + 1 + count)
            versions[run_id, None] = before + count
        else:
            run_versions = [_next_version((run_id, None), versions, known) for run_id in run_ids]
        request_versions = [
            None if stream[1] is None else _next_version(stream, versions, known)
            for stream in zip(run_ids, columns.request_ids, strict=True)
        ]
        return _Places(positions, run_versions, request_versions, [self._time] * count)

    def _fold_all(self, placed: Sequence[Event]) -> list[RowChange]:
        changes: list[RowChange] = []
        fold, add = self._fold, changes.extend
        for event in placed:
            try:
                add(fold(event))
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

    def _write(self, columns: _Columns, places: _Places) -> list[Receipt]:
        """Write the rows of events, contents and nodes. Column by column: it runs for every event."""
        facts = _facts_of(columns, places)
        payloads = columns.payload_jsons
        digests = [sha256(payload).hexdigest() for payload in payloads]
        committed = self._commit(columns, places.positions)
        leaves = self._envelopes.leaf_hashes(zip(*facts, digests, committed, strict=True))
        texts = map(bytes.decode, payloads)
        self.rows.events.extend(zip(*facts, texts, digests, committed, leaves, strict=True))
        self.rows.nodes.extend(self._frontier.extend(leaves))
        return list(map(_receipt, zip(places.positions, columns.ids, *places[1:], strict=True)))

    def _commit(self, columns: _Columns, positions: Sequence[int]) -> list[str | None]:
        """Write the rows of contents; give the commitment to each, None where there is none."""
        contents, salts = columns.contents, columns.salts
        # A fresh salt for each content that comes without one, drawn by one system call.
        drawn = self._entropy(SALT_BYTES * (salts.count(None) - contents.count(None)))
        fresh = iter([drawn[at : at + SALT_BYTES] for at in range(0, len(drawn), SALT_BYTES)])
        add, begin = self.rows.contents.append, COMMITTED.copy
        committed: list[str | None] = []
        for position, content, given in zip(positions, contents, salts, strict=True):
            if content is None:
                committed.append(None)
                continue
            salt = given or next(fresh)
            add((position, salt, *encode_content(content)))
            digest = begin()
            digest.update(salt)
            digest.update(content)
            committed.append(digest.hexdigest())
        return committed


def _check_first(positions: Sequence[int], types: Sequence[str]) -> None:
    for position, type_ in zip(positions, types, strict=True):
        if (type_ == FIRST_TYPE) != (position == 1):
            raise InvalidEvent(f"{type_} cannot stand at position {position}: a ledger begins with {FIRST_TYPE}")


def _next_version(stream: Stream, versions: dict[Stream, int], before: Mapping[Stream, int]) -> int:
    version = versions[stream] = (versions.get(stream) or before[stream]) + 1
    return version


def _facts_of(columns: _Columns, places: _Places) -> tuple[Sequence[Any], ...]:
    """The columns of ``events`` from ``position`` to ``recorded_at``."""
    ids, types, schemas, run_ids, request_ids = columns[:5]
    positions, run_versions, request_versions, times = places
    return positions, ids, types, schemas, run_ids, run_versions, request_ids, request_versions, times


def _placed(columns: _Columns, places: _Places, kinds: Iterable[tuple[str, int]]) -> list[Event]:
    """The events as folds will see them, their payloads in the present schema."""
    payloads = columns.payloads
    if any(schema != EVENT_TYPES[type_].SCHEMA for type_, schema in kinds):
        payloads = tuple(map(upcast, columns.types, columns.schemas, payloads))
    return list(map(placed_event, zip(*_facts_of(columns, places), payloads, strict=True)))


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
