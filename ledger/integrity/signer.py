"""The signer that refuses to fork: it signs a ledger only where it extends what was signed last.

What was signed last is kept outside the database (``signer_store.py``), so whoever can write to the
database, or puts an older copy of it in place, cannot get a second history signed. The steps of a
signature, each durable before the next:

1. under the store's lock: the root is computed from the ledger's nodes and leaves, and a consistency
   proof from the last checkpoint is made and verified (RFC 9162, section 2.1.4)
2. the new note takes the last one's place in the store
3. its row is written into the database
4. a key that has now signed for the first time takes the old key's place, which is thereby destroyed

A process that dies between two steps is made good by the next signature: a note that the database
lacks is written there first, a rotation that was begun is finished. The other order, database before
store, could publish a checkpoint that the store knows nothing of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from ledger.events import LEDGER_RUN_ID, NewEvent
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from ledger.integrity.merkle import (
    ProofError,
    ReadLeaves,
    ReadNodes,
    consistency_proof,
    root_at,
    verify_consistency,
)
from ledger.integrity.note import NoteError, SigningKey, VerifierKey, open_note, parse_vkey, sign_note
from ledger.integrity.signer_store import SignerStore
from ledger.integrity.signing_errors import (
    ForkRefused,
    KeyNotAtHand,
    KeyRefused,
    NoteRefused,
    RotatedUnsigned,
    SignerError,
    SignerUnreachable,
    StoreLost,
)
from ledger.store import Store
from ledger.store.records import Checkpoint as StoredCheckpoint

T = TypeVar("T")

_NAMED_KEYS_SQL: Final = """
SELECT payload FROM events WHERE run_id = :run_id AND type IN ('LedgerCreated', 'KeyRotated') ORDER BY run_version
"""
_STORED_ROOT_SQL: Final = "SELECT root FROM checkpoints WHERE size = :size"
_STORED_SINCE_SQL: Final = "SELECT size, root, note FROM checkpoints WHERE size >= :size ORDER BY size"

_WHAT_TO_DO: Final = (
    "Nothing was signed. Put back a copy of the ledger that holds every event signed; where there is none any more, "
    "keep this one as it is, and begin a new ledger"
)
_ADOPT: Final = (
    "bring the latest checkpoint that you kept elsewhere: `replay-ledger checkpoint --adopt FILE`, with `--key "
    "OLD.vkey` where a key that is gone signed it"
)


class Signed(NamedTuple):
    """A checkpoint signed: what it says, the note itself, and which of our keys signed it."""

    tree: Checkpoint
    note: str
    keys: tuple[VerifierKey, ...]


def check_extends(earlier: Checkpoint, later: Checkpoint, read_nodes: ReadNodes, read_leaves: ReadLeaves) -> None:
    """Raise ``ProofError`` or ``ValueError`` unless the stored tree ``later`` begins with ``earlier``."""
    proof = consistency_proof(earlier.size, later.size, read_nodes, read_leaves)
    verify_consistency(earlier.size, later.size, proof, earlier.root, later.root)


def ledger_keys(store: Store) -> list[VerifierKey | None]:
    """The keys that the ledger itself names, in order: at its creation (None: without one), then at each rotation.

    What the ledger says proves nothing; the signer compares it with the keys it holds. Raises ``KeyRefused``
    where it cannot be read.
    """
    keys: list[VerifierKey | None] = []
    origin = store.head().origin
    try:
        for (payload,) in store.rows(_NAMED_KEYS_SQL, {"run_id": LEDGER_RUN_ID}):
            vkey = json.loads(payload)["vkey"]
            keys.append(None if vkey is None else parse_vkey(vkey))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise KeyRefused(f"{store.shown}: an event that names the ledger's key is damaged") from None
    if any(key is not None and key.name != origin for key in keys):
        raise KeyRefused(f"{store.shown}: an event names a key of another ledger")
    return keys


class Signer:
    """Signs one ledger's checkpoints with the key in ``kept``, and remembers the last one there.

    Every method raises ``SignerError`` where the signer's folder or a key in it is not as it must be.
    """

    def __init__(self, kept: SignerStore) -> None:
        self.kept = kept

    # --- what a verifier asks for ----------------------------------------------------------

    def anchor(self) -> str | None:
        """The last checkpoint signed, as its note; None where none was.

        Ask before the ledger's head is read: another process may be signing meanwhile.
        """
        return self.kept.last()

    def vkeys(self) -> tuple[VerifierKey, ...]:
        """The public keys that the store vouches for, oldest first: the present one and those before it."""
        return self.kept.vkeys()

    def check(self, store: Store) -> None:
        """Raise now, as ``sign``, where the ledger could not be signed as it stands; nothing is changed."""
        self._twice(lambda: self._standing(store))

    def vkey(self, store: Store) -> VerifierKey:
        """The public half of the key that signs the ledger from here on. Raises ``KeyRefused``, ``KeyNotAtHand``."""
        return self._twice(lambda: self._signing_keys(store))[-1].verifier_key

    def _twice(self, ask: Callable[[], T]) -> T:
        """Ask without the lock, which takes a folder that can be written; what is refused is asked again under it.

        Between two reads another process may have signed for the first time, or changed the key.
        """
        try:
            return ask()
        except SignerError as refusal:
            try:
                with self.kept.locked():
                    return ask()
            except SignerUnreachable:
                raise refusal from None

    # --- signing ---------------------------------------------------------------------------

    def sign(self, store: Store) -> StoredCheckpoint:
        """Sign the ledger as it stands and keep the checkpoint, here and in the ledger.

        A tree that was signed already is not signed again: its checkpoint is given once more. Raises
        ``ForkRefused`` where the ledger does not extend the last checkpoint, ``StoreLost`` where there
        must have been one, ``KeyRefused``, ``KeyNotAtHand``, ``LedgerError``.
        """
        with self.kept.locked():
            return self._sign(store)

    def adopt(self, store: Store, note: str | bytes, keys: Iterable[VerifierKey] = ()) -> None:
        """Take a checkpoint that was signed before for the last one, where the store was lost.

        It must verify by a key of the store's or one of ``keys``, and the ledger must extend it. One older
        than the last signed changes nothing. Raises ``NoteRefused``, ``ForkRefused``, ``LedgerError``.
        """
        with self.kept.locked():
            brought = self._opened_to_adopt(note, tuple(keys))
            tree = _read_tree(store)
            self._refuse_fork(store, brought.tree, tree)
            last = self._last()
            if last is not None:
                self._refuse_fork(store, last.tree, tree)
            else:
                self._check_stored_since(store, brought.tree.size, tree)
            if last is None or last.tree.size < brought.tree.size:
                for key in brought.keys:
                    self.kept.note_vkey(key)
                self.kept.replace_last(brought.note)

    def rotate(
        self, store: Store, event_for: Callable[[VerifierKey], NewEvent], *, key_lost: bool = False
    ) -> StoredCheckpoint:
        """Give the ledger another key, or its first, and sign it: by both keys, where there was one.

        ``event_for`` makes the ``KeyRotated`` event. A rotation that was interrupted is finished, and no
        further one begun. ``key_lost``: go on although the ledger's key is not here; where the last checkpoint
        is lost as well, ``RotatedUnsigned`` says that the new key is there and what has to come first. Else
        raises as ``sign``.
        """
        with self.kept.locked():
            named = ledger_keys(store)
            present = named[-1:]
            key, coming = self.kept.key(), self.kept.coming_key()
            at_hand = coming is not None and [coming.verifier_key] == present
            if present in ([], [None]) or key_lost:
                if key is None and at_hand and len(named) > 1:  # done before, and not signed yet
                    return self._sign_at_last(store)
                self._check_replaceable(key, coming, present)
                last = self._last()
                if last is not None:
                    self._refuse_fork(store, last.tree, _read_tree(store))
            else:
                checkpoint = self._sign(store)
                if key is not None and at_hand:
                    return checkpoint
            new = self.kept.coming_key() or self.kept.make_coming_key()
            store.append([event_for(new.verifier_key)])
            return self._sign_at_last(store)

    def _sign_at_last(self, store: Store) -> StoredCheckpoint:
        try:
            return self._sign(store)
        except StoreLost as error:
            raise RotatedUnsigned(f"the new key is made and recorded, but {error}") from None

    # --- under the lock --------------------------------------------------------------------

    def _sign(self, store: Store) -> StoredCheckpoint:
        last, tree, keys = self._standing(store)
        if last is not None:
            self._publish(store, last)
            if keys[-1].verifier_key in last.keys:
                self._settle_keys(keys)
                if last.tree.size == tree.size:
                    return _stored(last)
                keys = keys[-1:]
        note = sign_note(format_checkpoint(tree), keys)
        signed = Signed(tree, note, tuple(key.verifier_key for key in keys))
        self.kept.replace_last(note)
        self._publish(store, signed)
        self._settle_keys(keys)
        return _stored(signed)

    def _standing(self, store: Store) -> tuple[Signed | None, Checkpoint, list[SigningKey]]:
        """What was signed last, the ledger's tree, which extends it, and the keys to sign that with."""
        last = self._last()  # before the tree: who only checks does so while another process may be signing
        tree = _read_tree(store)
        if last is None:
            self._check_first(store, tree)
        else:
            self._refuse_fork(store, last.tree, tree)
        return last, tree, self._signing_keys(store)

    def _signing_keys(self, store: Store) -> list[SigningKey]:
        """The ledger's present key, behind the one before it until a checkpoint bears both."""
        coming, key = self.kept.coming_key(), self.kept.key()
        named = ledger_keys(store)
        if key is None and coming is None:
            raise KeyNotAtHand(f"no key of {self.kept.origin} is in {self.kept.folder}")
        if not named or named[-1] is None:
            raise KeyRefused(f"{store.shown}: the ledger names no key: `replay-ledger keys rotate` gives it one")
        if coming is not None and coming.verifier_key == named[-1]:
            return [coming] if key is None or key.verifier_key not in named else [key, coming]
        if key is not None and key.verifier_key == named[-1]:
            return [key]
        raise KeyRefused(
            f"the key in {self.kept.folder} is not the ledger's: that is {named[-1]}. It was made or rotated "
            "elsewhere: sign where that key is, and take this one away"
        )

    def _settle_keys(self, keys: list[SigningKey]) -> None:
        """The last checkpoint is signed by ``keys[-1]`` and is where it should be: no other key is needed."""
        self.kept.note_vkey(keys[-1].verifier_key)
        coming = self.kept.coming_key()
        if coming is not None and coming.verifier_key == keys[-1].verifier_key:
            self.kept.promote_coming_key()

    def _last(self) -> Signed | None:
        note = self.kept.last()
        if note is None:
            return None
        try:
            return self._opened(note, self._known_keys(), "the last checkpoint signed")
        except NoteRefused as error:
            raise StoreLost(f"{self.kept.folder}: {error}. Nothing was signed. Take it away, then {_ADOPT}") from None

    def _known_keys(self) -> list[VerifierKey]:
        """Those noted, and those at hand: a list that was lost is made good by the next signature."""
        at_hand = (self.kept.key(), self.kept.coming_key())
        return [*self.kept.vkeys(), *(key.verifier_key for key in at_hand if key is not None)]

    def _opened(self, note: str | bytes, keys: Iterable[VerifierKey], what: str) -> Signed:
        try:
            opened = open_note(note, keys)
            tree = parse_checkpoint(opened.text)
        except NoteError as error:
            raise NoteRefused(f"{what} cannot be trusted: {error}") from None
        if tree.origin != self.kept.origin:
            raise NoteRefused(f"{what} is of the ledger {tree.origin}, this one is {self.kept.origin}")
        return Signed(tree, note if isinstance(note, str) else note.decode("utf-8"), opened.verified)

    def _refuse_fork(self, store: Store, earlier: Checkpoint, tree: Checkpoint) -> None:
        if tree.size < earlier.size:
            raise ForkRefused(
                f"{store.shown} has {tree.size:,} events, but a checkpoint over {earlier.size:,} was signed: "
                f"this is an older copy, or its end was cut off. {_WHAT_TO_DO}"
            )
        try:
            check_extends(earlier, tree, store.read_nodes, store.read_leaves)
        except (ProofError, ValueError) as error:
            raise ForkRefused(
                f"{store.shown} does not extend the checkpoint over {earlier.size:,} events that was signed "
                f"({error}): its history is another one. {_WHAT_TO_DO}"
            ) from None

    def _check_first(self, store: Store, tree: Checkpoint) -> None:
        """Nothing is kept of an earlier signature: raise ``StoreLost`` unless there was none."""
        stored = next(iter(store.rows(_STORED_SINCE_SQL, {"size": 0})), None)
        if stored is None and (tree.size == 1 or self.kept.key() is None):
            return
        raise StoreLost(
            f"{self.kept.folder} no longer holds the last checkpoint signed, so a fork of {store.shown} could not be "
            f"told. Nothing was signed. First {_ADOPT}"
        )

    def _opened_to_adopt(self, note: str | bytes, keys: tuple[VerifierKey, ...]) -> Signed:
        try:
            return self._opened(note, (*self._known_keys(), *keys), "the checkpoint to adopt")
        except NoteRefused as error:
            hint = "" if keys else ". Where a key that is gone signed it, name that one as well: `--key OLD.vkey`"
            raise NoteRefused(f"{error}{hint}") from None

    def _check_stored_since(self, store: Store, size: int, tree: Checkpoint) -> None:
        """No checkpoint of ours in the database tells of another history than the one that is adopted."""
        for row in store.rows(_STORED_SINCE_SQL, {"size": size}):
            try:
                stored = self._opened(str(row[2]), self._known_keys(), "a stored checkpoint")
            except NoteRefused:
                continue
            self._refuse_fork(store, stored.tree, tree)

    def _publish(self, store: Store, signed: Signed) -> None:
        """Write the note's row unless it is there."""
        size, root = signed.tree.size, signed.tree.root
        stored = next(iter(store.rows(_STORED_ROOT_SQL, {"size": size})), None)
        if stored is None:
            store.save_checkpoint(_stored(signed))
        elif stored[0] != root:
            raise ForkRefused(
                f"{store.shown} holds a checkpoint over {size:,} events with another root than the one signed: "
                "`replay-ledger verify` tells what else is wrong"
            )

    def _check_replaceable(
        self, key: SigningKey | None, coming: SigningKey | None, present: list[VerifierKey | None]
    ) -> None:
        if key is not None or (coming is not None and [coming.verifier_key] == present):
            raise KeyRefused(
                f"{self.kept.folder} holds a key already; rotate without --key-lost, or take a key away "
                "that is not this ledger's"
            )


