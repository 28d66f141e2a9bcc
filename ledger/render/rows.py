"""Rows of a question's answer as a table, CSV, JSON and JSON lines. Whatever a cell holds was written by anyone.

Null is told apart from everything else: ``NULL`` in a table, an empty cell in CSV (an empty text is ``""``), ``null``
in JSON. Bytes are hex. Numbers keep all their digits; what JSON has no number for is a text: NaN, Infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Final

import orjson

from ledger.render.columns import line, widths
from ledger.render.safe import csv_cell, terminal

RENDERER_VERSION: Final = 1
NULL: Final = "NULL"
_MEASURED_ROWS: Final = 200
_LONGEST_CELL: Final = 120
"""Characters of a cell that a table shows; the other formats cut nothing."""


class SameNameTwice(ValueError):
    """Two columns bear one name, and JSON can show but one of them."""


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Header, rule, and a line a row, as they come; the first rows set the widths."""
    begun = iter(rows)
    measured = list(islice(begun, _MEASURED_ROWS))
    numbers = frozenset(
        index for index in range(len(columns)) if measured and all(_is_number(row[index]) for row in measured)
    )
    header = [terminal(name, _LONGEST_CELL) for name in columns]
    shown = [[_shown(value) for value in row] for row in measured]
    needed = widths([header, *shown])
    yield _line(header, needed, numbers)
    yield _line(["-" * width for width in needed], needed, numbers)
    for cells in chain(shown, ([_shown(value) for value in row] for row in begun)):
        yield _line(cells, needed, numbers)


def _line(cells: Sequence[str], needed: Sequence[int], numbers: frozenset[int]) -> bytes:
    return (line(cells, needed, numbers) + "\n").encode("utf-8")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))


def _shown(value: Any) -> str:
    return NULL if value is None else terminal(_plain(value), _LONGEST_CELL)


def csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """RFC 4180: a header, then the rows, none of whose texts a spreadsheet runs."""
    yield _csv_row(columns)
    for row in rows:
        yield _csv_row(row)


def _csv_row(row: Sequence[Any]) -> bytes:
    return (",".join(map(_csv_cell, row)) + "\r\n").encode("utf-8")


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return csv_cell(value) or '""'
    return _plain(value)


def json_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """An object a line, its members in the order of the columns. Raises ``SameNameTwice``."""
    as_object = _object(columns)
    for row in rows:
        yield as_object(row) + b"\n"


def json_array(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """One array of such objects. Raises ``SameNameTwice``."""
    as_object = _object(columns)
    before = b"[\n"
    for row in rows:
        yield before + as_object(row)
        before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def _object(columns: Sequence[str]) -> Callable[[Sequence[Any]], bytes]:
    twice = next((name for index, name in enumerate(columns) if name in columns[:index]), None)
    if twice is not None:
        raise SameNameTwice(twice)
    names = [_json_text(name) for name in columns]

    def as_object(row: Sequence[Any]) -> bytes:
        members = (f"{name}:{_json_value(value)}" for name, value in zip(names, row, strict=True))
        return ("{" + ",".join(members) + "}").encode("utf-8")

    return as_object


def _json_value(value: Any) -> str:
    if value is None:
        return "null"
    is_text = isinstance(value, str | bytes) or not _is_finite(value)
    return _json_text(_plain(value)) if is_text else _plain(value)


def _json_text(text: str) -> str:
    return orjson.dumps(text).decode("utf-8")


def _plain(value: Any) -> str:
    """The value's text, the same for the same value on both databases."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if not _is_finite(value):
        return "NaN" if _is_nan(value) else "-Infinity" if value < 0 else "Infinity"
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def _is_finite(value: Any) -> bool:
    # Decimals by their own word: as floats they may be too large.
    return value.is_finite() if isinstance(value, Decimal) else not isinstance(value, float) or math.isfinite(value)


def _is_nan(value: float | Decimal) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else math.isnan(value)
