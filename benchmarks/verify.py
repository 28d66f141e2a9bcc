"""What `verify` costs an event: a whole ledger on SQLite, hashed again and its tables compared.

    python -m benchmarks.verify --events 1000000 [--keep FILE] [--only WAY] [--profile]

Makes a ledger of that many events (or takes FILE, where it is there already), signs it, and verifies it
in four ways: with and without the projection tables, in one process and in two. Every way must find
nothing wrong. Wall and CPU time are told beside one another, CPU over all processes and threads (beside
the hashing, a thread has SQLite check its file and the versions within requests), and the most memory
that any one process held.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.append import BODY, SHA, request_payloads, start
from ledger.events import (
    Counts,
    IntakeCompleted,
    ModelCalled,
    ModelCallFailed,
    ModelCallStarted,
    NewEvent,
    RunCompleted,
    new_event,
)
from ledger.integrity.anchors import Anchor
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import SigningKey, sign_note
from ledger.integrity.verify import verify
from ledger.projections.tables import fold
from ledger.store import Batch, open_store

ORIGIN = "benchmark.example/verify"
KEY = SigningKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"k" * 32))
GROUP = 5_000
REQUESTS_A_RUN = 50_000
FAILS_EVERY = 50
"""One request in so many has a call that fails first."""


def run(number: int, requests: int) -> Iterator[NewEvent]:
    """One run as the runner records it: all of intake, then the calls, 16 at a time."""
    run_id = f"run-{number:05}"
    yield start()._replace(run_id=run_id)
    for index in range(requests):
        payload, content = request_payloads(index)[0]
        yield new_event(payload, run_id=run_id, request_id=f"INC-{index:07}", content=content)
    intake = IntakeCompleted(lines=requests, accepted=requests, rejected=0, leaking=0, input_sha256=SHA, selection=None)
    yield new_event(intake, run_id=run_id)
    for first in range(0, requests, 16):
        flight = range(first, min(first + 16, requests))
        told = [list(calls(run_id, index)) for index in flight]
        for step in range(max(map(len, told))):
            yield from (events[step] for events in told if step < len(events))
    counts = dict.fromkeys(Counts.model_fields, 0) | {"requests": requests, "accepted_first": requests}
    yield new_event(RunCompleted(outcome="completed", counts=Counts(**counts)), run_id=run_id)


def calls(run_id: str, index: int) -> Iterator[NewEvent]:
    """The calls of one request and its result."""
    request_id = f"INC-{index:07}"
    _, (_, _), (called, reply), (output, text) = request_payloads(index)
    attempt = 1
    if index % FAILS_EVERY == 0:
        started = ModelCallStarted(attempt=1, turn=1, body_bytes=len(BODY), quote_withheld=False)
        failed = ModelCallFailed(
            attempt=1,
            turn=1,
            code="rate_limited",
            http_status=429,
            retry_after_ms=1000,
            wait_ms=1000,
            will_retry=True,
            outcome_unknown=False,
            duration_us=5000,
        )
        yield new_event(started, run_id=run_id, request_id=request_id, content=BODY)
        yield new_event(failed, run_id=run_id, request_id=request_id, content=b"slow down")
        attempt = 2
    started = ModelCallStarted(attempt=attempt, turn=1, body_bytes=len(BODY), quote_withheld=False)
    yield new_event(started, run_id=run_id, request_id=request_id, content=BODY)
    answered = ModelCalled(**called.facts() | {"attempt": attempt})
    yield new_event(answered, run_id=run_id, request_id=request_id, content=reply)
    yield new_event(output, run_id=run_id, request_id=request_id, content=text)


def make(path: Path, events: int) -> None:
    """A ledger of about so many events, and beside it the checkpoint of its end."""
    with open_store(f"sqlite:///{path}", "create", fold=fold, origin=ORIGIN) as store:
        number, left = 0, events - 1
        while left > 0:
            requests = max(1, min(REQUESTS_A_RUN, round((left - 3) / (4 + 2 / FAILS_EVERY))))
            group: list[NewEvent] = []
            for event in run(number, requests):
                group.append(event)
                left -= 1
                if len(group) == GROUP:
                    store.append_group([Batch(group)])
                    group = []
            if group:
                store.append_group([Batch(group)])
            number += 1
        head = store.head()
    text = format_checkpoint(Checkpoint(ORIGIN, head.size, head.root))
    path.with_suffix(".note").write_text(sign_note(text, [KEY]), encoding="utf-8")


# --- one way, in a process of its own ------------------------------------------------------

WAYS = {
    "with projections": {"jobs": 1, "projections": True},
    "without": {"jobs": 1, "projections": False},
    "with projections, 2 jobs": {"jobs": 2, "projections": True},
    "without, 2 jobs": {"jobs": 2, "projections": False},
}


def judge(path: Path, way: str, profile: bool) -> dict[str, Any]:
    """Verify in this process; what it took."""
    anchor = Anchor(path.with_suffix(".note").read_bytes(), "the file beside it")
    asked = {"keys": [KEY.verifier_key], "anchors": [anchor], **WAYS[way]}
    shown: list[int] = []
    profiler = cProfile.Profile()
    with open_store(f"sqlite:///{path}", "read", fold=fold) as store:
        began = time.perf_counter()
        if profile:
            profiler.enable()
        verdict = verify(store, progress=lambda done, _: shown.append(done), **asked)
        profiler.disable()
        wall = time.perf_counter() - began
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    assert not verdict.findings, verdict.findings
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "events": verdict.events,
        "wall": wall,
        "cpu": sum(usage.ru_utime + usage.ru_stime for usage in usages),
        "memory": max(usage.ru_maxrss for usage in usages),
        "told": len(shown),
        "verdict": verdict.result,
    }


def measure(path: Path, way: str, profile: bool) -> None:
    """Judge in a fresh process, so that memory is its own."""
    command = [sys.executable, "-m", "benchmarks.verify", "--judge", way, "--keep", str(path)]
    ended = subprocess.run(command + ["--profile"] * profile, stdout=subprocess.PIPE, check=True)
    took = json.loads(ended.stdout)
    events, wall, cpu = took["events"], took["wall"], took["cpu"]
    print(
        f"  {way:25} {events / wall:9,.0f} events/s  {wall:6.1f} s wall, {cpu:6.1f} s of CPU"
        f" ({cpu / events * 1e6:5.1f} us an event)  {took['memory'] / 1024:5.0f} MB at most,"
        f" progress told {took['told']} times, {took['verdict']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="use this ledger, or make it there and leave it")
    parser.add_argument("--only", choices=list(WAYS), help="measure one way")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--judge", choices=list(WAYS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.judge:
        print(json.dumps(judge(arguments.keep, arguments.judge, arguments.profile)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.keep or Path(folder, "ledger.db")
        if not path.exists():
            began = time.perf_counter()
            make(path, arguments.events)
            print(f"made in {time.perf_counter() - began:.0f} s")
        load = os.getloadavg()[0]
        print(f"{path.stat().st_size / 2**20:,.0f} MB on SQLite, {os.cpu_count()} cores under a load of {load:.1f}")
        for way in [arguments.only] if arguments.only else WAYS:
            measure(path, way, arguments.profile)


if __name__ == "__main__":
    main()
