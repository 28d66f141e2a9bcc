from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.integrity.canonical import encode_keeping_integers
from runner.strict_json import MAX_DEPTH, StrictJsonError, loads

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


def refused(data: bytes | str) -> StrictJsonError:
    with pytest.raises(StrictJsonError) as caught:
        loads(data)
    return caught.value


@given(json_values)
def test_whatever_python_writes_strictly_is_read_back_the_same(value: object) -> None:
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, ensure_ascii=False).encode("utf-8")) == value


@given(st.binary(max_size=400) | st.text(alphabet='{}[]":,\\u0d83 \n\t1e-.tfn\ud800\x00a', max_size=200))
def test_any_bytes_and_text_give_a_value_that_can_be_encoded_or_the_typed_error(data: bytes | str) -> None:
    try:
        value = loads(data)
    except StrictJsonError:
        return
    encode_keeping_integers(value)


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '{"x":[{"a":1,"b":2,"a":3}]}', '[[[[{"k":{},"k":{}}]]]]', r'{"a":1,"\u0061":2}'],
)
def test_a_duplicate_key_is_refused_at_any_depth(text: str) -> None:
    error = refused(text)
    assert (error.code, error.reason) == ("invalid_json", "duplicate_key")
    assert error.key in ("a", "k")


def test_the_message_about_a_duplicate_key_does_not_hold_the_key() -> None:
    assert "secret" not in refused('{"secret":1,"secret":2}').message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 400 + ".0"])
def test_numbers_that_no_double_holds_are_refused(number: str) -> None:
    assert refused(f'{{"a":{number}}}').code == "invalid_json"


@pytest.mark.parametrize("digits", [str(2**63), str(-(2**63) - 1), "1" + "0" * 20, "-" + "9" * 5000, "1" + "0" * 4999])
def test_integers_beyond_64_bits_are_refused(digits: str) -> None:
    assert refused(digits).code == "invalid_json"


def test_integers_of_64_bits_keep_every_digit() -> None:
    assert loads("[9223372036854775807,-9223372036854775808]") == [2**63 - 1, -(2**63)]


def test_a_million_digits_are_refused_at_once() -> None:
    began = time.perf_counter()
    refused("9" * 1_000_000)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    "text",
    [r'"\ud83d"', r'"\udc00"', r'{"\ud83d":1}', r'["\u0000"]', '"\ud83d"', '"a\x00b"', "\x00", r'"\uD83D\uD83D"'],
)
def test_lone_surrogates_and_the_null_character_are_refused(text: str) -> None:
    assert refused(text).code == "invalid_unicode"


@pytest.mark.parametrize(
    ("text", "value"), [(r'"\ud83d\ude00"', "😀"), (r'"\\u0000"', "\\u0000"), (r'"\\ud83d"', r"\ud83d")]
)
def test_pairs_and_escaped_backslashes_are_no_lone_surrogates(text: str, value: str) -> None:
    assert loads(text) == value


@pytest.mark.parametrize("data", [b'"\xff"', b'"caf\xe9"', b'"\xed\xa0\x80"', b'\xff\xfe"\x00a\x00"\x00'])
def test_bytes_that_are_not_utf_8_are_refused(data: bytes) -> None:
    assert refused(data).code == "invalid_unicode"


def test_the_greatest_depth_is_read_and_one_more_is_refused() -> None:
    assert loads("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert refused("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)).code == "too_deep"


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 200_000, "[{" * 100_000])
def test_endless_nesting_is_no_recursion_error(text: str) -> None:
    assert refused(text).code == "too_deep"


def test_brackets_inside_strings_do_not_count_as_nesting() -> None:
    text = json.dumps(["[" * 500, '\\"[[{{' * 100, {"{[": "]"}])
    assert loads(text) == json.loads(text)


def test_many_values_side_by_side_are_not_deep() -> None:
    assert len(loads("[" + ",".join(["[]"] * 5000) + "]")) == 5000


@pytest.mark.parametrize(
    "text", ["{} {}", "1 2", "[] x", '{"a":1}\x0c', "\u00a0{}", "\ufeff{}", "", " ", "{'a':1}", "[1,]"]
)
def test_anything_but_one_value_and_json_white_space_is_refused(text: str) -> None:
    assert refused(text).code == "invalid_json"


def test_json_white_space_round_the_value_is_no_fault() -> None:
    assert loads(" \t\r\n{} \n") == {}


def test_what_follows_a_whole_value_is_told_apart_from_other_faults() -> None:
    assert refused('{"a":1} and more').reason == "trailing"
    assert refused('{"a":1, and more').reason == "syntax"


def test_a_syntax_error_names_line_and_column() -> None:
    assert "line 2, column 5" in refused('{"a":\n"b" 1}').message
    assert "line 2, column 1" in refused("{\n\x00}").message


def test_an_outer_document_may_carry_text_that_is_judged_by_itself() -> None:
    assert loads(r'{"content":"\ud83d \u0000"}', any_text=True) == {"content": "\ud83d \x00"}


@pytest.mark.parametrize("unit", ['"\\', '"', "\\", '{"a', "[1,", '""', "{}"])
def test_time_is_linear_in_the_text(unit: str) -> None:
    began = time.perf_counter()
    refused(unit * 300_000)
    assert time.perf_counter() - began < 3
