"""``grade RUN LABELS``: hold a run's answers against labels that were kept apart from it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, BinaryIO, Final

import click
import orjson

from commands._click import Command
from commands._failures import NO, OK, Refused
from commands._issuing import issue_bytes, issue_option
from commands._ledger import check_as_of, find_run, open_for
from commands._options import STDIN, accept_clock_option, actor_option, as_of_option, option, out_option
from commands._out_files import refuse_shared
from commands._output import REPORT_EXTENSIONS, STDOUT, ReaderGone, counted, format_for, say, write_data
from commands._progress import TerminalLine
from commands._signing import code_after, open_to_append, signed
from commands._who import who_runs
from ledger.projections.grades import grades as make_grades
from ledger.projections.grading import Grading, GradingRefused, Label, record_grades
from ledger.render import grades_forms
from ledger.store import Store

_NAMED: Final = 20


@click.command(
    cls=Command,
    examples=[
        "replay-ledger grade latest labels.jsonl",
        "replay-ledger grade latest labels.csv --map risk_level=true_severity --out grades.html",
        "replay-ledger grade latest --format json | jq .false_safe",
        "replay-ledger grade latest --issue --out grades.html",
        "replay-ledger grade latest --format junit --out grades.xml",
        "replay-ledger grade --schema > label-schema.json",
    ],
)
@click.argument("run", metavar="RUN", required=False)
@click.argument("labels", metavar="[LABELS]", required=False)
@option("--schema", is_flag=True, help="Print the JSON Schema of a label and do nothing else.")
@option(
    "--labels-format",
    type=click.Choice(["auto", "jsonl", "csv"]),
    default="auto",
    show_default=True,
    help="What LABELS is; auto tells by its name: .csv, else JSON lines.",
)
@option(
    "--map",
    "mapping",
    multiple=True,
    metavar="FIELD=NAME",
    help="What a field of a label is called in the file; what has no meaning there is then passed over. "
    "May be repeated.",
)
@option(
    "--format",
    "form",
    type=click.Choice(list(grades_forms.NEWEST)),
    help="[default: by the extension of --out; else text on a terminal and json elsewhere]",
)
@as_of_option
@out_option
@issue_option
@actor_option
@accept_clock_option
@click.pass_context
def grade(ctx: click.Context, /, run: str | None, labels: str | None, schema: bool, **given: Any) -> int:
    """Hold a run's answers against labels from a file of their own, and print how they stand.

    LABELS is JSON lines or CSV: a request_id or an incident_id, and what should have been answered. Lines of
    `prepare --labels-out` are taken as they are, and told which of their labels are not graded. Labels are
    joined to the run after it has ended and appended to the ledger; the same labels again append nothing.
    Without LABELS the grades on record are printed again, with the same bytes. What was let through
    although its label says that it was dangerous comes first. No label ever enters a request: a run that
    has not ended is not graded, and the leak guard refuses requests that hold labels. As junit, a request with
    a label is a case: a wrong answer is a failure, none an error.

    \b
    Exit: 0 graded, whatever the grades are; 1 an event that cannot be read; 2 labels that are not as
    they must be, with file, line and field, or that are for no request of the run.
    """
    if schema:
        return _print_schema(given["out"])
    if run is None:
        raise click.UsageError("Missing argument 'RUN'.", ctx)
    if labels is None:
        _refuse_for_reading(given)
    elif given["as_of"] is not None:
        raise Refused("--as-of is for grades on record; labels are joined to all that the run came to")
    form = _format(given)
    writes = labels is not None or given["to_issue"]
    read = None if labels is None else _read(labels, given)
    store = open_to_append(ctx, "write", accept_clock=given["accept_clock"]) if writes else open_for(ctx, "read")
    run_id = find_run(store, run)
    graded, unsigned = None, None
    if writes:
        work = _Work(store, run_id, labels, read, given, form)
        (made, data, graded), unsigned = signed(ctx, store, work)
    else:
        made = make_grades(store, run_id, check_as_of(store, given["as_of"], run_id))
        data = b"".join(grades_forms.render(store, made, form))
    with suppress(ReaderGone):  # whoever stops reading early gets the exit code all the same
        write_data([data], given["out"])
    unreadable = made["missing_parts"] or made["unreadable"] or (graded is not None and graded.unreadable)
    return code_after(NO if unreadable else OK, unsigned)


class _Work:
    """What is appended, and the report of it."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        file: str | None,
        read: tuple[list[Label], str] | None,
        given: Mapping[str, Any],
        form: str,
    ) -> None:
        self._store, self._run_id, self._file, self._read, self._given = store, run_id, file, read, given
        self._form = form
        self._actor = who_runs(given["actor"]).actor

    def __call__(self) -> tuple[dict[str, Any], bytes, Grading | None]:
        graded = None if self._read is None else self._record(*self._read)
        made = make_grades(self._store, self._run_id, check_as_of(self._store, self._given["as_of"], self._run_id))
        data = b"".join(grades_forms.render(self._store, made, self._form))
        if self._given["to_issue"]:  # before it is given out: no report is out there that the ledger does not know
            issue_bytes(self._store, self._run_id, "grades", self._form, made, data, self._actor)
        return made, data, graded

    def _record(self, labels: list[Label], file_sha256: str) -> Grading:
        with TerminalLine(sys.stderr) as line:
            progress = line.counter(self._store.version(self._run_id))
            try:
                graded = record_grades(
                    self._store,
                    self._run_id,
                    labels,
                    file_sha256=file_sha256,
                    actor=self._actor,
                    progress=progress,
                )
            except GradingRefused as error:
                place = f"{self._file}: line {error.line}: " if error.line else ""
                raise Refused(f"{place}{error.message}") from None
        _tell(graded)
        return graded


