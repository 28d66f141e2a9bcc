"""Writing an audit bundle, byte for byte as docs/ledger-format.md section 6 has it.

``audit-<run_id>.zip`` holds one run whole, the ledger's own events, the leaf hash of every event, a
signed checkpoint over all of them, and the reports that were issued. The same ledger, checkpoint and
reports give the same bytes. Everything is hashed on its way in, so that what was written is what was
signed, or nothing is. Memory is bounded: rows come as streams, contents a few megabytes at a time.
"""

from __future__ import annotations

import heapq
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple

from ledger.events import LEDGER_RUN_ID
from ledger.integrity.canonical import encode
from ledger.integrity.checkpoint import Checkpoint, parse_checkpoint
from ledger.integrity.merkle import Frontier, leaf_hash
from ledger.integrity.note import NoteError, parse_note
from ledger.store import Store
from ledger.store.envelope import Envelopes, check_members, commitment
from ledger.store.errors import InvalidEvent, LedgerMalformed
from ledger.store.records import EVENT_COLUMNS, decode_content

REPORTS: Final = ("report.json", "results.jsonl", "report.html")
"""The entries that are reports: issued before, and given to ``write_bundle`` as they were issued."""

NAMES: Final = ("README.txt", "manifest.json", "checkpoint.txt", "leaves.txt", "events.jsonl", *REPORTS)
MAX_BYTES: Final = 2**32 - 1
_LEAVES_AT_ONCE: Final = 4096
_EVENTS_AT_ONCE: Final = 200
_TEXT_AT_ONCE: Final = 4 * 2**20


class BundleRefused(Exception):
    """No bundle can be written of this: what it lacks is said."""

    exit_code = 2


class _Row(NamedTuple):
    """A row of ``events``, in the order of the table's columns."""

    position: int
    event_id: str
    type: str
    schema: int
    run_id: str
    run_version: int
    request_id: str | None
    request_version: int | None
    recorded_at: str
    payload: str
    payload_sha256: str
    content_commitment: str | None
    leaf_hash: bytes


def write_bundle(store: Store, run_id: str, note: str, reports: Mapping[str, Iterable[bytes]], out: BinaryIO) -> None:
    """Write the bundle to ``out``, an empty file that can be sought in.

    ``note``: the signed checkpoint; it must cover the run, the reports' ``ReportIssued`` events and every
    erasure in what is bundled. ``reports``: the bytes of each of ``REPORTS`` as issued, taken once, in that
    order. Raises ``BundleRefused`` where the checkpoint does not cover an erasure or the zip would pass
    4 GiB, ``LedgerMalformed`` where something does not hash to what is signed; ``out`` is then of no use.
    """
    checkpoint = _opened(store, note)
    manifest = {"bundle": 1, "files": dict.fromkeys(_HASHED, "0" * 64), "ledger": checkpoint.origin}
    manifest |= {"run_id": run_id, "size": checkpoint.size}
    zip_ = _Zip(out)
    digests = {"README.txt": zip_.add("README.txt", [readme()])}
    # What the manifest says is known last, how long it is already now.
    zip_.reserve("manifest.json", len(_line(manifest)))
    digests["checkpoint.txt"] = zip_.add("checkpoint.txt", [note.encode()])
    digests["leaves.txt"] = zip_.add("leaves.txt", _leaves(store, checkpoint))
    digests["events.jsonl"] = zip_.add("events.jsonl", _events(store, run_id, checkpoint))
    for name in REPORTS:
        digests[name] = zip_.add(name, reports[name])
    zip_.fill("manifest.json", _line({**manifest, "files": digests}))
    zip_.finish()


_HASHED: Final = tuple(name for name in NAMES if name != "manifest.json")


def readme() -> bytes:
    """The text of README.txt. Fixed for version 1 of the bundle: the verifier knows its digest."""
    return files(__package__).joinpath("README.txt").read_bytes()


def verifier() -> bytes:
    """The standalone verifier, as it is given to people. It is read, never imported."""
    return files(__package__).joinpath("verifier.py").read_bytes()


def _line(value: Any) -> bytes:
    return encode(value) + b"\n"


