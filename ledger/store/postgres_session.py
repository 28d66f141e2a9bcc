"""Sessions with Postgres: how one is begun, what is asked of the server, and its errors put in words."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, cast

import psycopg
import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from sqlalchemy.pool import PoolProxiedConnection

from ledger.store.backend import LOCK_SECONDS, Fetches, Row
from ledger.store.errors import (
    ConnectionLost,
    LedgerBusy,
    LedgerError,
    LedgerFull,
    LedgerMalformed,
    LedgerNotFound,
    LedgerReadOnly,
    LedgerUnreachable,
    NotALedger,
    RunLocked,
    StatementRefused,
)
from ledger.store.lock import lock_key
from ledger.store.place import Place

OLDEST: Final = 150000
"""server_version of the oldest Postgres that is supported."""

APPLICATION: Final = "replay-ledger"
_CONNECT: Final = {
    "autocommit": True,  # transactions are begun and ended by our own statements
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,  # milliseconds; a peer that is gone is noticed
}
_SESSION: Final = """
SET TIME ZONE 'UTC'; SET datestyle = 'ISO'; SET client_min_messages = warning;
SET default_transaction_read_only = on
"""
# A writer only ever looks rows up by key. Plans made while the tables were tiny must not scan them
# once they are large, so every plan but look-ups is ruled out, and those that are kept have one index
# that they can go by.
# A plan that must scan all the same looks dear, so without ``jit = off`` it would be compiled first.
# Durability is not left to the role's settings, and a writer that hangs, or is cut off, does not hold the
# head for as long as others wait for it.
WRITER_SETTINGS: Final = f"""
RESET default_transaction_read_only;
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET enable_sort = off; SET enable_bitmapscan = off; SET jit = off;
SET lock_timeout = '{LOCK_SECONDS}s'; SET idle_in_transaction_session_timeout = '20s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""

_HOLDER_SQL: Final = """
SELECT coalesce(a.application_name, ''), a.pid FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = %s AND l.objid = %s AND l.objsubid = 1
"""

# A broken connection is for us to tell of, in an error; without a handler its driver's warning would
# go to the terminal. Whoever sets logging up still sees it.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

Connection = psycopg.Connection[tuple[Any, ...]]
_NEVER_BY_ITSELF: Final = 1 << 31
_LOCK_WAITS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.0)


class _UtcText(Loader):
    """TIMESTAMPTZ as RFC 3339 text, as it is on SQLite. The session's time zone is UTC."""

    def load(self, data: Buffer) -> str:
        moment, _, fraction = bytes(data).decode("ascii").removesuffix("+00").partition(".")
        return f"{moment[:10]}T{moment[11:]}.{fraction:0<6}Z"


def make_engine(place: Place) -> sa.Engine:
    """An engine whose connections read only until told otherwise. Raises ``NotALedger``."""
    try:
        url = sa.make_url(place.url)
        if "application_name" not in url.query:
            url = url.update_query_dict({"application_name": APPLICATION})
        ours = {name: value for name, value in _CONNECT.items() if name not in url.query}
        engine = sa.create_engine(url, connect_args=ours, pool_pre_ping=True, max_overflow=15)
    except (sa.exc.ArgumentError, ValueError):  # its text repeats the URL
        raise NotALedger(f"{place.shown}: not a Postgres URL") from None
    sa.event.listen(engine, "connect", _begin_session)
    return engine


def _begin_session(connection: Connection, _: object) -> None:
    connection.execute(_SESSION)
    connection.adapters.register_loader("timestamptz", _UtcText)


_BY_STATE: Final[dict[str, tuple[type[LedgerError], str]]] = {
    "40001": (LedgerBusy, "another writer came between"),
    "40P01": (LedgerBusy, "another writer came between"),
    "55P03": (LedgerBusy, "another writer holds the ledger"),
    "57014": (LedgerBusy, "the statement took longer than the server allows"),
    "53300": (LedgerUnreachable, "the server has no connection left"),
    "53100": (LedgerFull, "no room to write"),
    "53400": (LedgerFull, "a limit of the server is reached"),
    "25006": (LedgerReadOnly, "cannot be written to"),
    "3D000": (LedgerNotFound, "no such database"),
    "42501": (LedgerReadOnly, "the role has no right to that"),
    "42P01": (NotALedger, "a table of the ledger is missing"),
    "XX001": (LedgerMalformed, "the database is damaged"),
    "XX002": (LedgerMalformed, "the database is damaged"),
}
_LOST: Final = frozenset({"57P01", "57P02", "57P03", "25P03", "08000", "08003", "08006", "08007"})


