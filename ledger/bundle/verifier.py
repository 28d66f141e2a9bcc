#!/usr/bin/env python3
"""verify.py: checks an audit bundle (or a proof for one event) of replay-ledger, format version 1.

    python -I -S verify.py audit-X.zip --key VKEY --checkpoint PINNED [--consistency FILE] [--max-window N]

One file, Python 3.11 or newer, its standard library alone: read it, then run it. Take VKEY and PINNED
from where you kept them, never from the bundle. It prints PASS (exit 0), INCOMPLETE (3: nothing is wrong,
something is unproven) or FAIL (1), and what is proven and what is not; 2 is wrong use.

What is checked, from top to bottom of this file, is the list "What a verifier checks" in section 6 of
docs/ledger-format.md; other sections named below are that page's too. ``check_bundle`` does all in turn:

     1  the file is, byte for byte, the zip that its entries make                Bundle
     2  the checkpoint is signed by a key that was named                         open_checkpoint
     3  the manifest is the one that entries and checkpoint make                 check_manifest
     4  the leaf hashes of all events give the root that was signed              Leaves
     5  each event is the leaf in its place, its payload and content unaltered   Event, check_events
     6  between the events of the run, or of the ledger itself, none is missing  Record.check_order
     7  content is missing only where an event orders its erasure                Record.check_erasures
     8  the three reports are those that were issued                             check_report
     9  report.json is as of the run's last event, and of the root there         check_bundle
    10  report.json's counts follow from the events                              Counts, check_report
        all of it is of the history that the pinned checkpoint is of             check_pinned
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import struct
import sys
from binascii import crc32
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

MAX_BUNDLE, MAX_NOTE, MAX_LINE = 2**32 - 1, 1_000_000, 2**28
MAX_SMALL, CHUNK = 2**26, 2**20  # of an entry that is read whole; of what is read at once, or comes beside a bundle


class Fault(Exception):
    """Something is not exactly as the format says: FAIL."""


class WrongUse(Exception):
    """The command line, or a file that the caller brings, cannot be used."""


def require(found: Any, otherwise: str) -> Any:
    """What was found, or what was asked to be true. (Plain ``if`` stands for it in what is done for each event.)"""
    if not found:
        raise Fault(otherwise)
    return found


def shown(value: object) -> str:
    """Plain ASCII of at most 200 characters, for what somebody else wrote."""
    return ascii(str(value))[1:-1][:200]


# --- Check 1: the zip (section 6, "The zip") -------------------------------------------------------
# The entries that are reports, each with the kind and the format by which a ReportIssued event names it.
REPORTS = {"report.json": ("report", "json"), "results.jsonl": ("results", "jsonl"), "report.html": ("report", "html")}
NAMES = ("README.txt", "manifest.json", "checkpoint.txt", "leaves.txt", "events.jsonl", *REPORTS)
README_SHA256 = "ff2cca8ca188b85eeedf503e44fa8703034c5b0b81b68e0efb9367ac1eda37fd"


class Bundle:
    """Check 1: every byte around the entries' data follows from it, so it is made anew and compared.

    After that, entries may be read. ``places``: where each one's data begins, and its size; ``sha256``: hex.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.places, self.sha256 = file, dict[str, tuple[int, int]](), dict[str, str]()
        length, at, directory = file.seek(0, 2), 0, b""
        require(length <= MAX_BUNDLE, "zip: more than 4 GiB")
        for name in NAMES:
            header = self.read_at(at, 30 + len(name))
            require(len(header) == 30 + len(name), f"zip: ends before {name}")
            crc, size = struct.unpack_from("<2L", header, 14)
            fields = struct.pack("<5H3L2H", 20, 0, 0, 0, 0x21, crc, size, size, len(name), 0)
            same = header == b"PK\3\4" + fields + name.encode()
            require(same, f"zip: the header at byte {at} is not that of {name}, stored, as the format has it")
            start = at + len(header)
            require(start + size <= length, f"zip: {name} is said to have {size} bytes, more than the file holds")
            self.places[name], digest, computed = (start, size), sha256(), 0
            for done in range(0, size, CHUNK):
                chunk = self.read_at(start + done, min(CHUNK, size - done))
                digest.update(chunk)
                computed = crc32(chunk, computed)
            require(computed == crc, f"zip: the checksum of {name} does not match")
            self.sha256[name] = digest.hexdigest()
            more = struct.pack("<3H2L", 0, 0, 0, 0o100644 << 16, at)
            directory += b"PK\1\2" + struct.pack("<H", 3 << 8 | 20) + fields + more + name.encode()
            at = start + size
        end = directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(NAMES), len(NAMES), len(directory), at, 0)
        same = self.read_at(at, len(end) + 1) == end
        require(same, "zip: what follows the entries is not their directory, or not only that")

    def read_at(self, at: int, count: int) -> bytes:
        self.file.seek(at)
        return self.file.read(count)

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of an entry, without their newlines."""
        at, size = self.places[name]
        end = at + size
        while at < end:
            self.file.seek(at)
            line = self.file.readline(min(MAX_LINE, end - at))
            at += len(line)
            if not line.endswith(b"\n"):
                what = "a line longer than any can be" if at < end else "the last line has no newline"
                raise Fault(f"{name}: {what}")
            line = line[:-1]  # and the memory of a long one is free before it is used
            yield line

    def read(self, name: str) -> bytes:
        """The whole of a small entry."""
        require(self.places[name][1] <= MAX_SMALL, f"{name}: larger than it can be")
        return self.read_at(*self.places[name])

    def read_object(self, name: str) -> Any:
        """The object in a small entry, which is its canonical JSON and a newline."""
        data = self.read(name)
        value = parse_json(data.removesuffix(b"\n"), name)
        require(isinstance(value, dict) and data.endswith(b"\n"), f"{name}: not an object and a newline")
        return value


# --- Check 2: the checkpoint (section 4, "Keys" and "Checkpoints") ---------------------------------
KEY_NAME = r"[^\s+\0-\x1f]+"
Key = tuple[str, bytes, bytes]  # name, key id, public key


class Checkpoint(NamedTuple):
    """How many events, under which root; and the key that signed it, for printing."""

    origin: str
    size: int
    root: bytes
    signer: str


def strict_base64(text: str) -> bytes:
    """Decode base64 that encodes to the same text again."""
    data = b""
    with suppress(ValueError):
        data = base64.b64decode(text, validate=True)
    require(base64.b64encode(data).decode() == text, "not base64, or of another form than its bytes encode to")
    return data


def parse_vkey(text: str) -> Key:
    """Read ``name+key id in hex+base64(0x01 || public key)``; the key id follows from the other two."""
    otherwise = "not the vkey of an Ed25519 key: name+key id+base64"
    name, hex_id, encoded = require(re.fullmatch(rf"({KEY_NAME})\+([0-9a-f]{{8}})\+(.+)", text), otherwise).groups()
    data = strict_base64(encoded)
    key_id = sha256(name.encode() + b"\n" + data).digest()[:4]
    require(len(data) == 33 and data[0] == 1 and key_id.hex() == hex_id, otherwise)
    return name, key_id, data[1:]


def open_note(data: bytes, keys: Sequence[Key]) -> tuple[str, list[Key]]:
    """The text of a signed note, and those of ``keys`` that signed it: at least one, and none of them badly."""
    require(len(data) <= MAX_NOTE, f"a note of more than {MAX_NOTE} bytes")
    whole = data.decode("utf-8", "replace")
    require(whole.encode() == data, "a note is UTF-8")
    match = re.fullmatch(r"([^\0-\x09\x0b-\x1f]*\n)\n((?:[^\n]+\n){1,100})", whole)
    text, block = require(match, "a note is a text, a blank line and 1 to 100 signature lines").groups()
    seen, signers, otherwise = set(), [], "a signature line is an em dash, a name and base64"
    for line in block[:-1].split("\n"):
        name, encoded = require(re.fullmatch(rf"\u2014 ({KEY_NAME}) ([^ ]+)", line), otherwise).groups()
        signature = strict_base64(encoded)
        signer = name, signature[:4]
        require(len(signature) > 4, otherwise)
        require(signer not in seen, "two signatures by one key")
        seen.add(signer)
        for key in keys:
            if key[:2] == signer:
                valid = signature_valid(key[2], text.encode(), signature[4:])
                require(valid, f"signature bad: the one by {shown(name)} is not over this text")
                signers.append(key)
    otherwise = "no signature by the key named; name the one in force when it was made (an earlier or a later one)"
    return text, require(signers, otherwise)


def open_checkpoint(data: bytes, keys: Sequence[Key]) -> Checkpoint:
    """Check 2: a note of three lines, signed by one of the keys under the name in its first line."""
    text, signers = open_note(data, keys)
    otherwise = "no checkpoint: origin, size and root, a line each"
    origin, size, encoded = require(re.fullmatch(r"(.+)\n([1-9][0-9]{0,18})\n(.+)\n", text), otherwise).groups()
    root = strict_base64(encoded)
    require(len(root) == 32, otherwise)
    named = [f"{shown(name)}+{key_id.hex()}" for name, key_id, _ in signers if name == origin]
    require(named, f"a checkpoint of {shown(origin)}, which is not the name of a key that signed it")
    return Checkpoint(origin, int(size), root, named[0])


# Ed25519 (RFC 8032, section 5.1), stricter than the RFC where implementations differ: S below the group's
# order, points in canonical encoding, neither key nor R of small order, the equation without the cofactor.
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
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
    if number == 0:
        return NEUTRAL
    even = multiply_point(number >> 1, add_points(point, point))
    return add_points(even, point) if number & 1 else even


def encode_point(point: Point) -> bytes:
    """The one encoding: y, and the lowest bit of x as the highest."""
    x, y = (coordinate * pow(point[2], -1, P) % P for coordinate in point[:2])
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decode_point(data: bytes) -> Point | None:
    """The point that encodes to these bytes, if there is one."""
    y = int.from_bytes(data, "little") % 2**255 % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root, root_of_minus_1 = pow(square, (P + 3) // 8, P), pow(2, (P - 1) // 4, P)
    for x in (root, -root % P, root * root_of_minus_1 % P, -root * root_of_minus_1 % P):
        if x * x % P == square and encode_point((x, y, 1, x * y % P)) == data:
            return x, y, 1, x * y % P
    return None


def signature_valid(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Is it this key's signature (R, S) over the message: is R = S * base - k * key?"""
    s, key = int.from_bytes(signature[32:], "little"), decode_point(public_key)
    base = decode_point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    if len(signature) != 64 or s >= ORDER or key is None or base is None:
        return False
    k = int.from_bytes(sha512(signature[:32] + public_key + message).digest(), "little") % ORDER
    minus_key = -key[0], key[1], 1, -key[3]
    r = add_points(multiply_point(s, base), multiply_point(k, minus_key))
    small = any(encode_point(multiply_point(8, point)) == encode_point(NEUTRAL) for point in (key, r))
    return encode_point(r) == signature[:32] and not small


