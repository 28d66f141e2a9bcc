"""Columns of plain text for a terminal, whatever the width of its characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def width(text: str) -> int:
    """Cells that a line of safe text takes: wide characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("F", "W") else 1


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width that each column needs."""
    return [max(map(width, column)) for column in zip(*rows, strict=True)]


def line(cells: Sequence[str], column_widths: Sequence[int], right: frozenset[int] = frozenset()) -> str:
    """One line: cells padded, two blanks between, columns in ``right`` aligned right."""
    padded = []
    for index, (cell, wanted) in enumerate(zip(cells, column_widths, strict=True)):
        gap = " " * (wanted - width(cell))
        padded.append(gap + cell if index in right else cell + gap)
    return "  ".join(padded).rstrip()
