"""A run as the ledger has it: what its first event says, what state it is in, which calls are open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from ledger.events import Event, ModelCallFailed, NewEvent, RunStarted, new_event
from ledger.store import Store
from runner.endpoint import Endpoint
from runner.leakage import LEAK_RULES_VERSION
from runner.plan import RunEnded, RunError, RunPlan, RunUnknown
from runner.requests import RunIdentity
from runner.settings import RunSettings
from runner.variants import Variant, variant_for

SOFTWARE_VERSION: Final = version("replay-ledger")


def endpoint_of(base_url: str) -> Endpoint:
    """Raises ``RunError`` for a base URL that cannot be used."""
    try:
        return Endpoint.parse(base_url)
    except ValueError as error:
        raise RunError(f"base URL: {error}") from None


def run_started(plan: RunPlan, run_id: str, who: RunIdentity, variant: Variant, endpoint: Endpoint) -> NewEvent:
    """``RunStarted``: the facts in its payload; people, hosts and free text in its content."""
    facts, texts = plan.settings.recorded()
    payload = RunStarted(
        candidate_id=who.candidate_id,
        candidate_variant_id=who.candidate_variant_id,
        prompt_profile=variant.prompt_profile,
        template_version=variant.template_version,
        template_sha256=variant.template_sha256,
        model=plan.model,
        endpoint=endpoint.recorded,
        settings=facts,
        leak_rules_version=LEAK_RULES_VERSION,
        software_version=SOFTWARE_VERSION,
        actor=plan.actor,
        tags=dict(plan.tags),
    )
    known = {
        "operator": plan.operator,
        "host": plan.host,
        "description": plan.description,
        "git_commit": plan.git_commit,
        "settings": texts or None,
        # Whether the lines were held to their own run and variant: a resumed intake must judge alike.
        "run_id_given": (plan.run_id is not None) or None,
        "variant_given": (plan.variant is not None) or None,
    }
    return new_event(payload, run_id=run_id, content=as_json({k: v for k, v in known.items() if v is not None}))


def as_json(value: Mapping[str, Any]) -> str:
    """Compact JSON text for an event's content."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class RecordedRun:
    """What the ledger says of a run that is not over."""

    identity: RunIdentity
    variant: Variant
    variant_override: str | None
    """What the lines' own variant was overridden with, when the run was started."""
    model: str
    endpoint: Endpoint
    settings: RunSettings
    input_sha256: str | None
    """Of the whole file; None where its intake was cut short."""

    @property
    def intake_complete(self) -> bool:
        return self.input_sha256 is not None


def run_state(ledger: Store, run_id: str) -> str | None:
    """``running``, ``completed``, ``auth_error``, ``blocked``, ``abandoned``; None where there is no such run."""
    rows = list(ledger.rows("SELECT state FROM runs WHERE run_id = :run_id", {"run_id": run_id}))
    return str(rows[0][0]) if rows else None


def require_running(ledger: Store, run_id: str) -> None:
    """Raises ``RunUnknown`` or ``RunEnded`` for a run that cannot go on."""
    state = run_state(ledger, run_id)
    if state is None:
        raise RunUnknown(f"there is no run {run_id} in this ledger")
    if state == "blocked":
        raise RunEnded(f"run {run_id} was blocked before any call: mend its cause and run the file again")
    if state != "running":
        raise RunEnded(f"run {run_id} has ended ({state})")


def recorded_run(ledger: Store, run_id: str) -> RecordedRun:
    """Raises ``RunUnknown``, ``RunEnded``, or ``RunError`` where its settings are no longer all there."""
    require_running(ledger, run_id)
    position, input_sha256 = next(
        iter(ledger.rows("SELECT started_position, input_sha256 FROM runs WHERE run_id = :run_id", {"run_id": run_id}))
    )
    started = next(iter(ledger.events(run_id, after=position - 1, upto=position)))
    if not isinstance(started, Event):
        raise RunError(f"run {run_id} cannot be resumed: its first event, {position}, cannot be read")
    content = ledger.content(position)
    told = {} if content is None else json.loads(content)
    return _recorded(run_id, started.payload, told, input_sha256)


def _recorded(
    run_id: str, payload: Mapping[str, Any], told: Mapping[str, Any], input_sha256: str | None
) -> RecordedRun:
    try:
        settings = RunSettings.from_recorded(payload["settings"], told.get("settings", {}))
    except ValueError as error:
        raise RunError(f"run {run_id} cannot be resumed: {error}") from None
    variant = variant_for(payload["candidate_variant_id"])
    given_run_id = run_id if told.get("run_id_given") else None
    return RecordedRun(
        identity=RunIdentity(run_id, payload["candidate_id"], variant.id, given_run_id),
        variant=variant,
        variant_override=variant.override if told.get("variant_given") else None,
        model=payload["model"],
        endpoint=endpoint_of(payload["endpoint"]),
        settings=settings,
        input_sha256=input_sha256,
    )


_OPEN_CALLS_SQL: Final = """
SELECT c.request_id, c.attempt, c.turn,
       (SELECT count(*) FROM model_calls t
         WHERE t.run_id = c.run_id AND t.request_id = c.request_id AND t.turn = c.turn)
  FROM model_calls c WHERE c.run_id = :run_id AND c.state = 'started' ORDER BY c.started_position
"""


def close_open_calls(ledger: Store, run_id: str, max_attempts: int) -> list[NewEvent]:
    """Calls that an earlier driver began and nobody saw the end of: each counts as one attempt."""
    return [
        new_event(
            ModelCallFailed(
                attempt=attempt,
                turn=turn,
                code="outcome_unknown",
                http_status=None,
                retry_after_ms=None,
                wait_ms=None,
                will_retry=attempts_in_turn < max_attempts,
                outcome_unknown=True,
                duration_us=None,
            ),
            run_id=run_id,
            request_id=request_id,
        )
        for request_id, attempt, turn, attempts_in_turn in ledger.rows(_OPEN_CALLS_SQL, {"run_id": run_id})
    ]
