"""Shares, intervals and tests in words, from the decimal strings that reports hold. No locale has a say."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

_TENTH: Final = Decimal("0.1")


def percent(value: str | None) -> str:
    """A rate as a percentage with one digit after the point."""
    return "-" if value is None else f"{_hundredfold(value)} %"


def _hundredfold(value: str) -> str:
    return format((Decimal(value) * 100).quantize(_TENTH, rounding=ROUND_HALF_EVEN), "f")


def share(of: Mapping[str, Any]) -> str:
    """``5 of 8 (62.5 %, 95 % interval 30.6 to 86.3)``."""
    if of["rate"] is None:
        return f"{of['count']} of {of['of']}"
    interval = f"95 % interval {_hundredfold(of['low'])} to {_hundredfold(of['high'])}"
    return f"{of['count']} of {of['of']} ({percent(of['rate'])}, {interval})"


def interval(of: Mapping[str, Any]) -> str:
    """``30.6 to 86.3 %``."""
    return "-" if of["low"] is None else f"{_hundredfold(of['low'])} to {_hundredfold(of['high'])} %"


def difference(of: Mapping[str, Any]) -> str:
    """``+12.5 points (-3.0 to +28.1)``."""
    if of["value"] is None:
        return "-"
    value, low, high = (_signed(of[name]) for name in ("value", "low", "high"))
    return f"{value} points ({low} to {high})"


def _signed(value: str) -> str:
    text = _hundredfold(value)
    if text.strip("-0.") == "":
        return "0.0"
    return text if text.startswith("-") else f"+{text}"


def p_value(of: Mapping[str, Any]) -> str:
    """A test's p-value as a reader takes it: four digits, and no more zeros than that; of no pair there is none."""
    if of["p_value"] is None:
        return "-"
    number = Decimal(of["p_value"])
    if number < Decimal("0.0001"):
        return "< 0.0001"
    return format(number.quantize(Decimal("0.0001"), rounding=ROUND_HALF_EVEN), "f")
