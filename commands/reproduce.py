"""``reproduce RUN``: decide again from what was recorded, and list what would be otherwise."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from commands._click import Command
from commands._failures import INCOMPLETE, NO, OK, Refused
from commands._in_files import read_in
from commands._ledger import find_run, open_for
from commands._options import option, out_option
from commands._output import STDOUT, ReaderGone, counted, format_for, is_terminal, json_line, write_data
from commands._progress import TerminalLine
from ledger.render.safe import terminal
from ledger.store import Store

if TYPE_CHECKING:
    from runner.contract import Contract
    from runner.reproduce import Case, Tally, Verdict

_CODES: Final = {"same": OK, "different": NO, "incomplete": INCOMPLETE}
_EXTENSIONS: Final = {".json": "json", ".jsonl": "jsonl", ".txt": "text"}
_SHOWN: Final = 100
_SHOWN_UNDECIDED: Final = 20
_LONGEST_VALUE: Final = 400


@click.command(
    cls=Command,
    examples=[
        "replay-ledger reproduce latest",
        "replay-ledger reproduce latest --guard --format jsonl | jq 'select(.kind == \"decision\")'",
        "replay-ledger reproduce --all",
        "replay-ledger reproduce latest --contract stricter-contract.json",
    ],
)
@click.argument("run", metavar="[RUN]", required=False)
@option("--all", "every", is_flag=True, help="Every run of the ledger, oldest first, instead of one.")
@option(
    "--contract",
    "contract_file",
    metavar="FILE",
    help="What if: hold every recorded reply against this JSON Schema (2020-12) instead of its request's own "
    "response_contract, count what would be accepted and refused, and compare nothing else.",
)
@option(
    "--guard",
    is_flag=True,
    help="Also put every recorded line to today's check and leak guard: are those that were accepted accepted, and "
    "those that were refused refused?",
)
@option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "jsonl"]),
    help="text is for reading and shows the first cases of each kind; json and jsonl hold every one. "
    "[default: by the extension of --out, else text]",
)
@out_option
@click.pass_context
def reproduce(
    ctx: click.Context,
    /,
    run: str | None,
    every: bool,
    contract_file: str | None,
    guard: bool,
    form: str | None,
    out: str | None,
) -> int:
    """Decide a run again from its recorded replies, offline, and list each decision that would differ.

    The recorded lines and replies go through today's program step by step: the bodies it would send,
    what it would read from each reply, accept, refuse, retry or end with the fallback. Each is compared with
    what was recorded. Nothing is called and nothing is written. So an auditor learns whether the program
    still decides as it did, and whoever changes the parser learns what that changes before it is
    released. A request's first other decision ends its comparison: all after it depends on it.

    \b
    Exit: 0 no difference; 1 a difference, or an event that cannot be read; 3 no difference, but
    something could not be decided again (its content was erased, its template is unknown, its run
    has not ended).
    """
    if every == (run is not None):
        raise Refused("name one run, or --all")
    chosen = form or format_for(out, _EXTENSIONS, terminal="text", otherwise="text", stream=sys.stdout)
    contract = None if contract_file is None else _contract(contract_file)
    store = open_for(ctx, "read")
    run_ids = _all_runs(store) if every else [find_run(store, run or "")]
    ended = _Ended()
    in_the_way = chosen != "text" and out in (None, STDOUT) and is_terminal(sys.stdout)
    with TerminalLine(None if in_the_way else sys.stderr) as line:
        told = _told(store, run_ids, contract, guard, ended, line.counter(sum(map(store.version, run_ids))))
        chunks = _WRITE[chosen](told, ended)
        if chosen == "text":  # a bounded number of lines a run, shown once the line of progress is gone
            chunks = iter(list(chunks))
        else:
            _write(chunks, out)
    if chosen == "text":
        _write(chunks, out)
    return _CODES[ended.verdict]


def _write(chunks: Iterator[bytes], out: str | None) -> None:
    """Whoever stops reading early gets the exit code of the whole all the same."""
    with suppress(ReaderGone):
        write_data(chunks, out)
    for _ in chunks:
        pass


def _all_runs(store: Store) -> list[str]:
    return [run_id for (run_id,) in store.rows("SELECT run_id FROM runs ORDER BY started_position")]


def _contract(name: str) -> Contract:
    """The contract in a file. Raises ``Refused`` naming file and field, and ``OSError``."""
    from runner.contract import Contract, ContractError  # noqa: PLC0415 - the runner takes a second to import
    from runner.requests import MAX_CONTRACT_BYTES  # noqa: PLC0415
    from runner.strict_json import StrictJsonError, loads  # noqa: PLC0415

    text = read_in(name, MAX_CONTRACT_BYTES + 1)
    if len(text) > MAX_CONTRACT_BYTES:
        raise Refused(f"--contract: {name} is longer than {MAX_CONTRACT_BYTES} bytes")
    try:
        schema = loads(text)
        if not isinstance(schema, dict):
            raise Refused(f"--contract: {name} is not a JSON object")
        return Contract(schema or None)
    except StrictJsonError as error:
        raise Refused(f"--contract: {name} is not JSON that we accept: {error.message}") from None
    except ContractError as error:
        place = f"{error.field}: " if error.field else ""
        raise Refused(f"--contract: {name}: {place}{error.message}") from None


# --- the runs, one after the other ---------------------------------------------------------


class _Ended:
    """What the runs came to so far."""

    def __init__(self) -> None:
        self.verdicts: Counter[Verdict] = Counter()

    @property
    def verdict(self) -> Verdict:
        from runner.reproduce import worst  # noqa: PLC0415 - the runner takes a second to import

        return worst(self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "verdict", "verdict": self.verdict, "runs": dict(sorted(self.verdicts.items()))}


def _told(
    store: Store,
    run_ids: list[str],
    contract: Contract | None,
    guard: bool,
    ended: _Ended,
    progress: Callable[[int], None],
) -> Iterator[Case | Tally]:
    """Each run's cases, then its tally."""
    from runner.reproduce import Reproduction  # noqa: PLC0415 - the runner takes a second to import

    for run_id in run_ids:
        run = Reproduction(store, run_id, contract=contract, guard=guard, progress=progress)
        yield from run.cases()
        ended.verdicts[run.tally.verdict] += 1
        yield run.tally


