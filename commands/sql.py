"""``sql``: a question to the ledger, which it cannot change."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click

from commands._click import Command
from commands._failures import INCOMPLETE, OK, Refused
from commands._options import STDIN, option, out_option
from commands._output import format_for, say, write_data
from commands._session import session
from commands._types import PlainText
from ledger.query import Answer, Question, ask
from ledger.query.answer import DEFAULT_SECONDS
from ledger.query.text import LONGEST_TEXT
from ledger.render import rows as render

Render = Callable[[Sequence[str], Iterable[Sequence[Any]]], Iterator[bytes]]

DEFAULT_LIMIT: Final = 1000
_RENDER: Final[Mapping[str, Render]] = {
    "table": render.table,
    "csv": render.csv,
    "json": render.json_array,
    "jsonl": render.json_lines,
}
_EXTENSIONS: Final = {".txt": "table", ".csv": "csv", ".json": "json", ".jsonl": "jsonl"}
_PARAMETER: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62})=(.*)\Z", re.DOTALL)
_SCHEMA_COLUMNS: Final = ("table", "column", "kind", "nullable", "comment")


class Parameter(PlainText):
    """``name=value``; given on as a pair."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        found = _PARAMETER.match(super().convert(value, param, ctx))
        if found is None:
            self.fail(f"{value!r} is not name=value, the name of letters, digits and _", param, ctx)
        return found.groups()


@click.command(
    cls=Command,
    examples=[
        'replay-ledger sql "SELECT run_id, state, model FROM runs ORDER BY started_position"',
        'replay-ledger sql "SELECT * FROM results WHERE run_id = :run AND blocked_by_policy" --param run=first',
        "replay-ledger sql -f question.sql --limit 0 --out answer.csv",
        "replay-ledger sql --schema",
    ],
)
@click.argument("query", metavar="[SQL]", required=False, type=PlainText())
@option("-f", "--file", "file", metavar="FILE", help="Read the query from FILE; - is standard input.")
@option(
    "--param",
    "params",
    type=Parameter(),
    multiple=True,
    metavar="NAME=VALUE",
    help="The value of :NAME in the query; may be repeated. It is bound, never pasted into the text.",
)
@option("--schema", is_flag=True, help="Print the tables and columns there are, with what they mean.")
@option(
    "--format",
    "form",
    type=click.Choice(list(_RENDER)),
    help="[default: by the extension of --out; else table on a terminal and for --schema, and csv elsewhere]",
)
@option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Print at most N rows; 0 is all. [default: {DEFAULT_LIMIT}]",
)
@option(
    "--timeout",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    default=DEFAULT_SECONDS,
    show_default=True,
    help="Stop the query once the database has worked on it for as long.",
)
@option(
    "--role",
    type=PlainText(),
    metavar="NAME",
    help="On Postgres: ask with the rights of this role. [default: replay_ledger_auditor, where there is one that "
    "may read the ledger and that the user may become; else the user's own]",
)
@out_option
@click.pass_context
def sql(
    ctx: click.Context,
    /,
    query: str | None,
    file: str | None,
    params: tuple[tuple[str, str], ...],
    schema: bool,
    form: str | None,
    limit: int | None,
    timeout: int,
    role: str | None,
    out: str | None,
) -> int:
    """Ask the ledger in SQL; nothing that is asked can change it.

    One SELECT (or WITH, or VALUES), in the SQL of the ledger's own database. docs/sql.md has the tables and
    worked questions. In a table a long text is cut, and what would act on a terminal is escaped; CSV and JSON
    have all of it. Bytes are hex, times RFC 3339 in UTC.

    \b
    Exit: 0 answered; 2 a query that is broken, does more than read, or lacks a parameter, with the database's
    own words; 3 cut at the default limit of rows (at a --limit that was given: 0); 4 the ledger could not be
    reached, or did not answer within --timeout.
    """
    if schema:
        if query is not None or file is not None:
            raise Refused("--schema stands alone: give it without a query")
        _write_schema(form or format_for(out, _EXTENSIONS, terminal="table", otherwise="table", stream=None), out)
        return OK
    chosen = form or format_for(out, _EXTENSIONS, terminal="table", otherwise="csv", stream=sys.stdout)
    question = Question(_text(query, file), _named(params), timeout)
    most = DEFAULT_LIMIT if limit is None else limit
    with ask(session(ctx).place.url, question, role=role) as answer:
        was_cut = _write(answer, chosen, most, out)
    if not was_cut:
        return OK
    rows = "1 row" if most == 1 else f"{most:,} rows"
    say(f"Cut after {rows}: there are more (--limit N gives N of them, --limit 0 all).")
    return INCOMPLETE if limit is None else OK


def _text(query: str | None, file: str | None) -> str:
    if (query is None) == (file is None):
        raise Refused("give one query: as an argument, or by -f FILE (-f - reads standard input)")
    if file is None and query != STDIN:
        assert query is not None
        return query
    name = "standard input" if file in (None, STDIN) else file
    most = 4 * LONGEST_TEXT + 1
    if file in (None, STDIN):
        if sys.stdin is None:
            raise Refused("standard input is closed")
        data = sys.stdin.buffer.read(most)
    else:
        with Path(str(file)).open("rb") as opened:
            data = opened.read(most)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{name}: not UTF-8 text, from byte {error.start + 1} on") from None


def _named(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in pairs:
        if name in named:
            raise Refused(f"--param {name} is given twice")
        named[name] = value
    return named


def _write(answer: Answer, form: str, most: int, out: str | None) -> bool:
    """Write it; true where there are more rows than ``most``."""
    # A query that fails at its first row leaves no header behind.
    first = next(answer.rows, None)
    rows = _Limited(chain(() if first is None else (first,), answer.rows), most)
    try:
        write_data(_RENDER[form](answer.columns, rows), out)
    except render.SameNameTwice as twice:
        raise Refused(f"two columns are called {twice}: for JSON, tell them apart with AS") from None
    return rows.was_cut


class _Limited:
    """The first ``most`` rows (0: all); ``was_cut`` once there turned out to be more."""

    def __init__(self, rows: Iterable[Sequence[Any]], most: int) -> None:
        self._rows, self._most = rows, most
        self.was_cut = False

    def __iter__(self) -> Iterator[Sequence[Any]]:
        for number, row in enumerate(self._rows, start=1):
            if self._most and number > self._most:
                self.was_cut = True
                return
            yield row


def _write_schema(form: str, out: str | None) -> None:
    from ledger.query.schema import tables  # noqa: PLC0415 - the tables bring the ORM with them

    if form == "table":
        from ledger.render.schema_text import render as as_text  # noqa: PLC0415

        write_data(as_text(tables()), out)
        return
    rows: list[Sequence[Any]] = []
    for table in tables():
        rows.append((table.name, None, "view" if table.is_view else "table", None, table.comment))
        rows.extend((table.name, *column) for column in table.columns)
    write_data(_RENDER[form](_SCHEMA_COLUMNS, rows), out)
