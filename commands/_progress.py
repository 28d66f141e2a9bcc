"""A line on a terminal that says how far a run is. Elsewhere there is none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from commands._output import is_terminal

if TYPE_CHECKING:
    from runner.plan import ProgressEvent

_EVERY: Final = 0.2
_WIDTH: Final = 100
_CLEAR: Final = "\r\x1b[K"


@dataclass(frozen=True)
class Moment:
    """A progress event and when it came, in seconds of a clock that never goes back."""

    seconds: float
    event: ProgressEvent


def describe(first: Moment, now: Moment) -> str:
    """One line of at most 100 characters: counts, rate, time left."""
    event = now.event
    if event.phase == "intake":
        return f"reading: {event.done:,} lines"
    total = "?" if event.total is None else f"{event.total:,}"
    parts = [f"{event.done:,}/{total} requests", f"{event.accepted:,} accepted", f"{event.fallbacks:,} fallback"]
    parts.append(f"{event.in_flight} in flight")
    elapsed = now.seconds - first.seconds
    finished = event.done - first.event.done
    if elapsed >= 1 and finished > 0:
        rate = finished / elapsed
        parts.append(f"{rate:,.1f}/s")
        if event.total is not None:
            parts.append(f"{_duration((event.total - event.done) / rate)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class TerminalLine:
    """Redraws its one line at most five times a second; ``close`` takes it away.

    Without a stream, or where it is no terminal, it draws nothing.
    """

    def __init__(self, stream: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if is_terminal(stream) else None
        self._clock = clock
        self._first: Moment | None = None
        self._drawn_at: float | None = None

    def __enter__(self) -> TerminalLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn_at is not None:
            self._write(_CLEAR)

    def run(self, event: ProgressEvent) -> None:
        """Where a run stands."""
        now = Moment(self._clock(), event)
        if self._first is None or self._first.event.phase != event.phase:
            self._first, self._drawn_at = now, None
        self._draw(now.seconds, describe(self._first, now))

    def events(self, done: int, total: int, what: str = "events") -> None:
        """How many events (or whatever it is) of how many have been dealt with."""
        self._draw(self._clock(), f"{done:,}/{total:,} {what}")

    def counter(self, total: int) -> Callable[[int], None]:
        """A function that is told how many more events have been dealt with, of ``total``."""
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            self.events(min(done, total), total)

        return count

    def records(self, done: int) -> None:
        """How many records of a file have been read."""
        self._draw(self._clock(), f"reading: {done:,} {'record' if done == 1 else 'records'}")

    def _draw(self, now: float, text: str) -> None:
        if self._drawn_at is None or now - self._drawn_at >= _EVERY:
            self._drawn_at = now
            self._write(_CLEAR + text[: self._columns() - 1])

    def _columns(self) -> int:
        with suppress(OSError, ValueError):
            if self._stream is not None:
                return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        return _WIDTH

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
