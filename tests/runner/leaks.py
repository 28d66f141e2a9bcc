"""Requests to put before the leak guard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.events import Finding
from runner.leakage import scan_request
from runner.prompts import CONTRACT_TUNED, NEMOTRON_CONTRACT_TUNED_VARIANT_ID, messages
from runner.requests import ReplayRequest, parse_line

SHARED = Path(__file__).resolve().parents[3] / "shared"
ALERTS = SHARED / "data" / "prometheus_alerts.jsonl"
CASES = SHARED / "cases" / "cases.json"


def document(context: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """A whole, clean request with ``incident_context`` and other members laid over it."""
    made = {
        "schema_version": "agent_nemotron_replay_request_v1",
        "incident_id": "INC-4711",
        "candidate_id": "nemo_nemotron_fabric",
        "system_prompt": "You are the on-call agent. Reply with JSON: proposed_action, action_plan, risk_level.",
        "user_prompt": "What should be done?",
        "incident_context": {"title": "checkout latency", **(context or {})},
        "source_metadata": {"source": "pager"},
        "metadata": {
            "request_only": True,
            "not_replacement_evidence": True,
            "candidate_variant_id": NEMOTRON_CONTRACT_TUNED_VARIANT_ID,
            "prompt_profile": "contract_tuned_v1",
        },
    }
    return made | members


def scan(whole: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings in a request, read and made into messages as a run does."""
    request = parse_line(1, json.dumps(whole).encode())
    assert isinstance(request, ReplayRequest), request
    return scan_request(
        request.document,
        request_id=request.request_id,
        incident_id=request.incident_id,
        messages=messages(request, CONTRACT_TUNED),
    )


def found(context: Mapping[str, Any] | None = None, **members: Any) -> list[tuple[str, str]]:
    """``(rule, path)`` of each finding in ``document(context, **members)``."""
    return [(finding.rule, finding.path) for finding in scan(document(context, **members))]
