"""Small events and clocks for the store's tests."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from ledger.events import LEDGER_RUN_ID, ContentRedacted, NewEvent, Payload, RequestAccepted, RunStarted, new_event
from ledger.store.place import parse

SHA = "0" * 64
START = datetime(2026, 11, 30, 20, 42, tzinfo=UTC)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **by: float) -> None:
        self.now += timedelta(**by)


def accepted(request_id: str, *, run_id: str = "run", line: int = 1, content: bytes | None = b"{}") -> NewEvent:
    payload = RequestAccepted(
        line=line,
        incident_id=request_id,
        policy_id=None,
        facets={},
        system_prompt_sha256=SHA,
        contract_sha256=SHA,
    )
    return new_event(payload, run_id=run_id, request_id=request_id, content=content)


def started(run_id: str = "run") -> NewEvent:
    payload = RunStarted(
        candidate_id="candidate",
        candidate_variant_id=None,
        prompt_profile=None,
        template_version=1,
        template_sha256=SHA,
        model="model",
        endpoint="http://127.0.0.1/v1/chat/completions",
        settings={},
        leak_rules_version=1,
        software_version="0",
        actor="tester",
        tags={},
    )
    return new_event(payload, run_id=run_id)


def some(count: int, *, run_id: str = "run", first: int = 1) -> list[NewEvent]:
    """``count`` requests accepted, each with its own id, line and content."""
    return [
        accepted(f"q{line}", run_id=run_id, line=line, content=f"line {line}".encode())
        for line in range(first, first + count)
    ]


def redaction(*positions: int) -> NewEvent:
    payload = ContentRedacted(positions=list(positions), reason="asked", actor="tester")
    return new_event(payload, run_id=LEDGER_RUN_ID, content=json.dumps({"basis": "law"}))


def call(payload: Payload, *, run_id: str = "run", request_id: str = "q1", content: bytes | None = None) -> NewEvent:
    return new_event(payload, run_id=run_id, request_id=request_id, content=content)


@contextmanager
def plain_sql(url: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Run SQL on a ledger with nothing but the driver, as a stranger would; ``?`` marks parameters."""
    place = parse(url)
    if place.dialect == "sqlite":
        assert place.path is not None
        with closing(sqlite3.connect(Path(place.path), isolation_level=None)) as connection:
            yield lambda sql, *values: connection.execute(sql, values).fetchall()
        return
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as session:

        def run(sql: str, *values: Any) -> list[tuple[Any, ...]]:
            cursor = session.execute(sql.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []

        yield run
