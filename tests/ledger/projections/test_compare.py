"""Two runs over the same incidents: what is held against what, and that nothing is dropped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from ledger.projections.compare import FIELDS, QUESTIONS, CompareFold, Comparison, Pairing, differing, pair
from ledger.projections.decisions import Decisions, read_decisions
from ledger.projections.report import report
from ledger.store import Store
from ledger.store.errors import LedgerMalformed, RunNotFound
from tests.ledger.projections.two_runs import (
    BLOCKED,
    FALLBACK,
    HIGH,
    LOW,
    NOTHING,
    RUNS,
    Asked,
    a_run,
    asked,
    contents_of,
    folded,
    redact,
)
from tests.stories import as_events, stories


def paired(first: list[Asked], second: list[Asked]) -> tuple[Decisions, Decisions, Pairing]:
    one, other = folded(a_run("a", first)), folded(a_run("b", second))
    return one, other, pair(one, other)


def counted(first: list[Asked], second: list[Asked]) -> dict[str, Any]:
    one, other, pairing = paired(first, second)
    fold = CompareFold()
    for number, (index, partner) in enumerate(zip(pairing.first, pairing.second, strict=True)):
        fold.fold(number, one.at(index), other.at(partner))
    return fold.finish(len(pairing.only_first), len(pairing.only_second))


def compared(store: Store, first: str = "a", second: str = "b") -> Comparison:
    return Comparison(store, read_decisions(store, first), read_decisions(store, second))


# --- who is whose partner -------------------------------------------------------------------


def test_requests_are_joined_by_incident_whatever_their_ids_and_order() -> None:
    one, other, pairing = paired(
        asked(("r1", "INC-1", LOW), ("r2", "INC-2", LOW)), asked(("x2", "INC-2", HIGH), ("x1", "INC-1", LOW))
    )
    names = [(one.at(i).request_id, other.at(j).request_id) for i, j in zip(pairing.first, pairing.second, strict=True)]
    assert names == [("r1", "x1"), ("r2", "x2")]


def test_an_incident_that_was_asked_more_than_once_is_joined_by_request_and_never_by_guess() -> None:
    first = asked(("r1", "INC-1", LOW), ("r2", "INC-1", LOW), ("r3", "INC-1", LOW))
    second = asked(("r1", "INC-1", LOW), ("x2", "INC-1", LOW), ("x3", "INC-1", LOW))
    one, other, pairing = paired(first, second)
    assert [one.at(index).request_id for index in pairing.first] == ["r1"]
    assert [one.at(index).request_id for index in pairing.only_first] == ["r2", "r3"]
    assert [other.at(index).request_id for index in pairing.only_second] == ["x2", "x3"]


def test_the_same_request_id_for_another_incident_is_no_partner() -> None:
    *_, pairing = paired(asked(("r1", "INC-1", LOW)), asked(("r1", "INC-2", LOW)))
    assert (len(pairing.first), len(pairing.only_first), len(pairing.only_second)) == (0, 1, 1)


@given(RUNS, RUNS)
def test_every_request_of_either_run_stands_in_exactly_one_place(first: list[Asked], second: list[Asked]) -> None:
    one, other, pairing = paired(first, second)
    assert sorted([*pairing.first, *pairing.only_first]) == list(range(len(one)))
    assert sorted([*pairing.second, *pairing.only_second]) == list(range(len(other)))
    for index, partner in zip(pairing.first, pairing.second, strict=True):
        assert one.at(index).incident_id == other.at(partner).incident_id


# --- what it comes to -----------------------------------------------------------------------


@given(RUNS, RUNS)
def test_in_every_field_the_counts_add_up_to_the_incidents(first: list[Asked], second: list[Asked]) -> None:
    made = counted(first, second)
    assert made["incidents"] == made["pairs"] + made["only_first"] + made["only_second"]
    assert made["agreement"]["of"] == made["incidents"]
    for of in made["fields"].values():
        names = ("same", "different", "not_comparable", "only_first", "only_second")
        assert sum(of[name] for name in names) == made["incidents"] == of["agreement"]["of"]
        assert sum(value["count"] for value in of["values"]) == of["same"] + of["different"]
    for name, of in made["tests"].items():
        assert of["pairs"] == (made["pairs"] if name == "accepted" else made["comparable"])
        assert of["both"] + of["first_only"] + of["second_only"] + of["neither"] == of["pairs"]
        assert (of["p_value"] is None) == (of["pairs"] == 0)  # it was 1 where nothing had been tested


@given(RUNS, RUNS)
def test_turned_round_it_is_the_mirror_image(first: list[Asked], second: list[Asked]) -> None:
    made, turned = counted(first, second), counted(second, first)
    same = ("incidents", "pairs", "comparable", "differences", "agreement", "agreement_of_comparable")
    assert [made[name] for name in same] == [turned[name] for name in same]
    assert (made["only_first"], made["only_second"]) == (turned["only_second"], turned["only_first"])
    for field in FIELDS:
        one, other = made["fields"][field], turned["fields"][field]
        assert {(v["first"], v["second"], v["count"]) for v in one["values"]} == {
            (v["second"], v["first"], v["count"]) for v in other["values"]
        }
    for name in QUESTIONS:
        one, other = made["tests"][name], turned["tests"][name]
        assert (one["first"], one["first_only"], one["p_value"]) == (
            other["second"],
            other["second_only"],
            other["p_value"],
        )


@given(RUNS)
def test_a_run_does_not_differ_from_itself(run: list[Asked]) -> None:
    made = counted(run, run)
    assert (made["differences"], made["only_first"], made["only_second"]) == (0, 0, 0)
    assert made["agreement"]["count"] == made["comparable"]


@given(stories())
def test_what_became_of_each_request_is_counted_as_the_report_counts_it(told: Any) -> None:
    from ledger.projections.projection import fold_all
    from ledger.projections.report import ReportFold

    events = as_events(told)
    reported = fold_all(ReportFold("run-1"), events).finish(bytes(32))
    counts = folded(told).counts()
    assert counts["accepted"] == reported["accepted_first"] + reported["accepted_after_retry"]
    assert counts["fallback"] == reported["fallback_records"]
    for name in ("not_started", "incomplete", "rejected", "leak_rejected", "requests"):
        assert counts[name] == reported[name], name
    assert folded(told).position == reported["as_of"]["position"]


def test_a_fallback_is_no_answer_so_its_fields_are_compared_with_nothing() -> None:
    made = counted(asked(("INC-1", FALLBACK), ("INC-2", NOTHING)), asked(("INC-1", HIGH), ("INC-2", NOTHING)))
    outcome = made["fields"]["outcome"]
    assert outcome["values"] == [
        {"first": "fallback", "second": "accepted", "count": 1},
        {"first": "incomplete", "second": "incomplete", "count": 1},
    ]
    assert made["fields"]["risk_level"]["not_comparable"] == 2
    assert (made["comparable"], made["differences"]) == (0, 1)
    assert made["tests"]["accepted"]["second_only"] == 1
    assert made["tests"]["blocked_by_policy"]["pairs"] == 0


def test_each_flip_is_counted_with_both_values_and_tested() -> None:
    first = asked(*((f"INC-{n}", LOW) for n in range(10)))
    second = asked(*((f"INC-{n}", LOW if n == 0 else HIGH) for n in range(10)))
    made = counted(first, second)
    assert made["fields"]["risk_level"]["values"] == [
        {"first": "low", "second": "low", "count": 1},
        {"first": "low", "second": "high", "count": 9},
    ]
    lets = made["tests"]["low_and_neither"]
    assert (lets["both"], lets["first_only"], lets["second_only"], lets["p_value"]) == (1, 9, 0, "0.00390625")
    assert lets["difference"]["value"] == "-0.900000"


# --- with the text --------------------------------------------------------------------------


def test_differences_come_gravest_first_each_with_both_answers(either: Store) -> None:
    first = asked(("INC-1", LOW), ("INC-2", HIGH), ("INC-3", FALLBACK), ("INC-4", {**HIGH, "risk_level": "medium"}))
    second = asked(("INC-1", LOW), ("INC-2", LOW), ("INC-3", LOW), ("INC-4", HIGH), ("INC-5", BLOCKED))
    either.append(a_run("a", first, action="page the team", leaks=2))
    either.append(a_run("b", second, action="do nothing", answer={"confidence": 0.5}))
    made = compared(either)
    differences = list(made.differences())
    assert [(one["incident_id"], one["fields"]) for one in differences] == [
        ("INC-2", ["risk_level", "requires_human_approval"]),
        ("INC-4", ["risk_level"]),
        ("INC-3", ["outcome"]),
    ]
    answer = {"proposed_action": "page the team", "action_plan": ["inspect", "restart"], **HIGH}
    assert differences[0]["first"] == {
        "request_id": "INC-2",
        "line": 2,
        "outcome": "accepted",
        "error": None,
        "position": differences[0]["first"]["position"],
        "model_output": answer,
        "redacted": False,
    }
    assert differences[0]["second"]["model_output"]["confidence"] == 0.5
    assert differences[2]["first"]["model_output"] is None
    assert differences[2]["first"]["error"] == FALLBACK
    assert [one["incident_id"] for one in made.only_second()] == ["INC-5"]
    assert list(made.only_first()) == []
    summary = made.summary()
    assert (summary["first"]["leak_rejected"], summary["first"]["requests"]) == (2, 6)
    assert summary["same_input"] is False
    assert summary["second"]["as_of"] == report(either, "b")["as_of"]
    assert not made.same()


def test_an_erased_text_is_null_and_the_counts_stay(either: Store) -> None:
    either.append(a_run("a", asked(("INC-1", LOW), ("INC-2", LOW))))
    either.append(a_run("b", asked(("INC-1", HIGH), ("INC-2", LOW))))
    before = compared(either).summary()
    redact(either, contents_of(either, "b", "OutputAccepted")[0])
    (difference,) = compared(either).differences()
    assert difference["second"]["redacted"] is True
    assert difference["second"]["model_output"] == {"proposed_action": None, "action_plan": None, **HIGH}
    assert difference["first"]["model_output"]["proposed_action"] == "restart it"
    assert compared(either).summary() == before


def test_a_text_that_is_missing_without_a_redaction_is_an_error(store: Store) -> None:
    told = a_run("b", asked(("INC-1", HIGH)))
    bare = [event._replace(content=None) if event.type == "OutputAccepted" else event for event in told]
    store.append([*a_run("a", asked(("INC-1", LOW))), *bare])
    with pytest.raises(LedgerMalformed, match="no redaction says why"):
        list(compared(store).differences())


def test_what_was_asked_otherwise_is_counted(store: Store) -> None:
    store.append(a_run("a", asked(("INC-1", LOW)), policy_id="policy-1"))
    store.append(a_run("b", asked(("INC-1", LOW)), policy_id="policy-2"))
    assert compared(store).summary()["asked_differently"] == {"system_prompt": 0, "contract": 0, "policy_id": 1}
    assert compared(store).summary()["same_input"] is True
    assert compared(store).same()


def test_a_run_is_compared_as_it_was_at_a_position(store: Store) -> None:
    store.append(a_run("a", asked(("INC-1", LOW))))
    store.append(a_run("b", asked(("INC-1", HIGH))))
    middle = contents_of(store, "b", "OutputAccepted")[0] - 1
    one, other = (read_decisions(store, run_id, middle) for run_id in ("a", "b"))
    made = Comparison(store, one, other).summary()
    assert made["second"]["state"] == "incomplete"
    assert made["fields"]["outcome"]["values"] == [{"first": "accepted", "second": "incomplete", "count": 1}]
    with pytest.raises(RunNotFound):
        read_decisions(store, "b", 2)


def test_only_what_the_last_start_began_counts() -> None:
    events = [*a_run("a", asked(("INC-1", LOW), ("INC-2", LOW)), ended=False), *a_run("a", asked(("INC-3", HIGH)))]
    run = folded(events)
    assert [decision.request_id for decision in run] == ["INC-3"]
    assert differing(run.at(0), run.at(0)) == []
