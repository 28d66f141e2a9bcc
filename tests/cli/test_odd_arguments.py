"""Whatever stands on a command line, nobody is shown a fault of the program's own."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from commands._click import Command
from tests.cli.program import PROGRAM, Program, clean_environment
from tests.cli.test_help import ALL, NAMES
from tests.harness.mock_endpoint import MockEndpoint

NOT_UTF8 = "\udcff\x1b[2J"
PLAIN = {"FILE": "in.jsonl", "RUN": "r1", "FROM": "sqlite:///a.db", "TO": "sqlite:///b.db"}
NEEDED = {"abandon": ["--reason", "over"]}


WITHOUT_DEMO = [(path, command) for path, command in ALL if path != ("demo",)]
"""A demo takes its time, and any name for its folder."""


@pytest.mark.parametrize(("path", "command"), WITHOUT_DEMO, ids=[" ".join(path) for path, _ in WITHOUT_DEMO])
def test_no_option_takes_the_program_by_surprise(
    program: Program, three: Path, path: tuple[str, ...], command: Command
) -> None:
    program.folder.joinpath("in.jsonl").write_bytes(three.read_bytes())
    arguments = [PLAIN.get(str(p.metavar), "x") for p in command.params if isinstance(p, click.Argument)]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_flag:
            words = [*path, *arguments, *NEEDED.get(path[0], []), parameter.opts[-1], NOT_UTF8]
            ended = program(*words, env={"REPLAY_LEDGER_BASE_URL": "http://127.0.0.1:9"})
            assert "Unexpected error" not in ended.err, (words, ended.err)
            assert ended.code in {0, 2, 4}, (words, ended)
            assert "\x1b" not in ended.err, words


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_no_argument_takes_the_program_by_surprise(program: Program, path: tuple[str, ...], command: Command) -> None:
    count = sum(isinstance(parameter, click.Argument) for parameter in command.params)
    program("db", "upgrade")
    for odd in (NOT_UTF8, "", "x" * 5000, "--", "../x", "'; DROP TABLE runs; --"):
        if count:
            ended = program(*path, *[odd] * count, *NEEDED.get(path[0], []))
            assert "Unexpected error" not in ended.err, (path, odd, ended.err)
            assert ended.code in {2, 4}, (path, odd, ended)
            assert "\x1b" not in ended.err, (path, odd)


SPOOFED = "nope\nPASS  fake"


SPOOFING: tuple[tuple[str, ...], ...] = (
    ("verify", "--checkpoint", SPOOFED),
    ("verify", "--at-checkpoint", SPOOFED),
    ("verify", "--key", SPOOFED),
    ("report", SPOOFED),
    ("report", "r1", "--out", f"{SPOOFED}/x"),
    ("report", "r1", "--as-of", SPOOFED),
    ("report", "r1", "--format", SPOOFED),
    ("report", "r1", f"--{SPOOFED}"),
    ("report", "r1", SPOOFED),
    (SPOOFED,),
    ("show", "r1", SPOOFED),
    ("run", SPOOFED),
    ("run", "x", "--extra-body", SPOOFED),
    ("prepare", SPOOFED),
    ("bundle-check", SPOOFED),
    ("report-check", SPOOFED),
    ("sql", SPOOFED),
    ("sql", "-f", SPOOFED),
    ("keys", SPOOFED),
    ("reproduce", "r1", "--contract", SPOOFED),
    ("runs", "--env-file", SPOOFED),
    ("runs", "--since", SPOOFED),
    ("runs", "--ledger", f"sqlite:///{SPOOFED}"),
    ("runs", "--ledger", f"sqlite:///{SPOOFED}/x"),
    ("runs", "--ledger", f"{SPOOFED}://"),
    ("runs", "--ledger", f"postgresql://u@127.0.0.1:1/{SPOOFED}"),
)


def test_a_line_break_in_a_name_made_a_line_that_passed_for_our_own(
    program: Program, against: Callable[..., MockEndpoint], three: Path
) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    for words in SPOOFING:
        ended = program(*words)
        assert ended.code != 0, words
        assert not [line for line in (ended.err + ended.text).splitlines() if line.strip().startswith("PASS")], (
            words,
            ended,
        )


@pytest.fixture
def one_run(program: Program, against: Callable[..., MockEndpoint], three: Path) -> Program:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    return program


def test_a_device_or_a_pipe_without_a_writer_was_waited_for_or_read_without_end(one_run: Program) -> None:
    os.mkfifo(one_run.folder / "pipe")
    for words, code in (
        (("report-check", "/dev/zero"), 2),
        (("report-check", "pipe"), 1),
        (("report-check", "."), 2),
        (("verify", "--checkpoint", "/dev/zero"), 2),
        (("verify", "--checkpoint", "pipe"), 2),
        (("verify", "--key", "pipe"), 2),
        (("reproduce", "r1", "--contract", "/dev/zero"), 2),
        (("reproduce", "r1", "--contract", "pipe"), 2),
        (("runs", "--env-file", "/dev/zero"), 2),
        (("runs", "--config", "/dev/zero"), 2),
        (("prepare", "incidents.jsonl", "--map", "/dev/zero"), 2),
    ):
        ended = one_run(*words, timeout=20)
        assert ended.code == code, (words, ended)
        assert words[-1] in ended.err, (words, ended)


def test_what_somebody_writes_into_a_pipe_is_read_to_its_end(one_run: Program) -> None:
    assert one_run("report", "r1", "--issue", "--out", "report.json").code == 0
    whole = (one_run.folder / "report.json").read_bytes()
    pipe = one_run.folder / "pipe"
    os.mkfifo(pipe)
    keeper = os.open(pipe, os.O_RDWR)  # so that the program finds a writer, and nothing written yet

    def write() -> None:
        time.sleep(0.7)
        with pipe.open("wb") as file:
            os.close(keeper)
            file.write(whole)

    writer = threading.Thread(target=write)
    writer.start()
    ended = one_run("report-check", "pipe", timeout=20)
    writer.join()
    assert ended.code == 0, ended.err


def test_standard_output_by_its_name_was_no_such_file(one_run: Program) -> None:
    whole = one_run("report", "r1", "--format", "json").out
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        process = one_run.start("report", "r1", "--format", "json", "--out", name)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, whole), err
    process = one_run.start("results", "r1", "--out", "/dev/stdout")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_another_pipe_by_its_name_was_no_such_file(one_run: Program) -> None:
    whole = one_run("report", "r1", "--format", "json").out
    shell = f"exec 9>&1; {shlex.quote(str(PROGRAM))} report r1 --format json --out /dev/fd/9 | cat >&2"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=one_run.folder, env=clean_environment(), capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, whole, b"")


@pytest.mark.parametrize("as_of", ["0", "-1", "007", "99999999999999999"])
def test_a_number_that_is_no_position_was_called_no_time(one_run: Program, as_of: str) -> None:
    ended = one_run("report", "r1", f"--as-of={as_of}")
    assert ended.code == 2
    assert f"{as_of} is no position: they begin at 1" in ended.err


def test_a_ledgers_name_was_refused_without_the_character_it_was_refused_for(program: Program) -> None:
    ended = program("runs", "--ledger", "sqlite:///what?.db")
    assert ended.code == 2
    assert "may not hold '?'" in ended.err
