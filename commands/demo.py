"""``demo``: the whole thing, against a simulated endpoint on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from commands._anchors import signers
from commands._click import Command
from commands._drive import drive, fault_line
from commands._failures import NO, OK, STOPPED, Refused
from commands._options import option
from commands._output import say, write_data
from commands._session import session
from commands._signing import code_after, open_to_append, signed
from commands._summary import counts_line, usable_line
from commands._who import who_runs
from ledger.integrity.verify import verify
from ledger.projections.report import report as make_report
from ledger.projections.results import results as make_results
from ledger.render import report_forms, results_table
from ledger.store import Store
from runner.demo_incidents import DemoFiles, demo_files
from runner.plan import RunOutcome, RunPlan
from runner.replay import start_run
from runner.settings import RunSettings
from runner.simulated_model import SimulatedEndpoint
from runner.simulated_replies import SIMULATED_MODEL

_LEDGER: Final = "ledger.db"
_SIGNER: Final = "signer"
_SETTINGS: Final = RunSettings(attempt_timeout="2", request_timeout="30", no_api_key=True)
"""A short timeout, as some of the simulated answers never come."""

_LEAKING_RUN: Final = "demo-leaking"
_RUN: Final = "demo"


@click.command(
    cls=Command,
    ledger=False,
    examples=["replay-ledger demo", "replay-ledger demo --folder /tmp/first-look"],
)
@option("--folder", metavar="FOLDER", help="A folder to make. [default: replay-ledger-demo-<time>]")
@click.pass_context
def demo(ctx: click.Context, /, folder: str | None) -> int:
    """Show the whole thing, without a key and without a network.

    Bundled incidents are put to a simulated endpoint on this machine's loopback, which answers
    well, badly, late and not at all, as its script says. A file whose labels leak is refused first.
    Then come the results, the report, and what verify says of the record.

    \b
    Exit: 0 every request ended as scripted, the leak was refused without a call, and
    verify found nothing wrong; else 1.
    """
    place = _fresh_folder(folder)
    files = demo_files(place)
    url = f"sqlite:///{place / _LEDGER}"
    state = session(ctx)
    state.ledger, state.signer_dir = url, str(place / _SIGNER)
    say(f"Everything is in the folder {place}: incidents.jsonl, leaking.jsonl, {_LEDGER}, and {_SIGNER} with its key.")
    store = open_to_append(ctx, "create")
    with SimulatedEndpoint() as endpoint:
        say(f"The endpoint is SIMULATED: {endpoint.base_url} in this very process. No model is asked.")
        wrong, unsigned = signed(ctx, store, lambda: [*_leak(store, files, endpoint), *_replay(store, files, endpoint)])
        wrong += _verify(ctx, store)
    for line in wrong:
        say(f"Not as it should be: {line}", fg="red")
    if not wrong:
        say("Every request ended as scripted, and the leak was refused without a call.", fg="green")
    _look_further(url, state.signer_dir)
    return code_after(NO if wrong else OK, unsigned)


def _fresh_folder(name: str | None) -> Path:
    path = Path(name or f"replay-ledger-demo-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise Refused(f"{path} exists already; the demo makes a folder of its own") from None
    return path


def _plan(endpoint: SimulatedEndpoint, run_id: str) -> RunPlan:
    who = who_runs(None)
    return RunPlan(
        settings=_SETTINGS,
        model=SIMULATED_MODEL,
        base_url=endpoint.base_url,
        actor=who.actor,
        operator=who.operator,
        host=who.host,
        run_id=run_id,
        description="the demo, against a simulated endpoint",
    )


def _run(store: Store, file: Path, plan: RunPlan) -> RunOutcome:
    with file.open("rb") as lines:
        outcome = drive(lambda progress, stop: start_run(store, lines, plan, progress=progress, stop=stop), lines)
    if outcome.stopped_by in STOPPED:
        raise click.Abort
    for fault in outcome.faults.kept:
        say(f"  {fault_line(fault, str(file))}")
    report = make_report(store, outcome.run_id)
    say(f"  run {outcome.run_id}: {outcome.state}; {counts_line(report)}")
    say(f"  {usable_line(report)}")
    return outcome


# --- the three parts; each gives what is not as it should be --------------------------------


def _leak(store: Store, files: DemoFiles, endpoint: SimulatedEndpoint) -> Iterator[str]:
    _headline("1. A file in which one request holds the labels it is to be graded by")
    outcome = _run(store, files.leaking_path, _plan(endpoint, _LEAKING_RUN))
    say(f"  calls counted by the endpoint: {endpoint.total_calls}")
    if outcome.state != "blocked" or not outcome.faults.leaking:
        yield f"the leaking file was not refused, the run ended as {outcome.state}"
    if endpoint.total_calls:
        yield f"the endpoint counted {endpoint.total_calls} calls for the leaking file"


def _replay(store: Store, files: DemoFiles, endpoint: SimulatedEndpoint) -> Iterator[str]:
    _headline("2. The incidents, some of them answered badly, late or never: a few seconds")
    outcome = _run(store, files.incidents_path, _plan(endpoint, _RUN))
    if outcome.state != "completed":
        yield f"the run ended as {outcome.state}"
        return
    _headline("Results")
    write_data(line.encode("utf-8") for line in results_table.render(make_results(store, _RUN)))
    _headline("Report")
    write_data(report_forms.render(store, make_report(store, _RUN), "text"))
    yield from _differences(files.expected, _ended(store))


def _ended(store: Store) -> dict[str, dict[str, Any]]:
    rows = store.rows("SELECT incident_id, outcome, error FROM requests WHERE run_id = :run_id", {"run_id": _RUN})
    return {incident_id: {"outcome": outcome, "error": error} for incident_id, outcome, error in rows}


def _differences(
    expected: Mapping[str, Mapping[str, str | None]], ended: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    for incident_id in sorted(expected.keys() | ended.keys()):
        scripted, found = expected.get(incident_id), ended.get(incident_id)
        if scripted != found:
            yield f"{incident_id}: scripted {_told(scripted)}, ended {_told(found)}"


def _told(end: Mapping[str, Any] | None) -> str:
    if end is None:
        return "not at all"
    return f"{end['outcome']} ({end['error']})" if end["error"] else str(end["outcome"])


def _verify(ctx: click.Context, store: Store) -> Iterator[str]:
    _headline("3. Is the record whole?")
    own = signers(ctx, store)
    verdict = verify(store, keys=own.keys, anchors=own.anchors)
    write_data(line.encode("utf-8") + b"\n" for line in verdict.lines())
    if verdict.result == "FAIL":
        yield "verify found something that does not match"


def _headline(text: str) -> None:
    say()
    say(text, bold=True)


def _look_further(url: str, signer_dir: str) -> None:
    say("Look further:")
    for words in ("runs", f"show {_RUN} DEMO-1005", f"results {_RUN} --format jsonl", f"report {_RUN} --format json"):
        say(f"  replay-ledger {words} --ledger {url}")
    say(f"  replay-ledger verify --ledger {url} --signer-dir {signer_dir}")
