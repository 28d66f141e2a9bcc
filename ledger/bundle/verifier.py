#!/usr/bin/env python3
"""verify.py: checks an audit bundle (or a proof for one event) of replay-ledger, format version 1.

    python -I -S verify.py audit-X.zip --key VKEY --checkpoint PINNED [--consistency FILE] [--max-window N]

One file, Python 3.11 or newer, its standard library alone: read it, then run it. Take VKEY and PINNED
from where you kept them, never from the bundle. It prints PASS (exit 0), INCOMPLETE (3: nothing is wrong,
something is unproven) or FAIL (1), and what is proven and what is not; 2 is wrong use.

How it goes, from top to bottom of this file: Ed25519 (RFC 8032), canonical JSON (RFC 8785), signed notes
and checkpoints (C2SP), the Merkle tree (RFC 6962, proofs as in RFC 9162), the zip, the events, the
report, proofs for one event, the verdict. Whatever is not exactly as the format says is a ``Fault``.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256, sha512
from typing import Any, BinaryIO, NamedTuple

MAX_BUNDLE = 2**32 - 1
MAX_SMALL = 2**26  # of an entry that is read whole: all but leaves, events, results and report.html
MAX_LINE = 2**28
CHUNK = 2**20


class Fault(Exception):
    """Something does not match. Its text holds nothing of the bundle that is not ``shown``."""


class WrongUse(Exception):
    """The command line, or a file that the caller brings, cannot be used."""


def shown(value: object) -> str:
    """Plain ASCII of at most 200 characters: what a bundle says is never printed raw."""
    text = str(value)
    return text if re.fullmatch(r"[ -~]{1,200}", text) else ascii(text)[:200]


# --- Ed25519, strictly (RFC 8032, section 5.1) -----------------------------------------------------
# Stricter than the RFC where implementations differ: S below the group's order, points in canonical
# encoding, neither key nor R of small order, and the equation without the cofactor.

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SQRT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]  # extended coordinates: x = X/Z, y = Y/Z, x*y = T/Z
NEUTRAL: Point = (0, 1, 1, 0)


def add_points(p: Point, q: Point) -> Point:
    """The sum of two points."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0])
    c, d = 2 * p[3] * q[3] * D, 2 * p[2] * q[2]
    e, f, g, h = (b - a) % P, (d - c) % P, (d + c) % P, (b + a) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply_point(number: int, point: Point) -> Point:
    """The point added to itself ``number`` times."""
    result = NEUTRAL
    while number:
        if number & 1:
            result = add_points(result, point)
        point = add_points(point, point)
        number >>= 1
    return result


def same_point(p: Point, q: Point) -> bool:
    """Are they equal, whatever their Z?"""
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 == (p[1] * q[2] - q[1] * p[2]) % P


def decode_point(data: bytes) -> Point | None:
    """The point that 32 bytes encode; None where there is none, or the encoding is not canonical."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if len(data) != 32 or y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * SQRT_OF_MINUS_1 % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = decode_point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def signature_valid(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Is it this key's signature over the message?"""
    s = int.from_bytes(signature[32:], "little")
    key, r = decode_point(public_key), decode_point(signature[:32])
    if len(signature) != 64 or s >= ORDER or key is None or r is None or BASE is None:
        return False
    if any(same_point(multiply_point(8, point), NEUTRAL) for point in (key, r)):
        return False
    k = int.from_bytes(sha512(signature[:32] + public_key + message).digest(), "little") % ORDER
    return same_point(multiply_point(s, BASE), add_points(r, multiply_point(k, key)))


# --- canonical JSON (RFC 8785) ---------------------------------------------------------------------
# The format's JSON holds no floats and no integer beyond +-(2^53-1), so these are refused. What encodes
# to the same bytes again has its keys sorted and each of them once.


def _integer(text: str) -> int:
    number = int(text) if len(text) < 20 else 2**53
    if not -(2**53) < number < 2**53:
        raise Fault("an integer beyond +-(2^53-1)")
    return number


def _no_float(text: str) -> Any:
    raise Fault("a number that is not an integer")


_decode_first = json.JSONDecoder(parse_int=_integer, parse_float=_no_float, parse_constant=_no_float).raw_decode
_encode_sorted = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_encode_in_order = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def canonical(value: Any) -> str:
    """The one encoding. Keys are in the order of UTF-16 code units, which for ASCII is that of characters."""
    text = _encode_sorted(value)
    return text if text.isascii() else _encode_in_order(_in_order(value))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value, key=lambda key: key.encode("utf-16-be"))}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


def parse_json(text: str, what: str) -> Any:
    """The value of canonical JSON."""
    try:
        value, _ = _decode_first(text)
        same = canonical(value) == text
    except (ValueError, RecursionError, Fault) as error:
        raise Fault(f"{what}: no canonical JSON ({type(error).__name__})") from None
    if not same:
        raise Fault(f"{what}: not in canonical form (RFC 8785), or a key twice")
    return value


# --- signed notes and checkpoints (C2SP signed-note, tlog-checkpoint) -------------------------------


