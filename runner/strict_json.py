"""JSON, read strictly: RFC 8259 with every liberty that it leaves to a parser taken away.

Python's own parser lets through what is not JSON (NaN), what means two things (a key twice), what
no database or encoder can hold (half of a surrogate pair, U+0000, 1e999) and what ends the process
(nesting without end). Here each of these is one typed error, and nothing else is ever raised.
Bytes and text in, values out; time is linear in the text.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final, Literal

MAX_DEPTH: Final = 64
"""Arrays and objects that may stand inside one another."""

MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1

ErrorCode = Literal["invalid_json", "too_deep", "invalid_unicode"]
Reason = Literal["syntax", "trailing", "duplicate_key", "number", "depth", "text"]

_INTEGER_CHARS: Final = len(str(MIN_INTEGER))
# A string runs to its closing quote or, left open, to the end. Possessive: no way back, linear time.
_BRACKETS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_UNSAFE_ESCAPE: Final = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class StrictJsonError(ValueError):
    """The text is not one JSON value that we accept.

    ``code`` is the kind of error that callers report, ``reason`` what exactly it was: ``trailing``
    is one whole value with something other than white space after it. ``message`` tells a person,
    with line and column where they are known, and never holds a piece of the text; ``key`` is the
    key that stands twice.
    """

    def __init__(self, code: ErrorCode, reason: Reason, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.reason: Reason = reason
        self.message = message
        self.key = key


def loads(data: bytes | str, *, any_text: bool = False) -> Any:
    """The one value in ``data``, UTF-8 where it is bytes, with JSON white space round it at most.

    Refused: a key twice in one object, NaN and infinities and floats too large for a double,
    integers beyond 64 bits, nesting beyond ``MAX_DEPTH``, U+0000 and lone surrogates, raw or
    escaped. ``any_text`` allows the last two inside strings: for an outer document, whose inner
    one is judged by itself. Raises ``StrictJsonError`` and nothing else.
    """
    text = data if isinstance(data, str) else _decode(data)
    if not any_text:
        check_text(text)
    _check_depth(text)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _syntax_error(error) from None
    if not any_text and _UNSAFE_ESCAPE.search(text):
        _check_strings(value)
    return value


def check_text(text: str) -> None:
    """Raise ``StrictJsonError`` (``invalid_unicode``) for U+0000 or a lone surrogate in ``text``."""
    if "\x00" in text:
        raise StrictJsonError("invalid_unicode", "text", f"U+0000 in the text{_place(text, text.index(chr(0)))}")
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        where = _place(text, error.start)
        raise StrictJsonError("invalid_unicode", "text", f"half of a surrogate pair in the text{where}") from None


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError("invalid_unicode", "text", f"not UTF-8 at byte {error.start + 1}") from None


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _BRACKETS.finditer(text):
        first = text[found.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                where = _place(text, found.start())
                raise StrictJsonError("too_deep", "depth", f"nested deeper than {MAX_DEPTH}{where}")
        elif first != '"':
            depth -= 1


def _check_strings(value: Any) -> None:
    """Refuse what an escape can smuggle in. An escape may be harmless (a pair, or escaped itself)."""
    if isinstance(value, str):
        if "\x00" in value:
            raise StrictJsonError("invalid_unicode", "text", "a string holds U+0000")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise StrictJsonError("invalid_unicode", "text", "a string holds half of a surrogate pair") from None
    elif isinstance(value, list):
        for item in value:
            _check_strings(item)
    elif isinstance(value, dict):
        for key, member in value.items():
            _check_strings(key)
            _check_strings(member)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    raise StrictJsonError("invalid_json", "duplicate_key", "a key stands twice in one object", key=key)


def _integer(digits: str) -> int:
    # The length is looked at first: turning thousands of digits into a number takes quadratic time.
    if len(digits) <= _INTEGER_CHARS:
        value = int(digits)
        if MIN_INTEGER <= value <= MAX_INTEGER:
            return value
    raise StrictJsonError("invalid_json", "number", "an integer beyond 64 bits")


def _float(digits: str) -> float:
    value = float(digits)
    if isfinite(value):
        return value
    raise StrictJsonError("invalid_json", "number", "a number too large for a double")


def _no_constant(name: str) -> float:
    raise StrictJsonError("invalid_json", "number", f"{name} is not JSON")


def _syntax_error(error: json.JSONDecodeError) -> StrictJsonError:
    where = f"(line {error.lineno}, column {error.colno})"
    if error.msg.startswith("Extra data"):
        return StrictJsonError("invalid_json", "trailing", f"something follows the JSON value {where}")
    return StrictJsonError("invalid_json", "syntax", f"{error.msg} {where}")


def _place(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    return f" (line {line}, column {index - text.rfind(chr(10), 0, index)})"


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_no_constant,
)
