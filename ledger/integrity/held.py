"""Was anything erased that had to be kept, for a legal hold or by the retention floor?

``redact`` refuses that; not so who writes events past it. The events alone tell, by the times that the ledger
gave them: what was in force is what ``$ledger`` said before the erasure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ledger.events import LEDGER_RUN_ID, Event
from ledger.integrity.erased import MAX_POSITIONS
from ledger.integrity.keeping import Keeping, fold_keeping, may_go_at
from ledger.integrity.slices import REDACTION_TYPE
from ledger.integrity.verdict import Findings, printable
from ledger.store import Store

_KEEPING: Final = frozenset({"LegalHoldSet", "LegalHoldLifted", "RetentionSet"})


class _Erased(NamedTuple):
    """What an erasure took of one run: when the last of it was recorded, as the column has it."""

    run_id: str
    youngest: object


def check_held(store: Store, found: Findings, upto: int) -> None:
    """Name each ``ContentRedacted`` event up to position ``upto`` that took a text which then had to be kept.

    What of ``$ledger`` cannot be read, or is not of its form, is found elsewhere.
    """
    said: list[Event] = []
    keeping = fold_keeping(said)
    for event in store.events(LEDGER_RUN_ID, upto=upto):
        if not isinstance(event, Event):
            continue
        if event.type in _KEEPING:
            said.append(event)
            keeping = fold_keeping(said)
        elif event.type == REDACTION_TYPE and (keeping.days or keeping.in_force()):
            erased = list(_erased(store, event))
            for detail in (_on_hold(erased, keeping), _too_young(erased, event, keeping)):
                if detail is not None:
                    found.add(event.position, "redactions", "redacted without authority", detail)


def _on_hold(erased: list[_Erased], keeping: Keeping) -> str | None:
    """The first hold that was in force on a run whose text was erased."""
    for run_id, _ in erased:
        for hold in keeping.holds_on(run_id):
            return f"erased while hold {printable(hold.hold_id)}, of position {hold.position}, was in force"
    return None


def _too_young(erased: list[_Erased], redaction: Event, keeping: Keeping) -> str | None:
    """The floor that the youngest text was below when it went. A time that is none is found elsewhere."""
    erased_at = _time(redaction.recorded_at)
    times = {time: str(text) for time, text in ((_time(text), text) for _, text in erased) if time is not None}
    if not keeping.days or erased_at is None or not times:
        return None
    youngest = times[max(times)]
    until = may_go_at(youngest, keeping.days)
    if until is not None and erased_at >= until:
        return None
    days = "1 day" if keeping.days == 1 else f"{keeping.days} days"
    floor = f"the retention floor of {days}, of position {keeping.floors[-1].position}"
    return f"erased below {floor}: the youngest of it was recorded at {printable(youngest)}"


def _time(recorded_at: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(recorded_at))
        return None if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _erased(store: Store, redaction: Event) -> Iterator[_Erased]:
    named = [at for at in redaction.payload["positions"] if 0 < at < redaction.position]
    for first in range(0, len(named), MAX_POSITIONS):
        some = ", ".join(map(str, named[first : first + MAX_POSITIONS]))
        sql = f"SELECT run_id, max(recorded_at) FROM events WHERE position IN ({some}) GROUP BY run_id ORDER BY run_id"  # noqa: S608 - numbers alone
        yield from (_Erased(*row) for row in store.rows(sql))
