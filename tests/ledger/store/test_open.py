"""Opening: what is there, what is not, and what is said about it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ledger.store import open_store, sqlite_file
from ledger.store.errors import (
    LedgerError,
    LedgerMalformed,
    LedgerNewer,
    LedgerNotFound,
    LedgerNotMigrated,
    LedgerReadOnly,
    LedgerUnreachable,
    NotALedger,
    OriginDiffers,
    UnsafeFilesystem,
)
from ledger.store.place import parse
from tests.ledger.store.making import Clock, accepted, plain_sql, redaction, some

PASSWORD = "s3cret-of-mine"
ON_SQLITE = pytest.mark.parametrize("begun_url", ["sqlite"], indirect=True)


NO_URLS = [
    *("", "nonsense", "ledger.db", "mysql://u@h/d", "sqlite:", "sqlite:/x", "sqlite:///", "sqlite:///:memory:"),
    *("sqlite:///a?mode=ro", "sqlite:///a\0b", "http://h/d", f"postgresq://u:{PASSWORD}@h/d", f"u:{PASSWORD}@h/d"),
    *("postgresql://h:notaport/d", f"postgresql://u:{PASSWORD}@h:notaport/d", f"postgresql://u:a/{PASSWORD}@h/d"),
]


@pytest.mark.parametrize("url", NO_URLS)
@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_what_is_no_ledgers_url_is_refused_without_repeating_a_password(url: str, mode: str) -> None:
    with pytest.raises(NotALedger) as refused:
        open_store(url, mode)  # type: ignore[arg-type]
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://me:{PASSWORD}@db:5432/d", "postgresql://me@db:5432/d"),
        (f"postgres://me:{PASSWORD}@db/d?sslmode=require", "postgresql://me@db/d?sslmode=require"),
        (f"postgresql+psycopg://db/d?user=me&password={PASSWORD}", "postgresql://db/d?user=me&password=***"),
        (
            f"postgresql://db/d?password={PASSWORD}&sslpassword={PASSWORD}",
            "postgresql://db/d?password=***&sslpassword=***",
        ),
        ("postgresql://db/d", "postgresql://db/d"),
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("sqlite://", "sqlite:// (in memory)"),
    ],
)
def test_a_place_is_shown_without_its_password(url: str, shown: str) -> None:
    place = parse(url)
    assert place.shown == shown
    assert PASSWORD not in repr(place)
    if PASSWORD in url:
        assert place.scrub(f"failed\n for {PASSWORD}") == "failed for ***"


def test_a_password_is_scrubbed_in_both_its_spellings() -> None:
    place = parse("postgresql://me:p%40ss%2Fword@db/d")
    assert place.scrub("p%40ss%2Fword p@ss/word") == "*** ***"


# --- no ledger there -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path, mode: str) -> None:
    for url in (f"sqlite:///{tmp_path}/none.db", f"sqlite:///{tmp_path}/no/folder.db", "sqlite://"):
        with pytest.raises(LedgerNotFound):
            open_store(url, mode)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["read", "write"])
def test_an_empty_database_holds_no_ledger(ledger_url: str, tmp_path: Path, mode: str) -> None:
    (tmp_path / "ledger.db").touch()
    with pytest.raises(LedgerNotFound, match="empty"):
        open_store(ledger_url, mode)  # type: ignore[arg-type]


def test_a_folder_is_no_ledger_and_a_missing_one_holds_none(tmp_path: Path) -> None:
    with pytest.raises(NotALedger, match="folder"):
        open_store(f"sqlite:///{tmp_path}", "create")
    with pytest.raises(LedgerNotFound, match="no such folder"):
        open_store(f"sqlite:///{tmp_path}/no/ledger.db", "create")
    with pytest.raises(LedgerUnreachable, match="name too long"):
        open_store(f"sqlite:///{tmp_path}/{'x' * 300}", "create")


@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_another_programs_database_is_left_alone(ledger_url: str, mode: str) -> None:
    with plain_sql(ledger_url) as sql:
        sql("CREATE TABLE orders (id integer)")
    with pytest.raises(NotALedger, match="other tables"):
        open_store(ledger_url, mode)  # type: ignore[arg-type]
    with plain_sql(ledger_url) as sql:
        assert sql("SELECT * FROM orders") == []
        if ledger_url.startswith("sqlite"):
            assert sql("PRAGMA journal_mode") == [("delete",)]


@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"Dear auditor, " * 1000)
    with pytest.raises(NotALedger, match="not a SQLite database"):
        open_store(f"sqlite:///{path}", mode)  # type: ignore[arg-type]
    assert path.read_bytes() == b"Dear auditor, " * 1000


@ON_SQLITE
def test_a_damaged_file_is_called_that(begun_url: str, tmp_path: Path) -> None:
    with open_store(begun_url, "write", clock=Clock()) as store:
        store.append(some(500))
    path = tmp_path / "begun.db"
    data = bytearray(path.read_bytes())
    data[4096 * 3 :] = b"\xa5" * (len(data) - 4096 * 3)
    path.write_bytes(data)
    with pytest.raises(LedgerMalformed, match="damaged"), open_store(begun_url, "read") as store:
        list(store.events())


# --- versions ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_a_newer_ledger_is_refused_naming_both_versions(begun_url: str, mode: str) -> None:
    with plain_sql(begun_url) as sql:
        sql("UPDATE alembic_version SET version_num = '0999'")
    with pytest.raises(LedgerNewer, match=r"0999.*0002"):
        open_store(begun_url, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_an_older_ledger_asks_for_its_upgrade(begun_url: str, mode: str) -> None:
    with plain_sql(begun_url) as sql:
        sql("UPDATE alembic_version SET version_num = '0000'")
    with pytest.raises(LedgerNotMigrated, match=r"0000.*0002.*db upgrade"):
        open_store(begun_url, mode)  # type: ignore[arg-type]


def test_a_revision_of_another_program_is_no_ledgers(begun_url: str) -> None:
    with plain_sql(begun_url) as sql:
        sql("UPDATE alembic_version SET version_num = 'ae1027a6acf'")
    with pytest.raises(NotALedger, match="ae1027a6acf"):
        open_store(begun_url, "read")


def test_an_origin_is_fixed_when_the_ledger_is_made(ledger_url: str) -> None:
    with open_store(ledger_url, "create", origin="audit.example.com/agents") as store:
        assert store.head().origin == "audit.example.com/agents"
    open_store(ledger_url, "create", origin="audit.example.com/agents").close()
    with pytest.raises(OriginDiffers, match=r"audit\.example\.com/agents, not other"):
        open_store(ledger_url, "create", origin="other")
    with open_store(ledger_url, "create") as store:
        assert store.head().size == 1


def test_a_bad_origin_makes_nothing(ledger_url: str) -> None:
    with pytest.raises(LedgerError, match="origin"):
        open_store(ledger_url, "create", origin='quo"te')
    with open_store(ledger_url, "create") as store:
        assert store.head().origin.startswith("replay-ledger.local/")


# --- reading changes nothing ---------------------------------------------------------------


def test_a_ledger_open_for_reading_takes_no_event(begun_url: str) -> None:
    with open_store(begun_url, "read") as store:
        assert store.head().size == 1
        with pytest.raises(LedgerReadOnly, match="open for reading"):
            store.append(some(1))
        with pytest.raises(LedgerError):
            list(store.rows("DELETE FROM runs"))


@ON_SQLITE
def test_reading_does_not_change_the_file(begun_url: str, tmp_path: Path) -> None:
    with open_store(begun_url, "write", clock=Clock()) as store:
        store.append(some(20))
    before = (tmp_path / "begun.db").read_bytes()
    with open_store(begun_url, "read") as store:
        assert len(list(store.events())) == 21
        assert store.root_at(21) == store.head().root
    assert (tmp_path / "begun.db").read_bytes() == before


def test_readers_see_what_is_appended_while_they_are_open(begun_url: str) -> None:
    with open_store(begun_url, "read") as reader, open_store(begun_url, "write", clock=Clock()) as writer:
        writer.append(some(3))
        assert reader.head().size == 4
        assert len(list(reader.events())) == 4


UNPRIVILEGED = """
import os, sys
from ledger.store import open_store, sqlite_file
from ledger.store.errors import LedgerError
os.setgid(65534); os.setuid(65534)  # after the imports: the interpreter itself may lie in a closed folder
try:
    with open_store(sys.argv[1], sys.argv[2]) as store:
        print(sum(1 for _ in store.events()))
