"""The calls of one run: intent before each call, every outcome recorded, nothing sent twice.

A feeder pages through the requests that have no result yet; ``concurrency`` workers take one at a
time and ask ``decide`` what comes next until the request has its result. What a worker knows of a
request is what the ledger knows: each step is durable before the next begins.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ledger.events import Event, NewEvent, Payload, new_event
from ledger.store import Expected, Store, Writer
from ledger.store.errors import NotKept
from runner.decide import (
    Done,
    Past,
    Record,
    RecordedRequest,
    StartCall,
    call_failed_payload,
    decide,
    model_called_payload,
    plan_retry,
)
from runner.plan import Progress, ProgressEvent
from runner.reply import CallFailure, Exchange, Reply, TransportFault, classify
from runner.requests import BadLine, parse_line
from runner.settings import RunSettings
from runner.stop import StopSignal
from runner.variants import Variant

MAX_FAILURES_IN_A_ROW: Final = 20
PAGE: Final = 128
TRANSPORT_DOWN: Final = frozenset({"transport_connect", "transport_timeout", "transport_cut"})


class Client(Protocol):
    """Whatever makes one HTTP exchange. It scrubs what it gives; it never raises for the network."""

    async def post(self, body: bytes, timeout: float) -> Exchange | TransportFault: ...


class RateLimit:
    """At most so many calls a minute, evenly spaced. A caller is told how long to wait."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap = 0.0 if per_minute is None else 60.0 / per_minute
        self._clock = clock
        self._next = 0.0

    def wait(self) -> float:
        """Seconds until the slot that is now taken."""
        if not self._gap:
            return 0.0
        now = self._clock()
        slot = max(now, self._next)
        self._next = slot + self._gap
        return slot - now


@dataclass(frozen=True)
class RunContext:
    """What all requests of a run share."""

    run_id: str
    variant: Variant
    model: str
    settings: RunSettings


@dataclass
class Pending:
    """A request without a result, and its own events so far."""

    recorded: RecordedRequest
    past: list[Past]
    version: int
    began: float | None = None


@dataclass
class Tally:
    """What this driver has seen. Not a record: the ledger's is."""

    total: int | None = None
    done: int = 0
    accepted: int = 0
    fallbacks: int = 0
    in_flight: int = 0
    calls: int = 0
    answered: int = 0
    down_in_a_row: int = 0

    def progress(self) -> ProgressEvent:
        return ProgressEvent("calls", self.done, self.total, self.accepted, self.fallbacks, self.in_flight)


