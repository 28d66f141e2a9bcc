"""Opening a ledger: from a URL to a ``Store``, or to an error that says what is wrong and what to do."""

from __future__ import annotations

from typing import Literal

from ledger.events import NewEvent
from ledger.store import sqlite
from ledger.store.append import Clock
from ledger.store.backend import HEAD_SQL, Backend
from ledger.store.changes import TableFold, no_fold
from ledger.store.errors import LedgerNotFound, OriginDiffers
from ledger.store.place import Place, parse
from ledger.store.schema import REVISION_SQL, check_revision, holds_ledger, require_ledger
from ledger.store.store import Store

Mode = Literal["read", "write", "create"]


def open_store(
    url: str,
    mode: Mode,
    *,
    fold: TableFold = no_fold,
    clock: Clock | None = None,
    accept_clock: bool = False,
    origin: str | None = None,
    created: NewEvent | None = None,
) -> Store:
    """Open the ledger at ``url``; ``create`` makes it where there is none, and else is ``write``.

    ``fold``: which projection rows an event changes. ``clock``: gives an aware datetime; None asks
    the host on SQLite and the server on Postgres. ``accept_clock``: append even where the clock is
    more than five minutes behind the last event. ``origin``, ``created``: name and first event of a
    ledger that is made (``created`` is a ``LedgerCreated`` event); None makes fresh ones.

    Raises ``LedgerNotFound``, ``NotALedger``, ``LedgerNewer``, ``LedgerNotMigrated``,
    ``LedgerReadOnly``, ``LedgerUnreachable``, ``UnsafeFilesystem``; ``OriginDiffers`` where a ledger
    of another name is there.
    """
    place = parse(url)
    backend = open_backend(place, mode)
    try:
        if mode == "create" and not _is_whole(backend):
            # Alembic takes as long to import as the rest together.
            from ledger.store.migrate import Beginning, bring_up  # noqa: PLC0415

            bring_up(backend, Beginning(origin, created, clock), migrate=False)
        check_ledger(backend, origin)
        if mode != "read":
            backend.ready()
    except BaseException:
        backend.close()
        raise
    return Store(backend, fold, clock=clock, accept_clock=accept_clock)


def open_backend(place: Place, mode: Mode) -> Backend:
    """Connect, without asking yet whether there is a ledger."""
    if place.dialect == "sqlite":
        return sqlite.open_backend(place, mode)
    from ledger.store import postgres  # noqa: PLC0415 - its driver is slow to import, and SQLite does without

    return postgres.open_backend(place, mode)


def _is_whole(backend: Backend) -> bool:
    return holds_ledger(backend.tables(), backend.place.shown) and bool(backend.fetch(HEAD_SQL))


def check_ledger(backend: Backend, origin: str | None = None) -> None:
    """Raise, as ``open_store``, unless a ledger of the present schema is there, under this name if any."""
    shown = backend.place.shown
    require_ledger(backend.tables(), shown)
    revisions = backend.fetch(REVISION_SQL)
    check_revision(revisions[0][0] if revisions else None, shown)
    heads = backend.fetch("SELECT origin FROM ledger_head")
    if not heads:
        raise LedgerNotFound(f"{shown}: the tables are there but hold no ledger: run `replay-ledger db upgrade`")
    if origin is not None and heads[0][0] != origin:
        raise OriginDiffers(f"{shown}: the ledger there is {heads[0][0]}, not {origin}")
