"""Runs that were stopped go on; runs that were given up end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]


def wait_for_calls(endpoint: MockEndpoint, count: int) -> None:
    deadline = time.monotonic() + 30
    while endpoint.stats()["calls"] < count:
        assert time.monotonic() < deadline, "no call came"
        time.sleep(0.05)


def end_of(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    out, err = process.communicate(timeout=60)
    assert out == b""
    assert b"Traceback" not in err, err.decode()
    return process.returncode, err.decode()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_waits_for_what_is_in_flight_and_resume_sends_nothing_twice(
    program: Program, against: Against, tmp_path: Path, ledger_url: str, number: signal.Signals, code: int
) -> None:
    endpoint = against(delay_ms=400)
    file = write_requests(tmp_path / "in.jsonl", 12)
    process = program.start("run", file, "--run-id", "r1", "-j", "4", "--ledger", ledger_url)
    wait_for_calls(endpoint, 2)
    process.send_signal(number)
    ended, err = end_of(process)
    assert ended == code, err
    assert "Stopping" in err
    assert f"replay-ledger resume r1 --ledger {'postgresql' if 'postgresql' in ledger_url else 'sqlite'}" in err
    stopped = program("report", "r1", "--ledger", ledger_url).json
    assert stopped["outcome"] == "incomplete"
    assert stopped["calls"]["outcome_unknown"] == 0
    assert 0 < stopped["accepted_first"] < 12

    resumed = program("resume", "r1", "-j", "8", "--ledger", ledger_url)
    assert resumed.code == 0, resumed.err
    assert endpoint.stats()["calls"] == 12
    assert program("report", "r1", "--ledger", ledger_url).json["accepted_first"] == 12


def test_a_second_signal_stops_at_once_and_the_open_call_counts_as_an_attempt(
    program: Program, against: Against, three: Path
) -> None:
    endpoint = against({"hang": True, "match": "incident 1."})
    process = program.start("run", three, "--run-id", "r1", "-j", "1")
    wait_for_calls(endpoint, 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, err = end_of(process)
    assert code == 130, err
    resumed = program("resume", "r1", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["calls"]["outcome_unknown"] == 1
    assert resumed.json["accepted_first"] == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_wait_for_a_line_that_does_not_come(
    program: Program, against: Against, three: Path, number: signal.Signals, code: int
) -> None:
    against()
    fifo = program.folder / "fifo"
    os.mkfifo(fifo)
    process = program.start("run", fifo, "--run-id", "r1")
    with fifo.open("wb", buffering=0) as pipe:
        pipe.write(three.read_bytes())
        wait_for_run(program, "r1")
        time.sleep(0.2)
        process.send_signal(number)
        ended, err = end_of(process)
    assert ended == code, err
    assert "waiting for input" in err
    assert program("resume", "r1", three).code == 0


def wait_for_run(program: Program, run_id: str) -> None:
    deadline = time.monotonic() + 30
    while program("show", run_id).code != 0:
        assert time.monotonic() < deadline, f"no run {run_id}"
        time.sleep(0.1)


def test_a_second_driver_ends_with_2_naming_the_first(
    program: Program, against: Against, three: Path, ledger_url: str
) -> None:
    endpoint = against({"hang": True, "match": "incident 1."})
    process = program.start("run", three, "--run-id", "r1", "-j", "1", "--actor", "ann", "--ledger", ledger_url)
    try:
        wait_for_calls(endpoint, 1)
        for words in (("resume", "r1"), ("abandon", "r1", "--reason", "over")):
            second = program(*words, "--ledger", ledger_url)
            assert second.code == 2, second.err
            assert "driven by ann on" in second.err
    finally:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_a_run_killed_while_its_file_was_read_needs_the_file_again(
    program: Program, against: Against, tmp_path: Path
) -> None:
    endpoint = against()
    file = write_requests(tmp_path / "in.jsonl", 300)
    content = file.read_bytes()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = program.start("run", fifo, "--run-id", "r1")
    with fifo.open("wb", buffering=0) as pipe:
        pipe.write(content[: content.index(b"INC-200")])
        wait_for_run(program, "r1")
        deadline = time.monotonic() + 30
        while program("show", "r1", "--json").json["counts"]["requests"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.kill()
        process.communicate(timeout=60)
    without = program("resume", "r1")
    assert without.code == 2
    assert "file" in without.err
    other = write_requests(tmp_path / "other.jsonl", 300, bad={3: '{"not": "the same"}'})
    differing = program("resume", "r1", other)
    assert differing.code == 2, differing.err
    assert "line 3" in differing.err
    assert endpoint.stats()["calls"] == 0
    resumed = program("resume", "r1", file, "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["accepted_first"] == 300
    assert endpoint.stats()["calls"] == 300


def test_a_run_that_has_ended_is_neither_resumed_nor_abandoned(program: Program, against: Against, three: Path) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    for words in (("resume", "r1"), ("abandon", "r1", "--reason", "over")):
        ended = program(*words)
        assert ended.code == 2
        assert "r1 has ended" in ended.err


def test_resume_goes_by_the_recorded_gate(program: Program, against: Against, tmp_path: Path) -> None:
    file = write_requests(tmp_path / "in.jsonl", 30)
    stopped = program(
        *("run", file, "--run-id", "r1", "--base-url", "http://127.0.0.1:9", "--no-api-key"),
        *("--max-attempts", "1", "--max-fallback-rate", "0.99", "-j", "1"),
    )
    assert stopped.code == 4, stopped.err
    resumed = program("resume", "r1")
    assert resumed.code == 4, resumed.err


def test_resume_without_a_key_that_is_needed_ends_with_2(program: Program, against: Against, three: Path) -> None:
    endpoint = against({"status": 503, "repeat": 100})
    process = program.start("run", three, "--run-id", "r1", "--max-attempts", "50")
    wait_for_calls(endpoint, 1)
    process.send_signal(signal.SIGTERM)
    code, err = end_of(process)
    assert code == 143, err
    del program.variables["REPLAY_LEDGER_API_KEY"]
    ended = program("resume", "r1")
    assert ended.code == 2
    assert "needs an API key: none in REPLAY_LEDGER_API_KEY" in ended.err


def test_an_abandoned_run_ends_for_good(program: Program, against: Against, three: Path) -> None:
    endpoint = against({"hang": True, "repeat": 3})
    process = program.start("run", three, "--run-id", "r1")
    wait_for_calls(endpoint, 3)
    process.kill()
    process.communicate(timeout=60)
    ended = program("abandon", "r1", "--reason", "endpoint-gone", "--note", "they closed the account", "--actor", "ann")
    assert (ended.code, ended.out) == (0, b"")
    assert "3 requests, 3 of them without a result" in ended.err
    made = program("report", "r1").json
    assert (made["outcome"], made["incomplete"], made["calls"]["outcome_unknown"]) == ("abandoned", 3, 3)
    assert program("verify").code == 0
