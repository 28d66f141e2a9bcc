"""What the other tests stand on must hold itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from tests.harness import postgres
from tests.harness.mock_endpoint import MockEndpoint

ROOT = Path(__file__).resolve().parents[2]


def test_each_test_gets_an_empty_database_of_its_own(postgres_server: postgres.Server) -> None:
    first, second = postgres_server.create_database(), postgres_server.create_database()
    try:
        with psycopg.connect(postgres.libpq_url(first)) as connection:
            connection.execute("CREATE TABLE seen (n int)")
        with psycopg.connect(postgres.libpq_url(second)) as connection:
            answer = connection.execute(
                "SELECT to_regclass('seen'), current_setting('server_version_num')::int"
            ).fetchone()
        assert answer is not None
        table, version = answer
        assert table is None
        assert version >= postgres.OLDEST_SUPPORTED_MAJOR * 10_000
    finally:
        postgres_server.drop_database(first)
        postgres_server.drop_database(second)


def test_a_connection_left_open_does_not_keep_a_database_from_being_dropped(postgres_server: postgres.Server) -> None:
    url = postgres_server.create_database()
    forgotten = psycopg.connect(postgres.libpq_url(url))
    postgres_server.drop_database(url)
    with pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")
    forgotten.close()


def test_a_ledger_url_names_a_ledger_that_is_not_there_yet(ledger_url: str) -> None:
    url = make_url(ledger_url)
    if url.get_backend_name() == "sqlite":
        assert url.database is not None
        assert not Path(url.database).exists()
    else:
        with psycopg.connect(postgres.libpq_url(url)) as connection:
            tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)


START_AND_WAIT = """
import time
from tests.harness import postgres
server = postgres.program_source().start()
print(postgres.libpq_url(server.url), flush=True)
time.sleep(60)
"""


def test_a_server_does_not_outlive_a_test_run_that_was_killed() -> None:
    try:
        postgres.program_source()
    except postgres.Unavailable as reason:
        pytest.skip(str(reason))
    with subprocess.Popen([sys.executable, "-c", START_AND_WAIT], cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        psycopg.connect(url).close()
        run.kill()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return
        time.sleep(0.1)
    pytest.fail("the server was still there 20 s after its test run had been killed")


def test_the_scripted_endpoint_gives_its_replies_in_order_and_counts_them(
    mock_endpoint: Callable[..., MockEndpoint],
) -> None:
    import httpx

    running = mock_endpoint([{"status": 429, "headers": {"Retry-After": "1"}}, {"content": "second"}], content="then")
    with httpx.Client(trust_env=False) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        replies = [client.post(f"{running.base_url}/chat/completions", json=body) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [429, 200, 200]
    assert replies[0].headers["Retry-After"] == "1"
    assert [reply.json()["choices"][0]["message"]["content"] for reply in replies[1:]] == ["second", "then"]
    assert running.stats()["calls"] == len(running.requests()) == 3
