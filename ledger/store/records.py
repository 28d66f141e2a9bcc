"""The values that go into the store and come out of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

from ledger.events import NewEvent
from ledger.integrity.merkle import TreeNode
from ledger.store.changes import RowChange
from ledger.store.errors import LedgerMalformed
from ledger.store.expected import Expected

Stream = tuple[str, str | None]
"""A run's own stream (``request_id`` None), or a request's."""

EventRow = tuple[int, str, str, int, str, int, str | None, int | None, str, str, str, str | None, bytes]
"""A row of ``events``, columns in the order of the table."""

ContentRow = tuple[int, bytes, str, str]
"""A row of ``contents``: position, salt, encoding, body."""

EVENT_COLUMNS = (
    *("position", "event_id", "type", "schema", "run_id", "run_version", "request_id", "request_version"),
    *("recorded_at", "payload", "payload_sha256", "content_commitment", "leaf_hash"),
)
CONTENT_COLUMNS = ("position", "salt", "encoding", "body")


class Batch(NamedTuple):
    """What one caller appends: all of it or nothing."""

    events: Sequence[NewEvent]
    expected: Sequence[Expected] = ()


class Receipt(NamedTuple):
    """Where an event stands. The same event appended again gives the first receipt again."""

    position: int
    event_id: str
    run_version: int
    request_version: int | None
    recorded_at: str


class Head(NamedTuple):
    """Where the log stands. ``frontier``: roots of its perfect subtrees, largest first, joined."""

    origin: str
    format: int
    size: int
    root: bytes
    frontier: bytes
    recorded_at: str | None


class Record(NamedTuple):
    """An event's whole row with its content's, exactly as stored: nothing is decoded or checked.

    ``salt``, ``encoding`` and ``body`` are None where there is no content (any more);
    ``redacted_by`` is the position of the ``ContentRedacted`` event that erased it.
    """

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
    salt: bytes | None
    encoding: str | None
    body: str | None
    redacted_by: int | None


class Unreadable(NamedTuple):
    """An event whose row is there but cannot be understood. ``reason`` holds none of its content."""

    position: int
    run_id: str
    request_id: str | None
    type: str
    reason: str


class Checkpoint(NamedTuple):
    """A signed checkpoint as stored; ``note`` is the whole signed note."""

    size: int
    root: bytes
    note: str


class Known(NamedTuple):
    """An event that the ledger holds already, as far as is needed to tell it from another."""

    receipt: Receipt
    type: str
    schema: int
    run_id: str
    request_id: str | None
    payload_sha256: str
    content_commitment: str | None
    salt: bytes | None
    redacted: bool


class Rows(NamedTuple):
    """What a transaction adds, table by table, in the order in which the triggers let it in.

    ``redactions``: (position, position of the ``ContentRedacted`` event); their contents go.
    """

    events: list[EventRow]
    contents: list[ContentRow]
    nodes: list[TreeNode]
    redactions: list[tuple[int, int]]
    changes: list[RowChange]


def encode_content(content: bytes) -> tuple[str, str]:
    """(encoding, body): UTF-8 as it is; bytes that are not UTF-8, or hold U+0000, as base64.

    Postgres' TEXT cannot hold U+0000.
    """
    if 0 not in content:  # a number: a bytes object looked for in another costs ten times as much
        try:
            return "utf-8", content.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return "base64", base64.b64encode(content).decode("ascii")


def decode_content(position: int, encoding: str | None, body: str) -> bytes:
    """The exact bytes that were appended. Raises ``LedgerMalformed``, naming the position."""
    try:
        if encoding == "utf-8":
            return body.encode("utf-8")
        if encoding == "base64":
            return base64.b64decode(body, validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError, AttributeError):
        pass
    raise LedgerMalformed(f"the content of position {position} cannot be decoded")
