from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL

from ledger.store import Store, open_store
from tests.harness import postgres
from tests.ledger.store.making import Clock


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that has just begun, to be copied: making one takes longer than most tests."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    open_store(f"sqlite:///{path}", "create", clock=Clock()).close()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: postgres.Server) -> Iterator[URL]:
    url = postgres_server.create_database()
    open_store(url.render_as_string(hide_password=False), "create", clock=Clock()).close()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def begun_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a ledger has just begun, at the time of a fresh ``Clock``; once for each database."""
    if request.param == "sqlite":
        path = tmp_path / "begun.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    url = server.create_database(request.getfixturevalue("postgres_template"))
    yield url.render_as_string(hide_password=False)
    server.drop_database(url)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(begun_url: str, clock: Clock) -> Iterator[Store]:
    """That ledger, open for writing with a clock that the test sets."""
    with open_store(begun_url, "write", clock=clock) as opened:
        yield opened
