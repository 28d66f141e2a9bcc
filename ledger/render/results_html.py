"""Results as one page, with the free text: what was sent, what came back, and what was made of it, line by line.

For reading, never for issuing: it shows contents, which may lawfully be erased, and says so where they were.
Written in pieces, a line of the run at a time; what is linked is linked by line number, as ids are anybody's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from ledger.projections.conversations import Conversation, Evidence, Reader, Told, chosen, conversations
from ledger.projections.incidents import Incident
from ledger.projections.report import report
from ledger.projections.results import FALLBACK_OUTPUT
from ledger.render import results_html_page as page
from ledger.render.page import shown
from ledger.render.results_html_calls import calls
from ledger.render.results_html_page import (
    absence,
    breaking,
    cell,
    code_cell,
    count,
    flag,
    heading,
    milliseconds,
    note,
    paragraph,
    table,
)
from ledger.store import Store, Unreadable

RENDERER_VERSION: Final = 1

Progress = Callable[[int, int, str], None]
"""Is told how many of how many have been read or written, and of what."""

FAIL_CLOSED: Final = (
    "* Fail-closed: no answer was accepted, and this is what the typed fallback says in its place; it is the runner's "
    "word, not the model's."
)
BLOCKED: Final = "“Blocked by policy” is what the model said of its own answer; no policy engine was asked."
_OPEN_INDEX: Final = 100
"""Lines up to which the index is open from the start."""
_INLINE: Final = 1_000
"""Characters of a value that stand without a box."""

_UNREADABLE: Final = "unreadable:"
"""How a report's failures name an event that cannot be read."""

_STEPS: Final = 1_000
"""Items of a list of texts that are shown."""

_OUTCOMES: Final = {
    "accepted_first": "accepted at first",
    "accepted_after_retry": "accepted after the corrective turn",
    "fallback_records": "fallback (failed closed)",
    "leak_rejected": "refused: holds its own labels",
    "rejected": "refused: no valid request",
    "not_started": "not started",
    "incomplete": "begun, without a result",
}
_EVENTS: Final = {
    "RequestAccepted": "request accepted",
    "ModelCallStarted": "call sent",
    "ModelCalled": "reply came",
    "ModelCallFailed": "call failed",
    "ParseFailed": "contract broken",
    "Retried": "corrective turn begins",
    "OutputAccepted": "answer accepted",
    "FallbackApplied": "fallback applied",
}
_COLUMNS: Final = ("attempt", "turn", "http_status", "duration_us", "wait_ms", "code")


def render(
    store: Store,
    run_id: str,
    upto: int,
    reader: Reader,
    *,
    request_ids: Collection[str] | None = None,
    faults: list[Evidence] | None = None,
    progress: Progress = lambda _done, _total, _what: None,
) -> Iterator[bytes]:
    """The page in pieces, UTF-8, of the run as it was at position ``upto``. Errors as for ``report``.

    ``request_ids``: only these accepted requests. ``faults`` takes each content that is not as it was
    recorded: the page flags it, and whoever has it made may want to say so too.
    """
    found: list[Evidence] = [] if faults is None else faults
    made = report(store, run_id, upto, _of_events(store.version(run_id), progress))
    total = made["requests"] if request_ids is None else len(request_ids)
    index = _index(store, run_id, upto, request_ids, made["requests"])
    lines = _lines(store, run_id, upto, reader, request_ids, found)
    sections = chain(
        [page.head(f"Results of run {run_id}, with the text")],
        _summary(made, request_ids),
        _counted(index, total, "lines of the index", progress),
        _counted(lines, total, "lines", progress),
        _foot(made, found),
        [page.FOOT],
    )
    return (piece.encode("utf-8") for piece in sections)


def _of_events(total: int, progress: Progress) -> Callable[[int], None]:
    """Is told how many more events were counted, before anything can be written."""
    done = 0

    def count_events(more: int) -> None:
        nonlocal done
        done += more
        progress(min(done, total), total, "events")

    return count_events


