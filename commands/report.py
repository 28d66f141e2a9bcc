"""``report RUN``: what a run came to."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from commands._click import Command
from commands._failures import OK
from commands._ledger import check_as_of, find_run, open_for, tell_unreadable
from commands._options import as_of_option, option, out_option, run_argument
from commands._output import format_for, write_data
from ledger.projections.report import report as make_report
from ledger.render import report_json, report_text

_RENDER: Final = {"json": report_json.render, "text": report_text.render}
_EXTENSIONS: Final = {".json": "json", ".txt": "text"}


@click.command(
    cls=Command,
    examples=[
        "replay-ledger report latest",
        "replay-ledger report latest --format json | jq .failures",
        "replay-ledger report replay-20261130 --as-of 2026-11-30T20:42:00Z --out report.json",
    ],
)
@run_argument
@option(
    "--format",
    "form",
    type=click.Choice(list(_RENDER)),
    help="[default: by the extension of --out; else text on a terminal and json elsewhere]",
)
@as_of_option
@out_option
@click.pass_context
def report(ctx: click.Context, /, run: str, form: str | None, as_of: int | str | None, out: str | None) -> int:
    """Print the report of a run.

    The same events give the same bytes, on any machine and at any time. With --as-of it is the
    report as it was then.

    \b
    Exit: 0 whatever the run's verdict is; 1 an event of the run cannot be read.
    """
    store = open_for(ctx, "read")
    run_id, upto = find_run(store, run), check_as_of(store, as_of)
    made: dict[str, Any] = make_report(store, run_id, upto)
    chosen = form or format_for(out, _EXTENSIONS, terminal="text", otherwise="json", stream=sys.stdout)
    write_data([_RENDER[chosen](made)], out)
    return tell_unreadable(store, run_id, upto) if made["unreadable"] else OK
