"""Was anything erased that a legal hold forbade to erase? ``redact`` refuses that; not so who writes events past it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.events import LEDGER_RUN_ID, Event
from ledger.integrity.erased import MAX_POSITIONS
from ledger.integrity.keeping import Hold, Keeping, fold_keeping
from ledger.integrity.slices import REDACTION_TYPE
from ledger.integrity.verdict import Findings, printable
from ledger.store import Store

_HOLDS: Final = frozenset({"LegalHoldSet", "LegalHoldLifted"})


def check_held(store: Store, found: Findings, upto: int) -> None:
    """Name each ``ContentRedacted`` event up to position ``upto`` that took a text then on hold.

    What of ``$ledger`` cannot be read, or is not of its form, is found elsewhere.
    """
    said: list[Event] = []
    keeping = fold_keeping(said)
    for event in store.events(LEDGER_RUN_ID, upto=upto):
        if not isinstance(event, Event):
            continue
        if event.type in _HOLDS:
            said.append(event)
            keeping = fold_keeping(said)
        elif event.type == REDACTION_TYPE and keeping.in_force():
            hold = _offended(store, event, keeping)
            if hold is not None:
                detail = f"erased while hold {printable(hold.hold_id)}, of position {hold.position}, was in force"
                found.add(event.position, "redactions", "redacted without authority", detail)


def _offended(store: Store, redaction: Event, keeping: Keeping) -> Hold | None:
    """The first hold in force on a run whose text the event erased."""
    for run_id in _runs(store, redaction):
        for hold in keeping.holds_on(run_id):
            return hold
    return None


def _runs(store: Store, redaction: Event) -> Iterator[str]:
    named = [at for at in redaction.payload["positions"] if 0 < at < redaction.position]
    for first in range(0, len(named), MAX_POSITIONS):
        some = ", ".join(map(str, named[first : first + MAX_POSITIONS]))
        sql = f"SELECT DISTINCT run_id FROM events WHERE position IN ({some}) ORDER BY run_id"  # noqa: S608 - numbers alone
        yield from (run_id for (run_id,) in store.rows(sql))
