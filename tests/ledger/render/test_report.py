"""A report as JSON and in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ledger.events import NewEvent
from ledger.integrity.canonical import CanonicalError
from ledger.projections.report import ReportFold
from ledger.render import report_json, report_text, report_words
from tests.stories import as_events, stories, story

DATA = Path(__file__).parents[2] / "data"
ROOT = bytes(range(32))


def report_of(told: list[NewEvent]) -> dict[str, Any]:
    fold = ReportFold("run-1")
    for event in as_events(told):
        fold.fold(event)
    return fold.finish(ROOT)


def words(report: dict[str, Any], **changes: Any) -> str:
    return report_text.render_1({**report, **changes}).decode("utf-8")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    from random import Random

    return next(
        found
        for seed in range(1000)
        if (found := report_of(story(Random(seed))))["valid"] and found["requests"] > 1 and found["facets"]
    )


@given(stories())
def test_a_report_is_canonical_json_and_one_newline(told: list[NewEvent]) -> None:
    made = report_of(told)
    data = report_json.render(made)
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1
    assert json.loads(data) == made


@given(stories())
def test_the_words_are_the_same_for_a_report_read_back_from_json(told: list[NewEvent]) -> None:
    made = report_of(told)
    assert report_text.render_1(json.loads(report_json.render(made))) == report_text.render_1(made)


@given(stories())
def test_the_words_never_call_a_run_valid(told: list[NewEvent]) -> None:
    text = words(report_of(told))
    assert " valid" not in text.replace("no valid request", "")
    assert text.count("Usable as evaluation: ") == 1


def test_a_float_in_a_report_is_refused() -> None:
    with pytest.raises(CanonicalError):
        report_json.render({"p50": float("nan")})


def test_beside_the_verdict_stands_what_vouches_for_it(report: dict[str, Any]) -> None:
    text = words(report)
    assert f"Usable as evaluation: yes, because all {report['requests']} requests have an accepted answer" in text
    assert ROOT.hex() in text
    assert f"position {report['as_of']['position']} " in text
    assert "replay-ledger verify" in text
    assert "is what the model said" in text


def test_every_reason_against_a_run_is_named(report: dict[str, Any]) -> None:
    changes: dict[str, Any] = {
        "valid": False,
        "outcome": "incomplete",
        "fallback_records": 1,
        "leak_rejected": 2,
        "rejected": 3,
        "not_started": 4,
        "incomplete": 5,
        "unreadable": 6,
    }
    reasons = report_words.why_not_usable({**report, **changes})
    assert len(reasons) == 7
    assert "1 request without an answer that could be accepted" in reasons
    assert "6 events that cannot be read" in reasons
    text = words(report, **changes)
    assert all(f"  - {reason}\n" in text for reason in reasons)
    assert report_words.why_not_usable(report) == []


def test_the_outcomes_in_print_add_up_to_the_requests(report: dict[str, Any]) -> None:
    block = words(report).split("Requests\n")[1].split("\n\n")[0].splitlines()
    numbers = [int(line.split()[-1]) for line in block]
    assert sum(numbers[:-1]) == numbers[-1] == report["requests"]


def test_unknown_usage_is_said_to_be_unknown(report: dict[str, Any]) -> None:
    tokens = {
        "prompt": 80,
        "completion": 16,
        "total": None,
        "cached": None,
        "reasoning": None,
        "calls_without_usage": 2,
    }
    text = words(report, tokens=tokens, calls={**report["calls"], "answered": 10})
    assert "tokens: prompt 80, completion 16, total unknown, cached unknown, reasoning unknown" in text
    assert "usage unknown: 2 of 10 answered calls" in text


def test_errors_are_listed_by_frequency_then_by_name(report: dict[str, Any]) -> None:
    text = words(report, errors={"b": 1, "a": 1, "http_503": 12})
    assert text.index("http_503  12") < text.index("a          1") < text.index("b          1")


def test_latency_is_printed_in_milliseconds_without_a_float(report: dict[str, Any]) -> None:
    text = words(report, latency_us={"p50": 1, "p90": 999_999, "p99": 2**53 - 1, "max": None})
    assert "p50 0.001 ms, p90 999.999 ms, p99 9007199254740.991 ms, max unknown" in text


def test_text_in_a_report_file_that_someone_else_made_is_not_printed_raw(report: dict[str, Any]) -> None:
    text = words(report, model="\x1b[31mred", failures=["unreadable:\u202e7"])
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("name", ["completed", "blocked", "everything"])
def test_version_1_of_the_words_gives_the_bytes_that_it_always_gave(name: str) -> None:
    made = json.loads((DATA / "report_html" / f"{name}.json").read_bytes())
    assert report_text.render_1(made) == (DATA / "report_words" / f"{name}.1.txt").read_bytes()
