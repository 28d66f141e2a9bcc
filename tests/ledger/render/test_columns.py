"""Columns of text are as wide on every Python, whichever characters that one has heard of."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest

from ledger.render.cell_widths import cells
from ledger.render.columns import line, width, widths

EVERY_CHARACTER = [chr(code) for code in range(0x110000)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc", 3),
        ("日本", 4),
        ("é", 1),
        ("e\u0301", 1),
        ("a\u20dd", 1),
        ("\uff21", 2),
        ("\U0001fae8", 2),
        ("\u0378", 1),
    ],
)
def test_a_text_takes_the_cells_that_it_takes_on_a_terminal(text: str, expected: int) -> None:
    assert width(text) == expected


def test_the_width_of_every_character_is_what_it_always_was() -> None:
    told = bytes(map(cells, EVERY_CHARACTER))
    assert hashlib.sha256(told).hexdigest() == "54ddf352c7534fed57313ba49e1e96182162b916a20267c1b0d2bce062a375dd"


@pytest.mark.skipif(unicodedata.unidata_version != "15.1.0", reason="this Python knows another version of Unicode")
def test_it_is_what_unicode_says() -> None:
    def said(char: str) -> int:
        if unicodedata.category(char) in ("Mn", "Me"):
            return 0
        return 2 if unicodedata.east_asian_width(char) in ("F", "W") else 1

    assert [char for char in EVERY_CHARACTER if cells(char) != said(char)] == []


def test_cells_are_padded_to_their_columns() -> None:
    rows = [("name", "n"), ("日本", "10"), ("e\u0301", "7")]
    shown = [line(row, widths(rows), frozenset({1})) for row in rows]
    assert shown == ["name   n", "日本  10", "e\u0301      7"]
