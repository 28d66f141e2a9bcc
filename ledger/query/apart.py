"""Work that may not come back in time, done on a thread of its own and left behind there."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar, cast

T = TypeVar("T")


class Apart:
    """A thread that does one piece of work after another. It never keeps the program from ending."""

    def __init__(self) -> None:
        self.is_lost = False
        self._asked: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[object, BaseException | None]] = SimpleQueue()
        Thread(target=_work, args=(self._asked, self._done), daemon=True).start()

    def do(self, work: Callable[[], T], seconds: float) -> T:
        """What the work gives or raises. ``TimeoutError`` after so many seconds.

        Then, or where the wait is broken off by a signal, the work is lost: it may still go on, so that nothing it
        uses may be touched any more, and this thread does nothing else.
        """
        self._asked.put(work)
        try:
            value, error = self._done.get(timeout=seconds)
        except BaseException as broken_off:
            self.is_lost = True
            if isinstance(broken_off, Empty):
                raise TimeoutError from None
            raise
        if error is not None:
            raise error
        return cast(T, value)

    def end(self) -> None:
        """No more work comes; what was lost is let go once it is done."""
        self._asked.put(None)


def _work(
    asked: SimpleQueue[Callable[[], object] | None], done: SimpleQueue[tuple[object, BaseException | None]]
) -> None:
    while (work := asked.get()) is not None:
        try:
            done.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            done.put((None, error))
        del work  # nothing it holds is kept while there is no other
