"""What somebody who owns the database can do: any SQL, with the triggers dropped first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url

from tests.harness import postgres

Statement = str | tuple[str, Mapping[str, Any]]

_TRIGGERS = {
    "sqlite": "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": (
        "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal"
    ),
}


def tamper(url: str, *statements: Statement) -> None:
    """Drop every trigger and run the statements, each of which must change something."""
    engine = create_engine(url)
    with engine.begin() as connection:
        _drop_triggers(connection)
        for statement in statements:
            sql, params = (statement, {}) if isinstance(statement, str) else statement
            assert connection.execute(text(sql), params).rowcount != 0, sql
    engine.dispose()


def _drop_triggers(connection: Connection) -> None:
    dialect = connection.dialect.name
    for name, table in connection.execute(text(_TRIGGERS[dialect])).all():
        connection.execute(text(f"DROP TRIGGER {name}" + (f" ON {table}" if dialect == "postgresql" else "")))


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
