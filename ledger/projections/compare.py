"""``compare/1``: two runs over the same incidents, side by side. Pure folds over what became of each request.

Every incident of either run stands in every denominator: a pair that agrees, one that differs, one that
cannot be compared because a side has no accepted answer, or an incident that only one run was asked.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from ledger.projections.answers import VERDICT, accepted_output, texts
from ledger.projections.decisions import OUTCOMES, RISK_LEVELS, Decision, Decisions
from ledger.projections.stats import CONFIDENCE, decimal, mcnemar_exact, paired_difference, wilson
from ledger.store import Store

NAME: Final = "compare"
VERSION: Final = 1
SCHEMA_VERSION: Final = "replay_ledger_comparison_v1"
FIELDS: Final = ("outcome", *VERDICT)
"""What is held against each other. The answer's fields only where both sides have an accepted answer."""

_PAGE: Final = 200
_ORDER: Final = {value: rank for rank, value in enumerate((*OUTCOMES, *RISK_LEVELS))}
_ASKED: Final = ("system_prompt", "contract", "policy_id")


class Pairing(NamedTuple):
    """Which requests of two runs are the same incident's, as indexes into each run's ``Decisions``."""

    first: Sequence[int]
    second: Sequence[int]
    only_first: Sequence[int]
    only_second: Sequence[int]

    @property
    def incidents(self) -> int:
        """Pairs, and what only one run was asked."""
        return len(self.first) + len(self.only_first) + len(self.only_second)


def pair(first: Decisions, second: Decisions) -> Pairing:
    """Join two runs by incident.

    Requests of one incident that bear the same request id are a pair. Of those that are left, an incident
    that each run was asked exactly once more is a pair; where there are several, which belongs to which
    would be a guess, and they stand alone.
    """
    taken = bytearray(len(second))
    partners = array("q", bytes(8 * len(first)))
    for index, request_id in enumerate(first.request_ids):
        other = second.find(request_id)
        same = other is not None and first.incident(index) == second.incident(other)
        partners[index] = other if same and other is not None else -1
        if same and other is not None:
            taken[other] = 1
    for index, other in _left_over(first, second, partners, taken):
        partners[index], taken[other] = other, 1
    paired = array("q", (index for index, other in enumerate(partners) if other >= 0))
    return Pairing(
        paired,
        array("q", (partners[index] for index in paired)),
        array("q", (index for index, other in enumerate(partners) if other < 0)),
        array("q", (index for index, known in enumerate(taken) if not known)),
    )


def _left_over(
    first: Decisions, second: Decisions, partners: Sequence[int], taken: bytearray
) -> Iterator[tuple[int, int]]:
    left: dict[str, list[int]] = {}
    for index, other in enumerate(partners):
        if other < 0:
            left.setdefault(first.incident(index), []).append(index)
    right: dict[str, list[int]] = {}
    for index, known in enumerate(taken):
        if not known and second.incident(index) in left:
            right.setdefault(second.incident(index), []).append(index)
    for incident, others in right.items():
        if len(others) == len(left[incident]) == 1:
            yield left[incident][0], others[0]


def differing(first: Decision, second: Decision) -> list[str]:
    """The fields in which two requests of one incident differ."""
    fields = FIELDS if comparable(first, second) else ("outcome",)
    return [field for field in fields if getattr(first, field) != getattr(second, field)]


def comparable(first: Decision, second: Decision) -> bool:
    """Do both sides have an accepted answer? A fallback is not the model's decision."""
    return first.outcome == second.outcome == "accepted"


# --- binary questions, for the test ---------------------------------------------------------

Question = Callable[[Decision], bool]
QUESTIONS: Final[dict[str, Question]] = {
    "accepted": lambda decision: decision.outcome == "accepted",
    "low_and_neither": lambda decision: decision.low_and_neither,
    "high_or_critical": lambda decision: decision.risk_level in ("high", "critical"),
    "requires_human_approval": lambda decision: decision.requires_human_approval is True,
    "blocked_by_policy": lambda decision: decision.blocked_by_policy is True,
}
"""Questions with two answers. All but ``accepted`` are asked of pairs with two accepted answers."""


