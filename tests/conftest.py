"""Fixtures that give a test a real database or a real endpoint. What runs them lives in `tests.harness`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.harness import mock_endpoint as endpoint
from tests.harness import postgres

# A property's examples take as long as a busy machine makes them take; a test that hangs has a time limit of its own.
# In CI hypothesis has a profile that says so too, and draws the same examples each time.
if not os.environ.get("CI"):
    settings.register_profile("desk", deadline=None)
    settings.load_profile("desk")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "postgresql: uses a Postgres server; `-m 'not postgresql'` leaves it out")
    # What is started in the background by a shell has Ctrl-C ignored, and so has all that it starts; the programs
    # under test respect that. A handler of our own is not inherited: they begin as from a terminal.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> list[str]:
    found, reasons = postgres.sources()
    chosen = found[0].name if found else "none"
    return [f"postgres: {chosen}", *(f"postgres: passed over: {reason}" for reason in reasons)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "postgres_url" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgresql)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keys of the ledgers that tests make stay out of the home folder of whoever runs them."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio, as the program does."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A server for this process's tests. Its absence skips a test on a desk and fails it in CI."""
    try:
        with postgres.running_server() as server:
            yield server
    except postgres.Unavailable as reason:
        if os.environ.get("CI"):
            pytest.fail(f"CI is set and there is no Postgres: {reason}")
        pytest.skip(f"no Postgres: {reason}")


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> Iterator[str]:
    """``postgresql+psycopg://...`` of an empty database, dropped after the test."""
    url = postgres_server.create_database()
    yield url.render_as_string(hide_password=False)
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made, once for each database: a file that is not there yet, or an empty database.

    ``-m postgresql`` or ``-m 'not postgresql'`` chooses one of the two.
    """
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def mock_endpoint(tmp_path: Path) -> Iterator[Callable[..., endpoint.MockEndpoint]]:
    """Start scripted endpoints: ``mock_endpoint([{"status": 429}], content=..., delay_ms=...)``; see `start`."""
    if not endpoint.PROGRAM.exists():
        pytest.skip("the endpoint's program is not beside this clone")
    started: list[endpoint.MockEndpoint] = []

    def start(*args: Any, **options: Any) -> endpoint.MockEndpoint:
        started.append(endpoint.start(tmp_path, *args, **options))
        return started[-1]

    yield start
    for running in started:
        running.stop()