# --- for machines --------------------------------------------------------------------------


def _jsonl(told: Iterable[Case | Tally], ended: _Ended) -> Iterator[bytes]:
    for one in told:
        yield json_line(one.as_dict())
    yield json_line(ended.as_dict())


def _json(told: Iterable[Case | Tally], ended: _Ended) -> Iterator[bytes]:
    """One object, written as it comes: ``{"cases":[...],"runs":[...],"verdict":...}``."""
    runs = []
    between = b'{"cases":['
    for one in told:
        members = one.as_dict()
        if members["kind"] == "run":
            runs.append(members)
            continue
        yield between + orjson.dumps(members)
        between = b","
    yield b"" if between == b"," else between
    yield b'],"runs":' + orjson.dumps(runs) + b',"verdict":' + orjson.dumps(ended.verdict) + b"}\n"


# --- for people ----------------------------------------------------------------------------


def _text(told: Iterable[Case | Tally], ended: _Ended) -> Iterator[bytes]:
    shown: Counter[str] = Counter()
    for one in told:
        members = one.as_dict()
        if members["kind"] == "run":
            for line in (*_left_out(shown), *_summary(members)):
                yield _line(line)
            shown.clear()
            continue
        shown[members["kind"]] += 1
        if shown[members["kind"]] <= _most(members["kind"]):
            yield _line(_case(members))
    if sum(ended.verdicts.values()) != 1:
        runs = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(ended.verdicts.items()))
        yield _line(f"{counted(sum(ended.verdicts.values()), 'run')}{': ' + runs if runs else ''}")


