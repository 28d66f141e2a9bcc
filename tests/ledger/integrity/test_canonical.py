"""Canonical JSON against RFC 8785's own examples, other people's vectors and another implementation."""

from __future__ import annotations

import json
import struct
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.integrity.canonical import (
    MAX_DEPTH,
    MAX_INTEGER,
    CanonicalError,
    encode,
    encode_keeping_integers,
    encode_payload,
)
from tests.ledger.integrity import vectors

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-MAX_INTEGER, MAX_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)

FACT_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ASCII_KEY = st.text(st.characters(max_codepoint=127, exclude_characters="\0"), max_size=6)
FACTS = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | FACT_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ASCII_KEY, inner, max_size=4),
    max_leaves=12,
)
PAYLOADS = st.dictionaries(ASCII_KEY, FACTS, max_size=12)

# RFC 8785, appendix B: the double's bits, and how it is written.
RFC_NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), RFC_NUMBERS)
def test_the_numbers_of_rfc_8785_are_written_as_it_says(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert encode(number) == text.encode()


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_nan_and_infinities_are_refused(bits: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    with pytest.raises(CanonicalError):
        encode([number])


def test_the_worked_example_of_rfc_8785_comes_out_byte_for_byte() -> None:
    value = json.loads(
        r'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
        r'"string":"\u20ac$\u000F\u000aA\u0027\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}'
    )
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert encode(value) == expected.encode("utf-8")


def test_keys_are_sorted_by_utf_16_code_units_not_by_code_points() -> None:
    above, below = "\U0001f600", "\ufb33"  # U+1F600 begins with the unit D83D, which sorts before FB33
    assert list(json.loads(encode({below: 1, above: 2}))) == [above, below]
    assert sorted([below, above]) == [below, above]


def test_other_peoples_vectors_come_out_byte_for_byte() -> None:
    inputs = sorted((vectors.folder("jcs") / "testdata" / "input").glob("*.json"))
    assert len(inputs) == 6
    for path in inputs:
        expected = (path.parents[1] / "output" / path.name).read_bytes()
        assert encode(json.loads(path.read_bytes())) == expected, path.name


@given(VALUES)
@example({"\U0001f600": 1, "\ufb33": 2})
@example(["\x7f\x80\u2028\u2029\ud7ff\ue000", -0.0, 1e21, 1e-7])
def test_it_agrees_with_another_implementation(value: Any) -> None:
    assert encode(value) == rfc8785.dumps(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_as_the_same_double(number: float) -> None:
    assert float(encode(number)) == number


@given(VALUES)
def test_what_was_encoded_and_read_as_doubles_encodes_to_the_same_bytes(value: Any) -> None:
    once = encode(value)
    assert encode(json.loads(once, parse_int=float)) == once


@pytest.mark.parametrize("value", [MAX_INTEGER + 1, -MAX_INTEGER - 1, 10**30, [{"a": 2**64}]])
def test_an_integer_that_is_not_exact_as_a_double_is_refused(value: Any) -> None:
    with pytest.raises(CanonicalError):
        encode(value)


@given(st.integers())
def test_integers_of_any_size_can_keep_their_digits(number: int) -> None:
    assert encode_keeping_integers({"n": number}) == b'{"n":%d}' % number


def test_an_integer_too_long_for_python_to_write_is_an_error_not_a_crash() -> None:
    with pytest.raises(CanonicalError):
        encode_keeping_integers(10**6000)


@pytest.mark.parametrize(
    "value",
    ["\ud800", ["a\udfff"], {"\ud800": 1}, {1: 2}, {None: 1}, {"a": {1.5: 2}}, {1, 2}, b"bytes", object(), 1j],
)
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(CanonicalError):
        encode(value)


def test_an_error_never_repeats_the_value() -> None:
    for value in ({"a": b"hush-hush"}, {"a": "hush-hush\ud800"}, {"hush-hush\ud800": 1}):
        for encoder in (encode, encode_payload):
            with pytest.raises(CanonicalError) as caught:
                encoder(value)
            assert "hush" not in str(caught.value)
            assert caught.value.__cause__ is None


def nested(depth: int, value: Any = 1) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_a_limit_that_is_an_error_and_not_a_crash() -> None:
    assert encode(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (nested(MAX_DEPTH), nested(100_000), cycle):
        for encoder in (encode, encode_keeping_integers, encode_payload):
            with pytest.raises(CanonicalError):
                encoder({"a": value})
    for innermost in ([], {}, {"b": 1}, [1]):
        just_fits = {"a": nested(MAX_DEPTH - 2, innermost)}
        assert encode_payload(just_fits) == encode(just_fits)
        for encoder in (encode, encode_payload):
            with pytest.raises(CanonicalError):
                encoder({"a": [just_fits["a"]]})


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


def test_an_enum_member_is_written_as_its_value() -> None:
    assert encode({"a": Colour.RED, "b": Number.ONE}) == b'{"a":"red","b":1}'


# --- payloads ------------------------------------------------------------------------------


@given(PAYLOADS)
@example({"a": "\\u0000", "b": "\\\\u0000", "c": "\x7f\u2028"})
@example({"a": ["\x1f\x08\x0c"], "B": {"z": 1, "Z": MAX_INTEGER, "": -MAX_INTEGER}})
def test_the_fast_payload_encoder_agrees_with_the_whole_standard(payload: dict[str, Any]) -> None:
    fast = encode_payload(payload)
    assert fast == encode(payload)
    assert fast == rfc8785.dumps(payload)


@given(st.dictionaries(TEXT, VALUES, max_size=6))
def test_the_fast_payload_encoder_agrees_or_refuses(payload: dict[str, Any]) -> None:
    try:
        fast = encode_payload(payload)
    except CanonicalError:
        return
    assert fast == encode(payload)


@pytest.mark.parametrize(
    "payload",
    [
        {"a": 1.0},
        {"a": [1, {"b": float("nan")}]},
        {"a": MAX_INTEGER + 1},
        {"a": [-MAX_INTEGER - 1]},
        {"a": 2**70},
        {"ä": 1},
        {"a": [{"\u00e9": 1}]},
        {"a": "\0"},
        {"a": ["x\\\0"]},
        {"\0": 1},
        {"a": {"\0": 1}},
        {"a": "\ud800"},
        {1: 1},
        {"a": {1: 1}},
        {"a": UUID(int=1)},
        {"a": [Number.ONE]},
        {"a": Colour.RED},
        {"a": b""},
        {"a": {1, 2}},
        {"a": object()},
    ],
)
def test_what_may_not_stand_in_a_payload_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(CanonicalError):
        encode_payload(payload)


def test_backslashes_before_u0000_are_text_and_allowed() -> None:
    payload = {"a": "\\u0000", "b": "\\\\u0000"}
    assert json.loads(encode_payload(payload)) == payload
