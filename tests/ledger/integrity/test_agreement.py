"""The quick way to a verdict and the slow one agree, whatever was done to a ledger."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ledger.events import EVENT_TYPES, NewEvent
from ledger.integrity import derived, pool, slices, verify
from ledger.integrity.bulk import Off, _envelopes, check_page
from ledger.integrity.canonical import CanonicalError, encode_payload
from ledger.integrity.slices import check_slice
from ledger.projections import rebuild
from ledger.projections.stored import stored_total
from ledger.projections.tables import fold
from ledger.projections.tally import KEY_BYTES, Tally, Unusual
from ledger.shapes import conform
from ledger.store import Store, open_store
from ledger.store.errors import LedgerError
from ledger.store.records import Record
from ledger.tables import PROJECTION_TABLES
from tests.ledger.integrity.judging import judged, places
from tests.ledger.integrity.small import ORIGIN, build, clean_run, opened
from tests.ledger.integrity.tampering import tamper
from tests.stories import story

KEY = bytes(range(KEY_BYTES))

# --- whatever was done ---------------------------------------------------------------------

COLUMNS = {
    "events": (
        *("event_id", "type", "schema", "run_id", "run_version", "request_id", "request_version", "recorded_at"),
        *("payload", "payload_sha256", "content_commitment", "leaf_hash", "position"),
    ),
    "contents": ("position", "salt", "encoding", "body"),
    "redactions": ("position", "event_position"),
    "tree_nodes": ("level", "node_index", "hash"),
    "ledger_head": ("format", "size", "root", "frontier", "recorded_at"),
    "runs": ("run_id", "state", "lines", "failures", "started_at", "ended_position"),
    "requests": (
        *("run_id", "request_id", "line", "outcome", "error", "first_error", "outcome_unknown", "turn", "risk_level"),
        *("requires_human_approval", "allowances", "decided_position", "accepted_position", "decided_at"),
    ),
    "model_calls": (
        *("request_id", "attempt", "state", "turn", "code", "http_status", "prompt_tokens", "wait_ms", "model"),
        *("finished_position", "started_position", "quote_withheld", "outcome_unknown"),
    ),
    "failures": ("position", "code", "line", "detail", "request_id"),
}
VALUES: tuple[Any, ...] = (
    *(None, 0, 1, 2, -1, 7, 303, 1.5, float("inf"), "", "x", "INC-2", "run-1", "run-2", "null", "true", '"'),
    *("2026-11-30T20:42:00.000000Z", b"", b"\xff", b"h" * 32, "0" * 64, "fallback", "answered", "{}", "[]"),
)
ROWIDS = {"tree_nodes", "runs", "requests", "model_calls"}


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A statement that changes, removes, doubles or swaps something of one row or two."""
    table = draw(st.sampled_from(sorted(COLUMNS)))
    column = draw(st.sampled_from(COLUMNS[table]))
    nth, other = draw(st.integers(0, 400)), draw(st.integers(0, 400))
    key = {"tree_nodes": "level", "runs": "run_id", "requests": "request_id", "model_calls": "request_id"}.get(
        table, "id" if table == "ledger_head" else "position"
    )
    of_row = f"{key} = (SELECT {key} FROM {table} ORDER BY 1 LIMIT 1 OFFSET :nth % (SELECT count(*) FROM {table}))"
    kind = draw(st.sampled_from(["value", "value", "value", "other row", "delete", "append"]))
    if kind == "delete" and table != "ledger_head":
        return f"DELETE FROM {table} WHERE {of_row}", {"nth": nth}
    if kind == "other row":
        taken = f"(SELECT {column} FROM {table} ORDER BY 1 LIMIT 1 OFFSET :to % (SELECT count(*) FROM {table}))"
        return f"UPDATE {table} SET {column} = {taken} WHERE {of_row}", {"nth": nth, "to": other}
    if kind == "append":
        added = draw(st.sampled_from("x 0\0é"))
        return f"UPDATE {table} SET {column} = {column} || :to WHERE {of_row}", {"nth": nth, "to": added}
    return f"UPDATE {table} SET {column} = :to WHERE {of_row}", {"nth": nth, "to": draw(st.sampled_from(VALUES))}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger without guards, for owners of the database to do as they please with."""
    path = tmp_path_factory.mktemp("agreement") / "original.db"
    build(f"sqlite:///{path}")
    with opened(f"sqlite:///{path}", "write") as store:
        store.append(story(Random(11), run_id="run-3"))
    tamper(f"sqlite:///{path}")
    return path


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one block, so that a small ledger has several."""
    for module in (slices, pool, verify):
        monkeypatch.setattr(module, "SLICE", 256)


