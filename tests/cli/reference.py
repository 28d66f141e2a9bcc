"""The help of every command as a part of ``docs/cli.md``: ``python -m tests.cli.reference`` writes it anew.

What stands above the marker is written by hand; all below it is made from the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from cli import PROGRAM, cli
from commands._click import WIDTH

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
MARKER: Final = "<!-- Below: made by `python -m tests.cli.reference`, from the commands themselves. -->\n"


def with_help(page: str) -> str:
    """The page with its lower part made anew. Raises ``ValueError`` where the marker is missing."""
    upper, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError(f"no line {MARKER.strip()!r}")
    return upper + marker + "".join(_sections())


def _sections() -> Iterator[str]:
    yield "\n## replay-ledger\n\n" + _help(cli, PROGRAM)
    for heading, verbs in cli.sections.items():
        yield f"\n## {heading}\n"
        for verb in verbs:
            yield from _verb(cli, verb, PROGRAM)


def _verb(group: click.Group, verb: str, path: str) -> Iterator[str]:
    command = group.commands.get(verb) or group.get_command(_context(group, path), verb)
    if command is None:
        raise LookupError(f"{path} has no command {verb}")
    name = f"{path} {verb}"
    yield f"\n### {name.removeprefix(PROGRAM + ' ')}\n\n" + _help(command, name)
    if isinstance(command, click.Group):
        for inner in command.list_commands(_context(command, name)):
            yield from _verb(command, inner, name)


def _context(command: click.Command, path: str) -> click.Context:
    return command.context_class(command, info_name=path, terminal_width=WIDTH, color=False)


def _help(command: click.Command, path: str) -> str:
    return f"```text\n{command.get_help(_context(command, path)).rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(with_help(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
