"""The benchmarks can be run: small here, so that none is found broken on the day that it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["append", "--events", "400"], "ours is"),
        (["verify", "--events", "300", "--only", "with projections"], "PASS"),
        (["bundle", "--events", "300"], "prove"),
    ],
)
def test_a_benchmark_runs_and_shows_its_figures(arguments: list[str], shown: str) -> None:
    name, *rest = arguments
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *rest], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
