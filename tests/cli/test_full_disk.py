"""A disk that fills up under a run: told, nothing lost, and the run goes on once there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, Program, clean_environment, write_requests
from tests.harness.mock_endpoint import MockEndpoint

# A small file system of its own, seen by this shell alone and gone with it.
SCRIPT = """
mount -t tmpfs -o size=8m tmpfs "$DISK" || exit 77
dd if=/dev/zero of="$DISK/filler" bs=1k count="$FILLER" 2>/dev/null
"$PROGRAM" run "$FILE" --run-id r1 --ledger "sqlite:///$DISK/ledger.db"
echo "run $?"
"$PROGRAM" show r1 --json --ledger "sqlite:///$DISK/ledger.db" | grep -o '"lines":[a-z0-9]*'
rm "$DISK/filler"
"$PROGRAM" resume r1 "$FILE" --ledger "sqlite:///$DISK/ledger.db"
echo "resume $?"
"$PROGRAM" verify --ledger "sqlite:///$DISK/ledger.db"
echo "verify $?"
"""


@pytest.mark.parametrize(
    ("filler_kib", "lines"), [(7850, "null"), (7300, "200")], ids=["while-reading", "while-calling"]
)
def test_a_full_disk_stops_the_run_and_resume_goes_on_once_there_is_room(
    program: Program, mock_endpoint: Callable[..., MockEndpoint], tmp_path: Path, filler_kib: int, lines: str
) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare")
    endpoint = mock_endpoint()
    file = write_requests(tmp_path / "in.jsonl", 200)
    (tmp_path / "disk").mkdir()
    known = {"DISK": str(tmp_path / "disk"), "FILE": str(file), "PROGRAM": str(PROGRAM), "FILLER": str(filler_kib)}
    known |= {"REPLAY_LEDGER_BASE_URL": endpoint.base_url, "REPLAY_LEDGER_NO_API_KEY": "1"}
    own = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    done = subprocess.run(
        [unshare, *own, "/bin/sh", "-c", SCRIPT],
        cwd=tmp_path,
        env=clean_environment(known),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode in {1, 77} and "run " not in done.stdout:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert "Traceback" not in done.stderr, done.stderr
    assert "run 4\n" in done.stdout, done.stderr
    assert f'"lines":{lines}' in done.stdout
    assert "full" in done.stderr
    assert "resume RUN" in done.stderr
    assert "resume 0\n" in done.stdout, done.stderr
    assert "200 requests: 200 accepted at once" in done.stderr
    assert "verify 0\n" in done.stdout, done.stdout
