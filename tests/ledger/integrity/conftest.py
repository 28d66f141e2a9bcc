"""Copies of one finished ledger (``small.build``), each to be tampered with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ledger.integrity.small import build
from tests.ledger.integrity.tampering import Copies


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def copies(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copies]:
    made = Copies(request, tmp_path_factory.mktemp("ledgers"), request.param)
    build(made.original)
    yield made
    made.drop()


@pytest.fixture
def url(copies: Copies) -> Iterator[str]:
    yield from copies.copy()


@pytest.fixture(scope="module")
def file_copies(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Copies:
    made = Copies(request, tmp_path_factory.mktemp("files"), "sqlite")
    build(made.original)
    return made


@pytest.fixture
def file_url(file_copies: Copies) -> Iterator[str]:
    """On SQLite alone: for long lists of cases where the databases do not differ."""
    yield from file_copies.copy()
