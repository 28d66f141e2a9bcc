"""Bringing a ledger's schema up, from nothing or from an older version, once however many ask at once.

Everything that makes a ledger is one transaction: tables, triggers, the head and ``LedgerCreated``
at position 1. Another process sees a whole ledger or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.pool import StaticPool

import migrations
from ledger.events import LEDGER_RUN_ID, LedgerCreated, NewEvent, new_event
from ledger.integrity.merkle import EMPTY_ROOT
from ledger.store.append import Clock, backoff
from ledger.store.backend import Backend
from ledger.store.changes import no_fold
from ledger.store.envelope import FORMAT, check_origin
from ledger.store.errors import LedgerBusy, LedgerError, LedgerNotMigrated
from ledger.store.lock import lock_key
from ledger.store.open import open_backend
from ledger.store.place import Dialect, parse
from ledger.store.plan import Planner
from ledger.store.records import Batch, Head
from ledger.store.schema import HEAD_TABLE, REVISION_SQL, SCHEMA_VERSION, check_revision, holds_ledger, require_ledger
from ledger.times import format_time

PACKAGE: Final = "replay-ledger"
_MIGRATION_LOCK: Final = lock_key("replay-ledger migration")


class Status(NamedTuple):
    """A ledger's schema beside the program's. ``place``: its URL without the password."""

    place: str
    revision: str
    program: str
    origin: str | None
    size: int


class Beginning(NamedTuple):
    """How a ledger that is not there yet begins.

    ``origin``: its name, for ever; None draws one. ``created``: the event at position 1; None makes
    one without a key. ``clock``: None asks the host.
    """

    origin: str | None = None
    created: NewEvent | None = None
    clock: Clock | None = None


def status(url: str) -> Status:
    """What is there. Raises ``LedgerNotFound``, ``NotALedger``, ``LedgerUnreachable``."""
    with closing(open_backend(parse(url), "read")) as backend:
        return _status(backend)


def upgrade(url: str, *, origin: str | None = None, created: NewEvent | None = None) -> Status:
    """Make the ledger where there is none, bring an older one up, leave a present one alone.

    Raises ``LedgerNewer`` for a schema that this program does not know.
    """
    with closing(open_backend(parse(url), "create")) as backend:
        bring_up(backend, Beginning(origin, created), migrate=True)
        return _status(backend)


def _status(backend: Backend) -> Status:
    shown = backend.place.shown
    require_ledger(backend.tables(), shown)
    ((revision,),) = backend.fetch(REVISION_SQL)
    heads = backend.fetch("SELECT origin, size FROM ledger_head")
    origin, size = heads[0] if heads else (None, 0)
    return Status(shown, revision, SCHEMA_VERSION, origin, size)


def bring_up(backend: Backend, beginning: Beginning, *, migrate: bool) -> None:
    """Make the backend's database a ledger of the present schema, in one transaction.

    ``migrate``: whether an older ledger may be brought up; else it is ``LedgerNotMigrated``.
    """
    backend.ready()
    failure: LedgerError | None = None
    for _ in backoff():
        try:
            with backend.exclusive(), transaction(backend) as connection:
                _bring_up(backend, connection, beginning, migrate=migrate)
                return
        except LedgerBusy as error:
            failure = error
    assert failure is not None
    raise failure


def _bring_up(backend: Backend, connection: sa.Connection, beginning: Beginning, *, migrate: bool) -> None:
    # Looked at again under the lock: another process may have done it all meanwhile.
    if holds_ledger(table_names(connection), backend.place.shown):
        try:
            check_revision(connection.exec_driver_sql(REVISION_SQL).scalar(), backend.place.shown)
        except LedgerNotMigrated:
            if not migrate:
                raise
            run_migrations(connection)
    else:
        run_migrations(connection)
    if connection.exec_driver_sql(f"SELECT 1 FROM {HEAD_TABLE}").first() is None:  # noqa: S608
        _begin_ledger(backend, beginning)


def run_migrations(connection: sa.Connection) -> None:
    """Make or bring up everything that the migrations make, within the connection's transaction."""
    config = Config()
    folder = Path(next(iter(migrations.__path__)))
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, SCHEMA_VERSION)


def table_names(connection: sa.Connection) -> set[str]:
    """The tables where the ledger's are, or would be made, as the transaction sees them."""
    return set(sa.inspect(connection).get_table_names())


def _begin_ledger(backend: Backend, beginning: Beginning) -> None:
    origin = check_origin(beginning.origin or f"replay-ledger.local/{uuid4()}")
    first = beginning.created or new_event(
        LedgerCreated(format=FORMAT, software_version=package_version(PACKAGE), vkey=None), run_id=LEDGER_RUN_ID
    )
    now = datetime.now(UTC) if beginning.clock is None else beginning.clock()
    planner = Planner(
        Head(origin, FORMAT, 0, EMPTY_ROOT, b"", None),
        format_time(now),
        versions={(LEDGER_RUN_ID, None): 0},
        known={},
        erasable=set(),
        fold=no_fold,
        entropy=os.urandom,
    )
    (outcome,) = planner.add([Batch([first])])
    if isinstance(outcome, LedgerError):
        raise outcome
    rows, head = planner.finish()
    backend.write(rows)
    backend.write_head(head)


@contextmanager
def transaction(backend: Backend) -> Iterator[sa.Connection]:
    """SQLAlchemy, as alembic needs it, on the backend's own connection, in a transaction of ours."""
    with backend.translated():
        connection = _engine(backend.dialect, backend.connection).connect()
        try:
            if backend.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql("BEGIN")
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            yield connection
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()


def _engine(dialect: Dialect, connection: Any) -> sa.Engine:
    # The pool hands out the one connection and, as it never resets, leaves it as it is.
    url = "sqlite://" if dialect == "sqlite" else "postgresql+psycopg://"
    return sa.create_engine(url, creator=lambda: connection, poolclass=StaticPool, pool_reset_on_return=None)
