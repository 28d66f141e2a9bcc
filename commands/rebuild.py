"""``rebuild [--check]``: fold the tables that are made from the log again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from commands._click import Command
from commands._failures import NO, OK
from commands._ledger import open_for
from commands._options import json_option, option
from commands._output import json_line, say, write_data
from ledger.projections.rebuild import Difference, check
from ledger.projections.rebuild import rebuild as fold_again

_SHOWN: Final = 20


@click.command(
    cls=Command,
    examples=["replay-ledger rebuild --check", "replay-ledger rebuild"],
)
@option("--check", "only_check", is_flag=True, help="Only compare; change nothing, and end with 1 where they differ.")
@json_option
@click.pass_context
def rebuild(ctx: click.Context, /, only_check: bool, as_json: bool) -> int:
    """Make the tables that come from the log anew.

    All events are folded again and the rows compared; tables that differ are replaced. The log
    itself is only read. Reports are computed from the log and need no rebuild.
    """
    if only_check:
        differences = check(open_for(ctx, "read"))
        replaced: Sequence[str] = ()
    else:
        result = fold_again(open_for(ctx, "write"))
        differences, replaced = result.differences, result.replaced
    if as_json:
        write_data([json_line({"differences": [d._asdict() for d in differences], "replaced": list(replaced)})])
    _tell(differences, replaced)
    return NO if only_check and differences else OK


def _tell(differences: Sequence[Difference], replaced: Sequence[str]) -> None:
    for difference in differences[:_SHOWN]:
        key = ", ".join(map(str, difference.key))
        columns = f": {', '.join(difference.columns)}" if difference.columns else ""
        say(f"{difference.table} ({key}): {difference.kind}{columns}")
    if len(differences) > _SHOWN:
        say(f"... and {len(differences) - _SHOWN:,} more rows or beyond")
    if not differences:
        say("The tables are what the log says.")
    elif replaced:
        say(f"Written anew: {', '.join(replaced)}.")
