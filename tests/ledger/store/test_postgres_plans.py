"""Postgres finds the rows of a run by their keys while its tables grow, before anything has been analysed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pytest

from ledger.projections.tables import (
    ACCEPT_OUTPUT,
    ANSWER_CALL,
    APPLY_FALLBACK,
    BLOCK_RUN,
    END_RUN,
    FAIL_CALL,
    FINISH_INTAKE,
    NOTE_ERROR,
    NOTE_UNKNOWN,
    fold,
)
from ledger.store import open_store
from ledger.store.backend import LARGEST_ID_SQL
from ledger.store.changes import Change, bulk_statement
from ledger.store.postgres import _REQUEST_VERSIONS_SQL, _RUN_VERSIONS_SQL
from ledger.store.postgres_session import WRITER_SETTINGS
from tests import stories
from tests.ledger.store.making import accepted, call, started

UPDATES = (
    *(ACCEPT_OUTPUT, ANSWER_CALL, APPLY_FALLBACK, BLOCK_RUN, END_RUN),
    *(FAIL_CALL, FINISH_INTAKE, NOTE_ERROR, NOTE_UNKNOWN),
)


def scans(connection: psycopg.Connection[Any], statement: str, table: str) -> list[str]:
    """How the planner means to find the rows of the table."""
    plan = connection.execute(f"EXPLAIN {statement}").fetchall()
    return [str(row[0]) for row in plan if f" on {table}" in row[0] and "Scan" in row[0]]


def scan(connection: psycopg.Connection[Any], change: Change) -> str:
    (line,) = scans(connection, bulk_statement(change) % "'[]'", change.table)
    return line


ON_POSTGRES = pytest.mark.parametrize("begun_url", ["postgresql"], indirect=True)


@ON_POSTGRES
def test_a_request_was_looked_up_through_an_index_on_the_runs_lines(begun_url: str) -> None:
    """Its row was then found by walking over the whole run, again for each request that was decided."""
    libpq = begun_url.replace("+psycopg", "")
    with open_store(begun_url, "write", fold=fold) as store, closing(psycopg.connect(libpq, autocommit=True)) as other:
        other.execute(WRITER_SETTINGS)
        store.append([started()])
        for group in range(30):
            names = [f"INC-{group:03}-{number}" for number in range(25)]
            store.append([accepted(name, line=1 + group * 25 + number) for number, name in enumerate(names)])
            store.append([call(stories.call_started(1), request_id=name) for name in names])
            for change in (ACCEPT_OUTPUT, NOTE_ERROR):
                assert "requests_pkey" in scan(other, change), group
            for change in (ANSWER_CALL, FAIL_CALL):
                assert "model_calls_pkey" in scan(other, change), group
            store.append([call(stories.called(1), request_id=name) for name in names])
            store.append([call(stories.output_accepted(), request_id=name) for name in names])


@ON_POSTGRES
def test_plans_kept_from_an_empty_ledger_find_rows_by_their_whole_key(begun_url: str) -> None:
    """The writer keeps its plans: what is planned for tables that hold nothing must do for millions of rows."""
    with closing(psycopg.connect(begun_url.replace("+psycopg", ""), autocommit=True)) as connection:
        connection.execute(WRITER_SETTINGS)
        connection.execute("SET plan_cache_mode = force_generic_plan")
        kept = [(bulk_statement(change), ("json",), change.table, f"{change.table}_pkey") for change in UPDATES]
        kept.append((_REQUEST_VERSIONS_SQL, ("text[]", "text[]"), "events", "events_request_version"))
        kept.append((_RUN_VERSIONS_SQL, ("text[]",), "events", "events_run_version"))
        kept.append((LARGEST_ID_SQL, (), "events", "events_event_id"))
        for number, (statement, types, table, index) in enumerate(kept):
            marks = [f"${at}" for at, _ in enumerate(types, 1)]
            declared = f" ({', '.join(types)})" if types else ""
            connection.execute(f"PREPARE kept_{number}{declared} AS {statement.replace('%s', '{}').format(*marks)}")
            given = f" ({', '.join(['NULL'] * len(types))})" if types else ""
            lines = scans(connection, f"EXECUTE kept_{number}{given}", table)
            assert lines, statement
            assert all(f"using {index} " in line for line in lines), lines
