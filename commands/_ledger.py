"""Opening the ledger that a command was pointed at, and finding in it the run that was meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

import click

from commands._failures import NO, OK, Refused
from commands._output import say
from commands._session import Session, session
from ledger import open_ledger
from ledger.events import LATEST, LEDGER_RUN_ID
from ledger.projections.projection import find_pass, resolve_as_of, unreadable_positions
from ledger.store import Store
from ledger.store.errors import RunNotFound

_SHOWN: Final = 20
_PREFIX = re.compile(r"[A-Za-z0-9._:@-]{1,128}\Z")


def open_for(ctx: click.Context, mode: Any, **options: Any) -> Store:
    """The ledger, in mode ``read``, ``write`` or ``create``; closed when the command ends."""
    return ctx.with_resource(open_ledger(session(ctx).place.url, mode, **options))


def find_run(store: Store, text: str) -> str:
    """The run meant by an id, a unique prefix, or ``latest``.

    Raises ``Refused``: 2 listing the candidates where several begin so, 2 where none does.
    """
    if text == LEDGER_RUN_ID:
        raise Refused(f"{text} is the ledger's own stream, not a run")
    if not _PREFIX.match(text):
        raise Refused(f"{text!r} is no run id, and no beginning of one")
    # Before the ids: a ledger may hold a run by this name, of when it was not reserved yet.
    if text == LATEST:
        newest = _runs(store, "1 = 1")
        if not newest:
            raise Refused("the ledger holds no run yet")
        return newest[0]
    if _runs(store, "run_id = :text", text=text):
        return text
    found = _runs(store, "substr(run_id, 1, :length) = :text", text=text, length=len(text))
    if len(found) == 1:
        return found[0]
    if not found:
        raise Refused(f"no run begins with {text!r}; `replay-ledger runs` lists them")
    more = [f"  ... and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    shown = [f"  {run_id}" for run_id in found[:_SHOWN]]
    raise Refused(f"{text!r} is the beginning of {len(found)} runs:", *shown, *more)


def _runs(store: Store, where: str, **params: Any) -> list[str]:
    sql = f"SELECT run_id FROM runs WHERE {where} ORDER BY started_position DESC"  # noqa: S608 - our own text
    return [row[0] for row in store.rows(sql, params)]


def check_as_of(store: Store, as_of: int | str | None, *run_ids: str) -> int | str | None:
    """``--as-of`` as it was given.

    Raises ``Refused`` where the ledger does not reach that far, or one of the runs had not started at that time.
    """
    size = store.head().size
    if isinstance(as_of, int) and as_of > size:
        raise Refused(f"--as-of {as_of}: the ledger ends at position {size}")
    if isinstance(as_of, str):
        _check_started(store, as_of, run_ids)
    return as_of


def _check_started(store: Store, time: str, run_ids: Sequence[str]) -> None:
    """A time is refused as one: the position it comes to was not asked for."""
    position = resolve_as_of(store, time)
    for run_id in run_ids:
        try:
            find_pass(store, run_id, position)
        except RunNotFound:
            date = " (a date is its first moment, 00:00Z)" if time.endswith("T00:00:00.000000Z") else ""
            raise Refused(f"--as-of {time}{date}: the run {run_id} had not started by then") from None


def tell_unreadable(store: Store, run_id: str, as_of: int | str | None) -> int:
    """Say which of the run's events cannot be read, and give the exit code that follows: 1 where there is one."""
    found = 0
    for found, position in enumerate(unreadable_positions(store, run_id, as_of), start=1):
        if found <= _SHOWN:
            say(f"Event {position} cannot be read; nothing it says is in this.")
    if found > _SHOWN:
        say(f"... and {found - _SHOWN:,} more that cannot be read")
    return NO if found else OK


def typed_again(state: Session, *words: str) -> str:
    """A command line to offer: it names the ledger where the one in use was typed, without its password."""
    ledger = ["--ledger", state.place.shown] if state.ledger_typed else []
    return shlex.join(["replay-ledger", *words, *ledger])
