"""What a question gets: values, parameters, limits in time, and what is wrong with it in words with a place."""

from __future__ import annotations

import sqlite3
import time
import tracemalloc
from contextlib import closing
from decimal import Decimal
from math import inf
from pathlib import Path

import pytest

from ledger.query import BadQuery, QueryTimeout, Question, ask
from ledger.store.errors import LedgerNewer, LedgerNotFound
from tests.ledger.query.conftest import Asks
from tests.ledger.query.scene import HOSTILE, make

NEVER_ENDS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
CROSS_JOIN = "SELECT count(*) FROM " + ", ".join(f"events AS e{number}" for number in range(8))


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def test_times_are_rfc_3339_bytes_are_bytes_and_null_is_none_on_both_databases(asks: Asks) -> None:
    row = asks("SELECT started_at, candidate_variant_id, lines FROM runs WHERE run_id = 'first'")
    assert row == [("2026-11-30T20:52:00.000000Z", None, 4)]
    ((leaf,),) = asks("SELECT leaf_hash FROM events WHERE position = 1")
    assert isinstance(leaf, bytes)
    assert len(leaf) == 32


def test_flags_are_zero_and_one_on_sqlite_and_booleans_on_postgres(asks: Asks, asked_url: str) -> None:
    ((flag,),) = asks("SELECT blocked_by_policy FROM requests WHERE request_id = 'INC-1' AND run_id = 'first'")
    assert flag == 1
    assert type(flag) is (int if is_sqlite(asked_url) else bool)
    same = "SELECT count(*) FROM results WHERE blocked_by_policy AND NOT fallback_used"
    assert asks(same) == [(2,)]


def test_a_redacted_text_is_null_and_another_is_as_the_model_wrote_it(asks: Asks) -> None:
    sql = "SELECT request_id, proposed_action, action_plan FROM results WHERE run_id = 'first' ORDER BY line"
    assert asks(sql) == [("INC-1", None, None), ("INC-2", HOSTILE, '["inspect","restart"]'), ("INC-3", "", "[]")]


def test_sums_and_numbers_beyond_every_type_keep_their_digits(asks: Asks, asked_url: str) -> None:
    assert asks("SELECT sum(prompt_tokens) FROM token_usage") == [(550,)]
    if not is_sqlite(asked_url):
        ((large, many),) = asks("SELECT 123456789012345678901234567890, 0.1::numeric")
        assert (large, many) == (Decimal("123456789012345678901234567890"), Decimal("0.1"))


def test_what_json_has_no_number_for_comes_as_it_is(asks: Asks, asked_url: str) -> None:
    if is_sqlite(asked_url):
        assert asks("SELECT 9e999, -9e999, 9e999 - 9e999") == [(inf, -inf, None)]
        return
    ((nan, infinite, exact),) = asks("SELECT 'NaN'::float8, 'Infinity'::float4, 'NaN'::numeric")
    assert nan != nan
    assert infinite == inf
    assert exact.is_nan()


def test_other_kinds_of_postgres_come_as_its_own_text(asks: Asks, asked_url: str) -> None:
    if is_sqlite(asked_url):
        pytest.skip("Postgres' own")
    sql = """SELECT ARRAY[1,2], '{"b":1,"a":2}'::json, '2026-11-30'::date, interval '90 minutes', ROW(1, 'a'),
      ARRAY['2026-11-30 20:00Z'::timestamptz], 'infinity'::timestamptz, '0044-03-15 BC'::date, '1 2'::text"""
    (row,) = asks(sql)
    assert row[:5] == ("{1,2}", '{"b":1,"a":2}', "2026-11-30", "PT1H30M", "(1,a)")
    assert row[5:] == ('{"2026-11-30 20:00:00+00"}', "infinity", "0044-03-15 BC", "1 2")


def test_text_that_is_no_utf_8_is_shown_as_escapes_not_refused(asks: Asks, asked_url: str) -> None:
    if not is_sqlite(asked_url):
        pytest.skip("Postgres holds no such text")
    assert asks("SELECT CAST(x'41ff42' AS TEXT)") == [(r"A\xffB",)]


@pytest.mark.parametrize("end", [";", ";;", " ; -- no more;", "; /* ; */ ;", "\n;\n"])
def test_what_follows_the_last_word_is_not_sent(asks: Asks, end: str) -> None:
    assert asks(f"SELECT 1{end}") == [(1,)]


# Parameters


def test_a_parameter_is_compared_as_what_it_is_compared_with(asks: Asks) -> None:
    sql = "SELECT count(*) FROM model_calls WHERE run_id = :run AND duration_us > :us AND http_status = :status"
    assert asks(sql, {"run": "first", "us": "2999999", "status": "200"}) == [(2,)]
    assert asks("SELECT position FROM events WHERE position = :p LIMIT :p", {"p": "2"}) == [(2,)]
    assert asks("SELECT run_id FROM runs WHERE run_id = :r", {"r": "7"}) == []
    assert asks("SELECT run_id FROM runs WHERE started_at < :t", {"t": "2026-11-30T21:00:00.000000Z"}) == [("first",)]


@pytest.mark.parametrize(
    "value", ["007", "1e3", "0x10", "", " 5", "-0", "5.0", "99999999999999999999", "NaN", "é\u202e'"]
)
def test_a_value_that_is_no_plain_whole_number_stays_the_text_it_was(asks: Asks, value: str) -> None:
    assert asks("SELECT CAST(:v AS text)", {"v": value}) == [(value,)]


