"""Results as JSON lines: each RFC 8785 and a newline, integers of any size with all their digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ledger.integrity.canonical import encode_keeping_integers

RENDERER_VERSION: Final = 1


def render(results: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """One line a result, as they come."""
    for result in results:
        yield encode_keeping_integers(result) + b"\n"
