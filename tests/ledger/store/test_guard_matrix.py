"""Every way SQL has to change a row, tried on every table of the record: all refused, triggers in place.

``test_guards.py`` asks for what each table has of its own; this is the whole matrix of the rest.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator

import psycopg
import pytest

from ledger.store.backend import RECORD_COLUMNS
from tests.ledger.store.making import plain_sql
from tests.ledger.store.test_guards import REFUSED, full, guarded  # noqa: F401 - fixtures

KEYS = {
    "events": "position",
    "contents": "position",
    "redactions": "position",
    "tree_nodes": "level, node_index",
    "checkpoints": "size",
    "ledger_head": "id",
}
A_ROW = {
    "events": "position = 301",
    "contents": "position = 3",
    "redactions": "position = 2",
    "tree_nodes": "level = 1 AND node_index = 0",
    "checkpoints": "size = 10",
    "ledger_head": "id = 1",
}
MAY_MOVE = ("size", "root", "frontier", "recorded_at")
"""Columns of the head that an append changes; there, only what must stay is tried."""

ON_SQLITE = pytest.mark.parametrize("guarded", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("guarded", ["postgresql"], indirect=True)


def fixed(table: str) -> list[str]:
    """The columns that no statement may change, as the migration names them."""
    return [column for column in RECORD_COLUMNS[table] if table != "ledger_head" or column not in MAY_MOVE]


def changed(table: str, column: str) -> str:
    """An assignment that must be refused; on the head one that changes the value, as the row itself may be written."""
    if table != "ledger_head":
        return f"{column} = {table}.{column}"
    return {"id": "id = 2", "origin": "origin = 'mine'", "format": "format = 2"}[column]


def updates(verb: str, table: str) -> Iterator[str]:
    for column in fixed(table):
        yield f"{verb} {table} SET {changed(table, column)}"
    one = changed(table, fixed(table)[-1])
    yield f"{verb} {table} SET {one} WHERE {A_ROW[table]}"
    yield f"{verb} {table} SET {one} FROM (SELECT 1 AS n) AS other"
    yield f"WITH other AS (SELECT 1) {verb} {table} SET {one}"
    yield f"{verb} {table} SET {one} RETURNING *"


def deletes(table: str) -> Iterator[str]:
    yield f"DELETE FROM {table}"
    yield f"DELETE FROM {table} WHERE {A_ROW[table]}"
    yield f"DELETE FROM {table} WHERE {A_ROW[table]} RETURNING *"
    yield f"WITH other AS (SELECT 1) DELETE FROM {table} WHERE {A_ROW[table]}"


def inserts(verb: str, table: str) -> Iterator[str]:
    yield f"{verb} INTO {table} SELECT * FROM {table}"
    yield f"{verb} INTO {table} SELECT * FROM {table} WHERE {A_ROW[table]}"


def upserts(table: str) -> Iterator[str]:
    row = f"INSERT INTO {table} SELECT * FROM {table} WHERE {A_ROW[table]}"
    for column in fixed(table):
        yield f"{row} ON CONFLICT ({KEYS[table]}) DO UPDATE SET {changed(table, column)}"


BOTH = [
    statement
    for table in KEYS
    for statement in (*updates("UPDATE", table), *deletes(table), *inserts("INSERT", table), *upserts(table))
]


def let_through(sql: Callable[[str], object], statements: Iterable[str]) -> list[str]:
    """The statements that were not refused. One test tries many: each takes less time than a test's fixtures."""
    passed = []
    for statement in statements:
        try:
            sql(statement)
        except (sqlite3.Error, psycopg.Error) as error:
            if not re.search(REFUSED, str(error)):
                passed.append(f"{statement}: {error}")
        else:
            passed.append(statement)
    return passed


def test_no_statement_that_both_databases_know_changes_the_record(full: str) -> None:  # noqa: F811
    with plain_sql(full) as sql:
        assert let_through(sql, BOTH) == []


def test_an_insert_that_is_to_do_nothing_on_a_conflict_does_nothing(full: str) -> None:  # noqa: F811
    """Postgres takes it and does nothing, as the fixture sees; SQLite refuses it."""
    with plain_sql(full) as sql:
        tried = [f"INSERT INTO {table} SELECT * FROM {table} WHERE true ON CONFLICT DO NOTHING" for table in KEYS]
        assert let_through(sql, tried) == ([] if "sqlite" in full else tried)


