"""Our verbs and their group: help under headings, loaded when it is needed, with examples."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from commands._config import path_of
from commands._options import common_options
from commands._session import session

WIDTH: Final = 100
CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}


class Command(click.Command):
    """A verb. ``examples`` are whole command lines; a verb without one does not load.

    Every verb takes the common options; ``ledger`` False leaves ``--ledger`` out.
    """

    def __init__(self, *args: Any, examples: Sequence[str], ledger: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", CONTEXT_SETTINGS)
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params.extend(common_options(ledger=ledger))

    def invoke(self, ctx: click.Context) -> Any:
        config = session(ctx).config
        if config is not None:
            root = ctx.find_root()
            verbs = root.command.list_commands(root) if isinstance(root.command, click.Group) else []
            config.check(path_of(ctx), [one for one in self.params if isinstance(one, click.Option)], verbs)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {example}\n")
        super().format_epilog(ctx, formatter)


class SubGroup(click.Group):
    """A verb that has verbs of its own: its help shows the first example of each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", CONTEXT_SETTINGS)
        super().__init__(*args, **kwargs)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for command in self.commands.values():
                if isinstance(command, Command):
                    formatter.write(f"  {command.examples[0]}\n")
        super().format_epilog(ctx, formatter)


class Group(click.Group):
    """Verbs under headings, each imported when it is first needed, and none to list them.

    ``sections``: heading -> verb -> (``module:attribute``, first sentence of its help).
    """

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", CONTEXT_SETTINGS)
        super().__init__(*args, **kwargs)
        self.sections = sections
        self._verbs = {verb: where for verbs in sections.values() for verb, where in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._verbs:
            return None
        place, _ = self._verbs[cmd_name]
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{place} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, verbs in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(verb, what) for verb, (_, what) in verbs.items()], col_max=12)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        fitting = [
            CompletionItem(verb, help=what) for verb, (_, what) in self._verbs.items() if verb.startswith(incomplete)
        ]
        return fitting + click.Command.shell_complete(self, ctx, incomplete)
