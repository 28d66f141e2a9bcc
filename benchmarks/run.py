"""What one replayed request costs: `run`, everything recorded and durable, beside one bare HTTP client.

    python benchmarks/run.py [--requests 5000] [--concurrency 64] [--delay-ms 20] [--ledger URL]

Both put the same number of requests to the same endpoint, each in a process of its own, and are
measured by what the system says of the ended process: CPU seconds (user and system) and the
largest memory it held. Figures from different machines, or different moments, do not compare; the
ratio of one run does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from ledger import open_ledger
from tests.harness import mock_endpoint

PROJECT = Path(__file__).resolve().parents[1]

BARE_CLIENT = """
import asyncio, json, sys, httpx
url, count, concurrency = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
body = json.dumps({"model": "m", "messages": [{"role": "system", "content": "s" * 300},
                   {"role": "user", "content": "u" * 900}], "stream": False}).encode()
async def main():
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:
        left = iter(range(count))
        async def work():
            for _ in left:
                reply = await client.post(url, content=body, headers={"content-type": "application/json"})
                reply.raise_for_status()
        await asyncio.gather(*(work() for _ in range(concurrency)))
asyncio.run(main())
"""


def write_requests(path: Path, count: int) -> None:
    """Requests of about 1.3 kB, all different."""
    with path.open("w", encoding="utf-8") as out:
        for number in range(count):
            request = {
                "schema_version": "agent_nemotron_replay_request_v1",
                "run_id": "measured",
                "incident_id": f"INC-{number:07}",
                "candidate_id": "nemo_nemotron_fabric",
                "system_prompt": "You decide what to do about production incidents. " * 4,
                "user_prompt": f"Incident {number}: what should be done? Answer with one JSON object.",
                "incident_context": {
                    "alertname": "KubePodCrashLooping",
                    "expr": 'max_over_time(kube_pod_status_waiting_reason{reason="CrashLoopBackOff"}[5m]) >= 1',
                    "description": "Pod shop/checkout is in waiting state (reason: CrashLoopBackOff). " * 3,
                    "labels": {"severity": "critical", "namespace": "shop", "pod": f"checkout-{number}"},
                    "number": number,
                },
                "source_metadata": {"source": "made"},
                "metadata": {
                    "request_only": True,
                    "not_replacement_evidence": True,
                    "facets": {"severity": "critical", "service": f"service-{number % 20}"},
                },
            }
            out.write(json.dumps(request) + "\n")


def measured(command: list[str], cwd: Path) -> tuple[float, float, float]:
    """CPU seconds, peak MiB and wall seconds of a command, which must end with 0."""
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "XDG_STATE_HOME": str(cwd / "state")},
        stdin=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:4]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--delay-ms", type=float, default=20)
    parser.add_argument("--ledger", help="default: a new SQLite file")
    parser.add_argument("--no-bare", action="store_true", help="leave the bare client out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "requests.jsonl"
        write_requests(file, options.requests)
        endpoint = mock_endpoint.start(folder, delay_ms=options.delay_ms)
        (folder / endpoint.log.name).unlink(missing_ok=True)
        url = options.ledger or f"sqlite:///{folder / 'ledger.db'}"
        target = ["--model", "m", "--base-url", endpoint.base_url, "--no-api-key", "-j", str(options.concurrency)]
        try:
            row(
                "run, recorded",
                options.requests,
                measured([sys.executable, "-m", "cli", "run", str(file), "--ledger", url, *target], folder),
            )
            pace(url, options.requests)
            if not options.no_bare:
                chat = f"{endpoint.base_url}/chat/completions"
                bare = [sys.executable, "-c", BARE_CLIENT, chat, str(options.requests), str(options.concurrency)]
                row("bare httpx.AsyncClient", options.requests, measured(bare, folder))
        finally:
            endpoint.stop()


def pace(url: str, requests: int) -> None:
    """Does a request near the end take longer than one near the start? By the ledger's own times."""
    tenth = requests // 10
    with open_ledger(url, "read") as store:
        times = [
            datetime.fromisoformat(str(at))
            for (at,) in store.rows("SELECT recorded_at FROM events WHERE type = 'OutputAccepted' ORDER BY position")
        ]
    early, late = (times[end] - times[end - tenth] for end in (2 * tenth, requests - 1))
    print(f"last tenth against second tenth: {late / early:.2f} of its time")


def row(name: str, requests: int, figures: tuple[float, float, float]) -> None:
    cpu, memory, wall = figures
    print(
        f"{name:24} {cpu / requests * 1000:7.3f} ms CPU a request  {requests / wall:8.0f} requests/s  {memory:6.0f} MiB"
    )


if __name__ == "__main__":
    main()
