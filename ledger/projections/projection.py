"""What a projection is, and which events of a run it consumes.

A projection is a pure fold with a name and a version: the same events give the same bytes, on
both databases, for ever. One that would give other bytes for old events gets a new version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from ledger.events import Event
from ledger.store import Store
from ledger.store.errors import RunNotFound
from ledger.store.records import Unreadable
from ledger.times import format_time


class Projection(Protocol):
    """Starts empty, takes events in order of position, owns no clock and no database."""

    NAME: ClassVar[str]
    VERSION: ClassVar[int]

    def fold(self, event: Event | Unreadable) -> None:
        """Take the next event."""


_P = TypeVar("_P", bound=Projection)
_TOLD_AT_ONCE: Final = 1000


def fold_all(projection: _P, events: Iterable[Event | Unreadable]) -> _P:
    """The projection, once it has taken all of the events."""
    fold = projection.fold
    for event in events:
        fold(event)
    return projection


class Pass(NamedTuple):
    """One pass of a run: from its last ``RunStarted`` to its terminal event.

    ``last`` is the terminal event's position, else the last position that was asked for.
    """

    run_id: str
    first: int
    last: int


_MILESTONES_SQL: Final = """
SELECT position, type FROM events
WHERE run_id = :run_id AND request_id IS NULL AND position <= :upto
  AND type IN ('RunStarted', 'RunCompleted', 'RunBlocked', 'RunAbandoned')
ORDER BY position
"""


def find_pass(store: Store, run_id: str, as_of: int | None = None) -> Pass:
    """The run's last pass at or below position ``as_of`` (the whole ledger, where None).

    Raises ``RunNotFound`` where the run had not started by then.
    """
    upto = store.head().size if as_of is None else as_of
    first, last = 0, upto
    for position, event_type in store.rows(_MILESTONES_SQL, {"run_id": run_id, "upto": upto}):
        if event_type == "RunStarted":
            first, last = position, upto
        elif last == upto:
            last = position
    if not first:
        raise RunNotFound(run_id if as_of is None else f"{run_id} at or below position {as_of}")
    return Pass(run_id, first, last)


def pass_events(store: Store, of: Pass, progress: Callable[[int], Any] | None = None) -> Iterator[Event | Unreadable]:
    """The events of a pass in order of position, streamed. ``progress`` is told of them, a thousand at a time."""
    events = store.events(of.run_id, after=of.first - 1, upto=of.last)
    return events if progress is None else _telling(events, progress)


def _telling(events: Iterable[Event | Unreadable], progress: Callable[[int], Any]) -> Iterator[Event | Unreadable]:
    for number, event in enumerate(events, start=1):
        yield event
        if number % _TOLD_AT_ONCE == 0:
            progress(_TOLD_AT_ONCE)


def unreadable_positions(store: Store, run_id: str, as_of: int | str | None = None) -> Iterator[int]:
    """Positions of the events of the run's last pass that cannot be read, streamed. Errors as for ``report``."""
    of = find_pass(store, run_id, resolve_as_of(store, as_of))
    return (event.position for event in pass_events(store, of) if isinstance(event, Unreadable))


_TIME_SQL: Final = "SELECT recorded_at FROM events WHERE position = :position"


def position_at(store: Store, moment: datetime) -> int:
    """The largest position recorded at or before ``moment``; 0 where there is none.

    Times never go back from one position to the next, so twenty look-ups find the place among a
    million events. Raises ``ValueError`` for a time without an offset.
    """
    wanted = format_time(moment)
    low, high = 0, store.head().size
    while low < high:
        middle = (low + high + 1) // 2
        (recorded_at,) = next(iter(store.rows(_TIME_SQL, {"position": middle})))
        low, high = (middle, high) if recorded_at <= wanted else (low, middle - 1)
    return low


def resolve_as_of(store: Store, as_of: int | str | None) -> int | None:
    """A position from a position, or from an RFC 3339 time with an offset; None stays None.

    Raises ``ValueError`` for anything else, a time without an offset among it.
    """
    if as_of is None:
        return None
    if isinstance(as_of, str) and not as_of.isascii():
        raise ValueError(f"neither a position nor a time: {as_of!a}")
    if isinstance(as_of, int) or as_of.isdigit():
        return int(as_of)
    try:
        moment = datetime.fromisoformat(as_of)
    except ValueError:
        raise ValueError(f"neither a position nor a time: {as_of!r}") from None
    return position_at(store, moment)
