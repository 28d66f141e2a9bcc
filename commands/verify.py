"""``verify``: hash everything again and compare."""

from __future__ import annotations

import sys

import click

from commands._click import Command
from commands._ledger import open_for
from commands._options import json_option
from commands._output import json_line, write_data
from commands._progress import TerminalLine
from ledger.integrity.verdict import Verdict
from ledger.integrity.verify import unreadable
from ledger.integrity.verify import verify as verify_ledger
from ledger.store.errors import LedgerMalformed


@click.command(
    cls=Command,
    examples=[
        "replay-ledger verify",
        "replay-ledger verify --ledger postgresql://auditor@db.example/ledger",
        "replay-ledger verify --json | jq .findings",
    ],
)
@json_option
@click.pass_context
def verify(ctx: click.Context, /, as_json: bool) -> int:
    """Check that the record is whole and unaltered.

    Every event is read and hashed again, up to the root; every content is checked against its
    commitment; the tables made from the log are folded anew and compared. Nothing is changed.

    \b
    Exit: 0 PASS; 1 FAIL, something does not match; 3 INCOMPLETE, nothing is wrong but
    something is unproven.
    """
    with TerminalLine(sys.stderr) as line:
        verdict = _judged(ctx, line)
    if as_json:
        write_data([json_line(verdict.as_dict())])
    else:
        write_data(line.encode("utf-8") + b"\n" for line in verdict.lines())
    return verdict.exit_code


def _judged(ctx: click.Context, line: TerminalLine) -> Verdict:
    try:
        store = open_for(ctx, "read", even_damaged=True)
    except LedgerMalformed as error:  # a database that cannot even be opened is no whole record
        return unreadable(error)
    return verify_ledger(store, progress=line.events)
