"""A run killed at any moment and resumed: nothing lost, nothing called twice, every call accounted for."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ledger import open_ledger
from ledger.events import Event
from ledger.projections.rebuild import check
from ledger.projections.report import report
from ledger.projections.results import results
from ledger.store import Store
from tests.cli.preloaded import Preloaded
from tests.cli.program import clean_environment
from tests.harness.mock_endpoint import MockEndpoint
from tests.runner.playing import completion

# Where a kill strikes is drawn anew each time, so the count is no threshold: more of them, now and then, by hand.
KILLS = int(os.environ.get("REPLAY_LEDGER_KILLS", "6"))
REQUESTS = 60
COMMAND = [sys.executable, "-m", "cli"]
PROJECT = Path(__file__).resolve().parents[2]


def write_requests(path: Path, run_id: str, count: int = REQUESTS) -> Path:
    lines = [
        json.dumps(
            {
                "schema_version": "agent_nemotron_replay_request_v1",
                "run_id": run_id,
                "incident_id": f"INC-{number}",
                "candidate_id": "nemo_nemotron_fabric",
                "system_prompt": "You decide about incidents. Return JSON.",
                "user_prompt": f"What should be done in {run_id} about number {number}?",
                "incident_context": {"alertname": "KubePodCrashLooping", "number": number},
                "source_metadata": {},
                "metadata": {
                    "request_only": True,
                    "not_replacement_evidence": True,
                    "candidate_variant_id": "nemo_nemotron_fabric__contract_tuned_v1",
                    "prompt_profile": "contract_tuned_v1",
                },
            }
        )
        for number in range(count)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def start(arguments: list[str], *, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run_arguments(ledger_url: str, file: Path, base_url: str) -> list[str]:
    options = ["--model", "mock-1", "--base-url", base_url, "--no-api-key", "-j", "8"]
    return ["run", str(file), "--ledger", ledger_url, *options]


def events_by_request(ledger_url: str, run_id: str) -> tuple[dict[str, list[Event]], dict[int, bytes], list[Event]]:
    with open_ledger(ledger_url, "read") as store:
        events = [event for event in store.events(run_id) if isinstance(event, Event)]
        started = [event.position for event in events if event.type == "ModelCallStarted"]
        bodies = store.contents(started)
    by_request = defaultdict(list)
    for event in events:
        if event.request_id is not None:
            by_request[event.request_id].append(event)
    return by_request, bodies, events


def results_of(events: list[Event]) -> list[Event]:
    return [event for event in events if event.type in ("OutputAccepted", "FallbackApplied")]


@pytest.fixture
def endpoint(mock_endpoint: Callable[..., MockEndpoint]) -> Iterator[MockEndpoint]:
    """Mostly answers well; now and then badly, so that retries and second turns are cut as well."""
    script = [{"content": "no json"}, *[{} for _ in range(6)], {"status": 503}, *[{} for _ in range(7)]]
    return mock_endpoint(script, delay_ms=25, loop=True)


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    """A process a call without a second of imports a call."""
    waiting = Preloaded()
    yield waiting
    waiting.close()


@dataclass
class Shell:
    """Starts the program in ``folder``, one call at a time."""

    folder: Path
    preloaded: Preloaded

    def start(self, *words: str) -> int:
        """Begin a call; gives its process's number."""
        files = self._files()
        for file in files:
            file.write_bytes(b"")
        return self.preloaded.start(words, self.folder, clean_environment(), files)

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said."""
        return self.preloaded.wait(), self._files()[2].read_text("utf-8", "replace")

    def _files(self) -> tuple[Path, Path, Path]:
        return self.folder / "in", self.folder / "out", self.folder / "err"


@pytest.mark.timeout(900)
def test_a_run_killed_at_random_moments_and_resumed_ends_with_exactly_one_result_each(
    ledger_url: str, endpoint: MockEndpoint, preloaded: Preloaded, tmp_path: Path
) -> None:
    chance = random.Random(20_261_130)
    shell = Shell(tmp_path, preloaded)
    shell.start("db", "upgrade", "--ledger", ledger_url)
    assert shell.end()[0] == 0
    moments = Counter[str]()
    for number in range(KILLS):
        run_id = f"killed-{number}"
        file = write_requests(tmp_path / f"{run_id}.jsonl", run_id)
        with open_ledger(ledger_url, "read") as watch:
            process = shell.start(*run_arguments(ledger_url, file, endpoint.base_url))
            wait_for_events(watch, run_id, chance.randint(1, 4 * REQUESTS), process)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        assert shell.end()[0] in (-signal.SIGKILL, 0, 1)
        before, _, _ = events_by_request(ledger_url, run_id)
        decided = {request for request, events in before.items() if results_of(events)}
        open_calls = count_open(before)
        shell.start("resume", run_id, str(file), "--ledger", ledger_url)
        code, said = shell.end()
        if "has ended" in said:
            moments["after its end"] += 1
        else:
            assert code in (0, 1), said
            moments["with calls open" if open_calls else "between calls"] += 1
        check_run(ledger_url, run_id, endpoint, before, decided, open_calls)
    assert moments["with calls open"] >= KILLS // 4, moments
    with open_ledger(ledger_url, "read") as store:
        assert check(store) == []


def wait_for_events(watch: Store, run_id: str, events: int, process: int) -> None:
    """Until the run has so many events, or has ended: by progress, since a clock means little on a busy machine."""
    deadline = time.monotonic() + 60
    while watch.version(run_id) < events:
        assert time.monotonic() < deadline, "the run did not get that far"
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.002)


def count_open(by_request: dict[str, list[Event]]) -> int:
    counts = Counter(event.type for events in by_request.values() for event in events)
    return counts["ModelCallStarted"] - counts["ModelCalled"] - counts["ModelCallFailed"]


def check_run(
    ledger_url: str,
    run_id: str,
    endpoint: MockEndpoint,
    before: dict[str, list[Event]],
    decided: set[str],
    open_calls: int,
) -> None:
    after, bodies, events = events_by_request(ledger_url, run_id)
    assert len(after) == REQUESTS
    assert all(len(results_of(own)) == 1 for own in after.values())
    for request in decided:
        assert after[request] == before[request], f"{request} had its result and was touched again"
    in_doubt = [e for own in after.values() for e in own if e.payload.get("code") == "outcome_unknown"]
    assert len([e for e in in_doubt if e.type == "ModelCallFailed"]) == open_calls
    assert count_open(after) == 0
    called = Counter(
        line["sha256"] for line in endpoint.requests() if line["sha256"] in {_sha(body) for body in bodies.values()}
    )
    intended = Counter(_sha(body) for body in bodies.values())
    assert not called - intended, "a call was made that no ModelCallStarted foretold"
    assert sum(called.values()) >= sum(intended.values()) - open_calls
    completed = [event for event in events if event.type == "RunCompleted"]
    with open_ledger(ledger_url, "read") as store:
        told = report(store, run_id)
        assert_totals_are_those_of_the_rows(store, told)
        assert_totals_are_those_of_the_results(list(results(store, run_id)), told)
    assert len(completed) == 1
    assert {name: told[name] for name in completed[0].payload["counts"]} == completed[0].payload["counts"]
    assert told["calls"]["started"] == sum(intended.values())


CALLS_SQL = """
SELECT count(*), count(CASE state WHEN 'answered' THEN 1 END), count(CASE state WHEN 'failed' THEN 1 END),
  count(CASE WHEN state = 'failed' AND outcome_unknown THEN 1 END),
  coalesce(sum(CASE state WHEN 'failed' THEN wait_ms END), 0), max(CASE state WHEN 'answered' THEN duration_us END),
  sum(prompt_tokens), sum(completion_tokens), sum(total_tokens), sum(cached_tokens), sum(reasoning_tokens),
  count(CASE WHEN state = 'answered' AND (prompt_tokens IS NULL OR completion_tokens IS NULL) THEN 1 END)
