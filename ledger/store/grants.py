"""Three roles on Postgres, as SQL to be run by whoever owns the ledger's tables.

The writer appends and cannot erase; the redactor erases as well; the auditor reads and can change
nothing. Who owns the tables can do all, and needs to do nothing from day to day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, LiteralString, NamedTuple

from psycopg import sql

from ledger.store.errors import LedgerError
from ledger.store.schema import HEAD_TABLE, RECORD_TABLES, VERSION_TABLE
from ledger.store.store import Store
from ledger.tables import PROJECTION_TABLES, PROJECTION_VIEWS

MAX_NAME_BYTES: Final = 63
"""Postgres cuts longer names off."""

_APPENDED: Final = ("events", "contents", "tree_nodes", "checkpoints")
_RELATIONS: Final = (*RECORD_TABLES, *PROJECTION_TABLES, *PROJECTION_VIEWS, VERSION_TABLE)
_MOVED: Final = ("size", "root", "frontier", "recorded_at")
_PLACE_SQL: Final = """
SELECT current_database(), current_schema(), (
  SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
  WHERE n.nspname = current_schema() AND c.relname = 'events'
)
"""


class RoleRefused(LedgerError):
    """A name that cannot be one of the three roles."""

    exit_code = 2


class Roles(NamedTuple):
    """What the three roles are called."""

    writer: str = "replay_ledger_writer"
    redactor: str = "replay_ledger_redactor"
    auditor: str = "replay_ledger_auditor"


class Where(NamedTuple):
    """Where the ledger's tables are, and whose they are."""

    database: str
    schema: str
    owner: str


def read_where(store: Store) -> Where:
    """The place of a ledger on Postgres."""
    return Where(*next(store.rows(_PLACE_SQL)))


def grants(where: Where, roles: Roles) -> Iterator[str]:
    """The statements, each ending in a semicolon; running them again changes nothing.

    Raises ``RoleRefused`` for names that Postgres keeps for itself, that are too long, the same
    twice, or the owner's own.
    """
    _check(where, roles)
    schema = sql.Identifier(where.schema)
    names = [sql.Identifier(name) for name in roles]
    all_roles = sql.SQL(", ").join(names)
    yield from (_create(name) for name in roles)
    yield from _close(where, all_roles)
    yield _text(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, all_roles))
    yield _grant("SELECT", schema, _RELATIONS, all_roles)
    writer, redactor, _ = names
    both = sql.SQL(", ").join((writer, redactor))
    yield _grant("INSERT", schema, _APPENDED, both)
    columns = sql.SQL(", ").join(map(sql.Identifier, _MOVED))
    head = sql.Identifier(where.schema, HEAD_TABLE)
    yield _text(sql.SQL("GRANT UPDATE ({}) ON {} TO {}").format(columns, head, both))
    yield _grant("INSERT, UPDATE, DELETE", schema, PROJECTION_TABLES, both)
    yield _grant("INSERT", schema, ("redactions",), redactor)
    yield _grant("DELETE", schema, ("contents",), redactor)


def _close(where: Where, all_roles: sql.Composable) -> Iterator[str]:
    """What was granted before goes, and so does what Postgres lets everybody make of its own accord."""
    schema, database = sql.Identifier(where.schema), sql.Identifier(where.database)
    tables = _named(schema, _RELATIONS)
    yield _text(sql.SQL("REVOKE ALL ON {} FROM PUBLIC, {}").format(tables, all_roles))
    yield _text(sql.SQL("REVOKE CREATE ON SCHEMA {} FROM PUBLIC, {}").format(schema, all_roles))
    yield _text(sql.SQL("REVOKE CREATE, TEMPORARY ON DATABASE {} FROM PUBLIC, {}").format(database, all_roles))
    yield _text(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, all_roles))


def _create(name: str) -> str:
    body = sql.SQL("BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {}) THEN CREATE ROLE {}; END IF; END")
    made = body.format(sql.Literal(name), sql.Identifier(name)).as_string(None)
    return _text(sql.SQL("DO {}").format(sql.Literal(made)))


def _grant(rights: LiteralString, schema: sql.Identifier, tables: Iterable[str], to: sql.Composable) -> str:
    return _text(sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(rights), _named(schema, tables), to))


def _named(schema: sql.Identifier, tables: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(sql.SQL("{}.{}").format(schema, sql.Identifier(table)) for table in tables)


def _text(statement: sql.Composable) -> str:
    return statement.as_string(None) + ";"


def _check(where: Where, roles: Roles) -> None:
    if len(set(roles)) != len(roles):
        raise RoleRefused("the three roles need three names")
    for name in roles:
        if not name or "\0" in name or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            raise RoleRefused(f"{name!a}: a role's name has 1 to {MAX_NAME_BYTES} bytes")
        if name.startswith("pg_") or name in {"public", "none"}:
            raise RoleRefused(f"{name}: Postgres keeps that name for itself")
        if name == where.owner:
            raise RoleRefused(f"{name} owns the ledger's tables and can do everything: take another name")
