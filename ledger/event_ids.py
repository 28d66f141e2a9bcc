"""Event ids: UUIDv7 (RFC 9562), made by the writer before its first attempt to append."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

# Of the three groups after the time, the first begins with the version's four bits, the second with the variant's two.
_WITH_VERSION: Final = bytes(0x70 | byte & 0x0F for byte in range(256))
_WITH_VARIANT: Final = bytes(0x80 | byte & 0x3F for byte in range(256))
_DRAWN: Final = 256

_unused: list[str] = []
_stamp: tuple[float, float, str] = (0.0, 0.0, "")
"""From when until when (Unix seconds) ids begin with what."""


def new_event_id() -> str:
    """A UUIDv7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds, 74 random bits."""
    global _stamp  # noqa: PLW0603 - made for many ids at once: one by one, they are a tenth of making an event
    now = time.time()
    since, until, stamp = _stamp
    if not since <= now < until:
        moment = int(now * 1000)
        stamp = f"{moment >> 16:08x}-{moment & 0xFFFF:04x}-"
        _stamp = moment / 1000, (moment + 1) / 1000, stamp
    try:
        return stamp + _unused.pop()
    except IndexError:
        *fresh, ending = _endings()
        _unused.extend(fresh)
        return stamp + ending


def _endings() -> Iterator[str]:
    """What stands after the time in many ids, fresh from the operating system."""
    first = bytearray(os.urandom(2 * _DRAWN))
    second = bytearray(os.urandom(2 * _DRAWN))
    first[0::2] = first[0::2].translate(_WITH_VERSION)
    second[0::2] = second[0::2].translate(_WITH_VARIANT)
    third = os.urandom(6 * _DRAWN)
    groups = (first.hex("-", 2), second.hex("-", 2), third.hex("-", 6))
    return map("-".join, zip(*[group.split("-") for group in groups], strict=True))


def _forget_random() -> None:
    _unused.clear()


os.register_at_fork(after_in_child=_forget_random)  # or parent and child would make the same ids