FROM model_calls WHERE run_id = :run
"""
DECISIONS_SQL = """
SELECT risk_level, count(*), count(CASE WHEN blocked_by_policy THEN 1 END),
  count(CASE WHEN requires_human_approval THEN 1 END),
  count(CASE WHEN NOT blocked_by_policy AND NOT requires_human_approval THEN 1 END)
FROM requests WHERE run_id = :run AND outcome LIKE 'accepted%' GROUP BY risk_level
"""


def counted(store: Store, column: str, run_id: str, table: str = "requests") -> dict[str, int]:
    sql = f"SELECT {column}, count(*) FROM {table} WHERE run_id = :run AND {column} IS NOT NULL GROUP BY {column}"
    return {name: int(count) for name, count in store.rows(sql, {"run": run_id})}


def assert_totals_are_those_of_the_rows(store: Store, told: dict[str, Any]) -> None:
    """The report against the tables, counted by the database: another road from the events than the report's fold."""
    run = {"run": told["run_id"]}
    outcomes = counted(store, "outcome", told["run_id"])
    assert (
        outcomes.get("accepted_first", 0),
        outcomes.get("accepted_after_retry", 0),
        outcomes.get("fallback", 0),
    ) == (*(told["accepted_first"], told["accepted_after_retry"], told["fallback_records"]),)
    assert told["results"] == sum(outcomes.values()) == told["requests"] == REQUESTS
    assert counted(store, "error", told["run_id"]) == told["errors"]
    assert counted(store, "first_error", told["run_id"]) == told["first_errors"]
    assert counted(store, "model", told["run_id"], "model_calls") == told["models_answered"]
    ((retried,),) = store.rows(
        "SELECT count(DISTINCT request_id) FROM model_calls WHERE run_id = :run AND turn = 2", run
    )
    assert retried == told["retry_used_records"]
    (row,) = store.rows(CALLS_SQL, run)
    calls, tokens = told["calls"], told["tokens"]
    names = ("started", "answered", "failed", "outcome_unknown", "waited_ms")
    kinds = ("prompt", "completion", "total", "cached", "reasoning", "calls_without_usage")
    assert [None if value is None else int(value) for value in row] == [
        *(*(calls[name] for name in names), told["latency_us"]["max"], *(tokens[kind] for kind in kinds)),
    ]
    by_level = {level: tuple(map(int, of)) for level, *of in store.rows(DECISIONS_SQL, run)}
    columns = ("total", "blocked_by_policy", "requires_human_approval", "neither")
    assert by_level == {
        level: tuple(of[column] for column in columns)
        for level, of in told["decisions"]["by_risk_level"].items()
        if of["total"]
    }


