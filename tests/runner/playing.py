"""Whole runs in a few words: requests, an endpoint that speaks by the byte, and what was recorded."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ledger import open_ledger
from ledger.events import Event
from ledger.projections.report import report
from ledger.projections.results import results
from runner.plan import RunOutcome, RunPlan
from runner.replay import start_run
from runner.settings import RunSettings
from tests.runner.scripted_http import Handler, raw_server, reply

TUNED = {"candidate_variant_id": "nemo_nemotron_fabric__contract_tuned_v1", "prompt_profile": "contract_tuned_v1"}
ANSWER: dict[str, Any] = {
    "proposed_action": "restart pod checkout-7",
    "action_plan": ["drain traffic", "restart pod", "watch error rate"],
    "risk_level": "medium",
    "requires_human_approval": True,
    "blocked_by_policy": False,
}

SHORT = {
    "LedgerCreated": "LC",
    "RunStarted": "RS",
    "RequestAccepted": "RA",
    "LeakRejected": "LR",
    "RequestRejected": "RR",
    "IntakeCompleted": "IC",
    "RunBlocked": "RB",
    "ModelCallStarted": "MCS",
    "ModelCallFailed": "MCF",
    "ModelCalled": "MC",
    "ParseFailed": "PF",
    "Retried": "RT",
    "OutputAccepted": "OA",
    "FallbackApplied": "FA",
    "RunCompleted": "RC",
    "RunResumed": "RR+",
    "RunAbandoned": "RX",
}


def a_request(number: int = 1, *, tuned: bool = True, **members: Any) -> dict[str, Any]:
    """A whole replay request; `members` are laid over it."""
    metadata: dict[str, Any] = {"request_only": True, "not_replacement_evidence": True}
    request = {
        "schema_version": "agent_nemotron_replay_request_v1",
        "run_id": "played",
        "incident_id": f"INC-{number}",
        "candidate_id": "nemo_nemotron_fabric",
        "system_prompt": "You decide what to do about incidents. Return JSON.",
        "user_prompt": f"What should be done about incident {number}?",
        "incident_context": {"title": "checkout latency", "service": "checkout", "symptoms": ["p99 4s"]},
        "source_metadata": {"source": "test"},
        "metadata": metadata | (TUNED if tuned else {}),
    }
    return request | members


def lines_of(requests: Iterable[dict[str, Any] | bytes]) -> bytes:
    return b"".join(
        (request if isinstance(request, bytes) else json.dumps(request).encode()) + b"\n" for request in requests
    )


def completion(content: Any = None, *, finish_reason: str | None = "stop", **choice: Any) -> bytes:
    """A whole HTTP reply with one choice; without `content`, a sound answer."""
    text = json.dumps(ANSWER) if content is None else content
    message = {"role": "assistant", "content": text}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "test-model",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message, **choice}],
        "usage": {"prompt_tokens": 120, "completion_tokens": 40, "total_tokens": 160},
    }
    return reply(json.dumps(body).encode())


def refusal(status: int, *headers: str, body: bytes = b'{"error":{"message":"no"}}') -> bytes:
    return reply(body, f"{status} Status", *headers)


@dataclass
class Played:
    """A run that was played, and all that the ledger says of it."""

    outcome: RunOutcome
    events: list[Event]
    contents: dict[int, bytes]
    report: dict[str, Any]
    results: list[dict[str, Any]]
    sent: list[bytes]
    """The bodies that the endpoint received."""

    def story(self) -> str:
        return story(self.events)

    def of(self, event_type: str) -> list[Event]:
        return [event for event in self.events if event.type == event_type]


def story(events: Iterable[Event]) -> str:
    """The events' types in order, in short."""
    return " ".join(SHORT.get(event.type, event.type) for event in events)


def a_plan(base_url: str, **changes: Any) -> RunPlan:
    """A plan with quick timeouts and one worker, so that a script's order is the order of calls."""
    names = RunSettings.model_fields.keys() & changes.keys()
    given = {"concurrency": 1, "attempt_timeout": "2", "request_timeout": "20"}
    settings = RunSettings(**given | {name: changes.pop(name) for name in names})
    plan = {"model": "test-model", "base_url": base_url, "actor": "tester", "api_key": "key-for-tests"}
    return RunPlan(settings=settings, **plan | changes)


async def play(
    ledger_url: str, requests: Iterable[dict[str, Any] | bytes], *scripts: bytes | Handler, **changes: Any
) -> Played:
    """Start a run of the requests against an endpoint that answers by the scripts."""
    async with raw_server(*scripts) as server:
        with open_ledger(ledger_url, "create") as store:
            plan = a_plan(**{"base_url": server.base_url} | changes)
            outcome = await start_run(store, io.BytesIO(lines_of(requests)), plan)
        sent = [request.partition(b"\r\n\r\n")[2] for request in server.requests]
    return read_back(ledger_url, outcome, sent)


def read_back(ledger_url: str, outcome: RunOutcome, sent: list[bytes]) -> Played:
    run_id = outcome.run_id
    with open_ledger(ledger_url, "read") as store:
        events = [event for event in store.events(run_id) if isinstance(event, Event)]
        contents = store.contents([event.position for event in events])
        return Played(outcome, events, contents, report(store, run_id), list(results(store, run_id)), sent)
