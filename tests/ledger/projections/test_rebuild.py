"""The projection tables against a fresh fold: kept inline, compared, and put right."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given

from ledger.events import NewEvent, new_event
from ledger.projections.counts import counts
from ledger.projections.rebuild import Difference, check, rebuild
from ledger.projections.report import report
from ledger.projections.results import results
from ledger.projections.scratch import TABLES, UnreadableEvent
from ledger.projections.tables import fold
from ledger.store import Store, no_fold, open_store
from ledger.store.errors import LedgerMalformed, LedgerReadOnly
from ledger.tables import PROJECTION_TABLES
from tests.stories import accepted, as_events, call_started, counts_told, started, stories, story

RUNS = 12
SEVEN = (
    *("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected"),
    *("not_started", "incomplete"),
)


def with_runs(store: Store) -> Store:
    """The same ledger, with a dozen runs in it."""
    for seed in range(RUNS):
        store.append(story(Random(seed), run_id=f"run-{seed}"))
    return store


@pytest.fixture
def told(store: Store) -> Store:
    return with_runs(store)


@pytest.fixture
def told_either(either: Store) -> Store:
    return with_runs(either)


def change(store: Store, *statements: str) -> None:
    with store.exclusively() as transaction:
        for statement in statements:
            transaction.execute(statement)


def one(store: Store, sql: str) -> Any:
    return next(store.rows(sql))


# --- inline --------------------------------------------------------------------------------


def test_tables_kept_inline_equal_a_fresh_fold_and_their_counts_the_reports(told_either: Store) -> None:
    assert check(told_either) == []
    for seed in range(RUNS):
        run_id = f"run-{seed}"
        asked, made = counts(told_either, run_id), report(told_either, run_id)
        assert asked.model_dump() == {name: made[name] for name in ("requests", *SEVEN)}
        assert made["results"] == sum(1 for _ in results(told_either, run_id))
        said = counts_told(story(Random(seed), run_id=run_id))
        assert said is None or said == asked


def test_the_view_of_results_says_what_the_results_say(told_either: Store) -> None:
    facts = ("request_id", "incident_id", "error", "first_error", "retry_used", "fallback_used", "trace_complete")
    output = ("risk_level", "requires_human_approval", "blocked_by_policy", "proposed_action")
    sql = f"SELECT {', '.join((*facts, *output))}, action_plan FROM results WHERE run_id = :run_id ORDER BY line"
    for seed in range(RUNS):
        run_id = f"run-{seed}"
        viewed = [(*row, json.loads(plan)) for *row, plan in told_either.rows(sql, {"run_id": run_id})]
        assert viewed == [
            (
                *(result[name] for name in facts),
                *(result["model_output"][name] for name in (*output, "action_plan")),
            )
            for result in results(told_either, run_id)
        ]


def test_counts_of_a_run_that_is_not_there_are_zero(store: Store) -> None:
    assert set(counts(store, "run-9").model_dump().values()) == {0}


@pytest.fixture(scope="module")
def append_run() -> Iterator[Callable[[list[NewEvent]], Store]]:
    with open_store("sqlite://", "create", fold=fold) as store:

        def append(events: list[NewEvent]) -> Store:
            with store.exclusively() as transaction:
                for table in TABLES:
                    transaction.execute(f"DELETE FROM {table.name}")
            # The same runs again under other ids: a ledger forgets nothing.
            number = store.head().size
            store.append([event._replace(run_id=f"run-{number}") for event in events])
            return store

        yield append


@given(stories())
def test_whatever_a_run_tells_its_tables_agree_with_its_report(
    append_run: Callable[[list[NewEvent]], Store], events: list[NewEvent]
) -> None:
    store = append_run(events)
    (run_id,) = {run_id for (run_id,) in store.rows("SELECT run_id FROM runs")}
    made = report(store, run_id)
    assert counts(store, run_id).model_dump() == {name: made[name] for name in ("requests", *SEVEN)}
    state, failures = one(store, "SELECT state, failures FROM runs")
    assert state == ("running" if made["outcome"] == "incomplete" else made["outcome"])
    assert failures == "[]" or made["failures"]
    listed = list(results(store, run_id))
    rows = store.rows(
        "SELECT request_id, error, first_error, outcome = 'fallback', risk_level FROM requests"
        " WHERE outcome IS NOT NULL ORDER BY line"
    )
    members = ("request_id", "error", "first_error", "fallback_used")
    assert [tuple(row) for row in rows] == [
        (*(result[member] for member in members), result["model_output"]["risk_level"]) for result in listed
    ]
    tokens = one(store, "SELECT sum(prompt_tokens), sum(cached_tokens) FROM model_calls")
    assert tuple(tokens) == (made["tokens"]["prompt"], made["tokens"]["cached"])
    (errors,) = one(store, "SELECT count(*) FROM failures WHERE type = 'FallbackApplied'")
    assert errors == made["fallback_records"]


@given(stories())
def test_folding_touches_only_rows_of_the_events_own_run(events: list[NewEvent]) -> None:
    for event in as_events(events):
        for made, values in fold(event):
            key = dict(zip(made.key, values[len(values) - len(made.key) :], strict=True))
            assert key.get("run_id", event.run_id) == event.run_id
            assert key.get("request_id", event.request_id) == event.request_id
            assert key.get("position", event.position) == event.position
            assert len(values) == len(made.sets) + len(made.sets_if_null) + len(made.key)
            assert made.table in PROJECTION_TABLES


def test_a_second_start_clears_the_runs_rows_but_not_the_reports_that_were_issued(store: Store) -> None:
    seeds = [
        seed
        for seed in range(400)
        if [event.type for event in story(Random(seed))].count("RunStarted") > 1
        and "ReportIssued" in {event.type for event in story(Random(seed))}
    ]
    for seed in seeds[:5]:
        store.append(story(Random(seed), run_id=f"run-{seed}"))
    assert check(store) == []
    assert one(store, "SELECT count(*) FROM reports") == (5,)
    first_lines = one(
        store,
        "SELECT count(*) FROM requests AS q JOIN runs AS r ON r.run_id = q.run_id"
        " WHERE q.accepted_position < r.started_position",
    )
    assert first_lines == (0,)


# --- compared ------------------------------------------------------------------------------


def test_a_row_that_was_altered_is_named_with_its_columns(told: Store) -> None:
    position, code = one(told, "SELECT position, code FROM failures WHERE code <> 'x' ORDER BY position")
    change(told, f"UPDATE failures SET code = 'x', line = 99 WHERE position = {position}")
    assert check(told) == [Difference("failures", (position,), "altered", ("code", "line"))]
    change(told, f"UPDATE failures SET code = '{code}', line = NULL WHERE position = {position}")


def test_a_flag_and_a_time_that_were_altered_are_seen_on_both_databases(told_either: Store) -> None:
    run_id, request_id = one(told_either, "SELECT run_id, request_id FROM requests ORDER BY run_id, request_id")
    change(
        told_either,
        "UPDATE requests SET outcome_unknown = NOT outcome_unknown, accepted_at = '2026-01-01T00:00:00.000000Z'"
        f" WHERE run_id = '{run_id}' AND request_id = '{request_id}'",
    )
    (difference,) = check(told_either)
    assert difference == Difference("requests", (run_id, request_id), "altered", ("accepted_at", "outcome_unknown"))


def test_a_row_that_was_removed_and_one_that_was_added_are_named(told_either: Store) -> None:
    keys = [
        tuple(row) for row in told_either.rows("SELECT run_id, request_id FROM requests ORDER BY run_id, request_id")
    ]
    run_id, request_id = keys[3]
    change(
        told_either,
        f"DELETE FROM requests WHERE run_id = '{run_id}' AND request_id = '{request_id}'",
        "INSERT INTO reports (position, run_id, kind, format, projection, renderer_version, as_of_position, sha256,"
        " actor, recorded_at) VALUES (999999, 'run-1', 'report', 'json', 'report/1', 1, 1, 'ff', 'me',"
        " '2026-11-30T20:42:00.000000Z')",
    )
    assert check(told_either) == [
        Difference("requests", (run_id, request_id), "missing"),
        Difference("reports", (999999,), "extra"),
    ]


def test_no_more_differences_are_listed_than_asked_for(told: Store) -> None:
    change(told, "DELETE FROM model_calls")
    assert len(check(told, limit=5)) == 5


def test_a_check_needs_read_access_alone_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_store(f"sqlite:///{path}", "create", fold=fold) as store:
        store.append(story(Random(1)))
        change(store, "UPDATE runs SET state = 'odd'")
    before = path.read_bytes()
    with open_store(f"sqlite:///{path}", "read") as store:
        assert check(store) == [Difference("runs", ("run-1",), "altered", ("state",))]
        with pytest.raises(LedgerReadOnly):
            rebuild(store)
    assert path.read_bytes() == before


def test_a_value_of_another_type_in_a_key_does_not_stop_the_comparison(tmp_path: Path) -> None:
    """SQLite lets a blob into a text column and text into a number's."""
    path = tmp_path / "ledger.db"
    with open_store(f"sqlite:///{path}", "create", fold=fold) as store:
        store.append(story(Random(1)))
        change(
            store,
            "INSERT INTO model_calls (run_id, request_id, attempt, turn, state, started_position, started_at,"
            " sent_bytes, quote_withheld) VALUES (x'ff', 7, 'one', 1, 'started', 1, 'never', 1, 0)",
        )
        assert check(store) == [Difference("model_calls", (b"\xff", "7", "one"), "extra")]