class Key(NamedTuple):
    """A public key and the name that it signs under."""

    name: str
    key_id: bytes
    public_key: bytes

    def named(self) -> str:
        """The first two parts of its vkey."""
        return f"{shown(self.name)}+{self.key_id.hex()}"


class Checkpoint(NamedTuple):
    """How many events, under which root; ``signer`` is the key, of those named by the caller, that signed."""

    origin: str
    size: int
    root: bytes
    signer: Key


def strict_base64(text: str) -> bytes:
    """Decode base64 that encodes to the same text again."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise Fault("not base64") from None
    if base64.b64encode(data).decode() != text:
        raise Fault("base64 of another form than its bytes encode to")
    return data


def _is_name(name: str) -> bool:
    return name != "" and "+" not in name and not any(c.isspace() or c < " " for c in name)


def parse_vkey(text: str) -> Key:
    """Read ``name+hex key id+base64(0x01 || public key)``."""
    name, _, rest = text.partition("+")
    hex_id, _, encoded = rest.partition("+")
    data = strict_base64(encoded)
    key_id = sha256(name.encode() + b"\n" + data).digest()[:4]
    if not _is_name(name) or len(data) != 33 or data[0] != 1 or hex_id != key_id.hex():
        raise Fault("not the vkey of an Ed25519 key: name+key id+base64")
    return Key(name, key_id, data[1:])


def _parse_signature(line: str) -> tuple[str, bytes]:
    dash, name, encoded = line.split(" ") if line.count(" ") == 2 else ("", "", "")
    signature = strict_base64(encoded)
    if dash != "\u2014" or not _is_name(name) or len(signature) < 5:
        raise Fault("a signature line is an em dash, a name and base64")
    return name, signature


def open_note(data: bytes, keys: Sequence[Key]) -> tuple[str, list[Key]]:
    """The signed text of a note, and the keys among ``keys`` that signed it: at least one, none of them badly."""
    try:
        text, blank, block = data.decode("utf-8").rpartition("\n\n")
    except UnicodeError:
        raise Fault("a note is UTF-8") from None
    text, lines = text + "\n", block.split("\n")
    if not blank or lines.pop() or any(c < " " and c != "\n" for c in text) or len(data) > CHUNK or len(lines) > 100:
        raise Fault("a note is a text, a blank line and 1 to 100 signature lines")
    signatures = [_parse_signature(line) for line in lines]
    if len({(name, signature[:4]) for name, signature in signatures}) < len(lines):
        raise Fault("two signatures by one key")
    signers = []
    for name, signature in signatures:
        for key in keys:
            if (key.name, key.key_id) == (name, signature[:4]):
                if not signature_valid(key.public_key, text.encode(), signature[4:]):
                    raise Fault(f"signature bad: the one by {shown(name)} is not over this text")
                signers.append(key)
    if not signers:
        raise Fault("signature bad: no signature is by a key named with --key (after a rotation, name the new one)")
    return text, signers


def open_checkpoint(data: bytes, keys: Sequence[Key]) -> Checkpoint:
    """A checkpoint signed by one of the keys under its own origin: three lines, no extensions, never of size 0."""
    text, signers = open_note(data, keys)
    origin, size, encoded, end = text.split("\n") if text.count("\n") == 3 else ("", "", "", "")
    root = strict_base64(encoded)
    if end or not origin or not re.fullmatch("[1-9][0-9]{0,18}", size) or len(root) != 32:
        raise Fault("no checkpoint: origin, size and root, a line each")
    for key in signers:
        if key.name == origin:
            return Checkpoint(origin, int(size), root, key)
    raise Fault(f"a checkpoint of {shown(origin)}, which is not the name of a key that signed it")


# --- the Merkle tree (RFC 6962, section 2.1; RFC 9162, sections 2.1.3.2 and 2.1.4.2) ---------------


def leaf_hash(data: bytes) -> bytes:
    """The hash of one entry."""
    return sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees side by side."""
    return sha256(b"\1" + left + right).digest()


class Tree:
    """A tree that grows by a leaf at a time. Kept: the roots of its perfect subtrees, largest first."""

    def __init__(self) -> None:
        self.size = 0
        self.roots: list[bytes] = []

    def add(self, leaf: bytes) -> None:
        """One leaf more: like adding one to a binary number, each carry joins two equal subtrees."""
        carry = self.size
        while carry & 1:
            leaf = sha256(b"\1" + self.roots.pop() + leaf).digest()
            carry >>= 1
        self.roots.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """The root; a lone subtree is promoted, never doubled."""
        if not self.roots:
            return sha256(b"").digest()
        result = self.roots[-1]
        for left in self.roots[-2::-1]:
            result = node_hash(left, result)
        return result


def _split(size: int) -> int:
    return 1 << ((size - 1).bit_length() - 1)  # the largest power of two below the size


def _sibling(proof: list[bytes]) -> bytes:
    if not proof or len(proof[-1]) != 32:
        raise Fault("the proof is too short, or holds what is no hash")
    return proof.pop()


