"""Proofs that need no ledger to be checked: one event is in a signed tree; one tree begins another.

A proof for an event is a C2SP tlog-proof (https://c2sp.org/tlog-proof):

    c2sp.org/tlog-proof@v1
    extra <base64 of the event's envelope, as canonical JSON>
    index <position - 1>
    <base64 hash, from the leaf's sibling up>
    ...
    <blank line>
    <the signed checkpoint, as it is>

The envelope is what the leaf is the hash of (SHA-256 of a zero byte and the envelope); it is the one
part that is not proven by being there, so a reader hashes it. Payload and content are not in it: their
digests are.

Some twenty to forty reads of stored hashes a proof, whatever the size of the ledger.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from ledger.integrity.checkpoint import Checkpoint, parse_checkpoint
from ledger.integrity.merkle import (
    ProofError,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
)
from ledger.integrity.note import NoteError, parse_note
from ledger.store import Store
from ledger.store.envelope import Envelopes, check_members
from ledger.store.errors import InvalidEvent, LedgerMalformed
from ledger.store.records import EVENT_COLUMNS
from ledger.store.records import Checkpoint as StoredCheckpoint

FIRST_LINE: Final = "c2sp.org/tlog-proof@v1"

_COVERING_SQL: Final = "SELECT size, root, note FROM checkpoints WHERE size >= :size ORDER BY size DESC LIMIT 1"
_BY_ID_SQL: Final = "SELECT position FROM events WHERE event_id = :event_id"
_ENVELOPE: Final = (*EVENT_COLUMNS[:9], "payload_sha256", "content_commitment")
_EVENT_SQL: Final = f"SELECT {', '.join(_ENVELOPE)} FROM events WHERE position = :position"  # noqa: S608 - our own


class NotProvable(Exception):
    """There is nothing to prove that with; the text says what is missing."""

    exit_code = 2


def covering_checkpoint(store: Store, position: int) -> StoredCheckpoint | None:
    """The newest stored checkpoint, where it covers ``position``. Whose signatures it bears is not looked at."""
    return next((StoredCheckpoint(*row) for row in store.rows(_COVERING_SQL, {"size": position})), None)


def position_of(store: Store, event_id: str) -> int | None:
    """Where the event with this id stands; None where the ledger has none."""
    return next((int(row[0]) for row in store.rows(_BY_ID_SQL, {"event_id": event_id})), None)


def prove_event(store: Store, position: int, note: str) -> bytes:
    """The proof that the event at ``position`` is in the tree that ``note``, a signed checkpoint, speaks of.

    What is given was verified. Raises ``NotProvable`` where the checkpoint is not of this ledger or does not
    cover the event, ``LedgerMalformed`` where the ledger's hashes do not lead to the checkpoint's root.
    """
    checkpoint = _opened(store, note)
    if not 1 <= position <= checkpoint.size:
        raise NotProvable(f"the checkpoint covers positions 1 to {checkpoint.size}, not {position}")
    index, envelope = position - 1, _envelope(store, position, checkpoint.origin)
    try:
        proof = inclusion_proof(index, checkpoint.size, store.read_nodes, store.read_leaves)
        verify_inclusion(index, checkpoint.size, leaf_hash(envelope), proof, checkpoint.root)
    except ValueError as error:
        raise _does_not_lead(f"position {position}", error) from None
    lines = [FIRST_LINE, f"extra {base64.b64encode(envelope).decode()}", f"index {index}", *_encoded(proof), "", note]
    return "\n".join(lines).encode()


def prove_consistency(store: Store, size1: int, size2: int) -> bytes:
    """That the first ``size1`` events begin those up to ``size2``: hashes in base64, one a line (RFC 9162, 2.1.4.1).

    Raises ``NotProvable`` unless 0 < ``size1`` <= ``size2`` <= the ledger's size, ``LedgerMalformed`` where the
    ledger's stored hashes contradict each other.
    """
    size = store.head().size
    if not 0 < size1 <= size2:
        raise NotProvable(f"from {size1} to {size2}: a proof goes from a size of 1 or more to one not smaller")
    if size2 > size:
        raise NotProvable(f"the ledger has {size} events, not {size2}")
    try:
        proof = consistency_proof(size1, size2, store.read_nodes, store.read_leaves)
        verify_consistency(size1, size2, proof, store.root_at(size1), store.root_at(size2))
    except ValueError as error:
        raise _does_not_lead(f"sizes {size1} and {size2}", error) from None
    return "".join(f"{line}\n" for line in _encoded(proof)).encode()


def _opened(store: Store, note: str) -> Checkpoint:
    try:
        checkpoint = parse_checkpoint(parse_note(note).text)
    except NoteError as error:
        raise NotProvable(f"no signed checkpoint: {error}") from None
    head = store.head()
    if checkpoint.origin != head.origin:
        raise NotProvable(f"the checkpoint is of another ledger than {head.origin}")
    if checkpoint.size > head.size:
        raise NotProvable(f"the checkpoint is of {checkpoint.size} events, and the ledger has {head.size}")
    return checkpoint


def _envelope(store: Store, position: int, origin: str) -> bytes:
    row: Sequence[Any] | None = next(iter(store.rows(_EVENT_SQL, {"position": position})), None)
    if row is None:
        raise LedgerMalformed(f"position {position} is missing: `replay-ledger verify` tells more")
    try:
        check_members(row[1], row[2], row[3], row[4], row[6])
        return Envelopes(origin).encode(*row)
    except InvalidEvent as error:
        raise _does_not_lead(f"position {position}", error) from None


def _encoded(hashes: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(item).decode() for item in hashes]


def _does_not_lead(place: str, error: Exception) -> LedgerMalformed:
    what = "another root" if isinstance(error, ProofError) else str(error)
    return LedgerMalformed(
        f"{place}: the ledger's hashes do not lead to it ({what}): `replay-ledger verify` tells more"
    )
