"""``identity``: which run this is: what was asked, of whom, under which settings, by whom, from when to when.

A pure fold over the payloads of the run's own events and the times of its first and last; no content
enters. Models that answered and policies are counted by ``report/1``, beside which this stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from ledger.events import Event
from ledger.projections.projection import Pass, find_pass, fold_all, resolve_as_of
from ledger.store import Store
from ledger.store.records import Unreadable

_STARTED: Final = (
    *("candidate_id", "candidate_variant_id", "prompt_profile", "template_version", "template_sha256", "model"),
    *("endpoint", "settings", "leak_rules_version", "software_version", "actor", "tags"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """An event: its position, and when it was recorded (RFC 3339, UTC)."""

    position: int
    recorded_at: str


@dataclass(slots=True)
class Identity:
    """What a run's own events say of it. Null is unknown: the run has not got that far, or it cannot be read."""

    run_id: str
    candidate_id: str | None = None
    candidate_variant_id: str | None = None
    """Null: the baseline, where ``candidate_id`` is known."""
    prompt_profile: str | None = None
    template_version: int | None = None
    template_sha256: str | None = None
    model: str | None = None
    """The one that was asked for."""
    endpoint: str | None = None
    settings: Mapping[str, str | int | bool] | None = None
    leak_rules_version: int | None = None
    software_version: str | None = None
    actor: str | None = None
    tags: Mapping[str, str] | None = None
    lines: int | None = None
    """Lines of the file that are not blank; null until it was read to its end."""
    taken: int | None = None
    """How many of them are on record: accepted, rejected or leaking."""
    input_sha256: str | None = None
    selection: Mapping[str, str | int] | None = None
    """How those were chosen; null where every line was taken, or that is unknown (``lines`` is then null too)."""
    resumed_by: list[str] = field(default_factory=list)
    """Who took the run up again, once each time."""
    abandoned_by: str | None = None
    abandoned_for: str | None = None
    first: Place | None = None
    last: Place | None = None
    """The last event that a report consumes."""


class IdentityFold:
    """Start, ``fold`` the run's own events in order of position, and read ``identity``."""

    NAME: ClassVar[str] = "identity"
    VERSION: ClassVar[int] = 1

    def __init__(self, run_id: str) -> None:
        self.identity = Identity(run_id)

    def fold(self, event: Event | Unreadable) -> None:
        """Take the next event; one that cannot be read leaves unknown what it would have said."""
        if event.type == "RunStarted":
            self.identity = Identity(self.identity.run_id)
        if not isinstance(event, Event):
            return
        p, of = event.payload, self.identity
        match event.type:
            case "RunStarted":
                for fact in _STARTED:
                    setattr(of, fact, p[fact])
            case "IntakeCompleted":
                of.lines, of.taken = p["lines"], p["accepted"] + p["rejected"] + p["leaking"]
                of.input_sha256, of.selection = p["input_sha256"], p["selection"]
            case "RunResumed":
                of.resumed_by.append(p["actor"])
            case "RunAbandoned":
                of.abandoned_by, of.abandoned_for = p["actor"], p["reason"]


def identity(store: Store, run_id: str, as_of: int | str | None = None) -> Identity:
    """Which run it is, by its last pass at or below ``as_of``. Errors as for ``report``."""
    of = find_pass(store, run_id, resolve_as_of(store, as_of))
    own = store.events(run_id, after=of.first - 1, upto=of.last, of_no_request=True)
    found = fold_all(IdentityFold(run_id), own).identity
    found.first, found.last = _ends(store, of)
    return found


# The run's id as an expression: else SQLite goes by the index on it, and sorts every event of the run to find one.
_LAST_SQL: Final = """
SELECT position, recorded_at FROM events
WHERE run_id || '' = :run_id AND position >= :first AND position <= :last
  AND type NOT IN ('ReportIssued', 'GradesRecorded')
ORDER BY position DESC LIMIT 1
"""
_FIRST_SQL: Final = "SELECT position, recorded_at FROM events WHERE position = :first"


def _ends(store: Store, of: Pass) -> tuple[Place, Place]:
    within: dict[str, Any] = {"run_id": of.run_id, "first": of.first, "last": of.last}
    (first,) = store.rows(_FIRST_SQL, {"first": of.first})
    (last,) = store.rows(_LAST_SQL, within)
    return Place(*first), Place(*last)