def _root_from(index: int, size: int, leaf: bytes, proof: list[bytes]) -> bytes:
    if size == 1:
        return leaf
    left_size, sibling = _split(size), _sibling(proof)
    if index < left_size:
        return node_hash(_root_from(index, left_size, leaf, proof), sibling)
    return node_hash(sibling, _root_from(index - left_size, size - left_size, leaf, proof))


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Is ``leaf`` number ``index`` (from 0) of the tree of ``size``? Size and root are the signed ones."""
    rest = list(proof)
    if not 0 <= index < size or len(leaf) != 32 or _root_from(index, size, leaf, rest) != root or rest:
        raise Fault("the inclusion proof does not lead to the signed root")


def _two_roots_from(size1: int, size2: int, known: bytes | None, proof: list[bytes]) -> tuple[bytes, bytes]:
    if size1 == size2:
        both = _sibling(proof) if known is None else known
        return both, both
    left_size, sibling = _split(size2), _sibling(proof)
    if size1 <= left_size:
        old, new = _two_roots_from(size1, left_size, known, proof)
        return old, node_hash(new, sibling)
    old, new = _two_roots_from(size1 - left_size, size2 - left_size, None, proof)
    return node_hash(sibling, old), node_hash(sibling, new)


def verify_consistency(size1: int, size2: int, proof: Sequence[bytes], root1: bytes, root2: bytes) -> None:
    """Does the tree of ``size1`` begin that of ``size2``? From size 0 nothing is proven, so it is refused."""
    rest = list(proof)
    if not 0 < size1 <= size2 or _two_roots_from(size1, size2, root1, rest) != (root1, root2) or rest:
        raise Fault("forked: the consistency proof does not lead from the one root to the other")


# --- the zip ---------------------------------------------------------------------------------------
# Eight entries, stored, in this order; every byte around them follows from their names, sizes and
# checksums, so the whole file is made anew and compared.

NAMES = (
    *("README.txt", "manifest.json", "checkpoint.txt", "leaves.txt"),
    *("events.jsonl", "report.json", "results.jsonl", "report.html"),
)
README_SHA256 = "ff2cca8ca188b85eeedf503e44fa8703034c5b0b81b68e0efb9367ac1eda37fd"
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")


class Entry(NamedTuple):
    """One file of the zip: where its data begins, and what was found of it."""

    offset: int
    size: int
    sha256: str


class Bundle:
    """The zip, compared byte for byte; after that its entries may be read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, 2)
        self.entries: dict[str, Entry] = {}
        if self._size > MAX_BUNDLE:
            raise Fault("zip: more than 4 GiB")
        directory, at = b"", 0
        for name in NAMES:
            header, crc, size = self._header(name, at)
            start = at + len(header)
            self.entries[name] = self._digest(name, start, size, crc)
            sizes = (crc, size, size, len(name), 0, 0, 0, 0, 0o100644 << 16, at)
            directory += _CENTRAL.pack(b"PK\1\2", 3 << 8 | 20, 20, 0, 0, 0, 0x21, *sizes) + name.encode()
            at = start + size
        count = len(NAMES)
        end = directory + _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), at, 0)
        if self._size != at + len(end) or self._read(at, len(end)) != end:
            raise Fault("zip: what follows the entries is not their directory, or not only that")

    def _header(self, name: str, at: int) -> tuple[bytes, int, int]:
        found = self._read(at, _LOCAL.size + len(name))
        if len(found) < _LOCAL.size + len(name):
            raise Fault(f"zip: ends before {name}")
        crc, size = _LOCAL.unpack_from(found)[6:8]
        numbers = (20, 0, 0, 0, 0x21, crc, size, size, len(name), 0)
        if found != _LOCAL.pack(b"PK\3\4", *numbers) + name.encode():
            raise Fault(f"zip: the header at byte {at} is not that of {name}, stored, as the format has it")
        if at + len(found) + size > self._size:
            raise Fault(f"zip: {name} is said to have {size} bytes, more than the file holds")
        return found, crc, size

    def _digest(self, name: str, start: int, size: int, crc: int) -> Entry:
        digest, computed = sha256(), 0
        for chunk in self._chunks(start, size):
            digest.update(chunk)
            computed = binascii.crc32(chunk, computed)
        if computed != crc:
            raise Fault(f"zip: the checksum of {name} does not match")
        return Entry(start, size, digest.hexdigest())

    def _read(self, at: int, count: int) -> bytes:
        self._file.seek(at)
        return self._file.read(count)

    def chunks(self, name: str, most: int = CHUNK) -> Iterator[bytes]:
        """The data of an entry, ``most`` bytes at a time."""
        return self._chunks(self.entries[name].offset, self.entries[name].size, most)

    def _chunks(self, at: int, size: int, most: int = CHUNK) -> Iterator[bytes]:
        end = at + size
        while at < end:
            chunk = self._read(at, min(most, end - at))
            if not chunk:
                raise Fault("zip: the file became shorter while it was read")
            at += len(chunk)
            yield chunk

    def read(self, name: str) -> bytes:
        """The whole of a small entry."""
        if self.entries[name].size > MAX_SMALL:
            raise Fault(f"{name}: larger than it can be")
        return b"".join(self.chunks(name))

    def read_text(self, name: str) -> str:
        """The same, as text."""
        try:
            return self.read(name).decode("utf-8")
        except UnicodeError:
            raise Fault(f"{name}: not UTF-8") from None

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of an entry without their newlines, one after the other."""
        rest = b""
        for chunk in self.chunks(name):
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE:
                raise Fault(f"{name}: a line longer than any can be")
            yield from whole
        if rest:
            raise Fault(f"{name}: the last line has no newline")


def check_manifest(bundle: Bundle, checkpoint: Checkpoint) -> str:
    """The manifest is the one that follows from the entries; gives the run's id."""
    if bundle.entries["README.txt"].sha256 != README_SHA256:
        raise Fault("README.txt: not the text of version 1")
    text = bundle.read_text("manifest.json")
    found = parse_json(text.removesuffix("\n"), "manifest.json")
    run_id = found.get("run_id") if isinstance(found, dict) else None
    if not isinstance(run_id, str) or not re.fullmatch(ID, run_id):
        raise Fault("manifest.json: names no run")
    files = {name: entry.sha256 for name, entry in bundle.entries.items() if name != "manifest.json"}
    made = {"bundle": 1, "files": files, "ledger": checkpoint.origin, "run_id": run_id, "size": checkpoint.size}
    if canonical(made) + "\n" != text:
        raise Fault("manifest.json: not the one that follows from the entries and the checkpoint")
    return run_id


