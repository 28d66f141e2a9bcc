"""What became of each request of one pass, as facts, small enough to hold a hundred thousand at once.

Shared by what joins a run with something else: another run (``compare``), labels (``grading``). A pure
fold over the run's events; no content enters.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from ledger.events import AFTER_TERMINAL_TYPES, TERMINAL_TYPES, Event
from ledger.projections.cost import CostTotals, Prices
from ledger.projections.projection import Pass, find_pass, fold_all, pass_events, resolve_as_of
from ledger.store import Store
from ledger.store.records import Unreadable

OUTCOMES: Final = ("accepted", "fallback", "incomplete", "not_started")
"""What becomes of an accepted request: an answer; the fail-closed result; a call, but no result; nothing."""

RISK_LEVELS: Final = ("low", "medium", "high", "critical")
_RUN_FACTS: Final = ("candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint")
_ASKED: Final = ("system_prompt_sha256", "contract_sha256", "policy_id")


class Decision(NamedTuple):
    """One request. The answer's three fields are null unless it is ``accepted``, ``error`` unless a ``fallback``."""

    request_id: str
    incident_id: str
    line: int
    outcome: str
    risk_level: str | None
    requires_human_approval: bool | None
    blocked_by_policy: bool | None
    error: str | None
    position: int
    """Of the decision; 0 where there is none."""
    accepted_position: int
    asked: tuple[str | None, ...]
    """Digest of the system prompt, digest of the response contract, policy: what was asked, and under what."""

    @property
    def low_and_neither(self) -> bool:
        """An answer that lets through: low risk, neither blocked nor put to a person."""
        return self.risk_level == "low" and not self.requires_human_approval and not self.blocked_by_policy


class Decisions:
    """Start, ``fold`` each event of a run in order of position, then ask.

    Memory: about 200 bytes a request.
    """

    NAME: ClassVar[str] = "decisions"
    VERSION: ClassVar[int] = 1

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.position = 0
        """Of the last event consumed."""
        self._clear()

    def _clear(self) -> None:
        self.run: dict[str, str | None] = dict.fromkeys(_RUN_FACTS)
        self.state = "incomplete"
        """How the run ended, as in its report; ``incomplete`` where it has not."""
        self.ended = False
        self.rejected = self.leak_rejected = 0
        self.input_sha256: str | None = None
        self.unreadable = array("q")
        self.spent = CostTotals()
        self._index: dict[str, int] = {}
        self._incidents: list[str] = []
        self._lines, self._accepted, self._decided = array("q"), array("q"), array("q")
        self._marks = bytearray()
        self._asked: dict[tuple[str | None, ...], int] = {}
        self._asked_of = array("q")
        self._errors: dict[int, str] = {}

    def fold(self, event: Event | Unreadable) -> None:
        """Take the next event. What follows the terminal event, and other runs' events, pass without a trace."""
        if event.run_id != self.run_id or event.type in AFTER_TERMINAL_TYPES:
            return
        if isinstance(event, Event) and event.type == "RunStarted":
            self._clear()
            self.run = {fact: event.payload[fact] for fact in _RUN_FACTS}
            self.spent = CostTotals(Prices.from_settings(event.payload["settings"]))
        elif self.ended:
            return
        elif isinstance(event, Unreadable):
            self.unreadable.append(event.position)
            self.ended = event.type in TERMINAL_TYPES
        elif event.type in _HANDLERS:
            _HANDLERS[event.type](self, event)
        self.position = event.position

    # --- what it came to -------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._incidents)

    def at(self, index: int) -> Decision:
        """The request that was accepted ``index`` requests after the first."""
        mark = _MARKS[self._marks[index]]
        request_id = self._names[index]
        return Decision(
            request_id,
            self._incidents[index],
            self._lines[index],
            *mark,
            self._errors.get(index),
            self._decided[index],
            self._accepted[index],
            self._ways[self._asked_of[index]],
        )

    def __iter__(self) -> Iterator[Decision]:
        """Every request, in the order of acceptance."""
        return map(self.at, range(len(self)))

    def incident(self, index: int) -> str:
        """The incident of that request."""
        return self._incidents[index]

    def find(self, request_id: str) -> int | None:
        """Where that request stands."""
        return self._index.get(request_id)

    @property
    def request_ids(self) -> Mapping[str, int]:
        """Request ids in the order of acceptance, each with where it stands."""
        return self._index

    def seal(self) -> Decisions:
        """All was folded: what is asked for by index is laid out once."""
        self._names = list(self._index)
        self._ways = list(self._asked)
        return self

    def counts(self) -> dict[str, int]:
        """Lines of the run by what became of them; ``requests`` is their sum, as in the report."""
        outcomes = dict.fromkeys(OUTCOMES, 0)
        for mark, mark_count in ((mark, self._marks.count(bytes([mark]))) for mark in range(len(_MARKS))):
            outcomes[_MARKS[mark][0]] += mark_count
        refused = {"rejected": self.rejected, "leak_rejected": self.leak_rejected}
        return {**outcomes, **refused, "requests": sum(outcomes.values()) + sum(refused.values())}

    def cost(self) -> dict[str, Any] | None:
        """What the calls cost, as in the run's report; None where it had no prices."""
        return self.spent.member(unreadable=bool(self.unreadable))

    # --- one method an event type ----------------------------------------------------------

    def accept(self, event: Event) -> None:
        assert event.request_id is not None
        if event.request_id in self._index:  # only where somebody altered the ledger
            return
        p = event.payload
        self._index[event.request_id] = len(self._incidents)
        # One string where the two ids are the same, as they mostly are.
        self._incidents.append(event.request_id if p["incident_id"] == event.request_id else p["incident_id"])
        self._lines.append(p["line"])
        self._accepted.append(event.position)
        self._decided.append(0)
        self._marks.append(_NOT_STARTED)
        asked = tuple(p[fact] for fact in _ASKED)
        self._asked_of.append(self._asked.setdefault(asked, len(self._asked)))

    def begin(self, event: Event) -> None:
        self.spent.add_start()
        index = self._index.get(event.request_id or "")
        if index is not None and self._marks[index] == _NOT_STARTED:
            self._marks[index] = _INCOMPLETE

    def decide(self, event: Event) -> None:
        index = self._index.get(event.request_id or "")
        if index is None or self._decided[index]:
            return
        p = event.payload
        self._decided[index] = event.position
        if event.type == "FallbackApplied":
            self._marks[index] = _FALLBACK
            self._errors[index] = p["code"]
        else:
            mark = ("accepted", p["risk_level"], p["requires_human_approval"], p["blocked_by_policy"])
            self._marks[index] = _MARK_OF[mark]


