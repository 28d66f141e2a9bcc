"""The ledger of ``scene``, made once for each database; no test of this folder may change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from ledger.query import Question, ask
from tests.ledger.query.scene import make

Asks = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def asked_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('asked') / 'ledger.db'}"
        make(url)
        yield url
        return
    server = request.getfixturevalue("postgres_server")
    database = server.create_database()
    url = database.render_as_string(hide_password=False)
    make(url)
    yield url
    server.drop_database(database)


@pytest.fixture
def asks(asked_url: str) -> Asks:
    """Ask the ledger; all rows."""

    def answer(sql: str, params: Mapping[str, str] | None = None, **options: Any) -> list[tuple[Any, ...]]:
        role = options.pop("role", None)
        with ask(asked_url, Question(sql, params or {}, **options), role=role) as found:
            return list(found.rows)

    return answer
