"""``show RUN [REQUEST]``: a run's settings and state, or one request's timeline."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from commands._click import Command
from commands._failures import NO, OK, Refused
from commands._faults import tell_faults
from commands._ledger import find_run, open_for, typed_again
from commands._options import json_option, option, run_argument
from commands._output import json_line, say, write_data
from commands._session import Session, session
from ledger.events import ID_PATTERN, Event
from ledger.projections.conversations import FAULTS, Evidence, evidence
from ledger.projections.counts import counts
from ledger.render.safe import terminal
from ledger.store import Store, Unreadable

_COLUMNS: Final = (
    *("run_id", "state", "candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint", "settings"),
    *("tags", "actor", "software_version", "template_version", "leak_rules_version", "lines", "input_sha256"),
    *("failures", "started_at", "started_position", "ended_at", "ended_position"),
)
_JSON_COLUMNS: Final = ("settings", "tags", "failures")
_EXCERPT: Final = 160
_FAULTS: Final = {
    "unreadable": "cannot be decoded",
    "altered": "DOES NOT MATCH THE RECORD: it is not what the event committed to",
    "missing": "is MISSING, and no redaction says why",
}
"""By the word that marks it beside the content, in JSON too."""
_WORDS: Final = {"undecodable": "unreadable", "altered": "altered", "missing": "missing"}
_INDENT: Final = " " * 8


@click.command(
    cls=Command,
    examples=[
        "replay-ledger show latest",
        "replay-ledger show latest INC-1042",
        "replay-ledger show latest INC-1042 --content",
        "replay-ledger show latest --json | jq .counts",
    ],
)
@run_argument
@click.argument("request_id", metavar="[REQUEST]", required=False)
@option("--content", is_flag=True, help="Show prompts and replies whole, not only their beginning.")
@json_option
@click.pass_context
def show(ctx: click.Context, /, run: str, request_id: str | None, content: bool, as_json: bool) -> int:
    """Show a run's settings and state, or a request's timeline.

    The timeline has each event with its time, its facts, and its content: what was sent and what
    came back. Each content is held against what its event committed to. Whatever models and files wrote
    is escaped.

    \b
    Exit: 0 it was shown; 1 something of it cannot be read or is not what was recorded, and it says at
    which position.
    """
    store = open_for(ctx, "read")
    run_id = find_run(store, run)
    broken: set[int] = set()
    faults: list[Evidence] = []
    if request_id is None:
        facts = run_facts(store, run_id, broken, faults)
        lines = _run_lines(session(ctx), facts)
    else:
        facts = request_facts(store, run_id, request_id, broken, faults, whole=content)
        lines = _timeline_lines(facts, whole=content)
        if not content:
            facts = _without_content(facts)
    write_data([json_line(facts)] if as_json else (line.encode("utf-8") + b"\n" for line in lines))
    for position in sorted(broken):
        say(f"Event {position} cannot be read whole.")
    tell_faults(faults)
    return NO if broken or faults else OK


# --- a run ---------------------------------------------------------------------------------


def run_facts(store: Store, run_id: str, broken: set[int], faults: list[Evidence]) -> dict[str, Any]:
    """The run's row, its counts, and what was said of it at its start (None once redacted).

    Where that cannot be decoded, it is None too, and its position is added to ``broken``; where it is not what
    was recorded, ``faults`` takes it.
    """
    sql = f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE run_id = :run_id"  # noqa: S608 - our own names
    row = dict(zip(_COLUMNS, next(iter(store.rows(sql, {"run_id": run_id}))), strict=True))
    row |= {name: json.loads(row[name]) for name in _JSON_COLUMNS}
    position = row["started_position"]
    said = evidence(store, [position])[position]
    _sort([said], broken, faults)
    marks, told = _marks(said, "said"), _read(said.body)
    if said.body is not None and told is None:
        broken.add(position)
        marks["said_unreadable"] = True
    return row | {"counts": counts(store, run_id).model_dump(), "said": told} | marks


def _read(body: bytes | None) -> dict[str, Any] | None:
    """An object of JSON; None where it is none."""
    try:
        told = None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _run_lines(state: Session, facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"Run {terminal(facts['run_id'])}"
    for name in _COLUMNS[1:]:
        if name not in _JSON_COLUMNS:
            yield _fact_line(name, facts[name])
    yield from _block("settings", facts["settings"])
    yield from _block("tags", facts["tags"])
    yield from _block("counts", facts["counts"])
    if facts["failures"]:
        yield _fact_line("failures", ", ".join(facts["failures"]))
    faults = [f"  what was said of it at its start {fault}" for fault in _faults(facts, "said")]
    yield from faults
    if facts["said"] is not None:
        yield from _block("said at its start", facts["said"])
    elif not faults:
        yield "  what was said of it at its start is redacted"
    if facts["state"] == "running":
        yield f"Without an end: it is being driven, or {typed_again(state, 'resume', facts['run_id'])}"


def _fact_line(name: str, value: Any) -> str:
    return f"  {name:<22}{'-' if value is None else terminal(_text(value))}"


def _block(title: str, members: Mapping[str, Any]) -> Iterator[str]:
    if members:
        yield f"  {title}"
        for name, value in members.items():
            yield f"    {terminal(name) + ' ':<22}{terminal(_text(value))}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- a request -----------------------------------------------------------------------------


def request_facts(
    store: Store, run_id: str, request_id: str, broken: set[int], faults: list[Evidence], *, whole: bool
) -> dict[str, Any]:
    """The request's events since the run's last start, each with its content, marked where that is not as recorded.

    Positions of those that cannot be read, or not their content, are added to ``broken``; ``faults`` takes the
    contents that are not what was recorded, or not there without a reason.
    Raises ``Refused`` where the run has no such request, saying where it was refused if it was.
    """
    known = re.match(ID_PATTERN, request_id) is not None
    events = list(store.events(run_id, request_id=request_id, since_last_start=True)) if known else []
    if not events:
        why = no_such_request(store, run_id, request_id) if known else f"{request_id!r} is no request id"
        raise Refused(why)
    held = evidence(store, [event.position for event in events])
    broken |= {event.position for event in events if isinstance(event, Unreadable)}
    _sort(held.values(), broken, faults)
    shown = [_event_facts(event, held[event.position], whole=whole) for event in events]
    return {"run_id": run_id, "request_id": request_id, "events": shown}


def _sort(found: Iterable[Evidence], broken: set[int], faults: list[Evidence]) -> None:
    """What cannot be decoded cannot be read; another text, or none, is a fault."""
    for of in found:
        if of.state == "undecodable":
            broken.add(of.position)
        elif of.state in FAULTS:
            faults.append(of)


def _marks(of: Evidence, name: str) -> dict[str, bool]:
    return {f"{name}_{_WORDS[of.state]}": True} if of.state in FAULTS else {}


def _faults(facts: Mapping[str, Any], name: str) -> Iterator[str]:
    """In words, what ``_marks`` said."""
    return (fault for word, fault in _FAULTS.items() if f"{name}_{word}" in facts)


def no_such_request(store: Store, run_id: str, request_id: str) -> str:
    """Why there is nothing to show of a request."""
    sql = "SELECT line, type, code FROM failures WHERE run_id = :run_id AND request_id = :request_id"
    for line, event_type, code in store.rows(sql, {"run_id": run_id, "request_id": request_id}):
        return f"run {run_id}: {request_id} was never put to the model: {event_type} on line {line} ({code})"
    return f"run {run_id} has no request {request_id!r}; `replay-ledger results` lists those that have a result"


def _event_facts(event: Event | Unreadable, of: Evidence, *, whole: bool) -> dict[str, Any]:
    known = {"position": event.position, "type": event.type}
    if isinstance(event, Unreadable):
        return known | {"unreadable": event.reason} | _marks(of, "content")
    return (
        known
        | {
            "recorded_at": event.recorded_at,
            "request_version": event.request_version,
            "payload": dict(event.payload),
            "redacted_by": of.redacted_by,
            "content": _decoded(of.body, whole=whole),
        }
        | _marks(of, "content")
    )


def _decoded(body: bytes | None, *, whole: bool) -> dict[str, Any] | None:
    """Content as text, or as base64 where it is no UTF-8; its size in bytes beside it."""
    if body is None:
        return None
    part = body if whole else body[: 4 * _EXCERPT]
    try:
        return {"bytes": len(body), "encoding": "utf-8", "body": part.decode("utf-8", "strict" if whole else "ignore")}
    except UnicodeDecodeError:
        return {"bytes": len(body), "encoding": "base64", "body": base64.b64encode(part).decode("ascii")}


def _without_content(facts: dict[str, Any]) -> dict[str, Any]:
    events = [{name: value for name, value in event.items() if name != "content"} for event in facts["events"]]
    return facts | {"events": events}


def _timeline_lines(facts: Mapping[str, Any], *, whole: bool) -> Iterator[str]:
    yield f"Request {terminal(facts['request_id'])} of run {terminal(facts['run_id'])}"
    for event in facts["events"]:
        if "unreadable" in event:
            yield f"  {event['position']:>8}  {event['type']}: unreadable: {terminal(event['unreadable'])}"
            yield from (f"{_INDENT}content that {fault}" for fault in _faults(event, "content"))
            continue
        yield f"  {event['position']:>8}  {event['recorded_at']}  {event['type']}"
        told = ", ".join(f"{name} {_text(value)}" for name, value in event["payload"].items() if value is not None)
        yield f"{_INDENT}{terminal(told)}"
        if event["redacted_by"] is not None:
            yield f"{_INDENT}content redacted, by event {event['redacted_by']}"
        yield from (f"{_INDENT}content that {fault}" for fault in _faults(event, "content"))
        yield from _content_lines(event["content"], whole=whole)


def _content_lines(content: Mapping[str, Any] | None, *, whole: bool) -> Iterator[str]:
    if content is None:
        return
    size = f"{content['bytes']:,} bytes" + (" as base64" if content["encoding"] == "base64" else "")
    if whole:
        yield f"{_INDENT}content, {size}:"
        for line in content["body"].split("\n"):
            yield f"{_INDENT}| {terminal(line)}"
    else:
        body = content["body"]
        more = "..." if len(body) > _EXCERPT or content["bytes"] > len(body.encode("utf-8")) else ""
        yield f"{_INDENT}content, {size}: {terminal(body[:_EXCERPT])}{more}"
