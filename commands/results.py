"""``results RUN``: what was decided for each request."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import click

from commands._click import Command
from commands._failures import NO, Refused
from commands._faults import tell_faults
from commands._ledger import check_as_of, find_run, open_for, tell_unreadable
from commands._options import as_of_option, option, out_option, run_argument
from commands._output import STDOUT, format_for, is_terminal, write_data
from commands._progress import TerminalLine
from commands.show import no_such_request
from ledger.events import ID_PATTERN
from ledger.projections.conversations import Evidence, as_of_position
from ledger.projections.results import results as make_results
from ledger.render import results_csv, results_html, results_jsonl, results_table
from ledger.store import Store
from runner.read_again import Reading

Render = Callable[[Iterable[Mapping[str, Any]]], Iterator[bytes]]


def _table(found: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    return (line.encode("utf-8") for line in results_table.render(found))


_RENDER: Final[dict[str, Render]] = {"jsonl": results_jsonl.render, "csv": results_csv.render, "table": _table}
_HTML: Final = "html"
_EXTENSIONS: Final = {".jsonl": "jsonl", ".csv": "csv", ".txt": "table", ".html": _HTML, ".htm": _HTML}


@click.command(
    cls=Command,
    examples=[
        "replay-ledger results latest",
        "replay-ledger results latest --format csv --out results.csv",
        "replay-ledger results latest --format jsonl | jq -r 'select(.fallback_used) | .request_id'",
        "replay-ledger results latest --out results.html",
        "replay-ledger results latest --request-id INC-1042 --request-id INC-1043 --out two.html",
    ],
)
@run_argument
@option(
    "--format",
    "form",
    type=click.Choice([*_RENDER, _HTML]),
    help="html is the page with the text: prompts beside replies, timelines, the contract field by field. "
    "[default: by the extension of --out; else table on a terminal and jsonl elsewhere]",
)
@option(
    "--request-id",
    "request_ids",
    multiple=True,
    metavar="ID",
    help="Only this request. May be repeated.",
)
@as_of_option
@out_option
@click.pass_context
def results(
    ctx: click.Context,
    /,
    run: str,
    form: str | None,
    request_ids: tuple[str, ...],
    as_of: int | str | None,
    out: str | None,
) -> int:
    """Print the results of a run.

    One for each request that has one, in the order of the file. What a model wrote is written as
    it is to JSON lines, never as a formula to CSV, and escaped in a table and on a terminal. A text
    that was redacted is null.

    The html page has every line of the run and all that was said about it, so it is large: with
    prompts of 2 kB, some 80 MB for 10,000 requests answered at once. Of such a run, choose with
    --request-id. A text longer than 100,000 characters is cut there, and the page says so.

    \b
    Exit: 0 whatever the run's verdict is; 1 an event of the run cannot be read, or a text is not
    the one that was recorded.
    """
    chosen = form or format_for(out, _EXTENSIONS, terminal="table", otherwise="jsonl", stream=sys.stdout)
    store = open_for(ctx, "read")
    run_id = find_run(store, run)
    upto = as_of_position(store, check_as_of(store, as_of, run_id))
    only = _known(store, run_id, upto, request_ids) if request_ids else None
    faults: list[Evidence] = []
    if chosen == _HTML:
        in_the_way = out in (None, STDOUT) and is_terminal(sys.stdout)
        with TerminalLine(None if in_the_way else sys.stderr) as line:
            page = results_html.render(
                store, run_id, upto, Reading(), request_ids=only, faults=faults, progress=line.events
            )
            write_data(page, out)
    else:
        write_data(_RENDER[chosen](make_results(store, run_id, upto, only)), out)
    tell_faults(faults, "; the page says where")
    unreadable = tell_unreadable(store, run_id, upto)
    return NO if faults else unreadable


def _known(store: Store, run_id: str, upto: int, request_ids: Collection[str]) -> frozenset[str]:
    """The requests asked for. Raises ``Refused`` where the run has one of them not."""
    for request_id in request_ids:
        if not re.match(ID_PATTERN, request_id):
            raise Refused(f"--request-id: {request_id!r} is no request id")
        events = store.events(run_id, request_id=request_id, since_last_start=True, upto=upto)
        if next(events, None) is None:
            raise Refused(f"--request-id: {no_such_request(store, run_id, request_id)}")
    return frozenset(request_ids)