def test_a_parameter_without_a_value_and_a_value_without_a_parameter_are_told(asks: Asks) -> None:
    with pytest.raises(BadQuery, match=r"the parameter :run has no value \(--param run=...\), at line 2, column 17"):
        asks("SELECT * FROM runs\n WHERE run_id = :run")
    with pytest.raises(BadQuery, match="the query has no parameter :other"):
        asks("SELECT ':other'", {"other": "1"})
    with pytest.raises(BadQuery, match="the value of :a has a character"):
        asks("SELECT :a", {"a": "\0"})


# What is wrong


@pytest.mark.parametrize(
    ("sql", "place", "said"),
    [
        ("SELECT * FORM runs", "line 1, column 10", "syntax error"),
        ("SELECT run_id\nFROM runs\nWHERE WHERE x", "line 3, column 7", "syntax error"),
        ("SELECT nope FROM runs", "line 1, column 8", "nope"),
        ("SELECT 'é', 1 FROM nope", "line 1, column 20", "nope"),
        ("SELECT :value,\n  missing FROM runs", "line 2, column 3", "missing"),
        ("SELECT nope(1)", "line 1, column 8", "nope"),
    ],
)
def test_a_broken_query_is_told_with_its_place_and_its_line(asks: Asks, sql: str, place: str, said: str) -> None:
    params = {"value": "x"} if ":value" in sql else {}
    with pytest.raises(BadQuery) as broken:
        asks(sql, params)
    message, line, caret = str(broken.value).split("\n")
    assert said in message
    assert message.endswith(f", at {place}")
    assert line.strip() in sql
    assert caret.strip() == "^"
    assert line[caret.index("^") :][:4] in sql


def test_a_query_that_stops_too_early_is_told_at_its_end(asks: Asks) -> None:
    with pytest.raises(BadQuery, match="at line 1, column 14"):
        asks("SELECT * FROM")


def test_a_very_long_line_is_shown_in_part(asks: Asks) -> None:
    with pytest.raises(BadQuery) as broken:
        asks(f"SELECT '{'x' * 5000}' FORM runs, '{'x' * 5000}'")
    assert len(str(broken.value)) < 500
    assert "FORM runs" in str(broken.value).split("\n")[1]


def test_an_error_met_while_the_rows_are_read_is_the_querys_own(asks: Asks, asked_url: str) -> None:
    broken = "json_extract('[', '$')" if is_sqlite(asked_url) else "1 / (position - 3)"
    with pytest.raises(BadQuery):
        asks(f"SELECT CASE WHEN position = 3 THEN {broken} ELSE 0 END FROM events ORDER BY position")


def test_a_value_that_would_fill_the_memory_is_refused(asks: Asks, asked_url: str) -> None:
    if is_sqlite(asked_url):
        with pytest.raises(BadQuery, match="too big"):
            asks("SELECT length(hex(zeroblob(100000000)))")


# Time and memory


@pytest.mark.parametrize("sql", [NEVER_ENDS, CROSS_JOIN])
def test_a_query_that_would_run_for_ever_is_stopped_in_time(asks: Asks, sql: str) -> None:
    begun = time.monotonic()
    with pytest.raises(QueryTimeout, match=r"within 0\.5 s") as stopped:
        asks(sql, seconds=0.5)
    assert time.monotonic() - begun < 10
    assert stopped.value.exit_code == 4


def test_the_time_is_one_for_all_rows_and_counts_the_database_alone(asked_url: str) -> None:
    pairs = "events AS a, events AS b, events AS c WHERE a.position + b.position > e.position + c.position"
    slow = f"(SELECT count(*) FROM {pairs})"
    question = Question(f"SELECT e.position, {slow} FROM events AS e, events AS v", seconds=0.6)
    with ask(asked_url, question) as answer, pytest.raises(QueryTimeout):
        for _ in answer.rows:
            pass
    with ask(asked_url, Question("SELECT position FROM events ORDER BY position", seconds=0.5)) as answer:
        next(answer.rows)
        time.sleep(0.7)
        assert len(list(answer.rows)) > 40


def test_rows_are_given_out_before_the_query_has_ended(asked_url: str) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    with ask(asked_url, Question(endless)) as answer:
        assert [next(answer.rows)[0] for _ in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("length", "count"), [(100_000, 1500), (5_000_000, 30)])
def test_many_long_rows_are_read_in_bounded_memory(asked_url: str, length: int, count: int) -> None:
    long = f"printf('%.*c', {length}, 'x')" if is_sqlite(asked_url) else f"repeat('x', {length})"
    numbers = f"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {count})"
    # The first rows are short: what is fetched at once must not go by them alone.
    sql = f"{numbers} SELECT CASE WHEN x > 20 THEN {long} END FROM c"
    tracemalloc.start()
    with ask(asked_url, Question(sql)) as answer:
        total = sum(len(row[0] or "") for row in answer.rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == length * (count - 20)
    assert peak < 150_000_000


# What is asked


def test_where_there_is_no_ledger_there_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(LedgerNotFound), ask(f"sqlite:///{tmp_path / 'none.db'}", Question("SELECT 1")):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LedgerNotFound), ask("sqlite://", Question("SELECT 1")):
        pass


def test_a_newer_ledger_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    make(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(LedgerNewer), ask(f"sqlite:///{path}", Question("SELECT 1")):
        pass


def test_a_question_sees_the_ledger_while_it_is_written_to(tmp_path: Path) -> None:
    from ledger.projections.tables import fold
    from ledger.store import open_store
    from tests.ledger.store.making import started

    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    make(url)
    with (
        open_store(url, "write", fold=fold, accept_clock=True) as store,
        ask(url, Question("SELECT position FROM events")) as answer,
    ):
        next(answer.rows)
        store.append([started("third")])
        assert len(list(answer.rows)) > 40
    with ask(url, Question("SELECT count(*) FROM runs")) as answer:
        assert list(answer.rows) == [(3,)]
