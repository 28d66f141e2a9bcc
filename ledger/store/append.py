"""Appending: one transaction a group, tried again where that can help (docs/ledger-format.md, section 3)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from ledger.store.backend import LOCK_SECONDS, Backend, Opening
from ledger.store.changes import TableFold
from ledger.store.errors import ClockWentBack, ConnectionLost, LedgerBusy, LedgerError, StatementRefused
from ledger.store.plan import Planner
from ledger.store.records import Batch, Head, Receipt, Stream
from ledger.times import format_time

Clock = Callable[[], datetime]
Outcome = list[Receipt] | LedgerError

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
_TRIES: Final = 8
_CACHED_STREAMS: Final = 200_000


def backoff(tries: int = _TRIES, *, deadline: float = LOCK_SECONDS) -> Iterator[None]:
    """Yield once for each try, sleeping 10 ms and then twice as long each time, with jitter."""
    end = time.monotonic() + deadline
    for attempt in range(tries):
        yield
        pause = 0.01 * 2**attempt * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        if time.monotonic() + pause > end:
            return
        time.sleep(pause)


class Versions:
    """The versions of streams, as long as nobody else has moved the head.

    Of a run that began here every stream is known: one that was never met has no event.
    """

    def __init__(self) -> None:
        self._known: dict[Stream, int] = {}
        self._begun: set[str] = set()
        self._root = b""

    def missing(self, streams: Sequence[Stream]) -> list[Stream]:
        """Those that have to be asked for."""
        known, begun = self._known, self._begun
        return [stream for stream in streams if stream not in known and stream[0] not in begun]

    def at(self, head: Head, streams: Sequence[Stream]) -> dict[Stream, int]:
        """What is known of these streams in a log that stands at ``head``; all is forgotten where it has moved."""
        if self._root != head.root:
            self.forget()
            self._root = head.root
            return {}
        known, begun = self._known, self._begun
        found = {}
        for stream in streams:
            version = known.get(stream)
            if version is not None:
                found[stream] = version
            elif stream[0] in begun:
                found[stream] = 0
        return found

    def begin(self, found: Mapping[Stream, int]) -> None:
        """The ledger was asked for these versions: a run without an event begins here, if at all."""
        self._begun.update(
            run_id for (run_id, request_id), version in found.items() if request_id is None and not version
        )

    def keep(self, head: Head, versions: dict[Stream, int]) -> None:
        """The log stands at ``head`` now, and these streams at these versions."""
        if len(versions) + len(self._known) > _CACHED_STREAMS:
            self.forget()
        self._known.update(versions)
        self._root = head.root

    def forget(self) -> None:
        """Know nothing."""
        self._known, self._begun, self._root = {}, set(), b""


class Appender:
    """Appends groups of batches to one ledger. Not for two threads at once: the backend's lock sees to that."""

    def __init__(self, backend: Backend, *, fold: TableFold, clock: Clock | None, accept_clock: bool) -> None:
        self._backend, self._fold = backend, fold
        self._clock, self._accept_clock = clock, accept_clock
        self._cache = Versions()

    def append_group(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Append many callers' batches in one transaction; see ``Store.append_group``."""
        try:
            return self._tried(batches)
        except StatementRefused as error:
            # The database refused a row. Whose it was is found out by appending each alone.
            if len(batches) == 1:
                return [error]
        outcomes: list[Outcome] = []
        for batch in batches:
            outcomes.extend(self.append_group([batch]))
        return outcomes

    def _tried(self, batches: Sequence[Batch]) -> list[Outcome]:
        failure: LedgerError | None = None
        for _ in backoff():
            try:
                return self._once(batches)
            except LedgerBusy as error:
                failure = error
            except ConnectionLost as error:
                # Were the events committed or not? Trying again settles it: their ids are looked
                # up under the head's lock, which a session that is still committing holds.
                failure = error
                self._backend.reconnect()
        assert failure is not None
        raise failure

    def _once(self, batches: Sequence[Batch]) -> list[Outcome]:
        streams = _streams(batches)
        event_ids = [event.event_id for batch in batches for event in batch.events]
        with self._backend.exclusive():
            try:
                opening = self._backend.begin(event_ids, self._cache.missing(streams))
                planner = self._planner(opening, streams, batches)
                outcomes = planner.add(batches)
                rows, head = planner.finish()
                if not rows.events:
                    self._backend.rollback()
                    return outcomes
                self._backend.finish(rows, head)
            except BaseException:
                self._cache.forget()
                self._backend.rollback()
                raise
            self._cache.keep(head, planner.versions)
            return outcomes

    def _planner(self, opening: Opening, streams: Sequence[Stream], batches: Sequence[Batch]) -> Planner:
        versions = self._cache.at(opening.head, streams) | opening.versions
        asked = opening.versions
        if len(versions) < len(streams):  # the head was moved by another writer, so what was cached is worth nothing
            asked = self._backend.versions([stream for stream in streams if stream not in versions])
            versions |= asked
        self._cache.begin(asked)
        named = _redacted_positions(batches)
        return Planner(
            opening.head,
            self._time(opening),
            versions=versions,
            known=opening.known,
            erasable=self._backend.erasable(named) if named else set(),
            fold=self._fold,
            entropy=os.urandom,
        )

    def _time(self, opening: Opening) -> str:
        """The one time of the transaction: the clock's, but never before the last event's."""
        moment = opening.now if self._clock is None else self._clock()
        text, last = format_time(moment), opening.head.recorded_at
        if last is None or text >= last:
            return text
        behind = datetime.fromisoformat(last) - moment
        if behind > CLOCK_TOLERANCE and not self._accept_clock:
            raise ClockWentBack(
                f"the clock says {text}, but the last event was recorded at {last}: set the clock right, "
                "or accept that events are recorded under the later time (--accept-clock)"
            )
        return last


def _streams(batches: Sequence[Batch]) -> list[Stream]:
    """Every stream that the batches name, each once."""
    streams: dict[Stream, None] = {}
    for batch in batches:
        before = None
        for event in batch.events:
            run_id, request_id = event.run_id, event.request_id
            if run_id != before:
                streams[run_id, None] = None
                before = run_id
            if request_id is not None:
                streams[run_id, request_id] = None
        for run_id, request_id, _ in batch.expected:
            streams[run_id, request_id] = None
    return list(streams)


def _redacted_positions(batches: Sequence[Batch]) -> list[int]:
    return [
        position
        for batch in batches
        for event in batch.events
        if event.type == "ContentRedacted"
        for position in event.payload.get("positions", ())
    ]