# --- Check 3: the manifest (section 6), which is canonical JSON (RFC 8785) -------------------------
# JSON is parsed, encoded anew and compared: what comes out the same has its members in order, each of them
# once, and nothing in another form. The format has no fractions and no integers beyond +-(2^53-1).
def _integer(text: str) -> int:
    number = int(text)  # a ``ValueError`` for fractions and the like
    if -(2**53) < number < 2**53:
        return number
    raise Fault("an integer beyond +-(2^53-1)")


_decode = json.JSONDecoder(parse_int=_integer, parse_float=_integer, parse_constant=_integer).raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), sort_keys=True).encode
_encode_unsorted = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def canonical(value: Any) -> str:
    """The one encoding. Members are in the order of UTF-16 code units, which for ASCII is that of characters."""
    text = _encode(value)
    return text if text.isascii() else _encode_unsorted(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=lambda key: key.encode("utf-16-be"))}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def parse_json(data: bytes, what: str) -> Any:
    """The value of canonical JSON."""
    try:
        text = data.decode()
        value, _ = _decode(text)
        same = canonical(value) == text
    except (ValueError, RecursionError, Fault) as error:
        raise Fault(f"{what}: no canonical JSON ({type(error).__name__})") from None
    require(same, f"{what}: not in canonical form (RFC 8785), or a key twice")
    return value


