"""``keys``: the key that signs the ledger's checkpoints: show its public half, or give the ledger another."""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from commands._click import Command, SubGroup
from commands._failures import Refused
from commands._ledger import open_for, typed_again
from commands._options import accept_clock_option, option, typed_option
from commands._output import counted, say, write_data
from commands._session import Session, session
from commands._signing import signer_for, signer_store, where_looked
from commands._types import PlainText
from commands._who import who_runs
from ledger.events import LEDGER_RUN_ID, KeyRotated, NewEvent, new_event
from ledger.integrity.note import VerifierKey
from ledger.integrity.signer import Signer, ledger_keys
from ledger.integrity.signing_errors import RotatedUnsigned
from ledger.store import Store


@click.group(cls=SubGroup)
def keys() -> None:
    """Show the key that signs the ledger's checkpoints, or give the ledger another."""


@keys.command(
    cls=Command,
    examples=[
        "replay-ledger keys show",
        "replay-ledger keys show --ledger postgresql://writer@db.example/ledger > ledger.vkey",
    ],
)
@click.pass_context
def show(ctx: click.Context, /) -> None:
    """Print the public key that checkpoints are checked with, and nothing else.

    It is the key in the signer's folder on this machine, not what the ledger says of itself. Give
    it to whoever is going to check the ledger, by a way that the ledger's keeper cannot change later.
    """
    store = open_for(ctx, "read")
    signer = signer_for(ctx, store)
    if signer is None:
        raise Refused(no_key(ctx, store))
    write_data([f"{signer.vkey(store)}\n".encode("ascii")])


@keys.command(
    cls=Command,
    examples=[
        "replay-ledger keys rotate",
        'replay-ledger keys rotate --note "yearly change of keys"',
    ],
)
@option("--note", type=PlainText(), metavar="TEXT", help="Why, kept as content of the event.")
@typed_option(
    "--key-lost",
    is_flag=True,
    help="The ledger's key is gone for good: go on without its signature. Who trusted it has to be given the new "
    "one anew.",
)
@accept_clock_option
@click.pass_context
def rotate(ctx: click.Context, /, note: str | None, key_lost: bool, accept_clock: bool) -> None:
    """Give the ledger a new signing key, or its first one, and print its public half.

    The change is an event. The first checkpoint over it bears both signatures, so whoever trusts
    the old key can trust the new one; later checkpoints bear the new one alone, and the old private
    key is destroyed. Interrupted in between, it is finished by the same command, or by the next
    one that signs.

    With --key-lost, and the last checkpoint lost along with the key, nothing is signed yet: bring one
    that was kept elsewhere with `checkpoint --adopt FILE --key OLD.vkey`.
    """
    store = open_for(ctx, "write", accept_clock=accept_clock)
    signer = signer_for(ctx, store)
    if signer is None:
        signer = _new_signer(ctx, store, key_lost=key_lost)
    try:
        checkpoint = signer.rotate(store, _event_for(note), key_lost=key_lost)
    except RotatedUnsigned:
        _tell_what_comes_next(session(ctx), signer)
    else:
        say(f"Signed by the ledger's key from here on, over {counted(checkpoint.size, 'event')}:")
    write_data([f"{signer.vkey(store)}\n".encode("ascii")])


def _tell_what_comes_next(state: Session, signer: Signer) -> None:
    """The key is new, and nothing is signed by it: the way on is one command, with what only a person can bring."""
    folder = [] if state.signer_dir is None else ["--signer-dir", state.signer_dir]
    say(f"The ledger has a new key, in {signer.kept.folder}, and an event says so. Its public half is printed below:")
    say("hand it out afresh, as no signature by the old key vouches for it.")
    say("Nothing is signed by it yet: the last checkpoint signed is lost as well, so a fork could not be told.")
    say("Next, bring the latest checkpoint that was kept elsewhere, and the public key that signed it:")
    say(f"  {typed_again(state, 'checkpoint', '--adopt', 'FILE', '--key', 'OLD.vkey', *folder)}")


def _new_signer(ctx: click.Context, store: Store, *, key_lost: bool) -> Signer:
    """A signer where there is no key yet: the ledger's first, or the next one after one that was lost."""
    if any(ledger_keys(store)) and not key_lost:
        raise Refused(f"{_not_at_hand(ctx, store)}; rotate it there, or with --key-lost where it is gone for good")
    kept = signer_store(session(ctx), store.head().origin)
    if kept is None:
        raise Refused("there is no home folder to keep the ledger's key in: give --signer-dir")
    return Signer(kept)


def _event_for(note: str | None) -> Callable[[VerifierKey], NewEvent]:
    who = who_runs(None)
    said = {"operator": who.operator, "host": who.host, "note": note}
    content = json.dumps({name: value for name, value in said.items() if value is not None}, ensure_ascii=False)
    return lambda vkey: new_event(KeyRotated(vkey=str(vkey)), run_id=LEDGER_RUN_ID, content=content)


def no_key(ctx: click.Context, store: Store) -> str:
    """That the ledger's key is not at hand, what the ledger says about it, which proves nothing, and the way on."""
    if any(ledger_keys(store)[-1:]):
        lost = (
            "where it is gone for good, `replay-ledger keys rotate --key-lost` makes another and says what comes next"
        )
        return f"{_not_at_hand(ctx, store)}; {lost}"
    return (
        f"the ledger {store.head().origin} has no signing key ({where_looked(ctx, store)}); "
        "`replay-ledger keys rotate` makes one"
    )


def _not_at_hand(ctx: click.Context, store: Store) -> str:
    return (
        f"the signing key of the ledger {store.head().origin} is not at hand ({where_looked(ctx, store)}); "
        f"the ledger names {ledger_keys(store)[-1]}, kept elsewhere"
    )
