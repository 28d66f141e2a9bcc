"""Signed notes against RFC 8032, other people's notes, and notes bent in one place."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ledger.integrity.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from ledger.integrity.note import (
    Note,
    NoteError,
    Signature,
    SigningKey,
    VerifierKey,
    format_note,
    open_note,
    parse_note,
    parse_vkey,
    sign_note,
    strict_base64,
)
from tests.ledger.integrity import vectors

KEY = SigningKey("ledger.example/audit", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = SigningKey("ledger.example/audit", Ed25519PrivateKey.from_private_bytes(bytes(32)))
TEXT = "ledger.example/audit\n3\n" + base64.b64encode(b"r" * 32).decode() + "\n"
NOTE = sign_note(TEXT, [KEY])


def test_rfc_8032_signatures_verify_and_any_flipped_bit_fails() -> None:
    for case in vectors.load("ed25519/rfc8032.json")["vectors"]:
        private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["secret_key"]))
        assert private.public_key().public_bytes_raw().hex() == case["public_key"]
        assert private.sign(bytes.fromhex(case["message"])).hex() == case["signature"]


def test_other_peoples_notes_open() -> None:
    for case in vectors.load("notes/signed_notes.json")["accept"]:
        opened = open_note(case["note"], [parse_vkey(text) for text in case["vkeys"]])
        assert len(opened.verified) == case["verified"], case["name"]
        assert format_note(parse_note(case["note"])) == case["note"]


def test_other_peoples_bad_notes_are_refused() -> None:
    for case in vectors.load("notes/signed_notes.json")["reject"]:
        with pytest.raises(NoteError):
            open_note(base64.b64decode(case["note_b64"]), [parse_vkey(text) for text in case["vkeys"]])


def test_we_sign_byte_for_byte_what_others_sign() -> None:
    case = vectors.load("notes/signed_notes.json")["sign"]
    name, _, encoded = case["skey"].removeprefix("PRIVATE+KEY+").split("+", 2)
    secret = base64.b64decode(encoded)[1:]
    key = SigningKey(name, Ed25519PrivateKey.from_private_bytes(secret))
    assert sign_note(case["text"], [key]) == case["expect"]


def test_other_peoples_bad_vkeys_are_refused() -> None:
    for text in vectors.load("notes/signed_notes.json")["bad_vkeys"]:
        with pytest.raises(NoteError):
            parse_vkey(text)


def test_checkpoint_texts_of_others_that_are_bad_are_refused() -> None:
    for text in vectors.load("notes/signed_notes.json")["checkpoint_body"]["bad"]:
        with pytest.raises(NoteError):
            parse_checkpoint(text)


def test_the_pinned_checkpoints_of_the_example_ledger_open_with_its_key() -> None:
    folder = vectors.folder("ledger_example")
    key = parse_vkey((folder / "vkey.txt").read_text().strip())
    roots = vectors.load("ledger_example/roots.json")
    for name, size in (("pinned-checkpoint-10.txt", 10), ("pinned-checkpoint-all.txt", 14)):
        opened = open_note((folder / name).read_bytes(), [key])
        assert parse_checkpoint(opened.text) == Checkpoint(key.name, size, bytes.fromhex(roots[str(size)]))


# --- keys ----------------------------------------------------------------------------------


def test_a_vkey_reads_back_as_itself() -> None:
    assert parse_vkey(str(KEY.verifier_key)) == KEY.verifier_key


@pytest.mark.parametrize(
    "bend",
    [
        lambda text: text.upper(),
        lambda text: text + "\n",
        lambda text: text[:-1],
        lambda text: text.replace("+", "-"),
        lambda text: text.replace("audit", "other"),
        lambda text: "+" + text.split("+", 1)[1],
        lambda text: text.replace("/", " ", 1),
        lambda text: text.rsplit("+", 1)[0] + "+" + base64.b64encode(b"\x01" + b"k" * 31).decode(),
        lambda text: "",
    ],
)
def test_a_bent_vkey_is_refused(bend: object) -> None:
    assert callable(bend)
    with pytest.raises(NoteError):
        parse_vkey(bend(str(KEY.verifier_key)))


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u00a0b"])
def test_a_name_that_would_not_survive_a_note_is_refused(name: str) -> None:
    with pytest.raises(NoteError):
        VerifierKey(name, b"k" * 32)


# --- opening -------------------------------------------------------------------------------


def test_a_note_signed_by_both_keys_of_a_rotation_opens_with_either() -> None:
    note = sign_note(TEXT, [KEY, OTHER])
    for key in (KEY, OTHER):
        opened = open_note(note, [key.verifier_key])
        assert opened.verified == (key.verifier_key,)
        assert len(opened.unknown) == 1
    assert len(open_note(note, [KEY.verifier_key, OTHER.verifier_key]).verified) == 2


def test_a_note_by_nobody_we_know_is_refused() -> None:
    with pytest.raises(NoteError, match="known key"):
        open_note(NOTE, [OTHER.verifier_key])
    with pytest.raises(NoteError, match="known key"):
        open_note(NOTE, [])


def test_one_bad_signature_by_a_known_key_spoils_a_note_that_another_key_signed_well() -> None:
    good = parse_note(sign_note(TEXT, [KEY, OTHER]))
    spoilt = Signature(KEY.name, good.signatures[0].key_id, good.signatures[1].signature)
    note = format_note(Note(TEXT, (spoilt, good.signatures[1])))
    with pytest.raises(NoteError, match="does not match"):
        open_note(note, [KEY.verifier_key, OTHER.verifier_key])


@given(st.integers(0, len(NOTE.encode()) * 8 - 1))
def test_any_flipped_bit_of_a_note_makes_it_fail(bit: int) -> None:
    data = bytearray(NOTE.encode())
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(NoteError):
        open_note(bytes(data), [KEY.verifier_key])


@pytest.mark.parametrize(
    "bend",
    [
        lambda note: note + "\n",
        lambda note: note[:-1],
        lambda note: note.replace("\n\n", "\n"),
        lambda note: note.replace("\u2014", "-"),
        lambda note: note.replace("\u2014 ", "\u2014"),
        lambda note: note.replace("\n", "\r\n"),
        lambda note: note + note.rsplit("\n", 2)[1] + " \n",
        lambda note: note + "\u2014 name AAAA\n",
        lambda note: note + note.split("\n\n")[1] * 101,
        lambda note: "x" * 1_000_001,
        lambda note: "\n\n" + note.split("\n\n")[1],
        lambda note: "\ud800" + note,
        lambda note: "",
    ],
)
def test_a_malformed_note_is_refused(bend: object) -> None:
    assert callable(bend)
    with pytest.raises(NoteError):
        open_note(bend(NOTE), [KEY.verifier_key])


def test_base64_has_one_form() -> None:
    assert strict_base64("QQ==") == b"A"
    for text in ("QR==", "QQ=", "QQ", "QQ==\n", " QQ==", "Q Q==", "QQ==QQ==", "_-==", "QQ=\u00e4"):
        with pytest.raises(NoteError):
            strict_base64(text)


@pytest.mark.parametrize("text", ["", "no newline", "tab\there\n", "nul\0\n"])
def test_an_unfit_text_is_not_signed(text: str) -> None:
    with pytest.raises(NoteError):
        sign_note(text, [KEY])
    with pytest.raises(NoteError):
        sign_note(TEXT, [])


# --- checkpoints ---------------------------------------------------------------------------


@given(st.integers(1, 2**60), st.binary(min_size=32, max_size=32))
def test_a_checkpoint_reads_back_as_itself(size: int, root: bytes) -> None:
    checkpoint = Checkpoint("replay-ledger.local/x", size, root)
    assert parse_checkpoint(format_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize(
    "text",
    [
        TEXT[:-1],
        TEXT + "extension\n",
        TEXT + "\n",
        TEXT.replace("\n3\n", "\n03\n"),
        TEXT.replace("\n3\n", "\n0\n"),
        TEXT.replace("\n3\n", "\n+3\n"),
        TEXT.replace("\n3\n", "\n\u0663\n"),
        TEXT.replace("\n3\n", "\n3\r\n"),
        "ledger.example/audit\n3\n" + base64.b64encode(b"r" * 31).decode() + "\n",
        "\n3\n" + base64.b64encode(b"r" * 32).decode() + "\n",
    ],
)
def test_a_checkpoint_in_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        parse_checkpoint(text)