@given(st.lists(mutations(), min_size=1, max_size=2))
@settings(max_examples=40, deadline=None)
@pytest.mark.timeout(900)
def test_any_mutation_gets_the_same_verdict_quickly_and_slowly(
    original: Path, changes: list[tuple[str, dict[str, Any]]]
) -> None:
    path = original.with_name("mutated.db")
    shutil.copyfile(original, path)
    database = sqlite3.connect(path, isolation_level=None)
    before = dump(database)
    for statement, values in changes:
        try:
            database.execute(statement, values)
        except sqlite3.Error:  # a key that is there already, a null where there may be none
            continue
    altered = dump(database) != before
    database.close()
    verdict = judged(f"sqlite:///{path}")
    assert verdict.result == ("FAIL" if altered else "INCOMPLETE")


def dump(database: sqlite3.Connection) -> list[Any]:
    database.text_factory = bytes  # text may have become something else
    return [database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in COLUMNS]


def test_slices_joined_in_order_give_what_one_gives(original: Path, small_slices: None) -> None:
    for jobs in (1, 2):
        assert judged(f"sqlite:///{original}", jobs=jobs).findings == ()


def test_slices_are_shared_among_processes_on_either_database(url: str, small_slices: None) -> None:
    """The processes open the ledger by themselves."""
    assert judged(url, jobs=2).findings == ()
    tamper(url, "UPDATE contents SET body = 'x' WHERE position = 270")
    assert places(list(judged(url, jobs=2).findings)) == {(270, "content", "edited")}


def test_a_process_that_is_killed_leaves_its_slices_to_the_others(
    original: Path, small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_check", _die)
    assert judged(f"sqlite:///{original}", jobs=2).findings == ()


def _die(_first: int, _last: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE contents SET body = 'x' WHERE position = 270",
        "DELETE FROM events WHERE position = 100",
        "DELETE FROM events WHERE position BETWEEN 250 AND 300",
        "UPDATE tree_nodes SET hash = x'00'",
        "UPDATE events SET recorded_at = '2091-01-01T00:00:00.000000Z' WHERE position = 256",
        "UPDATE events SET run_version = 9999 WHERE position = 300",
        "UPDATE requests SET error = 'x' WHERE request_id = 'INC-9'",
    ],
)
def test_what_is_wrong_in_one_slice_is_named_as_if_there_were_no_slices(
    original: Path, tmp_path: Path, small_slices: None, statement: str, jobs: int
) -> None:
    path = tmp_path / "copy.db"
    shutil.copyfile(original, path)
    tamper(f"sqlite:///{path}", statement)
    assert judged(f"sqlite:///{path}", jobs=jobs).result == "FAIL"


