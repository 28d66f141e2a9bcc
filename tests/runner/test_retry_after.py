"""How long a server asks us to wait."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.retry_after import LONGEST_MS, retry_after_ms

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("0", 0),
        ("1", 1000),
        ("3600", 3_600_000),
        (" 2 ", 2000),
        ("1.5", 1500),
        ("0.0001", 1),
        ("Mon, 30 Nov 2026 12:00:05 GMT", 5000),
        ("Monday, 30-Nov-26 12:00:05 GMT", 5000),
        ("Mon Nov 30 12:00:05 2026", 5000),
        ("Mon, 30 Nov 2026 11:59:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("9" * 39, LONGEST_MS),
    ],
)
def test_seconds_and_dates_are_understood(value: str, wait: int) -> None:
    assert retry_after_ms([], [value], NOW) == wait


def test_a_date_far_ahead_is_told_as_it_is_and_never_slept() -> None:
    wait = retry_after_ms([], ["Wed, 21 Oct 2099 07:28:00 GMT"], NOW)
    assert wait is not None
    assert wait > 70 * 365 * 86_400_000


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "-1",
        "+1",
        "1e9",
        "0x10",
        "NaN",
        "Infinity",
        "1,2",
        "1 2",
        "١٢",
        "Mon",
        "Mon, 99 Foo 2026 99:99:99 GMT",
    ],
)
def test_odd_values_are_ignored(value: str) -> None:
    assert retry_after_ms([], [value], NOW) is None
    assert retry_after_ms([value], [], NOW) is None


def test_milliseconds_are_finer_and_come_first() -> None:
    assert retry_after_ms(["250"], ["1"], NOW) == 250
    assert retry_after_ms(["1500.2"], [], NOW) == 1501
    assert retry_after_ms(["soon"], ["1"], NOW) == 1000


def test_a_header_given_twice_is_ignored() -> None:
    assert retry_after_ms([], ["1", "60"], NOW) is None
    assert retry_after_ms(["1", "2"], ["3"], NOW) == 3000


@given(st.integers(0, 10**9))
def test_a_date_says_the_same_as_its_seconds(seconds: int) -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)
    assert retry_after_ms([], [date], NOW) == seconds * 1000


@given(st.text(max_size=50))
def test_any_text_is_a_wait_or_none(value: str) -> None:
    for wait in (retry_after_ms([], [value], NOW), retry_after_ms([value], [], NOW)):
        assert wait is None or 0 <= wait <= LONGEST_MS
