"""Redaction: erase the content of a run, or of one request of it; what was done stays proven.

The envelopes and payloads stay, so every hash and every report stays as it was. A ``ContentRedacted``
event in ``$ledger`` names the positions, and the store erases them in the same transaction
(docs/ledger-format.md, section 7). An erasure cannot be undone, so whatever forbids it is looked up
as the ledger stands at that append: each names the versions of ``$ledger`` and of the run that the
decision was made on, and where either has moved it is made again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ledger.events import LEDGER_RUN_ID, TERMINAL_TYPES, ContentRedacted, new_event
from ledger.integrity.guards import foreign_triggers
from ledger.integrity.holds import By, expected_at, read_keeping, shown_scope
from ledger.integrity.keeping import Hold, Keeping, may_go_at
from ledger.integrity.row_security import row_security
from ledger.integrity.verdict import MAX_LISTED
from ledger.store import Expected, Store
from ledger.store.append import Clock
from ledger.store.errors import LedgerBusy, LedgerError, RunNotFound, VersionConflict
from ledger.times import format_time

POSITIONS_AN_EVENT: Final = 1000
_TRIES: Final = 20

Progress = Callable[[int, int], None]
"""Called with (contents erased, contents to be erased in all)."""


class RequestNotFound(LedgerError):
    """The run has no such request."""

    exit_code = 2

    def __init__(self, run_id: str, request_id: str) -> None:
        super().__init__(f"run {run_id} has no request {request_id}")


class RunNotEnded(LedgerError):
    """The run still needs its content: calls are built from what was recorded."""

    exit_code = 2

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} has not ended and still needs its content: resume it or abandon it first")


class Held(LedgerError):
    """A legal hold forbids the erasure."""

    exit_code = 1

    def __init__(self, holds: list[Hold]) -> None:
        self.holds = holds
        named = ", ".join(f"{hold.hold_id} on {shown_scope(hold)}" for hold in holds)
        super().__init__(f"a legal hold forbids the erasure: {named}")


class TooYoung(LedgerError):
    """The retention floor forbids the erasure."""

    exit_code = 1

    def __init__(self, days: int, youngest: str, until: datetime | None) -> None:
        when = "never be erased" if until is None else f"be erased from {format_time(until)} on"
        super().__init__(f"content is kept for {days} days, and some of this was recorded at {youngest}: it may {when}")


class ForeignTriggers(LedgerError):
    """Somebody's own trigger or rule stands on the ledger's tables, and could keep a copy of what is erased.

    The answer is no, as for a hold, until a person has looked at it: an erasure cannot be done again.
    """

    exit_code = 1

    def __init__(self, named: list[str]) -> None:
        more = f", and {len(named) - MAX_LISTED} more" if len(named) > MAX_LISTED else ""
        super().__init__(
            f"{', '.join(named[:MAX_LISTED])}{more}: it could keep a copy of what is erased, so nothing was erased. "
            "Look at what it does and what it has kept, drop it, and run the same command again"
        )


class RowsHidden(LedgerError):
    """Row-level security hides rows from who would erase: what is not seen would stay, and nobody would know."""

    exit_code = 1

    def __init__(self, tables: tuple[str, ...]) -> None:
        super().__init__(
            f"row-level security may hide rows of {', '.join(tables)} from this role, so that not all would be erased; "
            "nothing was. Erase as the owner of the tables, or switch it off"
        )


class Target(NamedTuple):
    """Whose content: a run's, or one request's of it."""

    run_id: str
    request_id: str | None = None


class Erasable(NamedTuple):
    """Contents that are still there, of one event type: how many, and their bytes as stored."""

    type: str
    contents: int
    bytes: int


class Survey(NamedTuple):
    """What an erasure would take. ``youngest``: when the last of it was recorded; None where nothing is left.

    ``run_version`` and ``keeping`` are what it was decided on.
    """

    erasable: list[Erasable]
    youngest: str | None
    run_version: int
    keeping: Keeping

    @property
    def contents(self) -> int:
        """How many contents."""
        return sum(item.contents for item in self.erasable)

    @property
    def bytes(self) -> int:
        """Their bytes as stored."""
        return sum(item.bytes for item in self.erasable)


class Redacted(NamedTuple):
    """What was erased: how many contents, and the positions of the events that say so."""

    contents: int
    events: list[int]


# --- what there is -------------------------------------------------------------------------

# A line that was rejected, or that leaked, is an event of the run; its request is in the payload. In
# canonical JSON a quote within a value is escaped, so this text is nothing but that member.
_OF_RUN: Final = "SELECT position, type, recorded_at FROM events WHERE run_id = :run_id"
_OF_REQUEST: Final = """
SELECT position, type, recorded_at FROM events WHERE run_id = :run_id AND request_id = :request_id
UNION ALL
SELECT position, type, recorded_at FROM events
WHERE run_id = :run_id AND request_id IS NULL AND type IN ('RequestRejected', 'LeakRejected')
  AND replace(payload, :member, '') <> payload
"""
_BYTES: Final = {"sqlite": "length(CAST(c.body AS BLOB))", "postgresql": "octet_length(c.body)"}
_LAST_SQL: Final = """
SELECT type FROM events WHERE run_id = :run_id AND request_id IS NULL
  AND type IN ('RunStarted', 'RunCompleted', 'RunBlocked', 'RunAbandoned')
ORDER BY run_version DESC LIMIT 1
"""


def _scope(target: Target) -> tuple[str, dict[str, str]]:
    """A SELECT of the target's events (position, type, recorded_at), and its parameters."""
    if target.request_id is None:
        return _OF_RUN, {"run_id": target.run_id}
    member = f'"request_id":"{target.request_id}"'
    return _OF_REQUEST, {"run_id": target.run_id, "request_id": target.request_id, "member": member}


