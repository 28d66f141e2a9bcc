"""``run FILE``: replay incidents through a candidate and record every step."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO

import click

from commands._click import Command
from commands._drive import check_ahead, conclude, drive, opened_lines, report_options, shown_name, tell_faults
from commands._failures import NO, OK, WRONG_USE, Refused
from commands._options import accept_clock_option, actor_option, key_options, no_key_option, option
from commands._output import counted, is_terminal, json_line, say, write_data
from commands._plan import make_plan
from commands._run_options import run_options
from commands._run_outputs import check_out_files
from commands._session import session
from commands._signing import code_after, open_to_append, signed
from commands._summary import prices_lines
from runner.plan import DryRun, RunPlan
from runner.replay import dry_run as try_dry
from runner.replay import start_run


@click.command(
    cls=Command,
    examples=[
        "replay-ledger run incidents.jsonl",
        "replay-ledger run incidents.jsonl --variant nemo_nemotron_fabric__contract_tuned_v1 --max-fallback-rate 0.02",
        "replay-ledger run incidents.jsonl --base-url http://localhost:8000/v1 --model my-model --no-api-key",
        "replay-ledger run incidents.jsonl --config nightly.toml --out report.html --out results.csv",
        "replay-ledger run incidents.jsonl --prices prices.toml --json",
        "replay-ledger run incidents.jsonl --dry-run",
        "replay-ledger run - --json < incidents.jsonl > report.json",
    ],
)
@click.argument("file", metavar="FILE")
@run_options
@key_options
@actor_option
@option("--dry-run", is_flag=True, help="Read and guard the file, show the first body; call and record nothing.")
@report_options
@no_key_option
@accept_clock_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    file: str,
    dry_run: bool,
    form: str | None,
    outs: tuple[str, ...],
    no_key: bool,
    accept_clock: bool,
    **given: Any,
) -> int:
    """Put each incident of FILE to a model, and record every step.

    FILE holds replay requests as JSON lines; - reads standard input. The ledger is made where
    there is none, once there is a request to record. The whole file is checked, and guarded
    against evaluation labels inside the requests, before anything is sent. Ctrl-C stops politely;
    `resume` goes on. However the run ends, the ledger is signed where its key is at hand; a ledger
    made now gets one.

    \b
    Exit: 0 fine; 1 past a gate that was given or, with none given, not usable as
    evaluation, or a leak; 2 bad input or wrong use; 4 the endpoint or the database
    could not be reached or refused us; 130 and 143 stopped by a signal.
    """
    state = session(ctx)
    if outs and dry_run:
        raise Refused("--out: a dry run has no report")
    check_out_files(outs, file=file)
    plan, key_source = make_plan(state, given, needs_key=not dry_run)
    with opened_lines(file) as lines:
        if dry_run:
            return _try_dry(file, lines, plan, as_json=form == "json")
        store = open_to_append(
            ctx, "create", before_making=lambda: check_ahead(lines, plan), no_key=no_key, accept_clock=accept_clock
        )
        say(f"Replaying {shown_name(file)} through {plan.model} at {plan.base_url}")
        for line in prices_lines(plan.settings.prices, plan.model):
            say(line)
        outcome, unsigned = signed(
            ctx,
            store,
            lambda: drive(lambda progress, stop: start_run(store, lines, plan, progress=progress, stop=stop), lines),
        )
    if "api_key_missing" in outcome.failures:
        say(f"No API key: none in {key_source}. For an endpoint that needs none there is --no-api-key.")
    return code_after(conclude(state, store, outcome, file=file, form=form, outs=outs), unsigned)


def _try_dry(file: str, lines: BinaryIO, plan: RunPlan, *, as_json: bool) -> int:
    tried = try_dry(lines, plan)
    tell_faults(tried.faults, file)
    say(f"Run {tried.run_id} would read {counted(tried.lines, 'line')}: {_dry_counts(tried)}.")
    say(f"It would make {counted(tried.max_calls, 'call')} at most to {plan.base_url}.")
    for line in prices_lines(plan.settings.prices, plan.model):
        say(line)
    say("Nothing was called and nothing recorded.")
    for one in tried.unmatched:
        say(f"--request-id: no line has the id {one}")
    if tried.takes_none is not None:
        say(f"Warning: {tried.takes_none}")
    if as_json:
        write_data([json_line(_dry_facts(tried, plan))])
    elif tried.first_body is not None:
        say("The first body as it would be sent:")
        write_data([tried.first_body, *([b"\n"] if is_terminal(sys.stdout) else [])])
    if tried.faults.leaking:
        return NO
    blocked = tried.faults.rejected and plan.settings.on_invalid == "abort"
    return WRONG_USE if blocked or tried.unmatched or tried.takes_none else OK


def _dry_counts(tried: DryRun) -> str:
    told = [f"{tried.accepted:,} fit to be sent"]
    told += [f"{tried.faults.rejected:,} invalid"] if tried.faults.rejected else []
    told += [f"{tried.faults.leaking:,} leaking"] if tried.faults.leaking else []
    told += [f"{tried.left_out:,} left out by the selection"] if tried.left_out else []
    return ", ".join(told)


def _dry_facts(tried: DryRun, plan: RunPlan) -> dict[str, Any]:
    by = plan.settings.prices
    return {
        "run_id": tried.run_id,
        "lines": tried.lines,
        "accepted": tried.accepted,
        "rejected": tried.faults.rejected,
        "leaking": tried.faults.leaking,
        "left_out": tried.left_out,
        "unmatched": list(tried.unmatched),
        "max_calls": tried.max_calls,
        "prices": None if by is None else {"currency": by.currency, "models": by.models, "prices_sha256": by.sha256},
        "first_body": None if tried.first_body is None else tried.first_body.decode("utf-8"),
        "faults": [
            {"line": f.line, "request_id": f.request_id, "code": f.code, "field": f.field, "message": f.message}
            for f in tried.faults.kept
        ],
    }
