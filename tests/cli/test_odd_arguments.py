"""Whatever stands on a command line, nobody is shown a fault of the program's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from commands._click import Command
from tests.cli.program import Program
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
