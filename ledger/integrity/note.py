"""Signed notes (C2SP signed-note) with Ed25519: a text, a blank line, a line a signature.

    <text, one or more lines, each ended by a newline>
    <blank line>
    — <key name> <base64(key id || signature)>

The signature covers the text with its last newline and without the blank line. A key id is the
first four bytes of SHA-256(name || 0x0A || 0x01 || public key); 0x01 says Ed25519. A public key in
text, a vkey, is ``name+hex(key id)+base64(0x01 || public key)``.

Base64 is read strictly: what does not encode to the same text again is refused, so that one note
has one form. Pure: nothing here reads a file or makes a key.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ED25519: Final = b"\x01"
KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
SIGNATURE_BYTES: Final = 64
MAX_NOTE_BYTES: Final = 1_000_000
MAX_SIGNATURES: Final = 100
_SIGNATURE_PREFIX: Final = "\u2014 "
_HEX_KEY_ID: Final = re.compile(r"[0-9a-f]{8}")


class NoteError(ValueError):
    """Not a note, not a key, or a signature that does not match."""


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key and the name it signs under. Its text form is the vkey."""

    name: str
    public_key: bytes

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.public_key) != KEY_BYTES:
            raise NoteError("an Ed25519 public key has 32 bytes")

    @property
    def key_id(self) -> bytes:
        """Four bytes that say which key signed; no security rests on them."""
        return sha256(self.name.encode() + b"\n" + ED25519 + self.public_key).digest()[:KEY_ID_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(ED25519 + self.public_key).decode()}"


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature line."""

    name: str
    key_id: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """A note taken apart; no signature has been looked at."""

    text: str
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True)
class OpenedNote:
    """A note with at least one good signature by a known key, and none that is bad.

    ``unknown`` are the signatures by keys that the caller did not name: they prove nothing.
    """

    text: str
    verified: tuple[VerifierKey, ...]
    unknown: tuple[Signature, ...]


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and the name it signs under."""

    name: str
    private_key: Ed25519PrivateKey

    @property
    def verifier_key(self) -> VerifierKey:
        """The public half."""
        return VerifierKey(self.name, self.private_key.public_key().public_bytes_raw())


def parse_vkey(text: str) -> VerifierKey:
    """Read a vkey. Raises ``NoteError`` where it is malformed or its key id is another key's."""
    name, plus, rest = text.partition("+")
    hex_id, plus2, encoded = rest.partition("+")
    if not (plus and plus2 and _HEX_KEY_ID.fullmatch(hex_id)):
        raise NoteError("a vkey has the form name+hex key id+base64 key")
    key = strict_base64(encoded)
    if key[:1] != ED25519:
        raise NoteError("a vkey of another algorithm than Ed25519")
    parsed = VerifierKey(name, key[1:])
    if parsed.key_id.hex() != hex_id:
        raise NoteError("a vkey's id does not belong to its key")
    return parsed


def sign_note(text: str, keys: Sequence[SigningKey]) -> str:
    """The note of ``text``, signed by each key in turn. Raises ``NoteError`` for an unfit text."""
    _check_text(text)
    if not keys:
        raise NoteError("a note has at least one signature")
    message = text.encode()
    signatures = (Signature(k.name, k.verifier_key.key_id, k.private_key.sign(message)) for k in keys)
    return format_note(Note(text, tuple(signatures)))


def format_note(note: Note) -> str:
    """The whole text of a note; ``parse_note`` takes it apart again."""
    lines = (
        f"{_SIGNATURE_PREFIX}{line.name} {base64.b64encode(line.key_id + line.signature).decode()}\n"
        for line in note.signatures
    )
    return f"{note.text}\n{''.join(lines)}"


def parse_note(data: bytes | str) -> Note:
    """Take a note apart, looking at no signature. Raises ``NoteError`` where it is malformed."""
    whole = _decode(data)
    text, blank, block = whole.rpartition("\n\n")
    if not blank or not block.endswith("\n"):
        raise NoteError("a note ends with a blank line and signature lines")
    text += "\n"
    _check_text(text)
    lines = block[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"more than {MAX_SIGNATURES} signatures")
    return Note(text, tuple(_parse_signature(line) for line in lines))


def open_note(data: bytes | str, keys: Iterable[VerifierKey]) -> OpenedNote:
    """Check a note's signatures by the keys given.

    Raises ``NoteError`` where it is malformed, where a signature by a known key does not match, or
    where no known key signed.
    """
    note = parse_note(data)
    known = {(key.name, key.key_id): key for key in keys}
    verified: dict[VerifierKey, None] = {}
    unknown = []
    for line in note.signatures:
        key = known.get((line.name, line.key_id))
        if key is None:
            unknown.append(line)
            continue
        _verify(key, line, note.text)
        verified[key] = None
    if not verified:
        raise NoteError("no signature is by a known key")
    return OpenedNote(note.text, tuple(verified), tuple(unknown))


def strict_base64(text: str) -> bytes:
    """Decode standard base64 that encodes to the same text again, and nothing else."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NoteError("not base64") from None
    if base64.b64encode(data).decode() != text:
        raise NoteError("base64 of another form than its bytes encode to")
    return data


def _decode(data: bytes | str) -> str:
    try:
        raw = data.encode("utf-8") if isinstance(data, str) else data
        if len(raw) > MAX_NOTE_BYTES:
            raise NoteError(f"a note of more than {MAX_NOTE_BYTES} bytes")
        return raw.decode("utf-8")
    except UnicodeError:
        raise NoteError("a note is UTF-8") from None


def _check_text(text: str) -> None:
    if not text.endswith("\n"):
        raise NoteError("a note's text ends with a newline")
    if any(char < " " and char != "\n" for char in text):
        raise NoteError("a note holds no control characters")


def _check_name(name: str) -> None:
    if not name or "+" in name or any(char.isspace() or char < " " for char in name):
        raise NoteError("a key's name is not empty and holds no space and no plus sign")


def _parse_signature(line: str) -> Signature:
    name, space, encoded = line.removeprefix(_SIGNATURE_PREFIX).partition(" ")
    if not line.startswith(_SIGNATURE_PREFIX) or not space:
        raise NoteError("a signature line has the form em dash, name, base64")
    _check_name(name)
    data = strict_base64(encoded)
    if len(data) <= KEY_ID_BYTES:
        raise NoteError("a signature line is too short")
    return Signature(name, data[:KEY_ID_BYTES], data[KEY_ID_BYTES:])


def _verify(key: VerifierKey, line: Signature, text: str) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(key.public_key).verify(line.signature, text.encode())
    except (InvalidSignature, ValueError):
        raise NoteError(f"the signature by {key.name} does not match the text") from None
