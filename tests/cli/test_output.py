"""Data goes out whole or not at all; text for people acts on nobody's terminal."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands._out_files import OutputRefused
from commands._output import format_for, is_terminal, replacing, say, wants_colour, write_data

TINY_LIMIT = 4096


def test_a_file_takes_its_place_only_once_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"the old one")

    def chunks() -> Iterator[bytes]:
        yield b"half"
        assert path.read_bytes() == b"the old one"
        yield b" and half"

    write_data(chunks(), str(path))
    assert path.read_bytes() == b"half and half"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_what_breaks_in_the_middle_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"the old one")

    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_data(chunks(), str(path))
    assert path.read_bytes() == b"the old one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_new_file_has_the_mode_that_the_umask_gives_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_data([b"x"], str(tmp_path / "new"))
    finally:
        os.umask(old)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    (tmp_path / "new").chmod(0o600)
    write_data([b"y"], str(tmp_path / "new"))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_data([b"x"], str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"x"


def test_a_device_is_written_to_and_not_replaced() -> None:
    with replacing(Path(os.devnull)) as file:
        file.write(b"x")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("name", ["no-such-folder/report.json", "."])
def test_a_place_that_cannot_be_written_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=re.escape(name)) as failed:
        write_data([b"x"], name)
    assert failed.value.filename == name


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: the write fails as it would on a full one."""
    path = tmp_path / "report.json"
    path.write_bytes(b"the old one")
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({TINY_LIMIT}, {TINY_LIMIT}))\n"
        "from commands._failures import guarded\n"
        "from commands._output import write_data\n"
        "from commands._session import Session\n"
        f"sys.exit(guarded(Session(), lambda: write_data([b'x' * {2 * TINY_LIMIT}], sys.argv[1])))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, f"Error: {path}: file too large\n")
    assert path.read_bytes() == b"the old one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_nothing_that_is_said_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("INC-1\x1b]0;owned\x07\rok\nPASS", "second line \u202eevil")
    assert capsys.readouterr().err == "INC-1\\x1b]0;owned\\x07\\rok\\nPASS\nsecond line \\u202eevil\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
        (None, {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    stream: io.StringIO | None, environment: dict[str, str], colour: bool
) -> None:
    assert wants_colour(stream, environment) is colour


def test_a_closed_stream_is_no_terminal() -> None:
    stream = Terminal()
    stream.close()
    assert not is_terminal(io.TextIOWrapper(io.BytesIO()))


@pytest.mark.parametrize(
    ("out", "stream", "expected"),
    [
        ("a/results.CSV", Terminal(), "csv"),
        ("/dev/null", Terminal(), "jsonl"),
        ("/dev/fd/63", Terminal(), "jsonl"),
        (None, Terminal(), "table"),
        ("-", Terminal(), "table"),
        (None, io.StringIO(), "jsonl"),
    ],
)
def test_the_format_nobody_named_follows_the_reader(out: str | None, stream: io.StringIO, expected: str) -> None:
    chosen = format_for(out, {".csv": "csv"}, terminal="table", otherwise="jsonl", stream=stream)
    assert chosen == expected


@pytest.mark.parametrize("out", ["cmp.md", "results", "a.csv/b", ".csv", "a.csv.gz"])
def test_a_file_whose_extension_says_nothing_was_filled_with_whatever_is_usual(out: str) -> None:
    with pytest.raises(OutputRefused, match=r"by its extension what it is to be: \.csv, \.json; or name"):
        format_for(out, {".csv": "csv", ".json": "json"}, terminal="table", otherwise="json", stream=None)


def test_a_pipe_and_a_device_have_no_extension_to_go_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    monkeypatch.chdir(tmp_path)
    for out in ("pipe", tmp_path / "pipe", "link", "/dev/stdout", "/proc/self/fd/1", "../../../../../../../dev/full"):
        assert format_for(str(out), {".csv": "csv"}, terminal="table", otherwise="json", stream=None) == "json"


# --- what --out may not name ---------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "kept.db"
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE kept (one)")
    (tmp_path / "kept.db-locks").mkdir()
    (tmp_path / "hard").hardlink_to(path)
    (tmp_path / "soft").symlink_to("kept.db")
    return path


BESIDE = ("kept.db-wal", "kept.db-shm", "kept.db-journal", "kept.db-locks/a.lock", "kept.db-locks/deep/er", "soft-wal")


@pytest.mark.parametrize("name", ["kept.db", "kept.db-locks/../kept.db", "hard", "soft", *BESIDE])
def test_an_output_took_the_place_of_a_database_or_of_what_is_kept_beside_it(
    database: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(database.parent)
    before = database.read_bytes(), sorted(database.parent.rglob("*"))
    for spelled in (name, str(database.parent / name)):
        with pytest.raises(OutputRefused, match=re.escape(spelled)):
            write_data([b"x"], spelled)
    assert (database.read_bytes(), sorted(database.parent.rglob("*"))) == before


@pytest.mark.parametrize("name", ["kept.db.json", "other-wal", "other-locks", "-wal"])
def test_a_name_like_a_databases_is_free_where_there_is_no_such_database(database: Path, name: str) -> None:
    write_data([b"x"], str(database.parent / name))
    assert (database.parent / name).read_bytes() == b"x"


# --- bytes on their way to a terminal ------------------------------------------------------


class _Screen(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_no_format_prints_what_acts_on_a_terminal(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    data = 'a\x1b]0;owned\x07,"\u202e\x9b2J"\r\nsecond \xe9\n\nlast \x1b[2J'.encode()
    shown = 'a\\x1b]0;owned\\x07,"\\u202e\\x9b2J"\nsecond \xe9\n\nlast \\x1b[2J'
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", _Screen(raw, encoding="utf-8"))
    write_data(data[start : start + size] for start in range(0, len(data), size))
    assert raw.getvalue().decode() == shown


def test_a_pipe_gets_the_bytes_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw))
    write_data([b"\x1b[2J\r\n\xff", b"\x9b"])
    assert raw.getvalue() == b"\x1b[2J\r\n\xff\x9b"
