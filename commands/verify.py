"""``verify``: hash everything again and compare, and say what vouches for it."""

from __future__ import annotations

import sys

import click

from commands._anchors import given_checkpoint, given_keys, signers
from commands._click import Command
from commands._ledger import open_for
from commands._options import json_option, option
from commands._output import json_line, write_data
from commands._progress import TerminalLine
from ledger.integrity.verdict import Verdict
from ledger.integrity.verify import unreadable
from ledger.integrity.verify import verify as verify_ledger
from ledger.store.errors import LedgerMalformed

_LARGEST = 2**53 - 1


@click.command(
    cls=Command,
    examples=[
        "replay-ledger verify",
        "replay-ledger verify --key ledger.vkey --checkpoint checkpoint-2026-11-30.txt --max-window 1000",
        "replay-ledger verify --key ledger.vkey --at-checkpoint checkpoint-2026-11-30.txt",
        "replay-ledger verify --ledger postgresql://auditor@db.example/ledger --jobs 4",
        "replay-ledger verify --json | jq .findings",
    ],
)
@option(
    "--key",
    "key_texts",
    multiple=True,
    metavar="VKEY|FILE",
    help="A public key that you trust, or a file that holds it, from where you kept it. Repeatable. The keys in the "
    "signer's store on this machine are trusted too.",
)
@option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="FILE",
    help="A checkpoint that you kept elsewhere: the ledger must extend it. Repeatable. The last one in the signer's "
    "store on this machine is taken too.",
)
@option(
    "--max-window",
    type=click.IntRange(0, _LARGEST),
    default=0,
    show_default=True,
    metavar="N",
    help="How many events may stand beyond the latest of these checkpoints.",
)
@option(
    "--at-checkpoint",
    metavar="FILE",
    help="Judge only the events that this checkpoint covers: not those after it, nor the tables made from all.",
)
@option("--no-projections", is_flag=True, help="Leave out the tables made from the log; then at most INCOMPLETE.")
@option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N", help="Processes that hash.")
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    key_texts: tuple[str, ...],
    checkpoints: tuple[str, ...],
    max_window: int,
    at_checkpoint: str | None,
    no_projections: bool,
    jobs: int,
    as_json: bool,
) -> int:
    """Check that the record is whole and unaltered, and say what vouches for it.

    Every event is read and hashed again, up to the root; every content is checked against its
    commitment; the tables made from the log are folded anew and compared. Nothing is changed.
    Whoever can write to the database could write it all anew: so PASS needs a signed checkpoint that is
    kept outside of it, best on another machine. (A ledger made from Python needs `keys rotate` first.)

    \b
    Exit: 0 PASS, everything matches and a checkpoint vouches for the end; 1 FAIL, something
    does not match; 3 INCOMPLETE, nothing is wrong but something is unproven.
    """
    keys = given_keys(key_texts)
    anchors = tuple(given_checkpoint("--checkpoint", name) for name in checkpoints)
    at = None if at_checkpoint is None else given_checkpoint("--at-checkpoint", at_checkpoint)

    def judged(line: TerminalLine) -> Verdict:
        try:
            store = open_for(ctx, "read", even_damaged=True)
        except LedgerMalformed as error:  # a database that cannot even be opened is no whole record
            return unreadable(error)
        own = signers(ctx, store)
        return verify_ledger(
            store,
            keys=(*keys, *own.keys),
            anchors=(*anchors, *own.anchors),
            max_window=max_window,
            at=at,
            projections=not no_projections,
            jobs=jobs,
            progress=line.events,
        )

    with TerminalLine(sys.stderr) as line:
        verdict = judged(line)
    if as_json:
        write_data([json_line(verdict.as_dict())])
    else:
        write_data(line.encode("utf-8") + b"\n" for line in verdict.lines())
    return verdict.exit_code
