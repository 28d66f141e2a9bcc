"""Canonical JSON (RFC 8785, JCS): one value, one sequence of bytes, in any language.

Everything that is hashed goes through here. ``encode`` is the whole of RFC 8785. ``encode_payload``
gives the same bytes for the narrower values that a payload may hold, in a fraction of the time: it
runs for every event. Nothing here reads a file, a clock or another module of ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

MAX_DEPTH: Final = 200
"""Nesting that is still encoded. Deeper (or cyclic) values are an error, never a crash."""

MAX_INTEGER: Final = 2**53 - 1
"""Beyond this an integer is not exact as an IEEE 754 double, which is what JSON numbers are."""


class CanonicalError(ValueError):
    """The value has no canonical form. The text names a type or a rule, never the value."""


def encode(value: Any) -> bytes:
    """RFC 8785 bytes of ``None``, bools, ints, floats, strings, lists, tuples and mappings.

    Raises ``CanonicalError`` for NaN and infinities, integers beyond +-(2^53-1), lone surrogates,
    keys that are not strings, any other type, and nesting beyond ``MAX_DEPTH``.
    """
    return _encode(value, _exact_integer)


def encode_keeping_integers(value: Any) -> bytes:
    """As ``encode``, except that an integer of any size keeps all its digits.

    For text that others will read as JSON, where RFC 8785 would have us round or refuse.
    """
    return _encode(value, _any_integer)


def _encode(value: Any, integer: Callable[[int], str]) -> bytes:
    parts: list[str] = []
    _write(value, parts, integer, 0)
    try:
        return "".join(parts).encode("utf-8")
    except UnicodeEncodeError:
        raise CanonicalError("a lone surrogate is not text") from None


def _write(value: Any, parts: list[str], integer: Callable[[int], str], depth: int) -> None:
    if value is None:
        parts.append("null")
    elif value is True:
        parts.append("true")
    elif value is False:
        parts.append("false")
    elif isinstance(value, str):
        parts.append(_string(value))
    elif isinstance(value, int):
        parts.append(integer(value))
    elif isinstance(value, float):
        parts.append(_number(value))
    elif depth >= MAX_DEPTH:
        raise CanonicalError(f"nested deeper than {MAX_DEPTH}")
    elif isinstance(value, (list, tuple)):
        _write_array(value, parts, integer, depth + 1)
    elif isinstance(value, Mapping):
        _write_object(value, parts, integer, depth + 1)
    else:
        raise CanonicalError(f"{type(value).__name__} is not a JSON type")


def _write_array(
    items: list[Any] | tuple[Any, ...], parts: list[str], integer: Callable[[int], str], depth: int
) -> None:
    separator = "["
    for item in items:
        parts.append(separator)
        _write(item, parts, integer, depth)
        separator = ","
    parts.append("]" if items else "[]")


def _write_object(members: Mapping[Any, Any], parts: list[str], integer: Callable[[int], str], depth: int) -> None:
    separator = "{"
    for key in _sorted_keys(members):
        parts.append(separator)
        parts.append(_string(key))
        parts.append(":")
        _write(members[key], parts, integer, depth)
        separator = ","
    parts.append("}" if members else "{}")


def _sorted_keys(members: Mapping[Any, Any]) -> list[str]:
    """Keys in the order of their UTF-16 code units (RFC 8785, section 3.2.3)."""
    if not all(isinstance(key, str) for key in members):
        raise CanonicalError("an object's keys must be strings")
    if all(key.isascii() for key in members):
        return sorted(members)
    try:
        return sorted(members, key=lambda key: key.encode("utf-16-be"))
    except UnicodeEncodeError:
        raise CanonicalError("a lone surrogate is not text") from None


_TO_ESCAPE: Final = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES: Final = {chr(code): f"\\u{code:04x}" for code in range(0x20)} | {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def _string(text: str) -> str:
    """RFC 8785, section 3.2.2.2: only controls, quotation mark and backslash are escaped."""
    return '"' + _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text) + '"'


def _exact_integer(value: int) -> str:
    if not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise CanonicalError("an integer beyond +-(2^53-1) is not exact in JSON")
    return int.__repr__(value)


def _any_integer(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:  # Python refuses to write out thousands of digits (quadratic time)
        raise CanonicalError("an integer of too many digits") from None


def _number(value: float) -> str:
    """ECMAScript's ``Number::toString`` (RFC 8785, section 3.2.2.3).

    Python's ``repr`` finds the same shortest digits; only where they are placed differs.
    """
    if not math.isfinite(value):
        raise CanonicalError("NaN and infinities are not JSON")
    if value == 0:
        return "0"
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return ("-" if value < 0 else "") + _place_point(digits.rstrip("0"), point)


def _place_point(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    exponent = f"e{point - 1:+d}"
    return digits + exponent if count == 1 else f"{digits[0]}.{digits[1:]}{exponent}"


# --- payloads ------------------------------------------------------------------------------

_SCALARS: Final = frozenset({str, int, bool, type(None)})
_OPTIONS: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER  # refuses integers beyond +-(2^53-1)
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)


def encode_payload(payload: Mapping[str, Any]) -> bytes:
    """The canonical bytes of a payload (docs/ledger-format.md, section 1), fast.

    A payload holds null, bools, integers within +-(2^53-1), strings without U+0000, and lists and
    objects of these with ASCII keys; within these limits sorting keys by code point is sorting them
    by UTF-16 code unit. Raises ``CanonicalError`` for anything else.
    """
    members = payload if type(payload) is dict else dict(payload)
    encoded = encode_scalars(members)
    if not _SCALARS.issuperset(map(type, members.values())):
        _check_types(members.values(), 1)
    return encoded


def encode_scalars(members: dict[str, Any]) -> bytes:
    """As ``encode_payload``, where each value is known to be null, a bool, an int, a string or empty.

    That is asked of nothing here: a float, say, would be written as one.
    """
    try:
        encoded = orjson.dumps(members, option=_OPTIONS)
    except TypeError as error:
        # The library's words name a type or a rule, not the value.
        raise CanonicalError(str(error)) from None
    if not encoded.isascii():
        _check_keys(members)
    # The escape may also be an escaped backslash before "u0000", so a hit is looked at again.
    if _BACKSLASH in encoded and b"\\u0000" in encoded.replace(b"\\\\", b""):
        raise CanonicalError("U+0000 is not allowed in a payload")
    return encoded


# A number: a bytes object looked for in another costs ten times as much.
_BACKSLASH: Final = ord("\\")


def _check_keys(value: Any) -> None:
    """Every key at any depth is ASCII. The encoder has refused cycles."""
    if isinstance(value, dict):
        if not "".join(value).isascii():
            raise CanonicalError("a payload's keys must be ASCII")
        value = value.values()
    for item in value:
        if isinstance(item, (dict, list, tuple)):
            _check_keys(item)


def _check_types(items: Iterable[Any], depth: int) -> None:
    for item in items:
        kind = type(item)
        if kind in _SCALARS:
            continue
        if depth >= MAX_DEPTH:
            raise CanonicalError(f"nested deeper than {MAX_DEPTH}")
        if kind is dict:
            _check_types(item.values(), depth + 1)
        elif kind is list or kind is tuple:
            _check_types(item, depth + 1)
        else:
            raise CanonicalError(f"{kind.__name__} is not allowed in a payload")
