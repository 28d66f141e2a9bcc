"""A request's calls: each prompt beside what came back, and the contract's fields one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ledger.events import Event
from ledger.projections.conversations import Answer, AskedField, Conversation, Evidence, Reader, Told
from ledger.render.page import shown
from ledger.render.results_html_page import (
    absence,
    cell,
    count,
    heading,
    json_text,
    marked,
    milliseconds,
    note,
    paragraph,
    table,
    text_box,
    text_of,
)

_LONGEST_VALUE: Final = 500
_TOKENS: Final = ("prompt", "completion", "cached", "reasoning")
_ROLES: Final = {"system": "System message", "user": "User message", "assistant": "Assistant message"}


def calls(conversation: Conversation, reader: Reader) -> Iterator[str]:
    """Every attempt in order, and after each reply what the contract made of it."""
    return _Calls(conversation, reader).pieces()


class _Sent(NamedTuple):
    """A body that the page shows, to tell a later one by."""

    attempt: int
    body: bytes
    messages: Sequence[tuple[str, str]]


class _Calls:
    def __init__(self, conversation: Conversation, reader: Reader) -> None:
        self._conversation = conversation
        self._reader = reader
        self._asked, self._unasked = self._contract()
        self._before: _Sent | None = None
        self._answer: Answer | None = None

    def _contract(self) -> tuple[Sequence[AskedField], str]:
        """What the request's contract asks, or why that is not known."""
        for event, evidence in self._conversation.told:
            if isinstance(event, Event) and event.type == "RequestAccepted":
                if evidence.body is None:
                    return (), absence(evidence, "the request's line with its contract")
                asked = self._reader.asked(event.payload, evidence.body)
                # An altered line is told of already, where it stands in the timeline.
                return asked, "" if asked else note("What the contract asked cannot be read from the request's line.")
        return (), note("What the contract asked is not known: the request's first event cannot be read.")

    def pieces(self) -> Iterator[str]:
        started: Told | None = None
        for told in self._conversation.told:
            event = told.event
            if not isinstance(event, Event):
                continue
            match event.type:
                case "ModelCallStarted":
                    if started is not None:
                        yield self._exchange(started, None)
                    started = told
                case "ModelCalled" | "ModelCallFailed":
                    yield self._exchange(started, told)
                    started = None
                case "ParseFailed" | "OutputAccepted":
                    yield self._check(event, told.evidence)
                case "Retried":
                    yield heading("The corrective turn", 3)
                    yield paragraph(f"Asked once more, told what was wrong: {event.payload['code']}.")
        if started is not None:
            yield self._exchange(started, None)

    # --- one attempt -----------------------------------------------------------------------

    def _exchange(self, started: Told | None, ended: Told | None) -> str:
        known = ended if started is None else started
        assert known is not None
        assert isinstance(known.event, Event)
        p = known.event.payload
        title = heading(f"Attempt {p['attempt']}, turn {p['turn']}", 3)
        left = "".join(self._sent(started)) if started is not None else note("The event of its start cannot be read.")
        if ended is None:
            right = paragraph("No outcome of this attempt is on record.")
        else:
            right = "".join(self._came_back(ended))
        return (
            f'{title}<div class="exchange"><div class="side"><h4>Sent</h4>\n{left}</div>\n'
            f'<div class="side"><h4>Came back</h4>\n{right}</div></div>\n'
        )

    def _sent(self, started: Told) -> Iterator[str]:
        assert isinstance(started.event, Event)
        p, evidence = started.event.payload, started.evidence
        yield absence(evidence, f"the body sent in attempt {p['attempt']}")
        if evidence.body is None:
            return
        if p["quote_withheld"]:
            yield note("The answer is not quoted in it: it held what looks like evaluation labels.")
        before = self._before
        if before is not None and before.body == evidence.body:
            yield paragraph(f"The same body as in attempt {before.attempt}, byte for byte.")
            return
        messages, settings = _read_body(evidence.body)
        if messages is None:
            yield text_box("The body, which cannot be read as messages", text_of(evidence.body))
            return
        earlier = () if before is None else before.messages
        for number, (role, text) in enumerate(messages):
            same_place = earlier[number] if number < len(earlier) else None
            yield from _message(role, text, same_place, before.attempt if before is not None else 0)
        yield note(f"Beside the messages: {settings}.")
        self._before = _Sent(p["attempt"], evidence.body, messages)

    def _came_back(self, ended: Told) -> Iterator[str]:
        assert isinstance(ended.event, Event)
        p, evidence = ended.event.payload, ended.evidence
        yield paragraph(_told_of(ended.event))
        yield absence(evidence, f"what came back in attempt {p['attempt']}")
        self._answer = None
        if evidence.body is None:
            return
        body = text_of(evidence.body)
        if ended.event.type == "ModelCallFailed":
            yield text_box("What is known of it", body) if body else ""
            return
        self._answer = self._reader.answered(p, evidence.body)
        if self._answer.text is None:
            yield paragraph("There is no text in the reply.")
        else:
            yield text_box("The answer's text, as it came", self._answer.text)
        cut = f", the first of {p['body_bytes']:,} bytes" if p["body_truncated"] else ""
        yield text_box(f"The whole body, as it came{cut}", body, closed=self._answer.text is not None)

    # --- the contract ----------------------------------------------------------------------

    def _check(self, event: Event, evidence: Evidence) -> str:
        accepted = event.type == "OutputAccepted"
        given = _object(evidence.body) if accepted else self._answer.fields if self._answer is not None else None
        rows = [
            (shown(name), cell(words), f"<td>{value}</td>", cell(verdict, _class_of(verdict)))
            for name, words, value, verdict in _verdicts(self._asked, event, given)
        ]
        code = "kept" if accepted else f"broken: {event.payload['code']}"
        caption = f"The contract, turn {event.payload['turn']}: {code} (recorded at position {event.position})"
        held = table("fields stacked", caption, ("field", "asked", "given", "verdict"), rows) if rows else ""
        if accepted and not rows:
            held = paragraph(f"{caption}.")
        return f"{heading('The contract, field by field', 3)}{self._unasked}{held}"


