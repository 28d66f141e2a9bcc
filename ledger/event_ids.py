"""Event ids: UUIDv7 (RFC 9562), made by the writer before its first attempt to append."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

_VARIANT: Final = "89ab"
_RANDOM_DIGITS: Final = 20
_unused: Iterator[str] = iter(())


def new_event_id() -> str:
    """A UUIDv7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds, 74 random bits."""
    now = time.time_ns() // 1_000_000
    rand = _random()
    # The digit after the version stands beside 12 random bits; the variant's has two of its own.
    return f"{now >> 16:08x}-{now & 0xFFFF:04x}-7{rand[:3]}-{_VARIANT[int(rand[3], 16) & 3]}{rand[4:7]}-{rand[7:19]}"


def _random() -> str:
    """Twenty hex digits, fresh from the operating system, which is asked for many at a time."""
    global _unused  # noqa: PLW0603 - a system call for each id would be half of what it costs
    drawn = next(_unused, None)
    if drawn is None:
        pool = os.urandom(_RANDOM_DIGITS // 2 * 256).hex()
        _unused = iter([pool[at : at + _RANDOM_DIGITS] for at in range(0, len(pool), _RANDOM_DIGITS)])
        drawn = next(_unused)
    return drawn


def _forget_random() -> None:
    global _unused  # noqa: PLW0603
    _unused = iter(())


os.register_at_fork(after_in_child=_forget_random)  # or parent and child would make the same ids
