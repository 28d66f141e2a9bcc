"""Rows of an answer in each format; their text is anyone's."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.render import rows as render
from ledger.render.safe import _FORMULA, _UNSAFE
from tests.ledger.query.scene import HOSTILE

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    TEXT,
    st.binary(),
    st.sampled_from([HOSTILE, "=1+1", "@x", "-5", "\t=1", "\ufeff=1", "null", "", "NULL"]),
)


def text(chunks: Iterator[bytes]) -> str:
    return b"".join(chunks).decode("utf-8")


def one(form: Any, value: Any) -> str:
    return text(form(["a", "b"], [(value, 1)]))


def test_null_is_told_from_every_text_in_every_format() -> None:
    assert one(render.csv, None) == "a,b\r\n,1\r\n"
    assert one(render.csv, "") == 'a,b\r\n"",1\r\n'
    assert json.loads(one(render.json_lines, None)) == {"a": None, "b": 1}
    assert json.loads(one(render.json_lines, "null")) == {"a": "null", "b": 1}
    assert one(render.table, None).splitlines()[2].split() == ["NULL", "1"]


@pytest.mark.parametrize(
    ("value", "plain", "in_json"),
    [
        (b"\x00\xff", "00ff", '"00ff"'),
        (True, "true", "true"),
        (-5, "-5", "-5"),
        (2**80, str(2**80), str(2**80)),
        (1.5, "1.5", "1.5"),
        (1e300, "1e+300", "1e+300"),
        (math.nan, "NaN", '"NaN"'),
        (-math.inf, "-Infinity", '"-Infinity"'),
        (Decimal("NaN"), "NaN", '"NaN"'),
        (Decimal("Infinity"), "Infinity", '"Infinity"'),
        (Decimal("1E+3"), "1000", "1000"),
        (Decimal("1E+400"), "1" + "0" * 400, "1" + "0" * 400),
        (Decimal("0.10"), "0.10", "0.10"),
    ],
)
def test_values_keep_their_digits_and_what_json_has_no_number_for_is_text(value: Any, plain: str, in_json: str) -> None:
    assert one(render.csv, value) == f"a,b\r\n{plain},1\r\n"
    assert one(render.json_lines, value) == f'{{"a":{in_json},"b":1}}\n'


def test_no_text_of_an_answer_acts_on_a_terminal_or_runs_in_a_spreadsheet() -> None:
    shown = text(render.table([HOSTILE, "b"], [(HOSTILE, 1)]))
    assert not _UNSAFE.search(shown.replace("\n", ""))
    assert len(shown.splitlines()) == 3
    header, row = csv.reader(io.StringIO(text(render.csv([HOSTILE, "b"], [(HOSTILE, 1)])), newline=""))
    assert header[0] == row[0] == "'" + HOSTILE


def test_a_table_cuts_a_long_text_and_says_by_how_much_and_the_others_cut_nothing() -> None:
    long = "x" * 1_000_000
    assert "[999880 more characters]" in one(render.table, long)
    assert len(one(render.table, long)) < 1000
    assert len(one(render.csv, long)) > 1_000_000
    assert json.loads(one(render.json_lines, long))["a"] == long


def test_an_array_is_json_with_no_row_with_one_and_with_many() -> None:
    for count in (0, 1, 3):
        rows = [(number, "x") for number in range(count)]
        assert json.loads(text(render.json_array(["a", "b"], rows))) == [
            {"a": number, "b": "x"} for number in range(count)
        ]


@pytest.mark.parametrize("form", [render.json_lines, render.json_array])
def test_two_columns_of_one_name_are_refused_where_one_would_hide_the_other(form: Any) -> None:
    with pytest.raises(render.SameNameTwice, match="a"):
        list(form(["a", "b", "a"], [(1, 2, 3)]))
    assert text(render.csv(["a", "a"], [(1, 2)])) == "a,a\r\n1,2\r\n"


def test_a_table_without_a_row_or_a_column_is_a_table() -> None:
    assert text(render.table(["a", "bb"], [])) == "a  bb\n-  --\n"
    assert text(render.table([], [(), ()])) == "\n\n\n\n"


@pytest.mark.parametrize("form", [render.table, render.csv, render.json_lines, render.json_array])
def test_rows_are_written_as_they_come(form: Any) -> None:
    taken = 0

    def endless() -> Iterator[tuple[int, str]]:
        nonlocal taken
        while True:
            taken += 1
            yield taken, "x"

    written = form(["a", "b"], endless())
    for _ in range(10):
        next(written)
    assert taken <= 220


@given(st.lists(st.tuples(VALUES, VALUES), max_size=5))
def test_every_value_goes_into_every_format_and_back_out_of_json_and_csv(rows: list[tuple[Any, Any]]) -> None:
    for line, row in zip(text(render.json_lines(["a", "b"], rows)).split("\n")[:-1], rows, strict=True):
        for value, back in zip(row, json.loads(line, parse_float=Decimal).values(), strict=True):
            if isinstance(value, bytes):
                assert bytes.fromhex(back) == value
            elif isinstance(value, float | Decimal):
                assert (
                    back in ("NaN", "Infinity", "-Infinity")
                    or Decimal(repr(value) if isinstance(value, float) else value) == back
                )
            else:
                assert back == value
    assert json.loads(text(render.json_array(["a", "b"], rows))) is not None
    read = list(csv.reader(io.StringIO(text(render.csv(["a", "b"], rows)), newline="")))
    assert len(read) == len(rows) + 1
    for cells, row in zip(read[1:], rows, strict=True):
        for cell, value in zip(cells, row, strict=True):
            assert not isinstance(value, str) or not _FORMULA.match(cell)
            assert not isinstance(value, str) or cell.removeprefix("'") == value.removeprefix("'")
    shown = text(render.table(["a", "b"], rows))
    assert len(shown.split("\n")) == len(rows) + 3
    assert not _UNSAFE.search(shown.replace("\n", ""))
