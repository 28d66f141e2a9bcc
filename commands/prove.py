"""``prove EVENT``, ``prove --consistency M N``: proofs that others check without the ledger."""

from __future__ import annotations

import re

import click

from commands._click import Command
from commands._failures import Refused
from commands._in_files import read_in
from commands._ledger import open_for
from commands._options import option, out_option
from commands._out_files import refuse_shared
from commands._output import write_data
from ledger.integrity.note import MAX_NOTE_BYTES
from ledger.integrity.proof import covering_checkpoint, position_of, prove_consistency, prove_event
from ledger.store import Store

_POSITION = re.compile(r"[1-9][0-9]{0,15}")
_EVENT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@click.command(
    cls=Command,
    examples=[
        "replay-ledger prove 17 --out 17.tlog-proof",
        "replay-ledger prove 0197a3c0-0000-7000-8000-000000000009 --checkpoint checkpoint-2026-11-30.txt",
        "replay-ledger prove --consistency 14 2048 --out from-14-to-2048.txt",
    ],
)
@click.argument("event", metavar="[EVENT]", required=False)
@option(
    "--consistency",
    nargs=2,
    type=click.IntRange(min=1),
    metavar="M N",
    help="Prove that the first M events are the beginning of the first N; no EVENT is named then.",
)
@option(
    "--checkpoint",
    metavar="FILE",
    help="The signed checkpoint to prove EVENT under: one that whoever checks it has. [default: the newest that "
    "the ledger holds]",
)
@out_option
@click.pass_context
def prove(
    ctx: click.Context,
    /,
    event: str | None,
    consistency: tuple[int, int] | None,
    checkpoint: str | None,
    out: str | None,
) -> None:
    """Prove that one event is in the ledger that was signed.

    EVENT is a position or an event id. The proof is a small text file (C2SP tlog-proof) with the
    event's envelope and a signed checkpoint; `bundle-check` and verify.py check it. It shows that
    the event stands there unaltered, and nothing of any other event.
    """
    if (event is None) == (consistency is None):
        raise click.UsageError("name an EVENT, or give --consistency M N", ctx)
    if consistency is not None and checkpoint is not None:
        raise click.UsageError("--checkpoint goes with an EVENT, not with --consistency", ctx)
    refuse_shared({"--checkpoint": checkpoint}, {"--out": out})
    store = open_for(ctx, "read")
    if event is None:
        assert consistency is not None
        proof = prove_consistency(store, *consistency)
    else:
        position = _position(store, event)
        proof = prove_event(store, position, _note(store, position, checkpoint))
    write_data([proof], out)


def _position(store: Store, event: str) -> int:
    if _POSITION.fullmatch(event):
        size = store.head().size
        if int(event) > size:
            raise Refused(f"the ledger ends at position {size}")
        return int(event)
    if not _EVENT_ID.fullmatch(event):
        raise Refused(f"{event!r} is neither a position nor an event id")
    position = position_of(store, event)
    if position is None:
        raise Refused(f"the ledger holds no event {event}")
    return position


def _note(store: Store, position: int, checkpoint: str | None) -> str:
    if checkpoint is not None:
        return read_in(checkpoint, MAX_NOTE_BYTES + 1).decode("utf-8", "replace")
    stored = covering_checkpoint(store, position)
    if stored is None:
        raise Refused(f"no signed checkpoint covers position {position} yet: run `replay-ledger checkpoint`")
    return stored.note