def test_the_quick_way_is_gone_where_nothing_is_wrong(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all of this would hold of the slow way alone."""

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("the slow way was taken")

    monkeypatch.setattr(verify.Walk, "read", refuse)
    monkeypatch.setattr(derived, "_check_rows", refuse)
    with opened(f"sqlite:///{original}", "read") as store:
        assert verify.verify(store).findings == ()


# --- pages ---------------------------------------------------------------------------------


def test_a_value_that_looks_alike_when_written_out_is_not_taken_for_another(tmp_path: Path) -> None:
    """Null and the text null, 1 and the text 1: the template writes them alike."""
    with opened(f"sqlite:///{tmp_path / 'l.db'}", "create") as store:
        store.append(clean_run("run-1", 2))
        rows = list(store.rows(slices._ROWS_SQL, {"at": 0, "end": 5}))
    check_page(rows, 1, ORIGIN)
    for at, value in ((0, "1"), (3, "1"), (5, "1"), (7, "null"), (7, 1.0), (16, 1), (9, rows[0][9].encode())):
        for row in range(len(rows)):
            changed = [list(each) for each in rows]
            if changed[row][at] == value and type(changed[row][at]) is type(value):
                continue
            changed[row][at] = value
            with pytest.raises(Off):
                check_page(list(map(tuple, changed)), 1, ORIGIN)


def test_an_origin_that_would_need_escapes_is_not_hashed_by_a_template(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'l.db'}", "create") as store:
        rows = list(store.rows(slices._ROWS_SQL, {"at": 0, "end": 1}))
    for origin in ('a"b', "a\\b", "a\nb", "é"):
        (row,) = rows
        (envelope,) = _envelopes(Record._make([[value] for value in row]), origin)
        leaf = hashlib.sha256(b"\x00" + envelope.encode()).digest()
        with pytest.raises(Off):
            check_page([(*row[:12], leaf, *row[13:])], 1, origin)


# --- payloads ------------------------------------------------------------------------------


def payloads() -> list[NewEvent]:
    return [event for seed in range(60) for event in story(Random(seed))]


PAYLOADS = payloads()
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, -1, 2**53, 2**53 - 1, 1.0, 1.5, "", "low", "x y", "é", "a\0b", "x" * 201, "INC-1"),
    *([], [1], ["x"], {}, {"b": "x", "a": "y"}, {"a": "y"}, {"a": "not an id"}, {"é": "x"}, "-0", ":-", '"', "\\"),
)


@given(st.sampled_from(PAYLOADS), st.integers(0, 40), st.sampled_from(ODD))
@settings(max_examples=400, deadline=None)
def test_payloads_that_conform_are_of_their_types_form_and_canonical(event: NewEvent, at: int, value: Any) -> None:
    payload = dict(event.payload)
    names = sorted(payload)
    payload[names[at % len(names)]] = value
    try:
        raw = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
        read = orjson.loads(raw)
    except (TypeError, ValueError):
        return
    if conform(event.type, [read], [raw]):
        EVENT_TYPES[event.type].__pydantic_validator__.validate_python(read)
        assert encode_payload(read) == raw
    else:
        assert not is_sound(event.type, read, raw)


def is_sound(type_: str, payload: Any, raw: bytes) -> bool:
    """Is it sound by pydantic and the encoder, leaving aside that pydantic takes true for 1 among literals?"""
    try:
        EVENT_TYPES[type_].__pydantic_validator__.validate_python(payload)
        return encode_payload(payload) == raw and type(payload.get("turn", 1)) in (int, type(None))
    except (ValidationError, CanonicalError):
        return False


BENT = (b" ", b"\n", b"\t", b"-0", b"-", b"0", b'"turn":1,', b"\\u0061", b"\\/", b"e0", b".0")


@given(st.sampled_from(PAYLOADS), st.data())
@settings(max_examples=300, deadline=None)
def test_json_in_another_form_never_conforms(event: NewEvent, data: st.DataObject) -> None:
    raw = event.payload_json
    at = data.draw(st.integers(0, len(raw)))
    put = data.draw(st.sampled_from(BENT))
    bent = raw[:at] + put + raw[at:]
    try:
        read = orjson.loads(bent)
    except ValueError:
        return
    if not isinstance(read, dict):
        return
    try:
        canonical = encode_payload(read) == bent
    except CanonicalError:
        canonical = False
    assert not conform(event.type, [read], [bent]) or canonical


def test_every_payload_of_a_story_conforms() -> None:
    for event in PAYLOADS:
        assert conform(event.type, [orjson.loads(event.payload_json)], [event.payload_json]), event


def test_a_name_twice_does_not_conform() -> None:
    raw = b'{"code":"x","code":"y","turn":1}'
    assert not conform("Retried", [orjson.loads(raw)], [raw])


# --- projections ---------------------------------------------------------------------------


def agrees(store: Store) -> bool:
    tally = Tally(KEY)
    size = store.head().size
    for first in range(1, size + 1, 37):
        checked = check_slice(store, store.head().origin, first, min(first + 36, size), KEY)
        assert checked.whole is not None
        if checked.fold is None:
            raise Unusual
        tally.join(checked.fold)
    return tally.agrees(stored_total(store, KEY, table) for table in PROJECTION_TABLES)


@pytest.fixture(scope="module")
def append_story(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Store]:
    folder = tmp_path_factory.mktemp("tally")

    with open_store(f"sqlite:///{folder / 'empty.db'}", "create", fold=fold):
        pass

    def made(seed: int) -> Store:
        path = folder / "l.db"
        for old in folder.glob("l.db*"):
            old.unlink()
        shutil.copyfile(folder / "empty.db", path)
        store = open_store(f"sqlite:///{path}", "write", fold=fold)
        store.append(story(Random(seed), run_id="run-1"))
        store.append(story(Random(seed + 1000), run_id="run-2"))
        return store

    return made


@given(st.integers(0, 900), st.integers(0, 400), st.sampled_from(VALUES), st.data())
@settings(max_examples=80, deadline=None)
@pytest.mark.timeout(900)
def test_sums_agree_exactly_where_rows_do(
    append_story: Callable[[int], Store], seed: int, nth: int, value: Any, data: st.DataObject
) -> None:
    with append_story(seed) as store:
        assert agrees(store)
        assert rebuild.check(store) == []
        table = data.draw(st.sampled_from(["runs", "requests", "model_calls", "failures"]))
        column = data.draw(st.sampled_from(COLUMNS[table]))
        ((rows,),) = store.rows(f"SELECT count(*) FROM {table}")
        if not rows:
            return
        keys = {"runs": "run_id", "failures": "position"}.get(table, "run_id, request_id")
        where = f"({keys}) = (SELECT {keys} FROM {table} ORDER BY 1, 2 LIMIT 1 OFFSET {nth % rows})"
        if keys.count(",") == 0:
            where = f"{keys} = (SELECT {keys} FROM {table} ORDER BY 1 LIMIT 1 OFFSET {nth % rows})"
        try:
            with store.exclusively() as transaction:
                transaction.execute(f"UPDATE {table} SET {column} = :value WHERE {where}", {"value": value})
        except LedgerError:  # a key that is there already
            return
        same = rebuild.check(store) == []
        try:
            assert agrees(store) == same
        except Unusual:
            assert not same


def test_the_rows_of_a_run_that_was_blocked_and_started_again_are_added_up_quickly(tmp_path: Path) -> None:
    again = [seed for seed in range(400) if [e.type for e in story(Random(seed))].count("RunStarted") > 1]
    assert len(again) > 5
    with opened(f"sqlite:///{tmp_path / 'l.db'}", "create") as store:
        for seed in again[:20]:
            store.append(story(Random(seed), run_id=f"run-{seed}"))
        assert agrees(store)


def test_errors_noted_before_there_is_a_row_are_left_to_the_slow_way(tmp_path: Path) -> None:
    """No runner writes such events, so only the slow way knows what becomes of them."""
    events = clean_run("run-1", 2)
    order = [0, 4, 1, 2, 3, *range(5, len(events))]
    with opened(f"sqlite:///{tmp_path / 'l.db'}", "create") as store:
        store.append([events[at] for at in order])
        with pytest.raises(Unusual):
            agrees(store)
        assert judged(f"sqlite:///{tmp_path / 'l.db'}").findings == ()


def test_a_run_that_went_on_after_its_end_gets_the_same_verdict(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.db'}"
    with opened(url, "create") as store:
        store.append(clean_run("run-1", 2))
        store.append(clean_run("run-1", 2))
    verdict = judged(url)
    assert verdict.findings == ()
    assert any("went on after its end" in sentence for sentence in verdict.unproven)


# --- views ---------------------------------------------------------------------------------


ALTERED_VIEWS = {
    "results": ("q.outcome = 'fallback' AS fallback_used", "FALSE AS fallback_used"),
    "token_usage": ("prompt_tokens, completion_tokens", "1 AS prompt_tokens, completion_tokens"),
    "run_costs": ("calls_without_cost = 0 THEN", "calls > 0 THEN"),
}


@pytest.mark.parametrize("view", ALTERED_VIEWS)
def test_an_altered_view_is_an_altered_projection(url: str, view: str) -> None:
    assert judged(url).findings == ()
    shown, instead = ALTERED_VIEWS[view]
    with opened(url, "read") as store:
        dialect = store.dialect
    (file,) = (Path(__file__).parents[3] / "migrations" / "sql").glob(f"*/{dialect}/{view}.sql")
    made = file.read_text().partition(";")[0]
    assert shown in made
    tamper(url)
    alter(url, f"DROP VIEW {view}", made.replace(shown, instead))
    assert places(list(judged(url).findings)) == {(None, view, "projection altered")}
    alter(url, f"DROP VIEW {view}", made)
    assert judged(url).findings == ()


def alter(url: str, *statements: str) -> None:
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement.replace(":", r"\:")))
    engine.dispose()
