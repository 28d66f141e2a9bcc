"""Opening a ledger: from a URL to a ``Store``, or to an error that says what is wrong and what to do."""

from __future__ import annotations

from typing import Literal

from ledger.events import NewEvent
from ledger.store import sqlite
from ledger.store.append import Clock
from ledger.store.backend import HEAD_SQL, Backend
from ledger.store.changes import TableFold, no_fold
from ledger.store.errors import LedgerError, LedgerMalformed, LedgerNotFound, OriginDiffers, StatementRefused
from ledger.store.place import Place, parse
from ledger.store.schema import (
    HEAD_TABLE,
    REVISION_SQL,
    VERSION_TABLE,
    check_revision,
    holds_ledger,
    is_revision,
    require_ledger,
    resembles_ledger,
)
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
    even_damaged: bool = False,
) -> Store:
    """Open the ledger at ``url``; ``create`` makes it where there is none, and else is ``write``.

    ``fold``: which projection rows an event changes. ``clock``: gives an aware datetime; None asks
    the host on SQLite and the server on Postgres. ``accept_clock``: append even where the clock is
    more than five minutes behind the last event. ``origin``, ``created``: name and first event of a
    ledger that is made (``created`` is a ``LedgerCreated`` event); None makes fresh ones.
    ``even_damaged``: for a verifier, which reads and tells what is wrong: open also a ledger that has
    lost tables, its revision or its head.

    Raises ``LedgerNotFound``, ``NotALedger``, ``LedgerNewer``, ``LedgerNotMigrated``,
    ``LedgerReadOnly``, ``LedgerUnreachable``, ``LedgerMalformed``, ``UnsafeFilesystem``;
    ``OriginDiffers`` where a ledger of another name is there.
    """
    place = parse(url)
    backend = open_backend(place, mode)
    try:
        if mode == "create" and not _is_whole(backend):
            # Alembic takes as long to import as the rest together.
            from ledger.store.migrate import Beginning, bring_up  # noqa: PLC0415

            bring_up(backend, Beginning(origin, created, clock), migrate=False)
        if even_damaged and mode == "read":
            _check_examinable(backend)
        else:
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
        raise _headless(backend)
    if origin is not None and heads[0][0] != origin:
        raise OriginDiffers(f"{shown}: the ledger there is {heads[0][0]}, not {origin}")


def _headless(backend: Backend) -> LedgerError:
    """Why there is no head: nothing was begun yet, or it was taken from a ledger."""
    shown = backend.place.shown
    if "events" in backend.tables() and not backend.fetch("SELECT 1 FROM events LIMIT 1"):
        return LedgerNotFound(f"{shown}: the tables are there but hold no ledger: run `replay-ledger db upgrade`")
    return LedgerMalformed(f"{shown}: the ledger's head is gone: `replay-ledger verify` tells what else is damaged")


def _check_examinable(backend: Backend) -> None:
    """Raise unless there is what once was a ledger, of a schema that is not known to be another's."""
    tables, shown = backend.tables(), backend.place.shown
    if not resembles_ledger(tables):
        require_ledger(tables, shown)
    for revision in _revisions(backend) if VERSION_TABLE in tables else ():
        if is_revision(revision):
            check_revision(revision, shown)
    if {HEAD_TABLE, "events"} <= tables and not backend.fetch("SELECT 1 FROM ledger_head LIMIT 1"):
        reason = _headless(backend)
        if isinstance(reason, LedgerNotFound):
            raise reason


def _revisions(backend: Backend) -> list[object]:
    try:
        return [row[0] for row in backend.fetch(REVISION_SQL)]
    except StatementRefused:  # the column is gone
        return []
