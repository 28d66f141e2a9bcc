"""What the command line's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.preloaded import Preloaded
from tests.cli.program import Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    """The program with its imports done, for all tests of this process."""
    waiting = Preloaded()
    yield waiting
    waiting.close()


@pytest.fixture
def program(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded) -> Program:
    """The program, started in the test's own folder."""
    return Program(tmp_path, preloaded, tmp_path_factory.mktemp("streams"))


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A file of three sound requests."""
    return write_requests(tmp_path / "incidents.jsonl", 3)


@pytest.fixture
def against(mock_endpoint: Callable[..., MockEndpoint], program: Program) -> Callable[..., MockEndpoint]:
    """Start a scripted endpoint and point the program at it, with a key that it takes."""

    def start(*script: dict[str, object], **options: object) -> MockEndpoint:
        endpoint = mock_endpoint(list(script), **options)
        program.variables |= {
            "REPLAY_LEDGER_BASE_URL": endpoint.base_url,
            "REPLAY_LEDGER_API_KEY": "key-of-the-tests-0123",
        }
        return endpoint

    return start