# What became of a request as one byte: an outcome, and an answer's three fields.
_Mark = tuple[str, str | None, bool | None, bool | None]
_MARKS: Final[list[_Mark]] = [
    *((outcome, None, None, None) for outcome in OUTCOMES if outcome != "accepted"),
    *(
        ("accepted", risk, approval, blocked)
        for risk in RISK_LEVELS
        for approval in (False, True)
        for blocked in (False, True)
    ),
]
_MARK_OF: Final = {mark: number for number, mark in enumerate(_MARKS)}
_FALLBACK, _INCOMPLETE, _NOT_STARTED = (
    _MARK_OF[outcome, None, None, None] for outcome in ("fallback", "incomplete", "not_started")
)


def _reject(of: Decisions, event: Event) -> None:
    of.rejected += 1


def _leak(of: Decisions, event: Event) -> None:
    of.leak_rejected += 1


def _intake(of: Decisions, event: Event) -> None:
    of.input_sha256 = event.payload["input_sha256"]


def _answer(of: Decisions, event: Event) -> None:
    of.spent.add_reply(event.payload)


def _fail(of: Decisions, event: Event) -> None:
    of.spent.add_failure(event.payload)


def _complete(of: Decisions, event: Event) -> None:
    of.state, of.ended = event.payload["outcome"], True


def _block(of: Decisions, event: Event) -> None:
    of.state, of.ended = "blocked", True


def _abandon(of: Decisions, event: Event) -> None:
    of.state, of.ended = "abandoned", True


_HANDLERS: Final[dict[str, Callable[[Decisions, Event], None]]] = {
    "RequestAccepted": Decisions.accept,
    "RequestRejected": _reject,
    "LeakRejected": _leak,
    "IntakeCompleted": _intake,
    "ModelCallStarted": Decisions.begin,
    "ModelCalled": _answer,
    "ModelCallFailed": _fail,
    "OutputAccepted": Decisions.decide,
    "FallbackApplied": Decisions.decide,
    "RunCompleted": _complete,
    "RunBlocked": _block,
    "RunAbandoned": _abandon,
}


def read_decisions(
    store: Store, run_id: str, as_of: int | str | None = None, progress: Callable[[int], Any] | None = None
) -> Decisions:
    """What became of each request of the run's last pass. Errors and ``as_of`` as for ``report``.

    ``progress`` is told of the events taken, a thousand at a time.
    """
    of: Pass = find_pass(store, run_id, resolve_as_of(store, as_of))
    return fold_all(Decisions(run_id), pass_events(store, of, progress)).seal()
