"""What vouches for a ledger, and how far: its anchors and the checkpoints stored in it, held against the walk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from ledger.integrity.anchors import (
    Keyring,
    OpenedAnchor,
    StoredCheckpoints,
    check_stored,
    follow_rotations,
    rotations_of,
)
from ledger.integrity.note import VerifierKey
from ledger.integrity.verdict import SIGNERS_STORE, Anchored, Findings, Window, printable
from ledger.integrity.walk import Walk
from ledger.store import Store

MEMBER: Final = "anchor"
_TIMES_SQL: Final = "SELECT recorded_at FROM events WHERE position = :position"


class Vouching(NamedTuple):
    """What is vouched for, in windows that follow one another; ``unproven``: what that leaves open."""

    anchored: Anchored | None
    signed: Window | None
    unsigned: Window | None
    unproven: tuple[str, ...]


def judge(
    store: Store,
    walk: Walk,
    found: Findings,
    keys: Sequence[VerifierKey],
    anchors: Sequence[OpenedAnchor],
    max_window: int,
) -> Vouching:
    """Hold anchors and stored checkpoints against what was walked; what does not match goes to ``found``."""
    ring = Keyring(keys)
    origin = walk.head.origin
    rotations = list(rotations_of(walk.keys_named, origin))
    follow_rotations(store, ring, rotations, anchors)
    stored = check_stored(store, ring, found, walk.judged, walk.forked)
    best: tuple[OpenedAnchor, tuple[VerifierKey, ...]] | None = None
    unproven: list[str] = []
    for anchor in sorted(anchors, key=lambda each: (each.tree.size, each.source != SIGNERS_STORE)):
        verified = _verified(walk, found, ring, anchor, stored, 0 if best is None else best[0].tree.size)
        if verified:
            best = anchor, verified
        elif verified is not None:
            unproven.append(
                f"{printable(anchor.source)}, over {anchor.tree.size} events, is signed by no key that somebody named"
                " or that a rotation leads to, so it proves nothing"
            )
    if stored.unknown:
        unproven.append(
            f"stored checkpoints that match the events but are signed by keys that nobody named: {stored.unknown}"
        )
    return _windows(store, walk, best, stored, max_window, unproven)


def _verified(
    walk: Walk, found: Findings, ring: Keyring, anchor: OpenedAnchor, stored: StoredCheckpoints, proven: int
) -> tuple[VerifierKey, ...] | None:
    """The keys that the anchor is good by; none where they are unknown; None where nothing more is to be said of it."""
    source, note, tree = anchor
    shown = printable(source)
    if tree.origin != walk.head.origin:
        found.add(None, MEMBER, "forked", f"{shown} is of the ledger {printable(tree.origin)}, and this is another one")
        return None
    good, bad = ring.signers(note, tree.size)
    for key in bad:
        said = f"{shown} bears no signature by key {key.key_id.hex()} of its text"
        found.add(tree.size, MEMBER, "signature bad", said)
    if bad:
        return None
    end = walk.last_position
    if tree.size > max(end, walk.judged):
        if walk.judged == walk.head.size:
            said = f"{shown} vouches for {tree.size} events, and the ledger ends at position {end}"
            found.add(end + 1, MEMBER, "rolled back", said, last=tree.size)
        return None
    computed = walk.roots.get(tree.size)
    if computed is None:  # events are missing before it: that is found already
        return None
    if computed != tree.root:
        said = f"{shown} vouches for another history of the positions up to {tree.size}"
        first = _agreed(stored, tree.size, proven) + 1
        if first > 1:
            said += f"; up to position {first - 1} a signed checkpoint agrees with what is here"
        found.add(first, MEMBER, "forked", said, last=tree.size)
        return None
    return good


def _agreed(stored: StoredCheckpoints, size: int, proven: int) -> int:
    """The largest size below ``size`` at which a signed checkpoint matches the events."""
    at = bisect_left(stored.signed, size)
    return max(proven, stored.signed[at - 1] if at else 0)


def _windows(
    store: Store,
    walk: Walk,
    best: tuple[OpenedAnchor, tuple[VerifierKey, ...]] | None,
    stored: StoredCheckpoints,
    max_window: int,
    unproven: list[str],
) -> Vouching:
    end = walk.last_position
    upto = 0 if best is None else best[0].tree.size
    signed_upto = max(upto, *stored.signed[-1:], 0)
    anchored = None
    if best is not None:
        window = _window(store, 1, upto)
        if window is not None:
            anchored = Anchored(window, best[0].source, tuple(map(str, best[1])))
    signed = _window(store, upto + 1, min(signed_upto, end))
    beyond = _window(store, upto + 1, end)
    unproven[:0] = _beyond(upto, beyond, max_window)
    return Vouching(anchored, signed, _window(store, signed_upto + 1, end), tuple(unproven))


def _beyond(upto: int, beyond: Window | None, max_window: int) -> Iterator[str]:
    if upto == 0 and beyond is not None:
        yield (
            f"no signed checkpoint vouches for the end of the ledger: {beyond}, stand without an anchor, so a tail"
            " cut off or a history written anew would not be seen"
        )
    elif beyond is not None and beyond.events > max_window:
        yield (
            f"the anchor ends before the ledger: {beyond}, stand beyond it, more than the {max_window} allowed, so a"
            " tail cut off there, or one written anew, would not be seen"
        )


def _window(store: Store, first: int, last: int) -> Window | None:
    if last < first:
        return None
    since, until = _time(store, first), _time(store, last)
    return Window(first, last, since, until, _minutes(since, until))


def _time(store: Store, position: int) -> str:
    return printable(next((row[0] for row in store.rows(_TIMES_SQL, {"position": position})), "unknown"))


def _minutes(since: str, until: str) -> int | None:
    try:
        span = datetime.fromisoformat(until) - datetime.fromisoformat(since)
    except (ValueError, TypeError):  # not times: a finding says so
        return None
    return -(-span // timedelta(minutes=1))
