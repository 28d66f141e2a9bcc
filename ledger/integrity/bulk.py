"""Many rows at once against their own digests: what ``rows.py`` does one by one, at a tenth of the cost. Pure.

Here nothing is named and nothing explained: a page of rows is as it should be, or it is ``Off``, and
then ``rows.py`` tells what is wrong with which row, if anything is. So a check here may be stricter
than the one there (it refuses all that is unusual), never more lenient. Columns are looked at as
columns, which Python does many times faster than row by row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import compress
from operator import le
from typing import Any, Final, NamedTuple

import orjson

from ledger.events import EVENT_TYPES, Event
from ledger.integrity.canonical import CanonicalError, encode_payload
from ledger.integrity.merkle import FANOUT_BITS, level_above
from ledger.shapes import conform
from ledger.store.envelope import FORMAT, SALT_BYTES
from ledger.store.errors import LedgerMalformed
from ledger.store.records import Record, decode_content, encode_content
from ledger.upcast import upcast

_INTEGER: Final = frozenset({int})
_INTEGER_OR_NULL: Final = frozenset({int, type(None)})
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII).fullmatch
_LEAF: Final = Record._fields.index("leaf_hash")
_SCHEMAS: Final = {name: cls.SCHEMA for name, cls in EVENT_TYPES.items()}

_NO_REQUEST: Final = 'null,"request_version":null'
_DIGEST: Final = re.compile(r"[0-9a-f]{64}").fullmatch


class Off(Exception):
    """Something is not as it should be, or merely unusual: the rows are to be looked at one by one."""


class Page(NamedTuple):
    """Rows that are as they should be, in columns; ``facts``: those of an event, its payload the last."""

    facts: tuple[Sequence[Any], ...]
    leaves: Sequence[bytes]

    @property
    def types(self) -> Sequence[str]:
        """What happened, of each row."""
        return self.facts[2]

    @property
    def run_ids(self) -> Sequence[str]:
        """The run of each row."""
        return self.facts[4]

    @property
    def run_versions(self) -> Sequence[int]:
        """The version within its run, of each row."""
        return self.facts[5]

    @property
    def times(self) -> Sequence[str]:
        """The time of each row."""
        return self.facts[8]

    def events(self) -> list[Event]:
        """The rows as folds see them, payloads at their present schema."""
        return list(map(Event._make, zip(*self.facts, strict=True)))


def check_page(rows: Sequence[tuple[Any, ...]], first: int, origin: str) -> Page:
    """Hash again every digest of rows ``first``, ``first + 1`` ... of the ledger ``origin``, and compare.

    Rows have the columns of ``Record``. Raises ``Off`` unless all are in place and match.
    """
    columns = list(zip(*rows, strict=True))
    record = Record._make(columns)
    try:
        _check_integers(record, first)
        _check_times(record.recorded_at)
        _check_leaves(record, origin)
        payloads = _checked_payloads(record)
        _check_contents(record)
    except (CanonicalError, LedgerMalformed, LookupError, ValueError, TypeError, AttributeError):
        raise Off from None
    return Page((*columns[:9], payloads), columns[_LEAF])


def block_roots(leaves: Sequence[bytes]) -> list[bytes]:
    """The roots of each 256 leaves; there must be a whole number of such blocks."""
    row = list(leaves)
    for _ in range(FANOUT_BITS):
        row = level_above(row)
    return row


# --- columns -------------------------------------------------------------------------------


def _check_integers(record: Any, first: int) -> None:
    """Positions are dense, and integers are integers: of text, what follows could not be done."""
    if record.position != tuple(range(first, first + len(record.position))):
        raise Off
    whole = (record.position, record.schema, record.run_version)
    or_null = (record.request_version, record.redacted_by)
    if not all(_INTEGER.issuperset(map(type, column)) for column in whole):
        raise Off
    if not all(_INTEGER_OR_NULL.issuperset(map(type, column)) for column in or_null):
        raise Off


def _check_times(times: Any) -> None:
    if not all(map(_TIME, set(times))) or not all(map(le, times, times[1:])):
        raise Off


def _check_leaves(record: Any, origin: str) -> None:
    # The template gives canonical JSON so long as no string needs escapes; that no value of another type
    # looks alike once written out is seen to by the types of the columns. Types and times are known texts,
    # and digests are compared with computed ones.
    ids = origin + "".join({*record.run_id, *record.request_id} - {None}) + "".join(record.event_id)
    if not (ids.isascii() and ids.isprintable()) or '"' in ids or "\\" in ids:
        raise Off
    computed = [sha256(b"\x00" + envelope.encode()).digest() for envelope in _envelopes(record, origin)]
    if tuple(computed) != record.leaf_hash:
        raise Off


def _envelopes(record: Any, origin: str) -> list[str]:
    """The canonical JSON of each row's envelope (docs/ledger-format.md, section 1), by a template."""
    ledger = f'","ledger":"{origin}","payload_sha256":"'
    end = f'","v":{FORMAT}}}'
    commitments = ["null" if text is None else f'"{text}"' for text in record.content_commitment]
    if [text is None for text in record.request_id] != [number is None for number in record.request_version]:
        raise Off
    requests = [
        _NO_REQUEST if request is None else f'"{request}","request_version":{version}'
        for request, version in zip(record.request_id, record.request_version, strict=True)
    ]
    return [
        f'{{"content_commitment":{committed},"event_id":"{event_id}{ledger}{digest}",'
        f'"position":{position},"recorded_at":"{time}","request_id":{request},"run_id":"{run_id}",'
        f'"run_version":{run_version},"schema":{schema},"type":"{type_}{end}'
        for position, event_id, type_, schema, run_id, run_version, time, digest, committed, request in zip(
            *(record.position, record.event_id, record.type, record.schema, record.run_id, record.run_version),
            *(record.recorded_at, record.payload_sha256, commitments, requests),
            strict=True,
        )
    ]


