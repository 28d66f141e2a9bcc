"""``checkpoint``: sign the ledger as it stands, and print the signed note."""

from __future__ import annotations

import click

from commands._anchors import given_keys
from commands._click import Command
from commands._failures import Refused
from commands._in_files import read_in
from commands._ledger import open_for
from commands._options import option, out_option, typed_option
from commands._out_files import refuse_databases, refuse_shared, refuse_signers_files
from commands._output import write_data
from commands._signing import signer_for
from commands.keys import no_key
from ledger.integrity.note import MAX_NOTE_BYTES


@click.command(
    cls=Command,
    examples=[
        "replay-ledger checkpoint",
        "replay-ledger checkpoint --out checkpoint-2026-11-30.txt",
        "replay-ledger checkpoint --adopt checkpoint-2026-11-30.txt",
        "replay-ledger checkpoint --adopt checkpoint-2026-11-30.txt --key old.vkey",
    ],
)
@out_option
@typed_option(
    "--adopt",
    metavar="FILE",
    help="Where the signer's store was lost: take the latest checkpoint that you kept elsewhere for the last one "
    "signed. The ledger must extend it.",
)
@option(
    "--key",
    "vkeys",
    multiple=True,
    metavar="VKEY|FILE",
    help="With --adopt: a public key to trust FILE by, or a file that holds it, where the signer's store does not "
    "know it. Repeatable.",
)
@click.pass_context
def checkpoint(ctx: click.Context, /, out: str | None, adopt: str | None, vkeys: tuple[str, ...]) -> None:
    """Sign the ledger as it stands, and print the signed note and nothing else.

    Keep it where the ledger's keeper cannot change it: on it rests what can be proven later. Only
    a ledger that extends the last checkpoint signed is signed: never one that was put back from an
    older copy, or whose history is another one.

    \b
    Exit: 0 signed; 1 the ledger does not extend what was signed before; 2 the key is not
    at hand, or wrong use.
    """
    keys = given_keys(vkeys) if adopt is not None else ()
    refuse_shared({"--adopt": adopt}, {"--out": out})
    if out is not None:
        refuse_databases(out)
        refuse_signers_files(out)
    store = open_for(ctx, "write")
    signer = signer_for(ctx, store)
    if signer is None:
        raise Refused(no_key(ctx, store))
    if adopt is not None:
        signer.adopt(store, _read(adopt), keys)
    write_data([signer.sign(store).note.encode("utf-8")], out)


def _read(name: str) -> bytes:
    return read_in(name, MAX_NOTE_BYTES + 1)