_leaves_form = re.compile(b"(?:[0-9a-f]{64}\n)*+").fullmatch


def leaves(bundle: Bundle, size: int) -> Iterator[bytes]:
    """The leaf hashes of positions 1 to ``size``, as leaves.txt lists them."""
    if bundle.entries["leaves.txt"].size != 65 * size:
        raise Fault(f"leaves.txt: not {size} lines of 64 hex digits")
    for chunk in bundle.chunks("leaves.txt", 65 * 8192):
        if not _leaves_form(chunk):
            raise Fault("leaves.txt: not 64 hex digits a line")
        hashes = bytes.fromhex(chunk.decode())
        for at in range(0, len(hashes), 32):
            yield hashes[at : at + 32]


def roots_at(bundle: Bundle, checkpoint: Checkpoint, sizes: Iterable[int]) -> dict[int, bytes]:
    """The roots over the first leaves, at each of ``sizes``; all leaves must give the signed root."""
    tree, wanted, found = Tree(), set(sizes), dict[int, bytes]()
    for leaf in leaves(bundle, checkpoint.size):
        tree.add(leaf)
        if tree.size in wanted:
            found[tree.size] = tree.root()
    if tree.root() != checkpoint.root:
        raise Fault("leaves.txt: the leaf hashes do not give the signed root")
    return found


# --- the events ------------------------------------------------------------------------------------

ID = "[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
LEDGER = "$ledger"
_HEX, _NUMBER = "[0-9a-f]{64}", "([1-9][0-9]{0,15})"
_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z)"
# The 13 members of an envelope in the one form that they have as canonical JSON.
_ENVELOPE = (
    rf'{{"content_commitment":(?:null|"({_HEX})"),"event_id":"([0-9a-f-]{{36}})","ledger":"([A-Za-z0-9][A-Za-z0-9._/-]{{0,254}})",'
    rf'"payload_sha256":"({_HEX})","position":{_NUMBER},"recorded_at":"{_TIME}",'
    rf'(?:"request_id":null,"request_version":null|"request_id":"({ID})","request_version":{_NUMBER}),'
    rf'"run_id":"({ID}|\$ledger)","run_version":{_NUMBER},"schema":{_NUMBER},"type":"([A-Z][A-Za-z]{{0,63}})","v":1}}'
)
_envelope_form = re.compile(_ENVELOPE).fullmatch
_after_content_form = re.compile(
    rf',"encoding":(?:null|"(utf-8|base64)"),"envelope":({_ENVELOPE}),"payload":({{.*}}),"salt":(?:null|"({_HEX})")}}'
).fullmatch
TERMINAL = {"RunCompleted", "RunBlocked", "RunAbandoned"}
AFTER_TERMINAL = {"ReportIssued", "GradesRecorded"}
ABSENT, PRESENT, MISSING, ERASED = range(4)


class Envelope(NamedTuple):
    """Identity and order of an event: what its leaf is the hash of. ``v`` is 1."""

    content_commitment: str | None
    event_id: str
    ledger: str
    payload_sha256: str
    position: int
    recorded_at: str
    request_id: str | None
    request_version: int | None
    run_id: str
    run_version: int
    schema: int
    type: str


def envelope_of(groups: Sequence[Any]) -> Envelope:
    """The envelope from what its form has matched."""
    commitment, event_id, ledger, digest, position, time, request_id, request_version, run_id, version, schema, kind = (
        groups
    )
    of_request = int(request_version) if request_version else None
    order = (int(position), time, request_id, of_request, run_id, int(version))
    return Envelope(commitment, event_id, ledger, digest, *order, int(schema), kind)


class Event(NamedTuple):
    """A line of events.jsonl."""

    envelope: Envelope
    payload: dict[str, Any]
    leaf: bytes
    has_content: bool


