"""Erasing content: what goes, what stays proven, and what forbids it, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ledger import copy_ledger
from ledger.events import (
    LEDGER_RUN_ID,
    ContentRedacted,
    Counts,
    FallbackApplied,
    IntakeCompleted,
    NewEvent,
    RequestRejected,
    RetentionSet,
    RunBlocked,
    RunCompleted,
    new_event,
)
from ledger.integrity.holds import (
    MAX_DAYS,
    By,
    FloorRefused,
    HoldInForce,
    HoldNotInForce,
    lift_hold,
    read_keeping,
    set_hold,
    set_retention,
)
from ledger.integrity.redact import (
    ForeignTriggers,
    Held,
    RequestNotFound,
    RunNotEnded,
    Target,
    TooYoung,
    redact,
    survey,
)
from ledger.integrity.verify import verify
from ledger.projections.rebuild import check
from ledger.projections.report import report
from ledger.projections.results import results
from ledger.projections.scratch import UnreadableEvent
from ledger.projections.tables import fold
from ledger.store import LedgerError, Store, open_store
from ledger.store.errors import RunNotFound
from tests import stories
from tests.ledger.integrity.tampering import owner, put_foreign_trigger, tamper
from tests.ledger.store.making import START, Clock, accepted, some

BY = By("tester", "someone", "h1", basis="the law")
NONE = dict.fromkeys(stories.Counts.model_fields, 0)


def told(run_id: str = "r1") -> list[NewEvent]:
    """A run of two requests, one accepted and one that fell back; a third line repeats the second's id."""
    facts = stories.output_accepted()
    again = RequestRejected(line=3, request_id="INC-2", code="request_duplicate", field=None, first_line=2)
    read = IntakeCompleted(lines=3, accepted=2, rejected=1, leaking=0, input_sha256=stories.digest("x"), selection=None)
    counts = Counts(**{**NONE, "requests": 3, "accepted_first": 1, "fallback_records": 1, "rejected": 1})
    story: list[tuple[object, str | None, str | bytes | None]] = [
        (stories.started(), None, '{"operator":"someone"}'),
        (stories.accepted(1, "INC-1"), "INC-1", "line of INC-1"),
        (stories.accepted(2, "INC-2"), "INC-2", "line of INC-2"),
        (again, None, "another line of INC-2"),
        (read, None, None),
        (stories.call_started(1), "INC-1", "body of INC-1"),
        (stories.called(1), "INC-1", b"\xff reply to INC-1"),
        (facts, "INC-1", stories.output_text(facts)),
        (FallbackApplied(code="not_sent", turn=None), "INC-2", None),
        (RunCompleted(outcome="completed", counts=counts), None, None),
    ]
    return [new_event(p, run_id=run_id, request_id=q, content=c) for p, q, c in story]  # type: ignore[arg-type]


def ended(run_id: str = "run") -> NewEvent:
    return new_event(RunBlocked(failures=[]), run_id=run_id)


def long_run(requests: int, run_id: str = "run") -> list[NewEvent]:
    """So many contents, in a run that has ended."""
    return [new_event(stories.started(), run_id=run_id), *some(requests, run_id=run_id), ended(run_id)]


@pytest.fixture
def store(ledger_url: str, clock: Clock) -> Iterator[Store]:
    with open_store(ledger_url, "create", fold=fold, clock=clock) as opened:
        yield opened


@pytest.fixture
def other(ledger_url: str, store: Store, clock: Clock) -> Iterator[Store]:
    """Somebody else's connection to the same ledger."""
    with open_store(ledger_url, "write", fold=fold, clock=clock) as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ordered_erasure(positions: list[int]) -> NewEvent:
    """As ``redact`` appends it, by somebody who asks nothing of holds."""
    return new_event(ContentRedacted(positions=positions, reason="asked", actor="someone"), run_id=LEDGER_RUN_ID)


