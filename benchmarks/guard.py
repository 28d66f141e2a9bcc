"""What the leak guard costs a request: the bundled incidents, made distinct, scanned as a run would.

    python benchmarks/guard.py [REQUESTS]

Prints processor time a request in microseconds. Each request is scanned once, so that what the guard
remembers helps only where the requests of one file really have it in common.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, quantiles

from runner.demo_incidents import demo_files
from runner.leakage import scan_body, scan_request
from runner.prompts import CONTRACT_TUNED, first_body, messages
from runner.requests import ReplayRequest, parse_line
from runner.settings import RunSettings


def distinct_requests(count: int) -> list[ReplayRequest]:
    with tempfile.TemporaryDirectory() as folder:
        lines = demo_files(Path(folder)).incidents_path.read_text(encoding="utf-8").splitlines()
    requests = []
    for number in range(1, count + 1):
        document = json.loads(lines[number % len(lines)])
        document["incident_id"] = f"incident-{number:06d}"
        document["incident_context"]["incident_id"] = f"incident-{number:06d}"
        document["incident_context"]["observed"] = {"host": f"node-{number * 7919 % 99991}", "load": number / 7}
        request = parse_line(number, json.dumps(document).encode())
        assert isinstance(request, ReplayRequest), request
        requests.append(request)
    return requests


def main(count: int) -> None:
    requests = distinct_requests(count)
    times = []
    for request in requests:
        sent = messages(request, CONTRACT_TUNED)
        start = time.process_time_ns()
        found = scan_request(
            request.document, request_id=request.request_id, incident_id=request.incident_id, messages=sent
        )
        times.append((time.process_time_ns() - start) / 1000)
        assert not found, found
    percentiles = quantiles(times, n=100)
    size = mean(len(request.raw) for request in requests)
    print(f"{count} clean requests, {size:.0f} bytes each on average, with their messages")
    print(f"mean {mean(times):.0f} us, p50 {percentiles[49]:.0f}, p90 {percentiles[89]:.0f}, p99 {percentiles[98]:.0f}")
    bodies = [first_body(request, CONTRACT_TUNED, "model", RunSettings()) for request in requests[:1000]]
    start = time.process_time_ns()
    for body in bodies:
        scan_body(body)
    print(f"one body, walked as turn 2's is: mean {(time.process_time_ns() - start) / 1000 / len(bodies):.0f} us")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