def parse_event(line: bytes) -> Event:
    """Take a line apart and hold payload and content against the envelope. Raises ``Fault``, ``ValueError``."""
    text = line.decode("utf-8")
    content, end = _decode_first(text, 11)
    match = _after_content_form(text, end)
    if match is None or text[:end] != '{"content":' + canonical(content):
        raise Fault("not the five members of an event, or not the 13 of its envelope, in their one form")
    encoding, encoded, *groups, payload, salt = match.groups()
    envelope = envelope_of(groups)
    if sha256(payload.encode()).hexdigest() != envelope.payload_sha256:
        raise Fault("payload: edited, its digest is not the envelope's")
    if encoding is not None:
        body = str.encode(content) if encoding == "utf-8" else strict_base64(content)
        if sha256(b"\2" + bytes.fromhex(salt or "") + body).hexdigest() != envelope.content_commitment:
            raise Fault("content: edited, it is not what the envelope committed to")
    elif content is not None or salt is not None:
        raise Fault("content or salt: there without an encoding")
    return Event(envelope, parse_json(payload, "payload"), leaf_hash(encoded.encode()), content is not None)


class Record:
    """What the events, taken in order, have shown so far."""

    def __init__(self, run_id: str, checkpoint: Checkpoint) -> None:
        self.run_id, self.origin = run_id, checkpoint.origin
        self.versions = Counter({run_id: 0, LEDGER: 0})
        self.request_versions: Counter[str] = Counter()
        self.recorded_at = ""
        self.contents = bytearray(checkpoint.size + 1)
        """By position: ABSENT, PRESENT, MISSING or ERASED."""
        self.issued: set[tuple[str, str, str, int]] = set()
        self.counts = Counts({})

    def take(self, event: Event) -> None:
        """The next event, whose leaf has been found in its place."""
        envelope, run_id = event.envelope, event.envelope.run_id
        if envelope.ledger != self.origin or run_id not in self.versions:
            raise Fault("an event of another ledger or another run")
        self.versions[run_id] += 1
        if envelope.run_version != self.versions[run_id]:
            raise Fault(f"run_version: {envelope.run_version} where {self.versions[run_id]} is next in its stream")
        if (request_id := envelope.request_id) is not None:
            self.request_versions[request_id] += 1
            if envelope.request_version != self.request_versions[request_id]:
                raise Fault(f"request_version: {self.request_versions[request_id]} is next for this request")
        if envelope.recorded_at < self.recorded_at:
            raise Fault("recorded_at: earlier than the event before")
        self.recorded_at = envelope.recorded_at
        if envelope.content_commitment is not None:
            self.contents[envelope.position] = PRESENT if event.has_content else MISSING
        if run_id == LEDGER:
            self._take_of_ledger(envelope, event.payload)
        else:
            self._take_of_run(envelope, event.payload)

    def _take_of_ledger(self, envelope: Envelope, payload: dict[str, Any]) -> None:
        if (envelope.type == "LedgerCreated") != (envelope.position == 1):
            raise Fault("LedgerCreated stands at position 1, and nowhere else")
        if envelope.type == "ContentRedacted":
            for position in payload["positions"]:
                if not 1 <= position < envelope.position:
                    raise Fault(f"redacts position {position}, which did not stand before it")
                if self.contents[position] == PRESENT:
                    raise Fault(f"content of position {position}: present, although it was redacted here")
                if self.contents[position] == MISSING:
                    self.contents[position] = ERASED

    def _take_of_run(self, envelope: Envelope, payload: dict[str, Any]) -> None:
        if envelope.type == "ReportIssued":
            self.issued.add((payload["kind"], payload["format"], payload["sha256"], payload["as_of_position"]))
            return
        if envelope.type == "RunStarted":  # a run that was blocked may start again: what counts begins there
            self.counts = Counts(payload)
        if envelope.type not in AFTER_TERMINAL:
            self.counts.take(envelope, payload)

    def finish(self) -> None:
        """What can only be said once all events were taken."""
        missing = self.contents.find(MISSING)
        if missing >= 0:
            raise Fault(f"position {missing}, content: redacted without authority, no event orders its erasure")
        if not self.counts.run:
            raise Fault("events.jsonl: no RunStarted event of the run")


def check_events(bundle: Bundle, checkpoint: Checkpoint, record: Record) -> None:
    """Each line is an event of the run or of the ledger, in order of position, and is the leaf in that place."""
    listed, before = leaves(bundle, checkpoint.size), 0
    for number, line in enumerate(bundle.lines("events.jsonl"), start=1):
        try:
            event = parse_event(line)
            position = event.envelope.position
            if not before < position <= checkpoint.size or (number == 1 and position != 1):
                raise Fault(f"position {position}: reordered, doubled, or beyond the checkpoint")
            for _ in range(before, position - 1):
                next(listed)
            if next(listed) != event.leaf:
                raise Fault(f"position {position}: its envelope is not the leaf in leaves.txt")
            record.take(event)
        except Fault as fault:
            raise Fault(f"events.jsonl, line {number}: {fault}") from None
        except (ValueError, RecursionError, LookupError, TypeError) as error:
            raise Fault(f"events.jsonl, line {number}: not an event of the format ({type(error).__name__})") from None
        before = position
    record.finish()