@contextmanager
def translated(place: Place) -> Iterator[None]:
    """Raise Postgres' errors as ours, without a password and without the values of a statement."""
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, place) from None
    except sa.exc.DBAPIError as error:
        raise _translate(error.orig, place) from None
    except sa.exc.SQLAlchemyError as error:
        raise LedgerUnreachable(f"{place.shown}: {place.scrub(str(error))}") from None


def _translate(error: BaseException | None, place: Place) -> LedgerError:
    diagnostic = getattr(error, "diag", None)
    state = getattr(error, "sqlstate", None) or ""
    # The primary message alone: the detail quotes rows, which may be content.
    said = place.scrub(getattr(diagnostic, "message_primary", None) or str(error))
    if isinstance(error, psycopg.OperationalError) and (not state or state in _LOST):
        return _unreachable(said, place)
    kind, meaning = _BY_STATE.get(state, (StatementRefused, "refused"))
    return kind(f"{place.shown}: {meaning} ({said})")


def _unreachable(said: str, place: Place) -> LedgerError:
    # Before a session exists there is no SQLSTATE, only libpq's text.
    if re.search(r'database "[^"]*" does not exist', said):
        return LedgerNotFound(f"{place.shown}: no such database")
    if "authentication failed" in said or "no password supplied" in said:
        return LedgerUnreachable(f"{place.shown}: the server refused the credentials ({said})")
    return ConnectionLost(f"{place.shown}: {said}")


def own_connection(engine: sa.Engine, place: Place) -> Connection:
    """A connection outside the pool: closing it ends the session, and its settings and locks with it."""
    with translated(place):
        pooled = engine.raw_connection()
        pooled.detach()
        connection = driver(pooled)
        # Prepared is only what asks for it: a plan kept from when the tables were tiny may go by the wrong
        # index where there is a choice of them. Planning anew is a tenth of what a group takes.
        connection.prepare_threshold = _NEVER_BY_ITSELF
        return connection


def driver(connection: PoolProxiedConnection) -> Connection:
    """The driver's own connection under a pooled one."""
    return cast("Connection", connection.dbapi_connection)


def take_lock(connection: Connection, run_id: str, holder: str) -> None:
    """Lock a run for as long as the session lives. Raises ``RunLocked``, naming the holder.

    Asks for about a second before it gives up: the server may be a moment late to see that a process
    has died.
    """
    (schema,) = _one(connection.execute("SELECT current_schema()"))
    key = lock_key(f"{schema}/{run_id}")
    name = f"{APPLICATION}: {holder}".encode("ascii", "replace")[:63].decode("ascii")
    connection.execute("SELECT set_config('application_name', %s, false)", (name,))
    for wait in _LOCK_WAITS:
        (taken,) = _one(connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)))
        if taken:
            break
        time.sleep(wait)
    else:
        halves = (key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF)
        found = connection.execute(_HOLDER_SQL, halves).fetchone()
        # The name of another role's session is not shown to everybody.
        name, pid = found or ("", None)
        held = name.removeprefix(f"{APPLICATION}: ") or "another process"
        raise RunLocked(run_id, f"{held} (database session {pid})" if pid else held)


def _one(cursor: psycopg.Cursor[Row]) -> Row:
    row = cursor.fetchone()
    assert row is not None
    return row


# Quoted text and casts are passed over; a percent sign means something to the driver.
_NAMES: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|::)|:([A-Za-z_][A-Za-z0-9_]*)|(%)""")


@lru_cache(maxsize=512)
def pyformat(sql: str) -> str:
    """``:name`` as ``%(name)s``."""

    def replaced(found: re.Match[str]) -> str:
        kept, name, percent = found.groups()
        if kept:
            return str(kept).replace("%", "%%")
        return "%%" if percent else f"%({name})s"

    return _NAMES.sub(replaced, sql)


def check_server(reads: Fetches, shown: str) -> None:
    """Raise ``LedgerUnreachable`` unless the server is one that a ledger can live on."""
    ((version, encoding, schema),) = reads.fetch(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_schema()"
    )
    if version < OLDEST:
        raise LedgerUnreachable(f"{shown}: Postgres {version // 10000} is too old; 15 or newer is needed")
    if encoding != "UTF8":
        raise LedgerUnreachable(f"{shown}: the database's encoding is {encoding}; UTF8 is needed")
    if schema is None:
        raise LedgerNotFound(f"{shown}: no schema of the search path exists")
