"""A database that lost, or never had, what a verifier needs: it says FAIL and why, and does not just give up."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from ledger.events import new_event
from ledger.integrity.verdict import MAX_LISTED, Verdict
from ledger.integrity.verify import verify
from ledger.projections.tables import fold
from ledger.store import open_store
from ledger.store.errors import LedgerError, LedgerMalformed, LedgerNewer, LedgerNotFound, NotALedger
from tests import stories
from tests.ledger.integrity.small import build
from tests.ledger.integrity.tampering import Copies, owner, put_foreign_trigger, tamper


def execute(url: str, *statements: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def judged(url: str) -> Verdict:
    with open_store(url, "read", fold=fold, even_damaged=True) as store:
        verdict = verify(store)
    assert all(line.isprintable() for line in verdict.lines())
    assert json.loads(json.dumps(verdict.as_dict()))["verdict"] == verdict.result
    return verdict


def failed(url: str) -> set[tuple[str, str]]:
    verdict = judged(url)
    assert (verdict.result, verdict.exit_code) == ("FAIL", 1)
    return {(finding.member, finding.kind) for finding in verdict.findings}


def program(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "verify", "--ledger", url, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# --- the head ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("size = size - 3", ("ledger_head", "edited")),
        ("size = size + 5", ("events", "truncated")),
        ("size = -1", ("ledger_head", "edited")),
        ("frontier = ''", ("ledger_head", "edited")),
    ],
)
def test_a_head_of_another_size_or_frontier_fails(url: str, change: str, place: tuple[str, str]) -> None:
    tamper(url, f"UPDATE ledger_head SET {change}")
    assert place in failed(url)


@pytest.mark.parametrize("member", ["format", "size", "root", "frontier", "recorded_at", "origin"])
def test_a_head_with_a_value_of_a_wrong_kind_fails(file_url: str, member: str) -> None:
    value = "'abc'" if member in ("format", "size", "root", "frontier") else "x'ff00'"
    tamper(file_url, f"UPDATE ledger_head SET {member} = {value}")
    assert ("ledger_head", "edited") in failed(file_url)
    verdict = judged(file_url)
    assert (verdict.size, verdict.root) == (None, None)
    assert verdict.events == (0 if member == "origin" else 303)


def test_a_damaged_event_is_found_under_a_damaged_head(file_url: str) -> None:
    tamper(file_url, "UPDATE ledger_head SET size = 'abc'", "UPDATE contents SET body = 'x' WHERE position = 3")
    assert {("ledger_head", "edited"), ("content", "edited")} <= failed(file_url)


def test_a_head_that_is_gone_fails_and_nobody_is_told_to_upgrade(url: str) -> None:
    tamper(url, "DELETE FROM ledger_head")
    assert ("ledger_head", "removed") in failed(url)
    for mode in ("read", "write"):
        with pytest.raises(LedgerMalformed, match="head is gone") as caught:
            open_store(url, mode)
        assert "upgrade" not in str(caught.value)


def test_tables_that_nothing_was_ever_written_to_are_no_ledger_yet(file_url: str) -> None:
    tamper(file_url, "DELETE FROM ledger_head", "DELETE FROM events")
    for even_damaged in (False, True):
        with pytest.raises(LedgerNotFound, match="db upgrade"):
            open_store(file_url, "read", even_damaged=even_damaged)


def test_a_damaged_head_is_still_never_appended_to(url: str) -> None:
    tamper(url, "UPDATE ledger_head SET frontier = ''")
    with open_store(url, "write", fold=fold) as store, pytest.raises(LedgerError, match="head is damaged"):
        store.append([new_event(stories.started(), run_id="run-9")])


# --- tables, views, the revision -----------------------------------------------------------


@pytest.mark.parametrize(
    "table", ["runs", "reports", "events", "contents", "redactions", "tree_nodes", "checkpoints", "ledger_head"]
)
def test_a_table_that_is_gone_fails(url: str, table: str) -> None:
    execute(url, f"DROP TABLE {table}" + (" CASCADE" if url.startswith("postgresql") else ""))
    assert (table, "removed") in failed(url)


@pytest.mark.parametrize("view", ["results", "token_usage", "run_costs"])
def test_a_view_that_is_gone_fails(url: str, view: str) -> None:
    execute(url, f"DROP VIEW {view}")
    assert failed(url) == {(view, "removed")}


@pytest.mark.parametrize("view", ["results", "token_usage", "run_costs"])
def test_a_table_in_place_of_a_view_fails_though_it_shows_the_same_rows(url: str, view: str) -> None:
    execute(url, f"CREATE TABLE made_up AS SELECT * FROM {view}")
    execute(url, f"DROP VIEW {view}")
    execute(url, f"ALTER TABLE made_up RENAME TO {view}")
    assert (view, "removed") in failed(url)


@pytest.mark.parametrize("table", ["runs", "reports", "contents"])
def test_a_view_in_place_of_a_table_fails_though_it_shows_the_same_rows(url: str, table: str) -> None:
    execute(url, f"ALTER TABLE {table} RENAME TO hidden")
    execute(url, f"CREATE VIEW {table} AS SELECT * FROM hidden")
    assert (table, "removed") in failed(url)


@pytest.mark.parametrize("table", ["failures", "checkpoints"])
def test_a_column_that_is_gone_fails(url: str, table: str) -> None:
    column = {"failures": "code", "checkpoints": "note"}[table]
    execute(url, f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
    assert (table, "edited") in failed(url)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE alembic_version SET version_num = 'nonsense'", "edited"),
        ("INSERT INTO alembic_version VALUES ('nonsense')", "edited"),
        ("DELETE FROM alembic_version", "removed"),
        ("DROP TABLE alembic_version", "removed"),
        ("ALTER TABLE alembic_version RENAME COLUMN version_num TO other", "edited"),
    ],
)
def test_a_revision_that_is_nonsense_fails_over_tables_that_are_ours(url: str, statement: str, kind: str) -> None:
    execute(url, statement)
    assert failed(url) == {("alembic_version", kind)}
    if "INSERT" not in statement:
        with pytest.raises(LedgerError):
            open_store(url, "write")


def test_a_newer_revision_is_not_judged(url: str) -> None:
    execute(url, "UPDATE alembic_version SET version_num = '0999'")
    with pytest.raises(LedgerNewer):
        judged(url)


def test_another_programs_database_is_not_judged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    execute(url, "CREATE TABLE events (id)", "CREATE TABLE alembic_version (version_num)")
    with pytest.raises(NotALedger):
        judged(url)


# --- the file ------------------------------------------------------------------------------


def overwrite_page_of(url: str, name: str) -> None:
    """Overwrite the root page of an index or a table with 0xff."""
    path = Path(url.removeprefix("sqlite:///"))
    database = sqlite3.connect(path)
    (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


@pytest.mark.parametrize("name", ["reports_sha256", "events_run_started", "events"])
def test_an_overwritten_page_fails(file_url: str, name: str) -> None:
    overwrite_page_of(file_url, name)
    assert ("database file", "edited") in failed(file_url)


def test_a_file_cut_in_half_fails_on_the_command_line_too(file_url: str) -> None:
    path = Path(file_url.removeprefix("sqlite:///"))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    ended = program(file_url, "--json")
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout)["verdict"] == "FAIL"


def test_a_schema_that_cannot_be_read_fails_on_the_command_line_too(file_url: str) -> None:
    database = sqlite3.connect(file_url.removeprefix("sqlite:///"), isolation_level=None)
    database.execute("PRAGMA writable_schema = ON")
    database.execute("UPDATE sqlite_master SET sql = 'CREATE TABLE runs (' WHERE name = 'runs'")
    database.close()
    ended = program(file_url, "--json")
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout)["findings"][0]["member"] == "database file"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command_prints_a_verdict_on_a_ledger_without_a_head(file_url: str, options: tuple[str, ...]) -> None:
    tamper(file_url, "DELETE FROM ledger_head")
    ended = program(file_url, *options)
    assert ended.returncode == 1, ended.stderr
    assert "FAIL" in ended.stdout
    assert "ledger_head" in ended.stdout


# --- the database's own guards -------------------------------------------------------------


def unproven_guards(url: str) -> str:
    """What a verdict says of guards; there is nothing that does not match."""
    verdict = judged(url)
    assert (verdict.result, verdict.findings) == ("INCOMPLETE", ())
    return "".join(sentence for sentence in verdict.unproven if "guards" in sentence)


def test_guards_as_they_were_made_are_not_spoken_of(url: str) -> None:
    assert unproven_guards(url) == ""


def test_guards_that_were_all_dropped_are_named(url: str) -> None:
    tamper(url)
    said = unproven_guards(url)
    names = ("events_refuse_update is missing", "ledger_head_check_update is missing")
    if url.startswith("postgresql"):
        names = ("refuse_change on events is missing", "check_update on ledger_head is missing")
    assert all(name in said for name in names)


def test_a_guard_that_was_made_anew_without_its_teeth_is_named(file_url: str) -> None:
    toothless = "CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events BEGIN SELECT 1; END"
    execute(file_url, "DROP TRIGGER events_refuse_update", toothless)
    assert "events_refuse_update is altered" in unproven_guards(file_url)


def test_a_trigger_that_is_not_ours_does_not_pass(url: str) -> None:
    with owner(url) as connection:
        put_foreign_trigger(connection)
    verdict = judged(url)
    assert (verdict.result, verdict.findings) == ("INCOMPLETE", ())
    assert "a trigger that is not ours: zz on contents" in verdict.unproven


def test_a_trigger_in_capital_letters_or_on_a_view_is_found_and_one_elsewhere_is_not(file_url: str) -> None:
    execute(
        file_url,
        "CREATE TABLE mine (a)",
        "CREATE TRIGGER on_mine AFTER INSERT ON mine BEGIN SELECT 1; END",
        'CREATE TRIGGER "zz\x1b[31m" AFTER INSERT ON EVENTS BEGIN INSERT INTO mine VALUES (1); END',
        "CREATE TRIGGER on_view INSTEAD OF DELETE ON results BEGIN SELECT 1; END",
    )
    named = [said for said in judged(file_url).unproven if "not ours" in said]
    assert named == [
        r"a trigger that is not ours: 'zz\x1b[31m' on EVENTS",
        "a trigger that is not ours: on_view on results",
    ]


def test_of_very_many_triggers_that_are_not_ours_the_first_are_named_and_the_rest_counted(file_url: str) -> None:
    execute(
        file_url, *(f"CREATE TRIGGER z{n:03} AFTER INSERT ON events BEGIN SELECT 1; END" for n in range(MAX_LISTED + 5))
    )
    named = [said for said in judged(file_url).unproven if "not ours" in said]
    assert len(named) == MAX_LISTED + 1
    assert "and 5 more" in named[-1]


@pytest.fixture
def server_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    made = Copies(request, tmp_path, "postgresql")
    build(made.original)
    yield made.original
    made.drop()


@pytest.mark.postgresql
def test_a_guard_that_is_off_or_does_something_else_is_named_on_postgres(server_url: str) -> None:
    execute(
        server_url,
        "ALTER TABLE events DISABLE TRIGGER refuse_change",
        "ALTER TABLE contents ENABLE TRIGGER check_delete",
        "CREATE OR REPLACE FUNCTION ledger_head_check_update() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN NEW; END $$",
    )
    said = unproven_guards(server_url)
    for words in (
        "refuse_change on events is not always enabled",
        "check_delete on contents is not always enabled",
        "check_update on ledger_head is altered",
    ):
        assert words in said
    assert "tree_nodes" not in said


@pytest.mark.postgresql
def test_a_rule_that_is_not_ours_is_named_on_postgres_and_one_elsewhere_is_not(server_url: str) -> None:
    execute(
        server_url,
        "CREATE TABLE mine (a bigint)",
        "CREATE RULE on_mine AS ON DELETE TO mine DO ALSO NOTHING",
        "CREATE RULE zz AS ON DELETE TO contents DO ALSO INSERT INTO mine VALUES (OLD.position)",
    )
    verdict = judged(server_url)
    assert (verdict.result, verdict.findings) == ("INCOMPLETE", ())
    assert [said for said in verdict.unproven if "not ours" in said] == ["a rule that is not ours: zz on contents"]
