"""``compare RUN RUN``: the same incidents, two candidates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import click

from commands._click import Command
from commands._failures import NO, OK
from commands._ledger import check_as_of, find_run, open_for, tell_unreadable
from commands._options import as_of_option, option, out_option
from commands._output import STDOUT, ReaderGone, format_for, write_data
from commands._progress import TerminalLine
from ledger.projections.compare import Comparison
from ledger.projections.decisions import read_decisions
from ledger.render import compare_html, compare_json, compare_text

_RENDER: Final[dict[str, Callable[[Comparison], Iterator[bytes]]]] = {
    "text": compare_text.render,
    "json": compare_json.render,
    "html": compare_html.render,
}
_EXTENSIONS: Final = {".json": "json", ".html": "html", ".htm": "html", ".txt": "text"}


@click.command(
    cls=Command,
    examples=[
        "replay-ledger compare baseline-run tuned-run",
        "replay-ledger compare baseline-run latest --out comparison.html",
        "replay-ledger compare baseline-run latest --format json | jq '.differences[] | [.incident_id, .fields]'",
    ],
)
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@option(
    "--format",
    "form",
    type=click.Choice(list(_RENDER)),
    help="json holds every difference; text and html show the gravest first and count the others. "
    "[default: by the extension of --out; else text on a terminal and json elsewhere]",
)
@as_of_option
@out_option
@click.pass_context
def compare(
    ctx: click.Context, /, first: str, second: str, form: str | None, as_of: int | str | None, out: str | None
) -> int:
    """Hold two runs over the same incidents against each other.

    Incidents are joined by their ids. For outcome, risk level, approval and block: how often the runs
    agree, which answers flipped and into what, and whether chance alone would explain it (McNemar's exact
    test). Each difference is shown with both answers. What only one run was asked, and what has no
    accepted answer, is told and stays in every denominator.

    \b
    Exit: 0 the runs agree in every field of every incident; 1 a difference, an incident that only
    one run was asked, or an event that cannot be read.
    """
    chosen = form or format_for(out, _EXTENSIONS, terminal="text", otherwise="json", stream=sys.stdout)
    store = open_for(ctx, "read")
    run_ids = [find_run(store, run) for run in (first, second)]
    upto = check_as_of(store, as_of, *run_ids)
    with TerminalLine(sys.stderr) as line:
        count = line.counter(sum(map(store.version, run_ids)))
        one, other = (read_decisions(store, run_id, upto, count) for run_id in run_ids)
        comparison = Comparison(store, one, other)
        chunks = _RENDER[chosen](comparison)
        if out not in (None, STDOUT):
            write_data(_counting(line, chunks, comparison.different), out)
    if out in (None, STDOUT):
        with suppress(ReaderGone):  # whoever stops reading early gets the exit code all the same
            write_data(chunks, out)
    unreadable = [run.run_id for run in (one, other) if run.unreadable]
    for run_id in dict.fromkeys(unreadable):
        tell_unreadable(store, run_id, upto)
    return OK if comparison.same() and not unreadable else NO


def _counting(line: TerminalLine, chunks: Iterable[bytes], total: int) -> Iterator[bytes]:
    """The same chunks, which are a difference each where there are many."""
    for number, chunk in enumerate(chunks, start=1):
        line.events(min(number, total), total, "differences")
        yield chunk
