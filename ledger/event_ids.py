"""Event ids: UUIDv7 (RFC 9562), made by the writer before its first attempt to append."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

# Of the ten bytes after the time, the first begins with the version's four bits, the third with the variant's two.
_ENDING_BYTES: Final = 10
_WITH_VERSION: Final = bytes(0x70 | byte & 0x0F for byte in range(256))
_WITH_VARIANT: Final = bytes(0x80 | byte & 0x3F for byte in range(256))
_DRAWN: Final = 256

_unused: Iterator[str] = iter(())
_stamp: tuple[int, str] = (-1, "")


def new_event_id() -> str:
    """A UUIDv7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds, 74 random bits."""
    global _stamp, _unused  # noqa: PLW0603 - made for many ids at once: one by one, they are a tenth of making an event
    now = time.time_ns() // 1_000_000
    made_at, stamp = _stamp
    if now != made_at:
        stamp = f"{now >> 16:08x}-{now & 0xFFFF:04x}-"
        _stamp = now, stamp
    ending = next(_unused, None)
    if ending is None:
        fresh = _endings()
        ending = next(fresh)
        _unused = fresh
    return stamp + ending


def _endings() -> Iterator[str]:
    """What stands after the time in many ids, fresh from the operating system."""
    drawn = bytearray(os.urandom(_ENDING_BYTES * _DRAWN))
    drawn[0::_ENDING_BYTES] = drawn[0::_ENDING_BYTES].translate(_WITH_VERSION)
    drawn[2::_ENDING_BYTES] = drawn[2::_ENDING_BYTES].translate(_WITH_VARIANT)
    digits = drawn.hex()
    starts = range(0, len(digits), 2 * _ENDING_BYTES)
    return iter([f"{digits[at : at + 4]}-{digits[at + 4 : at + 8]}-{digits[at + 8 : at + 20]}" for at in starts])


def _forget_random() -> None:
    global _unused  # noqa: PLW0603
    _unused = iter(())


os.register_at_fork(after_in_child=_forget_random)  # or parent and child would make the same ids