def _counted(pieces: Iterable[str], total: int, what: str, progress: Progress) -> Iterator[str]:
    """The same pieces, of which a line is one."""
    for number, piece in enumerate(pieces, start=1):
        progress(min(number, total), total, what)
        yield piece


# --- the head and the foot of the page -----------------------------------------------------


def _summary(made: Mapping[str, Any], request_ids: Collection[str] | None) -> Iterator[str]:
    yield (
        '<div class="first"><p><strong>Texts in boxes were written by models, files and servers.</strong> They are '
        "shown as text and do nothing here; characters that act or hide stand as escapes, like "
        f"<code>{page.marked(chr(0x202E))}</code>. Each was held against what the ledger committed to when it was "
        "recorded; one that does not match is flagged where it stands and at "
        '<a href="#check">the foot of the page</a>.</p></div>\n'
    )
    yield page.pairs(
        ("Candidate", made["candidate_id"]),
        ("Variant", made["candidate_variant_id"] or "baseline"),
        ("Model asked", made["model"]),
        ("Endpoint", made["endpoint"]),
        ("The run's end", "not ended" if made["outcome"] == "incomplete" else made["outcome"]),
        ("As of position", made["as_of"]["position"]),
    )
    rows = [(words, cell(made[name])) for name, words in _OUTCOMES.items() if made[name]]
    yield table(
        "counts", "What became of the lines of the run", ("outcome", "lines"), [*rows, ("all", cell(made["requests"]))]
    )
    if made["unreadable"]:
        positions = [
            failure.removeprefix(_UNREADABLE) for failure in made["failures"] if failure.startswith(_UNREADABLE)
        ]
        named = f": position {', '.join(positions)}" if positions else ""
        yield flag(
            f"{count(made['unreadable'], 'event')} cannot be read{named}. What was said there is not on this page."
        )
    if request_ids is not None:
        yield paragraph(f"This page has only the requests asked for: {', '.join(sorted(request_ids))}.")
    yield note(f"{BLOCKED} What is folded up on this page is not printed.")


def _index(store: Store, run_id: str, upto: int, request_ids: Collection[str] | None, lines: int) -> Iterator[str]:
    heads = ("line", "request", "outcome", "risk", "blocked", "approval", "attempts", "code")
    opened = " open" if min(lines, len(request_ids) if request_ids is not None else lines) <= _OPEN_INDEX else ""
    columns = "".join(f'<th scope="col">{name}</th>' for name in heads)
    yield f'<nav id="index" aria-label="Index"><details{opened}><summary>Index of lines</summary>\n<div class="scroll">'
    yield f'<table class="index"><thead><tr>{columns}</tr></thead>\n<tbody>'
    failed_closed = False
    for one, _, _ in chosen(store, run_id, upto, request_ids):
        failed_closed = failed_closed or one.outcome == "fallback_records"
        yield _indexed(one)
    yield f"</tbody></table></div>{note(FAIL_CLOSED) if failed_closed else ''}</details></nav>\n"


def _indexed(one: Incident) -> str:
    link = f'<td class="code name"><a href="#line-{one.line}">{breaking(one.name)}</a></td>'
    cells = "".join((cell(_OUTCOMES[one.outcome]), *_verdict(one), cell(one.attempts), code_cell(one.error)))
    return f'<tr><th scope="row">{one.line}</th>{link}{cells}</tr>\n'


def _verdict(one: Incident) -> Iterator[str]:
    """What the answer says; without one, what the other formats say in its place, marked."""
    for name in ("risk_level", "blocked_by_policy", "requires_human_approval"):
        if one.outcome == "fallback_records":
            yield cell(f"{shown(FALLBACK_OUTPUT[name])} *", "ours")
        else:
            yield cell(getattr(one, name))


