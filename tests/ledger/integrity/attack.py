"""An attack of the tamper matrix, and what verify must say to it: as data.

An attack is plain SQL, run with the triggers dropped. ``alone`` is what verify must say when nothing else is
done; ``mended`` what it must say once all was made to fit that needs no key (``forging.mend``), each by the
anchor that the reader has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tests.ledger.integrity.forging import Part
from tests.ledger.integrity.scene import COVERED, Moment, Target
from tests.ledger.integrity.tampering import Statement


class Told(NamedTuple):
    """FAIL, with a finding of this kind that covers this position; None: one of no position."""

    kind: str
    at: int | None


class Window(NamedTuple):
    """INCOMPLETE, and so many events stand without an anchor."""

    events: int


class Unproven(NamedTuple):
    """INCOMPLETE for another reason, in which these words stand."""

    words: str


class Passes(NamedTuple):
    """PASS: nothing that a verdict covers was changed, or nothing is left that could tell; ``why`` says which."""

    why: str


Outcome = Told | Window | Unproven | Passes


Step = Statement | Callable[[Target, Connection], None]


class Expected(NamedTuple):
    """By the anchor that the reader has: none, the signer's store, a checkpoint that he keeps elsewhere."""

    none: Outcome
    store: Outcome
    kept: Outcome


RESTORED: Final = "restored"
"""Making all fit puts back exactly what was there."""


class Attack(NamedTuple):
    """``said``: in plain words. ``do``: with the triggers dropped, in one transaction. ``then``: once that is done.

    ``alone`` None: the attack is not done by halves; ``mended`` None: there is nothing to be made to fit.
    ``keep``: parts that the forger leaves as the attack made them. ``unguarded``: the triggers stay dropped.
    """

    name: str
    said: str
    do: tuple[Step, ...]
    alone: Expected | None
    mended: Expected | str | None
    keep: frozenset[Part] = frozenset()
    then: tuple[Callable[[Target], None], ...] = ()
    moment: Moment = "covered"
    unguarded: bool = False


def always(kind: str, at: int | None) -> Expected:
    """Whatever the anchor."""
    return Expected(Told(kind, at), Told(kind, at), Told(kind, at))


def by_anchors(told: Told, events: int = COVERED) -> Expected:
    """By the anchors alone."""
    return Expected(Window(events), told, told)


def forked(at: int, events: int = COVERED) -> Expected:
    """The anchors vouch for another history there; without them ``events`` stand unproven."""
    return by_anchors(Told("forked", at), events)


def shorter(events: int) -> Expected:
    """The anchors vouch for more events than these."""
    return by_anchors(Told("rolled back", events + 1), events)