class CompareFold:
    """Start, ``fold`` each pair in any order, ``finish``. Holds counts, and the place of each difference."""

    def __init__(self) -> None:
        self.values: dict[str, Counter[tuple[Any, Any]]] = {field: Counter() for field in FIELDS}
        self.questions: dict[str, Counter[tuple[bool, bool]]] = {name: Counter() for name in QUESTIONS}
        self.asked: Counter[str] = Counter()
        self.pairs = self.comparable = self.same = 0
        self.differences: list[tuple[int, str, str, str, int]] = []
        """Rank, incident and request ids, and which pair: the gravest first once sorted."""

    def fold(self, number: int, first: Decision, second: Decision) -> None:
        """Take a pair; ``number`` is its place in the pairing."""
        self.pairs += 1
        both = comparable(first, second)
        self.comparable += both
        for field in FIELDS if both else FIELDS[:1]:
            self.values[field][getattr(first, field), getattr(second, field)] += 1
        for name, asks in QUESTIONS.items():
            if both or name == "accepted":
                self.questions[name][asks(first), asks(second)] += 1
        for name, one, other in zip(_ASKED, first.asked, second.asked, strict=True):
            self.asked[name] += one != other
        fields = differing(first, second)
        if fields:
            rank = _rank(first, second, fields)
            self.differences.append((rank, first.incident_id, first.request_id, second.request_id, number))
        else:
            self.same += both

    def finish(self, only_first: int, only_second: int) -> dict[str, Any]:
        """The counts, shares and tests."""
        incidents = self.pairs + only_first + only_second
        return {
            "incidents": incidents,
            "pairs": self.pairs,
            "comparable": self.comparable,
            "only_first": only_first,
            "only_second": only_second,
            "differences": len(self.differences),
            "agreement": wilson(self.same, incidents).shown(),
            "agreement_of_comparable": wilson(self.same, self.comparable).shown(),
            "fields": {field: self._field(field, incidents, only_first, only_second) for field in FIELDS},
            "tests": {name: tested(self.questions[name]) for name in QUESTIONS},
            "asked_differently": {name: self.asked[name] for name in _ASKED},
            "confidence": CONFIDENCE,
        }

    def _field(self, field: str, incidents: int, only_first: int, only_second: int) -> dict[str, Any]:
        counted = self.values[field]
        same = sum(count for (one, other), count in counted.items() if one == other)
        told = sum(counted.values())
        values = sorted(counted.items(), key=lambda item: tuple(_ORDER.get(value, value) for value in item[0]))
        return {
            "same": same,
            "different": told - same,
            "not_comparable": self.pairs - told,
            "only_first": only_first,
            "only_second": only_second,
            "agreement": wilson(same, incidents).shown(),
            "agreement_of_comparable": wilson(same, told).shown(),
            "values": [{"first": one, "second": other, "count": count} for (one, other), count in values],
        }


def _rank(first: Decision, second: Decision, fields: Sequence[str]) -> int:
    """0: one lets through what the other does not; 1: a flag; 2: the risk level; 3: one has no answer."""
    if not comparable(first, second):
        return 3
    if first.low_and_neither != second.low_and_neither:
        return 0
    return 2 if fields == ["risk_level"] else 1


def tested(counted: Mapping[tuple[bool, bool], int]) -> dict[str, Any]:
    """A question's 2x2 table over pairs, each run's share, their difference and McNemar's exact test."""
    both, first_only = counted.get((True, True), 0), counted.get((True, False), 0)
    second_only, neither = counted.get((False, True), 0), counted.get((False, False), 0)
    pairs = both + first_only + second_only + neither
    gap = paired_difference(both, first_only, second_only, neither)
    return {
        "pairs": pairs,
        "both": both,
        "first_only": first_only,
        "second_only": second_only,
        "neither": neither,
        "first": wilson(both + first_only, pairs).shown(),
        "second": wilson(both + second_only, pairs).shown(),
        "difference": {"value": decimal(gap.value), "low": decimal(gap.low), "high": decimal(gap.high)},
        "p_value": str(mcnemar_exact(first_only, second_only)) if pairs else None,
    }


