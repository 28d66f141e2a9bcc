"""Hostile text on a terminal and in a spreadsheet."""

from __future__ import annotations

import csv
import io
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.render.safe import csv_cell, terminal

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b[31mdone", r"\x1b[2J\x1b[31mdone"),
        ("\x1b]8;;http://x.example\x07link\x1b]8;;\x07", r"\x1b]8;;http://x.example\x07link\x1b]8;;\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\r\tc\0", r"a\nb\r\tc\x00"),
        ("safe\u202egnp.exe", r"safe\u202egnp.exe"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("line\u2028break", r"line\u2028break"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("half \ud83d", r"half \ud83d"),
        ("café 😀 日本 €", "café 😀 日本 €"),
    ],
)
def test_whatever_acts_or_hides_on_a_terminal_is_shown_as_an_escape(hostile: str, shown: str) -> None:
    assert terminal(hostile) == shown


def test_no_control_or_format_character_of_all_unicode_reaches_a_terminal() -> None:
    shown = terminal("".join(map(chr, range(sys.maxunicode + 1))))
    shown.encode("utf-8")
    left = {char for char in set(shown) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    # Format characters by category, but drawn like letters or signs.
    assert {unicodedata.name(char).split()[0] for char in left} <= {"ARABIC", "KAITHI", "EGYPTIAN"}


def test_a_long_text_is_cut_with_a_mark_that_counts_what_is_missing() -> None:
    assert terminal("x" * 10, 10) == "x" * 10
    assert terminal("x" * 12, 10) == "x" * 10 + "... [2 more characters]"
    assert terminal("\x1b" * 3, 1) == r"\x1b... [2 more characters]"


@pytest.mark.parametrize(
    "formula",
    [
        '=HYPERLINK("http://x.example","ok")',
        "+1+1",
        "-2+3",
        "@SUM(1)",
        "\t=1+1",
        "\r=1+1",
        "\n=1+1",
        "\u200b=1+1",
        "\ufeff=1+1",
        "  =1+1",
        "\u00a0=1+1",
        "\uff1d1+1",
        "\u200b",
    ],
)
def test_a_text_that_a_spreadsheet_might_run_is_prefixed(formula: str) -> None:
    ((cell,),) = csv.reader(io.StringIO(csv_cell(formula), newline=""))
    assert cell == "'" + formula


@pytest.mark.parametrize("plain", ["rollout restart", "a=b", "1-2", "", "restart €", "'=1", "INC-1"])
def test_plain_text_keeps_its_form_in_a_cell(plain: str) -> None:
    assert csv_cell(plain) == plain


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_every_cell_is_read_back_by_a_csv_reader(texts: list[str]) -> None:
    line = ",".join(csv_cell(text) for text in texts) + ",end\r\n"
    (cells,) = csv.reader(io.StringIO(line, newline=""), strict=True)
    assert [cell.removeprefix("'") for cell in cells[:-1]] == [text.removeprefix("'") for text in texts]


@given(ANY_TEXT)
def test_a_cell_can_always_be_written_as_utf_8_and_never_begins_a_formula(text: str) -> None:
    written = csv_cell(text)
    written.encode("utf-8")
    ((cell, _),) = csv.reader(io.StringIO(f"{written},end", newline=""), strict=True)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\u200b", " ="))