def _opened(store: Store, note: str) -> Checkpoint:
    try:
        checkpoint = parse_checkpoint(parse_note(note).text)
    except NoteError as error:
        raise LedgerMalformed(f"the checkpoint is damaged: {error}") from None
    head = store.head()
    if checkpoint.origin != head.origin or checkpoint.size > head.size:
        raise BundleRefused("the checkpoint is not one of this ledger as it stands")
    return checkpoint


# --- leaves --------------------------------------------------------------------------------


def _leaves(store: Store, checkpoint: Checkpoint) -> Iterator[bytes]:
    frontier = Frontier()
    for first in range(0, checkpoint.size, _LEAVES_AT_ONCE):
        hashes = store.read_leaves(first, min(_LEAVES_AT_ONCE, checkpoint.size - first))
        for item in hashes:
            frontier.append(item)
        yield b"".join(item.hex().encode() + b"\n" for item in hashes)
    if (frontier.size, frontier.root()) != (checkpoint.size, checkpoint.root):
        raise LedgerMalformed("the ledger's leaf hashes do not give the signed root: `replay-ledger verify` tells more")


# --- events --------------------------------------------------------------------------------

_STREAM_SQL: Final = f"""
SELECT {", ".join(EVENT_COLUMNS)} FROM events
WHERE run_id = :run_id AND position <= :size ORDER BY run_version
"""  # noqa: S608 - our own columns
_LENGTHS_SQL: Final = "SELECT position, length(body) FROM contents WHERE position IN ({marks}) ORDER BY position"
_CONTENTS_SQL: Final = "SELECT position, salt, encoding, body FROM contents WHERE position IN ({marks})"
_ERASED_SQL: Final = "SELECT position FROM redactions WHERE position IN ({marks}) AND event_position <= :size"


def _events(store: Store, run_id: str, checkpoint: Checkpoint) -> Iterator[bytes]:
    envelopes = Envelopes(checkpoint.origin)
    streams = (
        map(_Row._make, store.rows(_STREAM_SQL, {"run_id": stream, "size": checkpoint.size}))
        for stream in (run_id, LEDGER_RUN_ID)
    )
    merged = heapq.merge(*streams, key=lambda row: row.position)
    while rows := list(islice(merged, _EVENTS_AT_ONCE)):
        for row, content in _with_contents(store, rows, checkpoint.size):
            yield _event_line(row, content, envelopes)


def _with_contents(
    store: Store, rows: Sequence[_Row], size: int
) -> Iterator[tuple[_Row, tuple[bytes, str, str] | None]]:
    """Each row with its content's salt, encoding and body; None where it has none, or it was erased."""
    committed = [row.position for row in rows if row.content_commitment is not None]
    lengths = dict(_picked(store, _LENGTHS_SQL, committed))
    erased = {row[0] for row in _picked(store, _ERASED_SQL, [at for at in committed if at not in lengths], size=size)}
    held: dict[int, tuple[bytes, str, str]] = {}
    for row in rows:
        at = row.position
        if at in lengths and at not in held:
            held = {found[0]: found[1:] for found in _picked(store, _CONTENTS_SQL, _next_few(lengths, at))}
        if row.content_commitment is not None and at not in held and at not in erased:
            raise BundleRefused(
                f"the content of position {at} is gone, and the checkpoint of size {size} covers no event that"
                " erased it: sign a newer one with `replay-ledger checkpoint`"
            )
        yield row, held.get(at)


def _next_few(lengths: Mapping[int, int], first: int) -> list[int]:
    """Positions from ``first`` on whose contents together are not too large; ``first`` in any case."""
    few: list[int] = []
    total = 0
    for position, length in lengths.items():
        if position >= first:
            total += length
            if few and total > _TEXT_AT_ONCE:
                break
            few.append(position)
    return few


def _picked(store: Store, sql: str, positions: Sequence[int], **params: int) -> list[tuple[Any, ...]]:
    if not positions:
        return []
    names = {f"p{number}": position for number, position in enumerate(positions)}
    return list(store.rows(sql.format(marks=", ".join(f":{name}" for name in names)), {**names, **params}))


