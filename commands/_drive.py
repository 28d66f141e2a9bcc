"""What ``run`` and ``resume`` share: signals while a run is driven, and what is said after it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, cast

import click

from commands._failures import UNAVAILABLE, Refused
from commands._ledger import typed_again
from commands._options import STDIN, F, option
from commands._output import ReaderGone, counted, is_terminal, say, write_data
from commands._progress import TerminalLine
from commands._run_outputs import code_where_unwritten, out_files_option, write_out_files
from commands._session import Session
from commands._signals import WaitingReader, ended_by_sigterm, heard_by
from commands._summary import cost_lines, counts_line, exit_code, gate_lines, unanswered_lines, usable_line
from ledger.projections.report import report as make_report
from ledger.render import report_forms
from ledger.store import LedgerError, Store
from runner.plan import Fault, Faults, InputDiffers, NothingSelected, NoValidLine, Progress, RunOutcome, RunPlan
from runner.replay import check_lines
from runner.stop import StopSignal

SHOWN_FAULTS: Final = 20

_FORMATS: Final = ("json", "text")

Drive = Callable[[Progress, StopSignal], Awaitable[RunOutcome]]


@contextmanager
def opened_lines(name: str) -> Iterator[BinaryIO]:
    """The file of requests, or standard input for ``-``; what is wrong with it is told with its name.

    Raises ``OSError`` bearing the name, ``Refused``.
    """
    try:
        if name != STDIN:
            with open(name, "rb") as file:  # noqa: PTH123 - the error then bears the name as given
                yield _patient(file)
            return
        if sys.stdin is None:
            raise Refused("standard input is closed")
        if is_terminal(sys.stdin):
            say("Reading requests from the terminal; Ctrl-D ends them.")
        yield _patient(sys.stdin.buffer)
    except (NoValidLine, NothingSelected, InputDiffers) as error:
        raise Refused(f"{shown_name(name)}: {error}") from None


def _patient(file: BinaryIO) -> BinaryIO:
    return file if file.seekable() else cast(BinaryIO, WaitingReader(file))


def check_ahead(lines: BinaryIO, plan: RunPlan) -> None:
    """Raise what a run of these lines would before it records anything. They are read again from where they stood."""
    with ended_by_sigterm(), _looking_ahead(lines):
        check_lines(lines, plan)


@contextmanager
def _looking_ahead(lines: BinaryIO) -> Iterator[None]:
    if isinstance(lines, WaitingReader):
        with lines.looking_ahead():
            yield
        return
    start = lines.tell()
    yield
    lines.seek(start)


def drive(work: Drive, lines: BinaryIO | None) -> RunOutcome:
    """Drive a run to its end, or until Ctrl-C or SIGTERM; a second signal stops it at once."""
    with TerminalLine(sys.stderr) as line:
        try:
            return asyncio.run(_listening(work, line.run, lines))
        except LedgerError as error:
            if error.exit_code == UNAVAILABLE:
                say("", "The ledger failed. What was recorded until then stays: `replay-ledger runs` lists the run,")
                say("and `replay-ledger resume RUN` goes on with it once this is mended.")
            raise


async def _listening(work: Drive, progress: Progress, lines: BinaryIO | None) -> RunOutcome:
    stop = StopSignal()
    with heard_by(stop, lines):
        return await work(progress, stop)


# --- after the run -------------------------------------------------------------------------


def conclude(
    state: Session, store: Store, outcome: RunOutcome, *, file: str | None, form: str | None, outs: Sequence[str]
) -> int:
    """Say what came of a run, write and print what is wanted of it, and give the exit code."""
    report = make_report(store, outcome.run_id)
    settings = recorded_settings(store, outcome.run_id)
    tell_faults(outcome.faults, file)
    for line in _told(outcome, report, settings):
        say(line)
    _tell_next(state, store, outcome, report, file)
    written = write_out_files(state, store, outcome.run_id, outs)
    if form is not None:
        with suppress(ReaderGone):  # The exit code is the run's, whoever reads on.
            write_data(report_forms.render(store, report, form))
    code = exit_code(outcome, report, settings)
    return code if written else code_where_unwritten(code)


def recorded_settings(store: Store, run_id: str) -> dict[str, Any]:
    """The settings that the run's last start recorded."""
    rows = store.rows("SELECT settings FROM runs WHERE run_id = :run_id", {"run_id": run_id})
    settings: dict[str, Any] = json.loads(next(iter(rows))[0])
    return settings


def tell_faults(faults: Faults, file: str | None) -> None:
    """One line for each line that was refused: file, line, code, field, what is wrong."""
    for fault in faults.kept[:SHOWN_FAULTS]:
        say(fault_line(fault, file))
    if faults.total > SHOWN_FAULTS:
        say(f"... and {counted(faults.total - SHOWN_FAULTS, 'more line that was', 'more lines that were')} refused")


def fault_line(fault: Fault, file: str | None) -> str:
    place = f"{shown_name(file)}:{fault.line}" if file else f"line {fault.line}"
    field = f"{fault.field}: " if fault.field else ""
    return f"{place}: {fault.code}: {field}{fault.message}"


def shown_name(file: str) -> str:
    """What a file is called in a message."""
    return "standard input" if file == STDIN else file


def _told(outcome: RunOutcome, report: dict[str, Any], settings: dict[str, Any]) -> Iterator[str]:
    yield f"Run {outcome.run_id}: {report['outcome']}{_why_stopped(outcome)}"
    yield f"  {counts_line(report)}"
    yield f"  {usable_line(report)}"
    for line in (*gate_lines(report, settings), *unanswered_lines(outcome, report), *cost_lines(report)):
        yield f"  {line}"
    for warning in outcome.warnings:
        yield f"  Warning: {warning}"


def _why_stopped(outcome: RunOutcome) -> str:
    if outcome.stopped_by == "twenty_failures":
        return ", stopped: twenty calls in a row met an endpoint that cannot be reached or fails"
    if outcome.stopped_by is not None:
        return f", stopped by {outcome.stopped_by}"
    if outcome.state == "auth_error":
        return ": the endpoint refused our key (401 or 403)"
    return f": {', '.join(outcome.failures)}" if outcome.failures else ""


def _tell_next(state: Session, store: Store, outcome: RunOutcome, report: dict[str, Any], file: str | None) -> None:
    as_of = report["as_of"]
    say(f"  recorded in {state.place.shown} up to position {as_of['position']}, root {as_of['root']}")
    run_id = outcome.run_id
    if outcome.state == "incomplete":
        again = ["resume", run_id, *([file or "FILE"] if not _intake_complete(store, run_id) else [])]
        say(f"Go on:  {typed_again(state, *again)}")
    say(f"Read:   {typed_again(state, 'report', run_id)}")
    say(f"        {typed_again(state, 'show', run_id)}")
    say(f"Check:  {typed_again(state, 'verify')}")


def _intake_complete(store: Store, run_id: str) -> bool:
    rows = store.rows("SELECT lines FROM runs WHERE run_id = :run_id", {"run_id": run_id})
    return next(iter(rows))[0] is not None


def report_options(command: F) -> F:
    """After the run: ``--format`` and ``--json``, its report on standard output; ``--out``, files of it."""
    json_flag = option("--json", "form", flag_value="json", help="The same as --format json.")
    form = option("--format", "form", type=click.Choice(_FORMATS), help="Print the report on standard output.")
    return form(json_flag(out_files_option(command)))
