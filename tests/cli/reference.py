"""The help of every command as a part of ``docs/cli.md``: ``python -m tests.cli.reference`` writes it anew.

What stands above the marker is written by hand; all below it is made from the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from cli import PROGRAM, SECTIONS, cli
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
    root = _context(cli(), PROGRAM, None)
    yield "\n## replay-ledger\n\n" + _help(root)
    for heading, verbs in SECTIONS.items():
        yield f"\n## {heading}\n"
        for verb in verbs:
            yield from _verb(root, verb, verb)


def _verb(parent: click.Context, verb: str, title: str) -> Iterator[str]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, verb)
    assert command is not None, f"there is no command {title}"
    context = _context(command, verb, parent)
    yield f"\n### {title}\n\n" + _help(context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _verb(context, inner, f"{title} {inner}")


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {"terminal_width": WIDTH, "color": False, **command.context_settings}
    return command.context_class(command, info_name=name, parent=parent, **settings)


def _help(context: click.Context) -> str:
    return f"```text\n{context.get_help().rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(with_help(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