def survey(store: Store, target: Target, *, clock: Clock | None = None) -> Survey:
    """What would go, and that it may. Only reads.

    ``clock``: the time that the retention floor is measured at; None asks the ledger's, which is
    the server's on Postgres and the host's on SQLite.

    Raises ``RunNotFound``, ``RequestNotFound``, ``RunNotEnded``, ``Held``, ``TooYoung``, ``ForeignTriggers``,
    ``RowsHidden``, and ``UnreadableEvent`` where nobody can tell what must be kept.
    """
    # The versions first: what is appended after they were read is then seen as a conflict.
    keeping = read_keeping(store)
    run_version = store.version(target.run_id)
    _check_target(store, target, run_version)
    holds = keeping.holds_on(target.run_id)
    if holds:
        raise Held(holds)
    foreign = foreign_triggers(store)
    if foreign:
        raise ForeignTriggers(foreign)
    hiding = row_security(store).hiding
    if hiding:
        raise RowsHidden(hiding)
    found = _erasable(store, target)
    youngest = max((recorded_at for _, recorded_at in found), default=None)
    if youngest is not None and keeping.days:
        _check_age(youngest, keeping.days, clock() if clock else ledger_time(store))
    return Survey([item for item, _ in found], youngest, run_version, keeping)


def _check_target(store: Store, target: Target, run_version: int) -> None:
    run_id, request_id = target
    if run_version == 0 or run_id == LEDGER_RUN_ID:
        raise RunNotFound(run_id)
    scope, params = _scope(target)
    if request_id is not None and not any(store.rows(f"SELECT 1 FROM ({scope}) AS s LIMIT 1", params)):  # noqa: S608
        raise RequestNotFound(run_id, request_id)
    last = [row[0] for row in store.rows(_LAST_SQL, {"run_id": run_id})]
    if not last or last[0] not in TERMINAL_TYPES:
        raise RunNotEnded(run_id)


def _erasable(store: Store, target: Target) -> list[tuple[Erasable, str]]:
    scope, params = _scope(target)
    sql = f"""
        SELECT s.type, count(*), sum({_BYTES[store.dialect]}), max(s.recorded_at)
        FROM ({scope}) AS s JOIN contents AS c ON c.position = s.position GROUP BY s.type ORDER BY s.type
    """  # noqa: S608 - our own text
    return [(Erasable(kind, count, int(size)), latest) for kind, count, size, latest in store.rows(sql, params)]


def _check_age(youngest: str, days: int, now: datetime) -> None:
    until = may_go_at(youngest, days)
    if until is None or now < until:
        raise TooYoung(days, youngest, until)


def ledger_time(store: Store) -> datetime:
    """Now, by the clock that the ledger's own times come from."""
    if store.dialect == "sqlite":
        return datetime.now(UTC)
    ((now,),) = store.rows("SELECT clock_timestamp()")
    return datetime.fromisoformat(now)


def _positions(store: Store, target: Target) -> array[int]:
    scope, params = _scope(target)
    sql = f"SELECT s.position FROM ({scope}) AS s JOIN contents AS c ON c.position = s.position ORDER BY s.position"  # noqa: S608
    return array("q", (position for (position,) in store.rows(sql, params)))


# --- erasing -------------------------------------------------------------------------------


def redact(
    store: Store,
    target: Target,
    *,
    reason: str,
    by: By,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Redacted:
    """Erase all content of the run, or of the one request, that is still there.

    At most 1,000 contents an event, each with its erasure durable before the next one begins: what
    was interrupted is finished by doing it again. ``reason``: a code, a fact; ``by`` is content.
    Call ``Store.erase_traces`` afterwards, also where there was nothing left to erase.

    Raises as ``survey``, and as ``Store.append``: what was erased before that stays erased.
    """
    done = Redacted(0, [])
    conflict: VersionConflict | None = None
    for _ in range(_TRIES):
        found = survey(store, target, clock=clock)
        try:
            return _erase(store, target, found, reason=reason, by=by, before=done, progress=progress)
        except _Interrupted as stopped:
            done, conflict = stopped.done, stopped.conflict
    raise LedgerBusy(f"{store.shown}: others append to the run or to {LEDGER_RUN_ID} all the time ({conflict})")


class _Interrupted(Exception):
    """Somebody appended between the look and the append: look again."""

    def __init__(self, done: Redacted, conflict: VersionConflict) -> None:
        self.done, self.conflict = done, conflict
        super().__init__()


def _erase(
    store: Store, target: Target, found: Survey, *, reason: str, by: By, before: Redacted, progress: Progress | None
) -> Redacted:
    positions = _positions(store, target)
    contents, events = before.contents, list(before.events)
    total = contents + len(positions)
    ledger = expected_at(found.keeping)
    run = Expected(target.run_id, None, found.run_version)
    for start in range(0, len(positions), POSITIONS_AN_EVENT):
        chunk = positions[start : start + POSITIONS_AN_EVENT].tolist()
        payload = ContentRedacted(positions=chunk, reason=reason, actor=by.actor)
        try:
            event = new_event(payload, run_id=LEDGER_RUN_ID, content=by.content())
            (receipt,) = store.append([event], [ledger, run])
        except VersionConflict as conflict:
            raise _Interrupted(Redacted(contents, events), conflict) from None
        ledger = ledger._replace(version=receipt.run_version)
        contents += len(chunk)
        events.append(receipt.position)
        if progress is not None:
            progress(contents, total)
    return Redacted(contents, events)
