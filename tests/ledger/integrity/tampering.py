"""What somebody who owns the database can do: any SQL, with the triggers dropped first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.engine import make_url

from tests.harness import postgres

Statement = str | tuple[str, Mapping[str, Any]]

_TRIGGERS = {
    "sqlite": "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": (
        "SELECT t.tgname, c.relname, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE NOT t.tgisinternal"
    ),
}


@contextmanager
def owner(url: str) -> Iterator[Connection]:
    """Be who owns the database, in one transaction."""
    with _engine(url).begin() as connection:
        if connection.dialect.name == "sqlite":  # what is tampered with need not outlive a power cut
            connection.exec_driver_sql("PRAGMA synchronous = OFF")
        yield connection


@lru_cache(maxsize=16)
def _engine(url: str) -> Engine:
    """One for each database, as it keeps what it has compiled; it keeps no connection."""
    return create_engine(url, poolclass=NullPool)


@contextmanager
def unguarded(url: str) -> Iterator[Connection]:
    """Be the owner, who drops the triggers that are there and puts them back behind him."""
    with owner(url) as connection:
        triggers = drop_triggers(connection)
        yield connection
        put_back(connection, triggers)


def tamper(url: str, *statements: Statement) -> None:
    """Drop every trigger and run the statements, each of which must change something."""
    with owner(url) as connection:
        drop_triggers(connection)
        for statement in statements:
            run(connection, statement)


def run(connection: Connection, statement: Statement) -> None:
    """Run one statement, which must change something."""
    sql, params = (statement, {}) if isinstance(statement, str) else statement
    assert connection.execute(text(sql), params).rowcount != 0, sql


def drop_triggers(connection: Connection) -> list[str]:
    """Drop every trigger; gives the SQL that puts them all back, as they were made."""
    on_postgres = connection.dialect.name == "postgresql"
    again: list[str] = []
    for name, table, made in connection.execute(text(_TRIGGERS[connection.dialect.name])).all():
        connection.exec_driver_sql(f"DROP TRIGGER {name}" + (f" ON {table}" if on_postgres else ""))
        again.append(made)
        if on_postgres:
            again.append(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")
    return again


def put_back(connection: Connection, triggers: list[str]) -> None:
    """Put back what ``drop_triggers`` dropped."""
    for made in triggers:
        connection.exec_driver_sql(made)


# --- one Postgres database, put back as it was ---------------------------------------------

_SAVED = "saved"
_TABLES = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'"
# As they were made: a view may rest on those before it.
_VIEWS = """
SELECT relname::text, pg_get_viewdef(oid) FROM pg_class
WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace ORDER BY oid
"""


def save(url: str) -> None:
    """Keep a copy of each table, trigger and view of a Postgres database in a schema beside it."""
    with owner(url) as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {_SAVED}")
        for (table,) in connection.execute(text(_TABLES)).all():
            connection.exec_driver_sql(f"CREATE TABLE {_SAVED}.{table} AS TABLE public.{table}")
        made = drop_triggers(connection)
        views = connection.execute(text(_VIEWS)).all()
        made += [f"DROP VIEW {name}" for name, _ in reversed(views)]
        made += [f"CREATE VIEW {name} AS {definition}" for name, definition in views]
        connection.exec_driver_sql(f"CREATE TABLE {_SAVED}.made (statement text)")
        insert = text(f"INSERT INTO {_SAVED}.made VALUES (:statement)")
        connection.execute(insert, [{"statement": statement} for statement in made])


def restore(url: str, *, guarded: bool = True) -> None:
    """Put the database back as it was when it was saved; its triggers only where it is to be ``guarded``."""
    with owner(url) as connection:
        drop_triggers(connection)
        for (table,) in connection.execute(text(_TABLES)).all():
            connection.exec_driver_sql(f"DELETE FROM public.{table}")
            connection.exec_driver_sql(f"INSERT INTO public.{table} SELECT * FROM {_SAVED}.{table}")
        if guarded:
            for (statement,) in connection.execute(text(f"SELECT statement FROM {_SAVED}.made")).all():
                connection.exec_driver_sql(statement)


def put_foreign_trigger(connection: Connection, body: str = "") -> None:
    """A trigger ``zz`` of somebody else's on ``contents``, before each erasure; ``body``: SQL about the row OLD."""
    if connection.dialect.name == "sqlite":
        made = [f"CREATE TRIGGER zz BEFORE DELETE ON contents BEGIN {body or 'SELECT 1'}; END"]
    else:
        does = body or "PERFORM 1"
        made = [
            f"CREATE OR REPLACE FUNCTION zz() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; RETURN OLD; END $$",
            "CREATE TRIGGER zz BEFORE DELETE ON contents FOR EACH ROW EXECUTE FUNCTION zz()",
        ]
    for statement in made:
        connection.exec_driver_sql(statement)


class Copies:
    """Copies of one finished ledger, each to be tampered with."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, dialect: str) -> None:
        self._folder, self._made = folder, 0
        self._server: postgres.Server | None = None
        if dialect == "postgresql":
            self._server = request.getfixturevalue("postgres_server")
            self.original = self._shown(self._server.create_database())
        else:
            self.original = f"sqlite:///{folder / 'original.db'}"

    def copy(self) -> Iterator[str]:
        """The URL of a copy that lives until the generator is closed."""
        if self._server is not None:
            url = self._server.create_database(template=make_url(self.original))
            yield self._shown(url)
            self._server.drop_database(url)
            return
        self._made += 1
        target = self._folder / f"copy-{self._made}.db"
        shutil.copyfile(self._folder / "original.db", target)
        yield f"sqlite:///{target}"

    def drop(self) -> None:
        """Drop what a server would keep."""
        if self._server is not None:
            self._server.drop_database(make_url(self.original))

    @staticmethod
    def _shown(url: Any) -> str:
        shown: str = url.render_as_string(hide_password=False)
        return shown