def _line(text: str) -> bytes:
    return terminal(text).encode("utf-8") + b"\n"


def _most(kind: str) -> int:
    return _SHOWN_UNDECIDED if kind == "undecided" else _SHOWN


def _left_out(shown: Counter[str]) -> Iterator[str]:
    for kind, count in sorted(shown.items()):
        if count > _most(kind):
            yield f"... and {count - _most(kind):,} more ({kind}); --format jsonl lists them all"


def _case(case: dict[str, Any]) -> str:
    where = f"{case['request_id'] or 'no request'}: event {case['position']}, {case['event']} ({case['kind']})"
    if case["kind"] == "undecided":
        from runner.reproduce import REASONS  # noqa: PLC0415 - the runner takes a second to import

        return f"{where}: {REASONS[case['reason']]}"
    if case["reason"] is not None:
        return f"{where}: {case['reason']}"
    members = (f"{m['name']}: recorded {_value(m['recorded'])}, today {_value(m['today'])}" for m in case["members"])
    return f"{where}: {'; '.join(members)}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode("utf-8")
    return terminal(text, _LONGEST_VALUE)


def _summary(run: dict[str, Any]) -> Iterator[str]:
    words = _IN_WORDS if run["what_if"] is None else _WHAT_IF_IN_WORDS
    yield f"Run {run['run_id']} ({run['state']}): {words[run['verdict']]}"
    undecided = sum(run["undecided"].values())
    counts = {
        "as recorded": run["reproduced"],
        "would differ": run["differing"],
        "not reproducible": undecided,
        "without a result in the record": run["without_result"],
        "with an event that cannot be read": run["unreadable_requests"],
    }
    told = [f"{count:,} {words}" for words, count in counts.items() if count]
    yield f"  {counted(run['requests'], 'request')}" + (f": {', '.join(told)}" if told else "")
    if run["undecided"]:
        from runner.reproduce import REASONS  # noqa: PLC0415 - the runner takes a second to import

        for reason, count in run["undecided"].items():
            yield f"  not reproducible: {reason}: {count:,} ({REASONS[reason]})"
    if run["what_if"] is not None:
        yield from _what_if_lines(run["what_if"])
    else:
        yield f"  {counted(run['decisions'], 'decision')} made again"
    if run["state"] == "running":
        yield "  the run has not ended: what it will still decide is not in this"
    if run["guard"] is not None:
        yield from _guard_lines(run["guard"])


_IN_WORDS: Final = {
    "same": "no difference",
    "different": "not what would be recorded today",
    "incomplete": "no difference, but not all could be decided again",
}

_WHAT_IF_IN_WORDS: Final = {
    "same": "no verdict would be another",
    "different": "verdicts would be others",
    "incomplete": "no verdict would be another, but not all could be given again",
}


def _what_if_lines(counts: dict[str, int]) -> Iterator[str]:
    yield (
        f"  under the other contract: {counts['would_accept']:,} would be accepted, "
        f"{counts['would_refuse']:,} refused, {counts['would_ask_again']:,} asked again with an answer nobody knows, "
        f"{counts['would_no_reply']:,} have no reply"
    )


def _guard_lines(guard: dict[str, Any]) -> Iterator[str]:
    versions = guard["leak_rules_version"]
    by = f"by leak rules version {versions['today']}"
    if versions["recorded"] != versions["today"]:
        recorded = "unknown" if versions["recorded"] is None else versions["recorded"]
        by += f", where version {recorded} was recorded: a rule may have changed on purpose"
    lacking = f", {guard['undecided']:,} with their content gone" if guard["undecided"] else ""
    yield f"  {counted(guard['lines'], 'line')} checked again {by}: {guard['differences']:,} otherwise{lacking}"


_WRITE: Final[dict[str, Callable[[Iterable[Case | Tally], _Ended], Iterator[bytes]]]] = {
    "text": _text,
    "json": _json,
    "jsonl": _jsonl,
}
