"""Slices verified one after another in this process, or side by side in several, given back in order.

A slice that cannot be read is given as not whole: whoever reads it row by row comes upon the same
error, and says where.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from ledger.integrity.slices import SLICE, Checked, check_slice
from ledger.projections.stored import stored_total
from ledger.store import Store, open_store
from ledger.store.errors import LedgerMalformed, NotALedger, StatementRefused

_AHEAD: Final = 2
"""Slices in hand for each process beside the one it works on."""

T = TypeVar("T")

_NOTHING: Final = Checked(None, None)


class Part(NamedTuple):
    """Positions ``first`` to ``last`` and what was found of them."""

    first: int
    last: int
    checked: Checked


class Slicer:
    """Verifies slices of one ledger, and adds up its projection tables, within a ``with``.

    ``key``: what those sums are made under. ``jobs``: processes.
    """

    def __init__(self, store: Store, origin: str, key: bytes | None, jobs: int) -> None:
        self._store, self._origin, self._key = store, origin, key
        self._jobs = 1 if store.url is None else jobs
        self._executor: ProcessPoolExecutor | None = None

    def parts(self, after: int, upto: int) -> Iterator[Part]:
        """Positions after ``after`` up to ``upto``, slice by slice, in order."""
        starts = range(after + 1, upto + 1, SLICE)
        side_by_side = self._jobs > 1 and len(starts) > 1
        waiting: deque[tuple[int, int, Future[Checked] | None]] = deque()
        for first in starts:
            last = min(first + SLICE - 1, upto)
            waiting.append((first, last, self._submitted(_check, first, last) if side_by_side else None))
            if not side_by_side or len(waiting) > self._jobs * (1 + _AHEAD):
                yield self._settled(*waiting.popleft())
        while waiting:
            yield self._settled(*waiting.popleft())

    def totals(self, tables: Iterable[str]) -> list[int]:
        """The sum over each table's rows, as stored. Raises ``Unusual``."""
        assert self._key is not None
        waiting = [(table, self._submitted(_add_up, table) if self._executor else None) for table in tables]
        return [self._total(table, future) for table, future in waiting]

    def _total(self, table: str, future: Future[int] | None) -> int:
        assert self._key is not None
        try:
            return stored_total(self._store, self._key, table) if future is None else future.result()
        except BrokenProcessPool:
            return stored_total(self._store, self._key, table)

    def _settled(self, first: int, last: int, future: Future[Checked] | None) -> Part:
        try:
            if future is not None:
                return Part(first, last, future.result())
        except BrokenProcessPool:
            pass  # a process was killed, or could not begin: what it was to do is done here
        return Part(first, last, _checked(self._store, self._origin, first, last, self._key))

    def _submitted(self, work: Callable[..., T], *arguments: Any) -> Future[T] | None:
        if self._executor is None:
            # Not by fork: another thread of this process is reading the same database.
            spawned = multiprocessing.get_context("spawn")
            begin = partial(_begin, str(self._store.url), self._origin, self._key)
            self._executor = ProcessPoolExecutor(self._jobs, mp_context=spawned, initializer=begin)
        try:
            return self._executor.submit(work, *arguments)
        except BrokenProcessPool:
            return None

    def __enter__(self) -> Slicer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)


def _checked(store: Store, origin: str, first: int, last: int, key: bytes | None) -> Checked:
    try:
        return check_slice(store, origin, first, last, key)
    except (LedgerMalformed, NotALedger, StatementRefused):
        return _NOTHING


# --- in a process of its own ---------------------------------------------------------------


class _Worker(NamedTuple):
    store: Store
    origin: str
    key: bytes | None


_worker: list[_Worker] = []


def _begin(url: str, origin: str, key: bytes | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    _worker[:] = [_Worker(open_store(url, "read", even_damaged=True), origin, key)]


def _check(first: int, last: int) -> Checked:
    (worker,) = _worker
    return _checked(worker.store, worker.origin, first, last, worker.key)


def _add_up(table: str) -> int:
    (worker,) = _worker
    assert worker.key is not None
    return stored_total(worker.store, worker.key, table)
