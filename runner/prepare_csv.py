"""CSV as ``prepare`` reads it (RFC 4180): a header, UTF-8, quotes where they belong."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

from runner.not_utf8 import way_out
from runner.prepare_sources import Fault, Found, PrepareError, Record, counted
from runner.requests import MAX_LINE_BYTES

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
MAX_ROW_CHARS: Final = MAX_LINE_BYTES
"""A request is one line of at most so many bytes, and no row that is longer could become one."""


def read_csv(stream: BinaryIO, file: str, on_columns: Callable[[Sequence[str]], None] | None = None) -> Iterator[Found]:
    """The rows under a header. An empty cell is a member that is not there; a cell is text, whatever it looks like.

    ``on_columns`` gets the header before any row is read. A row with too many or too few cells is a ``Fault``.
    Quotes that do not close make what follows unreadable: ``PrepareError``, as for text that is not UTF-8.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    lines = _Lines(text, file)
    reader = csv.reader(lines, strict=True)
    try:
        with _room_for_long_cells():
            header = next(reader, None)
            _check_header(header, file)
            assert header is not None
            if on_columns is not None:
                on_columns(header)
            lines.row_begins()
            for cells in reader:
                place = f"line {lines.row_at}"
                lines.row_begins()
                if cells:
                    yield _row(header, cells, file, place)
    except csv.Error as error:
        raise PrepareError(Fault(f"not CSV: {error}", file, f"line {lines.row_at}")) from None
    except UnicodeDecodeError as error:
        line = lines.number + _line_ends(error.object[: error.start]) + 1
        fault = f"not UTF-8; {way_out(b'' if lines.number else error.object)}"
        raise PrepareError(Fault(fault, file, f"line {line}")) from None
    finally:
        text.detach()  # the stream is the caller's to close


def _line_ends(undecoded: bytes) -> int:
    """How many lines end in what was to be decoded at once: none of them was given out yet."""
    return len(_LINE_END.findall(undecoded))


class _Lines:
    """The lines of a file, each row's together limited; where the row that is being read began."""

    def __init__(self, text: io.TextIOWrapper, file: str) -> None:
        self._text, self._file = text, file
        self.number, self.row_at, self._chars = 0, 1, 0

    def row_begins(self) -> None:
        self.row_at, self._chars = self.number + 1, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_ROW_CHARS + 1)
        if not line:
            raise StopIteration
        self._chars += len(line)
        if self._chars > MAX_ROW_CHARS:
            message = f"the row is longer than {MAX_ROW_CHARS} characters; is a quote left open?"
            raise PrepareError(Fault(message, self._file, f"line {self.row_at}"))
        self.number += 1
        return line


def _check_header(header: list[str] | None, file: str) -> None:
    if not header:
        raise PrepareError(Fault("the file has no header", file))
    if "" in header or len(set(header)) < len(header):
        raise PrepareError(Fault("the header names a column twice, or one without a name", file, "line 1"))


def _row(header: list[str], cells: list[str], file: str, place: str) -> Found:
    if len(cells) != len(header):
        return Fault(f"{counted(len(cells), 'cell')} under {counted(len(header), 'column')}", file, place)
    for name, cell in zip(header, cells, strict=True):
        if "\x00" in cell:
            return Fault("U+0000 in the text", file, place, name)
    return Record("csv", place, {name: cell for name, cell in zip(header, cells, strict=True) if cell}, {})


@contextmanager
def _room_for_long_cells() -> Iterator[None]:
    """Cells as long as a row may be: the module's own limit, one for the whole process, is 128 KiB."""
    before = csv.field_size_limit(MAX_ROW_CHARS)
    try:
        yield
    finally:
        csv.field_size_limit(before)