def _checked_payloads(record: Any) -> list[dict[str, Any]]:
    """The payloads, each canonical, of its digest and of its type's form."""
    raws = [text.encode() for text in record.payload]
    if [sha256(raw).hexdigest() for raw in raws] != list(record.payload_sha256):
        raise Off
    payloads = list(map(orjson.loads, raws))
    if list(map(_SCHEMAS.get, record.type)) != list(record.schema):
        payloads = [*map(_upcast, record.type, record.schema, payloads, raws)]
        raws = [*map(encode_payload, payloads)]
    for type_ in set(record.type):
        of_type = list(map(type_.__eq__, record.type))
        if not conform(type_, list(compress(payloads, of_type)), list(compress(raws, of_type))):
            raise Off
    return payloads


def _upcast(type_: str, schema: int, payload: dict[str, Any], raw: bytes) -> dict[str, Any]:
    if encode_payload(payload) != raw:
        raise Off
    return dict(upcast(type_, schema, payload))


def _check_contents(record: Any) -> None:
    if record.encoding.count("utf-8") == len(record.encoding) == record.redacted_by.count(None):
        contents = [body.encode() for body in record.body]
        _check_commitments(record.content_commitment, record.salt, contents)
        if True in [b"\0" in content for content in contents]:
            raise Off
        return
    for position, committed, salt, encoding, body, erased in zip(
        *(record.position, record.content_commitment, record.salt, record.encoding, record.body, record.redacted_by),
        strict=True,
    ):
        if encoding is None:
            _check_absence(committed, salt, body, erased)
            continue
        content = decode_content(position, encoding, body)
        if encode_content(content) != (encoding, body) or erased is not None:
            raise Off
        _check_commitments([committed], [salt], [content])


def _check_commitments(commitments: Sequence[Any], salts: Sequence[Any], contents: Sequence[bytes]) -> None:
    computed = [sha256(b"\x02" + salt + content).hexdigest() for salt, content in zip(salts, contents, strict=True)]
    if computed != list(commitments) or set(map(len, salts)) != {SALT_BYTES}:
        raise Off


def _check_absence(committed: Any, salt: Any, body: Any, erased: Any) -> None:
    """No content: because there never was any, or because it was erased, and the row of its erasure says so."""
    if salt is not None or body is not None or (committed is None) != (erased is None):
        raise Off
    if committed is not None and not _DIGEST(committed):
        raise Off
