"""``results RUN``: what was decided for each request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import click

from commands._click import Command
from commands._ledger import check_as_of, find_run, open_for, tell_unreadable
from commands._options import as_of_option, option, out_option, run_argument
from commands._output import format_for, write_data
from ledger.projections.results import results as make_results
from ledger.render import results_csv, results_jsonl, results_table

Render = Callable[[Iterable[Mapping[str, Any]]], Iterator[bytes]]


def _table(found: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    return (line.encode("utf-8") for line in results_table.render(found))


_RENDER: Final[dict[str, Render]] = {"jsonl": results_jsonl.render, "csv": results_csv.render, "table": _table}
_EXTENSIONS: Final = {".jsonl": "jsonl", ".csv": "csv", ".txt": "table"}


@click.command(
    cls=Command,
    examples=[
        "replay-ledger results latest",
        "replay-ledger results latest --format csv --out results.csv",
        "replay-ledger results latest --format jsonl | jq -r 'select(.fallback_used) | .request_id'",
    ],
)
@run_argument
@option(
    "--format",
    "form",
    type=click.Choice(list(_RENDER)),
    help="[default: by the extension of --out; else table on a terminal and jsonl elsewhere]",
)
@as_of_option
@out_option
@click.pass_context
def results(ctx: click.Context, /, run: str, form: str | None, as_of: int | str | None, out: str | None) -> int:
    """Print the results of a run.

    One for each request that has one, in the order of the file. What a model wrote is written as
    it is to JSON lines, never as a formula to CSV, and escaped in a table and on a terminal. A text
    that was redacted is null.

    \b
    Exit: 0 whatever the run's verdict is; 1 an event of the run cannot be read.
    """
    store = open_for(ctx, "read")
    run_id, upto = find_run(store, run), check_as_of(store, as_of)
    found = make_results(store, run_id, upto)
    chosen = form or format_for(out, _EXTENSIONS, terminal="table", otherwise="jsonl", stream=sys.stdout)
    write_data(_RENDER[chosen](found), out)
    return tell_unreadable(store, run_id, upto)
