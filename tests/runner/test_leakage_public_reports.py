"""Leaks that people reported in public, and requests that guards refused wrongly."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from runner.demo_incidents import demo_files
from runner.leakage import scan_request
from runner.prepare import PrepareOptions, prepare_stream
from runner.prompts import VARIANTS, messages
from runner.requests import ReplayRequest, parse_line
from tests.runner.leaks import ALERTS, CASES, document, scan


def reports() -> list[dict[str, Any]]:
    cases = json.loads(CASES.read_text(encoding="utf-8")) if CASES.exists() else []
    return [case for case in cases if case["group"] == "C"]


@pytest.mark.skipif(not CASES.exists(), reason="the public bug reports are not here")
@pytest.mark.parametrize("report", reports(), ids=lambda report: report["source"])
def test_a_publicly_reported_leak_is_refused_and_its_counterpart_passes(report: dict[str, Any]) -> None:
    whole = document(**report["input"])
    whole["incident_id"] = report["input"]["request_id"]
    findings = scan(whole)
    assert bool(findings) == report["expect"]["rejected"]
    if "path" in report["expect"]:
        assert report["expect"]["path"] in [finding.path for finding in findings]


@pytest.mark.skipif(not ALERTS.exists(), reason="the alert rules are not here")
def test_none_of_a_thousand_real_alert_rules_is_refused() -> None:
    out = io.BytesIO()
    with ALERTS.open("rb") as stream:
        summary = prepare_stream(stream, ALERTS.name, out, options=PrepareOptions(variant="contract_tuned_v1"))
    assert (summary.records, summary.written, summary.labels) == (1155, 1155, 0)
    for number, line in enumerate(out.getvalue().splitlines(), start=1):
        request = parse_line(number, line)
        assert isinstance(request, ReplayRequest)
        for variant in VARIANTS:
            sent = messages(request, variant)
            ids = {"request_id": request.request_id, "incident_id": request.incident_id}
            assert scan_request(request.document, messages=sent, **ids) == ()


def test_none_of_the_demo_incidents_is_refused_but_the_one_that_leaks(tmp_path: Any) -> None:
    files = demo_files(tmp_path)
    for path, leaking in ((files.incidents_path, 0), (files.leaking_path, 1)):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert sum(bool(scan(json.loads(line))) for line in lines) == leaking
