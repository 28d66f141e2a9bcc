"""The demo's incidents are sound requests, leak nothing, and come out as the demo says they do."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from ledger import open_ledger
from ledger.projections.results import results
from runner.demo_incidents import DEMO_EXPECTED, DemoFiles, demo_files
from runner.leakage import scan_request
from runner.plan import RunOutcome, RunPlan
from runner.prompts import messages
from runner.replay import start_run
from runner.requests import ReplayRequest, parse_line, read_lines
from runner.settings import RunSettings
from runner.simulated_model import SimulatedEndpoint
from runner.simulated_replies import SIMULATED_MODEL
from runner.variants import variant_for

SETTINGS = RunSettings(attempt_timeout="2", request_timeout="20", concurrency=16, no_api_key=True)


@pytest.fixture
def files(tmp_path: Path) -> DemoFiles:
    return demo_files(tmp_path)


def requests_in(path: Path) -> list[ReplayRequest]:
    with path.open("rb") as stream:
        parsed = [parse_line(number, raw) for number, raw in read_lines(stream)]
    requests = [request for request in parsed if isinstance(request, ReplayRequest)]
    assert len(requests) == len(parsed), parsed
    return requests


def leaking_lines(path: Path) -> list[int]:
    return [
        request.line
        for request in requests_in(path)
        if scan_request(
            request.document,
            request_id=request.request_id,
            incident_id=request.incident_id,
            messages=messages(request, variant_for(request.candidate_variant_id)),
        )
    ]


def test_no_demo_incident_leaks_and_of_the_leaking_file_only_the_second(files: DemoFiles) -> None:
    assert leaking_lines(files.incidents_path) == []
    assert leaking_lines(files.leaking_path) == [2]


def test_the_incidents_are_varied(files: DemoFiles) -> None:
    requests = requests_in(files.incidents_path)
    for facet, least in (("severity", 3), ("service", 20), ("team", 8)):
        assert len({request.facets[facet] for request in requests}) >= least
    assert len({request.policy_id for request in requests}) >= 4
    assert sum(request.response_contract is not None for request in requests) >= 3


def run(path: Path, endpoint: SimulatedEndpoint, url: str) -> tuple[RunOutcome, dict[str, dict[str, str | None]]]:
    """The run's outcome, and of each result what `DEMO_EXPECTED` tells."""
    plan = RunPlan(SETTINGS, SIMULATED_MODEL, endpoint.base_url, "demo", run_id="demo-1")
    with open_ledger(url, "create") as ledger, path.open("rb") as lines:
        outcome = asyncio.run(start_run(ledger, lines, plan))
        seen: dict[str, dict[str, str | None]] = {}
        for result in results(ledger, "demo-1"):
            accepted = "accepted_after_retry" if result["retry_used"] else "accepted_first"
            kind = "fallback" if result["fallback_used"] else accepted
            seen[result["incident_id"]] = {"outcome": kind, "error": result["error"]}
    return outcome, seen


def test_every_incident_ends_as_the_demo_says_within_its_time(files: DemoFiles, tmp_path: Path) -> None:
    began = time.monotonic()
    with SimulatedEndpoint() as endpoint:
        outcome, seen = run(files.incidents_path, endpoint, f"sqlite:///{tmp_path / 'ledger.db'}")
    assert time.monotonic() - began < 25
    assert seen == DEMO_EXPECTED
    assert outcome.state == "completed"
    assert outcome.calls == endpoint.total_calls


def test_a_leaking_file_is_refused_and_the_endpoint_counts_no_call(files: DemoFiles, tmp_path: Path) -> None:
    with SimulatedEndpoint() as endpoint:
        outcome, seen = run(files.leaking_path, endpoint, f"sqlite:///{tmp_path / 'ledger.db'}")
        assert endpoint.total_calls == 0
    assert outcome.state == "blocked"
    assert seen == {}
