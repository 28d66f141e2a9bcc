"""Ledgers with their projection tables folded inline.

A Postgres database takes long to make, so few tests ask for their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.projections.tables import fold
from ledger.store import Store, open_store


@pytest.fixture
def store() -> Iterator[Store]:
    """In memory: for what does not depend on the database."""
    with open_store("sqlite://", "create", fold=fold) as opened:
        yield opened


@pytest.fixture
def either(ledger_url: str) -> Iterator[Store]:
    """On each of the two databases: for what SQL has a say in."""
    with open_store(ledger_url, "create", fold=fold) as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def module_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """As ``ledger_url``, but one for all tests of a module, which must leave the ledger as it was."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}"
        return
    server = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url.render_as_string(hide_password=False)
    server.drop_database(url)
