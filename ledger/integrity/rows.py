"""One row against itself: payload, content and envelope against the digests beside them. Pure.

What a row says of its place among the others (versions, times, the tree) is for ``walk.py``.
A row that was tampered with may hold values of any type in any column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import orjson

from ledger.events import EVENT_TYPES, Event
from ledger.integrity.canonical import CanonicalError, encode_payload
from ledger.integrity.merkle import leaf_hash
from ledger.integrity.verdict import Findings, Kind, printable
from ledger.store.envelope import FORMAT, SALT_BYTES, commitment
from ledger.store.errors import LedgerMalformed
from ledger.store.records import Record, Unreadable, decode_content, encode_content

MAX_DIAGNOSES: Final = 20
"""A mismatch costs hundreds of hashes to explain, so only the first ones are explained."""

NEARBY: Final = 256
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


class RowChecker:
    """Checks the rows of one ledger, one by one; what does not match goes to ``found``."""

    def __init__(self, origin: str, found: Findings) -> None:
        self._origin, self._found = origin, found
        self._diagnosed = 0
        self._good_time = ""

    def check(self, record: Record, event: Event | Unreadable) -> None:
        """Hash again what the row's digests cover, and compare. ``event`` is the row as folds read it."""
        edited = self._check_leaf(record)
        if isinstance(event, Unreadable):
            self._note(record, "payload", "edited", f"unreadable: {printable(event.reason)}")
        self._check_payload(record, event, digest_edited=edited == "payload_sha256")
        self._check_content(record, commitment_edited=edited == "content_commitment")
        if (record.request_id is None) != (record.request_version is None):
            self._note(record, "request_version", "edited", "null where request_id is not, or the reverse")
        if record.recorded_at != self._good_time and not self._is_time(record.recorded_at):
            self._note(record, "recorded_at", "edited", "not a time in the one form that is recorded")

    def _is_time(self, value: object) -> bool:
        if not isinstance(value, str) or not _TIME.fullmatch(value):
            return False
        self._good_time = value  # events of one transaction share their time
        return True

    def _note(self, record: Record, member: str, kind: Kind, text: str) -> None:
        self._found.add(record.position, member, kind, text)

    def _check_leaf(self, record: Record) -> str | None:
        """The member that was edited, where that can be told."""
        envelope = envelope_of(record, self._origin)
        try:
            # Whatever else this writes for a value that may not stand there, it is not what was hashed.
            if leaf_hash(orjson.dumps(envelope, option=orjson.OPT_SORT_KEYS)) == record.leaf_hash:
                return None
            encode_payload(envelope)
        except (CanonicalError, TypeError):
            self._note(record, "envelope", "edited", "a member holds a value of a wrong type")
            return None
        self._diagnosed += 1
        member, kind, text = diagnose(record, envelope) if self._diagnosed <= MAX_DIAGNOSES else UNEXPLAINED
        self._note(record, member, kind, text)
        return member

    def _check_payload(self, record: Record, event: Event | Unreadable, *, digest_edited: bool) -> None:
        try:
            raw = record.payload.encode("utf-8")
            # Brought to another schema, or not understood, it is read once more.
            payload = event.payload if isinstance(event, Event) and event.schema == record.schema else orjson.loads(raw)
            canonical = encode_payload(payload) == raw
        except (AttributeError, TypeError, ValueError):
            self._note(record, "payload", "edited", "not canonical JSON of the kind that a payload is")
            return
        if not canonical:
            self._note(record, "payload", "edited", "not the one canonical form of its JSON")
        if not digest_edited and sha256(raw).hexdigest() != record.payload_sha256:
            self._note(record, "payload", "edited", "its SHA-256 is not the one in the envelope")

    def _check_content(self, record: Record, *, commitment_edited: bool) -> None:
        committed, erased = record.content_commitment is not None, record.redacted_by is not None
        if record.salt is None and record.encoding is None and record.body is None:
            if commitment_edited:
                return
            if committed and not erased:
                self._note(record, "content", "removed", "the envelope commits to content, which is gone unredacted")
            elif erased and not committed:
                self._note(record, "redactions", "inserted", "a redaction of content that never was")
        elif erased:
            self._note(record, "content", "inserted", "content that was erased is there again")
        elif not committed and not commitment_edited:
            self._note(record, "content", "inserted", "the envelope commits to no content")
        else:
            self._check_commitment(record, commitment_edited=commitment_edited)

    def _check_commitment(self, record: Record, *, commitment_edited: bool) -> None:
        content = content_of(record)
        if content is None:
            self._note(record, "content", "edited", "it cannot be decoded")
            return
        if not isinstance(record.salt, bytes) or len(record.salt) != SALT_BYTES:
            self._note(record, "salt", "edited", "a salt is 32 bytes")
            return
        if _is_stored_otherwise(record, content):
            self._note(record, "encoding", "edited", "not the form in which these bytes are stored")
        if not commitment_edited and commitment(record.salt, content) != record.content_commitment:
            self._note(record, "content", "edited", "content or salt is not what the envelope commits to")


def envelope_of(record: Record, origin: str) -> dict[str, Any]:
    """The 13 members that are hashed (docs/ledger-format.md, section 1)."""
    return {
        "v": FORMAT,
        "ledger": origin,
        "position": record.position,
        "event_id": record.event_id,
        "type": record.type,
        "schema": record.schema,
        "run_id": record.run_id,
        "run_version": record.run_version,
        "request_id": record.request_id,
        "request_version": record.request_version,
        "recorded_at": record.recorded_at,
        "payload_sha256": record.payload_sha256,
        "content_commitment": record.content_commitment,
    }


def content_of(record: Record) -> bytes | None:
    """The content's bytes; None where the row cannot be decoded."""
    try:
        return decode_content(record.position, record.encoding or "", record.body or "")
    except LedgerMalformed:
        return None


def _is_stored_otherwise(record: Record, content: bytes) -> bool:
    if record.encoding == "utf-8":  # the rule of encode_content, for text that was just decoded
        return b"\0" in content
    return encode_content(content) != (record.encoding, record.body)


UNEXPLAINED: Final[tuple[str, Kind, str]] = ("envelope", "edited", "the envelope does not hash to the stored leaf hash")


def diagnose(record: Record, envelope: dict[str, Any]) -> tuple[str, Kind, str]:
    """Which member of an envelope was edited, found by trying values until the stored leaf fits.

    ``UNEXPLAINED`` where none does, as for a time or an id: nothing tells what it was.
    """
    for member, value in _candidates(record):
        if leaf_hash(encode_payload({**envelope, member: value})) == record.leaf_hash:
            if member == "position":
                offset = f"{value - record.position:+d}"
                return member, "reordered", f"the row that was recorded {offset} from here"
            return member, "edited", f"the leaf hash was made with {'null' if value is None else value}"
    return UNEXPLAINED


def _candidates(record: Record) -> Iterator[tuple[str, Any]]:
    if isinstance(record.payload, str):
        yield "payload_sha256", sha256(record.payload.encode("utf-8", "surrogatepass")).hexdigest()
    yield "content_commitment", None
    content = content_of(record)
    if content is not None and isinstance(record.salt, bytes):
        yield "content_commitment", commitment(record.salt, content)
    for name, known in EVENT_TYPES.items():
        yield "type", name
        if name == record.type:
            yield from (("schema", number) for number in range(1, known.SCHEMA + 1))
    for offset in range(1, NEARBY + 1):
        for member in ("position", "run_version", "request_version"):
            value = getattr(record, member)
            if isinstance(value, int):
                yield member, value + offset
                yield member, value - offset
