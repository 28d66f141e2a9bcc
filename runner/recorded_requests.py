"""A run's requests and lines as the ledger has them, streamed: events, contents, what is erased of them.

A page of requests is read at a time, and of their contents no more than some megabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from ledger.events import Event
from ledger.projections.projection import Pass
from ledger.store import Store, Unreadable
from runner.decide_again import FROM_OUTSIDE, RESULTS, STANDS_ON, Recorded
from runner.intake import INTAKE_TYPES

PAGE: Final = 200
UNDECODABLE: Final = "its content cannot be decoded"
MAX_HELD_BYTES: Final = 8 * 2**20
"""Of contents held at once, as far as the events tell their sizes; one request's are always held whole."""


class Stops:
    """When a refused key had stopped the run: from the refusal on, until a driver took the run up again."""

    def __init__(self, store: Store, of: Pass) -> None:
        found = {"run_id": of.run_id, "first": of.first, "last": of.last, "code": '%"code":"auth_error"%'}
        self._spans: list[tuple[int, int]] = []
        began: int | None = None
        for position, event_type in store.rows(_STOPS_SQL, found):
            if event_type == "ModelCallFailed":
                began = position if began is None else began
            elif began is not None:
                self._spans.append((began, position))
                began = None
        if began is not None:
            self._spans.append((began, of.last + 1))

    def before(self, position: int) -> bool:
        """Had it been stopped when this position was recorded?"""
        return any(began < position < ended for began, ended in self._spans)


_STOPS_SQL: Final = """
SELECT position, type FROM events
WHERE run_id = :run_id AND position >= :first AND position <= :last
  AND (type = 'RunResumed' OR (type = 'ModelCallFailed' AND payload LIKE :code))
ORDER BY position
"""


class Asked(NamedTuple):
    """A request's events since it was accepted. ``lacks``: why its contents are not all there."""

    request_id: str
    events: list[Recorded]
    unreadable: list[Unreadable]
    lacks: Literal["erased", "missing"] | None = None

    @property
    def held_bytes(self) -> int:
        """About how much its contents are: a line is about as long as the body made of it."""
        sizes = [int(event.payload["body_bytes"]) for event in self.events if "body_bytes" in event.payload]
        return sum(sizes) + (sizes[0] if sizes else 0)


# Not by the type of an event: where that was altered, the request would be passed over in silence.
_FIRST_SQL: Final = """
SELECT min(position) FROM events
WHERE run_id = :run_id AND request_id IS NOT NULL AND position >= :first AND position <= :last
GROUP BY request_id ORDER BY 1
"""
_OF_A_REQUEST: Final = STANDS_ON | FROM_OUTSIDE | RESULTS | {"ParseFailed", "Retried"}


def unreadable_of_run(store: Store, of: Pass, upto: int) -> Iterator[Unreadable]:
    """Of the run's own events, from the pass's first to position ``upto``, those that cannot be read or placed."""
    for event in store.events(of.run_id, after=of.first - 1, upto=upto, of_no_request=True):
        if isinstance(event, Unreadable):
            yield event
        elif event.type in _OF_A_REQUEST:
            yield Unreadable(event.position, of.run_id, None, event.type, "it belongs to no request")


def request_pages(store: Store, of: Pass) -> Iterator[list[Asked]]:
    """The pass's requests in the order of their first events, without contents."""
    span = {"run_id": of.run_id, "first": of.first, "last": of.last}
    firsts = array("q", (position for (position,) in store.rows(_FIRST_SQL, span)))
    for start in range(0, len(firsts), PAGE):
        yield _page(store, of, firsts[start : start + PAGE])


def _page(store: Store, of: Pass, firsts: Sequence[int]) -> list[Asked]:
    found: dict[str, Asked] = {}
    for event in store.request_events(firsts, after=of.first - 1, upto=of.last):
        request_id = event.request_id or ""
        first = request_id not in found
        asked = found.setdefault(request_id, Asked(request_id, [], []))
        if isinstance(event, Unreadable):
            asked.unreadable.append(event)
            continue
        asked.events.append(Recorded(event.position, event.type, event.payload, None))
        if first and event.type != "RequestAccepted":
            reason = "before it there is no acceptance of its request"
            asked.unreadable.append(Unreadable(event.position, of.run_id, request_id, event.type, reason))
    return list(found.values())


def with_contents(store: Store, of: Pass, page: Sequence[Asked]) -> Iterator[Asked]:
    """The same requests with their contents, as many at once as there is room for."""
    group: list[Asked] = []
    held = 0
    for asked in page:
        if group and held + asked.held_bytes > MAX_HELD_BYTES:
            yield from _filled(store, of, group)
            group, held = [], 0
        group.append(asked)
        held += asked.held_bytes
    yield from _filled(store, of, group)


def _filled(store: Store, of: Pass, group: Sequence[Asked]) -> Iterator[Asked]:
    broken: set[int] = set()
    contents = store.contents([event.position for asked in group for event in asked.events], broken)
    # In this order: what is erased between the two is missing, and known to be erased.
    missing = {
        event.position: asked.request_id
        for asked in group
        for event in asked.events
        if event.type in STANDS_ON and event.position not in contents and event.position not in broken
    }
    gone = erased(store, sorted(missing))
    lacking: dict[str, Literal["erased", "missing"]] = {}
    for position, request_id in missing.items():
        if position not in gone or lacking.get(request_id) == "missing":
            lacking[request_id] = "missing"
        else:
            lacking[request_id] = "erased"
    for asked in group:
        events = [event._replace(content=contents.get(event.position)) for event in asked.events]
        unreadable = [
            Unreadable(event.position, of.run_id, asked.request_id, event.type, UNDECODABLE)
            for event in events
            if event.position in broken
        ]
        yield asked._replace(
            events=events, unreadable=[*asked.unreadable, *unreadable], lacks=lacking.get(asked.request_id)
        )


def erased(store: Store, positions: Sequence[int]) -> set[int]:
    """Those of the positions whose content was redacted."""
    if not positions:
        return set()
    span = {"low": min(positions), "high": max(positions)}
    return {position for (position,) in store.rows(_REDACTED_SQL, span)} & set(positions)


_REDACTED_SQL: Final = "SELECT position FROM redactions WHERE position >= :low AND position <= :high"


def line_pages(store: Store, of: Pass) -> Iterator[list[Event | Unreadable]]:
    """The pass's recorded lines in order, a page at a time."""
    page: list[Event | Unreadable] = []
    for event in store.events(of.run_id, after=of.first - 1, upto=of.last):
        if event.type == "IntakeCompleted":
            break
        if event.type in INTAKE_TYPES:
            page.append(event)
        if len(page) == PAGE:
            yield page
            page = []
    yield page
