"""``abandon RUN``: end a run for good, with or without all its results."""

from __future__ import annotations

import click

from commands._click import Command
from commands._failures import OK
from commands._ledger import find_run, typed_again
from commands._options import accept_clock_option, actor_option, option, run_argument
from commands._output import say
from commands._session import session
from commands._signing import code_after, open_to_append, signed
from commands._types import Identifier, PlainText
from commands._who import who_runs
from runner.replay import abandon_run


@click.command(
    cls=Command,
    examples=[
        "replay-ledger abandon replay-20261130-204200-1f3c --reason superseded",
        'replay-ledger abandon latest --reason endpoint-gone --note "the vendor closed the account"',
    ],
)
@run_argument
@option("--reason", type=Identifier(), required=True, metavar="CODE", help="Why, as a code: an id of your own choice.")
@option("--note", type=PlainText(), metavar="TEXT", help="More about it, kept as content.")
@actor_option
@accept_clock_option
@click.pass_context
def abandon(
    ctx: click.Context, /, run: str, reason: str, note: str | None, actor: str | None, accept_clock: bool
) -> int:
    """End a run for good.

    Calls that are still open are closed with an unknown outcome. Requests keep the results they
    have; those without one get none. A run that has ended already cannot be abandoned.
    """
    store = open_to_append(ctx, "write", accept_clock=accept_clock)
    run_id = find_run(store, run)
    who = who_runs(actor)
    counts, unsigned = signed(ctx, store, lambda: abandon_run(store, run_id, reason=reason, actor=who.actor, note=note))
    without = counts.not_started + counts.incomplete
    say(f"Run {run_id} is abandoned: {counts.requests} requests, {without} of them without a result.")
    say(f"Next: {typed_again(session(ctx), 'report', run_id)}")
    return code_after(OK, unsigned)
