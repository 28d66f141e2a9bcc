"""Erased text is nowhere in a SQLite ledger's files: not in the log, not in what SQLite leaves unused in a page."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.store import Store, open_store
from ledger.store.sqlite_pages import holds_old_rows
from tests.ledger.store.making import accepted, redaction

SIZES = (0, 1, 10, 100, 400, 900, 3000, 9000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'ledger.db'}", "create") as opened:
        yield opened


def token(number: int, random: Random) -> str:
    return f"<{number}:{random.randbytes(8).hex()}>"


def fill(store: Store, random: Random, sizes: Iterable[int]) -> dict[int, str]:
    """Contents of these sizes, each with a text of its own at both ends; by position."""
    tokens = {}
    events = []
    for number, size in enumerate(sizes, start=2):
        tokens[number] = token(number, random)
        content = tokens[number] + "é" * (size // 2) + tokens[number]
        events.append(accepted(f"q{number}", line=number, content=content.encode()))
    for start in range(0, len(events), 50):
        store.append(events[start : start + 50])
    return tokens


def found_in(folder: Path, texts: Iterable[str]) -> list[str]:
    """Those of the texts that are in any file of the folder."""
    data = [path.read_bytes() for path in folder.iterdir() if path.is_file()]
    return [text for text in texts if any(text.encode() in one for one in data)]


@pytest.mark.parametrize("bytes_each", [1, 3, 40, 1000, 4000, 5000, 70_000, 5_000_000])
@pytest.mark.parametrize("binary", [False, True])
def test_erased_content_of_any_size_is_in_no_file(store: Store, tmp_path: Path, bytes_each: int, binary: bool) -> None:
    unit = b"~`^" if not binary else b"\xfe\xff\xfd"
    body = (unit * (bytes_each // 3 + 1))[:bytes_each]
    stays = b"=" * bytes_each
    store.append([accepted("q1", content=stays), accepted("q2", content=body), accepted("q3", content=stays)])
    (record,) = store.records(2, 3)
    assert record.salt is not None
    assert record.body is not None
    kept = record.body.encode()
    store.append([redaction(3)])
    assert store.erase_traces() is None
    step = max(1009, len(kept) // 20)
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert record.salt not in data
        for start in range(0, len(kept) - 7, step):
            assert kept[start : start + 8] not in data
    assert store.content(2) == stays
    assert store.content(4) == stays
    assert (tmp_path / "ledger.db-wal").stat().st_size == 0


@pytest.mark.parametrize("seed", range(6))
def test_contents_erased_one_after_another_in_any_order_leave_nothing(store: Store, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    tokens = fill(store, random, [random.randrange(random.choice(SIZES) + 1) for _ in range(300)])
    order = list(tokens)
    random.shuffle(order)
    step = random.choice((7, 31, 60))
    for start in range(0, 250, step):
        chunk = order[start : start + step]
        store.append([redaction(*chunk)])
        assert store.erase_traces() is None
        assert found_in(tmp_path, (tokens[position] for position in order[: start + step])) == []
    kept = order[start + step :]
    assert len(found_in(tmp_path, (tokens[position] for position in kept))) == len(kept)
    assert sorted(store.contents(tokens)) == sorted(kept)


class Plain:
    """A table like ``contents`` in a file, its rows deleted with ``secure_delete`` and nothing else done."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self._random = path, Random(seed)
        self.connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.execute("CREATE TABLE contents (position INTEGER PRIMARY KEY, salt BLOB, body TEXT)")
        (self.root,) = self.connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
        self.tokens: dict[int, str] = {}

    def fill(self, sizes: Sequence[int]) -> None:
        for position, size in enumerate(sizes, start=1):
            self.tokens[position] = token(position, self._random)
            row = (position, self._random.randbytes(32), self.tokens[position] + "x" * size)
            self.connection.execute("INSERT INTO contents VALUES (?, ?, ?)", row)

    def delete(self, positions: Iterable[int]) -> None:
        self.connection.executemany("DELETE FROM contents WHERE position = ?", [(at,) for at in positions])
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def left(self, positions: Iterable[int]) -> list[str]:
        return found_in(self.path.parent, (self.tokens[position] for position in positions))


def test_sqlite_alone_leaves_copies_of_erased_rows_and_they_are_seen(tmp_path: Path) -> None:
    """Why the file is looked through: once a SQLite leaves nothing, this test has had its day."""
    for seed in range(60):
        random = Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        plain = Plain(folder / "plain.db", seed)
        with closing(plain.connection):
            plain.fill([random.randrange(random.choice(SIZES) + 1) for _ in range(300)])
            order = list(plain.tokens)
            random.shuffle(order)
            for start in range(0, 280, 20):
                plain.delete(order[start : start + 20])
                if plain.left(order[: start + 20]):
                    assert holds_old_rows(plain.path, plain.root)
                    return
    pytest.skip(f"SQLite {sqlite3.sqlite_version} left none")