def assert_totals_are_those_of_the_results(made: list[dict[str, Any]], told: dict[str, Any]) -> None:
    """The report against what ``results`` gives: what an analyst who adds up the exported lines would find."""
    accepted = [result for result in made if not result["fallback_used"]]
    again = [result for result in accepted if result["retry_used"]]
    assert (len(made), len(accepted) - len(again), len(again), len(made) - len(accepted)) == (
        *(told["results"], told["accepted_first"], told["accepted_after_retry"], told["fallback_records"]),
    )
    assert Counter(result["error"] for result in made if result["error"]) == told["errors"]
    assert Counter(result["first_error"] for result in made if result["first_error"]) == told["first_errors"]
    levels = {level: of["total"] for level, of in told["decisions"]["by_risk_level"].items() if of["total"]}
    assert Counter(result["model_output"]["risk_level"] for result in accepted) == levels
    replies = [reply for result in made for reply in result["trace_events"]]
    assert len(replies) == told["calls"]["answered"]
    spent = [reply["usage"]["completion_tokens"] for reply in replies]
    assert sum(count for count in spent if count is not None) == (told["tokens"]["completion"] or 0)


def _sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class HeldEndpoint:
    """Answers nobody until ``release`` is set, and counts who called."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.calls = 0
        held = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                held.calls += 1
                held.release.wait(100)
                body = completion().partition(b"\r\n\r\n")[2]
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def held() -> Iterator[HeldEndpoint]:
    endpoint = HeldEndpoint()
    yield endpoint
    endpoint.close()


def test_a_second_driver_of_a_run_is_refused_and_calls_nothing(
    ledger_url: str, held: HeldEndpoint, tmp_path: Path
) -> None:
    file = write_requests(tmp_path / "one.jsonl", "driven", count=4)
    first = start(run_arguments(ledger_url, file, held.base_url), folder=tmp_path)
    deadline = time.monotonic() + 60
    while held.calls < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    for arguments in (
        ["resume", "driven", str(file), "--ledger", ledger_url],
        ["abandon", "driven", "--reason", "test", "--ledger", ledger_url],
        run_arguments(ledger_url, file, held.base_url),
    ):
        second = start(arguments, folder=tmp_path)
        _, err = second.communicate(timeout=60)
        assert second.returncode == 2, err.decode()
        assert b"being driven by" in err
        assert b"Traceback" not in err
    held.release.set()
    _, err = first.communicate(timeout=60)
    assert first.returncode == 0, err.decode()
    assert held.calls == 4


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_stops_sending_records_what_is_in_flight_and_tells_how_to_resume(
    ledger_url: str, mock_endpoint: Callable[..., MockEndpoint], tmp_path: Path, name: str, code: int
) -> None:
    endpoint = mock_endpoint(delay_ms=1500)
    file = write_requests(tmp_path / "stopped.jsonl", "stopped", count=40)
    process = start(run_arguments(ledger_url, file, endpoint.base_url), folder=tmp_path)
    deadline = time.monotonic() + 60
    while endpoint.stats()["calls"] < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err.decode()
    assert b"replay-ledger resume stopped" in err
    after, _, _ = events_by_request(ledger_url, "stopped")
    assert count_open(after) == 0, "replies in flight were awaited and recorded"
    calls = endpoint.stats()["calls"]
    assert 8 <= calls < 40
    assert sum(1 for own in after.values() if results_of(own)) == calls
    resumed = start(["resume", "stopped", "--ledger", ledger_url, "-j", "32"], folder=tmp_path)
    _, err = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, err.decode()
    assert endpoint.stats()["calls"] == 40