def _foot(made: Mapping[str, Any], found: Iterable[Evidence]) -> Iterator[str]:
    yield '<section id="check">\n'
    yield heading("Do the texts match the record?", 2)
    wrong = [f"position {evidence.position}: {_FAULT_WORDS[evidence.state]}" for evidence in found]
    if wrong:
        yield flag(f"{count(len(wrong), 'content')} of this page not as recorded.")
        yield f"<ul>{''.join(f'<li>{shown(one)}</li>' for one in wrong)}</ul>\n"
    else:
        yield paragraph("Each text of this page that was not erased is what its event committed to.")
    yield page.pairs(
        ("Position of the ledger", made["as_of"]["position"]), ("Root at that size", made["as_of"]["root"])
    )
    yield note(
        "This page says nothing of whether the events themselves are as they were recorded. replay-ledger verify "
        "does, and an audit bundle shows it to others."
    )
    yield "</section>\n"


_FAULT_WORDS: Final = {
    "altered": "is not what was recorded",
    "missing": "is not there, and no redaction says why",
    "undecodable": "cannot be decoded",
}


# --- a line --------------------------------------------------------------------------------


def _lines(
    store: Store,
    run_id: str,
    upto: int,
    reader: Reader,
    request_ids: Collection[str] | None,
    found: list[Evidence],
) -> Iterator[str]:
    neighbours = chosen(store, run_id, upto, request_ids)
    told = conversations(store, run_id, upto, request_ids)
    for conversation, (_, before, after) in zip(told, neighbours, strict=True):
        found.extend(conversation.faults())
        yield "".join(_line(run_id, conversation, before, after, reader))


def _line(
    run_id: str, conversation: Conversation, before: Incident | None, after: Incident | None, reader: Reader
) -> Iterator[str]:
    one = conversation.incident
    links = [
        f'<a href="#line-{before.line}">← line {before.line}</a>' if before is not None else "",
        '<a href="#index">index</a>',
        f'<a href="#line-{after.line}">line {after.line} →</a>' if after is not None else "",
    ]
    yield f'<article id="line-{one.line}" aria-labelledby="name-{one.line}">\n<header><h2 id="name-{one.line}">'
    yield f'{shown(one.name)}</h2><nav aria-label="Beside line {one.line}">'
    yield f"{' '.join(filter(None, links))}</nav></header>\n"
    wrong = [str(evidence.position) for evidence in conversation.faults()]
    if wrong:
        yield flag(f"Of this line, not as recorded: the content of position {', '.join(wrong)}.")
    yield page.pairs(("Line", one.line), *_facts(run_id, one))
    if one.incident_id is None:
        yield paragraph("Never put to the model; its text is not shown.")
    else:
        yield from _result(conversation)
        yield _timeline(conversation)
        yield from calls(conversation, reader)
    yield "</article>\n"


def _facts(run_id: str, one: Incident) -> Iterator[tuple[str, object]]:
    yield "Outcome", _OUTCOMES[one.outcome]
    if one.incident_id is None:
        yield "Refused for", one.error
        yield "Where", one.where
        return
    yield "Incident", one.incident_id
    if one.policy_id is not None:
        yield "Policy", one.policy_id
    if one.facets:
        yield "Facets", ", ".join(f"{name} {value}" for name, value in one.facets.items())
    if one.first_error is not None:
        yield "First code", one.first_error
    if one.error is not None:
        yield "Last code", one.error
    yield "In the ledger", f"replay-ledger show {run_id} {one.request_id}"


def _result(conversation: Conversation) -> Iterator[str]:
    one = conversation.incident
    yield heading("The result", 3)
    decided = next((told for told in conversation.told if told.event.position == one.decided), None)
    if decided is None:
        yield paragraph("There is none.")
    elif one.accepted:
        yield from _accepted(one, decided)
    else:
        yield paragraph(
            "No answer was accepted: this is the typed fallback, which fails closed. It is the runner's, not the "
            "model's decision."
        )
        yield _output_table(FALLBACK_OUTPUT, {name: _value(value) for name, value in FALLBACK_OUTPUT.items()})


