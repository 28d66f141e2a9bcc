"""Ctrl-C and SIGTERM while a run is driven: a polite stop, and a way out of a wait for input."""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import BinaryIO, Final

import click

from commands._failures import STOPPED
from commands._output import say
from runner.stop import Signal, StopSignal

_CHUNK: Final = 1 << 20
_NAMES: Final[dict[int, Signal]] = {signal.SIGINT: "SIGINT", signal.SIGTERM: "SIGTERM"}


class InputInterrupted(Exception):
    """A signal came while the next line of a pipe or a terminal was waited for."""

    def __init__(self, name: Signal) -> None:
        self.exit_code = STOPPED[name]
        super().__init__(f"stopped by {name} while waiting for input; a run that had begun goes on with its whole file")


class WaitingReader(io.BufferedIOBase):
    """A pipe or a terminal whose lines are waited for. ``waiting``: the event loop stands still until one comes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._again = io.BytesIO()
        self._keeping: io.BytesIO | None = None
        self.waiting = False

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(partial(self.read, _CHUNK), b""))
        return self._take(lambda stream: stream.read(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._take(lambda stream: stream.readline(-1 if size is None else size))

    @contextmanager
    def looking_ahead(self) -> Iterator[None]:
        """What is read within the block is read again after it, in the same pieces where it is asked for alike."""
        self._keeping = io.BytesIO()
        try:
            yield
        finally:
            self._again, self._keeping = io.BytesIO(self._keeping.getvalue()), None

    def _take(self, read: Callable[[BinaryIO], bytes]) -> bytes:
        found = read(self._again)
        if not found:
            self.waiting = True
            try:
                found = read(self._stream)
            finally:
                self.waiting = False
        if self._keeping is not None:
            self._keeping.write(found)
        return found


@contextmanager
def heard_by(stop: StopSignal, reader: BinaryIO | WaitingReader | None) -> Iterator[None]:
    """Within the block, in a coroutine: signals ask for a stop, or end a wait for input with ``InputInterrupted``.

    The handlers are plain ones, not the event loop's: those wait for the loop, which waits for the input.
    """
    loop = asyncio.get_running_loop()

    def hear(number: int, _: FrameType | None) -> None:
        if isinstance(reader, WaitingReader) and reader.waiting:
            raise InputInterrupted(_NAMES[number])
        loop.call_soon_threadsafe(_ask, stop, _NAMES[number])

    before = {number: signal.signal(number, hear) for number in _NAMES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Within the block SIGTERM ends the program the way Ctrl-C does: what was begun beside a file is taken away."""

    def end(_number: int, _frame: FrameType | None) -> None:
        say("Stopped.")
        raise click.exceptions.Exit(STOPPED["SIGTERM"])

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _ask(stop: StopSignal, name: Signal) -> None:
    if not stop.requested:
        say("", "Stopping: nothing more is sent, replies in flight are awaited. Once more stops at once.")
    stop.request(name)
