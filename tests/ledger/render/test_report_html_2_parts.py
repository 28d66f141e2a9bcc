"""What version 2 of a report's page is built from: numbers without a float, bars that add up, columns in words."""

from __future__ import annotations

from ledger.render.report_html_2_parts import (
    BOUNDS_US,
    BUCKETS,
    between,
    breaking,
    bucket,
    bucket_name,
    columns,
    milliseconds,
    percent,
    shown,
    widths,
)
from ledger.render.report_html_2_parts import plain as escaped
from tests.ledger.render.test_report_html_2 import Page


def plain(text: str) -> str:
    return text.replace("\N{EN DASH}", "-")


def test_the_bar_of_outcomes_adds_up_to_the_requests_and_hides_none() -> None:
    for parts in ([1, 0, 9999, 0], [5, 5, 5, 1], [1, 1, 1, 1], [10**6, 1, 1, 1], [0, 0, 7, 0]):
        drawn = widths(parts, sum(parts))
        assert 9990 <= sum(drawn) <= 10_000
        assert [width > 0 for width in drawn] == [part > 0 for part in parts]
        assert all(width >= 60 for width in drawn if width)
    assert widths([0, 0], 0) == [0, 0]


def test_times_fall_into_buckets_that_are_the_same_for_every_run() -> None:
    assert BOUNDS_US[:4] == (1_000, 2_000, 5_000, 10_000)
    assert BOUNDS_US[-2:] == (500_000_000, 1_000_000_000)
    assert [bucket(took) for took in (0, 999, 1_000, 1_999, 2_000, 10**9 - 1, 10**9, 10**12)] == [
        0,
        0,
        1,
        1,
        2,
        18,
        19,
        19,
    ]
    names = [plain(bucket_name(index)) for index in (0, 1, 9, 10, 18, 19)]
    assert names == ["< 1 ms", "1-2 ms", "500-1000 ms", "1-2 s", "500-1000 s", "≥ 1000 s"]


def test_a_histogram_says_in_words_what_it_draws() -> None:
    counts = [0] * BUCKETS
    counts[4], counts[6] = 3, 1000
    page = Page(columns("replies", "Whole replies", counts).encode())
    assert page.text.startswith("Whole replies 10-20 ms: 3; 20-50 ms: 0; 50-100 ms: 1,000 ")
    assert [int(str(shape["height"])) for shape in page.named("rect")] == [2, 0, 120]
    assert page.named("svg")[0]["aria-labelledby"] == "replies-t replies-d"


def test_shares_and_times_are_rounded_half_up_without_a_float() -> None:
    assert [percent(part, 200) for part in (0, 1, 199, 200)] == ["0.0 %", "0.5 %", "99.5 %", "100.0 %"]
    assert (percent(1, 3), percent(2, 3), percent(1, 2000), plain(percent(0, 0))) == ("33.3 %", "66.7 %", "0.1 %", "-")
    assert [milliseconds(took) for took in (0, 49, 50, 1_234_567)] == ["0.0 ms", "0.0 ms", "0.1 ms", "1,234.6 ms"]
    assert milliseconds(None) == "unknown"
    for last, took in (
        *(("20:00:00.04", "0.0 s"), ("20:00:00.05", "0.1 s"), ("20:00:01.578227", "1.6 s")),
        *(("20:00:59.949999", "59.9 s"), ("20:00:59.95", "1 min 0.0 s"), ("20:59:59.96", "1 h 0 min 0.0 s")),
        *(("23:01:02.99", "3 h 1 min 3.0 s"), ("19:59:59", "0.0 s")),
    ):
        assert between("2026-11-30T20:00:00Z", f"2026-11-30T{last}Z") == took
    assert between("2026-11-30T20:00:00Z", "no time") == "unknown"


def test_escapes_are_told_from_the_same_letters_in_a_value_and_no_break_falls_within_one() -> None:
    mark = '<span class="escape">\\u202e\\x1b</span>'
    assert shown("a\u202e\x1b[2J\\x1b") == f"a{mark}[2J\\x1b"
    assert breaking("a_\u202e\x1b:<b") == f"a_<wbr>{mark}:<wbr>&lt;b"
    assert escaped("a\u202e<") == "a\\u202e&lt;"
    nulls = "\\x00" * 400
    assert shown("\x00" * 401) == f'<span class="escape">{nulls}</span>... [1 more characters]'