# --- the report ------------------------------------------------------------------------------------


class Counts:
    """What the events of the run add up to, from its last RunStarted to its terminal event."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.run = run
        self.outcome, self.ended, self.position = "incomplete", False, 0
        self.stage: dict[str, str] = {}
        """By request: ``not_started`` or ``incomplete``; gone once it has its result."""
        self.retried: set[str] = set()
        self.number: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.ended_with: dict[str, int] | None = None
        self.newer = False
        """Some payload is of a later version than this program knows, so nothing can be counted."""

    def take(self, envelope: Envelope, payload: dict[str, Any]) -> None:
        """The next event of the run."""
        kind, request_id = envelope.type, envelope.request_id
        if self.ended:
            return
        self.position = envelope.position
        self.newer = self.newer or envelope.schema != 1
        if self.newer:
            return
        if request_id is not None:
            self._take_of_request(kind, request_id, payload)
        elif kind in TERMINAL:
            self.ended, self.ended_with = True, payload.get("counts")
            outcomes = {"RunBlocked": "blocked", "RunAbandoned": "abandoned"}
            self.outcome = outcomes.get(kind) or payload["outcome"]
        elif kind in ("RequestRejected", "LeakRejected"):
            self.number["rejected" if kind == "RequestRejected" else "leak_rejected"] += 1

    def _take_of_request(self, kind: str, request_id: str, payload: dict[str, Any]) -> None:
        if kind == "RequestAccepted":
            self.stage[request_id] = "not_started"
        elif kind == "ModelCallStarted":
            self.number["started"] += 1
            if request_id in self.stage:
                self.stage[request_id] = "incomplete"
                if payload["turn"] == 2:
                    self.retried.add(request_id)
        elif kind == "ModelCalled":
            self.number["answered"] += 1
        elif kind == "ModelCallFailed":
            self.number.update(failed=1, outcome_unknown=payload["outcome_unknown"])
        elif kind in ("OutputAccepted", "FallbackApplied") and self.stage.pop(request_id, ""):
            self.number["retry_used_records"] += request_id in self.retried
            self.retried.discard(request_id)
            if kind == "FallbackApplied":
                self.number["fallback_records"] += 1
                self.errors[payload["code"]] += 1
            else:
                self._take_decision(payload)

    def _take_decision(self, payload: dict[str, Any]) -> None:
        self.number["accepted_first" if payload["turn"] == 1 else "accepted_after_retry"] += 1
        flags = [name for name in ("blocked_by_policy", "requires_human_approval") if payload[name]]
        for column in ("total", *(flags or ["neither"])):
            self.decisions[payload["risk_level"], column] += 1

    def seven(self) -> dict[str, int]:
        """``requests`` and the seven outcomes that add up to it."""
        stages = Counter(self.stage.values())
        names = ("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected")
        counted = {name: self.number[name] for name in names}
        counted |= {name: stages[name] for name in ("not_started", "incomplete")}
        return {"requests": sum(counted.values()), **counted}

    def members(self) -> dict[str, Any]:
        """The members of report.json that must follow from the events.

        Not among them are tokens, latencies, costs, facets, first errors, allowances, refusals, models,
        policies, failures and suspected truncations: their digest was recorded when the report was issued, and
        `replay-ledger report` makes them again.
        """
        seven = self.seven()
        accepted = seven["accepted_first"] + seven["accepted_after_retry"]
        columns = ("total", "blocked_by_policy", "requires_human_approval", "neither")
        levels = ("low", "medium", "high", "critical")
        facts = ("candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint")
        return {
            **seven,
            **{name: self.run.get(name) for name in facts},
            "outcome": self.outcome,
            "valid": self.outcome == "completed" and 0 < accepted == seven["requests"],
            "results": accepted + seven["fallback_records"],
            "external_error_records": seven["fallback_records"],
            "retry_used_records": self.number["retry_used_records"],
            "unreadable": 0,
            "errors": dict(self.errors),
            "decisions": {"by_risk_level": {row: {c: self.decisions[row, c] for c in columns} for row in levels}},
        }


def check_report(bundle: Bundle, record: Record, report: dict[str, Any], unproven: list[str]) -> None:
    """The three reports were issued, as of the run's last event, and report.json's counts follow from the events."""
    counts = record.counts
    for name, kind, form in (
        ("report.json", "report", "json"),
        ("results.jsonl", "results", "jsonl"),
        ("report.html", "report", "html"),
    ):
        if (kind, form, bundle.entries[name].sha256, counts.position) not in record.issued:
            raise Fault(f"{name}: no ReportIssued event of the run names these bytes, as of its last event")
    if counts.newer:
        unproven.append("that report.json's counts follow from the events: a newer verify.py is needed to count them")
        return
    if counts.ended_with is not None and counts.ended_with != counts.seven():
        raise Fault("the counts that the run ended with are not what its events add up to")
    made = {"run_id": record.run_id, **counts.members()}
    for name, value in made.items():
        if name not in report or canonical(report[name]) != canonical(value):
            raise Fault(f"report.json: {name} does not follow from the events")
    if sum(1 for _ in bundle.lines("results.jsonl")) != made["results"]:
        raise Fault("results.jsonl: not as many results as the events have")
    calls = report.get("calls")
    for name in ("started", "answered", "failed", "outcome_unknown"):
        if not isinstance(calls, dict) or canonical(calls.get(name)) != str(counts.number[name]):
            raise Fault(f"report.json: calls.{name} does not follow from the events")


def parse_report(bundle: Bundle) -> tuple[dict[str, Any], int, str]:
    """report.json, and the position and root that it says it was made at."""
    text = bundle.read_text("report.json")
    report = parse_json(text.removesuffix("\n"), "report.json")
    as_of = report.get("as_of") if isinstance(report, dict) else None
    if not text.endswith("}\n") or not isinstance(as_of, dict):
        raise Fault("report.json: not a report and a newline")
    position, root = as_of.get("position"), as_of.get("root")
    if type(position) is not int or not isinstance(root, str) or canonical(as_of.get("size")) != str(position):
        raise Fault("report.json: as_of names no position")
    return report, position, root


# --- a proof for one event (C2SP tlog-proof) -------------------------------------------------------

PROOF_BEGINS = b"c2sp.org/tlog-proof@v1\n"


def check_proof(data: bytes, keys: Sequence[Key]) -> tuple[Checkpoint, Envelope]:
    """The event's envelope, which the proof carries as extra data, is a leaf of the tree that was signed."""
    head, _, note = data.partition(b"\n\n")
    checkpoint = open_checkpoint(note, keys)
    lines = head.decode("ascii", "replace").split("\n")
    if (
        not data.startswith(PROOF_BEGINS + b"extra ")
        or len(lines) < 3
        or not re.fullmatch("index (0|[1-9][0-9]{0,15})", lines[2])
    ):
        raise Fault("proof: not the lines of a proof with its event: c2sp.org/tlog-proof@v1, extra, index")
    encoded, index = strict_base64(lines[1][6:]), int(lines[2][6:])
    verify_inclusion(index, checkpoint.size, leaf_hash(encoded), [strict_base64(x) for x in lines[3:]], checkpoint.root)
    match = _envelope_form(encoded.decode("ascii", "replace"))
    envelope = envelope_of(match.groups()) if match else None
    if envelope is None or envelope.position != index + 1 or envelope.ledger != checkpoint.origin:
        raise Fault("proof: the event is not one of this ledger, in this position")
    return checkpoint, envelope


