"""What an option's text may be: decimals, ranges, pairs, JSON, moments."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import click

from ledger.events import FOREIGN_TEXT_PATTERN, ID_PATTERN, LATEST
from ledger.times import format_time

_ID = re.compile(ID_PATTERN)
_FOREIGN_TEXT = re.compile(FOREIGN_TEXT_PATTERN)
_RANGE = re.compile(r"([1-9][0-9]{0,14})(?:-([1-9][0-9]{0,14}))?\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_POSITION = re.compile(r"[1-9][0-9]{0,15}\Z")
_NUMBER = re.compile(r"[+-]?[0-9]+\Z")
LARGEST: Final = 2**53 - 1
"""The largest integer that an event may hold: every reader of JSON has it exactly."""


def is_utf8(text: str) -> bool:
    """Can UTF-8 hold it? Arguments that are not UTF-8 reach Python with lone surrogates in them."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


class DecimalNumber(click.ParamType[str]):
    """A decimal number, kept as text: payloads hold no floats. Bounds are inclusive unless ``above``."""

    name = "decimal"

    def __init__(self, *, at_least: int | None = None, above: int | None = None, at_most: int | None = None) -> None:
        self.at_least, self.above, self.at_most = at_least, above, at_most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            self.fail(f"{value!r} is not a decimal number", param, ctx)
        if not number.is_finite() or number.adjusted() > 9 or number.as_tuple().exponent < -12:  # type: ignore[operator]
            self.fail(f"{value!r} is out of range", param, ctx)
        if self.at_least is not None and number < self.at_least:
            self.fail(f"{value} is less than {self.at_least}", param, ctx)
        if self.above is not None and number <= self.above:
            self.fail(f"{value} is not above {self.above}", param, ctx)
        if self.at_most is not None and number > self.at_most:
            self.fail(f"{value} is more than {self.at_most}", param, ctx)
        return format(number, "f")


class LineRange(click.ParamType[str]):
    """``N``, the first N requests, or ``A-B``; given on as ``A-B``."""

    name = "N or A-B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        match = _RANGE.match(str(value))
        if match is None:
            self.fail(f"{value!r} is neither N nor A-B", param, ctx)
        first, last = (match[1], match[2]) if match[2] else ("1", match[1])
        if int(first) > int(last):
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return f"{first}-{last}"


class Identifier(click.ParamType[str]):
    """An id as the ledger takes them: letters, digits and ``. _ : @ -``, at most 128, no leading sign."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not _ID.match(text):
            self.fail(f"{text!r} is no id: letters, digits and . _ : @ - only, 128 at most", param, ctx)
        return text


class RunId(Identifier):
    """An id that a run is given: any but the word that means the newest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        if text == LATEST:
            self.fail(f"{text!r} always means the newest run: no run can have it as its id", param, ctx)
        return text


class PlainText(click.ParamType[str]):
    """Any text that UTF-8 can hold: what the shell gave in another encoding is refused, not guessed at."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not is_utf8(text):
            self.fail("not UTF-8 text", param, ctx)
        return text


class ModelName(click.ParamType[str]):
    """A model's name, as it is recorded: printable ASCII without blanks, at most 200 characters."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _FOREIGN_TEXT.match(str(value)):
            self.fail("a model's name is 1 to 200 printable ASCII characters without blanks", param, ctx)
        return str(value)


class IdPair(click.ParamType[tuple[str, str]]):
    """``name=value``, both ids."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not _ID.match(name) or not _ID.match(text):
            self.fail(f"{value!r} is not name=value with ids on both sides", param, ctx)
        return name, text


class Moment(click.ParamType[str]):
    """A date, meaning its beginning in UTC, or an RFC 3339 time with its offset; given on in UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            moment = datetime.fromisoformat(text.replace("z", "Z"))
        except ValueError:
            self.fail(f"{text!r} is neither a date nor a time such as 2026-11-30T20:42:00Z", param, ctx)
        if _DATE.match(text):
            moment = moment.replace(tzinfo=UTC)
        if moment.tzinfo is None:
            self.fail(f"{text!r} has no offset; add Z for UTC", param, ctx)
        return format_time(moment)


class AsOf(click.ParamType[int | str]):
    """A position of the ledger, or a moment."""

    name = "position or time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if _POSITION.match(str(value)):
            return int(value)
        if _NUMBER.match(str(value)):
            self.fail(f"{value} is no position: they begin at 1, and have 16 digits at most", param, ctx)
        return Moment().convert(value, param, ctx)
