"""Alembic's way in: run the migrations on the connection that was handed over, in its transaction.

From alembic's own command line (developers), name the database: ``alembic -x url=... current``.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context
from sqlmodel import SQLModel

import ledger.tables  # noqa: F401 - fills SQLModel.metadata


def _run(connection: sa.Connection) -> None:
    context.configure(connection=connection, target_metadata=SQLModel.metadata, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


def _main() -> None:
    given = context.config.attributes.get("connection")
    if given is not None:
        _run(given)
        return
    url = context.get_x_argument(as_dictionary=True).get("url")
    if url is None:
        raise SystemExit("name the database: alembic -x url=sqlite:///ledger.db ...")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        _run(connection)
    engine.dispose()


_main()
