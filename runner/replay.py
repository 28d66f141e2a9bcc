"""Runs: started, resumed, abandoned, or only tried dry.

The shell round the pure core: it holds the run's lock, records what begins and what ends, and
hands the file to the intake and the calls to the driver.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any, BinaryIO, Final

from ledger.events import (
    Counts,
    ModelCallFailed,
    NewEvent,
    RunAbandoned,
    RunBlocked,
    RunCompleted,
    RunResumed,
    RunStarted,
    new_event,
)
from ledger.projections.counts import counts
from ledger.store import NO_RUN, Expected, Store, Writer
from runner.driver import Client, Driver, RunContext
from runner.endpoint import Endpoint
from runner.intake import (
    INVALID_CODE,
    LEAK_CODE,
    Intake,
    Judge,
    Leak,
    Source,
    duplicate,
    fault_of,
    find_first_valid,
    recorded_lines,
)
from runner.leakage import LEAK_RULES_VERSION, scan_body
from runner.model_client import ModelClient
from runner.plan import (
    DryRun,
    Faults,
    KeyMissing,
    Progress,
    ResumeOverrides,
    RunEnded,
    RunError,
    RunExists,
    RunOutcome,
    RunPlan,
    RunUnknown,
    no_progress,
)
from runner.prompts import Variant, first_body, variant_for
from runner.requests import BadLine, ReplayRequest, RunIdentity, identity
from runner.selection import select
from runner.settings import RunSettings
from runner.stop import StopSignal

KEY_MISSING: Final = "api_key_missing"
SOFTWARE_VERSION: Final = version("replay-ledger")


def made_run_id(now: datetime) -> str:
    """A readable run id for a run that was given none."""
    return f"replay-{now.astimezone(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


async def start_run(
    ledger: Store,
    lines: BinaryIO,
    plan: RunPlan,
    *,
    progress: Progress = no_progress,
    stop: StopSignal | None = None,
    client: Client | None = None,
) -> RunOutcome:
    """Record a file of requests and put each to the model. One driver a run.

    ``client`` stands in for ours where a caller brings one. Raises ``RunError`` for what a person
    can mend, ``LedgerError`` where the ledger fails: then no further call is made.
    """
    stop = stop or StopSignal()
    endpoint = _endpoint(plan.base_url)
    selection = select(plan.settings, lines)
    source = Source(lines)
    first = find_first_valid(source, plan.variant)
    who = _identity(first, plan)
    variant = variant_for(who.candidate_variant_id)
    judge = Judge(who, variant, selection, variant.override)
    with ledger.driver_lock(who.run_id, _holder(plan.actor, plan.host)):
        async with Writer(ledger) as writer:
            before = _startable(ledger, who.run_id)
            began = [_run_started(plan, who, variant, endpoint)]
            blocked = plan.api_key in (None, "") and not plan.settings.no_api_key
            if blocked:
                began.append(new_event(RunBlocked(failures=[KEY_MISSING]), run_id=who.run_id))
            await writer.append(began, [Expected(who.run_id, None, before)])
            if blocked:
                return RunOutcome(who.run_id, "blocked", (KEY_MISSING,))
            intake = Intake(ledger, writer, who.run_id, judge, source, progress, stop)
            context = RunContext(who.run_id, variant, plan.model, plan.settings)
            async with _client(client, endpoint, plan.api_key, plan.header_values, plan.settings) as caller:
                return await _intake_and_calls(intake, context, caller)


async def resume_run(
    ledger: Store,
    run_id: str,
    overrides: ResumeOverrides,
    lines: BinaryIO | None = None,
    *,
    progress: Progress = no_progress,
    stop: StopSignal | None = None,
    client: Client | None = None,
) -> RunOutcome:
    """Take a run up again by its recorded settings. Requests with a result are never called again.

    ``lines`` is needed only where the intake was cut short.
    """
    stop = stop or StopSignal()
    with ledger.driver_lock(run_id, _holder(overrides.actor, overrides.host)):
        recorded = _recorded_run(ledger, run_id)
        if overrides.api_key in (None, "") and not recorded.settings.no_api_key:
            raise KeyMissing(f"run {run_id} needs an API key")
        if not recorded.intake_complete and lines is None:
            raise RunError(f"run {run_id} was stopped while its file was read: give the file again")
        settings = _overridden(recorded.settings, overrides)
        context = RunContext(run_id, recorded.variant, recorded.model, settings)
        async with Writer(ledger) as writer:
            await writer.append(_resumption(ledger, run_id, overrides, settings))
            intake = None
            if not recorded.intake_complete and lines is not None:
                judge = Judge(recorded.identity, recorded.variant, select(settings, lines), recorded.variant.override)
                already = recorded_lines(ledger, run_id)
                intake = Intake(ledger, writer, run_id, judge, Source(lines), progress, stop, already)
            async with _client(
                client, recorded.endpoint, overrides.api_key, overrides.header_values, settings
            ) as caller:
                if intake is not None:
                    return await _intake_and_calls(intake, context, caller)
                driver = _driver(ledger, writer, caller, context, stop, progress)
                return await _calls(driver, Faults())


def abandon_run(ledger: Store, run_id: str, *, reason: str, actor: str, note: str | None = None) -> Counts:
    """End a run for good, closing its open calls. Gives the counts as they then are."""
    with ledger.driver_lock(run_id, _holder(actor, None)):
        _running(ledger, run_id)
        tally = counts(ledger, run_id)
        events = _close_open_calls(ledger, run_id, max_attempts=0)
        abandoned = RunAbandoned(actor=actor, reason=reason, counts=tally)
        events.append(new_event(abandoned, run_id=run_id, content=note))
        ledger.append(events)
    return tally


def dry_run(lines: BinaryIO, plan: RunPlan) -> DryRun:
    """Intake and guard alone, and the first body as it would be sent. No key, network or ledger."""
    selection = select(plan.settings, lines)
    source = Source(lines)
    first = find_first_valid(source, plan.variant)
    who = _identity(first, plan)
    variant = variant_for(who.candidate_variant_id)
    judge = Judge(who, variant, selection, variant.override)
    faults, seen, body, accepted, left_out = Faults(), dict[bytes, int](), None, 0, 0
    for line in source:
        judged: ReplayRequest | BadLine | Leak | None = judge.judge(line)
        if judged is None:
            left_out += 1
            continue
        if isinstance(judged, ReplayRequest):
            known = seen.setdefault(judged.request_id.encode(), judged.line)
            if known == judged.line:
                accepted += 1
                body = body or first_body(judged, variant, plan.model, plan.settings)
                continue
            judged = duplicate(judged, known)
        faults.add(fault_of(judged))
    blocked = bool(_blocking(faults, plan.settings))
    calls = 0 if blocked else accepted * variant.turns * plan.settings.max_attempts
    return DryRun(who.run_id, source.count, accepted, left_out, faults, body, calls)


# --- what start and resume share -----------------------------------------------------------


async def _intake_and_calls(intake: Intake, context: RunContext, client: Client) -> RunOutcome:
    if not await intake.run():
        return RunOutcome(context.run_id, "incomplete", (), intake.stop.reason, intake.faults)
    failures = _blocking(intake.faults, context.settings)
    if failures:
        await intake.writer.append([new_event(RunBlocked(failures=list(failures)), run_id=context.run_id)])
        return RunOutcome(context.run_id, "blocked", failures, faults=intake.faults)
    driver = _driver(intake.store, intake.writer, client, context, intake.stop, intake.progress)
    return await _calls(driver, intake.faults)


def _blocking(faults: Faults, settings: RunSettings) -> tuple[str, ...]:
    """The run-level codes that stop a run before any call."""
    codes = []
    if faults.rejected and settings.on_invalid == "abort":
        codes.append(INVALID_CODE)
    if faults.leaking and settings.on_leak == "abort":
        codes.append(LEAK_CODE)
    return tuple(codes)


async def _calls(driver: Driver, faults: Faults) -> RunOutcome:
    run_id, tally = driver.context.run_id, driver.tally
    try:
        await driver.run()
    except BaseExceptionGroup as group:
        raise _first_of(group) from group
    if driver.stop.requested or driver.endpoint_down:
        why = driver.stop.reason or "twenty_failures"
        return RunOutcome(run_id, "incomplete", (), why, faults, tally.calls, tally.answered)
    final = counts(driver.store, run_id)
    if final.not_started or final.incomplete:
        raise RuntimeError(f"run {run_id} has requests without a result at its end: {final}")
    outcome = "auth_error" if driver.refused else "completed"
    await driver.writer.append([new_event(RunCompleted(outcome=outcome, counts=final), run_id=run_id)])
    return RunOutcome(run_id, outcome, (), None, faults, tally.calls, tally.answered, final)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _driver(
    store: Store, writer: Writer, client: Client, context: RunContext, stop: StopSignal, progress: Progress
) -> Driver:
    return Driver(store, writer, client, context, stop, progress, lambda messages: bool(scan_body(messages)))


@asynccontextmanager
async def _client(
    given: Client | None,
    endpoint: Endpoint,
    api_key: str | None,
    header_values: Mapping[str, str],
    settings: RunSettings,
) -> AsyncIterator[Client]:
    if given is not None:
        yield given
        return
    async with ModelClient(
        endpoint,
        api_key=api_key or None,
        headers=dict(header_values),
        concurrency=settings.concurrency,
        ca_file=settings.ca_file,
        proxy=settings.proxy,
    ) as client:
        yield client


def _endpoint(base_url: str) -> Endpoint:
    try:
        return Endpoint.parse(base_url)
    except ValueError as error:
        raise RunError(f"base URL: {error}") from None


def _holder(actor: str, host: str | None) -> str:
    return f"{actor} on {host or 'this host'}"


# --- starting ------------------------------------------------------------------------------


def _identity(first: ReplayRequest, plan: RunPlan) -> RunIdentity:
    """Run, candidate and variant, by the first valid line and what was given on the command line."""
    who = identity(first)
    run_id = plan.run_id or who.run_id or made_run_id(datetime.now(timezone.utc))
    return replace(who, run_id=run_id, given_run_id=plan.run_id)


def _startable(ledger: Store, run_id: str) -> int:
    """The version from which a run by this id may start: none yet, or blocked before any call."""
    before = ledger.version(run_id)
    if before == NO_RUN:
        return NO_RUN
    state = _state(ledger, run_id)
    if state == "blocked":
        return before
    raise RunExists(
        f"run {run_id} is in this ledger already ({state}). To go on with it: replay-ledger resume {run_id}. "
        f"To start another from the same file: add --run-id {made_run_id(datetime.now(timezone.utc))}"
    )


def _run_started(plan: RunPlan, who: RunIdentity, variant: Variant, endpoint: Endpoint) -> NewEvent:
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
    }
    return new_event(payload, run_id=who.run_id, content=_json({k: v for k, v in known.items() if v is not None}))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


# --- resuming ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordedRun:
    """What the ledger says of a run that is not over."""

    identity: RunIdentity
    variant: Variant
    model: str
    endpoint: Endpoint
    settings: RunSettings
    intake_complete: bool


def _state(ledger: Store, run_id: str) -> str | None:
    rows = list(ledger.rows("SELECT state FROM runs WHERE run_id = :run_id", {"run_id": run_id}))
    return str(rows[0][0]) if rows else None


def _running(ledger: Store, run_id: str) -> None:
    state = _state(ledger, run_id)
    if state is None:
        raise RunUnknown(f"there is no run {run_id} in this ledger")
    if state == "blocked":
        raise RunEnded(f"run {run_id} was blocked before any call: mend its cause and run the file again")
    if state != "running":
        raise RunEnded(f"run {run_id} has ended ({state})")


def _recorded_run(ledger: Store, run_id: str) -> RecordedRun:
    _running(ledger, run_id)
    position, lines = next(
        iter(ledger.rows("SELECT started_position, lines FROM runs WHERE run_id = :run_id", {"run_id": run_id}))
    )
    started = next(iter(ledger.events(run_id, after=position - 1, upto=position)))
    content = ledger.content(position)
    texts = {} if content is None else json.loads(content).get("settings", {})
    payload = started.payload
    try:
        settings = RunSettings.from_recorded(payload["settings"], texts)
    except ValueError as error:
        raise RunError(f"run {run_id} cannot be resumed: {error}") from None
    variant_id = payload["candidate_variant_id"]
    return RecordedRun(
        identity=RunIdentity(run_id, payload["candidate_id"], variant_id, given_run_id=None),
        variant=variant_for(variant_id),
        model=payload["model"],
        endpoint=_endpoint(payload["endpoint"]),
        settings=settings,
        intake_complete=lines is not None,
    )


def _overridden(settings: RunSettings, overrides: ResumeOverrides) -> RunSettings:
    given = {"concurrency": overrides.concurrency, "rpm": overrides.rpm, "proxy": overrides.proxy}
    return settings.model_copy(update={name: value for name, value in given.items() if value is not None})


def _resumption(ledger: Store, run_id: str, overrides: ResumeOverrides, settings: RunSettings) -> list[NewEvent]:
    closed = _close_open_calls(ledger, run_id, settings.max_attempts)
    known = {"operator": overrides.operator, "host": overrides.host}
    content = _json({name: value for name, value in known.items() if value is not None})
    resumed = RunResumed(actor=overrides.actor, outcomes_unknown=len(closed))
    return [new_event(resumed, run_id=run_id, content=content), *closed]


_OPEN_CALLS_SQL: Final = """
SELECT c.request_id, c.attempt, c.turn,
       (SELECT count(*) FROM model_calls t
         WHERE t.run_id = c.run_id AND t.request_id = c.request_id AND t.turn = c.turn)
  FROM model_calls c WHERE c.run_id = :run_id AND c.state = 'started' ORDER BY c.started_position
"""


def _close_open_calls(ledger: Store, run_id: str, max_attempts: int) -> list[NewEvent]:
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
