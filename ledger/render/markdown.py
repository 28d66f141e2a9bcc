"""The Markdown that every renderer reads alike, and hostile text in it made safe to show.

What is not a word of ours stands in a code span: there no renderer sees a link, a mention, a heading, an
entity or a reference to an issue, whatever the text. A backtick or a pipe could still end the span or the cell
of a table around it, and renderers disagree on how to escape them there, so they become visible escapes; so do
the three that HTML is made of, which some tools look for before they read any Markdown.
Tables are those of GitHub Flavored Markdown. Issued reports rest on this: what it gives keeps its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ledger.render.safe import terminal

LONGEST: Final = 300
"""Characters of a text that are shown; what is left out is counted in a mark."""

_ENDS: Final = re.compile("[`|<>&]")


def code(value: object, limit: int = LONGEST) -> str:
    """Whatever it is, as a code span on one line that nothing in it can end; what is unknown is said to be."""
    if value is None:
        return "unknown"
    text = _ENDS.sub(lambda match: f"\\x{ord(match.group()):02x}", terminal(str(value), limit))
    return f"`{text}`" if text.strip(" ") else "(empty)"


def heading(level: int, text: str) -> str:
    """A heading; ``text`` is words of ours and code spans."""
    return f"{'#' * level} {text}"


def items(of: Iterable[str]) -> Iterator[str]:
    """A list, a line an item."""
    return (f"- {item}" for item in of)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1) -> Iterator[str]:
    """A table, a line a row: the first ``words`` columns words, the others numbers. Cells: made safe before."""
    yield _row(heads)
    yield _row(["---"] * words + ["---:"] * (len(heads) - words))
    yield from map(_row, rows)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
