"""docs/evidence.md is followed by people who do not know our program, so each of its commands is run as it stands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.simulated_model import SimulatedEndpoint
from runner.simulated_replies import SIMULATED_MODEL
from tests.test_readme import ALERTS

PROJECT = Path(__file__).resolve().parents[1]
PAGE = (PROJECT / "docs" / "evidence.md").read_text(encoding="utf-8")
EXAMPLE = PROJECT / "tests" / "data" / "ledger_example"
_FOR_AUDITORS, _FOR_KEEPERS = PAGE.split("\n## For whoever keeps the ledger\n")
_BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_TOOLS = ("bash", "openssl", "sha256sum", "unzip", "xxd", "jq", "base64")

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, _TOOLS)), reason=f"needs {', '.join(_TOOLS)}, some of which this machine does not have"
)


def blocks(text: str) -> list[tuple[str, str | None]]:
    """The page's commands in order, with the output that it shows, if it does."""
    return [(found[1], found[2]) for found in _BLOCK.finditer(text)]


def run(script: str, folder: Path, **more: str) -> str:
    """What the commands print; they must succeed."""
    environment = os.environ | more
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@needs_tools
def test_an_auditor_who_does_what_the_page_says_sees_what_the_page_shows(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    checked = blocks(_FOR_AUDITORS)
    assert len(checked) > 8
    for script, shown in checked:
        assert run(script, folder) == shown


@needs_tools
def test_the_checks_by_hand_notice_what_was_changed(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    by_hand = blocks(_FOR_AUDITORS.split("\n## By hand\n")[1])
    with_signature, with_root = by_hand[1][0], by_hand[3][0]
    with_events = by_hand[4][0]
    run(by_hand[0][0] + with_signature, folder)
    events = folder / "bundle" / "events.jsonl"
    events.write_bytes(events.read_bytes().replace(b'"turn":1', b'"turn":2', 1))
    assert "another payload" in run(with_events, folder)
    leaves = folder / "bundle" / "leaves.txt"
    leaves.write_text("".join(reversed(leaves.read_text().splitlines(keepends=True))))
    made, signed, *_ = run(with_root, folder).split()
    assert made != signed
    assert "another envelope" in run(with_events, folder)
    note = folder / "bundle" / "checkpoint.txt"
    note.write_bytes(note.read_bytes().replace(b"\n14\n", b"\n15\n"))
    signature = with_signature.replace("unzip -q audit-example-run.zip -d bundle\n", "")
    assert "Signature Verification Failure" in run(f"{signature.rstrip()} || true", folder)


@needs_tools
def test_a_keeper_can_do_what_the_page_says(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (tmp_path / "alerts.jsonl").write_text("".join(json.dumps(alert) + "\n" for alert in ALERTS), encoding="utf-8")
    with SimulatedEndpoint({}) as endpoint:
        made = (
            "replay-ledger prepare alerts.jsonl --out incidents.jsonl\n"
            f"replay-ledger run incidents.jsonl --base-url {endpoint.base_url} --model {SIMULATED_MODEL} "
            "--no-api-key --run-id first\n"
        )
        run(made, tmp_path, XDG_STATE_HOME=str(state))
    results = run("replay-ledger results first --format jsonl", tmp_path).splitlines()
    request = json.loads(results[0])["request_id"]
    printed = ""
    for script, shown in blocks(_FOR_KEEPERS):
        assert shown is None
        if "--key-lost" in script:
            shutil.rmtree(state / "replay-ledger")
        printed += run(script, tmp_path, REQUEST=request, XDG_STATE_HOME=str(state))
    verdicts = re.findall(r"^(PASS|INCOMPLETE|FAIL)  ", printed, re.MULTILINE)
    assert (tmp_path / "new.vkey").read_text() != (tmp_path / "ledger.vkey").read_text()
    assert verdicts == ["PASS"] * 7, "verify three times, bundle-check twice, after the loss, after the erasure"
    erased, *others = run("replay-ledger results first --format jsonl", tmp_path).splitlines()
    assert (json.loads(erased)["redacted"], json.loads(erased)["model_output"]["proposed_action"]) == (True, None)
    assert others == results[1:]
    refused = "replay-ledger redact --run first --reason gdpr-17 --yes || test $? -eq 1"
    run(refused, tmp_path, XDG_STATE_HOME=str(state))
    assert run("replay-ledger results first --format jsonl", tmp_path).splitlines() == [erased, *others], "it was held"


def test_it_never_says_that_nobody_can_change_the_record() -> None:
    for page in (PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")):
        assert not re.search(r"tamper.?proof", page.read_text(encoding="utf-8"), re.IGNORECASE), page
