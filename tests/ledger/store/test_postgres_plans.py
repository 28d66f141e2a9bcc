"""Postgres finds the rows of a run by their keys while its tables grow, before anything has been analysed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pytest

from ledger.projections.tables import ACCEPT_OUTPUT, ANSWER_CALL, FAIL_CALL, NOTE_ERROR, fold
from ledger.store import open_store
from ledger.store.changes import Change, bulk_statement
from ledger.store.postgres_session import WRITER_SETTINGS
from tests import stories
from tests.ledger.store.making import accepted, call, started


def scan(connection: psycopg.Connection[Any], change: Change) -> str:
    """How the planner means to find the rows of the table."""
    plan = connection.execute(f"EXPLAIN {bulk_statement(change)}", ("[]",)).fetchall()
    (line,) = [row[0] for row in plan if f" on {change.table} t" in row[0] and "Scan" in row[0]]
    return str(line)


@pytest.mark.parametrize("begun_url", ["postgresql"], indirect=True)
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
