"""``report-check FILE``: is it a report that was issued, and does the ledger still give it?"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import click

from commands._click import Command
from commands._failures import NO, OK
from commands._in_files import chunks_in
from commands._ledger import open_for
from commands._output import say
from ledger.render.issue import Issued, erased_since, issued, rendering
from ledger.store import Store

_INCOMPLETE: Final = 3


@click.command(
    "report-check",
    cls=Command,
    examples=["replay-ledger report-check report.json", "replay-ledger report-check results.jsonl"],
)
@click.argument("file", metavar="FILE", type=click.Path())
@click.pass_context
def report_check(ctx: click.Context, /, file: str) -> int:
    """Check that a report is one that was issued, byte for byte, and make it again.

    It is looked for by its SHA-256 among the reports that the ledger says were issued (`report
    --issue` and `bundle` issue them). Whether the ledger itself is whole is for `verify` to say.

    \b
    Exit: 0 it was issued and comes out the same; 1 it was never issued, or comes out
    differently; 3 text in it was erased since, so it cannot be made again.
    """
    given = sha256()
    for chunk in chunks_in(file):
        given.update(chunk)
    digest = given.hexdigest()
    store = open_for(ctx, "read")
    found = issued(store, digest)
    if not found:
        say(f"{file}: no report with these bytes was issued (SHA-256 {digest}).")
        return NO
    report = found[0]
    what = f"{report.kind} of run {report.run_id} as {report.format}, as of position {report.as_of_position}"
    say(f"{file}: {what}, issued at position {report.position}.")
    return _made_again(store, report)


def _made_again(store: Store, report: Issued) -> int:
    try:
        of = rendering(report.kind, report.format, report.renderer_version, report.projection)
    except KeyError:
        say(f"This program has no version {report.renderer_version} of that format, so it cannot be made again.")
        return _INCOMPLETE
    digest = sha256()
    for chunk in of.render(store, report.run_id, report.as_of_position):
        digest.update(chunk)
    if digest.hexdigest() == report.sha256:
        say("Made again from the ledger, it has the same bytes.")
        return OK
    erased = erased_since(store, report)
    if of.kind == "results" and erased:
        say(f"It cannot be made again: {erased} contents of the run were lawfully erased since.")
        return _INCOMPLETE
    say("Made again from the ledger, it has OTHER bytes: run `replay-ledger verify`.")
    return NO
