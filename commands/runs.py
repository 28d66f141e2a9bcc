"""``runs``: the runs of a ledger, newest first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import click

from commands._click import Command
from commands._ledger import open_for
from commands._options import json_option, option
from commands._output import json_line, say, write_data
from commands._types import Moment
from ledger.render.columns import line, widths
from ledger.render.safe import terminal
from ledger.store import Store

_COLUMNS: Final = (
    *("run_id", "state", "candidate_id", "candidate_variant_id", "model", "endpoint", "lines", "actor", "tags"),
    *("failures", "started_at", "ended_at"),
)
_SQL: Final = f"SELECT {', '.join(_COLUMNS)} FROM runs ORDER BY started_position DESC"  # noqa: S608
_SHOWN: Final = ("run_id", "state", "lines", "model", "started_at", "ended_at")
_NUMBERS: Final = frozenset({_SHOWN.index("lines")})


@click.command(
    cls=Command,
    examples=[
        "replay-ledger runs",
        "replay-ledger runs --since 2026-11-01 --until 2026-12-01",
        "replay-ledger runs --json | jq -r .run_id",
    ],
)
@option("--since", type=Moment(), metavar="TIME", help="Started at or after this date or time (RFC 3339).")
@option("--until", type=Moment(), metavar="TIME", help="Started before this date or time.")
@json_option
@click.pass_context
def runs(ctx: click.Context, /, since: str | None, until: str | None, as_json: bool) -> None:
    """List the runs of the ledger, newest first.

    A run that is still being driven and one that was stopped both have the state "running":
    `show RUN` tells what is left of it, and `resume RUN` goes on with it.
    """
    store = open_for(ctx, "read")
    found = listed(store, since, until)
    if as_json:
        write_data(json_line(run) for run in found)
        return
    rows = [[_cell(run[name]) for name in _SHOWN] for run in found]
    if not rows:
        say("No runs.")
        return
    rows.insert(0, list(_SHOWN))
    needed = widths(rows)
    write_data(line(cells, needed, _NUMBERS).encode() + b"\n" for cells in rows)


def listed(store: Store, since: str | None, until: str | None) -> Iterator[dict[str, Any]]:
    """The rows as dicts, ``tags`` and ``failures`` decoded, times as RFC 3339 text that sorts."""
    for row in store.rows(_SQL, {}):
        run = dict(zip(_COLUMNS, row, strict=True))
        if (since is not None and run["started_at"] < since) or (until is not None and run["started_at"] >= until):
            continue
        yield run | {"tags": json.loads(run["tags"]), "failures": json.loads(run["failures"])}


def _cell(value: Any) -> str:
    return "-" if value is None else terminal(str(value))
