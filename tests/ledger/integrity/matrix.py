"""The tamper matrix whole, and what comes of each attack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from ledger.integrity.verdict import Finding, Verdict
from tests.ledger.integrity import attacks, attacks_derived, attacks_signed
from tests.ledger.integrity.attack import Attack, Expected, Outcome, Passes, Told, Unproven, Window
from tests.ledger.integrity.forging import dump, mend
from tests.ledger.integrity.scene import By, Scene, Target
from tests.ledger.integrity.tampering import drop_triggers, owner, put_back, run

Effort = Literal["alone", "mended"]
ANCHORS: Final[tuple[By, ...]] = ("none", "store", "kept")

SECTIONS: Final[dict[str, tuple[Attack, ...]]] = {
    "An event or a content edited": attacks.EDITS,
    "Deleted, inserted, put in another order": attacks.MOVES,
    "Cut off at the end": attacks.TAILS,
    "A whole history put in place of this one": attacks_signed.HISTORIES,
    "Erasures": attacks_derived.ERASURES,
    "The tables made from the log": attacks_derived.PROJECTIONS,
    "The tree and the head": attacks_derived.TREE,
    "The stored checkpoints": attacks_signed.STORED,
    "The signer's store": attacks_signed.STORE,
    "Events that no checkpoint covers yet": attacks_signed.UNSIGNED,
    "The database's guards": attacks_signed.GUARDS,
}


class Case(NamedTuple):
    """One row of the matrix. ``expected`` None: making all fit puts back what was there."""

    attack: Attack
    effort: Effort
    expected: Expected | None

    @property
    def name(self) -> str:
        return f"{self.attack.name}-{self.effort}"


class Came(NamedTuple):
    """What came of a case: the verdicts by each anchor, none where all is again as it was.

    ``unguarded``: the verdict by the signer's store while the triggers were still dropped, if it was asked for.
    """

    verdicts: list[Verdict]
    unguarded: Verdict | None


def cases(attack: Attack) -> Iterator[Case]:
    """With nothing made to fit, and with everything, as far as it is done."""
    if attack.alone is not None:
        yield Case(attack, "alone", attack.alone)
    if attack.mended is not None:
        yield Case(attack, "mended", attack.mended if isinstance(attack.mended, Expected) else None)


def happened(scene: Scene, case: Case, *, unguarded: bool = False, sparing: bool = False) -> Came:
    """Do it to a copy, and verify. ``sparing``: of anchors that are to lead to the same, one stands for the others."""
    with scene.target(case.attack.moment) as target:
        before = dump(target.url) if case.expected is None else None
        triggers = _attack(target, case)
        seen = target.judged("store")[0] if unguarded else None
        if not case.attack.unguarded:
            with owner(target.url) as connection:
                put_back(connection, triggers)
        if before is not None and dump(target.url) == before:
            return Came([], seen)
        outcomes = case.expected if sparing and case.expected is not None else ANCHORS
        first = {outcome: anchor for anchor, outcome in reversed(list(zip(ANCHORS, outcomes, strict=True)))}
        verdicts = dict(zip(first, target.judged(*first.values()), strict=True))
        return Came([verdicts[outcome] for outcome in outcomes], seen)


def _attack(target: Target, case: Case) -> list[str]:
    with owner(target.url) as connection:
        triggers = drop_triggers(connection)
        for step in case.attack.do:
            if callable(step):
                step(target, connection)
            else:
                run(connection, step)
    if case.effort == "mended":
        mend(target.url, case.attack.keep)
    for then in case.attack.then:
        then(target)
    return triggers


def telling(verdict: Verdict, outcome: Outcome) -> Finding | str | None:
    """What in the verdict is the expected outcome; None where it is another one."""
    if isinstance(outcome, Told):
        if verdict.result != "FAIL":
            return None
        return min((found for found in verdict.findings if _matches(found, outcome)), key=_span, default=None)
    if isinstance(outcome, Passes):
        return outcome.why if verdict.result == "PASS" else None
    if verdict.result != "INCOMPLETE":
        return None
    words = outcome.words if isinstance(outcome, Unproven) else f"{counted(outcome)} over "
    return next((said for said in verdict.unproven if words in said), None)


def _span(found: Finding) -> int:
    """Over how many positions: of two findings the one that names the place more closely is the better."""
    return (found.last or 0) - (found.position or 0)


def counted(window: Window) -> str:
    return "1 event" if window.events == 1 else f"{window.events} events"


def _matches(found: Finding, told: Told) -> bool:
    if found.kind != told.kind:
        return False
    if told.at is None or found.position is None:
        return found.position is told.at
    return found.position <= told.at <= (found.last or found.position)
