"""What must be kept: legal holds and the retention floor, as a pure fold over the events of ``$ledger``.

State is nowhere but in the log: who set a hold, and who lifted it, is part of the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from ledger.events import Event, LegalHoldLifted, LegalHoldSet, RetentionSet

_TYPES: Final = {payload.TYPE: payload for payload in (LegalHoldSet, LegalHoldLifted, RetentionSet)}


class Hold(NamedTuple):
    """A legal hold on a run, or on the whole ledger where ``run_id`` is None.

    ``position`` and ``set_at`` (RFC 3339) are those of the ``LegalHoldSet`` event; ``lifted_position``
    and ``lifted_at`` those of ``LegalHoldLifted``, None while the hold is in force.
    """

    hold_id: str
    run_id: str | None
    position: int
    set_at: str
    lifted_position: int | None = None
    lifted_at: str | None = None

    def covers(self, run_id: str) -> bool:
        """May nothing of the run be erased because of this hold?"""
        return self.lifted_position is None and self.run_id in {None, run_id}


class Floor(NamedTuple):
    """One ``RetentionSet`` event: content is kept for at least so many days after it was recorded."""

    days: int
    position: int
    set_at: str


@dataclass(frozen=True, slots=True)
class Keeping:
    """What the events of ``$ledger`` up to ``version`` say must be kept.

    ``holds``: every hold there ever was, in order of the events that set them. ``floors``: every
    retention floor there ever was; the last one counts.
    """

    version: int
    holds: tuple[Hold, ...]
    floors: tuple[Floor, ...]

    @property
    def days(self) -> int:
        """The retention floor in days; 0 where none was ever set."""
        return self.floors[-1].days if self.floors else 0

    def in_force(self) -> list[Hold]:
        """The holds that have not been lifted."""
        return [hold for hold in self.holds if hold.lifted_position is None]

    def hold(self, hold_id: str) -> Hold | None:
        """The hold in force under this id."""
        return next((hold for hold in self.in_force() if hold.hold_id == hold_id), None)

    def holds_on(self, run_id: str) -> list[Hold]:
        """The holds in force on the run, those on the whole ledger among them."""
        return [hold for hold in self.holds if hold.covers(run_id)]


def fold_keeping(events: Iterable[Event]) -> Keeping:
    """What must be kept, from the events of ``$ledger`` in order, all of them from the first on.

    A hold that is set again while it is in force, and one lifted that is not, change nothing: no
    command of ours writes them. Raises ``ValueError`` for a payload that is not of its type's form.
    """
    version = 0
    holds: list[Hold] = []
    floors: list[Floor] = []
    active: dict[str, int] = {}
    for event in events:
        version = event.run_version
        kind = _TYPES.get(event.type)
        if kind is None:
            continue
        said = kind.model_validate(dict(event.payload))
        match said:
            case RetentionSet():
                floors.append(Floor(said.days, event.position, event.recorded_at))
            case LegalHoldSet() if said.hold_id not in active:
                active[said.hold_id] = len(holds)
                holds.append(Hold(said.hold_id, said.run_id, event.position, event.recorded_at))
            case LegalHoldLifted() if said.hold_id in active:
                at = active.pop(said.hold_id)
                holds[at] = holds[at]._replace(lifted_position=event.position, lifted_at=event.recorded_at)
    return Keeping(version, tuple(holds), tuple(floors))


def may_go_at(recorded_at: str, days: int) -> datetime | None:
    """When content recorded at this time (RFC 3339) is no longer kept by a floor of so many days.

    None where no calendar reaches that far: then it is kept for ever.
    """
    try:
        return datetime.fromisoformat(recorded_at).astimezone(UTC) + timedelta(days=days)
    except OverflowError:
        return None