def _message(role: str, text: str, earlier: tuple[str, str] | None, attempt: int) -> Iterator[str]:
    label = _ROLES.get(role, f"Message of {role}")
    if earlier == (role, text):
        yield paragraph(f"{label}: the same as in attempt {attempt}.")
    elif earlier is not None and earlier[0] == role and earlier[1] and text.startswith(earlier[1]):
        yield paragraph(f"{label}: first, the same as in attempt {attempt} ({count(len(earlier[1]), 'character')}).")
        yield text_box("Then, added to it", text[len(earlier[1]) :])
    else:
        yield text_box(label, text)


def _told_of(event: Event) -> str:
    """How the attempt ended, in a line."""
    p = event.payload
    status = "no HTTP status" if p["http_status"] is None else f"HTTP {p['http_status']}"
    took = "after an unknown time" if p["duration_us"] is None else f"after {milliseconds(p['duration_us'])}"
    if event.type == "ModelCallFailed":
        unknown = "; the model may have been asked" if p["outcome_unknown"] else ""
        again = f"; tried again after {p['wait_ms'] or 0:,} ms" if p["will_retry"] else "; not tried again"
        return f"Failed: {p['code']}, {status}, {took}{unknown}{again}."
    tokens = ", ".join(f"{kind} {p[f'{kind}_tokens']:,}" for kind in _TOKENS if p[f"{kind}_tokens"] is not None)
    facts = [
        f"{status} {took}",
        f"finish reason {p['finish_reason'] or 'not given'}",
        f"by {p['model'] or 'a model that it does not name'}",
        f"tokens: {tokens}" if tokens else "tokens not given",
    ]
    if p["scrubbed"]:
        facts.append(f"{count(p['scrubbed'], 'secret')} scrubbed from it")
    return "; ".join(facts) + "."


def _read_body(body: bytes) -> tuple[list[tuple[str, str]] | None, str]:
    """(role and text of each message, the other members in words); None where it does not read so."""
    sent = _object(body)
    messages = None if sent is None else sent.pop("messages", None)
    if sent is None or not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return None, ""
    told = ", ".join(f"{name} {json_text(value)}" for name, value in sent.items())
    return [(json_text(one.get("role")), json_text(one.get("content"))) for one in messages], told or "nothing"


def _object(body: bytes | None) -> dict[str, Any] | None:
    try:
        value = None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# --- the verdict, as recorded --------------------------------------------------------------

OK: Final = "ok"
MISSING: Final = "missing"
INVALID: Final = "invalid"
_LEFT_OUT: Final = "not given (optional)"
_UNCHECKED: Final = "not looked at"
_MISSING_CODE: Final = "model_output_missing_fields"
_INVALID_CODE: Final = "model_output_invalid_fields"
_WHOLE: Final = "*"
"""Among the fields at fault, a rule about the object as a whole."""


def _verdicts(
    asked: Sequence[AskedField], event: Event, given: Mapping[str, Any] | None
) -> Iterator[tuple[str, str, str, str]]:
    """Field, what was asked, what was given (HTML already), the verdict that the event holds."""
    faults = () if event.type == "OutputAccepted" else tuple(event.payload["fields"])
    for field in asked:
        present = given is not None and field.name in given
        words = field.words if field.required else f"{field.words} (optional)"
        value = _given(given[field.name]) if given is not None and present else "-"
        yield field.name, words, value, _verdict(field, event, faults, None if given is None else present)
    known = {field.name for field in asked}
    for name in faults:
        if name not in known:
            label = "the object as a whole" if name == _WHOLE else name
            yield label, "which fields may stand together" if name == _WHOLE else "-", "-", _fault(event)


def _fault(event: Event) -> str:
    return MISSING if event.payload["code"].startswith(_MISSING_CODE) else INVALID


def _verdict(field: AskedField, event: Event, faults: Sequence[str], present: bool | None) -> str:
    """``present``: None where what was given is not known."""
    left_out = present is False and not field.required
    if event.type == "OutputAccepted":
        return _LEFT_OUT if left_out else OK
    if field.name in faults:
        return _fault(event)
    if event.payload["code"].startswith(_INVALID_CODE):
        return _LEFT_OUT if left_out else OK
    if event.payload["code"].startswith(_MISSING_CODE):
        # Values are looked at only once nothing is missing.
        return _LEFT_OUT if left_out else f"given, {_UNCHECKED}"
    return _UNCHECKED


def _class_of(verdict: str) -> str:
    return {OK: "ok", MISSING: "wrong", INVALID: "wrong"}.get(verdict, "")


def _given(value: Any) -> str:
    """As JSON, so that a text is told from the number or the flag that it looks like; HTML already."""
    text = f'"{value}"' if isinstance(value, str) else json_text(value)
    more = len(text) - _LONGEST_VALUE
    return marked(text[:_LONGEST_VALUE]) + (f"... [{count(more, 'more character')}]" if more > 0 else "")