# --- with the text --------------------------------------------------------------------------


class Comparison:
    """Two runs compared: ``summary`` from facts, differences and lone incidents as they are asked for.

    Memory: about 200 bytes a request of each run, and as much a difference; texts a page at a time.
    """

    def __init__(self, store: Store, first: Decisions, second: Decisions) -> None:
        self._store, self.first, self.second = store, first, second
        self.pairing = pair(first, second)
        fold = CompareFold()
        for number, (index, other) in enumerate(zip(self.pairing.first, self.pairing.second, strict=True)):
            fold.fold(number, first.at(index), second.at(other))
        fold.differences.sort()
        self._order = array("q", (number for *_, number in fold.differences))
        self._counts = fold.finish(len(self.pairing.only_first), len(self.pairing.only_second))

    @property
    def different(self) -> int:
        """How many pairs differ."""
        return len(self._order)

    def same(self) -> bool:
        """No field of any pair differs, and neither run was asked what the other was not."""
        return not (self._order or self.pairing.only_first or self.pairing.only_second)

    def summary(self) -> dict[str, Any]:
        """All but the single incidents; the same bytes whatever was erased."""
        one, other = self.first.input_sha256, self.second.input_sha256
        return {
            "schema_version": SCHEMA_VERSION,
            "first": _side(self._store, self.first),
            "second": _side(self._store, self.second),
            "same_input": None if one is None or other is None else one == other,
            **self._counts,
            "projection": {"name": NAME, "version": VERSION},
        }

    def differences(self) -> Iterator[dict[str, Any]]:
        """Each pair that differs, with both answers, gravest first.

        Raises ``LedgerMalformed`` where a text is missing and no redaction says why.
        """
        numbers = iter(self._order)
        while page := list(islice(numbers, _PAGE)):
            pairs = [
                (self.first.at(self.pairing.first[number]), self.second.at(self.pairing.second[number]))
                for number in page
            ]
            accepted = [one.position for both in pairs for one in both if one.outcome == "accepted"]
            found = texts(self._store, accepted)
            for first, second in pairs:
                yield {
                    "incident_id": first.incident_id,
                    "fields": differing(first, second),
                    "first": _answer(first, found),
                    "second": _answer(second, found),
                }

    def only_first(self) -> Iterator[dict[str, Any]]:
        """What only the first run was asked, in its order."""
        return (_alone(self.first.at(index)) for index in self.pairing.only_first)

    def only_second(self) -> Iterator[dict[str, Any]]:
        """What only the second run was asked, in its order."""
        return (_alone(self.second.at(index)) for index in self.pairing.only_second)


def _side(store: Store, run: Decisions) -> dict[str, Any]:
    root = store.root_at(run.position).hex()
    return {
        "run_id": run.run_id,
        **run.run,
        "state": run.state,
        **run.counts(),
        "cost": run.cost(),
        "unreadable": len(run.unreadable),
        "as_of": {"position": run.position, "root": root, "size": run.position},
    }


def _answer(decision: Decision, found: Mapping[int, bytes | None]) -> dict[str, Any]:
    """One side of a difference. ``model_output`` is null where no answer was accepted, its texts once erased."""
    output, content = None, None
    accepted = decision.outcome == "accepted"
    if accepted:
        content = found[decision.position]
        output = accepted_output(decision.position, {name: getattr(decision, name) for name in VERDICT}, content)
    return {
        "request_id": decision.request_id,
        "line": decision.line,
        "outcome": decision.outcome,
        "error": decision.error,
        "position": decision.position or None,
        "model_output": output,
        "redacted": accepted and content is None,
    }


def _alone(decision: Decision) -> dict[str, Any]:
    return {
        "incident_id": decision.incident_id,
        "request_id": decision.request_id,
        "line": decision.line,
        "outcome": decision.outcome,
        "risk_level": decision.risk_level,
        "requires_human_approval": decision.requires_human_approval,
        "blocked_by_policy": decision.blocked_by_policy,
    }
