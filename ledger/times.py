"""Times as the ledger writes them. Apart from the tables, so that reading a ledger does without an ORM."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """UTC, always six decimals and ``Z``. A naive time is refused with ``ValueError``."""
    if moment.tzinfo is None:
        raise ValueError("a time without an offset is not a time")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
