"""The envelope: what of an event is hashed into the tree (docs/ledger-format.md, section 1).

Every string in an envelope is ASCII without quotation marks, backslashes or controls, so a
template gives the canonical JSON (RFC 8785) of it: keys sorted, nothing to escape. A property test
holds it against the real encoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from ledger.events import EVENT_TYPES, ID_PATTERN, LEDGER_RUN_ID, NewEvent
from ledger.store.errors import InvalidEvent

FORMAT: Final = 1
"""Version of the ledger format; ``v`` in each envelope."""

SALT_BYTES: Final = 32
ORIGIN_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}\Z"

_matches_id = re.compile(ID_PATTERN).match
_is_uuid7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z").match
_is_origin = re.compile(ORIGIN_PATTERN).match


def check_origin(origin: str) -> str:
    """Give the origin back. Raises ``InvalidEvent`` unless it may name a ledger."""
    if _is_origin(origin) is None:
        raise InvalidEvent("an origin is 1 to 255 of A-Z a-z 0-9 . _ / - and begins with a letter or a digit")
    return origin


def check(event: NewEvent) -> None:
    """Raise ``InvalidEvent`` unless the event may enter a ledger. Payloads are the encoder's to check."""
    event_id, type_, schema, run_id, request_id, _, _, content, salt = event
    check_members(event_id, type_, schema, run_id, request_id)
    if salt is not None and (content is None or len(salt) != SALT_BYTES):
        raise InvalidEvent("a salt is 32 bytes, and there is none without content")


def are_fit(
    event_ids: Sequence[str],
    kinds: Iterable[tuple[str, int]],
    run_ids: Sequence[str],
    request_ids: Sequence[str | None],
    salts: Sequence[bytes | None],
) -> bool:
    """May events with these members enter a ledger, as far as can be told at a glance?

    ``kinds``: types with their schemas, each once. Where the answer is no, ``check`` each: it says what is wrong,
    and a salt that is given is for it alone to judge.
    """
    return (
        _are_uuid7(event_ids)
        and all(type_ in EVENT_TYPES and 1 <= schema <= EVENT_TYPES[type_].SCHEMA for type_, schema in kinds)
        and all(map(_is_run_id, set(run_ids)))
        and all(map(_is_request_id, request_ids))
        and salts.count(None) == len(salts)
    )


_UUID_LENGTH: Final = 36
_LIKE_ZERO: Final = str.maketrans("123456789abcdef", "0" * 15)


def _are_uuid7(texts: Sequence[str]) -> bool:
    """Are they all? Asked of all in one text, a line each: one by one, it is a regular expression's work."""
    joined = "\n".join(texts)
    each, count = _UUID_LENGTH + 1, len(texts)
    return (
        joined.translate(_LIKE_ZERO) == _SHAPE * (count - 1) + _SHAPE[:-1]
        and joined[14::each].count("7") == count
        and not joined[19::each].strip("89ab")
    )


_SHAPE: Final = "00000000-0000-0000-0000-000000000000\n"


def check_members(event_id: str, type_: str, schema: int, run_id: str, request_id: str | None) -> None:
    """Raise ``InvalidEvent`` unless these may stand in an envelope."""
    if _is_uuid7(event_id) is None:
        raise InvalidEvent("an event id is a UUIDv7, lower case with hyphens")
    known = EVENT_TYPES.get(type_)
    if known is None or not 1 <= schema <= known.SCHEMA:
        raise InvalidEvent(f"no event type {type_!a} with schema {schema}")
    if not _is_run_id(run_id):
        raise InvalidEvent(f"{run_id!a} is no run id")
    if not _is_request_id(request_id):
        raise InvalidEvent(f"{request_id!a} is no request id")


@lru_cache(maxsize=1024)
def _is_id(text: str) -> bool:
    """The same few ids come again and again."""
    return _matches_id(text) is not None


def _is_run_id(text: str) -> bool:
    return _is_id(text) or text == LEDGER_RUN_ID


@lru_cache(maxsize=1024)
def _is_request_id(text: str | None) -> bool:
    return text is None or _matches_id(text) is not None


_COMMITTED: Final = sha256(b"\x02")
_LEAF: Final = sha256(b"\x00")


def commitment(salt: bytes, content: bytes) -> str:
    """Hex of SHA-256(0x02 || salt || content)."""
    digest = _COMMITTED.copy()
    digest.update(salt)
    digest.update(content)
    return digest.hexdigest()


class Envelopes:
    """Canonical envelopes for the events of one ledger. The leaf hash is SHA-256(0x00 || envelope)."""

    __slots__ = ("_ledger",)

    def __init__(self, origin: str) -> None:
        self._ledger = f'","ledger":"{check_origin(origin)}","payload_sha256":"'

    def encode(
        self,
        position: int,
        event_id: str,
        type_: str,
        schema: int,
        run_id: str,
        run_version: int,
        request_id: str | None,
        request_version: int | None,
        recorded_at: str,
        payload_sha256: str,
        content_commitment: str | None,
    ) -> bytes:
        """Canonical JSON of the 13 members. The strings must have passed ``check``."""
        facts = position, event_id, type_, schema, run_id, run_version, request_id, request_version, recorded_at
        return next(self.encoded([(*facts, payload_sha256, content_commitment)]))

    def encoded(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
        """As ``encode`` for many events, each given as a tuple of its arguments."""
        ledger = self._ledger
        for row in rows:
            (
                position,
                event_id,
                type_,
                schema,
                run_id,
                run_version,
                request_id,
                request_version,
                time,
                payload,
                content,
            ) = row
            committed = "null" if content is None else f'"{content}"'
            request = "null" if request_id is None else f'"{request_id}"'
            version = "null" if request_version is None else request_version
            yield (
                f'{{"content_commitment":{committed},"event_id":"{event_id}{ledger}{payload}",'
                f'"position":{position},"recorded_at":"{time}","request_id":{request},'
                f'"request_version":{version},"run_id":"{run_id}","run_version":{run_version},"schema":{schema},'
                f'"type":"{type_}","v":{FORMAT}}}'
            ).encode("ascii")

    def leaf_hashes(self, rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
        """The leaf hashes of many events, given as for ``encoded``."""
        hashes, begin = [], _LEAF.copy
        for envelope in self.encoded(rows):
            leaf = begin()
            leaf.update(envelope)
            hashes.append(leaf.digest())
        return hashes