def check_manifest(bundle: Bundle, checkpoint: Checkpoint) -> str:
    """Check 3; and README.txt, the one file that people open first, has its one text. Gives the run's id."""
    require(bundle.sha256["README.txt"] == README_SHA256, "README.txt: not the text of version 1")
    found = bundle.read_object("manifest.json")
    run_id = str(found.get("run_id"))
    require(re.fullmatch(ID, run_id), "manifest.json: names no run")
    files = {name: digest for name, digest in bundle.sha256.items() if name != "manifest.json"}
    made = {"bundle": 1, "files": files, "ledger": checkpoint.origin, "run_id": run_id, "size": checkpoint.size}
    same = canonical(found) == canonical(made)
    require(same, "manifest.json: not the one that follows from the entries and the checkpoint")
    return run_id


# --- Check 4: the leaves, and the Merkle tree (section 1, "Hashes"; section 5, "Proofs") -----------
def leaf_hash(data: bytes) -> bytes:
    """The hash of an envelope."""
    return sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees side by side."""
    return sha256(b"\1" + left + right).digest()


def root_over(nodes: Sequence[bytes]) -> bytes:
    """The root over leaves, or over subtrees of one size (a power of two; the last may be smaller)."""
    while len(nodes) > 1:
        alone = nodes[-1:] if len(nodes) % 2 else ()  # is passed up as it is
        nodes = [*map(node_hash, nodes[::2], nodes[1::2]), *alone]
    return nodes[0]


class Leaves:
    """Check 4, of the leaf hashes that leaves.txt lists. ``roots``: those over each whole block of 1024 of them."""

    def __init__(self, bundle: Bundle, checkpoint: Checkpoint) -> None:
        self.bundle, self.size, self.held, self.hashes = bundle, checkpoint.size, -1, list[bytes]()
        fits = bundle.places["leaves.txt"][1] == 65 * self.size
        require(fits, f"leaves.txt: not {self.size} lines of 64 hex digits")
        self.roots = [root_over(self.block(number)) for number in range(self.size // 1024)]
        require(self.root(self.size) == checkpoint.root, "leaves.txt: the leaf hashes do not give the signed root")

    def block(self, number: int) -> list[bytes]:
        """The hashes of one block, of which the last one read is held."""
        if number != self.held:
            (start, length), at = self.bundle.places["leaves.txt"], 65 * 1024 * number
            text = self.bundle.read_at(start + at, min(65 * 1024, length - at))
            require(re.fullmatch(rb"(?:[0-9a-f]{64}\n)*+", text), "leaves.txt: not 64 hex digits a line")
            hashes = bytes.fromhex(text.decode())
            self.held, self.hashes = number, [hashes[at : at + 32] for at in range(0, len(hashes), 32)]
        return self.hashes

    def at(self, position: int) -> bytes:
        return self.block((position - 1) // 1024)[(position - 1) % 1024]

    def root(self, size: int) -> bytes:
        """The root over the first ``size`` leaves."""
        whole, rest = divmod(size, 1024)
        return root_over(self.roots[:whole] + ([root_over(self.block(whole)[:rest])] if rest else []))


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Is ``leaf`` number ``index`` (from 0) of the tree of ``size``? Size and root are the signed ones."""
    fits = 0 <= index < size and len(leaf) == 32 and _climb(index, size - 1, leaf, proof)[1] == root
    require(fits, "the inclusion proof does not lead to the signed root")


