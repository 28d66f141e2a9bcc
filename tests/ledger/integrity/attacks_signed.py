"""Attacks on what vouches: whole histories put in place of one, checkpoints, keys, the signer's store, the end.

Here the attacker owns more than the database, or leaves alone what an anchor vouches for. Where nothing is left
that could tell, the expectation is ``Passes``, and says why.
"""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection, insert, select

from ledger.integrity.canonical import encode_payload
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import Note, Signature, SigningKey, format_note, parse_note, sign_note
from tests.ledger.integrity.attack import Attack, Expected, Passes, Told, Unproven, Window, always, forked, shorter
from tests.ledger.integrity.attacks import AGAIN, OUTPUT, deleted, inserted, payload_replaced
from tests.ledger.integrity.forging import TABLES, pour, store_checkpoint
from tests.ledger.integrity.scene import COVERED, GROWN, OLDER, REPORT, Target
from tests.ledger.integrity.small import ORIGIN, clean_run
from tests.ledger.integrity.tampering import owner, put_foreign_trigger
from tests.ledger.store.making import START, Clock

HIS_OWN: Final = SigningKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"f" * 32))
CHECKPOINTS: Final = TABLES["checkpoints"]

# --- whole histories -----------------------------------------------------------------------


def _older_copy(target: Target) -> None:
    pour(target.side("older"), target.url)


def _go_on_differently(target: Target) -> None:
    with target.open("write", Clock(START + timedelta(hours=2))) as store:
        store.append(clean_run("run-2", 6))


def _older_store(target: Target) -> None:
    with owner(target.side("older")) as connection:
        target.signer.replace_last(connection.execute(select(CHECKPOINTS.c.note)).scalar_one())


def _name_his_own_key(_: Target, connection: Connection) -> None:
    events = TABLES["events"]
    first = events.c.position == 1
    said = json.loads(connection.execute(select(events.c.payload).where(first)).scalar_one())
    payload = encode_payload(said | {"vkey": str(HIS_OWN.verifier_key)}).decode()
    connection.execute(events.update().where(first).values(payload=payload))


def _sign_with_his_own_key(target: Target) -> None:
    store_checkpoint(target.url, HIS_OWN)


def _sign(target: Target) -> str:
    key = target.signer.key()
    assert key is not None
    return store_checkpoint(target.url, key)


def _sign_only(target: Target) -> None:
    _sign(target)


def _sign_and_remember(target: Target) -> None:
    target.signer.replace_last(_sign(target))


_EVERY_OUTPUT: Final = (
    "UPDATE events SET payload = replace(payload, :a, :b) WHERE type = 'OutputAccepted'",
    {"a": '"risk_level":"medium"', "b": '"risk_level":"low"'},
)
_FROM_GENESIS: Final = (payload_replaced('"software_version":"0"', '"software_version":"1"', 1), _EVERY_OUTPUT)
_FORK_AT: Final = OLDER + 11
_FORK: Final = (payload_replaced('"risk_level":"medium"', '"risk_level":"low"', _FORK_AT),)
_MACHINE: Final = Passes(
    "whoever holds the key and the signer's store can make them vouch for anything: only a checkpoint that was kept"
    " where he cannot reach tells"
)

HISTORIES: Final = (
    Attack("roll-back", "The whole database put back to an older copy", (), shorter(OLDER), None, then=(_older_copy,)),
    Attack(
        "roll-back-and-go-on",
        "The whole database put back to an older copy, and other events appended until it is as long again",
        (),
        forked(OLDER + 1, OLDER + 27),
        None,
        then=(_older_copy, _go_on_differently),
    ),
    Attack(
        "roll-back-machine",
        "The database and the signer's store both put back to older copies",
        (),
        Expected(Window(OLDER), _MACHINE, Told("rolled back", OLDER + 1)),
        None,
        then=(_older_copy, _older_store),
    ),
    Attack("rewrite", "Rewritten from the first event on, without the key", _FROM_GENESIS, None, forked(1)),
    Attack(
        "rewrite-own-key",
        "Rewritten from the first event on, naming a key of his own and signed with it",
        (*_FROM_GENESIS, _name_his_own_key),
        None,
        forked(1),
        then=(_sign_with_his_own_key,),
    ),
    Attack(
        "rewrite-key",
        "Rewritten from the first event on, and signed with the ledger's key",
        _FROM_GENESIS,
        None,
        forked(1),
        then=(_sign_only,),
    ),
    Attack(
        "rewrite-key-and-store",
        "Rewritten from the first event on, signed with the ledger's key, and put into the signer's store",
        _FROM_GENESIS,
        None,
        Expected(Window(COVERED), _MACHINE, Told("forked", 1)),
        then=(_sign_and_remember,),
    ),
    Attack(
        "fork-key",
        "Forked after an earlier checkpoint, and signed with the ledger's key",
        _FORK,
        None,
        forked(_FORK_AT),
        then=(_sign_only,),
    ),
    Attack(
        "fork-key-and-store",
        "Forked after an earlier checkpoint, signed with the ledger's key, and put into the signer's store",
        _FORK,
        None,
        Expected(Window(COVERED), _MACHINE, Told("forked", _FORK_AT)),
        then=(_sign_and_remember,),
    ),
)

