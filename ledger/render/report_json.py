"""A report as JSON: RFC 8785 and a newline. These are the bytes that are issued and hashed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ledger.integrity.canonical import encode

RENDERER_VERSION: Final = 1


def render(report: Mapping[str, Any]) -> bytes:
    """The report's bytes. Raises ``CanonicalError`` for what is no report: a float, a huge integer."""
    return encode(report) + b"\n"