def _accepted(one: Incident, decided: Told) -> Iterator[str]:
    evidence = decided.evidence
    yield absence(evidence, "the text of the answer")
    output = _read(evidence.body)
    if evidence.body is not None and output is None:
        yield flag(f"The answer (position {evidence.position}) is no JSON object.")
    verdict = {name: getattr(one, name) for name in ("risk_level", "requires_human_approval", "blocked_by_policy")}
    erased = f"[erased by event {evidence.redacted_by}]" if evidence.state == "erased" else None
    values = {"proposed_action": shown(erased), "action_plan": shown(erased)}
    values |= {name: _value(value) for name, value in (output or {}).items()}
    # The three that reports count are told by the event itself, whatever became of the text.
    values |= {name: _value(value) for name, value in verdict.items()}
    yield _output_table(output or {}, values)
    if one.allowances:
        yield paragraph(f"Allowances that the parser made: {', '.join(one.allowances)}.")
    if one.blocked_by_policy:
        yield note(BLOCKED)


def _output_table(output: Mapping[str, Any], values: Mapping[str, str]) -> str:
    first = ("proposed_action", "action_plan", "risk_level", "requires_human_approval", "blocked_by_policy")
    names = (*first, *(name for name in output if name not in first))
    rows = [(shown(name.replace("_", " ") if name in first else name), f"<td>{values[name]}</td>") for name in names]
    return table("output stacked", "model_output", ("field", "value"), rows)


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return shown(value)
    if value in ("", []):
        return "(empty)"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        more = len(value) - _STEPS
        left_out = (
            flag(f"{count(more, 'more step')} left out here; replay-ledger show --content has every one.")
            if more > 0
            else ""
        )
        return f"<ol>{''.join(f'<li>{_value(item)}</li>' for item in value[:_STEPS])}</ol>{left_out}"
    text = page.json_text(value)
    return page.box("The value", text) if "\n" in text or len(text) > _INLINE else page.marked(text)


def _read(body: bytes | None) -> dict[str, Any] | None:
    try:
        output = None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None
    return output if isinstance(output, dict) else None


# --- its timeline --------------------------------------------------------------------------


def _timeline(conversation: Conversation) -> str:
    heads = ("position", "recorded at", "event", "attempt", "turn", "status", "took", "then waited", "code", "content")
    rows = map(_event, conversation.told)
    return heading("Timeline", 3) + table("timeline", "Every event, in order", (*heads, "further facts"), rows)


def _event(told: Told) -> tuple[str, ...]:
    event = told.event
    if isinstance(event, Unreadable):
        cells = [cell(None), cell(event.type), *(cell(None) for _ in _COLUMNS)]
        return (
            str(event.position),
            *cells,
            _content(told.evidence),
            cell(f"unreadable: {event.reason}", "facts wrong"),
        )
    p = event.payload
    known = {name: p.get(name) for name in _COLUMNS}
    known["duration_us"] = milliseconds(p.get("duration_us"))
    known["wait_ms"] = None if p.get("wait_ms") is None else f"{p['wait_ms']:,} ms"
    facts = ", ".join(
        f"{name} {page.json_text(value)}"
        for name, value in p.items()
        if name not in _COLUMNS and value is not None and value is not False and value not in ([], {})
    )
    return (
        str(event.position),
        cell(event.recorded_at),
        cell(_EVENTS.get(event.type, event.type)),
        *(code_cell(known[name]) if name == "code" else cell(known[name]) for name in _COLUMNS),
        _content(told.evidence),
        cell(facts, "facts"),
    )


def _content(evidence: Evidence) -> str:
    match evidence.state:
        case "none":
            return cell(None)
        case "erased":
            return cell(f"erased by event {evidence.redacted_by}")
        case "altered":
            return cell("does not match", "wrong")
        case "held":
            return cell(count(len(evidence.body or b""), "byte"))
    return cell(evidence.state, "wrong")
