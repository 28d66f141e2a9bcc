"""CPU time of one request: our client beside one shared `httpx.AsyncClient`, at the same endpoint in the same run.

    python -m benchmarks.model_client [--requests 1280] [--concurrency 64] [--rounds 3] [--server FILE]

The endpoint runs in a process of its own, so that only the client's CPU is counted: the simulated one or, with
``--server``, any program that takes ``--port`` and ``--delay-ms``. The rounds alternate; the best of each is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import httpx

from runner.endpoint import Endpoint
from runner.model_client import ModelClient
from runner.reply import Exchange

DELAY_MS = 20
PROMPT = "The service answers slowly since its last deployment. " * 40
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": PROMPT}], "stream": False}).encode()
HEADERS = {"Authorization": "Bearer bench-0123456789", "Content-Type": "application/json"}

Post = Callable[[], Awaitable[bool]]


@contextmanager
def endpoint_process(program: Path | None) -> Iterator[Endpoint]:
    """An endpoint on a free port, up and answering."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    what = ["-m", "runner.simulated_model"] if program is None else [str(program)]
    command = [sys.executable, *what, "--port", str(port), "--delay-ms", str(DELAY_MS)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield Endpoint.parse(f"http://127.0.0.1:{port}/v1")
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"the endpoint ended with code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the endpoint did not start")


async def cpu_ms(post: Post, requests: int, concurrency: int) -> float:
    """Milliseconds of CPU a request, once the connections are there."""

    async def worker(share: int) -> None:
        for _ in repeat(None, share):
            if not await post():
                raise SystemExit("a request failed")

    async def all_workers(share: int) -> None:
        await asyncio.gather(*(worker(share) for _ in range(concurrency)))

    await all_workers(2)
    began = time.process_time()
    share = max(1, requests // concurrency)
    await all_workers(share)
    return (time.process_time() - began) * 1000 / (share * concurrency)


async def ours(endpoint: Endpoint, requests: int, concurrency: int) -> float:
    async with ModelClient(endpoint, api_key="bench-0123456789", concurrency=concurrency) as client:

        async def post() -> bool:
            outcome = await client.post(BODY, 30)
            return isinstance(outcome, Exchange) and outcome.http_status == 200

        return await cpu_ms(post, requests, concurrency)


async def bare_httpx(endpoint: Endpoint, requests: int, concurrency: int) -> float:
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=30, trust_env=False) as client:

        async def post() -> bool:
            return (await client.post(endpoint.url, content=BODY, headers=HEADERS)).status_code == 200

        return await cpu_ms(post, requests, concurrency)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1280)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", type=Path, help="a program that takes --port and --delay-ms")
    given = parser.parse_args()
    results: dict[str, list[float]] = {"ours": [], "bare httpx": []}
    with endpoint_process(given.server) as endpoint:
        for _ in range(given.rounds):
            results["ours"].append(asyncio.run(ours(endpoint, given.requests, given.concurrency)))
            results["bare httpx"].append(asyncio.run(bare_httpx(endpoint, given.requests, given.concurrency)))
    for name, values in results.items():
        print(f"{name:<12}{min(values):7.3f} ms CPU a request   (rounds: {', '.join(f'{v:.3f}' for v in values)})")
    print(f"ratio       {min(results['ours']) / min(results['bare httpx']):7.2f}")


if __name__ == "__main__":
    main()
