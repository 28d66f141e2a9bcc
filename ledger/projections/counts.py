"""Requests and the seven outcomes that add up to them, by fold and by SQL.

    accepted_first  accepted_after_retry  fallback_records  leak_rejected  rejected
    not_started  incomplete

``requests`` is their sum by construction: every request stands in exactly one place, and moves
only forward. ``counts`` asks the projection tables instead, for the end of a run; the two agree.
"""

from __future__ import annotations

from typing import Final

from ledger.events import Counts
from ledger.store import Store

Facets = tuple[tuple[str, str], ...]


class Pending:
    """What is remembered of a request between its first call and its result."""

    __slots__ = ("facets", "first_error", "retried", "sent")

    def __init__(self, facets: Facets) -> None:
        self.facets = facets
        self.first_error: str | None = None
        self.retried = False
        self.sent: tuple[int, int] | None = None
        """The last call that started: its attempt and the bytes it sent."""

    def note_error(self, code: str) -> None:
        """Keep the first error code ever."""
        if self.first_error is None:
            self.first_error = code


class Outcomes:
    """Where each request of one pass stands.

    Memory: an accepted request costs a dict entry until its result is known, and nothing after.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Facets] = {}
        self._begun: dict[str, Pending] = {}
        self._known_facets: dict[Facets, Facets] = {}
        self.accepted_first = 0
        self.accepted_after_retry = 0
        self.fallback_records = 0
        self.leak_rejected = 0
        self.rejected = 0

    def accept(self, request_id: str, facets: Facets) -> None:
        """A request passed intake."""
        self._waiting[request_id] = self._known_facets.setdefault(facets, facets)

    def begin(self, request_id: str) -> Pending | None:
        """A call of this request starts. None where it was never accepted, or is decided."""
        facets = self._waiting.pop(request_id, None)
        if facets is not None:
            self._begun[request_id] = Pending(facets)
        return self._begun.get(request_id)

    def begun(self, request_id: str) -> Pending | None:
        """The request, where a call of it has started and it has no result."""
        return self._begun.get(request_id)

    def accept_output(self, request_id: str, turn: int) -> Pending | None:
        """An answer was accepted. None where no result is due: the event then counts nowhere."""
        pending = self._decide(request_id)
        if pending is not None:
            if turn == 1:
                self.accepted_first += 1
            else:
                self.accepted_after_retry += 1
        return pending

    def apply_fallback(self, request_id: str) -> Pending | None:
        """No answer could be accepted. None as in ``accept_output``."""
        pending = self._decide(request_id)
        if pending is not None:
            self.fallback_records += 1
        return pending

    def _decide(self, request_id: str) -> Pending | None:
        facets = self._waiting.pop(request_id, None)
        return Pending(facets) if facets is not None else self._begun.pop(request_id, None)

    def open_facets(self) -> list[Facets]:
        """The facets of each request that has no result."""
        return [*self._waiting.values(), *(pending.facets for pending in self._begun.values())]

    def counts(self) -> Counts:
        """The seven outcomes as they stand."""
        seven = {
            "accepted_first": self.accepted_first,
            "accepted_after_retry": self.accepted_after_retry,
            "fallback_records": self.fallback_records,
            "leak_rejected": self.leak_rejected,
            "rejected": self.rejected,
            "not_started": len(self._waiting),
            "incomplete": len(self._begun),
        }
        return Counts(requests=sum(seven.values()), **seven)


_RESULTS_SQL: Final = """
SELECT outcome, COUNT(*) FROM requests WHERE run_id = :run_id AND outcome IS NOT NULL GROUP BY outcome
"""
_OPEN_SQL: Final = """
SELECT COUNT(*), COUNT(c.request_id)
FROM requests r
LEFT JOIN (SELECT DISTINCT request_id FROM model_calls WHERE run_id = :run_id) c ON c.request_id = r.request_id
WHERE r.run_id = :run_id AND r.outcome IS NULL
"""
_REFUSED_SQL: Final = """
SELECT type, COUNT(*) FROM failures
WHERE run_id = :run_id AND type IN ('LeakRejected', 'RequestRejected')
GROUP BY type
"""


def counts(store: Store, run_id: str) -> Counts:
    """Requests and outcomes of a run since its last start, from the projection tables.

    All zero for a run that the ledger does not know.
    """
    of_run = {"run_id": run_id}
    results: dict[str, int] = {row[0]: row[1] for row in store.rows(_RESULTS_SQL, of_run)}
    refused: dict[str, int] = {row[0]: row[1] for row in store.rows(_REFUSED_SQL, of_run)}
    unresolved, begun = next(iter(store.rows(_OPEN_SQL, of_run)))
    seven = {
        "accepted_first": results.get("accepted_first", 0),
        "accepted_after_retry": results.get("accepted_after_retry", 0),
        "fallback_records": results.get("fallback", 0),
        "leak_rejected": refused.get("LeakRejected", 0),
        "rejected": refused.get("RequestRejected", 0),
        "not_started": unresolved - begun,
        "incomplete": begun,
    }
    return Counts(requests=sum(seven.values()), **seven)
