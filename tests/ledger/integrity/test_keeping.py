"""What must be kept, folded from events: pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.events import LEDGER_RUN_ID, Event, LegalHoldLifted, LegalHoldSet, Payload, RetentionSet
from ledger.integrity.keeping import Hold, Keeping, fold_keeping, may_go_at

TIME = "2026-11-30T20:42:00.000000Z"


def folded(payloads: Sequence[Payload]) -> Keeping:
    return fold_keeping(
        Event(at, f"id-{at}", said.TYPE, 1, LEDGER_RUN_ID, at, None, None, TIME, said.model_dump())
        for at, said in enumerate(payloads, start=1)
    )


def test_a_ledger_that_says_nothing_keeps_nothing() -> None:
    keeping = folded([])
    assert (keeping.version, keeping.days, keeping.in_force()) == (0, 0, [])
    assert keeping.holds_on("run") == []


def test_a_hold_on_the_ledger_covers_every_run_and_one_on_a_run_that_run_alone() -> None:
    on_all, on_one = LegalHoldSet(hold_id="a", run_id=None), LegalHoldSet(hold_id="b", run_id="r1")
    keeping = folded([on_all, on_one])
    assert [hold.hold_id for hold in keeping.holds_on("r1")] == ["a", "b"]
    assert [hold.hold_id for hold in keeping.holds_on("r2")] == ["a"]


def test_a_lifted_hold_covers_nothing_and_is_remembered() -> None:
    keeping = folded([LegalHoldSet(hold_id="a", run_id="r1"), LegalHoldLifted(hold_id="a", run_id="r1")])
    assert keeping.holds == (Hold("a", "r1", 1, TIME, 2, TIME),)
    assert keeping.holds_on("r1") == []
    assert keeping.hold("a") is None


def test_a_hold_that_is_in_force_is_not_moved_to_another_run_by_being_set_again() -> None:
    keeping = folded([LegalHoldSet(hold_id="a", run_id=None), LegalHoldSet(hold_id="a", run_id="r1")])
    assert keeping.holds == (Hold("a", None, 1, TIME),)


def test_the_last_retention_floor_counts_and_the_earlier_ones_are_remembered() -> None:
    keeping = folded([RetentionSet(days=400), RetentionSet(days=30)])
    assert keeping.days == 30
    assert [floor.days for floor in keeping.floors] == [400, 30]


@pytest.mark.parametrize("payload", [{"days": "30"}, {"days": -1}, {"days": True}, {}])
def test_a_payload_that_is_not_of_its_form_is_no_absence_of_a_floor(payload: dict[str, object]) -> None:
    event = Event(1, "id", "RetentionSet", 1, LEDGER_RUN_ID, 1, None, None, TIME, payload)
    with pytest.raises(ValueError, match="days"):
        fold_keeping([event])


IDS = st.sampled_from(["a", "b", "c"])
RUNS = st.sampled_from([None, "r1", "r2"])
PAYLOADS: st.SearchStrategy[Payload] = st.one_of(
    st.builds(LegalHoldSet, hold_id=IDS, run_id=RUNS),
    st.builds(LegalHoldLifted, hold_id=IDS, run_id=RUNS),
    st.builds(RetentionSet, days=st.integers(0, 400)),
)


@given(st.lists(PAYLOADS, max_size=30))
def test_a_hold_is_in_force_from_the_event_that_sets_it_to_the_next_that_lifts_it(payloads: list[Payload]) -> None:
    active: dict[str, str | None] = {}
    for said in payloads:
        match said:
            case LegalHoldSet():
                active.setdefault(said.hold_id, said.run_id)
            case LegalHoldLifted():
                active.pop(said.hold_id, None)
            case _:
                pass
    keeping = folded(payloads)
    assert {hold.hold_id: hold.run_id for hold in keeping.in_force()} == active
    for run_id in ("r1", "r2"):
        covering = {hold_id for hold_id, on in active.items() if on in {None, run_id}}
        assert {hold.hold_id for hold in keeping.holds_on(run_id)} == covering
    assert keeping.version == len(payloads)


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), st.integers(0, 40_000))  # noqa: DTZ001 - made aware below
def test_content_may_go_exactly_so_many_days_after_it_was_recorded(moment: datetime, days: int) -> None:
    recorded = moment.replace(tzinfo=UTC)
    until = may_go_at(recorded.isoformat().replace("+00:00", "Z"), days)
    assert until is not None
    assert until - recorded == timedelta(days=days)


@pytest.mark.parametrize("days", [10**7, 10**9, 2**53 - 1])
def test_a_floor_beyond_the_calendar_keeps_for_ever(days: int) -> None:
    assert may_go_at(TIME, days) is None
