"""Appending from asyncio: many callers wait, one thread writes, and what waits together commits together."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from ledger.events import NewEvent
from ledger.store.append import Outcome
from ledger.store.errors import LedgerError
from ledger.store.expected import Expected
from ledger.store.records import Batch, Receipt
from ledger.store.store import Store

GROUP_EVENTS: Final = 512
"""A group takes what waits until it holds so many events; the rest makes the next one."""

_Waiting = tuple[Batch, "asyncio.Future[list[Receipt]]"]


class Writer:
    """Group commit for one event loop. Made inside it; closed with ``await close()`` or ``async with``.

    What a caller did wrong is raised to that caller. An error of the ledger itself (full, read-only,
    out of reach) is final: it is raised to all who wait and to every later caller.
    """

    def __init__(self, store: Store, *, group_events: int = GROUP_EVENTS) -> None:
        self._store = store
        self._limit = group_events
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._failure: LedgerError | None = None
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    async def append(self, events: Sequence[NewEvent], expected: Sequence[Expected] = ()) -> list[Receipt]:
        """As ``Store.append``; durable when it returns.

        A caller that is cancelled while it waits stops waiting; its events are appended all the same.
        """
        future: asyncio.Future[list[Receipt]] = self._loop.create_future()
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._closing:
                raise RuntimeError("the writer is closed")
            self._waiting.append((Batch(events, expected), future))
            self._changed.notify()
        return await future

    async def close(self) -> None:
        """Append what waits, then end the thread. Closing twice is no error. The store stays open."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.shield(asyncio.to_thread(self._thread.join))

    async def __aenter__(self) -> Writer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while group := self._next_group():
            try:
                outcomes = self._store.append_group([batch for batch, _ in group])
            except LedgerError as error:
                self._fail(group, error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may be left waiting
                failure = LedgerError(f"the ledger's writer stopped: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._fail(group, failure)
                return
            self._wake([future for _, future in group], outcomes)

    def _next_group(self) -> list[_Waiting]:
        """Wait for something to append; give all that waits, up to the limit. Empty: closed and done."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            group: list[_Waiting] = []
            events = 0
            while self._waiting and (not group or events + len(self._waiting[0][0].events) <= self._limit):
                group.append(self._waiting.popleft())
                events += len(group[-1][0].events)
            return group

    def _fail(self, group: Sequence[_Waiting], failure: LedgerError) -> None:
        with self._changed:
            self._failure = failure
            futures = [future for _, future in (*group, *self._waiting)]
            self._waiting.clear()
        self._wake(futures, [failure] * len(futures))

    def _wake(self, futures: Sequence[asyncio.Future[list[Receipt]]], outcomes: Sequence[Outcome]) -> None:
        try:
            self._loop.call_soon_threadsafe(_resolve, futures, outcomes)
        except RuntimeError:  # the loop was closed under us: there is nobody left to tell
            return


def _resolve(futures: Sequence[asyncio.Future[list[Receipt]]], outcomes: Sequence[Outcome]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():  # cancelled
            continue
        if isinstance(outcome, LedgerError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