def key_for_new_ledger(kept: SignerStore) -> VerifierKey:
    """Make the key of a ledger that is about to begin, durable before any event names it.

    Raises ``KeyRefused`` where a ledger of this name was signed here: a second one would be its fork.
    """
    with kept.locked():
        if kept.key() is not None or kept.last() is not None:
            raise KeyRefused(
                f"a ledger named {kept.origin} was signed with the key in {kept.folder} already, and a second one of "
                "that name would be a fork of it: choose another name"
            )
        return (kept.coming_key() or kept.make_coming_key()).verifier_key


def _read_tree(store: Store) -> Checkpoint:
    """The ledger's tree as its nodes and leaves give it; the head's word alone is not taken."""
    head = store.head()
    damaged = f"{store.shown}: the ledger's head does not follow from its events: `replay-ledger verify` tells more"
    try:
        root = root_at(head.size, store.read_nodes, store.read_leaves)
    except (ValueError, TypeError):  # SQLite keeps what it is given, of any type
        raise ForkRefused(damaged) from None
    if head.size < 1 or root != head.root:
        raise ForkRefused(damaged)
    return Checkpoint(head.origin, head.size, root)


def _stored(signed: Signed) -> StoredCheckpoint:
    return StoredCheckpoint(signed.tree.size, signed.tree.root, signed.note)
