"""``hold``: legal holds, which forbid that anything is erased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import orjson

from commands._click import Command, SubGroup
from commands._failures import OK
from commands._ledger import find_run, open_for
from commands._options import accept_clock_option, actor_option, json_option, option
from commands._output import json_line, say, write_data
from commands._signing import code_after, open_to_append, signed
from commands._types import Identifier, PlainText
from commands._who import who_runs
from ledger.integrity.holds import By, lift_hold, read_keeping, set_hold, shown_scope
from ledger.render.safe import terminal
from ledger.store import Store

note_option = option("--note", type=PlainText(), metavar="TEXT", help="Why, kept with who did it.")


def by_whom(actor: str | None, note: str | None) -> By:
    """Who runs this, and what they say of it."""
    who = who_runs(actor)
    return By(who.actor, who.operator, who.host, note)


def said_at(store: Store, positions: list[int]) -> dict[int, dict[str, Any]]:
    """What was said of each event, by position; nothing where that cannot be read."""
    found: dict[int, dict[str, Any]] = {}
    for position, body in store.contents(positions).items():
        try:
            members = orjson.loads(body)
        except orjson.JSONDecodeError:
            continue
        if isinstance(members, dict):
            found[position] = members
    return found


@click.group(cls=SubGroup)
def hold() -> None:
    """Forbid that content is erased, for as long as a court or an audit needs it."""


@hold.command(
    "set",
    cls=Command,
    examples=[
        'replay-ledger hold set --run replay-20261130-204200-1f3c --id case-2026-17 --note "asked for by counsel"',
        "replay-ledger hold set --id audit-2027",
    ],
)
@option("--run", metavar="RUN", help="The run to be kept. [default: the whole ledger]")
@option("--id", "hold_id", type=Identifier(), required=True, help="What the hold is called: an id of your own choice.")
@note_option
@actor_option
@accept_clock_option
@click.pass_context
def set_(
    ctx: click.Context, /, run: str | None, hold_id: str, note: str | None, actor: str | None, accept_clock: bool
) -> int:
    """Set a legal hold on a run, or on the whole ledger.

    As long as it is in force, `redact` refuses to erase anything that it covers.
    """
    store = open_to_append(ctx, "write", accept_clock=accept_clock)
    run_id = None if run is None else find_run(store, run)
    _, unsigned = signed(ctx, store, lambda: set_hold(store, hold_id, run_id, by_whom(actor, note)))
    say(f"Hold {hold_id} is in force on {'the whole ledger' if run_id is None else f'run {run_id}'}.")
    return code_after(OK, unsigned)


@hold.command(
    cls=Command,
    examples=['replay-ledger hold lift case-2026-17 --note "the case is closed"'],
)
@click.argument("hold_id", metavar="ID", type=Identifier())
@note_option
@actor_option
@accept_clock_option
@click.pass_context
def lift(ctx: click.Context, /, hold_id: str, note: str | None, actor: str | None, accept_clock: bool) -> int:
    """End a legal hold.

    That it was in force, from when to when, stays in the ledger.
    """
    store = open_to_append(ctx, "write", accept_clock=accept_clock)
    lifted, unsigned = signed(ctx, store, lambda: lift_hold(store, hold_id, by_whom(actor, note)))
    say(f"Hold {hold_id} on {shown_scope(lifted)} is lifted; it was in force since {lifted.set_at}.")
    return code_after(OK, unsigned)


@hold.command(
    "list",
    cls=Command,
    examples=["replay-ledger hold list", "replay-ledger hold list --all --json | jq -r .hold_id"],
)
@option("--all", "every", is_flag=True, help="Those that were lifted as well.")
@json_option
@click.pass_context
def list_(ctx: click.Context, /, every: bool, as_json: bool) -> None:
    """List the legal holds that are in force."""
    store = open_for(ctx, "read")
    found = list(listed(store, every=every))
    if as_json:
        write_data(json_line(members) for members in found)
    elif not found:
        say("No hold was ever set." if every else "No hold is in force.")
    else:
        write_data(f"{line}\n".encode() for members in found for line in _lines(members))


def listed(store: Store, *, every: bool) -> Iterator[dict[str, Any]]:
    """Holds in the order they were set, each with what was said at its start and at its end (None where nothing is)."""
    keeping = read_keeping(store)
    holds = keeping.holds if every else keeping.in_force()
    positions = [at for hold in holds for at in (hold.position, hold.lifted_position) if at is not None]
    said = said_at(store, positions)
    for one in holds:
        lifted = None if one.lifted_position is None else said.get(one.lifted_position)
        yield {**one._asdict(), "said": said.get(one.position), "said_when_lifted": lifted}


def _lines(members: dict[str, Any]) -> Iterator[str]:
    run_id = members["run_id"]
    yield f"{terminal(members['hold_id'])}  on {'the whole ledger' if run_id is None else f'run {terminal(run_id)}'}"
    yield f"  set     {members['set_at']}{by_line(members['said'])}"
    if members["lifted_at"] is not None:
        yield f"  lifted  {members['lifted_at']}{by_line(members['said_when_lifted'])}"


def by_line(said: dict[str, Any] | None) -> str:
    """`` by ACTOR: NOTE`` as far as it is known, safe on a terminal."""
    if said is None:
        return ""
    note = said.get("note")
    return f" by {terminal(str(said.get('actor', 'nobody known')))}" + (f": {terminal(str(note))}" if note else "")