# --- the verdict -----------------------------------------------------------------------------------

NEVER_PROVEN = (
    "that every true event was recorded: what was left out beforehand leaves no trace here",
    "that what was recorded is true: the record shows what was written, not that it was so",
    "the hour: recorded_at is the ledger's own claim",
)


class Verdict:
    """What was found to hold, what is open, and in one line what it is about."""

    def __init__(self, about: str) -> None:
        self.about = about
        self.proven: list[str] = []
        self.unproven: list[str] = []
        self.never_proven = list(NEVER_PROVEN)

    def lines(self) -> Iterator[str]:
        """The verdict in words."""
        yield f"{'INCOMPLETE' if self.unproven else 'PASS'}  {self.about}"
        for title, items in (
            ("Proven:", self.proven),
            ("Not proven:", self.unproven),
            ("What this can never prove:", self.never_proven),
        ):
            yield from ["", title, *(f"  - {item}" for item in items)] if items else []


def check_anchor(verdict: Verdict, checkpoint: Checkpoint, pinned: Checkpoint | None, args: argparse.Namespace) -> None:
    """Hold the signed tree against the checkpoint that the caller kept. ``roots_at`` has compared a smaller one."""
    if pinned is None:
        verdict.unproven.append(
            "that this is the history others were shown: no checkpoint that you kept was given (--checkpoint),"
            " and whoever holds the key can sign another history"
        )
        return
    if pinned.origin != checkpoint.origin:
        raise Fault("your checkpoint is of another ledger")
    if pinned.size > checkpoint.size:
        if args.consistency is None:
            verdict.unproven.append(
                f"that the ledger went on from here to your checkpoint of {pinned.size} events: that takes"
                f" --consistency FILE, made by `replay-ledger prove --consistency {checkpoint.size} {pinned.size}`"
            )
            return
        lines = read_small(args.consistency).decode("ascii", "replace").splitlines()
        try:
            proof = [strict_base64(line) for line in lines]
            verify_consistency(checkpoint.size, pinned.size, proof, checkpoint.root, pinned.root)
        except Fault as fault:
            raise Fault(f"--consistency: {fault}") from None
    verdict.proven.append(f"your checkpoint of {pinned.size} events is of this history")
    window = checkpoint.size - pinned.size
    if window > args.max_window:
        verdict.unproven.append(
            f"that events {pinned.size + 1} to {checkpoint.size} are what others were shown: your checkpoint does not"
            f" cover these {window} (--max-window allows {args.max_window}), only the signature does"
        )