# --- stored checkpoints --------------------------------------------------------------------


def _with_bad_signature(note: str) -> str:
    parsed = parse_note(note)
    return format_note(Note(parsed.text, tuple(Signature(s.name, s.key_id, bytes(64)) for s in parsed.signatures)))


def _signed_by_his_own(note: str) -> str:
    return sign_note(parse_note(note).text, [HIS_OWN])


def _rewrite_notes(connection: Connection, sign: object) -> None:
    assert callable(sign)
    for size, note in connection.execute(select(CHECKPOINTS.c.size, CHECKPOINTS.c.note)).all():
        connection.execute(CHECKPOINTS.update().where(CHECKPOINTS.c.size == size).values(note=sign(note)))


def _break_signatures(_: Target, connection: Connection) -> None:
    _rewrite_notes(connection, _with_bad_signature)


def _sign_anew(_: Target, connection: Connection) -> None:
    _rewrite_notes(connection, _signed_by_his_own)


def _add_checkpoint(size: int) -> object:
    def step(_: Target, connection: Connection) -> None:
        root = b"r" * 32
        note = sign_note(format_checkpoint(Checkpoint(ORIGIN, size, root)), [HIS_OWN])
        connection.execute(insert(CHECKPOINTS), [{"size": size, "root": root, "note": note}])

    return step


_NOBODYS: Final = Unproven("signed by keys that nobody named")
_COPIES: Final = Passes(
    "nothing that happened was changed: the stored checkpoints are copies of what was signed, and the anchor vouches"
    " for the events themselves"
)

STORED: Final = (
    Attack(
        "checkpoint-root",
        "The root of a stored checkpoint edited",
        ((f"UPDATE checkpoints SET root = :h WHERE size = {OLDER}", {"h": b"h" * 32}),),
        always("forked", OLDER),
        None,
    ),
    Attack(
        "checkpoint-note",
        "The text of a stored checkpoint edited",
        (f"UPDATE checkpoints SET note = replace(note, '{OLDER}', '{OLDER - 1}') WHERE size = {OLDER}",),
        always("edited", OLDER),
        None,
    ),
    Attack(
        "checkpoint-signature",
        "The signatures of the stored checkpoints broken",
        (_break_signatures,),
        always("signature bad", OLDER),
        None,
    ),
    Attack(
        "checkpoint-other-key",
        "The stored checkpoints signed anew with a key of his own",
        (_sign_anew,),
        Expected(Window(COVERED), _NOBODYS, _NOBODYS),
        None,
    ),
    Attack(
        "checkpoint-made-up",
        "A checkpoint made up for a size in the middle",
        (_add_checkpoint(100),),
        always("forked", 100),
        None,
    ),
    Attack(
        "checkpoint-beyond",
        "A checkpoint made up for more events than there are",
        (_add_checkpoint(300),),
        always("rolled back", 300),
        None,
    ),
    Attack(
        "checkpoint-delete",
        "All stored checkpoints deleted",
        ("DELETE FROM checkpoints",),
        Expected(Window(COVERED), _COPIES, _COPIES),
        None,
    ),
)

# --- the signer's store --------------------------------------------------------------------


def _lose_store(target: Target) -> None:
    shutil.rmtree(target.signers)


def _own_note_in_store(target: Target) -> None:
    target.signer.replace_last(_signed_by_his_own(target.kept))


def _broken_note_in_store(target: Target) -> None:
    target.signer.replace_last(_with_bad_signature(target.kept))


_UNTOUCHED: Final = Passes("the ledger itself was not touched, and the checkpoint kept elsewhere vouches for it")

