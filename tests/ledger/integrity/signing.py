"""Ledgers with a key, for the tests of the signer."""

from __future__ import annotations

from pathlib import Path

from ledger import open_ledger
from ledger.events import LEDGER_RUN_ID, KeyRotated, LedgerCreated, NewEvent, new_event
from ledger.integrity.checkpoint import Checkpoint, parse_checkpoint
from ledger.integrity.note import VerifierKey, open_note
from ledger.integrity.signer import Signer, key_for_new_ledger
from ledger.integrity.signer_store import SignerStore
from ledger.store import Store
from tests.ledger.store.making import some

ORIGIN = "audit.example.com/agents"


def begin(url: str, base: Path, origin: str = ORIGIN, *, vkey: VerifierKey | None = None) -> tuple[Store, Signer]:
    """A ledger that has just begun, with its key below ``base``, or that names a key it does not have."""
    kept = SignerStore(base, origin)
    created = LedgerCreated(format=1, software_version="0", vkey=str(vkey or key_for_new_ledger(kept)))
    store = open_ledger(url, "create", origin=origin, created=new_event(created, run_id=LEDGER_RUN_ID))
    return store, Signer(kept)


def grow(store: Store, count: int, run_id: str = "run") -> None:
    """``count`` more events."""
    store.append(some(count, run_id=run_id, first=store.version(run_id) + 1))


def rotated(vkey: VerifierKey) -> NewEvent:
    return new_event(KeyRotated(vkey=str(vkey)), run_id=LEDGER_RUN_ID, content='{"operator":"tester"}')


def opened(note: str, *keys: VerifierKey) -> tuple[Checkpoint, int]:
    """What a note says, and how many of the keys signed it."""
    found = open_note(note, keys)
    return parse_checkpoint(found.text), len(found.verified)
