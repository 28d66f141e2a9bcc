"""A comparison as one JSON object, written as it comes: RFC 8785 and a newline, every difference in it.

Members in canonical order: ``differences``, ``only_first``, ``only_second``, ``summary``. Integers of
any size in an answer keep their digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ledger.integrity.canonical import encode, encode_keeping_integers
from ledger.projections.compare import Comparison

RENDERER_VERSION: Final = 1


def render(comparison: Comparison) -> Iterator[bytes]:
    """The object in pieces. Errors as for ``Comparison.differences``."""
    yield b'{"differences":['
    yield from _members(comparison.differences())
    yield b'],"only_first":['
    yield from _members(comparison.only_first())
    yield b'],"only_second":['
    yield from _members(comparison.only_second())
    yield b'],"summary":' + encode(comparison.summary()) + b"}\n"


def _members(values: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    between = b""
    for value in values:
        yield between + encode_keeping_integers(value)
        between = b","