RESOLUTIONS = ("REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK")
ROWIDS = ("rowid", "_rowid_", "oid")
WITH_ROWID = [table for table in KEYS if table != "tree_nodes"]
SQLITE = [
    *(s for t in KEYS for r in RESOLUTIONS for s in (*updates(f"UPDATE OR {r}", t), *inserts(f"INSERT OR {r}", t))),
    *(s for t in KEYS for s in inserts("REPLACE", t)),
    *(f"UPDATE {t} SET {rowid} = 900 WHERE {A_ROW[t]}" for t in WITH_ROWID for rowid in ROWIDS),
    *(f"UPDATE OR REPLACE {t} SET {rowid} = 900 WHERE {A_ROW[t]}" for t in WITH_ROWID for rowid in ROWIDS),
    *(f"DELETE FROM {t} WHERE {rowid} > 0" for t in WITH_ROWID for rowid in ROWIDS),
    *(
        f"{verb} INTO {t} ({rowid}, {columns}) SELECT {rowid}, {columns} FROM {t}"
        for t in WITH_ROWID
        for columns in [", ".join(RECORD_COLUMNS[t][1:])]
        for rowid in ROWIDS
        for verb in ("INSERT", "REPLACE", "INSERT OR REPLACE")
    ),
]


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
@ON_SQLITE
def test_no_statement_that_sqlite_alone_knows_changes_the_record(full: str, recursive: str) -> None:  # noqa: F811
    with plain_sql(full) as sql:
        sql(f"PRAGMA recursive_triggers = {recursive}")
        assert let_through(sql, SQLITE) == []


@ON_SQLITE
def test_no_table_of_the_record_has_a_hidden_row_id(full: str) -> None:  # noqa: F811
    """A rowid that is not the key would be a second name for a row, and a way round what is asked of the key."""
    with plain_sql(full) as sql:
        for table in KEYS:
            ((made,),) = sql("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", table)
            key = [(kind, number) for _, _, kind, _, _, number in sql(f"PRAGMA table_info({table})") if number]
            assert "WITHOUT ROWID" in made or key == [("INTEGER", 1)], made


def on_postgres(table: str) -> Iterator[str]:
    columns = ", ".join(RECORD_COLUMNS[table])
    one = changed(table, fixed(table)[-1])
    merged = changed(table, fixed(table)[-1]).replace(f"{table}.", "t.")
    key = KEYS[table].split(", ", maxsplit=1)[0]
    yield from updates("UPDATE ONLY", table)
    yield f"WITH gone AS (DELETE FROM {table} WHERE {A_ROW[table]} RETURNING *) SELECT count(*) FROM gone"
    yield f"WITH moved AS (UPDATE {table} SET {one} RETURNING *) SELECT count(*) FROM moved"
    yield f"DELETE FROM ONLY {table} USING (SELECT 1) AS other WHERE {A_ROW[table]}"
    yield f"MERGE INTO {table} AS t USING {table} AS s ON t.{key} = s.{key} WHEN MATCHED THEN UPDATE SET {merged}"
    yield f"MERGE INTO {table} AS t USING {table} AS s ON t.{key} = s.{key} WHEN MATCHED THEN DELETE"
    yield f"TRUNCATE {table}"
    yield f"TRUNCATE ONLY {table} CASCADE"
    yield f"TRUNCATE {table} RESTART IDENTITY CASCADE"
    yield f"DO $$ BEGIN EXECUTE 'DELETE FROM {table} WHERE {A_ROW[table]}'; END $$"
    cursor = f"DECLARE c CURSOR FOR SELECT {columns} FROM {table} FOR UPDATE; r record"
    yield f"DO $$ {cursor}; BEGIN OPEN c; FETCH c INTO r; DELETE FROM {table} WHERE CURRENT OF c; END $$"


@pytest.mark.postgresql
@pytest.mark.parametrize("replication_role", ["origin", "replica", "local"])
@ON_POSTGRES
def test_no_statement_that_postgres_knows_changes_the_record_in_any_replication_role(
    full: str,  # noqa: F811
    replication_role: str,
) -> None:
    """A superuser's ``session_replication_role`` switches off triggers that are not ENABLE ALWAYS."""
    with plain_sql(full) as sql:
        sql(f"SET session_replication_role = {replication_role}")
        assert let_through(sql, (*BOTH, *(s for table in KEYS for s in on_postgres(table)))) == []