def _event_line(row: _Row, content: tuple[bytes, str, str] | None, envelopes: Envelopes) -> bytes:
    """The event's line, once it was held against its own hashes."""
    try:
        check_members(row.event_id, row.type, row.schema, row.run_id, row.request_id)
    except InvalidEvent as error:
        raise _does_not_match(row, str(error)) from None
    envelope = envelopes.encode(*row[:9], row.payload_sha256, row.content_commitment)
    payload = row.payload.encode()
    if leaf_hash(envelope) != bytes(row.leaf_hash) or sha256(payload).hexdigest() != row.payload_sha256:
        raise _does_not_match(row, "its envelope or payload is not what was hashed")
    if content is None:
        body = encoding = salt = b"null"
    else:
        drawn, form, text = content
        if commitment(drawn, decode_content(row.position, form, text)) != row.content_commitment:
            raise _does_not_match(row, "its content is not what was committed to")
        body, encoding, salt = encode(text), encode(form), b'"' + drawn.hex().encode() + b'"'
    return b'{"content":%b,"encoding":%b,"envelope":%b,"payload":%b,"salt":%b}\n' % (
        *(body, encoding, envelope),
        *(payload, salt),
    )


def _does_not_match(row: _Row, what: str) -> LedgerMalformed:
    return LedgerMalformed(f"position {row.position} does not match: {what}: `replay-ledger verify` tells more")


# --- the zip -------------------------------------------------------------------------------

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_VERSION, _DATE = 20, 0x0021
_MADE_BY: Final = 3 << 8 | _VERSION  # 3 is Unix
_ATTRIBUTES: Final = 0o100644 << 16


class _Entry(NamedTuple):
    at: int
    size: int
    crc: int


class _Zip:
    """A zip of stored entries without times, flags, extra fields or comments (APPNOTE.TXT, section 4.3)."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._entries: dict[str, _Entry] = {}
        self._end = 0

    def add(self, name: str, chunks: Iterable[bytes]) -> str:
        """Write an entry; gives the SHA-256 of its data, hex. Its header is written when its size is known."""
        at, digest, crc, size = self._end, sha256(), 0, 0
        self._write(self._header(name, _Entry(at, 0, 0)))
        for chunk in chunks:
            self._write(chunk)
            digest.update(chunk)
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        self._set_header(name, _Entry(at, size, crc))
        return digest.hexdigest()

    def reserve(self, name: str, size: int) -> None:
        """Leave room for an entry of that size, to be filled later."""
        self.add(name, [bytes(size)])

    def fill(self, name: str, data: bytes) -> None:
        """Put the data where room was left."""
        at, size, _ = self._entries[name]
        assert len(data) == size
        self._out.seek(at + len(self._header(name, self._entries[name])))
        self._out.write(data)
        self._set_header(name, _Entry(at, size, zlib.crc32(data)))

    def finish(self) -> None:
        """Write the directory, which ends the zip."""
        start, directory = self._end, b""
        for name, (at, size, crc) in self._entries.items():
            numbers = (_VERSION, 0, 0, 0, _DATE, crc, size, size, len(name), 0, 0, 0, 0, _ATTRIBUTES, at)
            directory += _CENTRAL.pack(b"PK\1\2", _MADE_BY, *numbers) + name.encode()
        count = len(self._entries)
        self._write(directory + _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), start, 0))

    def _header(self, name: str, entry: _Entry) -> bytes:
        sizes = (entry.crc, entry.size, entry.size, len(name), 0)
        return _LOCAL.pack(b"PK\3\4", _VERSION, 0, 0, 0, _DATE, *sizes) + name.encode()

    def _set_header(self, name: str, entry: _Entry) -> None:
        self._entries[name] = entry
        self._out.seek(entry.at)
        self._out.write(self._header(name, entry))
        self._out.seek(self._end)

    def _write(self, data: bytes) -> None:
        self._end += len(data)
        if self._end > MAX_BYTES:
            raise BundleRefused("the bundle would be larger than 4 GiB, which no bundle may be")
        self._out.write(data)
