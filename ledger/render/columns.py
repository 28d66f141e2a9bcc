"""Columns of plain text for a terminal, whatever the width of its characters."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.render.cell_widths import cells as cells_of


def width(text: str) -> int:
    """Cells that a line of safe text takes: wide characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(map(cells_of, text))


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