@settings(max_examples=40)
@given(st.data())
def test_a_file_that_is_said_to_hold_no_old_rows_holds_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    plain = Plain(tmp_path_factory.mktemp("plain") / "plain.db", data.draw(st.integers(0, 2**32)))
    with closing(plain.connection):
        sizes = st.integers(0, 2000) | st.sampled_from([0, 50, 900, 4000, 9000])
        plain.fill(data.draw(st.lists(sizes, min_size=1, max_size=80)))
        order = data.draw(st.permutations(list(plain.tokens)))
        gone = order[: data.draw(st.integers(0, len(order)))]
        for position in gone:
            plain.delete([position])
        plain.delete([])
        if not holds_old_rows(plain.path, plain.root):
            assert plain.left(gone) == []
        plain.connection.execute("VACUUM")
        plain.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = plain.connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
        assert not holds_old_rows(plain.path, root)
        assert plain.left(gone) == []
        assert len(plain.left(set(plain.tokens) - set(gone))) == len(plain.tokens) - len(gone)


def test_pages_that_another_program_freed_without_overwriting_them_are_seen(tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain.db", 1)
    with closing(plain.connection):
        plain.connection.execute("PRAGMA secure_delete = OFF")
        plain.fill([5000] * 30)
        plain.delete(plain.tokens)
        assert plain.left(plain.tokens)
        assert holds_old_rows(plain.path, plain.root)


def test_a_scan_does_not_let_go_of_sqlites_locks(store: Store, tmp_path: Path) -> None:
    """Closing any descriptor of a file would end this process's locks on it, those of an open transaction too."""
    fill(store, Random(1), [10])
    path = tmp_path / "ledger.db"
    store.append([redaction(2)])
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        locks_before = _locks(path)
        holds_old_rows(path, 2)
        assert _locks(path) == locks_before
        assert locks_before


def _locks(path: Path) -> list[str]:
    """This process's POSIX locks on the file, as the kernel has them."""
    inode = path.stat().st_ino
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return sorted(line.split(": ", 1)[1] for line in lines if f":{inode} " in line)


def test_a_reader_that_goes_on_reading_is_named_by_the_log_it_holds(store: Store, tmp_path: Path) -> None:
    tokens = fill(store, Random(1), [10])
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        store.append([redaction(2)])
        store._backend.connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined]
        assert store.erase_traces() == tmp_path / "ledger.db-wal"
        reader.execute("ROLLBACK")
        assert store.erase_traces() is None
    assert found_in(tmp_path, tokens.values()) == []


def test_the_wait_for_readers_and_the_place_of_temporary_tables_are_as_before_afterwards(store: Store) -> None:
    fill(store, Random(1), [10])
    connection = store._backend.connection  # type: ignore[attr-defined]
    names = ("busy_timeout", "temp_store", "secure_delete", "journal_mode", "synchronous")
    before = [connection.execute(f"PRAGMA {name}").fetchone() for name in names]
    store.append([redaction(2)])
    store.erase_traces()
    assert [connection.execute(f"PRAGMA {name}").fetchone() for name in names] == before


def test_a_ledger_in_memory_leaves_no_file_behind() -> None:
    with open_store("sqlite://", "create") as store:
        fill(store, Random(1), [10])
        store.append([redaction(2)])
        assert store.erase_traces() is None


def test_what_was_not_overwritten_when_it_was_erased_is_written_over(store: Store, tmp_path: Path) -> None:
    tokens = fill(store, Random(1), [500, 5000] * 20)
    store._backend.connection.execute("PRAGMA secure_delete = OFF")  # type: ignore[attr-defined]
    gone = list(tokens)[1:30]
    store.append([redaction(*gone)])
    store._backend.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[attr-defined]
    assert found_in(tmp_path, (tokens[position] for position in gone))
    assert store.erase_traces() is None
    assert found_in(tmp_path, (tokens[position] for position in gone)) == []
    assert store.head().size == len(tokens) + 2
    assert sorted(store.contents(tokens)) == sorted(set(tokens) - set(gone))


# A small file system of its own, seen by this shell alone and gone with it.
_SMALL_DISK = """
mount -t tmpfs -o size=16m tmpfs "$DISK" || exit 77
exec "$PYTHON" -c "$PROGRAM"
"""
_ON_A_SMALL_DISK = """
import os
from pathlib import Path
from ledger.store import open_store
from tests.ledger.store.making import accepted, redaction
disk = Path(os.environ["DISK"])
with open_store(f"sqlite:///{disk / 'ledger.db'}", "create") as store:
    for number in range(60):
        store.append([accepted(f"q{number}", line=number, content=f"<{number}>".encode() + b"x" * 100_000)])
    assert store.erase_traces() is None
    store._backend.connection.execute("PRAGMA secure_delete = OFF")
    store.append([redaction(*range(2, 10))])
    room = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize - 500_000))
    print(store.erase_traces())
    print(store.head().size)
    (disk / "filler").unlink()
    print(store.erase_traces())
    print(any(f"<{number}>".encode() in (disk / "ledger.db").read_bytes() for number in range(8)))
    print(len(store.contents(range(2, 62))))
"""


def test_a_file_that_there_is_no_room_to_write_anew_is_named_and_written_once_there_is(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    own = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    known = {"DISK": str(disk), "PYTHON": sys.executable, "PROGRAM": _ON_A_SMALL_DISK}
    done = subprocess.run(
        [unshare, *own, "/bin/sh", "-c", _SMALL_DISK],
        env=os.environ | known,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode in {1, 77} and "Traceback" not in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.stdout.split() == [str(disk / "ledger.db"), "62", "None", "False", "52"], done.stderr
