"""A scripted chat-completions endpoint in a process of its own, where its program lies beside the clone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

from tests.harness.postgres import free_port

PROGRAM = Path(__file__).resolve().parents[3] / "shared" / "tools" / "mock_openai.py"
READY_WITHIN_S = 20.0


@dataclass(frozen=True)
class MockEndpoint:
    """A running endpoint. ``base_url`` ends in ``/v1``; ``log`` has a JSON line for each request that arrived."""

    base_url: str
    log: Path
    process: subprocess.Popen[bytes]

    def stats(self) -> dict[str, Any]:
        """What the endpoint counted: ``calls``, ``max_in_flight``, ``seen_auth``, ``script_left`` and others."""
        return _get(self.base_url.removesuffix("/v1") + "/stats")

    def requests(self) -> list[dict[str, Any]]:
        """The log's lines, in order of arrival."""
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def start(
    folder: Path,
    script: Sequence[dict[str, Any]] = (),
    *,
    content: str | None = None,
    delay_ms: float = 0,
    loop: bool = False,
) -> MockEndpoint:
    """Start an endpoint that gives `script`'s replies in order (the program documents a reply's members).

    After the script, or where it is empty, each reply is a sound decision, or `content` where that is given.
    Files are written to `folder`.
    """
    port = free_port()
    log = folder / f"endpoint-{port}.jsonl"
    command = [sys.executable, str(PROGRAM), "--port", str(port), "--delay-ms", str(delay_ms), "--log", str(log)]
    if script:
        script_file = folder / f"script-{port}.jsonl"
        script_file.write_text("".join(json.dumps(reply) + "\n" for reply in script), encoding="utf-8")
        command += ["--script", str(script_file)]
    if content is not None:
        command += ["--content", content]
    if loop:
        command.append("--loop")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    endpoint = MockEndpoint(f"http://127.0.0.1:{port}/v1", log, process)
    _wait_until_ready(endpoint)
    return endpoint


def _wait_until_ready(endpoint: MockEndpoint) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if endpoint.process.poll() is not None:
            _, complaint = endpoint.process.communicate()
            raise RuntimeError(f"the endpoint ended: {complaint.decode(errors='replace')}")
        try:
            endpoint.stats()
        except (URLError, OSError):
            time.sleep(0.05)
        else:
            return
    endpoint.stop()
    raise RuntimeError(f"the endpoint did not answer within {READY_WITHIN_S} s")


def _get(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a machine's proxy is no way to loopback
    with opener.open(url, timeout=5) as answer:
        value: dict[str, Any] = json.load(answer)
        return value
