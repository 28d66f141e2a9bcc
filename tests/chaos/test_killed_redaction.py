"""An erasure that is killed leaves a whole ledger, and the same command again erases the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ledger.events import LEDGER_RUN_ID
from ledger.integrity.verify import verify
from ledger.projections.tables import fold
from ledger.store import Store, open_store
from tests.ledger.integrity.test_redact import long_run, redacted_in_events

CONTENTS = 10_000
PROGRAM = Path(sys.executable).with_name("replay-ledger")


@pytest.mark.parametrize("after_events", [1, 3])
def test_a_killed_erasure_is_finished_by_the_same_command(ledger_url: str, tmp_path: Path, after_events: int) -> None:
    with open_store(ledger_url, "create", fold=fold) as store:
        story = long_run(CONTENTS)
        for start in range(0, len(story), 2000):
            store.append(story[start : start + 2000])
    words = [str(PROGRAM), "redact", "--run", "run", "--reason", "asked", "--yes", "--ledger", ledger_url]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    first = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open_store(ledger_url, "read") as reader:
        deadline = time.monotonic() + 60
        while reader.version(LEDGER_RUN_ID) <= after_events and time.monotonic() < deadline:
            time.sleep(0.002)
        first.send_signal(signal.SIGKILL)
        assert first.wait(timeout=30) == -signal.SIGKILL
        erased = len(reader.redactions())
        assert 0 < erased < CONTENTS
        assert erased % 1000 == 0
        assert sorted(redacted_in_events(reader)) == [position for position, _ in reader.redactions()]
        assert left(reader) == CONTENTS - erased
        assert verify(reader).findings == ()
    again = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False
    )
    assert again.returncode == 0, again.stderr
    with open_store(ledger_url, "read") as reader:
        assert left(reader) == 0
        assert len(redacted_in_events(reader)) == len(set(redacted_in_events(reader))) == CONTENTS
        assert verify(reader).findings == ()


def left(store: Store) -> int:
    """Contents of the run that are still there."""
    sql = "SELECT count(*) FROM contents AS c JOIN events AS e ON e.position = c.position WHERE e.run_id = 'run'"
    ((count,),) = store.rows(sql)
    return int(count)
