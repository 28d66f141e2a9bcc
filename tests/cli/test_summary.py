"""The exit code of a run, from its outcome, its report and its gates."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands._summary import counts_line, exit_code, gate_lines, past, unanswered_lines, usable_line
from runner.plan import RunOutcome, RunState, StoppedBy


def report(**changes: Any) -> dict[str, Any]:
    """A completed run of ten requests, all accepted."""
    members: dict[str, Any] = {
        "valid": True,
        "outcome": "completed",
        "requests": 10,
        "accepted_first": 9,
        "accepted_after_retry": 1,
        "fallback_records": 0,
        "leak_rejected": 0,
        "rejected": 0,
        "not_started": 0,
        "incomplete": 0,
        "unreadable": 0,
        "errors": {},
        "calls": {"started": 11, "answered": 11},
    }
    return members | changes


FALLBACKS = {
    "valid": False,
    "accepted_first": 7,
    "fallback_records": 2,
    "errors": {"http_503": 1, "model_output_empty": 1},
}


@pytest.mark.parametrize(
    ("state", "stopped_by", "made", "settings", "code"),
    [
        ("completed", None, report(), {}, 0),
        ("completed", None, report(**FALLBACKS), {}, 1),
        ("completed", None, report(**FALLBACKS), {"max_fallback_rate": "0.2"}, 0),
        ("completed", None, report(**FALLBACKS), {"max_fallback_rate": "0.1999"}, 1),
        ("completed", None, report(**FALLBACKS), {"max_error_rate": "0.1"}, 0),
        ("completed", None, report(**FALLBACKS), {"max_error_rate": "0"}, 1),
        ("completed", None, report(**FALLBACKS), {"max_fallback_rate": "0.2", "max_error_rate": "0"}, 1),
        ("completed", None, report(valid=False, rejected=1), {}, 1),
        ("completed", None, report(valid=False, leak_rejected=1), {"max_fallback_rate": "1"}, 1),
        ("completed", None, report(valid=False, unreadable=1), {"max_fallback_rate": "1"}, 1),
        ("completed", None, report(valid=False, calls={"started": 30, "answered": 0}), {}, 4),
        ("completed", None, report(valid=False, calls={"started": 30, "answered": 0}), {"max_fallback_rate": "1"}, 4),
        ("auth_error", None, report(valid=False), {}, 4),
        ("auth_error", None, report(valid=False), {"max_fallback_rate": "1"}, 4),
        ("incomplete", "twenty_failures", report(valid=False), {}, 4),
        ("incomplete", "SIGINT", report(valid=False), {}, 130),
        ("incomplete", "SIGTERM", report(valid=False), {"max_fallback_rate": "1"}, 143),
        ("blocked", None, report(valid=False, leak_rejected=1, calls={"started": 0, "answered": 0}), {}, 1),
        ("blocked", None, report(valid=False, rejected=1, calls={"started": 0, "answered": 0}), {}, 2),
        ("blocked", None, report(valid=False, requests=0, calls={"started": 0, "answered": 0}), {}, 2),
    ],
)
def test_the_exit_code_follows_the_outcome_then_the_gates(
    state: RunState, stopped_by: StoppedBy | None, made: dict[str, Any], settings: dict[str, Any], code: int
) -> None:
    assert exit_code(RunOutcome("r", state, (), stopped_by), made, settings) == code


@given(
    st.sampled_from(get_args(RunState)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(["max_fallback_rate", "max_error_rate"]), st.sampled_from(["0", "0.5", "1"])),
)
def test_a_run_that_was_not_completed_or_leaked_never_ends_with_0(
    state: RunState, leaking: int, answered: int, settings: dict[str, str]
) -> None:
    made = report(valid=False, leak_rejected=leaking, calls={"started": 3, "answered": answered})
    code = exit_code(RunOutcome("r", state), made, settings)
    assert code in {0, 1, 2, 4}
    if state != "completed" or leaking or not answered:
        assert code != 0


def test_a_gate_is_exact_where_a_float_would_not_be() -> None:
    assert not past("max_fallback_rate", report(requests=10, fallback_records=3), "0.3")
    assert past("max_fallback_rate", report(requests=10, fallback_records=3), "0.2999999999")


def test_each_gate_that_was_given_is_told() -> None:
    lines = list(gate_lines(report(**FALLBACKS), {"max_fallback_rate": "0.2", "max_error_rate": "0", "seed": 1}))
    assert lines == [
        "within --max-fallback-rate 0.2: 2 of 10 requests",
        "past --max-error-rate 0: 1 of 10 requests",
    ]


def test_a_completed_run_that_was_never_answered_says_so_with_the_commonest_code() -> None:
    errors = {"http_503": 3, "transport_connect": 7}
    made = report(valid=False, errors=errors, fallback_records=10, calls={"started": 30, "answered": 0})
    assert list(unanswered_lines(RunOutcome("r", "completed"), made)) == [
        "the endpoint never answered: 30 calls, not one answer; most often transport_connect (7 of 10 requests)",
        "so the exit code is 4, whatever the gates say",
    ]
    assert not list(unanswered_lines(RunOutcome("r", "incomplete", (), "SIGINT"), made))  # as that says why itself
    assert not list(unanswered_lines(RunOutcome("r", "completed"), report(**FALLBACKS)))
    assert not list(unanswered_lines(RunOutcome("r", "completed"), report(calls={"started": 0, "answered": 0})))


def test_the_counts_that_are_not_zero_are_told() -> None:
    assert counts_line(report()) == "10 requests: 9 accepted at once, 1 accepted after a retry"


def test_it_is_never_called_valid_but_usable_as_evaluation_and_why_not() -> None:
    assert usable_line(report()) == "usable as evaluation: yes"
    assert usable_line(report(**FALLBACKS)).startswith("usable as evaluation: no: 2 requests without an answer")


def test_one_request_was_called_1_requests() -> None:
    one = report(requests=1, accepted_first=1, accepted_after_retry=0)
    assert counts_line(one) == "1 request: 1 accepted at once"
    assert list(gate_lines(one, {"max_fallback_rate": "0"})) == ["within --max-fallback-rate 0: 0 of 1 request"]
    assert counts_line(report(requests=1000)).startswith("1,000 requests: ")