def verify_consistency(size1: int, size2: int, proof: Sequence[bytes], root1: bytes, root2: bytes) -> None:
    """Does the tree of ``size1`` begin that of ``size2``? From size 0 nothing is proven, so it is refused."""
    fits = size1 == size2 > 0 and root1 == root2 and not proof
    if 0 < size1 < size2:
        index, last, rest = size1 - 1, size2 - 1, list(proof)
        while index & 1:
            index, last = index >> 1, last >> 1
        start = rest.pop(0) if index and rest else root1  # which is itself a node where its size is a power of two
        fits = _climb(index, last, start, rest) == (root1, root2)
    require(fits, "forked: the consistency proof does not lead from the one root to the other")


def _climb(index: int, last: int, node: bytes, proof: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The roots over all up to this node of its level, and up to the last (RFC 9162, sections 2.1.3.2, 2.1.4.2)."""
    old = new = node
    for h in proof:
        require(last and len(h) == 32, "the proof is too long, or holds what is no hash")
        if index & 1 or index == last:
            old, new = node_hash(h, old), node_hash(h, new)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            new = node_hash(new, h)
        index, last = index >> 1, last >> 1
    require(last == 0, "the proof is too short")
    return old, new


# --- Check 5: the events (section 1, "Envelope"; section 6, "A line of events.jsonl") --------------
LEDGER, ID, _NUMBER = "$ledger", "[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}", "[1-9][0-9]{0,15}"
_DIGEST, HEX = '[^"]{64}', "[0-9a-f]{64}"  # hexadecimal, too, where it is held against what is computed
_REQUEST = rf'"(?P<request_id>{ID})","request_version":(?P<request_version>{_NUMBER})'
ENVELOPE = (  # its 13 members, as they stand in canonical JSON
    rf'\{{"content_commitment":(?:null|"(?P<content_commitment>{_DIGEST})")'
    r',"event_id":"(?P<event_id>[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"'
    r',"ledger":"(?P<ledger>[A-Za-z0-9][A-Za-z0-9._/-]{0,254})"'
    rf',"payload_sha256":"(?P<payload_sha256>{_DIGEST})"'
    rf',"position":(?P<position>{_NUMBER})'
    r',"recorded_at":"(?P<recorded_at>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z)"'
    rf',"request_id":(?:null,"request_version":null|{_REQUEST})'
    rf',"run_id":"(?P<run_id>{ID}|\$ledger)"'
    rf',"run_version":(?P<run_version>{_NUMBER})'
    r',"schema":(?P<schema>[1-9][0-9]{0,8})'
    r',"type":"(?P<type>[A-Z][A-Za-z]{0,63})","v":1\}'
)
_after_content = re.compile(
    rf',"encoding":(?:null|"(?P<encoding>utf-8|base64)"),"envelope":(?P<envelope>{ENVELOPE})'
    rf',"payload":(?P<payload>\{{(?s:.*)\}}),"salt":(?:null|"(?P<salt>{_DIGEST})")\}}'
).fullmatch
ABSENT, PRESENT, MISSING, ERASED = range(4)  # of the content of a position
_odd_escape = re.compile(r"\\[u/]").search  # no other escape that JSON has is anything but canonical


class Event:
    """Check 5, of one line alone. Raises ``Fault``, or what Python raises for values of other types."""

    def __init__(self, line: bytes) -> None:
        text = line.decode()
        content, end = _decode(text, len('{"content":'))
        match = _after_content(text, end)
        sure = text.startswith('{"content":') and not _odd_escape(text, 0, end)
        if match is None or not (sure or text[:end] == '{"content":' + _encode(content)):
            raise Fault("not the five members of an event, or not the 13 of its envelope, in their one form")
        encoding, envelope, commitment, _, self.ledger, digest, position, self.recorded_at, *others = match.groups()
        self.request_id, self.request_version, self.run_id, self.run_version, self.schema, kind, payload, salt = others
        if sha256(payload.encode()).hexdigest() != digest:
            raise Fault("payload: edited, its digest is not the envelope's")
        if encoding is not None:
            body = str.encode(content) if encoding == "utf-8" else strict_base64(content)
            key = bytes.fromhex(salt or "")
            if sha256(b"\2" + key + body).hexdigest() != commitment or key.hex() != salt:
                raise Fault("content: edited, it is not what the envelope committed to")
        elif content is not None or salt is not None:
            raise Fault("content or salt: there without an encoding")
        elif commitment is not None and not re.fullmatch(HEX, commitment):
            raise Fault("content_commitment: not 64 hex digits")
        self.content = ABSENT if commitment is None else MISSING if encoding is None else PRESENT
        self.position, self.leaf = int(position), leaf_hash(envelope.encode())
        self.type, self.payload = kind, parse_payload(kind, payload)


# Payloads of a type differ in their values, seldom in their form. So the first one, found to be canonical, is made into
# a pattern: its names and brackets, and where it has values, any that have one form alone. What fits is canonical too.
_PLAIN = r'(?:"[ !#-\[\]-~]*+"|0|-?[1-9][0-9]{0,14}|null|true|false)'
_replace = re.compile(r'("(?:[^"\\]|\\.)*+":|[][{},])|"(?:[^"\\]|\\.)*+"|[-0-9a-z]+').sub
_fits: dict[str, Any] = {}  # by type
_decode_simple = json.JSONDecoder().raw_decode


def parse_payload(kind: str, text: str) -> Any:
    """The value of a payload, which is canonical JSON; nothing of the many whose values no check here uses."""
    fits = _fits.get(kind)
    if fits and fits(text):
        return {} if kind in ("RequestAccepted", "ModelCalled") else _decode_simple(text)[0]
    value = parse_json(text.encode(), "payload")
    if not fits and len(text) < 1000:
        _fits[kind] = re.compile(_replace(lambda part: re.escape(part[1]) if part[1] else _PLAIN, text)).fullmatch
    return value


def check_events(bundle: Bundle, leaves: Leaves, record: Record) -> None:
    """Check 5: positions rise from 1 on, and each event is the leaf in its place. ``record`` does 6 and 7."""
    before = 0
    for number, line in enumerate(bundle.lines("events.jsonl"), start=1):
        try:
            event = Event(line)
            position = event.position
            if not before < position <= leaves.size or (number == 1 and position != 1):
                raise Fault(f"position {position}: reordered, doubled, or beyond the checkpoint")
            if leaves.at(position) != event.leaf:
                raise Fault(f"position {position}: its envelope is not the leaf in leaves.txt")
            record.take(event)
        except (Fault, ValueError, RecursionError, LookupError, TypeError) as error:
            fault = error if isinstance(error, Fault) else f"not an event of the format ({type(error).__name__})"
            raise Fault(f"events.jsonl, line {number}: {fault}") from None
        before = position
    missing = record.contents.find(MISSING)
    require(missing < 0, f"position {missing}, content: redacted without authority, no event orders its erasure")
    require(record.counts.run, "events.jsonl: no RunStarted event of the run")


# --- Checks 6 and 7: order, and what was erased (section 1, "Envelope"; section 7) -----------------
class Record:
    """What the events of the bundle, taken in order, have shown so far."""

    def __init__(self, run_id: str, checkpoint: Checkpoint) -> None:
        self.run_id, self.origin, self.recorded_at = run_id, checkpoint.origin, ""
        # How many events there are of the two streams, and of each of their requests.
        self.versions: dict[str, dict[str | None, int]] = {run_id: {None: 0}, LEDGER: {None: 0}}
        self.contents = bytearray(checkpoint.size + 1)  # by position
        self.issued: set[tuple[str, str, str, int]] = set()
        self.counts = Counts({})

    def take(self, event: Event) -> None:
        """The next event, whose leaf has been found in its place."""
        self.check_order(event)
        self.contents[event.position] = event.content
        kind, payload = event.type, event.payload
        if event.run_id == LEDGER:
            if kind == "ContentRedacted":
                self.check_erasures(event.position, payload["positions"])
        elif kind == "ReportIssued":
            self.issued.add((payload["kind"], payload["format"], payload["sha256"], payload["as_of_position"]))
        elif kind != "GradesRecorded":
            if kind == "RunStarted":  # a run that was blocked may start again: what counts begins there
                self.counts = Counts(payload)
            if not self.counts.ended:
                self.counts.take(event)

    def check_order(self, event: Event) -> None:
        """Check 6."""
        versions, first = self.versions.get(event.run_id), event.position == 1
        if event.ledger != self.origin or versions is None:
            raise Fault("an event of another ledger or another run")
        if (event.type == "LedgerCreated") != first or (first and event.run_id != LEDGER):
            raise Fault("LedgerCreated stands at position 1, and nowhere else")
        versions[None] += 1
        if int(event.run_version) != versions[None]:
            raise Fault(f"run_version: {event.run_version} where {versions[None]} is next in its stream")
        if event.request_id is not None:
            versions[event.request_id] = due = versions.get(event.request_id, 0) + 1
            if int(event.request_version) != due:
                raise Fault(f"request_version: {event.request_version} where {due} is next for this request")
        if event.recorded_at < self.recorded_at:
            raise Fault("recorded_at: earlier than the event before")
        self.recorded_at = event.recorded_at

    def check_erasures(self, position: int, positions: list[int]) -> None:
        """Check 7 of an event that orders them; what is missing without one is found in the end."""
        for erased in positions:
            require(1 <= erased < position, f"redacts position {erased}, which did not stand before it")
            state = self.contents[erased]
            require(state != PRESENT, f"content of position {erased}: present, although it was redacted here")
            if state == MISSING:
                self.contents[erased] = ERASED


# --- Checks 8 to 10: the reports (section 1, "Counts"; section 6, "What the report must say") ------
TERMINAL = {"RunCompleted": None, "RunBlocked": "blocked", "RunAbandoned": "abandoned"}  # and their outcomes
CALLS = {"started": "ModelCallStarted", "answered": "ModelCalled", "failed": "ModelCallFailed"}
FACTS = ("candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint")
FLAGS, OPEN = ("blocked_by_policy", "requires_human_approval"), ("not_started", "incomplete")
SEVEN = ("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected", *OPEN)


class Counts:
    """What the run's events add up to, from its last RunStarted to the first that ends it."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.run, self.position = run, 0  # the payload of RunStarted; the position of the last event that counts
        self.outcome, self.ended = "incomplete", False
        self.ended_with: dict[str, int] | None = None
        self.newer = False  # a payload is of a later schema than this program knows: nothing can be counted
        self.requests, self.retried = dict[str, str](), set[str]()  # of those accepted, which of the SEVEN each is
        self.number, self.errors, self.decisions = Counter[str](), Counter[str](), Counter[tuple[str, str]]()

    def take(self, event: Event) -> None:
        kind, payload = event.type, event.payload
        self.position, self.newer = event.position, self.newer or event.schema != "1"
        if kind in TERMINAL:
            self.ended, self.ended_with = True, payload.get("counts")
            self.outcome = TERMINAL[kind] or payload.get("outcome")
        elif not self.newer:
            self.number[kind] += 1
            self.take_of_request(kind, event.request_id, payload)

    def take_of_request(self, kind: str, request_id: str, payload: dict[str, Any]) -> None:
        """Of a request that was accepted, only the first result counts."""
        is_open = self.requests.get(request_id) in OPEN
        if kind == "RequestAccepted":
            self.requests.setdefault(request_id, "not_started")
        elif kind == "ModelCallStarted":
            if is_open:
                self.requests[request_id] = "incomplete"
            if payload["turn"] == 2:
                self.retried.add(request_id)
        elif kind == "ModelCallFailed":
            self.number["outcome_unknown"] += payload["outcome_unknown"]
        elif kind == "FallbackApplied" and is_open:
            self.requests[request_id] = "fallback_records"
            self.errors[payload["code"]] += 1
        elif kind == "OutputAccepted" and is_open:
            self.requests[request_id] = "accepted_first" if payload["turn"] == 1 else "accepted_after_retry"
            for column in ("total", *([name for name in FLAGS if payload[name]] or ["neither"])):
                self.decisions[payload["risk_level"], column] += 1

    def members(self) -> dict[str, Any]:
        """The members of report.json that follow from the events; those of its ``calls`` with a dot.

        The others (tokens, latencies, costs and more) rest on the digest that was recorded when the report was
        issued; `replay-ledger report` makes them again.
        """
        number, seven = self.number, Counter(self.requests.values())
        seven.update(leak_rejected=number["LeakRejected"], rejected=number["RequestRejected"])
        requests, accepted = seven.total(), seven["accepted_first"] + seven["accepted_after_retry"]
        columns, levels = ("total", *FLAGS, "neither"), ("low", "medium", "high", "critical")
        return {
            "requests": requests,
            **{name: seven[name] for name in SEVEN},
            **{name: self.run.get(name) for name in FACTS},
            "outcome": self.outcome,
            "valid": self.outcome == "completed" and 0 < accepted == requests,
            "results": accepted + seven["fallback_records"],
            "external_error_records": seven["fallback_records"],
            "retry_used_records": sum(self.requests.get(name, OPEN[0]) not in OPEN for name in self.retried),
            "unreadable": 0,
            "errors": dict(self.errors),
            "decisions": {"by_risk_level": {row: {c: self.decisions[row, c] for c in columns} for row in levels}},
            **{f"calls.{name}": number[kind] for name, kind in CALLS.items()},
            "calls.outcome_unknown": number["outcome_unknown"],
        }


def check_report(bundle: Bundle, record: Record, report: dict[str, Any], unproven: list[str]) -> None:
    """Checks 8 and 10."""
    counts, calls = record.counts, report.get("calls")
    for name, (kind, form) in REPORTS.items():
        issued = (kind, form, bundle.sha256[name], counts.position) in record.issued
        require(issued, f"{name}: no ReportIssued event of the run names these bytes, as of its last event")
    if counts.newer:
        unproven.append("that report.json's counts follow from the events: a newer verify.py is needed to count them")
        return
    made, said = {"run_id": record.run_id, **counts.members()}, dict(report)
    ended_with = {name: made[name] for name in ("requests", *SEVEN)}
    agreed = counts.ended_with is None or canonical(counts.ended_with) == canonical(ended_with)
    require(agreed, "the counts that the run ended with are not what its events add up to")
    said |= {f"calls.{name}": value for name, value in calls.items()} if isinstance(calls, dict) else {}
    for name, value in made.items():
        same = name in said and canonical(said[name]) == canonical(value)
        require(same, f"report.json: {name} does not follow from the events")
    results = sum(1 for _ in bundle.lines("results.jsonl"))
    require(results == made["results"], "results.jsonl: not as many results as the events have")


# --- All checks, and the verdict (section 6, "What a verifier checks") -----------------------------
class Verdict:
    """What was found to hold, what is open, what can never be proven; and in one line what it is about."""

    def __init__(self, about: str, *proven: str) -> None:
        self.about, self.proven, self.unproven = about, [*proven], list[str]()
        self.never_proven = [
            "that every true event was recorded: what was left out beforehand leaves no trace here",
            "that what was recorded is true: the record shows what was written, not that it was so",
            "the hour: recorded_at is the ledger's own claim",
        ]

    def lines(self) -> Iterator[str]:
        yield f"{'INCOMPLETE' if self.unproven else 'PASS'}  {self.about}"
        titles = {"Proven:": self.proven, "Not proven:": self.unproven, "What this can never prove:": self.never_proven}
        for title, items in titles.items():
            yield from ["", title, *(f"  - {item}" for item in items)] if items else []


def check_bundle(file: BinaryIO, keys: Sequence[Key], pinned: Checkpoint | None, args: argparse.Namespace) -> Verdict:
    """All checks of an audit bundle, by their numbers."""
    bundle = Bundle(file)  # 1
    checkpoint = open_checkpoint(bundle.read("checkpoint.txt"), keys)  # 2
    run_id = check_manifest(bundle, checkpoint)  # 3
    leaves = Leaves(bundle, checkpoint)  # 4
    record, verdict = Record(run_id, checkpoint), Verdict(f"run {run_id} of {shown(checkpoint.origin)}")
    check_events(bundle, leaves, record)  # 5, 6, 7
    report, last = bundle.read_object("report.json"), record.counts.position
    check_report(bundle, record, report, verdict.unproven)  # 8, 10
    as_of = {"position": last, "root": leaves.root(last).hex(), "size": last}
    same = canonical(report.get("as_of")) == canonical(as_of)
    require(same, "report.json: as_of is not the run's last event and the root there")  # 9
    of_run, of_ledger = record.versions[run_id][None], record.versions[LEDGER][None]
    verdict.proven += [
        f"the key {checkpoint.signer} signed these {checkpoint.size} events, in this order",
        f"{of_run} of them are of this run and {of_ledger} of the ledger itself, each whole and unaltered",
        f"each content that is here is what was recorded; erased by order of an event: {record.contents.count(ERASED)}",
        "the three reports are those that were issued"
        + ("" if record.counts.newer else ", and report.json's counts follow from the events"),
    ]
    if others := checkpoint.size - of_run - of_ledger:
        verdict.never_proven.append(
            f"what the other {others} events are, of which only the hashes are here: all are said to be of other runs,"
            " and the newest events of this run, or of the ledger, could be among them (earlier ones cannot)"
        )
    if not record.counts.ended:
        verdict.unproven.append("that the run is over: it has no terminal event, so nobody knows what was to come")
    check_pinned(verdict, checkpoint, pinned, leaves.root, args)
    return verdict


def check_pinned(verdict: Verdict, checkpoint: Checkpoint, pinned: Checkpoint | None, root: Any, args: Any) -> None:
    """Hold the signed tree against the checkpoint that the caller kept; ``root`` gives that over its first events."""
    if pinned is None:
        verdict.unproven.append(
            "that this is the history others were shown: no checkpoint that you kept was given (--checkpoint),"
            " and whoever holds the key can sign another history"
        )
        return
    require(pinned.origin == checkpoint.origin, "your checkpoint is of another ledger")
    window = checkpoint.size - pinned.size
    if window >= 0:
        same = root(pinned.size) == pinned.root
        require(same, f"forked: the first {pinned.size} events are not those of your checkpoint")
    elif args.consistency is None:
        verdict.unproven.append(
            f"that the ledger went on from here to your checkpoint of {pinned.size} events: that takes"
            f" --consistency FILE, made by `replay-ledger prove --consistency {checkpoint.size} {pinned.size}`"
        )
        return
    else:
        try:
            text = read_small(args.consistency).decode("ascii", "replace")
            proof = [strict_base64(line) for line in text.splitlines()]
            verify_consistency(checkpoint.size, pinned.size, proof, checkpoint.root, pinned.root)
        except Fault as fault:
            raise Fault(f"--consistency: {fault}") from None
    verdict.proven.append(f"your checkpoint of {pinned.size} events is of this history")
    if window > args.max_window:
        verdict.unproven.append(
            f"that events {pinned.size + 1} to {checkpoint.size} are what others were shown: your checkpoint does not"
            f" cover these {window} (--max-window allows {args.max_window}), only the signature does"
        )


# --- A proof for one event (section 5, "Proofs") ---------------------------------------------------
PROOF_BEGINS = b"c2sp.org/tlog-proof@v1\n"


def check_proof(data: bytes, keys: Sequence[Key], pinned: Checkpoint | None, args: argparse.Namespace) -> Verdict:
    """All checks: the envelope that the proof brings along is a leaf of the tree that was signed."""
    form = PROOF_BEGINS + rb"extra ([!-~]+)\nindex (0|[1-9][0-9]{0,15})\n((?:[!-~]+\n)*)\n((?s:.*))"
    otherwise = "proof: not the lines of a proof with its event: c2sp.org/tlog-proof@v1, extra, index"
    extra, index, hashes, note = require(re.fullmatch(form, data), otherwise).groups()
    checkpoint, envelope = open_checkpoint(note, keys), strict_base64(extra.decode())
    proof = [strict_base64(line) for line in hashes.decode().splitlines()]
    verify_inclusion(int(index), checkpoint.size, leaf_hash(envelope), proof, checkpoint.root)
    otherwise = "proof: the event is not one of this ledger, in this position"
    match = re.fullmatch(ENVELOPE.replace(_DIGEST, HEX), envelope.decode("ascii", "replace"))
    event = require(match, otherwise).groupdict()
    require(int(event["position"]) == int(index) + 1 and event["ledger"] == checkpoint.origin, otherwise)
    if pinned is not None and pinned.size < checkpoint.size:
        raise WrongUse("the checkpoint is smaller than the proof's: ask for a proof under your own")
    verdict = Verdict(f"event {event['position']} of {shown(checkpoint.origin)}")
    who = "{type}, run {run_id}, request {request_id}, id {event_id}".format_map(event)
    verdict.proven.append(f"the key {checkpoint.signer} signed {checkpoint.size} events that hold this: {who}")
    check_pinned(verdict, checkpoint, pinned, lambda _: checkpoint.root, args)
    return verdict


# --- The program -----------------------------------------------------------------------------------
def read_small(path: str) -> bytes:
    """A small file that the caller brings."""
    with Path(path).open("rb") as file:
        data = file.read(CHUNK + 1)
    require(len(data) <= CHUNK, "a file larger than it can be")
    return data


def examine(args: argparse.Namespace) -> Verdict:
    """Check what the command line names."""
    path, pinned = Path(args.file), None
    if args.max_window < 0:
        raise WrongUse("--max-window: a number of events, from 0 on")
    try:
        keys = [parse_vkey(text) for text in args.key]
    except (Fault, UnicodeError) as error:
        raise WrongUse(f'--key: {error}; where a file holds it: --key "$(cat FILE)"') from None
    if args.checkpoint is not None:
        try:
            pinned = open_checkpoint(read_small(args.checkpoint), keys)
        except Fault as fault:
            raise Fault(f"the checkpoint that you kept: {fault}") from None
    if path.exists() and not path.is_file():
        raise WrongUse(f"no regular file: {path}")  # of which reading might never end
    with path.open("rb", buffering=CHUNK) as file:
        begins, _ = file.read(len(PROOF_BEGINS)), file.seek(max(0, file.seek(0, 2) - 22))
        if begins == PROOF_BEGINS:
            return check_proof(read_small(args.file), keys, pinned, args)
        if begins[:4] != b"PK\3\4" and file.read(4) != b"PK\5\6":  # a damaged bundle still has one of them
            raise WrongUse(f"neither a bundle nor a proof: {path}")
        return check_bundle(file, keys, pinned, args)


class Parser(argparse.ArgumentParser):
    """Refuses without printing what was typed as it is."""

    def error(self, message: str) -> NoReturn:
        raise WrongUse(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print the verdict, and give the exit code."""
    parser = Parser(description="Checks an audit bundle, or a proof for one event, of replay-ledger.")
    parser.add_argument("file", help="audit-X.zip, or a .tlog-proof")
    parser.add_argument("--key", action="append", required=True, metavar="VKEY", help="the ledger's public key")
    parser.add_argument("--checkpoint", metavar="PINNED", help="a signed checkpoint that you kept")
    parser.add_argument("--consistency", metavar="FILE", help="proof towards a checkpoint larger than the bundle's")
    parser.add_argument("--max-window", type=int, default=0, metavar="N", help="events not covered, at most [0]")
    try:
        verdict = examine(parser.parse_args(arguments))
        text, code = "\n".join(verdict.lines()), 3 if verdict.unproven else 0
    except (WrongUse, OSError) as error:
        print(f"verify.py: {shown(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - whatever the bundle brought about, it is no PASS
        fault = error if isinstance(error, Fault) else f"it could not be understood ({type(error).__name__})"
        text, code = f"FAIL\n\nDoes not match:\n  - {fault}", 1
    try:
        print(text, flush=True)
    except OSError:
        with suppress(OSError):
            sys.stdout.close()  # or Python would try again when it ends
        return 2
    return 2 if sys.stdout is None else code


if __name__ == "__main__":
    sys.exit(main())
