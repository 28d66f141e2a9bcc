"""``retention``: how long content is kept at least."""

from __future__ import annotations

import re
from typing import Final

import click

from commands._click import Command, SubGroup
from commands._failures import OK
from commands._ledger import open_for
from commands._options import accept_clock_option, actor_option, json_option
from commands._output import json_line, say, write_data
from commands._signing import code_after, open_to_append, signed
from commands.hold import by_line, by_whom, note_option, said_at
from ledger.integrity.holds import MAX_DAYS, read_keeping, set_retention

_BELOW_NONE: Final = re.compile(r"-[0-9]+\Z")


class _TakesDays(Command):
    """A verb to which ``-1`` is a number out of range, not an option that there is none of."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # click takes from it what it has read
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            days = next(
                (word for word in given if _BELOW_NONE.match(word) and word.startswith(error.option_name)), None
            )
            if days is None:
                raise
            of = next(one for one in self.params if isinstance(one, click.Argument))
            of.type_cast_value(ctx, days)
            raise


@click.group(cls=SubGroup)
def retention() -> None:
    """Say for how many days content must be kept before it may be erased."""


@retention.command(
    "set",
    cls=_TakesDays,
    examples=[
        'replay-ledger retention set 183 --note "six months of logs, as the regulation asks"',
        'replay-ledger retention set 30 --note "the regulation changed"',
    ],
)
@click.argument("days", metavar="DAYS", type=click.IntRange(0, MAX_DAYS))
@note_option
@actor_option
@accept_clock_option
@click.pass_context
def set_(ctx: click.Context, /, days: int, note: str | None, actor: str | None, accept_clock: bool) -> int:
    """Keep content for at least DAYS days after it was recorded.

    Until then `redact` refuses to erase it. Nothing is erased by itself when they are over. 0: it may
    be erased at any time. A floor may be lowered, but only with a --note that says why; the ledger
    keeps the earlier one, the note, and who lowered it.
    """
    store = open_to_append(ctx, "write", accept_clock=accept_clock)
    before, unsigned = signed(ctx, store, lambda: set_retention(store, days, by_whom(actor, note)))
    if before is None:
        say(f"The retention floor is {days} days already; nothing was appended.")
    elif before > days:
        say(f"The retention floor is lowered from {before} to {days} days.")
    else:
        say(f"The retention floor is {days} days; it was {before}.")
    return code_after(OK, unsigned)


@retention.command(
    cls=Command,
    examples=["replay-ledger retention show", "replay-ledger retention show --json | jq .days"],
)
@json_option
@click.pass_context
def show(ctx: click.Context, /, as_json: bool) -> None:
    """Show the retention floor, and every one that there was before."""
    store = open_for(ctx, "read")
    keeping = read_keeping(store)
    said = said_at(store, [floor.position for floor in keeping.floors])
    if as_json:
        floors = [{**floor._asdict(), "said": said.get(floor.position)} for floor in keeping.floors]
        write_data([json_line({"days": keeping.days, "floors": floors})])
        return
    lines = [f"{keeping.days} days"] if keeping.floors else ["0 days: no retention floor was ever set"]
    lines += [f"  {f.days:>6} days  set {f.set_at}{by_line(said.get(f.position))}" for f in keeping.floors]
    write_data(f"{line}\n".encode() for line in lines)
