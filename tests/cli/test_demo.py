"""``demo``: the whole thing, without a key and without a network."""

from __future__ import annotations

import signal
import time

from tests.cli.program import Program


def test_the_demo_ends_as_scripted_in_a_folder_of_its_own(program: Program) -> None:
    ended = program("demo", env={"REPLAY_LEDGER_LEDGER": "sqlite:///elsewhere.db"}, timeout=120)
    assert ended.code == 0, ended.err
    (folder,) = program.folder.iterdir()
    assert folder.name.startswith("replay-ledger-demo-")
    assert {"incidents.jsonl", "leaking.jsonl", "ledger.db", "signer"} <= {path.name for path in folder.iterdir()}
    assert "SIMULATED" in ended.err
    assert "calls counted by the endpoint: 0" in ended.err
    for said in ("DEMO-1001", "Usable as evaluation: no", "\nPASS ", "by the signer's store on this machine"):
        assert said in ended.text
    url = f"sqlite:///{folder}/ledger.db"
    assert program("report", "demo", "--ledger", url).json["requests"] == 34
    assert program("verify", "--ledger", url, "--signer-dir", folder / "signer").code == 0
    assert program("verify", "--ledger", url).code == 3, "its key is nowhere else"


def test_the_demo_takes_no_folder_that_is_there(program: Program) -> None:
    ended = program("demo", "--folder", ".")
    assert ended.code == 2
    assert "exists already" in ended.err
    assert list(program.folder.iterdir()) == []


def test_a_demo_that_is_stopped_gives_no_verdict(program: Program) -> None:
    process = program.start("demo")
    assert process.stderr is not None
    for line in process.stderr:
        if b"2. The incidents" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert b"Traceback" not in rest
