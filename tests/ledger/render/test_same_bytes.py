"""The same events give the same bytes: on any machine, in any place, at any time, on either database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from ledger.projections.tables import fold
from ledger.store import open_store
from ledger.store.copy import copy_ledger
from tests.stories import story

RUN = "run-1"
PROGRAM = """
import sys
from ledger.projections.report import report
from ledger.projections.results import results
from ledger.render import report_forms, results_csv, results_jsonl, results_table
from ledger.store import open_store

with open_store(sys.argv[1], "read") as store:
    out = sys.stdout.buffer
    made = report(store, sys.argv[2])
    for form, version in sorted(report_forms.FORMS):
        out.writelines(report_forms.render(store, made, form, version))
    for render in (results_jsonl.render, results_csv.render):
        out.writelines(render(results(store, sys.argv[2])))
    for line in results_table.render(results(store, sys.argv[2])):
        out.write(line.encode("utf-8"))
"""
SURROUNDINGS = (
    {"PYTHONHASHSEED": "1", "LANG": "C", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "2", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Chatham"},
    {"PYTHONHASHSEED": "random", "LANG": "de_DE.ISO-8859-1", "TZ": "America/St_Johns", "PYTHONUTF8": "0"},
)


def written(url: str, folder: Path, surroundings: dict[str, str]) -> bytes:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "LC_", "TZ", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, RUN],
        cwd=folder,
        env={**kept, **surroundings},
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger on SQLite with a run that has a bit of everything."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    longest = max((story(Random(seed), run_id=RUN, max_lines=12) for seed in range(60)), key=len)
    with open_store(url, "create", fold=fold) as store:
        store.append(longest)
    return url


def test_neither_hash_seed_nor_locale_nor_time_zone_nor_folder_changes_a_byte(url: str, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    outputs = {written(url, folder, around) for folder, around in zip(folders, SURROUNDINGS, strict=True)}
    assert len(outputs) == 1
    assert b"Usable as evaluation" in outputs.pop()


def test_both_databases_give_the_same_bytes(url: str, postgres_url: str, tmp_path: Path) -> None:
    copy_ledger(url, postgres_url, fold=fold)
    assert written(postgres_url, tmp_path, SURROUNDINGS[1]) == written(url, tmp_path, SURROUNDINGS[0])
