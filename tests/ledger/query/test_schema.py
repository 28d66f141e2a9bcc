"""The tables that a question may use: the same on both databases, and as the code describes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledger.query import Question, ask
from ledger.query.schema import KINDS, TABLES, TableInfo, tables
from ledger.tables import PROJECTION_TABLES, PROJECTION_VIEWS, RECORD_TABLES
from tests.ledger.query.conftest import Asks
from tests.ledger.query.scene import make
from tests.ledger.store.making import plain_sql

NAMED_IN_THE_DOCS = (
    "runs",
    "requests",
    "model_calls",
    "results",
    "failures",
    "token_usage",
    "events",
    "reports",
    "redactions",
)
ON_POSTGRES = {
    "text": "text",
    "bigint": "integer",
    "integer": "integer",
    "boolean": "flag",
    "timestamp with time zone": "time",
    "bytea": "bytes",
}
CATALOGUE = """
SELECT c.relname::text, c.relkind = 'v', obj_description(c.oid), a.attname::text, format_type(a.atttypid, NULL),
  NOT a.attnotnull, col_description(c.oid, a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0
  AND c.relname <> 'alembic_version'
ORDER BY c.relname, a.attnum
"""


def test_every_table_and_view_of_a_ledger_is_described() -> None:
    assert set(TABLES) == {*RECORD_TABLES, *PROJECTION_TABLES, *PROJECTION_VIEWS}
    assert set(NAMED_IN_THE_DOCS) <= set(TABLES)
    assert [table.name for table in tables()] == list(TABLES)


@pytest.mark.parametrize("table", list(tables()), ids=TABLES)
def test_each_column_says_what_it_means(table: TableInfo) -> None:
    assert table.comment
    for column in table.columns:
        assert column.comment
        assert column.kind in KINDS


def test_both_databases_have_the_described_names_kinds_and_comments(asked_url: str) -> None:
    described = {table.name: table for table in tables()}
    with plain_sql(asked_url) as run:
        if asked_url.startswith("sqlite"):
            kinds = {"TEXT": "text", "INTEGER": "integer", "BOOLEAN": "flag", "BLOB": "bytes"}
            for name, table in described.items():
                found = run(f"SELECT name, type, \"notnull\" FROM pragma_table_info('{name}')")
                assert [column for column, _, _ in found] == [column.name for column in table.columns], name
                if not table.is_view:  # of a view's columns SQLite knows no kind
                    told = [
                        ("text" if column.kind == "time" else column.kind, column.nullable) for column in table.columns
                    ]
                    assert [(kinds[kind], not notnull) for _, kind, notnull in found] == told, name
            return
        rows = run(CATALOGUE)
    found_tables = {row[0]: (row[1], row[2]) for row in rows}
    assert found_tables == {name: (table.is_view, table.comment) for name, table in described.items()}
    for name, table in described.items():
        columns = [(row[3], ON_POSTGRES[row[4]], row[6]) for row in rows if row[0] == name]
        assert columns == [(column.name, column.kind, column.comment) for column in table.columns], name
        if not table.is_view:
            assert [row[5] for row in rows if row[0] == name] == [column.nullable for column in table.columns]


def test_the_kinds_of_a_views_columns_are_those_of_its_values_on_both_databases(asks: Asks, asked_url: str) -> None:
    forms = {"text": str, "integer": int, "time": str, "flag": int if asked_url.startswith("sqlite") else bool}
    for table in tables():
        names = [column.name for column in table.columns]
        for row in asks(f"SELECT {', '.join(names)} FROM {table.name}"):
            for column, value in zip(table.columns, row, strict=True):
                assert column.nullable or value is not None, (table.name, column.name)
                expected = forms.get(column.kind, bytes)
                assert value is None or type(value) is expected, (table.name, column.name, value)
                if column.kind == "time" and value is not None:
                    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value)


DRAWN_ANEW = {
    "events": ("event_id", "content_commitment", "leaf_hash"),
    "contents": ("salt",),
    "ledger_head": ("root", "frontier"),
}


def test_the_same_story_gives_the_same_rows_of_every_table_on_both_databases(postgres_url: str, tmp_path: Path) -> None:
    urls = (f"sqlite:///{tmp_path / 'ledger.db'}", postgres_url)
    for url in urls:
        make(url)
    for table in tables():
        names = [column.name for column in table.columns if column.name not in DRAWN_ANEW.get(table.name, ())]
        answers = []
        for url in urls:
            with ask(url, Question(f"SELECT {', '.join(names)} FROM {table.name}")) as answer:
                assert answer.columns == tuple(names)
                answers.append(sorted(answer.rows, key=lambda row: [str(value) for value in row[:3]]))
        assert answers[0] == answers[1], table.name  # 0 and 1 equal false and true
