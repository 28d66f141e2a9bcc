"""Replay requests, answers and exchanges in a few words, for tests of the pure core."""

from __future__ import annotations

import json
from typing import Any

from runner.reply import Exchange, Reply, classify
from runner.requests import ReplayRequest, parse_line

TUNED_PROFILE = "contract_tuned_v1"
ANSWER: dict[str, Any] = {
    "proposed_action": "restart pod checkout-7",
    "action_plan": ["drain traffic", "restart pod", "watch error rate"],
    "risk_level": "medium",
    "requires_human_approval": True,
    "blocked_by_policy": False,
}


def document(*, tuned: bool = True, metadata: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """A whole replay request; ``members`` and ``metadata`` are laid over it, None takes a member out."""
    profile = {"prompt_profile": TUNED_PROFILE} if tuned else {}
    whole = {
        "schema_version": "agent_nemotron_replay_request_v1",
        "run_id": "run-1",
        "incident_id": "INC-1",
        "candidate_id": "nemo_nemotron_fabric",
        "system_prompt": "Return JSON.",
        "user_prompt": "What should be done?",
        "incident_context": {"alertname": "KubePodCrashLooping", "ratio": 0.25},
        "source_metadata": {"source": "test"},
        "metadata": {"request_only": True, "not_replacement_evidence": True, **profile, **(metadata or {})},
        **members,
    }
    return {name: value for name, value in whole.items() if value is not None}


def request(*, tuned: bool = True, **members: Any) -> ReplayRequest:
    parsed = parse_line(1, json.dumps(document(tuned=tuned, **members)).encode())
    assert isinstance(parsed, ReplayRequest), parsed
    return parsed


def completion(content: Any, *, finish_reason: str | None = "stop", **envelope: Any) -> bytes:
    """A chat completion's body. ``envelope`` members are laid over it."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": content}}
    return json.dumps({"id": "chatcmpl-1", "model": "test-model", "choices": [choice], **envelope}).encode()


def exchange(body: bytes, *, status: int | None = 200, **members: Any) -> Exchange:
    given = {
        "http_status": status,
        "body": body,
        "body_bytes": len(body),
        "truncated": False,
        "content_type": "application/json",
        "retry_after_ms": None,
        "duration_us": 20_000,
        "scrubbed": 0,
    }
    return Exchange(**{**given, **members})


def reply(content: Any, *, finish_reason: str | None = "stop", **envelope: Any) -> Reply:
    told = classify(exchange(completion(content, finish_reason=finish_reason, **envelope)))
    assert isinstance(told, Reply), told
    return told
