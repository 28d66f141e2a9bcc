"""``report RUN``: what a run came to."""

from __future__ import annotations

import sys
from typing import Final

import click

from commands._click import Command
from commands._failures import OK
from commands._issuing import issue_bytes, issue_option
from commands._ledger import check_as_of, find_run, open_for, tell_unreadable
from commands._options import accept_clock_option, actor_option, as_of_option, option, out_option, run_argument
from commands._output import REPORT_EXTENSIONS, format_for, write_data
from commands._signing import code_after, open_to_append, signed
from commands._who import who_runs
from ledger.render import report_forms
from ledger.render.issue import PROJECTIONS

_NEWEST: Final = list(PROJECTIONS)[-1]


@click.command(
    cls=Command,
    examples=[
        "replay-ledger report latest",
        "replay-ledger report latest --format json | jq .failures",
        "replay-ledger report replay-20261130 --as-of 2026-11-30T20:42:00Z --out report.json",
        "replay-ledger report latest --out report.md",
        "replay-ledger report latest --out report.xml",
        "replay-ledger report latest --projection report/1 --format json",
        "replay-ledger report latest --issue --out report.html",
    ],
)
@run_argument
@option(
    "--format",
    "form",
    type=click.Choice(list(report_forms.NEWEST)),
    help="[default: by the extension of --out; else text on a terminal and json elsewhere]",
)
@as_of_option
@option(
    "--projection",
    type=click.Choice(list(PROJECTIONS)),
    help="The version of the report: what it counts, and how. An issued one comes out again in its own. "
    "[default: the newest]",
)
@out_option
@issue_option
@actor_option
@accept_clock_option
@click.pass_context
def report(
    ctx: click.Context,
    /,
    run: str,
    form: str | None,
    as_of: int | str | None,
    projection: str | None,
    out: str | None,
    to_issue: bool,
    actor: str | None,
    accept_clock: bool,
) -> int:
    """Print the report of a run.

    The same events give the same bytes, on any machine and at any time. With --as-of it is the
    report as it was then. md is for a pull request or a ticket; junit for continuous integration: a
    fallback is a failure, what was never put to the model an error.

    \b
    Exit: 0 whatever the run's verdict is; 1 an event of the run cannot be read.
    """
    chosen = form or format_for(out, REPORT_EXTENSIONS, terminal="text", otherwise="json", stream=sys.stdout)
    store = open_to_append(ctx, "write", accept_clock=accept_clock) if to_issue else open_for(ctx, "read")
    run_id = find_run(store, run)
    upto = check_as_of(store, as_of, run_id)
    made = PROJECTIONS[projection or _NEWEST](store, run_id, upto)
    data = b"".join(report_forms.render(store, made, chosen))
    unsigned = None
    if to_issue:  # before it is given out: no report is out there that the ledger does not know
        who = who_runs(actor).actor
        _, unsigned = signed(ctx, store, lambda: issue_bytes(store, run_id, "report", chosen, made, data, who))
    write_data([data], out)
    return code_after(tell_unreadable(store, run_id, upto) if made["unreadable"] else OK, unsigned)
