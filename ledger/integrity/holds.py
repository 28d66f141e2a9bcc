"""Legal holds and the retention floor: setting and lifting them, each an event in ``$ledger``.

What they are is a pure fold (``keeping.py``). Each append expects ``$ledger`` to be where it was
read, so that two people at once cannot both set one hold, and an erasure cannot pass a hold that is
being set (``redact.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ledger.events import LEDGER_RUN_ID, Event, LegalHoldLifted, LegalHoldSet, NewEvent, RetentionSet, new_event
from ledger.integrity.canonical import encode
from ledger.integrity.keeping import Hold, Keeping, fold_keeping
from ledger.projections.scratch import UnreadableEvent
from ledger.store import Expected, Receipt, Store, Unreadable
from ledger.store.errors import LedgerBusy, LedgerError, RunNotFound, VersionConflict

MAX_DAYS: Final = 36_525
"""The longest retention floor that is taken: a hundred years."""

_TRIES: Final = 20


class HoldInForce(LedgerError):
    """A hold under this id is in force already."""

    exit_code = 2

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        super().__init__(f"hold {hold.hold_id} is in force already, on {shown_scope(hold)}, since {hold.set_at}")


class HoldNotInForce(LedgerError):
    """There is no hold of this id to lift."""

    exit_code = 2


class FloorRefused(LedgerError):
    """The retention floor cannot be set to that."""

    exit_code = 2


class By(NamedTuple):
    """Who does it and why. ``actor`` fits an id; all of it becomes content, None is left out."""

    actor: str
    operator: str | None = None
    host: str | None = None
    note: str | None = None
    basis: str | None = None

    def content(self) -> bytes:
        """Canonical JSON."""
        return encode({name: value for name, value in self._asdict().items() if value is not None})


def shown_scope(hold: Hold) -> str:
    """What the hold is on, in words."""
    return "the whole ledger" if hold.run_id is None else f"run {hold.run_id}"


def read_keeping(store: Store) -> Keeping:
    """What must be kept at this moment.

    Raises ``UnreadableEvent`` where an event of ``$ledger`` cannot be read: it may be a hold, so
    nobody may act as if there were none.
    """

    def readable() -> Iterator[Event]:
        for event in store.events(LEDGER_RUN_ID):
            if isinstance(event, Unreadable):
                raise UnreadableEvent(event.position, event.reason)
            at[0] = event.position
            yield event

    at = [0]
    try:
        return fold_keeping(readable())
    except ValueError:
        raise UnreadableEvent(at[0], "its payload is not of its type's form") from None


def set_hold(store: Store, hold_id: str, run_id: str | None, by: By) -> Receipt:
    """Forbid that anything of the run (of the ledger, where None) is erased.

    Raises ``RunNotFound``, ``HoldInForce``, and as ``Store.append``.
    """
    if run_id is not None and (run_id == LEDGER_RUN_ID or store.version(run_id) == 0):
        raise RunNotFound(run_id)

    def decide(keeping: Keeping) -> NewEvent:
        before = keeping.hold(hold_id)
        if before is not None:
            raise HoldInForce(before)
        return new_event(LegalHoldSet(hold_id=hold_id, run_id=run_id), run_id=LEDGER_RUN_ID, content=by.content())

    receipt = _append(store, decide)
    assert receipt is not None
    return receipt


def lift_hold(store: Store, hold_id: str, by: By) -> Hold:
    """End a hold; gives it as it was. Raises ``HoldNotInForce``, and as ``Store.append``."""
    lifted: list[Hold] = []

    def decide(keeping: Keeping) -> NewEvent:
        hold = keeping.hold(hold_id)
        if hold is None:
            raise HoldNotInForce(_not_in_force(hold_id, keeping))
        lifted[:] = [hold]
        payload = LegalHoldLifted(hold_id=hold_id, run_id=hold.run_id)
        return new_event(payload, run_id=LEDGER_RUN_ID, content=by.content())

    _append(store, decide)
    return lifted[0]


def _not_in_force(hold_id: str, keeping: Keeping) -> str:
    earlier = [hold for hold in keeping.holds if hold.hold_id == hold_id]
    if earlier:
        return f"hold {hold_id} was lifted already, at {earlier[-1].lifted_at}"
    there = [hold.hold_id for hold in keeping.in_force()]
    known = f"in force: {', '.join(there[:20])}" if there else "none is in force"
    return f"there is no hold {hold_id}; {known}"


def set_retention(store: Store, days: int, by: By) -> int | None:
    """Keep content for at least ``days`` after it was recorded; gives the floor that was there before.

    None where the floor is that already: then nothing is appended. A floor may be lowered, as the
    law may demand it, but not without a note that says why: the log keeps the earlier one, who
    lowered it, when, and the note. Raises ``FloorRefused``, and as ``Store.append``.
    """
    if not 0 <= days <= MAX_DAYS:
        raise FloorRefused(f"a retention floor is 0 to {MAX_DAYS:,} days")
    before: list[int] = []

    def decide(keeping: Keeping) -> NewEvent | None:
        before[:] = [keeping.days]
        if days == keeping.days and keeping.floors:
            return None
        if days < keeping.days and not by.note:
            raise FloorRefused(f"the floor is {keeping.days} days: to lower it to {days}, say why (--note)")
        return new_event(RetentionSet(days=days), run_id=LEDGER_RUN_ID, content=by.content())

    return before[0] if _append(store, decide) is not None else None


def expected_at(keeping: Keeping) -> Expected:
    """``$ledger`` has not moved since it was read: whatever came between must be looked at first."""
    return Expected(LEDGER_RUN_ID, None, keeping.version)


def _append(store: Store, decide: Callable[[Keeping], NewEvent | None]) -> Receipt | None:
    """Append what is decided on from what must be kept now; decide again where somebody came between."""
    conflict: VersionConflict | None = None
    for _ in range(_TRIES):
        keeping = read_keeping(store)
        event = decide(keeping)
        if event is None:
            return None
        try:
            return store.append([event], [expected_at(keeping)])[0]
        except VersionConflict as error:
            conflict = error
    raise LedgerBusy(f"{store.shown}: others append to {LEDGER_RUN_ID} all the time ({conflict})")