except LedgerError as error:
    print(type(error).__name__, error.exit_code, error)
"""


def as_nobody(path: Path, mode: str) -> str:
    """What a user without rights finds."""
    command = [sys.executable, "-c", UNPRIVILEGED, f"sqlite:///{path}", mode]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]).stdout


@pytest.fixture
def shown_folder(tmp_path: Path, sqlite_template: Path) -> Path:
    """A folder that others may read, not write, with a ledger of 11 events."""
    if os.getuid():
        pytest.skip("only root can become somebody without rights")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)
    folder = tmp_path / "shown"
    folder.mkdir(mode=0o755)
    path = folder / "ledger.db"
    shutil.copy(sqlite_template, path)
    with open_store(f"sqlite:///{path}", "write", clock=Clock()) as store:
        store.append(some(10))
    path.chmod(0o644)
    return folder


def test_a_ledger_in_a_folder_that_cannot_be_written_is_read(shown_folder: Path) -> None:
    assert as_nobody(shown_folder / "ledger.db", "read") == "11\n"
    assert [path.name for path in shown_folder.iterdir()] == ["ledger.db"]


def test_events_that_are_only_in_the_log_are_not_passed_over(shown_folder: Path, tmp_path: Path) -> None:
    path = shown_folder / "ledger.db"
    with open_store(f"sqlite:///{path}", "write", clock=Clock()) as store:
        store.append(some(1, first=11))
        shutil.copytree(shown_folder, tmp_path / "torn")  # as a process that was killed leaves it
    torn = tmp_path / "torn"
    (torn / "ledger.db-shm").unlink()
    found = as_nobody(torn / "ledger.db", "read")
    assert found.startswith("LedgerReadOnly 4 ")
    assert "copy both files, ledger.db and ledger.db-wal" in found
    with open_store(f"sqlite:///{torn / 'ledger.db'}", "read") as store:
        assert store.head().size == 12


def test_a_ledger_that_cannot_be_written_is_refused_for_writing(shown_folder: Path) -> None:
    found = as_nobody(shown_folder / "ledger.db", "write")
    assert found.startswith("LedgerReadOnly 4 ")
    (shown_folder / "ledger.db").chmod(0o600)
    assert as_nobody(shown_folder / "ledger.db", "read").startswith("LedgerUnreachable 4 ")
    shown_folder.chmod(0o700)
    assert as_nobody(shown_folder / "ledger.db", "read").startswith("LedgerUnreachable 4 ")


@ON_SQLITE
def test_a_network_file_system_is_refused_for_writing(
    begun_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/export {tmp_path.resolve()} nfs4 rw 0 0\n")
    monkeypatch.setattr("ledger.store.mounts.MOUNTS", mounts)
    for mode in ("write", "create"):
        with pytest.raises(UnsafeFilesystem, match="nfs4"):
            open_store(begun_url, mode)  # type: ignore[arg-type]
    with open_store(begun_url, "read") as store:
        assert store.head().size == 1


@ON_SQLITE
def test_a_writer_sets_what_durability_and_erasure_need(begun_url: str, tmp_path: Path) -> None:
    with closing(sqlite_file.open_for_writing(parse(begun_url), create=False)) as connection:
        sqlite_file.prepare(connection, parse(begun_url))
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "secure_delete")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1}


@ON_SQLITE
def test_erased_content_is_nowhere_in_the_file(begun_url: str, tmp_path: Path) -> None:
    secret = b"the secret of incident 7"
    with open_store(begun_url, "write", clock=Clock()) as store:
        store.append([accepted("q1", content=secret), *some(5, first=2)])
        (record, *_) = store.records(after=1)
        assert record.salt is not None
        store.append([redaction(2)])
        assert store.erase_traces() is None
        for path in tmp_path.iterdir():
            data = path.read_bytes()
            assert secret not in data
            assert record.salt not in data


@ON_SQLITE
def test_traces_are_not_said_to_be_erased_while_a_reader_holds_them(begun_url: str, tmp_path: Path) -> None:
    with (
        open_store(begun_url, "write", clock=Clock()) as store,
        closing(sqlite3.connect(tmp_path / "begun.db", isolation_level=None)) as reader,
    ):
        store.append(some(5))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        store.append(some(5, first=6))
        assert store._backend.connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined]
        assert store.erase_traces() == tmp_path / "begun.db-wal"
        reader.execute("COMMIT")
        assert store.erase_traces() is None
