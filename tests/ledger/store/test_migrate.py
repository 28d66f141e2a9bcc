"""The schema: what the migrations make is what the models say, on both databases, once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlmodel import SQLModel

import ledger.tables
from ledger.events import LEDGER_RUN_ID, LedgerCreated, new_event
from ledger.integrity.verdict import Findings
from ledger.integrity.views import check_views
from ledger.projections.tables import fold
from ledger.store import open_store
from ledger.store.errors import LedgerError, LedgerNewer, LedgerNotFound, LedgerNotMigrated
from ledger.store.migrate import status, upgrade
from tests.ledger.store.making import Clock, plain_sql
from tests.stories import accepted, call_started, called, started

ROOT = Path(__file__).parents[3]
TABLES = (*ledger.tables.RECORD_TABLES, *ledger.tables.PROJECTION_TABLES)


@contextmanager
def engine_of(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


def facts(inspector: sa.Inspector, table: str) -> dict[str, Any]:
    """What of a table must agree, as the database tells it."""
    columns = inspector.get_columns(table)
    return {
        "columns": [(c["name"], repr(c["type"]), c["nullable"], c.get("comment")) for c in columns],
        "key": inspector.get_pk_constraint(table)["constrained_columns"],
        "unique": sorted((u["name"], u["column_names"]) for u in inspector.get_unique_constraints(table)),
        "checks": sorted((c["name"], c["sqltext"]) for c in inspector.get_check_constraints(table)),
        "indexes": {
            i["name"]: (i["column_names"], {k: str(v) for k, v in i.get("dialect_options", {}).items()})
            for i in inspector.get_indexes(table)
            if "duplicates_constraint" not in i
        },
        "comment": inspector.get_table_comment(table) if inspector.dialect.name == "postgresql" else None,
    }


def test_the_migrated_schema_is_that_of_the_models(begun_url: str) -> None:
    with engine_of(begun_url) as engine, engine.connect() as connection:
        migrated = {table: facts(sa.inspect(connection), table) for table in TABLES}
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []
        texts = stored_texts(connection)
    with plain_sql(begun_url) as sql:
        if begun_url.startswith("sqlite"):
            for view in ledger.tables.PROJECTION_VIEWS:
                sql(f"DROP VIEW {view}")
            for table in TABLES:
                sql(f"DROP TABLE {table}")
        else:
            sql("DROP SCHEMA public CASCADE")
            sql("CREATE SCHEMA public")
    with engine_of(begun_url) as engine, engine.begin() as connection:
        SQLModel.metadata.create_all(connection, tables=[SQLModel.metadata.tables[table] for table in TABLES])
        assert {table: facts(sa.inspect(connection), table) for table in TABLES} == migrated
        assert stored_texts(connection) == texts


def stored_texts(connection: sa.Connection) -> dict[str, Any]:
    """Options that inspection does not tell: WITHOUT ROWID on SQLite, collations on Postgres."""
    if connection.dialect.name == "sqlite":
        sql = "SELECT name, instr(sql, 'WITHOUT ROWID') > 0 FROM sqlite_master WHERE type = 'table'"
    else:
        sql = """
            SELECT table_name || '.' || column_name, collation_name FROM information_schema.columns
            WHERE table_schema = 'public'
        """
    return {name: found for name, found in connection.exec_driver_sql(sql) if name.split(".")[0] in TABLES}


def test_text_sorts_by_code_point_on_both_databases(begun_url: str) -> None:
    with engine_of(begun_url) as engine, engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            assert {c for c in stored_texts(connection).values() if c is not None} == {"C"}
        else:
            assert "COLLATE" not in "".join(
                row[0] for row in connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE type = 'table'")
            )


@pytest.mark.postgresql
@pytest.mark.parametrize("begun_url", ["postgresql"], indirect=True)
def test_each_table_view_and_column_is_commented(begun_url: str) -> None:
    with plain_sql(begun_url) as sql:
        bare = sql("""
            SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname <> 'alembic_version'
              AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid) IS NULL)
        """)
    assert bare == []


def test_the_views_have_the_same_columns_on_both_databases(begun_url: str) -> None:
    with engine_of(begun_url) as engine:
        inspector = sa.inspect(engine)
        views = {v: [c["name"] for c in inspector.get_columns(v)] for v in ledger.tables.PROJECTION_VIEWS}
    assert views == {
        "results": [
            *("run_id", "request_id", "incident_id", "line", "policy_id", "facets", "outcome", "risk_level"),
            *("requires_human_approval", "blocked_by_policy", "retry_used", "fallback_used", "trace_complete"),
            *("error", "first_error", "turn", "allowances", "decided_position", "decided_at"),
            *("proposed_action", "action_plan"),
        ],
        "token_usage": [
            *("run_id", "request_id", "attempt", "model", "prompt_tokens", "completion_tokens", "total_tokens"),
            *("cached_tokens", "reasoning_tokens"),
        ],
        "call_costs": ["run_id", "request_id", "attempt", "model", "currency", "cost_state", "cost_picos"],
        "run_costs": [
            *("run_id", "currency", "calls", "calls_priced", "calls_not_billed", "calls_without_cost", "known"),
            *("total", "prices_sha256"),
        ],
    }


# --- upgrade and status --------------------------------------------------------------------


def test_an_upgrade_makes_a_ledger_and_then_leaves_it_alone(ledger_url: str) -> None:
    with pytest.raises(LedgerNotFound):
        status(ledger_url)
    made = upgrade(ledger_url, origin="audit.example.com/agents")
    assert made == status(ledger_url) == upgrade(ledger_url)
    assert (made.revision, made.program) == ("0002", "0002")
    assert (made.origin, made.size) == ("audit.example.com/agents", 1)
    with open_store(ledger_url, "write") as store:
        assert store.head().origin == "audit.example.com/agents"


def make_older(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of the first schema with a run in it, as the program of that time made it."""
    with monkeypatch.context() as then:
        then.setattr("ledger.store.migrate.SCHEMA_VERSION", "0001")
        then.setattr("ledger.store.schema.SCHEMA_VERSION", "0001")
        with open_store(url, "create", fold=fold, clock=Clock()) as store:
            told = (started(), accepted(1, "INC-1"), call_started(1), called(1))
            named = [payload.TYPE in ("ModelCallStarted", "ModelCalled", "RequestAccepted") for payload in told]
            store.append(
                [
                    new_event(payload, run_id="old", request_id="INC-1" if request else None)
                    for payload, request in zip(told, named, strict=True)
                ]
            )