def check_bundle(file: BinaryIO, keys: Sequence[Key], pinned: Checkpoint | None, args: argparse.Namespace) -> Verdict:
    """All checks of an audit bundle."""
    bundle = Bundle(file)
    checkpoint = open_checkpoint(bundle.read("checkpoint.txt"), keys)
    run_id = check_manifest(bundle, checkpoint)
    report, as_of, as_of_root = parse_report(bundle)
    roots = roots_at(bundle, checkpoint, [as_of] if pinned is None else [as_of, pinned.size])
    if pinned is not None and pinned.size <= checkpoint.size and roots[pinned.size] != pinned.root:
        raise Fault(f"forked: the first {pinned.size} events are not those of your checkpoint")
    record, verdict = Record(run_id, checkpoint), Verdict(f"run {run_id} of {shown(checkpoint.origin)}")
    check_events(bundle, checkpoint, record)
    check_report(bundle, record, report, verdict.unproven)
    if as_of != record.counts.position or roots[as_of].hex() != as_of_root:
        raise Fault("report.json: as_of is not the run's last event and the root there")
    of_run, of_ledger = record.versions[run_id], record.versions[LEDGER]
    verdict.proven += [
        f"the key {checkpoint.signer.named()} signed these {checkpoint.size} events, in this order",
        f"{of_run} of them are of this run and {of_ledger} of the ledger itself, each whole and unaltered",
        f"each content that is here is what was recorded; erased by order of an event: {record.contents.count(ERASED)}",
        "the three reports are those that were issued, and report.json's counts follow from the events",
    ]
    if others := checkpoint.size - of_run - of_ledger:
        verdict.never_proven.append(
            f"what the other {others} events are, of which only the hashes are here: all are said to be of other runs,"
            " and the newest events of this run, or of the ledger, could be among them (earlier ones cannot)"
        )
    if not record.counts.ended:
        verdict.unproven.append("that the run is over: it has no terminal event, so nobody knows what was to come")
    check_anchor(verdict, checkpoint, pinned, args)
    return verdict


def check_one_event(
    file: BinaryIO, keys: Sequence[Key], pinned: Checkpoint | None, args: argparse.Namespace
) -> Verdict:
    """All checks of a proof for one event."""
    checkpoint, envelope = check_proof(file.read(CHUNK), keys)
    verdict = Verdict(f"event {envelope.position} of {shown(checkpoint.origin)}")
    who = f"{envelope.type}, run {envelope.run_id}, request {envelope.request_id}, id {envelope.event_id}"
    verdict.proven.append(f"the key {checkpoint.signer.named()} signed {checkpoint.size} events that hold this: {who}")
    if pinned is not None and pinned.size < checkpoint.size:
        raise WrongUse("the checkpoint is smaller than the proof's: ask for a proof under your own")
    if pinned is not None and pinned.size == checkpoint.size and pinned.root != checkpoint.root:
        raise Fault("forked: your checkpoint is of another history")
    check_anchor(verdict, checkpoint, pinned, args)
    return verdict


def read_small(path: str) -> bytes:
    """A small file that the caller brings."""
    with open(path, "rb") as file:  # noqa: PTH123 - nothing is imported that is not needed
        return file.read(CHUNK)


def examine(args: argparse.Namespace) -> Verdict:
    """Check what the command line names."""
    try:
        keys = [parse_vkey(text) for text in args.key]
    except Fault as fault:
        raise WrongUse(f"--key: {fault}") from None
    pinned = None
    if args.checkpoint is not None:
        try:
            pinned = open_checkpoint(read_small(args.checkpoint), keys)
        except Fault as fault:
            raise Fault(f"the checkpoint that you kept: {fault}") from None
    with open(args.file, "rb") as file:  # noqa: PTH123
        begins = file.read(len(PROOF_BEGINS))
        file.seek(0)
        check = check_one_event if begins == PROOF_BEGINS else check_bundle
        return check(file, keys, pinned, args)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print the verdict, and give the exit code."""
    parser = argparse.ArgumentParser(description="Checks an audit bundle, or a proof for one event, of replay-ledger.")
    parser.add_argument("file", help="audit-X.zip, or a .tlog-proof")
    parser.add_argument("--key", action="append", required=True, metavar="VKEY", help="the ledger's public key")
    parser.add_argument("--checkpoint", metavar="PINNED", help="a signed checkpoint that you kept")
    parser.add_argument("--consistency", metavar="FILE", help="proof towards a checkpoint larger than the bundle's")
    parser.add_argument("--max-window", type=int, default=0, metavar="N", help="events not covered, at most [0]")
    try:
        verdict = examine(parser.parse_args(arguments))
    except Fault as fault:
        print(f"FAIL\n\nDoes not match:\n  - {fault}")
        return 1
    except (WrongUse, OSError) as error:
        print(f"verify.py: {shown(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - whatever the bundle brought about, it is no PASS
        print(f"FAIL\n\nDoes not match:\n  - it could not be understood ({type(error).__name__})")
        return 1
    print("\n".join(verdict.lines()))
    return 3 if verdict.unproven else 0


if __name__ == "__main__":
    sys.exit(main())