# --- put right -----------------------------------------------------------------------------


def test_a_rebuild_puts_right_what_differs_and_leaves_the_rest(told_either: Store) -> None:
    size = told_either.head().size
    change(told_either, "UPDATE runs SET state = 'odd'", "DELETE FROM model_calls")
    result = rebuild(told_either)
    assert result.size == size
    assert result.replaced == ("runs", "model_calls")
    assert {difference.table for difference in result.differences} == {"runs", "model_calls"}
    assert check(told_either) == []
    assert rebuild(told_either) == (size, [], ())
    assert told_either.head().size == size


def test_a_ledger_that_was_kept_without_tables_gets_them_by_a_rebuild(ledger_url: str) -> None:
    with open_store(ledger_url, "create", fold=no_fold) as store:
        for seed in range(4):
            store.append(story(Random(seed), run_id=f"run-{seed}"))
        assert {difference.kind for difference in check(store)} == {"missing"}
        rebuild(store)
        assert check(store) == []
    with open_store(ledger_url, "write", fold=fold) as store:
        store.append(story(Random(9), run_id="run-9"))
        assert check(store) == []


def test_what_is_appended_while_a_rebuild_compares_is_not_lost(
    told_either: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is taken after the long comparison: an event that came between is folded under it."""
    change(told_either, "DELETE FROM failures", "DELETE FROM requests")
    exclusively = told_either.exclusively

    def appended_first() -> Any:
        told_either.append(story(Random(99), run_id="run-99"))
        return exclusively()

    monkeypatch.setattr(told_either, "exclusively", appended_first)
    result = rebuild(told_either)
    assert result.size == told_either.head().size
    assert check(told_either) == []
    assert one(told_either, "SELECT count(*) FROM requests WHERE run_id = 'run-99'") > (0,)


def test_what_is_appended_while_a_check_reads_is_no_difference(told: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, appended = told.rows, []

    def appended_first(*arguments: Any) -> Any:
        if not appended:
            appended.append(told.append(story(Random(99), run_id="run-99")))
        return rows(*arguments)

    monkeypatch.setattr(told, "rows", appended_first)
    assert check(told) == []
    assert appended


# --- what cannot be read -------------------------------------------------------------------


def tamper(path: Path, sql: str) -> None:
    """Change the log behind the triggers' back."""
    with sqlite3.connect(path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute(sql)
    database.close()


@pytest.fixture
def tampered(tmp_path: Path) -> Callable[[str], Store]:
    opened: list[Store] = []

    def make(sql: str) -> Store:
        path = tmp_path / "ledger.db"
        with open_store(f"sqlite:///{path}", "create", fold=fold) as store:
            told = [
                (started(), None),
                (accepted(1, "INC-1"), "INC-1"),
                (call_started(1), "INC-1"),
                (call_started(2), "INC-1"),
            ]
            store.append([new_event(payload, run_id="run-1", request_id=request_id) for payload, request_id in told])
        tamper(path, sql)
        opened.append(open_store(f"sqlite:///{path}", "write", fold=fold))
        return opened[-1]

    yield make  # type: ignore[misc]
    for store in opened:
        store.close()


@pytest.mark.parametrize(
    "payload",
    ["{", "[]", "{}", '{"attempt":1}', '{"attempt":"1","body_bytes":240,"quote_withheld":false,"turn":1}'],
)
def test_a_rebuild_stops_at_an_event_that_cannot_be_read_and_the_report_lists_it(
    tampered: Callable[[str], Store], payload: str
) -> None:
    store = tampered(f"UPDATE events SET payload = '{payload}' WHERE position = 4")
    with pytest.raises(UnreadableEvent, match="event 4 cannot be read") as raised:
        rebuild(store)
    assert (raised.value.position, raised.value.exit_code) == (4, 1)
    made = report(store, "run-1")
    assert (made["unreadable"], made["failures"], made["valid"]) == (1, ["unreadable:4"], False)
    assert (made["incomplete"], made["calls"]["started"]) == (1, 1)


def test_events_that_contradict_one_another_are_an_error_in_words(tampered: Callable[[str], Store]) -> None:
    store = tampered("UPDATE events SET payload = (SELECT payload FROM events WHERE position = 4) WHERE position = 5")
    with pytest.raises(LedgerMalformed, match="up to position 5 contradict one another"):
        check(store)
