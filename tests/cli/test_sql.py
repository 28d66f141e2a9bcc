"""``sql`` from the command line: what it prints, where to, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.cli.program import PROGRAM, Program, clean_environment
from tests.ledger.query.conftest import asked_url  # noqa: F401 - a fixture
from tests.ledger.query.scene import HOSTILE

NEVER_ENDS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
BLOCKED = "SELECT request_id, proposed_action FROM results WHERE run_id = :run ORDER BY line"


@pytest.fixture
def asking(program: Program, asked_url: str) -> Program:  # noqa: F811
    program.variables["REPLAY_LEDGER_LEDGER"] = asked_url
    return program


def test_in_a_pipe_an_answer_is_csv_that_no_spreadsheet_runs(asking: Program) -> None:
    ended = asking("sql", BLOCKED, "--param", "run=first")
    assert (ended.code, ended.err) == (0, "")
    rows = list(csv.reader(io.StringIO(ended.text, newline="")))
    assert rows == [["request_id", "proposed_action"], ["INC-1", ""], ["INC-2", "'" + HOSTILE], ["INC-3", ""]]
    assert ended.text.endswith('INC-3,""\r\n')


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_has_the_text_as_it_was_written(asking: Program, form: str) -> None:
    ended = asking("sql", BLOCKED, "--param", "run=first", "--format", form)
    rows = ended.json if form == "json" else [json.loads(line) for line in ended.text.split("\n")[:-1]]
    assert [row["proposed_action"] for row in rows] == [None, HOSTILE, ""]


def test_on_a_terminal_an_answer_is_a_table_in_which_nothing_acts(asking: Program) -> None:
    main, side = pty.openpty()
    environment = clean_environment(asking.variables)
    words = [PROGRAM, "sql", BLOCKED, "--param", "run=first"]
    process = subprocess.Popen(words, env=environment, stdin=side, stdout=side, stderr=side)
    os.close(side)
    seen = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(main)
    assert process.wait(timeout=60) == 0
    lines = seen.decode().replace("\r\n", "\n").split("\n")
    assert lines[0].split() == ["request_id", "proposed_action"]
    assert lines[2].split() == ["INC-1", "NULL"]
    assert not set("".join(lines)) & {"\x07", "\x1b", "\u202e"}


def test_a_query_comes_from_an_argument_a_file_or_standard_input(asking: Program, tmp_path: Path) -> None:
    expected = asking("sql", "SELECT run_id FROM runs ORDER BY 1").text
    assert expected == "run_id\r\nfirst\r\nsecond\r\n"
    query = b"\xef\xbb\xbfSELECT run_id\nFROM runs -- all of them\nORDER BY 1;\n"
    (tmp_path / "q.sql").write_bytes(query)
    assert asking("sql", "-f", "q.sql").text == expected
    assert asking("sql", "-f", "-", stdin=query).text == expected
    assert asking("sql", "-", stdin=query).text == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one query"),
        (("SELECT 1", "-f", "x.sql"), "give one query"),
        (("SELECT 1", "--schema"), "--schema stands alone"),
        (("-f", "none.sql"), "none.sql: no such file"),
        (("-f", "bad.sql"), "bad.sql: not UTF-8 text, from byte 9 on"),
        (("SELECT :a", "--param", "a=1", "--param", "a=2"), "--param a is given twice"),
        (("SELECT :a", "--param", "a"), "is not name=value"),
        (("SELECT :a", "--param", "1a=2"), "is not name=value"),
        (("SELECT :a",), "the parameter :a has no value"),
        (("SELECT 1", "--param", "a=1"), "the query has no parameter :a"),
        (("SELECT 1 AS x, 2 AS x", "--format", "json"), "two columns are called x"),
        (("SELECT 1", "--limit", "-1"), "--limit"),
        (("SELECT 1", "--timeout", "0"), "--timeout"),
        (("SELECT nope FROM runs",), "at line 1, column 8\n  SELECT nope FROM runs\n         ^"),
        (("DELETE FROM events",), "only what begins with SELECT"),
        (("SELECT 1; SELECT 2",), "one statement at a time"),
        (("",), "there is no query in this"),
    ],
)
def test_wrong_use_and_broken_sql_end_with_2_and_print_no_data(
    asking: Program, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "bad.sql").write_bytes(b"SELECT '\xff'")
    ended = asking("sql", *words)
    assert (ended.code, ended.out) == (2, b""), ended.err
    assert said in ended.err


def test_an_error_at_the_first_row_leaves_no_header_and_no_file(asking: Program, tmp_path: Path) -> None:
    on_sqlite = asking.variables["REPLAY_LEDGER_LEDGER"].startswith("sqlite")
    broken = "SELECT json('[') AS a" if on_sqlite else "SELECT 1 / (count(*) - 2) AS a FROM runs"
    for words in ((), ("--out", "answer.csv")):
        ended = asking("sql", broken, *words)
        assert (ended.code, ended.out) == (2, b""), ended.err
    assert list(tmp_path.iterdir()) == []


def test_one_call_of_a_function_that_would_take_minutes_is_stopped_in_time_too(asking: Program) -> None:
    if not asking.variables["REPLAY_LEDGER_LEDGER"].startswith("sqlite"):
        pytest.skip("Postgres looks for a cancel within its functions")
    begun = time.monotonic()
    endless = "printf('%.*c', 4000000, 'x') LIKE '%' || printf('%.*c', 20000, 'x') || 'y'"
    ended = asking("sql", f"SELECT {endless}", "--timeout", "1")
    assert (ended.code, ended.out) == (4, b""), ended.err
    assert "no whole answer within 1 s" in ended.err
    assert time.monotonic() - begun < 15


def test_an_answer_is_cut_at_the_limit_and_says_so(asking: Program) -> None:
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1500) SELECT x FROM c"
    cut = asking("sql", many)
    assert (cut.code, len(cut.text.splitlines())) == (3, 1001)
    assert cut.err.startswith("Cut after 1,000 rows: there are more")
    asked_for = asking("sql", many, "--limit", "2", "--format", "json")
    assert (asked_for.code, asked_for.json) == (0, [{"x": 1}, {"x": 2}])
    assert "Cut after 2 rows" in asked_for.err
    for words in (("--limit", "0"), ("--limit", "1500")):
        whole = asking("sql", many, *words)
        assert (whole.code, whole.err, len(whole.text.splitlines())) == (0, "", 1501)


def test_an_answer_is_written_to_a_file_in_the_form_of_its_name(asking: Program, tmp_path: Path) -> None:
    for name, begins in (
        ("a.csv", "run_id\r\n"),
        ("a.json", "[\n{"),
        ("a.jsonl", '{"run_id"'),
        ("a.txt", "run_id\n------"),
    ):
        ended = asking("sql", "SELECT run_id FROM runs", "--out", name)
        assert (ended.code, ended.out) == (0, b"")
        assert (tmp_path / name).read_bytes().decode().startswith(begins)


def test_a_query_that_takes_too_long_is_stopped_and_ends_with_4(asking: Program) -> None:
    ended = asking("sql", NEVER_ENDS, "--timeout", "1")
    assert (ended.code, ended.out) == (4, b"")
    assert "no whole answer within 1 s" in ended.err


def test_ctrl_c_cancels_a_query_in_the_database_too(asking: Program) -> None:
    process = asking.start("sql", NEVER_ENDS + " WHERE x > 0 /* to be cancelled */")
    time.sleep(2.5)
    assert process.poll() is None
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert time.monotonic() - begun < 5
    assert b"Traceback" not in err
    running = """SELECT count(*) AS n FROM pg_stat_activity
      WHERE query LIKE '%to be cancelled%' AND state = 'active' AND pid <> pg_backend_pid()"""
    if asking.variables["REPLAY_LEDGER_LEDGER"].startswith("postgres"):
        assert asking("sql", running, "--format", "json").json == [{"n": 0}]


def test_a_reader_that_has_seen_enough_ends_the_query_quietly(asking: Program) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    process = asking.start("sql", endless, "--limit", "0")
    assert process.stdout is not None
    assert process.stdout.readline() == b"x\r\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_where_there_is_no_ledger_it_ends_with_4(program: Program, tmp_path: Path) -> None:
    ended = program("sql", "SELECT 1")
    assert (ended.code, ended.out) == (4, b"")
    assert "no ledger at" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_4_and_its_password_is_not_printed(program: Program) -> None:
    ended = program("sql", "SELECT 1", "--ledger", "postgresql://me:hunter2hunter2@127.0.0.1:9/none")
    assert ended.code == 4
    assert "hunter2" not in ended.err


def test_what_the_database_says_is_printed_without_what_would_act_on_a_terminal(asking: Program) -> None:
    ended = asking("sql", 'SELECT "\x1b[2J\x07no" FROM runs JOIN nope')
    assert ended.code == 2
    assert not set(ended.err) & {"\x07", "\x1b"}


def test_a_role_is_named_on_postgres(asking: Program, asked_url: str) -> None:  # noqa: F811
    if asked_url.startswith("sqlite"):
        ended = asking("sql", "SELECT 1", "--role", "auditor")
        assert (ended.code, "no roles" in ended.err) == (2, True)
        return
    me = make_url(asked_url).username
    assert asking("sql", "SELECT current_user AS me", "--role", me, "--format", "json").json == [{"me": me}]
    assert asking("sql", "SELECT 1", "--role", "nobody_at_all").code == 2


def test_the_schema_is_told_with_what_each_column_means_and_needs_no_ledger(program: Program) -> None:
    text = program("sql", "--schema")
    assert (text.code, text.err) == (0, "")
    for line in (
        "runs: One row a run, since its last RunStarted",
        "results (view): One row a request",
        "  blocked_by_policy",
    ):
        assert f"\n{line}" in "\n" + text.text
    rows = program("sql", "--schema", "--format", "json").json
    assert {"table": "events", "column": "position", "kind": "integer", "nullable": False} | {
        "comment": "1, 2, 3 ... dense over the ledger"
    } in rows
    assert {row["table"] for row in rows if row["column"] is None} == {row["table"] for row in rows}
    assert program("sql", "--schema", "--out", "schema.csv").out == b""
    assert (program.folder / "schema.csv").read_text().startswith("table,column,kind,nullable,comment")
