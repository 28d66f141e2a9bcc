"""Every command of the README is run, as it stands there, in order, in one folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.simulated_model import SimulatedEndpoint
from runner.simulated_replies import SIMULATED_MODEL
from tests.runner.playing import a_request

PROJECT = Path(__file__).resolve().parents[1]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
ALERTS = [
    {
        "service": service,
        "group": "node",
        "alertname": f"{service}DiskFull",
        "title": "disk full",
        "severity": "critical",
        "description": f"The disk of {service} is almost full.",
        "expr": "node_filesystem_avail_bytes / node_filesystem_size_bytes < 0.05",
        "for": "5m",
    }
    for service in ("Orders", "Billing", "Search")
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def endpoint() -> Iterator[SimulatedEndpoint]:
    with SimulatedEndpoint({}) as running:
        yield running


def test_the_shell_commands_run_as_they_stand(endpoint: SimulatedEndpoint, tmp_path: Path) -> None:
    (tmp_path / "alerts.jsonl").write_text("".join(json.dumps(alert) + "\n" for alert in ALERTS), encoding="utf-8")
    first, *others = blocks("sh")
    assert re.findall(r"^make (\w+)", first, flags=re.MULTILINE) == ["demo", "test"], "those two set themselves up"
    script = "set -euo pipefail\n" + "\n".join(others)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BASE_URL": endpoint.base_url,
        "MODEL": SIMULATED_MODEL,
        "REPLAY_LEDGER_API_KEY": "key-for-the-readme",
    }
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "report.json").read_bytes())["accepted_first"] == len(ALERTS)
    assert len(re.findall(r"^PASS  ", done.stdout, flags=re.MULTILINE)) == 3, "verify twice, and verify.py"
    assert (tmp_path / "results.csv").read_text(encoding="utf-8").count("\n") >= 1 + len(ALERTS)


def test_the_python_example_runs_as_it_stands(
    endpoint: SimulatedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {
        "requests": [a_request()],
        "key": "key-for-the-readme",
        "base_url": endpoint.base_url,
        "model": SIMULATED_MODEL,
    }
    wrapped = "async def example():\n" + textwrap.indent(example, "    ")
    exec(compile(wrapped, "README.md", "exec"), given)
    asyncio.run(given["example"]())
    assert capsys.readouterr().out.startswith("True []")


def test_the_pages_and_pictures_that_it_names_are_there() -> None:
    named = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert named
    assert [name for name in named if not (PROJECT / name).exists()] == []