def test_an_upgrade_brings_an_older_ledger_up_and_leaves_its_rows_alone(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_older(ledger_url, monkeypatch)
    assert status(ledger_url).revision == "0001"
    with pytest.raises(LedgerNotMigrated, match="db upgrade"):
        open_store(ledger_url, "read")
    with plain_sql(ledger_url) as sql:
        rows = {table: sql(f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}
    upgraded = upgrade(ledger_url)
    assert (upgraded.revision, upgraded.size) == ("0002", 5)
    with plain_sql(ledger_url) as sql:
        assert {table: sql(f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES} == rows
        assert sql("SELECT run_id, currency, calls, calls_without_cost, known, total FROM run_costs") == [
            ("old", None, 1, 1, None, None)
        ]
    with open_store(ledger_url, "read") as store:
        found = Findings()
        check_views(store, found)
        assert not found


def test_tables_without_a_ledger_are_not_open_and_an_upgrade_begins_one(ledger_url: str) -> None:
    upgrade(ledger_url)
    with plain_sql(ledger_url) as sql:
        if ledger_url.startswith("sqlite"):
            sql("DROP TRIGGER ledger_head_refuse_delete")
            sql("DROP TRIGGER events_refuse_delete")
        else:
            sql("ALTER TABLE ledger_head DISABLE TRIGGER USER")
            sql("ALTER TABLE events DISABLE TRIGGER USER")
        sql("DELETE FROM ledger_head")
        sql("DELETE FROM events")
    for mode in ("read", "write"):
        with pytest.raises(LedgerNotFound, match="db upgrade"):
            open_store(ledger_url, mode)  # type: ignore[arg-type]
    assert status(ledger_url).origin is None
    assert upgrade(ledger_url).size == 1


def test_a_newer_ledger_has_a_status_and_no_upgrade(begun_url: str) -> None:
    with plain_sql(begun_url) as sql:
        sql("UPDATE alembic_version SET version_num = '0999'")
    assert status(begun_url).revision == "0999"
    with pytest.raises(LedgerNewer, match=r"0999.*0002"):
        upgrade(begun_url)


def test_the_first_event_may_be_given(ledger_url: str) -> None:
    created = new_event(LedgerCreated(format=1, software_version="9", vkey="name+00000000+key"), run_id=LEDGER_RUN_ID)
    with open_store(ledger_url, "create", created=created) as store:
        (event,) = store.events()
    assert event == (1, created.event_id, *event[2:])
    assert dict(created.payload) == event.payload  # type: ignore[union-attr]


def test_a_ledger_that_cannot_begin_leaves_the_database_empty(ledger_url: str) -> None:
    with pytest.raises(LedgerError):
        upgrade(ledger_url, origin="not an origin")
    with pytest.raises(LedgerNotFound, match="empty"):
        open_store(ledger_url, "read")


UPGRADE = """
import sys
from ledger.store.migrate import upgrade
sys.stdin.read(1)
print(upgrade(sys.argv[1]))
"""


def test_three_that_start_at_once_migrate_once(ledger_url: str) -> None:
    command = [sys.executable, "-W", "error", "-c", UPGRADE, ledger_url]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) for _ in range(3)]
    ended = [process.communicate("g", timeout=60) for process in processes]
    assert [(process.returncode, error) for process, (_, error) in zip(processes, ended, strict=True)] == [(0, "")] * 3
    assert len({out for out, _ in ended}) == 1
    with open_store(ledger_url, "read") as store:
        assert [event.type for event in store.events()] == ["LedgerCreated"]


def test_alembic_itself_finds_the_migrations_from_the_projects_settings(begun_url: str) -> None:
    command = [sys.executable, "-m", "alembic", "-x", f"url={begun_url}", "current"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "0002 (head)"
