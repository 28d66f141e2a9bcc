"""The same events give the same bytes: on any machine, in any place, at any time, on either database."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger.integrity.holds import By
from ledger.integrity.redact import Target, redact
from ledger.projections.rebuild import check, rebuild
from ledger.projections.tables import fold
from ledger.render.issue import RENDERINGS
from ledger.store import open_store
from ledger.store.copy import copy_ledger
from tests.digests import Digest, digests
from tests.ledger.render.everything import make
from tests.ledger.store.making import plain_sql
from tests.other_pythons import ASKED_FOR, PROJECT, digests_by, environment, interpreters

SURROUNDINGS = (
    {"PYTHONHASHSEED": "1", "LANG": "C", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "2", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Chatham"},
    {"PYTHONHASHSEED": "random", "LANG": "de_DE.ISO-8859-1", "TZ": "America/St_Johns", "PYTHONUTF8": "0"},
)
KEPT_WHEN_ERASED = ("report", "grades")
"""Kinds in which no content is; the others show what the model said, while it is there."""


def printed(words: Sequence[str], folder: Path, surroundings: dict[str, str]) -> bytes:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "LC_", "TZ", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(PROJECT), **surroundings},
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def lines(found: Sequence[Digest]) -> bytes:
    return "".join(" ".join(map(str, digest)) + "\n" for digest in found).encode()


def of_kinds(found: Sequence[Digest], kinds: Sequence[str] = KEPT_WHEN_ERASED) -> list[Digest]:
    return [digest for digest in found if digest.kind in kinds]


def digests_of(url: str) -> list[Digest]:
    with open_store(url, "read") as store:
        return list(digests(store))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger on SQLite with a bit of everything; no test of this file may change it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('told') / 'ledger.db'}"
    make(url)
    return url


@pytest.fixture(scope="module")
def known(told: str) -> list[Digest]:
    return digests_of(told)


def test_every_version_of_every_rendering_is_held_to_this(known: list[Digest]) -> None:
    for run in ("first", "second", "told"):
        made = {(digest.kind, digest.format, digest.version) for digest in known if digest.run == run}
        assert made == {(of.kind, of.format, of.version) for of in RENDERINGS} | {("results", "text", 1)}
    assert len({digest.sha256 for digest in known}) == len(known), "each shows its own run, in its own form"


@pytest.mark.parametrize("number", range(len(SURROUNDINGS)))
def test_neither_hash_seed_nor_locale_nor_time_zone_nor_folder_changes_a_byte(
    told: str, known: list[Digest], tmp_path: Path, number: int
) -> None:
    assert printed(["tests.digests", told], tmp_path, SURROUNDINGS[number]) == lines(known)


def test_what_the_program_prints_and_writes_are_these_bytes_in_any_locale(
    told: str, known: list[Digest], tmp_path: Path
) -> None:
    newest = max(digest for digest in known if digest[:3] == ("first", "report", "html")).sha256
    shown = printed(["cli", "report", "first", "--format", "html", "--ledger", told], tmp_path, SURROUNDINGS[2])
    assert hashlib.sha256(shown).hexdigest() == newest
    printed(["cli", "report", "first", "--out", "report.html", "--ledger", told], tmp_path, SURROUNDINGS[1])
    assert hashlib.sha256((tmp_path / "report.html").read_bytes()).hexdigest() == newest


def test_a_copy_in_postgres_gives_the_same_bytes(
    told: str, known: list[Digest], postgres_url: str, tmp_path: Path
) -> None:
    copy_ledger(told, postgres_url, fold=fold)
    assert printed(["tests.digests", postgres_url], tmp_path, SURROUNDINGS[1]) == lines(known)


def test_reports_and_grades_keep_their_bytes_when_every_content_is_erased_and_whatever_the_tables_hold(
    told: str, known: list[Digest], ledger_url: str
) -> None:
    copy_ledger(told, ledger_url, fold=fold)
    with open_store(ledger_url, "write", fold=fold, accept_clock=True) as store:
        for run in ("first", "second", "told"):
            assert redact(store, Target(run), reason="subject_request", by=By("dpo-1")).contents
    erased = digests_of(ledger_url)
    assert of_kinds(erased) == of_kinds(known)
    assert not set(of_kinds(erased, ["results"])) & set(of_kinds(known, ["results"])), "nothing was erased"
    with plain_sql(ledger_url) as run:
        run("UPDATE requests SET risk_level = 'low', line = 99 - line")
        run("UPDATE model_calls SET prompt_tokens = 1")
        run("DELETE FROM runs")
    assert digests_of(ledger_url) == erased
    with open_store(ledger_url, "write", fold=fold, accept_clock=True) as store:
        assert check(store)
        rebuild(store)
        assert check(store) == []
    assert digests_of(ledger_url) == erased


# Other Pythons


@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.environ.get(ASKED_FOR), reason=f"set {ASKED_FOR}=1: it installs an environment for each")
def test_every_other_python_gives_the_same_bytes(told: str, known: list[Digest]) -> None:
    found = interpreters()
    if not found:
        pytest.skip("no other Python from 3.11 on, on PATH or in pyenv's folder")
    for version, python in found.items():
        assert digests_by(environment(version, python), told) == lines(known), version