STORE: Final = (
    Attack(
        "store-lost",
        "The signer's store deleted",
        (),
        Expected(Window(COVERED), Window(COVERED), _UNTOUCHED),
        None,
        then=(_lose_store,),
    ),
    Attack(
        "store-older",
        "The signer's store put back to an older checkpoint",
        (),
        Expected(Window(COVERED), Window(COVERED - OLDER), _UNTOUCHED),
        None,
        then=(_older_store,),
    ),
    Attack(
        "store-other-key",
        "The signer's store given a checkpoint signed with a key of his own",
        (),
        Expected(Window(COVERED), Unproven("signed by no key that somebody named"), _UNTOUCHED),
        None,
        then=(_own_note_in_store,),
    ),
    Attack(
        "store-broken",
        "The signature of the checkpoint in the signer's store broken",
        (),
        Expected(Window(COVERED), Told("signature bad", COVERED), _UNTOUCHED),
        None,
        then=(_broken_note_in_store,),
    ),
)

# --- the end, which nothing vouches for yet ------------------------------------------------


def _beyond(events: int) -> Expected:
    """So many events stand beyond what the anchors cover."""
    return Expected(Window(COVERED + events), Window(events), Window(events))


def _order_an_erasure(_: Target, connection: Connection) -> None:
    payload = encode_payload({"actor": "dpo-1", "positions": [OUTPUT], "reason": "gdpr"}).decode()
    members = {"event_id": AGAIN, "type": "ContentRedacted", "schema": 1, "run_id": "$ledger", "run_version": 9999}
    events = TABLES["events"]
    time = connection.execute(select(events.c.recorded_at).where(events.c.position == COVERED)).scalar_one()
    hashes = {"payload": payload, "payload_sha256": "0" * 64, "leaf_hash": bytes(32)}
    connection.execute(insert(events), [{"position": COVERED + 1, "recorded_at": time, **members, **hashes}])


_UNSIGNED: Final = GROWN - 4
_LEAVES_NO_TRACE: Final = Passes(
    "the events cut off were never signed, so the ledger is again exactly what the anchor vouches for: what was"
    " appended after the last checkpoint is not protected until the next one"
)

UNSIGNED: Final = (
    Attack(
        "end-edit",
        "The facts of one of them edited",
        (payload_replaced('"risk_level":"medium"', '"risk_level":"low"', _UNSIGNED),),
        always("edited", _UNSIGNED),
        _beyond(GROWN - COVERED),
        moment="grown",
    ),
    Attack(
        "end-delete",
        "Two of them deleted",
        deleted(f"position IN ({_UNSIGNED}, {_UNSIGNED - 1})"),
        always("removed", _UNSIGNED - 1),
        _beyond(GROWN - COVERED - 2),
        moment="grown",
    ),
    Attack(
        "end-append",
        "One appended past the program",
        inserted(COVERED, REPORT),
        always("inserted", COVERED + 1),
        _beyond(1),
    ),
    Attack(
        "end-erase",
        "A content erased, and an event made up at the end that orders it",
        (
            f"DELETE FROM contents WHERE position = {OUTPUT}",
            f"INSERT INTO redactions (position, event_position) VALUES ({OUTPUT}, {COVERED + 1})",
            _order_an_erasure,
        ),
        always("inserted", COVERED + 1),
        _beyond(1),
    ),
    Attack(
        "end-cut",
        "The last of them cut off",
        deleted(f"position > {_UNSIGNED}"),
        always("truncated", _UNSIGNED + 1),
        _beyond(_UNSIGNED - COVERED),
        moment="grown",
    ),
    Attack(
        "end-cut-whole",
        "All of them cut off, back to the last event that the anchor covers",
        deleted(f"position > {COVERED}"),
        always("truncated", COVERED + 1),
        Expected(Window(COVERED), _LEAVES_NO_TRACE, _LEAVES_NO_TRACE),
        moment="grown",
    ),
)

# --- the guards ----------------------------------------------------------------------------

_DROPPED: Final = Unproven("the database's own guards")
_FOREIGN: Final = Unproven("a trigger that is not ours: zz on contents")


def _put_foreign_trigger(_: Target, connection: Connection) -> None:
    put_foreign_trigger(connection)


GUARDS: Final = (
    Attack(
        "guards",
        "The triggers dropped, and nothing else",
        (),
        Expected(_DROPPED, _DROPPED, _DROPPED),
        None,
        unguarded=True,
    ),
    Attack(
        "foreign-trigger",
        "A trigger of somebody else's added, which could copy each text before it is erased",
        (_put_foreign_trigger,),
        Expected(_FOREIGN, _FOREIGN, _FOREIGN),
        None,
    ),
)
