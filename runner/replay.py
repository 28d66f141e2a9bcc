"""Runs: started, resumed, abandoned, or only tried dry.

The shell round the pure core: it holds the run's lock, records what begins and what ends, and
hands the file to the intake and the calls to the driver.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import BinaryIO, Final, Literal

from ledger.events import LATEST, Counts, NewEvent, RunAbandoned, RunBlocked, RunCompleted, RunResumed, new_event
from ledger.projections.counts import counts
from ledger.store import NO_RUN, Expected, Store, Writer
from runner.driver import Client, Driver, RunContext
from runner.endpoint import Endpoint
from runner.intake import (
    LEAK_CODE,
    HashingReader,
    Intake,
    Judge,
    Leak,
    Source,
    duplicate,
    fault_of,
    find_first_valid,
    recorded_lines,
    refuse_secrets,
)
from runner.leakage import scan_body
from runner.model_client import ModelClient
from runner.plan import (
    DryRun,
    Faults,
    InputDiffers,
    KeyMissing,
    Progress,
    ResumeOverrides,
    RunError,
    RunExists,
    RunOutcome,
    RunPlan,
    no_progress,
)
from runner.prompts import check_options, first_body
from runner.recorded_run import (
    as_json,
    close_open_calls,
    endpoint_of,
    recorded_run,
    require_running,
    run_started,
    run_state,
)
from runner.requests import INVALID, BadLine, ReplayRequest, RunIdentity, identity
from runner.scrub import MIN_SECRET_CHARS
from runner.selection import Selection, check_takes_one, select, takes_none
from runner.settings import RunSettings
from runner.stop import StopSignal
from runner.variants import UnknownVariant, variant_for, variant_named

KEY_MISSING: Final = "api_key_missing"


def made_run_id(now: datetime) -> str:
    """A readable run id for a run that was given none."""
    return f"replay-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


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
    endpoint = endpoint_of(plan.base_url)
    _check(plan)
    selection = _select(plan, lines)
    source = Source(lines)
    first = find_first_valid(source, plan.variant)
    run_id, who = _identity(first, plan)
    variant = variant_for(who.candidate_variant_id)
    judge = Judge(who, variant, selection, plan.variant)
    with ledger.driver_lock(run_id, _holder(plan.actor, plan.host)):
        async with Writer(ledger) as writer:
            before = _startable(ledger, run_id)
            began = [run_started(plan, run_id, who, variant, endpoint)]
            blocked = not plan.api_key and not plan.settings.no_api_key
            if blocked:
                began.append(new_event(RunBlocked(failures=[KEY_MISSING]), run_id=run_id))
            await writer.append(began, [Expected(run_id, None, before)])
            if blocked:
                return RunOutcome(run_id, "blocked", (KEY_MISSING,))
            secrets = _secrets(plan.api_key, plan.header_values)
            intake = Intake(ledger, writer, run_id, judge, source, progress, stop, secrets=secrets)
            context = RunContext(run_id, variant, plan.model, plan.settings)
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
        recorded = recorded_run(ledger, run_id)
        if not overrides.api_key and not recorded.settings.no_api_key:
            raise KeyMissing(f"run {run_id} needs an API key")
        if not recorded.intake_complete and lines is None:
            raise RunError(f"run {run_id} was stopped while its file was read: give the file again")
        if recorded.input_sha256 is not None and lines is not None:
            _same_input(lines, recorded.input_sha256)
        settings = _overridden(recorded.settings, overrides)
        context = RunContext(run_id, recorded.variant, recorded.model, settings)
        async with Writer(ledger) as writer:
            await writer.append(_resumption(ledger, run_id, overrides, settings))
            intake = None
            if not recorded.intake_complete and lines is not None:
                selection = select(settings, lines)
                judge = Judge(recorded.identity, recorded.variant, selection, recorded.variant_override)
                already = recorded_lines(ledger, run_id)
                secrets = _secrets(overrides.api_key, overrides.header_values)
                intake = Intake(ledger, writer, run_id, judge, Source(lines), progress, stop, already, secrets)
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
        require_running(ledger, run_id)
        tally = counts(ledger, run_id)
        events = close_open_calls(ledger, run_id, max_attempts=0)
        abandoned = RunAbandoned(actor=actor, reason=reason, counts=tally)
        events.append(new_event(abandoned, run_id=run_id, content=note))
        ledger.append(events)
    return tally


def check_lines(lines: BinaryIO, plan: RunPlan) -> None:
    """Raise what ``start_run`` would before it records anything. Reads as far as the first valid line."""
    _check(plan)
    _select(plan, lines)
    first = find_first_valid(Source(lines), plan.variant)
    variant_for(_identity(first, plan)[1].candidate_variant_id)


def dry_run(lines: BinaryIO, plan: RunPlan) -> DryRun:
    """Intake and guard alone, and the first body as it would be sent. No key, network or ledger."""
    _check(plan)
    selection = _select(plan, lines)
    source = Source(lines)
    first = find_first_valid(source, plan.variant)
    run_id, who = _identity(first, plan)
    variant = variant_for(who.candidate_variant_id)
    judge = Judge(who, variant, selection, plan.variant)
    faults, seen, body, accepted, left_out = Faults(), dict[bytes, int](), None, 0, 0
    secrets = _secrets(plan.api_key, plan.header_values)
    for line in source:
        refuse_secrets([line], secrets)
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
    unmatched = selection.unmatched(key.decode() for key in seen)
    nothing = None if accepted or faults.total else takes_none(plan.settings, source.count)
    return DryRun(run_id, source.count, accepted, left_out, faults, body, calls, unmatched, nothing)


# --- what start and resume share -----------------------------------------------------------


async def _intake_and_calls(intake: Intake, context: RunContext, client: Client) -> RunOutcome:
    if not await intake.run():
        return RunOutcome(context.run_id, "incomplete", (), intake.stop.reason, intake.faults)
    failures = _blocking(intake.faults, context.settings)
    if failures:
        await intake.writer.append([new_event(RunBlocked(failures=list(failures)), run_id=context.run_id)])
        return RunOutcome(context.run_id, "blocked", failures, faults=intake.faults)
    driver = _driver(intake.store, intake.writer, client, context, intake.stop, intake.progress)
    outcome = await _calls(driver, intake.faults)
    unmatched = intake.judge.selection.unmatched(intake.matched)
    warnings = [f"no line has the request id {one} that was asked for" for one in unmatched]
    if not (intake.accepted or intake.faults.total):
        warnings.append(takes_none(context.settings, intake.source.count))
    return replace(outcome, warnings=tuple(warnings))


def _blocking(faults: Faults, settings: RunSettings) -> tuple[str, ...]:
    """The run-level codes that stop a run before any call."""
    codes = []
    if faults.rejected and settings.on_invalid == "abort":
        codes.append(INVALID)
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
    outcome: Literal["auth_error", "completed"] = "auth_error" if driver.refused else "completed"
    await driver.writer.append([new_event(RunCompleted(outcome=outcome, counts=final), run_id=run_id)])
    return RunOutcome(run_id, outcome, (), None, faults, tally.calls, tally.answered, final)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _driver(
    store: Store, writer: Writer, client: Client, context: RunContext, stop: StopSignal, progress: Progress
) -> Driver:
    return Driver(store, writer, client, context, stop, progress, lambda body: bool(scan_body(body)))


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


def _secrets(api_key: str | None, header_values: Mapping[str, str]) -> tuple[bytes, ...]:
    """What no line may hold. Shorter ones are not searched for: they would be found in ordinary words."""
    known = [api_key or "", *header_values.values()]
    return tuple(secret.encode("utf-8") for secret in known if len(secret) >= MIN_SECRET_CHARS)


def _same_input(lines: BinaryIO, sha256: str) -> None:
    """The file was read whole before; one that is given again must be that one."""
    reader = HashingReader(lines)
    if reader.hexdigest() != sha256:
        raise InputDiffers("the file given is not the one that was recorded; without it, the resume goes by the record")


def _holder(actor: str, host: str | None) -> str:
    return f"{actor} on {host or 'this host'}"


# --- starting and resuming -------------------------------------------------------------------


def _check(plan: RunPlan) -> None:
    """Refuse now what would else fail at the first request."""
    try:
        check_options(plan.settings)
        if plan.variant is not None:
            variant_named(plan.variant)
    except (ValueError, UnknownVariant) as error:
        raise RunError(str(error)) from None


def _select(plan: RunPlan, lines: BinaryIO) -> Selection:
    selection = select(plan.settings, lines)
    check_takes_one(selection, plan.settings, plan.variant, lines)
    return selection


def _identity(first: ReplayRequest, plan: RunPlan) -> tuple[str, RunIdentity]:
    """The run's id, and what its lines must share: by the first valid line and what was given."""
    who = identity(first)
    run_id = plan.run_id or who.run_id or made_run_id(datetime.now(UTC))
    if run_id == LATEST:
        place = "" if plan.run_id else f"line {first.line}: run_id: "
        raise RunError(f"{place}{LATEST!r} always means the newest run: no run can have it as its id")
    return run_id, RunIdentity(run_id, who.candidate_id, who.candidate_variant_id, plan.run_id)


