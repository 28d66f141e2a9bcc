"""One driver a run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from ledger.store import open_store
from ledger.store.errors import RunLocked
from ledger.store.lock import lock_key
from tests.harness import postgres
from tests.ledger.store.making import Clock, plain_sql

ROOT = Path(__file__).parents[3]
HOLD = """
import sys, time
from ledger.store import open_store
with open_store(sys.argv[1], "write", accept_clock=True) as store, store.driver_lock(sys.argv[2], "process of ops-7"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_driver_is_told_who_holds_the_run(begun_url: str) -> None:
    with open_store(begun_url, "write", clock=Clock()) as one, open_store(begun_url, "write", clock=Clock()) as two:
        with one.driver_lock("run", "ops-7 on host h"):
            for store in (one, two):
                with (
                    pytest.raises(RunLocked, match=r"run is being driven by .*ops-7 on host h"),
                    store.driver_lock("run", "me"),
                ):
                    pass
            with two.driver_lock("other", "me"), two.driver_lock("Run", "me"):
                pass
        with two.driver_lock("run", "me"), pytest.raises(RunLocked, match="by me"), one.driver_lock("run", "x"):
            pass
        with one.driver_lock("run", "me again"):
            pass


def test_a_lock_ends_with_the_work_even_where_that_fails(begun_url: str) -> None:
    with open_store(begun_url, "write", clock=Clock()) as store:
        with pytest.raises(KeyError), store.driver_lock("run", "me"):
            raise KeyError
        with store.driver_lock("run", "me"):
            pass


def test_a_lock_is_free_once_its_work_has_ended_and_not_some_time_after(postgres_url: str) -> None:
    with (
        open_store(postgres_url, "create", clock=Clock()) as store,
        psycopg.connect(postgres.libpq_url(make_url(postgres_url)), autocommit=True) as other,
    ):
        for _ in range(20):
            with store.driver_lock("run", "me"):
                pass
            assert other.execute("SELECT pg_try_advisory_lock(%s)", (lock_key("public/run"),)).fetchone() == (True,)
            other.execute("SELECT pg_advisory_unlock_all()")


def test_the_lock_of_a_killed_process_is_free_at_once(begun_url: str) -> None:
    with open_store(begun_url, "write", clock=Clock()) as store:
        command = [sys.executable, "-c", HOLD, begun_url, "run"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            with pytest.raises(RunLocked, match="process of ops-7"), store.driver_lock("run", "me"):
                pass
            process.kill()
            process.wait()
            wait_until_gone(begun_url)
            with store.driver_lock("run", "me"):
                pass


def wait_until_gone(url: str) -> None:
    """A server needs a moment to see that its client is gone; the operating system does not."""
    if url.startswith("sqlite"):
        return
    for _ in range(200):
        with plain_sql(url) as sql:
            if not sql("SELECT 1 FROM pg_stat_activity WHERE strpos(application_name, 'ops-7') > 0"):
                return
        time.sleep(0.02)
    raise AssertionError("the session of a killed process is still there")


def test_a_lock_leaves_the_ledger_itself_alone(begun_url: str, tmp_path: Path) -> None:
    with open_store(begun_url, "write", clock=Clock()) as store, store.driver_lock("a/../b:@", "me"):
        assert store.head().size == 1
    if begun_url.startswith("sqlite"):
        assert {path.name for path in tmp_path.iterdir()} == {"begun.db", "begun.db-locks"}
