"""Databases that are busy, gone, full or forbidden: what is tried again, and what is said."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from ledger.store import Expected, Store, append, open_store
from ledger.store.errors import (
    LedgerBusy,
    LedgerError,
    LedgerFull,
    LedgerNotFound,
    LedgerReadOnly,
    LedgerUnreachable,
    StatementRefused,
)
from ledger.store.migrate import upgrade
from tests.harness import postgres
from tests.ledger.store.making import Clock, accepted, plain_sql, some

ON_POSTGRES = pytest.mark.parametrize("begun_url", ["postgresql"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("begun_url", ["sqlite"], indirect=True)

FAIL_AT_FIRST = """
CREATE SEQUENCE tries;
CREATE FUNCTION fail_at_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'made to fail' USING ERRCODE = '{state}'; END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER fail_at_first AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION fail_at_first()
"""


def fail(url: str, *, state: str, times: int) -> None:
    """Let the next so many appends fail with this SQLSTATE. A sequence counts, as no rollback undoes it."""
    with plain_sql(url) as sql:
        sql(FAIL_AT_FIRST.format(state=state, times=times))


# --- tried again ---------------------------------------------------------------------------


@pytest.mark.postgresql
@ON_POSTGRES
@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_what_another_writer_undid_is_tried_again(store: Store, begun_url: str, state: str) -> None:
    fail(begun_url, state=state, times=3)
    assert [r.position for r in store.append(some(2), [Expected("run", None, 0)])] == [2, 3]
    assert store.root_at(3) == store.head().root


@pytest.mark.postgresql
@ON_POSTGRES
def test_trying_again_comes_to_an_end(store: Store, begun_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append.time, "sleep", lambda _: None)
    fail(begun_url, state="40001", times=1000)
    with pytest.raises(LedgerBusy, match="another writer"):
        store.append(some(1))
    with plain_sql(begun_url) as sql:
        assert sql("SELECT last_value FROM tries") == [(8,)]
        sql("DROP TRIGGER fail_at_first ON events")
    assert store.append(some(1))[0].position == 2


@pytest.mark.postgresql
@ON_POSTGRES
def test_an_error_of_the_statement_is_not_tried_again(store: Store, begun_url: str) -> None:
    fail(begun_url, state="23514", times=1)
    with pytest.raises(StatementRefused, match="made to fail"):
        store.append(some(1))
    assert store.append(some(1))[0].position == 2


def test_a_writer_waits_for_another(store: Store, begun_url: str) -> None:
    released = threading.Event()
    with writing(begun_url) as held:
        threading.Timer(0.4, lambda: (held(), released.set())).start()
        (receipt,) = store.append(some(1))
    assert released.is_set()
    assert receipt.position == 2


def test_a_writer_does_not_wait_for_ever(store: Store, begun_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append.time, "sleep", lambda _: None)
    connection = store._backend.connection  # type: ignore[attr-defined]
    connection.execute("PRAGMA busy_timeout = 20" if store.dialect == "sqlite" else "SET lock_timeout = '20ms'")
    with writing(begun_url), pytest.raises(LedgerBusy):
        store.append(some(1))
    assert store.append(some(1))[0].position == 2


@contextmanager
def writing(url: str) -> Iterator[object]:
    """Hold what an append needs, as another writer would; call what is given to let it go early."""
    place = make_url(url)
    if place.drivername == "sqlite":
        other: sqlite3.Connection | psycopg.Connection
        other = sqlite3.connect(place.database or "", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
    else:
        other = psycopg.connect(postgres.libpq_url(place))
        other.execute("SELECT * FROM ledger_head FOR UPDATE")
    with closing(other):
        yield other.rollback
        other.rollback()


# --- a connection that is lost -------------------------------------------------------------


@pytest.mark.postgresql
@ON_POSTGRES
def test_a_session_that_was_ended_is_replaced_without_a_word(
    store: Store, begun_url: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    store.append(some(1))
    with plain_sql(begun_url) as sql:
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = ?",
            make_url(begun_url).database,
        )
    assert store.append(some(1, first=2))[0].position == 3
    assert store.head().size == 3
    assert len(list(store.events())) == 3
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    handlers = logging.getLogger("psycopg").handlers  # with one, its warnings do not fall back to the terminal
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


class Proxy:
    """Passes Postgres connections on. Once armed, breaks the first that sends COMMIT, having passed that on or not."""

    def __init__(self, port: int, *, pass_commit: bool) -> None:
        self._target, self._pass_commit = port, pass_commit
        self.broken = 0
        self._armed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self) -> None:
        self._armed = True

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            deaf = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, deaf), daemon=True).start()
            threading.Thread(target=self._replies, args=(server, client, deaf), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, deaf: threading.Event) -> None:
        with client, server:
            while data := client.recv(65536):
                if not (self._armed and b"COMMIT" in data):
                    server.sendall(data)
                    continue
                self._armed = False
                self.broken += 1
                deaf.set()  # whatever the server answers, the client does not hear it
                if self._pass_commit:
                    server.sendall(data + self._rest(client))
                    time.sleep(0.2)
                client.shutdown(socket.SHUT_RDWR)
                server.shutdown(socket.SHUT_RDWR)
                return

    def _rest(self, client: socket.socket) -> bytes:
        """What else the client has to say before it waits for an answer."""
        client.settimeout(0.2)
        rest = b""
        with suppress(TimeoutError):
            while data := client.recv(65536):
                rest += data
        return rest

    def _replies(self, server: socket.socket, client: socket.socket, deaf: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if not deaf.is_set():
                    client.sendall(data)


@pytest.mark.postgresql
@ON_POSTGRES
@pytest.mark.parametrize("pass_commit", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("count", [1, 60])
def test_a_connection_lost_in_commit_is_settled(begun_url: str, pass_commit: bool, count: int) -> None:
    url = make_url(begun_url)
    assert url.port is not None
    with closing(Proxy(url.port, pass_commit=pass_commit)) as proxy:
        through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        with open_store(through, "write", clock=Clock()) as store:
            store.append(some(1))
            proxy.arm()
            receipts = store.append(some(count, first=2), [Expected("run", None, 1)])
            assert proxy.broken == 1
            assert [r.position for r in receipts] == list(range(3, 3 + count))
            assert store.append(some(1, first=2 + count))[0].position == 3 + count
    with open_store(begun_url, "read") as store:
        assert [e.position for e in store.events()] == list(range(1, 4 + count))
        assert store.root_at(3 + count) == store.head().root


# --- no way in -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_a_server_that_does_not_answer_is_said_to(mode: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LedgerUnreachable) as refused:
        open_store(f"postgresql://me:s3cret-of-mine@127.0.0.1:{port}/d", mode)  # type: ignore[arg-type]
    assert "s3cret" not in str(refused.value)
    assert f"postgresql://me@127.0.0.1:{port}/d" in str(refused.value)
    assert "refused" in str(refused.value)
    assert refused.value.__cause__ is None
    with pytest.raises(LedgerUnreachable):
        open_store("postgresql://me@no-such-host.invalid/d", mode)  # type: ignore[arg-type]


@pytest.mark.postgresql
def test_a_wrong_password_is_said_without_it(postgres_url: str) -> None:
    url = make_url(postgres_url).set(password="wrong-s3cret").render_as_string(hide_password=False)
    try:
        psycopg.connect(postgres.libpq_url(make_url(url))).close()
    except psycopg.OperationalError:
        pass
    else:
        pytest.skip("this server asks for no password")
    for action in (lambda: open_store(url, "read"), lambda: upgrade(url)):
        with pytest.raises(LedgerUnreachable, match="credentials") as refused:
            action()
        assert "wrong-s3cret" not in str(refused.value)


@pytest.mark.postgresql
def test_a_database_that_is_not_there_holds_no_ledger(postgres_url: str) -> None:
    url = make_url(postgres_url).set(database="no_such_database").render_as_string(hide_password=False)
    for mode in ("read", "write", "create"):
        with pytest.raises(LedgerNotFound, match="no such database"):
            open_store(url, mode)  # type: ignore[arg-type]


@pytest.mark.postgresql
@ON_POSTGRES
def test_a_role_that_may_only_read_is_told_so(store: Store, begun_url: str, postgres_server: postgres.Server) -> None:
    role, word = f"auditor_{secrets.token_hex(4)}", secrets.token_hex(8)
    with plain_sql(begun_url) as sql:
        sql(f"CREATE ROLE {role} LOGIN PASSWORD '{word}'")
        sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        url = make_url(begun_url).set(username=role, password=word).render_as_string(hide_password=False)
        with open_store(url, "read") as auditor:
            assert len(list(auditor.events())) == 1
        with open_store(url, "write", clock=Clock()) as auditor, pytest.raises(LedgerReadOnly, match="no right"):
            auditor.append(some(1))
    finally:
        with plain_sql(begun_url) as sql:
            sql(f"DROP OWNED BY {role}")
            sql(f"DROP ROLE {role}")


@pytest.mark.postgresql
@ON_POSTGRES
def test_a_read_only_database_takes_no_event(begun_url: str) -> None:
    with plain_sql(begun_url) as sql:
        sql(f"ALTER DATABASE {make_url(begun_url).database} SET default_transaction_read_only = on")
    with open_store(begun_url, "write", clock=Clock()) as store:
        with pytest.raises(LedgerReadOnly, match="cannot be written"):
            store.append(some(1))
        assert len(list(store.events())) == 1


@ON_SQLITE
def test_a_full_file_system_loses_nothing_that_was_acknowledged(begun_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = (
        os.getuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("a file system cannot be mounted here")
    try:
        with open_store(f"sqlite:///{folder}/ledger.db", "create", clock=Clock()) as store:
            failure, kept = fill(store)
            assert isinstance(failure, LedgerFull)
            assert "no room" in str(failure)
            assert store.head().size == 1 + kept
            assert store.root_at(1 + kept) == store.head().root
            with pytest.raises(LedgerError):
                store.append([accepted("more", content=os.urandom(200_000))])
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(store: Store) -> tuple[LedgerError, int]:
    """Append until that fails: how, and how many events were acknowledged."""
    for number in range(100):
        try:
            store.append([accepted(f"q{number}", content=os.urandom(60_000))])
        except LedgerError as error:
            return error, number
    raise AssertionError("the file system holds more than it should")