def _startable(ledger: Store, run_id: str) -> int:
    """The version from which a run by this id may start: none yet, or blocked before any call."""
    before = ledger.version(run_id)
    if before == NO_RUN:
        return NO_RUN
    state = run_state(ledger, run_id)
    if state == "blocked":
        return before
    raise RunExists(
        f"run {run_id} is in this ledger already ({state}). To go on with it: replay-ledger resume {run_id}. "
        f"To start another from the same file: add --run-id {made_run_id(datetime.now(UTC))}"
    )


def _overridden(settings: RunSettings, overrides: ResumeOverrides) -> RunSettings:
    given = {"concurrency": overrides.concurrency, "rpm": overrides.rpm, "proxy": overrides.proxy}
    return settings.model_copy(update={name: value for name, value in given.items() if value is not None})


def _resumption(ledger: Store, run_id: str, overrides: ResumeOverrides, settings: RunSettings) -> list[NewEvent]:
    closed = close_open_calls(ledger, run_id, settings.max_attempts)
    known = {"operator": overrides.operator, "host": overrides.host}
    content = as_json({name: value for name, value in known.items() if value is not None})
    resumed = RunResumed(actor=overrides.actor, outcomes_unknown=len(closed))
    return [new_event(resumed, run_id=run_id, content=content), *closed]
