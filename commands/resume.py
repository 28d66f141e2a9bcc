"""``resume RUN [FILE]``: go on with a run that was stopped."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import click

from commands._click import Command
from commands._drive import conclude, drive, opened_lines, report_options
from commands._failures import Refused
from commands._keys import find_key, header_values
from commands._ledger import find_run
from commands._options import accept_clock_option, actor_option, key_source_options, option, run_argument
from commands._output import say
from commands._plan import check_proxy, checked_client, parse_endpoint
from commands._run_options import PACE_OPTIONS
from commands._run_outputs import check_out_files
from commands._session import Session, session
from commands._signing import code_after, open_to_append, signed
from commands._types import PlainText
from commands._who import who_runs
from ledger.store import Store
from runner.endpoint import Endpoint
from runner.plan import ResumeOverrides
from runner.replay import resume_run


@click.command(
    cls=Command,
    examples=[
        "replay-ledger resume latest",
        "replay-ledger resume replay-20261130 --concurrency 4 --rpm 60",
        "replay-ledger resume latest incidents.jsonl",
    ],
)
@run_argument
@click.argument("file", metavar="[FILE]", required=False)
@PACE_OPTIONS[0]
@PACE_OPTIONS[1]
@option("--proxy", type=PlainText(), metavar="URL", help="Proxy to go through, in place of the recorded one.")
@key_source_options
@actor_option
@report_options
@accept_clock_option
@click.pass_context
def resume(
    ctx: click.Context,
    /,
    run: str,
    file: str | None,
    form: str | None,
    outs: tuple[str, ...],
    accept_clock: bool,
    **given: Any,
) -> int:
    """Go on with a run that was stopped.

    It goes by the recorded settings; only the key, the concurrency, the rate and the proxy may be
    given anew. Requests that have a result are never called again. A call whose outcome nobody
    saw counts as one attempt. FILE is needed only where the run was stopped while its file was
    still being read; what was recorded of it must be the same, byte for byte.

    The exit codes are those of `run`; the gates are the ones that the run was started with.
    """
    state = session(ctx)
    check_out_files(outs, file=file)
    check_proxy(given["proxy"])
    store = open_to_append(ctx, "write", accept_clock=accept_clock)
    run_id = find_run(store, run)
    overrides = _overrides(state, store, run_id, given)
    with opened_lines(file) if file is not None else nullcontext() as lines:
        say(f"Resuming {run_id}")
        outcome, unsigned = signed(
            ctx,
            store,
            lambda: drive(
                lambda progress, stop: resume_run(store, run_id, overrides, lines, progress=progress, stop=stop),
                lines,
            ),
        )
    return code_after(conclude(state, store, outcome, file=file, form=form, outs=outs), unsigned)


def _overrides(state: Session, store: Store, run_id: str, given: dict[str, Any]) -> ResumeOverrides:
    recorded = _recorded(store, run_id)
    endpoint = parse_endpoint(recorded.endpoint)
    key_given = given["api_key_env"] or given["api_key_file"]
    key = find_key(
        state,
        endpoint,
        base_url_from_openai=_is_openai_base(state, endpoint),
        key_variable=given["api_key_env"],
        key_file=given["api_key_file"],
        no_key=recorded.no_api_key and not key_given,
    )
    if key.value is None and not recorded.no_api_key:
        raise Refused(f"run {run_id} needs an API key: none in {key.source}")
    headers = header_values(state, recorded.headers)
    checked_client(endpoint, key.value, headers, ca_file=None, proxy=given["proxy"])
    who = who_runs(given["actor"])
    return ResumeOverrides(
        actor=who.actor,
        api_key=key.value,
        header_values=headers,
        concurrency=given["concurrency"],
        rpm=given["rpm"],
        proxy=given["proxy"],
        operator=who.operator,
        host=who.host,
    )


@dataclass(frozen=True)
class _Recorded:
    """What of a run's start decides which secrets are looked for. ``headers``: name -> variable."""

    endpoint: str
    no_api_key: bool
    headers: dict[str, str]


_SQL: Final = "SELECT endpoint, settings, started_position FROM runs WHERE run_id = :run_id"


def _recorded(store: Store, run_id: str) -> _Recorded:
    endpoint, settings, position = next(iter(store.rows(_SQL, {"run_id": run_id})))
    facts = json.loads(settings)
    headers: dict[str, str] = {}
    if "headers" in facts:
        content = store.content(position)
        headers = json.loads(content).get("settings", {}).get("headers", {}) if content else {}
    return _Recorded(endpoint, bool(facts.get("no_api_key")), headers)


def _is_openai_base(state: Session, endpoint: Endpoint) -> bool:
    """Is the run's endpoint the one that ``OPENAI_BASE_URL`` names?"""
    named = state.variable("OPENAI_BASE_URL")
    return named is not None and parse_endpoint(named) == endpoint
