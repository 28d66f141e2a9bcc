"""``prepare FILE``: replay requests from alerts and incidents, their labels split off."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from shutil import copyfileobj
from typing import Any, BinaryIO

import click

from commands._click import Command
from commands._drive import SHOWN_FAULTS, shown_name
from commands._failures import NO, OK, Refused
from commands._mapping import Fields, fields_from
from commands._options import STDIN, option, out_option
from commands._out_files import refuse_shared
from commands._output import STDOUT, opened_out, refuse_other_forms, say
from commands._progress import TerminalLine
from commands._run_options import VariantName
from commands._signals import ended_by_sigterm
from commands._types import Identifier, RunId
from runner.prepare import (
    FORMATS,
    SKIPPABLE,
    Fault,
    PrepareError,
    PrepareOptions,
    PrepareSummary,
    counted,
    prepare_stream,
)


@click.command(
    cls=Command,
    ledger=False,
    examples=[
        "replay-ledger prepare alertmanager-webhooks.jsonl --out incidents.jsonl",
        "replay-ledger prepare rules.yml --policy-id change-freeze-2026 --out incidents.jsonl",
        "replay-ledger prepare tickets.csv --map incident_id=number --map context=description --out incidents.jsonl",
        "replay-ledger prepare tickets.csv --map incident_id=number --label resolution --labels-out labels.jsonl",
        "replay-ledger prepare tickets.jsonl --map incident_id=/ticket/key --facet site=/where/0 --set facets.env=prod",
        "replay-ledger prepare export.jsonl --map mapping.toml --labels-out labels.jsonl --out incidents.jsonl",
    ],
)
@click.argument("file", metavar="FILE")
@option(
    "--format",
    "form",
    type=click.Choice(["auto", *FORMATS]),
    default="auto",
    show_default=True,
    help="What FILE is; auto tells by its content, and CSV by its name.",
)
@option(
    "--map",
    "mapping",
    multiple=True,
    metavar="FIELD=COLUMN|FILE",
    help="Where a field of a request comes from: incident_id, request_id, policy_id, system_prompt, user_prompt, "
    "context, context.NAME, facets.NAME, source.NAME, labels.NAME. COLUMN is a column or member, a JSON Pointer "
    "(/a/0/b) or a dotted path. FILE is TOML with many. May be repeated.",
)
@option("--facet", "facets", multiple=True, metavar="NAME=COLUMN", help="The same as --map facets.NAME=COLUMN.")
@option(
    "--set",
    "constants",
    multiple=True,
    metavar="FIELD=TEXT",
    help="What a field is where the record does not say it. May be repeated.",
)
@option("--policy-id", type=Identifier(), help="The policy in force, where the record does not name one.")
@option("--label", "labels", multiple=True, metavar="COLUMN", help="This is an evaluation label. May be repeated.")
@option("--labels-out", metavar="FILE", help="Where labels go, for `grade`; they never go into a request.")
@out_option
@option(
    "--on-invalid",
    type=click.Choice(["abort", "reject"]),
    default=PrepareOptions.on_invalid,
    show_default=True,
    help="A record that cannot become a request stops it all, or is left out.",
)
@option(
    "--on-leak",
    type=click.Choice(["abort", "reject"]),
    default=PrepareOptions.on_leak,
    show_default=True,
    help="A request that would hold its own evaluation labels stops it all, or is left out.",
)
@option("--variant", type=VariantName(), help="How the candidate is to be prompted.")
@option(
    "--candidate-id",
    type=Identifier(),
    default=PrepareOptions.candidate_id,
    show_default=True,
    help="The candidate agent.",
)
@option("--run-id", type=RunId(), help="The run's name, to stand on every line.")
@option("--system-prompt-file", metavar="FILE", help="Text of the system prompt, in place of the bundled one.")
@option("--user-prompt-file", metavar="FILE", help="Text of the user prompt, in place of the bundled one.")
def prepare(file: str, out: str | None, labels_out: str | None, **given: Any) -> int:
    """Make replay requests from alerts and incidents.

    FILE is Alertmanager webhook notifications (JSON, one or many), Prometheus rule files
    (YAML), JSON lines or CSV; - reads standard input. What is named like an evaluation label,
    and what --label names, goes to a file of its own. Both files are JSON lines: an extension,
    if they have one, is .jsonl or .ndjson. The whole file is read and each fault
    named, with its place and field. Unless faults are to be left out, one of them is enough
    that nothing is written.

    \b
    Exit: 0 written; 1 a request would leak its labels; 2 bad input or wrong use.
    """
    fields = fields_from(given["mapping"], given["constants"], given["facets"], given["labels"], given["policy_id"])
    _refuse_shared_files(file, out, labels_out, fields, given)
    refuse_other_forms("--out", out)
    refuse_other_forms("--labels-out", labels_out)
    options = _options(fields, given)
    faults = _Faults()
    try:
        with ended_by_sigterm(), ExitStack() as stack, TerminalLine(sys.stderr) as line:
            summary = prepare_stream(
                stack.enter_context(_opened(file)),
                _name_of(file),
                stack.enter_context(_whole_or_nothing(out)),
                labels_out=None if labels_out is None else stack.enter_context(_whole_or_nothing(labels_out)),
                format=given["form"],
                options=options,
                on_fault=faults.take,
                progress=line.records,
            )
    except PrepareError as error:
        return _tell_failure(error, faults)
    faults.tell()
    say(_told(summary))
    return OK


def _options(fields: Fields, given: Mapping[str, Any]) -> PrepareOptions:
    return PrepareOptions(
        mapping=fields.mapping,
        constants=fields.constants,
        label_fields=fields.labels,
        variant=given["variant"],
        candidate_id=given["candidate_id"],
        run_id=given["run_id"],
        system_prompt=_text_of(given["system_prompt_file"]),
        user_prompt=_text_of(given["user_prompt_file"]),
        on_invalid=given["on_invalid"],
        on_leak=given["on_leak"],
    )


class _Faults:
    """The first faults, to be told once the line of progress is gone, and how many there were."""

    def __init__(self) -> None:
        self.total = 0
        self.kept: list[Fault] = []

    def take(self, fault: Fault) -> None:
        self.total += 1
        if len(self.kept) < SHOWN_FAULTS:
            self.kept.append(fault)

    def tell(self) -> None:
        for fault in self.kept:
            say(str(fault))
        if self.total > len(self.kept):
            rest = counted(
                self.total - len(self.kept),
                "more record that cannot become a request",
                "more records that cannot become requests",
            )
            say(f"... and {rest}")


def _tell_failure(error: PrepareError, faults: _Faults) -> int:
    """Each fault a line, the one that everything failed for as the error."""
    if faults.total == 1 and faults.kept[0] == error.fault:
        faults = _Faults()
    faults.tell()
    if error.leaks:
        say(f"Error: {error}")
        say("Nothing was written.")
        return NO
    raise Refused(str(error), "Nothing was written.")


def _told(summary: PrepareSummary) -> str:
    told = [counted(summary.records, "record")]
    told += [f"{summary.repeated:,} of them repeated what was written already"] if summary.repeated else []
    told += [f"{summary.invalid:,} left out as invalid"] if summary.invalid else []
    told += [f"{summary.leaking:,} left out because they would leak"] if summary.leaking else []
    told += [f"{counted(count, SKIPPABLE[what], what)} passed over" for what, count in sorted(summary.skipped.items())]
    written = f"{counted(summary.written, 'request')} and {counted(summary.labels, 'label')} written"
    return f"{', '.join(told)}; {written}."


def _refuse_shared_files(
    file: str, out: str | None, labels_out: str | None, fields: Fields, given: Mapping[str, Any]
) -> None:
    if labels_out == STDOUT and out in (None, STDOUT):
        raise Refused("--labels-out: standard output gets the requests; give the labels a file, or --out one")
    inputs = {"the input": None if file == STDIN else file}
    inputs |= {f"--{name}-prompt-file": given[f"{name}_prompt_file"] for name in ("system", "user")}
    inputs |= {f"--map {name}": name for name in fields.files}
    outputs = {"--out": out, "--labels-out": labels_out}
    refuse_shared(inputs, {said: None if name == STDOUT else name for said, name in outputs.items()})


def _name_of(file: str) -> str:
    """What requests are to say that they come from: a name that is not UTF-8 is no text."""
    return os.fsencode(shown_name(file) if file == STDIN else Path(file).name).decode("utf-8", "replace")


@contextmanager
def _opened(name: str) -> Iterator[BufferedReader]:
    if name != STDIN:
        with open(name, "rb") as file:  # noqa: PTH123 - the error then bears the name as given
            yield file
        return
    if sys.stdin is None:
        raise Refused("standard input is closed")
    with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
        yield stream


@contextmanager
def _whole_or_nothing(out: str | None) -> Iterator[BinaryIO]:
    """Where data goes. Standard output too gets all of it or nothing: until the end it is kept in a file of no name."""
    if out is not None and out != STDOUT:
        with opened_out(out) as file:
            yield file
        return
    with tempfile.TemporaryFile() as kept:
        yield kept
        kept.seek(0)
        with opened_out(None) as stream:
            copyfileobj(kept, stream)


def _text_of(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise Refused(f"{file}: not UTF-8 text") from None
