"""``conversations``: each line of a run with its events and their contents, in line order: the joined reading.

For what shows a person the whole of it: what was sent, what came back, what was made of that. Each content
is held against its commitment, and is lawfully erased, or missing, or altered, in so many words. Streamed:
the events of a page of requests at a time, the contents of one request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, Protocol

from ledger.events import Event
from ledger.projections.commitments import Kept, kept
from ledger.projections.incidents import PAGE, Incident, incidents
from ledger.projections.projection import Pass, find_pass, resolve_as_of
from ledger.store import Store, Unreadable

State = Literal["none", "held", "altered", "erased", "missing", "undecodable"]
FAULTS: Final = frozenset({"altered", "missing", "undecodable"})
"""States that no lawful history leads to."""


class Evidence(NamedTuple):
    """An event's content. ``body`` is there where it is ``held``, or ``altered``: not what was recorded."""

    position: int
    state: State
    body: bytes | None = None
    redacted_by: int | None = None


class Told(NamedTuple):
    """An event of a request, and its content."""

    event: Event | Unreadable
    evidence: Evidence


class Conversation(NamedTuple):
    """A line as facts, and the request's events; none where the line was refused."""

    incident: Incident
    told: Sequence[Told]

    def faults(self) -> Iterator[Evidence]:
        """Contents that are not what was recorded, or not there without a reason."""
        return (told.evidence for told in self.told if told.evidence.state in FAULTS)


class AskedField(NamedTuple):
    """A field of a contract: what it must be, in words."""

    name: str
    words: str
    required: bool


class Answer(NamedTuple):
    """What a reply holds: its text, and the object that the text is. Null where there is none."""

    text: str | None
    fields: Mapping[str, Any] | None


class Reader(Protocol):
    """Reads what lines and replies say, as the runner does."""

    def asked(self, accepted: Mapping[str, Any], line: bytes) -> Sequence[AskedField]:
        """The fields of a request's contract; none where the line does not read as a request."""

    def answered(self, called: Mapping[str, Any], body: bytes) -> Answer:
        """What a reply says."""


def as_of_position(store: Store, as_of: int | str | None) -> int:
    """The position up to which is read: fixed, so that several readings are of the same events."""
    upto = resolve_as_of(store, as_of)
    return store.head().size if upto is None else upto


def chosen(
    store: Store, run_id: str, upto: int, request_ids: Collection[str] | None = None
) -> Iterator[tuple[Incident, Incident | None, Incident | None]]:
    """Each line, with the one before and the one after it. ``request_ids``: only these accepted requests."""
    before: Incident | None = None
    found = _chosen(store, run_id, upto, request_ids)
    this = next(found, None)
    while this is not None:
        after = next(found, None)
        yield this, before, after
        before, this = this, after


def _chosen(store: Store, run_id: str, upto: int, request_ids: Collection[str] | None) -> Iterator[Incident]:
    every = incidents(store, run_id, upto)
    if request_ids is None:
        return every
    return (one for one in every if one.incident_id is not None and one.request_id in request_ids)


def conversations(
    store: Store, run_id: str, upto: int, request_ids: Collection[str] | None = None
) -> Iterator[Conversation]:
    """The same lines, each with its events. Errors as for ``report``."""
    of = find_pass(store, run_id, upto)
    every = _chosen(store, run_id, upto, request_ids)
    while page := list(islice(every, PAGE)):
        events = _events(store, of, page)
        for incident in page:
            yield Conversation(incident, _told(store, events.pop(incident.position, ())))


def _events(store: Store, of: Pass, page: Iterable[Incident]) -> dict[int, list[Event | Unreadable]]:
    """Of each accepted request of the page, by its position, every event of the pass."""
    accepted = {one.position: one.request_id for one in page if one.incident_id is not None}
    if not accepted:
        return {}
    found: dict[int, list[Event | Unreadable]] = {position: [] for position in accepted}
    by_request = {request_id: found[position] for position, request_id in accepted.items()}
    for event in store.request_events(list(accepted), after=of.first - 1, upto=of.last):
        if event.request_id in by_request:
            by_request[event.request_id].append(event)
    return found


def _told(store: Store, events: Sequence[Event | Unreadable]) -> list[Told]:
    if not events:
        return []
    found = evidence(store, [event.position for event in events])
    return [Told(event, found[event.position]) for event in events]


def evidence(store: Store, positions: Sequence[int]) -> dict[int, Evidence]:
    """The contents of these events, a request's say, each held against what is on record of it."""
    undecodable: set[int] = set()
    # In this order: what is erased between the two is missing, and known to be erased.
    contents = store.contents(positions, undecodable)
    on_record = kept(store, positions)
    return {position: _evidence(position, on_record.get(position), contents, undecodable) for position in positions}


def _evidence(position: int, of: Kept | None, contents: Mapping[int, bytes], undecodable: Collection[int]) -> Evidence:
    if of is not None and of.redacted_by is not None:
        return Evidence(position, "erased", redacted_by=of.redacted_by)
    if position in undecodable:
        return Evidence(position, "undecodable")
    if position not in contents:
        return Evidence(position, "none" if of is not None and of.commitment is None else "missing")
    body = contents[position]
    return Evidence(position, "held" if of is not None and of.matches(body) else "altered", body)
