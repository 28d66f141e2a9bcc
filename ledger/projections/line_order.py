"""Positions of requests in the order of their lines in the file."""

from __future__ import annotations

from array import array
from itertools import islice
from operator import le


def by_line(lines: array[int], positions: array[int]) -> array[int]:
    """The positions in order of the lines beside them: as they are, where an intake recorded them."""
    if all(map(le, lines, islice(lines, 1, None))):
        return positions
    return array("q", (positions[index] for index in sorted(range(len(lines)), key=lines.__getitem__)))