@dataclass
class Driver:
    """Drives every pending request of a run to its result, or until it is told to stop."""

    store: Store
    writer: Writer
    client: Client
    context: RunContext
    stop: StopSignal
    progress: Progress
    scan_quote: Callable[[bytes], bool]
    jitter: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    tally: Tally = field(default_factory=Tally)
    refused: bool = False
    """The endpoint refused our key: nothing more is sent, and each unsent request is closed."""
    endpoint_down: bool = False
    """Twenty calls in a row met a dead endpoint: nothing more is sent, nothing is closed."""

    async def run(self) -> None:
        """Return when all is decided, or all in flight is settled after a stop."""
        rate = RateLimit(self.context.settings.rpm)
        queue: asyncio.Queue[Pending | None] = asyncio.Queue(maxsize=2 * self.context.settings.concurrency)
        self.tally.total = await asyncio.to_thread(count_pending, self.store, self.context.run_id)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._feed(queue))]
            tasks += [group.create_task(self._work(queue, rate)) for _ in range(self.context.settings.concurrency)]
            guard = asyncio.create_task(self._cancel_at_once(tasks))
            try:
                await asyncio.wait(tasks)
            finally:
                guard.cancel()

    async def _cancel_at_once(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        await self.stop.wait_at_once()
        for task in tasks:
            task.cancel()

    @property
    def _sending_stopped(self) -> bool:
        return self.stop.requested or self.endpoint_down

    async def _feed(self, queue: asyncio.Queue[Pending | None]) -> None:
        pages = pending_pages(self.store, self.context)
        while not self._sending_stopped:
            page = await asyncio.to_thread(next, pages, None)
            if page is None:
                break
            for pending in page:
                await queue.put(pending)
        for _ in range(self.context.settings.concurrency):
            await queue.put(None)

    async def _work(self, queue: asyncio.Queue[Pending | None], rate: RateLimit) -> None:
        while (pending := await queue.get()) is not None:
            # After a stop the queue is only emptied, so that the feeder is never left waiting.
            if not self._sending_stopped and await self._drive(pending, rate):
                self.tally.done += 1
                self.progress(self.tally.progress())

    async def _drive(self, pending: Pending, rate: RateLimit) -> bool:
        """Take one request to its result. False where a stop came first."""
        while True:
            step = self._decide(pending)
            if isinstance(step, Done):
                return True
            if isinstance(step, Record):
                await self._append(pending, step.events)
                continue
            if not await self._may_send(step.wait_ms / 1000, rate):
                return False
            if self.refused:
                continue
            await self._call(pending, step)

    def _decide(self, pending: Pending, *coming: Past) -> StartCall | Record | Done:
        """What comes next, or would come next once what is ``coming`` is recorded too."""
        past = [*pending.past, *coming]
        return decide(pending.recorded, past, stopping=self.refused, scan_quote=self.scan_quote)

    async def _may_send(self, wait: float, rate: RateLimit) -> bool:
        if wait and not await self.stop.sleep(wait):
            return False
        if self._sending_stopped:
            return False
        slot = rate.wait()
        return not slot or (await self.stop.sleep(slot) and not self._sending_stopped)

    async def _call(self, pending: Pending, step: StartCall) -> None:
        """One HTTP attempt: the intent is durable before its first byte, the outcome after."""
        await self._append(pending, [(step.payload, step.body)])
        if pending.began is None:
            pending.began = self.clock()
        left = self.context.settings.request_seconds - (self.clock() - pending.began)
        self.tally.calls += 1
        self.tally.in_flight += 1
        try:
            outcome = await self.client.post(step.body, max(0.001, min(self.context.settings.attempt_seconds, left)))
        finally:
            self.tally.in_flight -= 1
        told = classify(outcome)
        self._count(told)
        if isinstance(told, CallFailure):
            await self._append_with_decision(pending, *self._failed(pending, step, told), None)
        elif isinstance(outcome, Exchange):
            called = model_called_payload(told, outcome, step.payload.attempt, step.payload.turn)
            await self._append_with_decision(pending, called, outcome.body, told)

    def _failed(self, pending: Pending, step: StartCall, failure: CallFailure) -> tuple[Payload, bytes | None]:
        assert pending.began is not None
        turn = step.payload.turn
        attempts = sum(1 for past in pending.past if past.type == "ModelCallStarted" and past.payload["turn"] == turn)
        will_retry, wait_ms = plan_retry(
            failure,
            attempts_in_turn=attempts,
            settings=self.context.settings,
            elapsed_seconds=self.clock() - pending.began,
            jitter=self.jitter(),
        )
        return call_failed_payload(failure, step.payload.attempt, turn, will_retry, wait_ms)

    def _count(self, told: Reply | CallFailure) -> None:
        if isinstance(told, Reply):
            self.tally.answered += 1
            self.tally.down_in_a_row = 0
            return
        if told.stops_run:
            self.refused = True
        down = told.code in TRANSPORT_DOWN or (told.http_status or 0) >= 500
        self.tally.down_in_a_row = self.tally.down_in_a_row + 1 if down else 0
        if self.tally.down_in_a_row >= MAX_FAILURES_IN_A_ROW:
            self.endpoint_down = True

    async def _append_with_decision(
        self, pending: Pending, payload: Payload, content: bytes | None, reply: Reply | None
    ) -> None:
        """The outcome of a call and what follows from it at once are one append."""
        event = self._event(pending, payload, content)
        step = self._decide(pending, Past(event.type, event.payload, event.content, reply))
        follows = step.events if isinstance(step, Record) else ()
        await self._append_events(pending, [event, *(self._event(pending, *one) for one in follows)])

    async def _append(self, pending: Pending, events: Sequence[tuple[Payload, bytes | None]]) -> None:
        await self._append_events(pending, [self._event(pending, *one) for one in events])

    def _event(self, pending: Pending, payload: Payload, content: bytes | None) -> NewEvent:
        return new_event(payload, run_id=self.context.run_id, request_id=pending.recorded.request_id, content=content)

    async def _append_events(self, pending: Pending, events: Sequence[NewEvent]) -> None:
        expected = Expected(self.context.run_id, pending.recorded.request_id, pending.version)
        await self.writer.append(events, [expected])
        pending.version += len(events)
        for event in events:
            pending.past.append(Past(event.type, event.payload, event.content))
            if event.type == "OutputAccepted":
                self.tally.accepted += 1
            elif event.type == "FallbackApplied":
                self.tally.fallbacks += 1


def count_pending(store: Store, run_id: str) -> int:
    """How many accepted requests of the run have no result."""
    rows = store.rows("SELECT count(*) FROM requests WHERE run_id = :run_id AND outcome IS NULL", {"run_id": run_id})
    return int(next(iter(rows))[0])


# By the run's versions, in windows, and everything else looked up row by row: on a table that grew a moment ago, any
# other way in may be planned as a walk over the whole run for each page.
_PENDING_SQL: Final = """
SELECT e.request_id, e.position, e.request_version,
       (SELECT r.line FROM requests r WHERE r.run_id = e.run_id AND r.request_id = e.request_id
           AND r.accepted_position = e.position AND r.outcome IS NULL),
       EXISTS (SELECT 1 FROM model_calls c WHERE c.run_id = e.run_id AND c.request_id = e.request_id)
  FROM events e
 WHERE e.run_id = :run_id AND e.run_version > :after AND e.run_version <= :upto AND e.type = 'RequestAccepted'
 ORDER BY e.run_version
"""


def pending_pages(store: Store, context: RunContext) -> Iterator[list[Pending]]:
    """The requests without a result, in line order, up to ``PAGE`` at a time."""
    end = store.version(context.run_id)
    for after in range(0, end, PAGE):
        window = {"run_id": context.run_id, "after": after, "upto": min(after + PAGE, end)}
        rows = [row for row in store.rows(_PENDING_SQL, window) if row[3] is not None]
        if rows:
            contents = store.contents([position for _, position, *_ in rows])
            yield [_pending(store, context, row, contents) for row in rows]


def _pending(store: Store, context: RunContext, row: tuple[Any, ...], contents: dict[int, bytes]) -> Pending:
    request_id, position, version, line, called = row
    content = contents.get(position)
    if content is None:  # of a run without an end nothing is erased
        raise NotKept(f"{store.shown}: the database did not keep what was written: position {position} has no content")
    parsed = parse_line(line, content, variant_override=context.variant.override)
    if isinstance(parsed, BadLine):
        # Recorded as valid by this or an older version: judging it otherwise now is our fault.
        raise AssertionError(f"line {line}, recorded as a request, no longer reads as one: {parsed.message}")
    recorded = RecordedRequest(request_id, parsed, context.variant, context.model, context.settings)
    past = [Past("RequestAccepted", {}, None)]
    if called:
        past = _past(store, context.run_id, request_id)
        version = version + len(past) - 1
    return Pending(recorded, past, version)


def _past(store: Store, run_id: str, request_id: str) -> list[Past]:
    events = [event for event in store.events(run_id, request_id=request_id) if isinstance(event, Event)]
    started = max(n for n, event in enumerate(events) if event.type == "RequestAccepted")
    events = list(itertools.islice(events, started, None))
    contents = store.contents([event.position for event in events if event.type == "ModelCalled"])
    return [Past(event.type, event.payload, contents.get(event.position)) for event in events]
