"""How long a server asks its client to wait. Pure: the clock's reading is an argument.

``Retry-After`` holds seconds or an HTTP date (RFC 9110, section 10.2.3); some providers add
``retry-after-ms``, which is finer and is taken first. A value that is neither is as good as none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST_MS: Final = 2**53 - 1
"""A longer wait is recorded as this one; it is past every budget anyway."""

_NUMBER: Final = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?", re.ASCII)
_DATE: Final = re.compile(r"[A-Z][a-z]{2,8},? [ -~]{12,32}", re.ASCII)


def retry_after_ms(milliseconds: Sequence[str], retry_after: Sequence[str], now: float) -> int | None:
    """The wait in milliseconds, rounded up; None where none was asked for in a form that can be read.

    `milliseconds` and `retry_after` are the values of the two headers, `now` is in Unix seconds. A date that
    has passed is a wait of 0. A header given twice is ambiguous and is ignored.
    """
    if len(milliseconds) == 1 and _NUMBER.fullmatch(value := milliseconds[0].strip()):
        return _ceiling(float(value))
    if len(retry_after) != 1:
        return None
    value = retry_after[0].strip()
    if _NUMBER.fullmatch(value):
        return _ceiling(float(value) * 1000)
    until = _unix_time(value)
    return None if until is None else _ceiling((until - now) * 1000)


def _unix_time(value: str) -> float | None:
    if _DATE.fullmatch(value) is None:
        return None
    try:
        moment = parsedate_to_datetime(value)
        # The asctime form names no zone; all three forms are in UTC (RFC 9110, section 5.6.7).
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _ceiling(milliseconds: float) -> int:
    return LONGEST_MS if milliseconds >= LONGEST_MS else max(0, -int(-milliseconds // 1))
