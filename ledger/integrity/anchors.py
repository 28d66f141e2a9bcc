"""Anchors: signed checkpoints kept outside the database, and the keys by which they, and those in it, are verified.

A key is trusted where the caller named it, and where a rotation leads to it: the first checkpoint over
a ``KeyRotated`` event bears the signatures of the key before and of the new one (docs/ledger-format.md,
section 4), so whoever trusts one of them may trust the other. Backwards that holds for the checkpoints
up to that one alone: a key that was replaced vouches for nothing later. That the log itself names a key
proves nothing: whoever writes a log anew can name his own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ledger.integrity.checkpoint import Checkpoint, parse_checkpoint
from ledger.integrity.note import Note, NoteError, VerifierKey, format_note, open_note, parse_note, parse_vkey
from ledger.integrity.verdict import SIGNERS_STORE, Findings
from ledger.store import Store

_ALL_SQL: Final = "SELECT size, note FROM checkpoints WHERE size <= :upto ORDER BY size"
_OVER_SQL: Final = "SELECT note FROM checkpoints WHERE size >= :size ORDER BY size LIMIT 1"


__all__ = ["SIGNERS_STORE", "Anchor", "Keyring", "OpenedAnchor", "Rotation", "open_anchor"]


class Anchor(NamedTuple):
    """A signed note as somebody kept it, and what it is: ``SIGNERS_STORE``, or "the file X"."""

    note: str | bytes
    source: str


class OpenedAnchor(NamedTuple):
    """An anchor taken apart; no signature has been looked at."""

    source: str
    note: Note
    tree: Checkpoint


def open_anchor(anchor: Anchor) -> OpenedAnchor:
    """Take an anchor apart. Raises ``NoteError`` where it is no checkpoint."""
    note = parse_note(anchor.note)
    return OpenedAnchor(anchor.source, note, parse_checkpoint(note.text))


class Signers(NamedTuple):
    """Whose signatures a note bears: good ones by trusted keys, bad ones by known keys."""

    good: tuple[VerifierKey, ...]
    bad: tuple[VerifierKey, ...]


class Keyring:
    """The keys that are trusted, each up to some size where it was replaced."""

    def __init__(self, named: Iterable[VerifierKey]) -> None:
        self._upto: dict[VerifierKey, int | None] = dict.fromkeys(named)

    @property
    def keys(self) -> tuple[VerifierKey, ...]:
        """All that are trusted at some size."""
        return tuple(self._upto)

    def signers(self, note: Note, size: int) -> Signers:
        """Check the signatures on a note over a tree of this size."""
        good, bad = [], []
        for key, is_good in _checked(note, self._upto):
            upto = self._upto[key]
            if not is_good:
                bad.append(key)
            elif upto is None or size <= upto:
                good.append(key)
        return Signers(tuple(good), tuple(bad))

    def follow(self, rotations: Sequence[Rotation], candidates: Sequence[Sequence[tuple[int, Note]]]) -> None:
        """Trust what rotations lead to. ``candidates``: for each, notes with sizes that may bear both signatures."""
        links = [
            (rotation, size)
            for rotation, notes in zip(rotations, candidates, strict=True)
            for size, note in notes
            if size >= rotation.position and _bears_both(note, rotation)
        ]
        for (_, before, after), _ in links:
            if before in self._upto and self._upto[before] is None:
                self._upto.setdefault(after, None)
        for (_, before, after), size in reversed(links):
            if after in self._upto and before not in self._upto:
                self._upto[before] = size


class Rotation(NamedTuple):
    """A ``KeyRotated`` event: where it stands, the key in force before it, and the new one."""

    position: int
    before: VerifierKey
    after: VerifierKey


def rotations_of(keys_named: Iterable[tuple[int, Any]], origin: str) -> Iterator[Rotation]:
    """The rotations from one key to another, of the events that name keys; what is no key of ``origin`` is left out."""
    before: VerifierKey | None = None
    for position, vkey in keys_named:
        try:
            key = parse_vkey(vkey) if isinstance(vkey, str) else None
        except NoteError:
            key = None
        if key is None or key.name != origin:
            continue
        if before is not None and before != key:
            yield Rotation(position, before, key)
        before = key


def follow_rotations(
    store: Store, ring: Keyring, rotations: Sequence[Rotation], brought: Iterable[OpenedAnchor]
) -> None:
    """Look for the checkpoint over each rotation, among those stored and those brought."""
    notes = [(anchor.tree.size, anchor.note) for anchor in brought]
    stored = [[*_stored_over(store, rotation.position), *notes] for rotation in rotations]
    ring.follow(rotations, stored)


def _stored_over(store: Store, position: int) -> Iterator[tuple[int, Note]]:
    for (text,) in store.rows(_OVER_SQL, {"size": position}):
        try:
            note = parse_note(text if isinstance(text, str) else b"")
            yield parse_checkpoint(note.text).size, note
        except NoteError:
            return


class StoredCheckpoints(NamedTuple):
    """What the stored checkpoints' signatures say.

    ``signed``: the sizes that a trusted key signed, rising. ``unknown``: how many bear no trusted signature.
    """

    signed: list[int]
    unknown: int


def check_stored(store: Store, ring: Keyring, found: Findings, upto: int, forked: Iterable[int]) -> StoredCheckpoints:
    """Verify the signatures of the stored checkpoints up to a size; those in ``forked`` vouch for nothing here.

    What a note says is compared with its row, and with the tree, by the walk.
    """
    refuted, signed, unknown = set(forked), [], 0
    for size, text in store.rows(_ALL_SQL, {"upto": upto}):
        try:
            note = parse_note(text if isinstance(text, str) else b"")
            tree = parse_checkpoint(note.text)
        except NoteError:
            continue
        good, bad = ring.signers(note, tree.size)
        for key in bad:
            found.add(size, "checkpoints", "signature bad", f"not a signature by key {key.key_id.hex()} of this text")
        if size in refuted or tree.size != size:
            continue
        if good and not bad:
            signed.append(size)
        elif not bad:
            unknown += 1
    return StoredCheckpoints(signed, unknown)


def _bears_both(note: Note, rotation: Rotation) -> bool:
    wanted = {rotation.before, rotation.after}
    return {key for key, is_good in _checked(note, wanted) if is_good} == wanted


def _checked(note: Note, keys: Iterable[VerifierKey]) -> Iterator[tuple[VerifierKey, bool]]:
    """Each signature line by one of the keys: is it good?"""
    known = {(key.name, key.key_id): key for key in keys}
    for line in note.signatures:
        key = known.get((line.name, line.key_id))
        if key is None:
            continue
        try:
            open_note(format_note(Note(note.text, (line,))), [key])
        except NoteError:
            yield key, False
        else:
            yield key, True
