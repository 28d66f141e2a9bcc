"""Every command explains itself, and the documentation says the same."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from cli import PROGRAM, SECTIONS, cli
from commands._click import Command
from commands._options import Option
from tests.cli.program import Program
from tests.cli.reference import PAGE, with_help

ROOT = cli()


def verbs(group: click.Group = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that name it."""
    context = click.Context(group, **group.context_settings)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name), command


ALL = list(verbs())
NAMES = [" ".join(path) for path, _ in ALL]


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_a_command_has_help_and_examples(path: tuple[str, ...], command: click.Command) -> None:
    assert isinstance(command, Command)
    assert command.help
    assert command.help.split("\n", 1)[0].endswith(".")
    assert command.examples
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(path)} {parameter.opts}"


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_the_examples_of_a_command_are_command_lines_of_it(path: tuple[str, ...], command: Command) -> None:
    for example in command.examples:
        first_of_pipe = example.split(" | ", maxsplit=1)[0].split(" > ")[0].split(" < ")[0]
        words = shlex.split(first_of_pipe)
        assert words[: 1 + len(path)] == [PROGRAM, *path], example
        context = command.make_context(" ".join(path), words[1 + len(path) :], resilient_parsing=True)
        assert not context.args, example


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_the_page_on_the_command_line_has_each_command(path: tuple[str, ...], command: click.Command) -> None:
    assert f"\n### {' '.join(path)}\n" in PAGE.read_text(encoding="utf-8")


def test_the_help_in_the_page_on_the_command_line_is_the_help_of_the_program() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_help(page) == page, "write it anew: python -m tests.cli.reference"


def test_every_option_can_be_given_by_the_environment() -> None:
    for path, command in ALL:
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or isinstance(parameter, Option), (path, parameter.opts)


def test_help_is_grouped_and_names_every_command(program: Program) -> None:
    ended = program("--help")
    assert ended.code == 0
    assert ended.err == ""
    for heading, commands in SECTIONS.items():
        assert f"\n{heading}:\n" in ended.text
        for name in commands:
            assert f"\n  {name} " in ended.text


def test_what_a_list_of_verbs_says_of_one_is_the_first_sentence_of_its_help() -> None:
    context = click.Context(ROOT)
    for commands in SECTIONS.values():
        for name, (_, what) in commands.items():
            command = ROOT.get_command(context, name)
            assert command is not None
            assert what == command.get_short_help_str(limit=1000)


@pytest.mark.parametrize("completing", [False, True], ids=["listed", "completed"])
def test_the_list_of_verbs_took_seconds_for_every_verb_was_loaded(completing: bool) -> None:
    asked = {"_REPLAY_LEDGER_COMPLETE": "zsh_complete", "COMP_WORDS": "replay-ledger re", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import sys, cli; sys.exit(cli.main())", *["--help"][completing:]],
        env=os.environ | (asked if completing else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "report" in ended.stdout
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "commands._click" in loaded
    assert loaded.isdisjoint({"commands.report", "commands.run", "httpx"})


def test_the_version_is_told(program: Program) -> None:
    ended = program("--version")
    assert (ended.code, ended.err) == (0, "")
    assert ended.text.startswith(f"{PROGRAM}, version ")


def test_the_shell_is_told_how_to_complete(program: Program) -> None:
    ended = program(env={"_REPLAY_LEDGER_COMPLETE": "bash_source"})
    assert ended.code == 0
    assert "complete -o nosort" in ended.text
    words = program(
        env={"_REPLAY_LEDGER_COMPLETE": "bash_complete", "COMP_WORDS": "replay-ledger re", "COMP_CWORD": "1"}
    )
    offered = {line.split(",")[1] for line in words.text.splitlines()}
    assert offered == {"resume", "results", "report", "rebuild", "redact", "report-check", "reproduce", "retention"}


@pytest.mark.parametrize("words", [("no-such-verb",), ("report",), ("report", "latest", "--no-such-option")])
def test_wrong_use_ends_with_2_and_says_how_to_get_help(program: Program, words: tuple[str, ...]) -> None:
    ended = program(*words)
    assert ended.code == 2
    assert ended.out == b""
    assert "--help" in ended.err


@pytest.mark.parametrize("words", [(), ("db",)])
def test_no_verb_at_all_ends_with_2_and_the_help(program: Program, words: tuple[str, ...]) -> None:
    ended = program(*words)
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err == program(*words, "--help").text


@pytest.mark.parametrize("verb", ["keys", "hold", "retention", "db"])
def test_a_verb_with_verbs_of_its_own_had_no_examples(program: Program, verb: str) -> None:
    shown = program(verb, "--help").text
    examples = [line.split() for line in shown.partition("Examples:\n")[2].splitlines() if line.strip()]
    group = ROOT.get_command(click.Context(ROOT), verb)
    assert isinstance(group, click.Group)
    assert [words[:3] for words in examples] == [["replay-ledger", verb, inner] for inner in group.commands]
