"""``prepare FILE``: replay requests from alerts and incidents, their labels split off."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import click

from commands._click import Command
from commands._failures import Refused
from commands._options import option, out_option
from commands._out_files import refuse_shared
from commands._output import STDOUT, opened_out, say
from commands._run_options import VariantName
from commands._types import Identifier
from runner.prepare import FORMATS, PrepareError, PrepareOptions, prepare_file


@click.command(
    cls=Command,
    ledger=False,
    examples=[
        "replay-ledger prepare alertmanager-webhook.json --out incidents.jsonl",
        "replay-ledger prepare rules.jsonl --labels-out labels.jsonl --out incidents.jsonl",
        "replay-ledger prepare tickets.csv --map incident_id=number --map context=description --out incidents.jsonl",
        "replay-ledger prepare tickets.csv --map incident_id=number --label resolution --labels-out labels.jsonl",
    ],
)
@click.argument("file", metavar="FILE")
@option(
    "--format",
    "form",
    type=click.Choice(["auto", *FORMATS]),
    default="auto",
    show_default=True,
    help="What FILE is; auto tells by its name and its first record.",
)
@option(
    "--map",
    "mapping",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="Where a field of a request comes from: incident_id, request_id, policy_id, system_prompt, user_prompt, "
    "context, context.NAME, facets.NAME, source.NAME. May be repeated.",
)
@option("--label", "labels", multiple=True, metavar="COLUMN", help="This is an evaluation label. May be repeated.")
@option("--labels-out", metavar="FILE", help="Where labels go; they never go into a request.")
@out_option
@option("--variant", type=VariantName(), help="How the candidate is to be prompted.")
@option(
    "--candidate-id",
    type=Identifier(),
    default=PrepareOptions.candidate_id,
    show_default=True,
    help="The candidate agent.",
)
@option("--run-id", type=Identifier(), help="The run's name, to stand on every line.")
@option("--system-prompt-file", metavar="FILE", help="Text of the system prompt, in place of the bundled one.")
@option("--user-prompt-file", metavar="FILE", help="Text of the user prompt, in place of the bundled one.")
def prepare(file: str, out: str | None, labels_out: str | None, **given: Any) -> None:
    """Make replay requests from alerts and incidents.

    FILE is an Alertmanager webhook notification, Prometheus alert rules, JSON lines or CSV. What is
    named like an evaluation label, and what --label names, goes to a file of its own. A request that
    the leak guard would refuse is not written: nothing is, and the place is named.
    """
    _refuse_shared_files(file, out, labels_out, given)
    prompts = {name: _text_of(given[f"{name}_file"]) for name in ("system_prompt", "user_prompt")}
    try:
        with ExitStack() as stack:
            summary = prepare_file(
                file,
                _text_out(stack, out),
                labels_out=None if labels_out is None else _text_out(stack, labels_out),
                format=given["form"],
                mapping=_pairs(given["mapping"]),
                label_fields=given["labels"],
                variant=given["variant"],
                candidate_id=given["candidate_id"],
                run_id=given["run_id"],
                **prompts,
            )
    except PrepareError as error:
        raise Refused(str(error)) from None
    except UnicodeDecodeError:
        raise Refused(f"{file}: not UTF-8 text") from None
    repeated = f", {summary.repeated:,} of them repeated what was written already" if summary.repeated else ""
    say(f"{summary.records:,} records{repeated}; {summary.written:,} requests and {summary.labels:,} labels written.")


def _refuse_shared_files(file: str, out: str | None, labels_out: str | None, given: Mapping[str, Any]) -> None:
    if labels_out == STDOUT and out in (None, STDOUT):
        raise Refused("--labels-out: standard output gets the requests; give the labels a file, or --out one")
    inputs = {"the input": file}
    inputs |= {f"--{name}-prompt-file": given[f"{name}_prompt_file"] for name in ("system", "user")}
    outputs = {"--out": out, "--labels-out": labels_out}
    refuse_shared(inputs, {said: None if name == STDOUT else name for said, name in outputs.items()})


def _text_out(stack: ExitStack, out: str | None) -> TextIO:
    text = io.TextIOWrapper(stack.enter_context(opened_out(out)), encoding="utf-8", newline="\n")
    stack.callback(text.detach)
    return text


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        field, equals, column = text.partition("=")
        if not equals or not field or not column:
            raise Refused(f"--map: expected FIELD=COLUMN, not {text!r}")
        if field in pairs:
            raise Refused(f"--map: {field} is given twice")
        pairs[field] = column
    return pairs


def _text_of(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise Refused(f"{file}: not UTF-8 text") from None