def _tell(graded: Grading) -> None:
    joined = graded.joined
    done = "recorded" if graded.new else "on record already, nothing was appended,"
    requests = counted(len(joined.decisions), "request")
    say(f"{len(joined.graded):,} of {requests} graded; {done} at position {graded.position}.")
    _tell_ids("without a label", joined.unlabelled)
    if len(joined.unlabelled) > _NAMED:
        say("Question 11 of docs/sql.md lists every request without a label (`replay-ledger sql`).")
    _tell_ids("labelled, but no request of the run", [label.named for label in joined.unknown])
    if graded.unreadable:
        say(f"{counted(graded.unreadable, 'event')} of the run cannot be read; nothing said there is in this.")


def _tell_ids(what: str, ids: list[str]) -> None:
    if ids:
        say(f"{len(ids):,} {what}: {_listed(ids)}")


def _listed(names: Sequence[str]) -> str:
    more = f" ... and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _format(given: Mapping[str, Any]) -> str:
    form: str | None = given["form"]
    return form or format_for(given["out"], REPORT_EXTENSIONS, terminal="text", otherwise="json", stream=sys.stdout)


def _refuse_for_reading(given: Mapping[str, Any]) -> None:
    if given["mapping"]:
        raise Refused("--map is for labels, and none are given")


# --- the labels' file -----------------------------------------------------------------------


def _print_schema(out: str | None) -> int:
    from runner.labels import SCHEMA  # noqa: PLC0415 - the runner takes a second to import

    write_data([orjson.dumps(SCHEMA, option=orjson.OPT_INDENT_2), b"\n"], out)
    return OK


def _read(name: str, given: Mapping[str, Any]) -> tuple[list[Label], str]:
    """The labels, and the SHA-256 of the file. Raises ``Refused`` naming file, line and field."""
    from runner.labels import FIELDS, IDS, LabelError, read_labels  # noqa: PLC0415 - as above

    refuse_shared({"the labels": name}, {"--out": None if given["out"] == STDOUT else given["out"]})
    mapping = _pairs(given["mapping"], (*IDS, *FIELDS))
    form = given["labels_format"]
    if form == "auto":
        form = "csv" if name.lower().endswith(".csv") else "jsonl"
    digest = sha256()
    ungraded: set[str] = set()
    try:
        with _opened(name) as file:
            labels = read_labels(_lines(file, digest), form=form, mapping=mapping, on_ungraded=ungraded.add)
    except LabelError as error:
        raise Refused(error.at("standard input" if name == STDIN else name)) from None
    if ungraded:
        say(f"Not graded, being no field of a label: {_listed(sorted(ungraded))}")
    return labels, digest.hexdigest()


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STDIN:
        yield sys.stdin.buffer
        return
    with open(name, "rb") as file:  # noqa: PTH123 - the error then bears the name as given
        yield file


def _lines(file: BinaryIO, digest: Any) -> Iterator[bytes]:
    """Lines as they come, never more of one than the reader refuses; all of them enter the digest."""
    from runner.labels import MAX_LINE_BYTES  # noqa: PLC0415 - as above

    while line := file.readline(MAX_LINE_BYTES + 1):
        digest.update(line)
        yield line


def _pairs(given: tuple[str, ...], fields: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        field, equals, name = text.partition("=")
        if not equals or not name or field not in fields:
            raise Refused(f"--map: expected FIELD=NAME with one of {', '.join(fields)}, not {text!r}")
        if field in pairs:
            raise Refused(f"--map: {field} is given twice")
        pairs[field] = name
    return pairs
