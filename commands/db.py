"""``db``: make a ledger, bring it to this version's schema, see where it stands, grant roles, copy it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import click

from commands._click import Command, SubGroup
from commands._failures import NO, OK
from commands._ledger import open_for
from commands._options import json_option, no_key_option, option
from commands._output import counted, json_line, say, write_data
from commands._progress import TerminalLine
from commands._session import session
from commands._signing import Beginning, checkpoint_at_end
from commands._types import PlainText
from ledger import copy_ledger, open_ledger
from ledger.render.safe import terminal
from ledger.store import Store
from ledger.store.errors import LedgerNotFound
from ledger.store.grants import Roles, read_where
from ledger.store.grants import grants as role_grants
from ledger.store.migrate import Status
from ledger.store.migrate import status as ledger_status
from ledger.store.migrate import upgrade as upgrade_ledger


@click.group(cls=SubGroup)
def db() -> None:
    """Make a ledger, upgrade its schema, see its state, grant roles, copy it."""


@db.command(
    cls=Command,
    examples=[
        "replay-ledger db upgrade",
        "replay-ledger db upgrade --ledger postgresql://owner@db.example/ledger --origin audit.example.com/agents",
    ],
)
@option("--origin", metavar="NAME", help="A name you own, for a ledger that is made now. [default: one is drawn]")
@no_key_option
@json_option
@click.pass_context
def upgrade(ctx: click.Context, /, origin: str | None, no_key: bool, as_json: bool) -> None:
    """Make the ledger where there is none, or bring it to this version's schema.

    No event is changed. A ledger that is newer than the program is refused. The origin stands in
    every event and is fixed when the ledger is made. Its signing key is made with it, and the new
    ledger is signed.
    """
    url = session(ctx).place.url
    _tell(_make(ctx, url, origin) if not no_key and _is_absent(url) else upgrade_ledger(url, origin=origin), as_json)


def _is_absent(url: str) -> bool:
    try:
        return ledger_status(url).origin is None
    except LedgerNotFound:
        return True


def _make(ctx: click.Context, url: str, origin: str | None) -> Status:
    beginning = Beginning(session(ctx), origin)
    try:
        made = upgrade_ledger(url, origin=beginning.origin, created=beginning.created)
    except BaseException:
        beginning.forget()
        raise
    if made.origin != beginning.origin:  # another process made it in that moment
        beginning.forget()
        return made
    beginning.tell()
    with open_ledger(url, "write") as store:
        checkpoint_at_end(ctx, store)
    return made


@db.command(
    cls=Command,
    examples=["replay-ledger db status", "replay-ledger db status --ledger sqlite:////srv/ledger.db --json"],
)
@json_option
@click.pass_context
def status(ctx: click.Context, /, as_json: bool) -> None:
    """Say which schema the ledger has, what it is called, and how many events it holds."""
    _tell(ledger_status(session(ctx).place.url), as_json)


@db.command(
    cls=Command,
    examples=[
        "replay-ledger db grants --ledger postgresql://owner@db.example/ledger | psql -1 -v ON_ERROR_STOP=1 -d ledger",
        "replay-ledger db grants --ledger postgresql://owner@db.example/ledger --auditor audit_2027 > grants.sql",
    ],
)
@option(
    "--writer",
    type=PlainText(),
    metavar="NAME",
    default=Roles().writer,
    show_default=True,
    help="The role that runs and appends.",
)
@option(
    "--redactor",
    type=PlainText(),
    metavar="NAME",
    default=Roles().redactor,
    show_default=True,
    help="The role that may erase too.",
)
@option(
    "--auditor",
    type=PlainText(),
    metavar="NAME",
    default=Roles().auditor,
    show_default=True,
    help="The role that can only read.",
)
@click.pass_context
def grants(ctx: click.Context, /, writer: str, redactor: str, auditor: str) -> None:
    """Print the SQL that gives three roles what they need on Postgres, and no more.

    The writer runs replays and cannot erase or change what is recorded; the redactor can erase as
    well; the auditor runs every command that reads and can change nothing. Nothing is run: the owner
    of the tables does that, and again after each `db upgrade`. On SQLite the file's permissions serve.
    """
    store = open_for(ctx, "read")
    lines = _ON_SQLITE if store.dialect == "sqlite" else _grant_lines(store, Roles(writer, redactor, auditor))
    write_data(f"{line}\n".encode() for line in lines)


_ON_SQLITE: Final = (
    "-- SQLite has no roles: who may write the file may do all that the ledger's triggers let them, who may only",
    "-- read it can change nothing. Give the file and its folder to the account that runs replays, and read access",
    "-- to auditors: every command that reads opens it read-only. There is nothing to run.",
)


def _grant_lines(store: Store, roles: Roles) -> Iterator[str]:
    where = read_where(store)
    sql = list(role_grants(where, roles))
    yield f"-- For the ledger in {terminal(store.shown)}, schema {terminal(where.schema)}."
    yield f"-- To be run by {terminal(where.owner)}, who owns its tables, or a superuser; again after each upgrade."
    yield from sql
    yield "-- The roles cannot log in by themselves. Give them to those who can: GRANT the role TO somebody."


@db.command(
    cls=Command,
    ledger=False,
    examples=[
        "replay-ledger db copy sqlite:///replay-ledger.db postgresql://owner@db.example/ledger",
        "replay-ledger db copy postgresql://auditor@db.example/ledger sqlite:///copy.db",
    ],
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
@click.pass_context
def copy(ctx: click.Context, /, source: str, target: str, as_json: bool) -> int:
    """Copy a ledger unchanged, to a place where there is none.

    Everything is hashed again on the way. The root of the copy is read back and compared with the
    root of the original; it is the same whichever databases the two are on.

    Append to one of the two only: they are one ledger with one signer, and the one that falls behind
    is refused from then on. A copy that is only read is judged by a checkpoint as
    old as it, away from the signer: `verify --signer-dir DIR --key VKEY --checkpoint FILE`, DIR a new folder.
    """
    state = session(ctx)
    places = [state.read_place(url) for url in (source, target)]
    with TerminalLine(sys.stderr) as line:
        head = copy_ledger(places[0].url, places[1].url, line.events)
    with open_ledger(places[1].url, "read") as made:
        found = made.head()
    same = (found.size, found.root) == (head.size, head.root)
    if same:
        say("Append to one of the two only: to the signer the other one is then rolled back, and refused from then on.")
        say("One that is only read: `verify --signer-dir DIR --key VKEY --checkpoint FILE`, with a DIR of its own.")
    if as_json:
        write_data([json_line({"size": found.size, "root": found.root.hex(), "same": same})])
    else:
        say(f"{counted(head.size, 'event')} copied to {places[1].shown}")
        say(f"  root of the original  {head.root.hex()}")
        say(f"  root of the copy      {found.root.hex()}")
        say("  the same" if same else "  NOT the same")
    return OK if same else NO


def _tell(found: Status, as_json: bool) -> None:
    write_data([json_line(found._asdict())] if as_json else (line.encode("utf-8") + b"\n" for line in _lines(found)))


def _lines(found: Status) -> Iterator[str]:
    yield terminal(found.place)
    yield f"  origin   {terminal(found.origin or '-')}"
    yield f"  events   {found.size:,}"
    yield f"  schema   {terminal(found.revision)} (this program: {found.program})"
    if found.revision != found.program:
        yield "  due      replay-ledger db upgrade"
