"""A line on a terminal that says how far a run is. Elsewhere there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from commands._output import is_terminal
from runner.plan import ProgressEvent

_EVERY: Final = 0.2
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
    """Redraws its one line at most five times a second; ``close`` takes it away."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._first: Moment | None = None
        self._drawn_at: float | None = None

    def __call__(self, event: ProgressEvent) -> None:
        now = Moment(self._clock(), event)
        if self._first is None or self._first.event.phase != event.phase:
            self._first, self._drawn_at = now, None
        if self._drawn_at is not None and now.seconds - self._drawn_at < _EVERY:
            return
        self._drawn_at = now.seconds
        self._draw(_CLEAR + describe(self._first, now))

    def close(self) -> None:
        if self._drawn_at is not None:
            self._draw(_CLEAR)

    def _draw(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._drawn_at = None


def terminal_line(stream: TextIO | None) -> TerminalLine | None:
    """A progress line where the stream is a terminal, else None."""
    return TerminalLine(stream) if stream is not None and is_terminal(stream) else None