def remaining(store: Store) -> list[tuple[int, str | None]]:
    """Position and request of each content that is there, but for those of the ledger's own events."""
    sql = """
        SELECT e.position, e.request_id FROM contents AS c JOIN events AS e ON e.position = c.position
        WHERE e.run_id <> '$ledger' ORDER BY e.position
    """
    return [(position, request_id) for position, request_id in store.rows(sql)]


def contents_of(store: Store, run_id: str) -> list[int]:
    sql = "SELECT e.position FROM contents AS c JOIN events AS e ON e.position = c.position WHERE e.run_id = :run"
    return sorted(position for (position,) in store.rows(sql, {"run": run_id}))


def set_floor(store: Store, days: int) -> int:
    """Where the event is that says so."""
    set_retention(store, days, BY._replace(note="as it is"))
    return store.head().size


def redacted_in_events(store: Store) -> list[int]:
    events = (event for event in store.events(LEDGER_RUN_ID) if event.type == "ContentRedacted")
    return [position for event in events for position in event.payload["positions"]]  # type: ignore[union-attr]


# --- what goes, and what stays -------------------------------------------------------------


def test_all_content_of_a_run_goes_and_that_of_other_runs_stays(store: Store) -> None:
    store.append(told("r1"))
    store.append(told("r2"))
    before = len(remaining(store))
    done = redact(store, Target("r1"), reason="asked", by=BY)
    left = remaining(store)
    assert (done.contents, len(left)) == (before // 2, before // 2)
    assert min(position for position, _ in left) > 11
    (event,) = done.events
    assert [by for _, by in store.redactions()] == [event] * done.contents
    said = store.content(event)
    assert said is not None
    assert json.loads(said) == {"actor": "tester", "operator": "someone", "host": "h1", "basis": "the law"}


def test_all_content_of_one_request_goes_lines_that_were_rejected_under_its_id_too(store: Store) -> None:
    store.append(told())
    assert redact(store, Target("r1", "INC-2"), reason="asked", by=BY).contents == 2
    assert [request for _, request in remaining(store)] == [None, *["INC-1"] * 4]
    assert redact(store, Target("r1", "INC-1"), reason="asked", by=BY).contents == 4
    assert [request for _, request in remaining(store)] == [None]
    assert redact(store, Target("r1"), reason="asked", by=BY).contents == 1
    assert remaining(store) == []


def test_a_request_whose_id_begins_like_anothers_loses_nothing(store: Store) -> None:
    rejected = RequestRejected(
        line=2, request_id="INC-11", code="request_invalid", field='"request_id":"INC-1"', first_line=None
    )
    events = [accepted("INC-1", run_id="r1", content=b"one"), accepted("INC-11", run_id="r1", content=b"eleven")]
    store.append(
        [
            new_event(stories.started(), run_id="r1"),
            *events,
            new_event(rejected, run_id="r1", content="line"),
            ended("r1"),
        ]
    )
    assert redact(store, Target("r1", "INC-1"), reason="asked", by=BY).contents == 1
    assert [request for _, request in remaining(store)] == ["INC-11", None]


def test_what_was_done_stays_proven_and_reports_keep_their_bytes(store: Store, ledger_url: str, tmp_path: Path) -> None:
    store.append(told("r1"))
    store.append(told("r2"))
    before, verdict = report(store, "r1"), verify(store)
    redact(store, Target("r1"), reason="asked", by=BY)
    assert report(store, "r1") == before
    assert check(store) == []
    after = verify(store)
    assert (after.result, after.findings) == (verdict.result, ())
    assert [(item.contents, item.reason, item.actor) for item in after.redactions] == [(7, "asked", "tester")]
    first, second = results(store, "r1")
    assert first["redacted"]
    assert first["model_output"]["proposed_action"] is None
    assert first["model_output"]["action_plan"] is None
    assert first["model_output"]["risk_level"] == "medium"
    assert second["redacted"]
    assert second["model_output"]["proposed_action"] == ""
    assert not any(result["redacted"] for result in results(store, "r2"))
    in_sql = "SELECT proposed_action, action_plan, risk_level FROM results WHERE run_id = :run_id ORDER BY line"
    assert list(store.rows(in_sql, {"run_id": "r1"})) == [(None, None, "medium"), ("", "[]", "critical")]
    assert next(store.rows(in_sql, {"run_id": "r2"}))[0] == "rollout restart checkout €"
    assert copy_ledger(ledger_url, f"sqlite:///{tmp_path / 'copy.db'}") == store.head()
    with open_store(f"sqlite:///{tmp_path / 'copy.db'}", "read") as copy:
        assert copy.redactions() == store.redactions()
        assert verify(copy).findings == ()
        assert report(copy, "r1") == before


def test_a_look_changes_nothing_and_says_what_would_go(store: Store, ledger_url: str) -> None:
    store.append(told())
    with open_store(ledger_url, "read") as reader:
        found = survey(reader, Target("r1", "INC-1"))
    assert [(item.type, item.contents) for item in found.erasable] == [
        ("ModelCallStarted", 1),
        ("ModelCalled", 1),
        ("OutputAccepted", 1),
        ("RequestAccepted", 1),
    ]
    assert found.contents == 4
    bodies = store.rows(
        "SELECT body FROM contents AS c JOIN events AS e ON e.position = c.position WHERE e.request_id = 'INC-1'"
    )
    assert found.bytes == sum(len(body.encode()) for (body,) in bodies)
    assert store.redactions() == []


def test_erasing_again_finds_nothing_left_and_appends_nothing(store: Store) -> None:
    store.append(told())
    redact(store, Target("r1"), reason="asked", by=BY)
    size = store.head().size
    assert redact(store, Target("r1"), reason="asked", by=BY) == (0, [])
    assert redact(store, Target("r1", "INC-1"), reason="asked", by=BY) == (0, [])
    assert store.head().size == size


def test_an_erasure_that_stopped_between_two_events_is_finished_by_doing_it_again(store: Store) -> None:
    store.append(long_run(2500))

    class Killed(Exception):
        pass

    def stop(done: int, total: int) -> None:
        assert (done, total) == (1000, 2500)
        raise Killed

    with pytest.raises(Killed):
        redact(store, Target("run"), reason="asked", by=BY, progress=stop)
    assert len(remaining(store)) == 1500
    assert redact(store, Target("run"), reason="asked", by=BY).contents == 1500
    assert remaining(store) == []
    sizes = [len(e.payload["positions"]) for e in store.events(LEDGER_RUN_ID) if e.type == "ContentRedacted"]  # type: ignore[union-attr]
    assert sizes == [1000, 1000, 500]
    assert len(set(redacted_in_events(store))) == 2500
    assert verify(store).findings == ()


# --- what forbids it -----------------------------------------------------------------------


def refused(store: Store, target: Target, kind: type[LedgerError], said: str, clock: Clock | None = None) -> None:
    before = store.head()
    with pytest.raises(kind, match=said):
        redact(store, target, reason="asked", by=BY, clock=clock)
    assert store.head() == before


@pytest.mark.parametrize("target", [Target("r1"), Target("r1", "INC-1")])
def test_a_run_that_has_not_ended_keeps_its_content(store: Store, target: Target) -> None:
    *story, end = told()
    store.append(story)
    refused(store, target, RunNotEnded, "r1 has not ended")
    store.append([end])
    assert redact(store, target, reason="asked", by=BY).contents


def test_a_run_that_was_blocked_and_started_again_has_not_ended(store: Store) -> None:
    store.append([*told()[:3], ended("r1")])
    store.append(told()[:1])
    refused(store, Target("r1"), RunNotEnded, "not ended")


def test_what_is_not_there_is_named(store: Store) -> None:
    store.append(told())
    refused(store, Target("r9"), RunNotFound, "no run r9")
    refused(store, Target("r1", "INC-9"), RequestNotFound, "run r1 has no request INC-9")
    refused(store, Target(LEDGER_RUN_ID), RunNotFound, "no run")


@pytest.mark.parametrize("on", [None, "r1"])
@pytest.mark.parametrize("target", [Target("r1"), Target("r1", "INC-1")])
def test_a_legal_hold_forbids_it_until_it_is_lifted(store: Store, on: str | None, target: Target) -> None:
    store.append(told())
    set_hold(store, "case-1", on, BY)
    refused(store, target, Held, "case-1 on")
    lift_hold(store, "case-1", BY)
    assert redact(store, target, reason="asked", by=BY).contents


@pytest.mark.parametrize("on", [None, "r1"])
def test_an_erasure_past_a_hold_fails_verification_for_ever(store: Store, on: str | None) -> None:
    store.append(told())
    store.append(told("r2"))
    redact(store, Target("r1", "INC-2"), reason="asked", by=BY)
    set_hold(store, "case-1", on, BY)
    set_hold(store, "case-2", "r2", BY)
    held = remaining(store)[0][0]
    (receipt,) = store.append([ordered_erasure([held])])
    lift_hold(store, "case-1", BY)
    (finding,) = verify(store).findings
    assert (finding.position, finding.member, finding.kind) == (
        receipt.position,
        "redactions",
        "redacted without authority",
    )
    assert "hold case-1" in str(finding)


@pytest.mark.parametrize("positions", ["5", '["5"]', "null"])
def test_an_erasure_on_hold_that_names_no_positions_ended_verification_with_a_fault_of_its_own(
    store: Store, ledger_url: str, positions: str
) -> None:
    store.append(told())
    set_hold(store, "case-1", None, BY)
    (receipt,) = store.append([ordered_erasure([remaining(store)[0][0]])])
    payload = f'{{"actor":"someone","positions":{positions},"reason":"asked"}}'
    said = {"payload": payload, "position": receipt.position}
    tamper(ledger_url, ("UPDATE events SET payload = :payload WHERE position = :position", said))
    assert receipt.position in {finding.position for finding in verify(store).findings}


def test_an_erasure_below_the_floor_fails_verification_for_ever(store: Store, clock: Clock) -> None:
    store.append(told("r1"))
    clock.pass_(days=20)
    store.append(told("r2"))
    floor = set_floor(store, 30)
    clock.pass_(days=10)
    (first, *_), (second, *_) = contents_of(store, "r1"), contents_of(store, "r2")
    store.append([ordered_erasure([first])])  # thirty days old to the microsecond
    assert not verify(store).findings
    (receipt,) = store.append([ordered_erasure([contents_of(store, "r1")[0], second])])
    clock.pass_(days=400)
    set_floor(store, 0)
    (finding,) = verify(store).findings
    assert (finding.position, *finding[2:4]) == (receipt.position, "redactions", "redacted without authority")
    youngest = "the youngest of it was recorded at 2026-12-20T20:42:00.000000Z"
    assert finding.text == f"erased below the retention floor of 30 days, of position {floor}: {youngest}"


def test_a_floor_counts_from_its_own_event_on_and_no_longer_than_to_the_next(store: Store) -> None:
    store.append(told())
    first, second, third, *_ = contents_of(store, "r1")
    store.append([ordered_erasure([first])])
    set_floor(store, 30)
    set_floor(store, 0)
    store.append([ordered_erasure([second])])
    assert not verify(store).findings
    set_floor(store, 1)
    (receipt,) = store.append([ordered_erasure([third])])
    (finding,) = verify(store).findings
    assert (finding.position, "the retention floor of 1 day," in finding.text) == (receipt.position, True)


def test_an_erasure_that_a_hold_and_the_floor_forbade_is_named_for_both(store: Store) -> None:
    store.append(told())
    set_floor(store, MAX_DAYS)
    set_hold(store, "case-1", None, BY)
    (receipt,) = store.append([ordered_erasure([contents_of(store, "r1")[0]])])
    found = verify(store).findings
    assert {finding.position for finding in found} == {receipt.position}
    assert [finding.text.split(" of ")[0] for finding in found] == [
        "erased while hold case-1,",
        "erased below the retention floor",
    ]


def test_what_redact_lets_through_over_a_floor_verifies(store: Store, clock: Clock) -> None:
    store.append(told())
    store.append(told("r2"))
    set_floor(store, 30)
    clock.pass_(days=30)
    assert redact(store, Target("r1"), reason="asked", by=BY, clock=clock).contents == 7
    set_floor(store, 400)
    set_floor(store, 5)
    assert redact(store, Target("r2", "INC-1"), reason="asked", by=BY, clock=clock).contents
    assert not verify(store).findings


@pytest.mark.parametrize("time", ["soon", "2026-11-30", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_is_none_ends_no_verification_of_the_floor(store: Store, ledger_url: str, time: str) -> None:
    if store.dialect != "sqlite":
        pytest.skip("Postgres holds nothing but times there")
    store.append(told())
    set_floor(store, 30)
    position = contents_of(store, "r1")[0]
    (receipt,) = store.append([ordered_erasure([position])])
    for at in (position, receipt.position):
        tamper(ledger_url, ("UPDATE events SET recorded_at = :time WHERE position = :at", {"time": time, "at": at}))
        assert at in {finding.position for finding in verify(store).findings}


def test_a_lifted_hold_and_one_on_another_run_leave_an_erasure_lawful(store: Store) -> None:
    store.append(told())
    store.append(told("r2"))
    set_hold(store, "case-1", "r1", BY)
    set_hold(store, "case-2", "r2", BY)
    lift_hold(store, "case-1", BY)
    store.append([ordered_erasure([remaining(store)[0][0]])])
    assert not verify(store).findings


def test_a_hold_on_another_run_forbids_nothing_here(store: Store) -> None:
    store.append(told("r1"))
    store.append(told("r2"))
    set_hold(store, "case-1", "r2", BY)
    assert redact(store, Target("r1"), reason="asked", by=BY).contents == 7


def test_content_goes_no_day_before_the_retention_floor(store: Store, clock: Clock) -> None:
    store.append(told())
    set_retention(store, 30, BY)
    for day in (0, 29):
        clock.now = START + timedelta(days=day)
        refused(store, Target("r1"), TooYoung, "kept for 30 days.* from 2026-12-30T20:42", clock)
    clock.now = START + timedelta(days=30, microseconds=-1)
    refused(store, Target("r1", "INC-1"), TooYoung, "30 days", clock)
    clock.now = START + timedelta(days=30)
    assert redact(store, Target("r1"), reason="asked", by=BY, clock=clock).contents == 7


def test_the_floor_is_measured_from_the_youngest_of_what_would_go(store: Store, clock: Clock) -> None:
    story = told()
    store.append(story[:3])
    clock.pass_(days=10)
    store.append(story[3:])
    set_retention(store, 30, BY)
    clock.now = START + timedelta(days=35)
    refused(store, Target("r1"), TooYoung, "from 2027-01-09T20:42", clock)
    clock.now = START + timedelta(days=40)
    assert redact(store, Target("r1"), reason="asked", by=BY, clock=clock).contents == 7


def test_the_floor_is_measured_by_the_ledgers_own_clock_where_none_is_given(ledger_url: str) -> None:
    five_days_ago = Clock(datetime.now(UTC) - timedelta(days=5))
    with open_store(ledger_url, "create", fold=fold, clock=five_days_ago) as store:
        store.append(told())
        set_retention(store, 5, BY)
        assert redact(store, Target("r1", "INC-1"), reason="asked", by=BY).contents
        set_retention(store, 6, BY)
        refused(store, Target("r1"), TooYoung, "6 days")


def test_an_event_of_the_ledger_that_cannot_be_read_may_be_a_hold(store: Store, ledger_url: str) -> None:
    store.append(told())
    receipt = set_hold(store, "case-1", None, BY)
    tamper(ledger_url, f"UPDATE events SET type = 'LegalHoldSe' WHERE position = {receipt.position}")
    refused(store, Target("r1"), UnreadableEvent, f"event {receipt.position} cannot be read")
    odd = {"payload": '{"hold_id":5,"run_id":null}', "at": receipt.position}
    tamper(ledger_url, ("UPDATE events SET type = 'LegalHoldSet', payload = :payload WHERE position = :at", odd))
    refused(store, Target("r1"), UnreadableEvent, f"event {receipt.position} cannot be read")


# --- two at once ---------------------------------------------------------------------------


def test_a_hold_that_is_set_between_the_look_and_the_append_forbids_it(
    store: Store, other: Store, clock: Clock
) -> None:
    store.append(told())
    set_retention(store, 1, BY)
    clock.pass_(days=2)
    asked = 0

    def looking() -> datetime:  # asked for while the look goes on, after the holds were read
        nonlocal asked
        asked += 1
        if asked == 1:
            set_hold(other, "case-1", "r1", BY)
        return clock()

    with pytest.raises(Held, match="case-1"):
        redact(store, Target("r1"), reason="asked", by=BY, clock=looking)
    assert store.redactions() == []


def test_a_hold_that_is_set_half_way_stops_the_rest(store: Store, other: Store) -> None:
    store.append(long_run(1500))

    def half_way(done: int, total: int) -> None:
        if done == 1000:
            set_hold(other, "case-1", None, BY)

    with pytest.raises(Held, match="case-1"):
        redact(store, Target("run"), reason="asked", by=BY, progress=half_way)
    assert len(remaining(store)) == 500


def test_a_run_that_is_started_again_half_way_keeps_its_content(store: Store, other: Store) -> None:
    store.append(long_run(1500))

    def half_way(done: int, total: int) -> None:
        if done == 1000:
            other.append([new_event(stories.started(), run_id="run")])

    with pytest.raises(RunNotEnded):
        redact(store, Target("run"), reason="asked", by=BY, progress=half_way)
    assert len(remaining(store)) == 500


def test_what_is_appended_meanwhile_and_forbids_nothing_only_makes_it_look_again(store: Store, other: Store) -> None:
    store.append(long_run(2500))

    def half_way(done: int, total: int) -> None:
        assert total == 2500
        set_retention(other, 0, BY)
        other.append([new_event(stories.report_issued(), run_id="run")])

    done = redact(store, Target("run"), reason="asked", by=BY, progress=half_way)
    assert (done.contents, len(done.events)) == (2500, 3)
    assert sorted(redacted_in_events(store)) == sorted(position for position, _ in store.redactions())


def test_two_who_erase_the_same_run_at_once_erase_each_content_once(store: Store, other: Store) -> None:
    store.append(long_run(3000))
    erased: list[int] = []

    def erase(through: Store) -> None:
        erased.append(redact(through, Target("run"), reason="asked", by=BY).contents)

    in_threads(lambda: erase(store), lambda: erase(other))
    assert sum(erased) == 3000
    assert len(redacted_in_events(store)) == 3000
    assert verify(store).findings == ()


def test_no_erasure_stands_after_a_hold_however_they_race(store: Store, other: Store) -> None:
    for number in range(12):
        store.append(long_run(20, run_id=f"run-{number}"))

    def erase() -> None:
        for number in range(12):
            with suppress(Held):
                redact(store, Target(f"run-{number}"), reason="asked", by=BY)

    def hold() -> None:
        for number in range(12):
            set_hold(other, f"case-{number}", f"run-{number}", BY)

    in_threads(erase, hold)
    held: set[str] = set()
    runs = dict(store.rows("SELECT position, run_id FROM events"))
    for event in store.events(LEDGER_RUN_ID):
        assert event.type in {"LedgerCreated", "ContentRedacted", "LegalHoldSet"}
        if event.type == "LegalHoldSet":
            held.add(event.payload["run_id"])  # type: ignore[union-attr]
        elif event.type == "ContentRedacted":
            assert held.isdisjoint(runs[position] for position in event.payload["positions"])  # type: ignore[union-attr]
    assert len(held) == 12


def in_threads(*works: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result()


# --- holds and the floor -------------------------------------------------------------------


def test_a_hold_is_set_once_and_lifted_once(store: Store) -> None:
    store.append(told())
    receipt = set_hold(store, "case-1", "r1", BY)
    with pytest.raises(HoldInForce, match=f"case-1 is in force already, on run r1, since {receipt.recorded_at}"):
        set_hold(store, "case-1", None, BY)
    with pytest.raises(HoldNotInForce, match="no hold case-2; in force: case-1"):
        lift_hold(store, "case-2", BY)
    assert lift_hold(store, "case-1", BY).run_id == "r1"
    with pytest.raises(HoldNotInForce, match="lifted already"):
        lift_hold(store, "case-1", BY)
    set_hold(store, "case-1", None, BY)
    assert [hold.lifted_position is None for hold in read_keeping(store).holds] == [False, True]
    assert read_keeping(store).version == store.version(LEDGER_RUN_ID) == 4


@pytest.mark.parametrize("run_id", ["r9", LEDGER_RUN_ID])
def test_a_hold_on_a_run_that_is_not_there_is_refused(store: Store, run_id: str) -> None:
    with pytest.raises(RunNotFound):
        set_hold(store, "case-1", run_id, BY)
    assert store.head().size == 1


def test_a_hold_is_set_by_one_of_many_who_try_at_once(store: Store, other: Store) -> None:
    outcomes: list[str] = []

    def attempt(through: Store) -> None:
        for number in range(10):
            try:
                set_hold(through, f"case-{number}", None, BY)
                outcomes.append("set")
            except HoldInForce:
                outcomes.append("there")

    in_threads(lambda: attempt(store), lambda: attempt(other))
    assert sorted(outcomes) == ["set"] * 10 + ["there"] * 10


def test_a_floor_is_lowered_only_with_a_reason(store: Store) -> None:
    assert set_retention(store, 365, BY) == 0
    assert set_retention(store, 365, BY) is None
    with pytest.raises(FloorRefused, match="say why"):
        set_retention(store, 30, BY)
    assert set_retention(store, 30, BY._replace(note="the law changed")) == 365
    assert [floor.days for floor in read_keeping(store).floors] == [365, 30]
    days = [event.payload for event in store.events(LEDGER_RUN_ID) if event.type == RetentionSet.TYPE]  # type: ignore[union-attr]
    assert days == [{"days": 365}, {"days": 30}]


@pytest.mark.parametrize("days", [-1, MAX_DAYS + 1])
def test_a_floor_out_of_range_is_refused(store: Store, days: int) -> None:
    with pytest.raises(FloorRefused):
        set_retention(store, days, BY)


# --- what would keep a copy ----------------------------------------------------------------


def test_a_trigger_that_keeps_what_is_erased_is_named_before_anything_is_erased(store: Store) -> None:
    store.append(told())
    kept = remaining(store)
    with owner(store.url or "") as connection:
        connection.exec_driver_sql("CREATE TABLE stash (p bigint, b text)")
        put_foreign_trigger(connection, "INSERT INTO stash VALUES (OLD.position, OLD.body)")
    for work in (lambda: survey(store, Target("r1")), lambda: redact(store, Target("r1"), reason="asked", by=BY)):
        with pytest.raises(ForeignTriggers, match=r"a trigger that is not ours: zz on contents.*drop it") as refused:
            work()
        assert refused.value.exit_code == 1
    assert remaining(store) == kept
    assert redacted_in_events(store) == []
    assert list(store.rows("SELECT * FROM stash")) == []
    with owner(store.url or "") as connection:
        connection.exec_driver_sql("DROP TRIGGER zz" + (" ON contents" if store.dialect == "postgresql" else ""))
    assert redact(store, Target("r1"), reason="asked", by=BY).contents == len(kept)
    assert list(store.rows("SELECT * FROM stash")) == []
