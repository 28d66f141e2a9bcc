"""A request's recorded events -> what today's decider would have recorded otherwise. Pure.

What came from outside is given as it was recorded: the request's line, the raw bodies of replies, the
failures of calls, and when the run was stopped by a refused key. What follows from it (what is sent,
what a reply says, whether it keeps the contract, what comes next) is made anew and compared. The first
decision that would differ ends a request's comparison, since all after it depends on it; a fact that
is only read from a reply (its tokens, its model) changes nothing after it, and the comparison goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, NoReturn

from ledger.events import Payload, RequestAccepted
from runner.codes import is_retried
from runner.contract import Accepted, Contract, judge
from runner.decide import (
    MAY_FOLLOW,
    Done,
    ImpossibleHistory,
    Past,
    RecordedRequest,
    ScanQuote,
    StartCall,
    decide,
    model_called_payload,
)
from runner.reply import KEPT_OF_FAILURE, CallFailure, Exchange, Reply, classify, status_code
from runner.requests import BadLine, ReplayRequest, parse_line
from runner.variants import Variant

Kind = Literal["request", "body", "reply", "decision", "story", "guard", "what_if"]
"""What would differ: how a line reads, what would be sent, a fact read from a reply, a decision, the
order of events, what the leak guard says, an answer's verdict under another contract."""

CUT: Final = "cut"
"""Why a request is not decided again: of a failed call's long body only the head was kept."""

FROM_OUTSIDE: Final = frozenset({"ModelCalled", "ModelCallFailed"})
STANDS_ON: Final = frozenset({"RequestAccepted", "ModelCallStarted", "ModelCalled", "OutputAccepted"})
"""The events without whose content a request cannot be decided again."""
RESULTS: Final = frozenset({"OutputAccepted", "FallbackApplied"})

_READ_FROM_REPLY: Final = (
    *("response_id", "model", "finish_reason", "system_fingerprint", "odd_metadata", "prompt_tokens"),
    *("completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens"),
)
_OF_A_BODY: Final = frozenset({"bad_envelope", "not_json_response", "no_choices", "provider_error"})
"""Failures that a body was read as, where the status was none."""
_TOLD: Final = re.compile(rb"\((?P<kind>[^(),]*), (?P<size>[0-9]+) bytes\)\Z")
"""How a failure's own words end: the content type and the size that came."""
_ANY_TEMPLATE: Final = frozenset({"OutputAccepted", "ParseFailed"})
"""What does not depend on how the candidate was prompted."""


class Recorded(NamedTuple):
    """An event of the request and its content, as recorded."""

    position: int
    type: str
    payload: Mapping[str, Any]
    content: bytes | None


class Member(NamedTuple):
    """One member that would differ. Facts and sizes only, never text of a model or a file."""

    name: str
    recorded: Any
    today: Any


class Difference(NamedTuple):
    """An event that would not be recorded so today."""

    position: int
    event: str
    kind: Kind
    members: tuple[Member, ...]


@dataclass
class Again:
    """What came of a request. ``undecided``: why it could not be decided again to its end."""

    differences: list[Difference] = field(default_factory=list)
    decisions: int = 0
    """Events made anew and compared."""
    undecided: str | None = None


# --- the request's line --------------------------------------------------------------------


def read_again(accepted: Recorded, request_id: str, variant: Variant) -> ReplayRequest | Difference:
    """The request as its line reads today, or how that differs from what was recorded of it."""
    assert accepted.content is not None
    parsed = parse_line(accepted.payload["line"], accepted.content, variant_override=variant.override)
    if isinstance(parsed, BadLine):
        return Difference(accepted.position, accepted.type, "request", refused_members(accepted.type, parsed))
    members = _unlike(accepted.payload, _accepted(parsed).facts())
    if parsed.request_id != request_id:
        members = (Member("request_id", request_id, parsed.request_id), *members)
    return Difference(accepted.position, accepted.type, "request", members) if members else parsed


def refused_members(recorded_type: str, line: BadLine) -> tuple[Member, ...]:
    """How a line that was accepted, or leaked, is a bad one today."""
    return (
        Member("type", recorded_type, "RequestRejected"),
        Member("code", None, line.code),
        Member("field", None, line.field),
    )


def _accepted(request: ReplayRequest) -> RequestAccepted:
    return RequestAccepted(
        line=request.line,
        incident_id=request.incident_id,
        policy_id=request.policy_id,
        facets=request.facets,
        system_prompt_sha256=request.system_prompt_sha256,
        contract_sha256=request.contract_sha256,
    )


# --- its calls and decisions ---------------------------------------------------------------


def decide_again(
    request: RecordedRequest,
    events: Sequence[Recorded],
    *,
    scan_quote: ScanQuote,
    stopping: Callable[[int], bool],
    same_template: bool = True,
) -> Again:
    """Feed a request's events to today's decider, one by one, and compare what it would record.

    ``events``: from ``RequestAccepted`` on, those of ``STANDS_ON`` with their content. ``stopping``:
    had the run been stopped by a refused key at that position? ``same_template`` False: the run was
    prompted by a text that is not today's, so only the verdicts on its replies are compared.
    """
    return _Walk(request, scan_quote, stopping, same_template).through(events)


class _Stop(Exception):
    """Nothing after this can be compared."""


class _Walk:
    """One request, from event to event. ``_coming``: what today's decider would record next."""

    def __init__(
        self, request: RecordedRequest, scan_quote: ScanQuote, stopping: Callable[[int], bool], same_template: bool
    ) -> None:
        self._request = request
        self._scan_quote = scan_quote
        self._stopping = stopping
        self._same_template = same_template
        self._past: list[Past] = []
        self._coming: list[tuple[Payload, bytes | None]] = []
        self._again = Again()

    def through(self, events: Sequence[Recorded]) -> Again:
        try:
            for event in events:
                self._check_order(event)
                if event.type in FROM_OUTSIDE:
                    self._hear(event)
                elif self._past:
                    self._compare(event)
                    self._past.append(Past(event.type, event.payload, event.content))
                else:
                    self._past.append(Past(event.type, event.payload, None))
        except _Stop:
            pass
        return self._again

    def _check_order(self, event: Recorded) -> None:
        before = self._past[-1].type if self._past else None
        if event.type not in MAY_FOLLOW.get(before, frozenset()):
            may = " or ".join(sorted(MAY_FOLLOW.get(before, ()))) or "nothing"
            self._differs(event, "story", Member("type", event.type, may))

    def _compare(self, event: Recorded) -> None:
        """Compare a decision with the one that would be made."""
        if not self._coming:
            self._coming = self._decided(event)
        payload, content = self._coming.pop(0)
        if not self._same_template and event.type not in _ANY_TEMPLATE:
            return
        self._again.decisions += 1
        if event.type != payload.TYPE:
            today = payload.facts()
            code = Member("code", event.payload.get("code"), today.get("code"))
            changed = (code,) if code.recorded != code.today else ()
            self._differs(event, "decision", Member("type", event.type, payload.TYPE), *changed)
        members = _unlike(event.payload, payload.facts())
        name = "output" if event.type == "OutputAccepted" else "body"
        members += _unlike_bytes(name, event.content, content)
        if members:
            self._differs(event, _kind(event.type, members), *members)

    def _decided(self, event: Recorded) -> list[tuple[Payload, bytes | None]]:
        try:
            step = decide(
                self._request, self._past, scan_quote=self._scan_quote, stopping=self._stopping(event.position)
            )
        except ImpossibleHistory as error:
            self._differs(event, "story", Member("type", event.type, str(error)))
        if isinstance(step, StartCall):
            return [(step.payload, step.body)]
        if isinstance(step, Done):
            self._differs(event, "story", Member("type", event.type, "nothing"))
        return list(step.events)

    def _hear(self, event: Recorded) -> None:
        """Take what came from outside, once it was read again."""
        called = self._past[-1].payload
        strange = _unlike({name: event.payload[name] for name in ("attempt", "turn")}, called)
        if strange:
            self._differs(event, "story", *strange)
        reply = None
        if event.type == "ModelCalled":
            reply = self._reread(event)
        else:
            self._reread_failure(event)
        self._coming.clear()
        self._past.append(Past(event.type, event.payload, event.content, reply))

    def _reread(self, event: Recorded) -> Reply:
        exchange = _exchange(event)
        reply = classify(exchange)
        if isinstance(reply, CallFailure):
            self._differs(
                event, "decision", Member("type", event.type, "ModelCallFailed"), Member("code", None, reply.code)
            )
        facts = model_called_payload(reply, exchange, event.payload["attempt"], event.payload["turn"]).facts()
        members = _unlike({name: event.payload[name] for name in _READ_FROM_REPLY}, facts)
        if members:
            self._again.differences.append(Difference(event.position, event.type, "reply", members))
        return reply

    def _reread_failure(self, event: Recorded) -> None:
        told = _failure_today(event)
        if isinstance(told, Reply):
            self._differs(
                event,
                "decision",
                Member("type", event.type, "ModelCalled"),
                Member("code", event.payload["code"], None),
            )
        if told == CUT:
            self._again.undecided = CUT
            raise _Stop
        if told != event.payload["code"]:
            self._differs(event, "decision", Member("code", event.payload["code"], told))
        if event.payload["will_retry"] and not _may_be_retried(told):
            # The other way round the request's time may have been spent, which the record does not tell.
            self._differs(event, "decision", Member("will_retry", True, False))

    def _differs(self, event: Recorded, kind: Kind, *members: Member) -> NoReturn:
        self._again.differences.append(Difference(event.position, event.type, kind, members))
        raise _Stop


def _kind(event_type: str, members: Sequence[Member]) -> Kind:
    if event_type != "ModelCallStarted":
        return "decision"
    return "guard" if any(member.name == "quote_withheld" for member in members) else "body"


def _unlike(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> tuple[Member, ...]:
    """Of the recorded members, those that would have another value."""
    return tuple(
        Member(name, value, today.get(name))
        for name, value in recorded.items()
        if name not in today or today[name] != value
    )


def _unlike_bytes(name: str, recorded: bytes | None, today: bytes | None) -> tuple[Member, ...]:
    if recorded == today or (not recorded and not today):
        return ()
    was, now = recorded or b"", today or b""
    at = next(
        (n for n, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), min(len(was), len(now))
    )
    return (Member(name, f"{len(was)} bytes", f"{len(now)} bytes, other from byte {at + 1} on"),)


# --- what came from outside ----------------------------------------------------------------


def _exchange(event: Recorded) -> Exchange:
    payload = event.payload
    return Exchange(
        http_status=payload["http_status"],
        body=event.content or b"",
        body_bytes=payload["body_bytes"],
        truncated=payload["body_truncated"],
        content_type=None,
        retry_after_ms=None,
        duration_us=payload["duration_us"],
        scrubbed=payload["scrubbed"],
    )


def _failure_today(event: Recorded) -> Reply | str:
    """The code that a failed call would have today, or the reply that it would be; ``CUT`` where too little is left."""
    payload = event.payload
    code, status = str(payload["code"]), payload["http_status"]
    by_status = status_code(status)
    if by_status is not None:
        return by_status
    if code not in _OF_A_BODY or event.content is None:
        return code
    words, _, body = event.content.partition(b"\n\n")
    told = _TOLD.search(words)
    kind = told["kind"].decode("ascii", "replace") if told else None
    cut = len(body) >= KEPT_OF_FAILURE
    size = int(told["size"]) if told else len(body)
    outcome = classify(Exchange(status, body, size, cut, kind, None, payload["duration_us"] or 0, 0))
    found = outcome.code if isinstance(outcome, CallFailure) else None
    if cut and found != code:
        return CUT
    return found if found is not None else Reply(content=None)


def _may_be_retried(code: str) -> bool:
    """Closed by a resume, a call is tried again whatever its code says."""
    try:
        return code == "outcome_unknown" or is_retried(code)
    except LookupError:
        return True


# --- what if the contract were another -----------------------------------------------------

WhatIf = Literal["accept", "refuse", "ask_again", "no_reply"]


@dataclass
class Judged:
    """A request's replies under another contract."""

    outcome: WhatIf = "no_reply"
    differences: list[Difference] = field(default_factory=list)
    undecided: str | None = None


def judge_again(events: Sequence[Recorded], contract: Contract, turns: int) -> Judged:
    """Hold a request's recorded replies against another contract.

    The first that keeps it is the result. Where none does and a turn is left whose answer nobody
    knows, the model would be asked again. Differences are answers accepted for refused, or the reverse.
    """
    judged = Judged()
    for reply, decision in _decided_replies(events):
        read = classify(_exchange(reply))
        if isinstance(read, CallFailure):
            judged.undecided = read.code
            return judged
        verdict = judge(read, contract)
        accepted = isinstance(verdict, Accepted)
        judged.outcome = "accept" if accepted else "refuse" if reply.payload["turn"] >= turns else "ask_again"
        if decision is not None and accepted != (decision.type == "OutputAccepted"):
            judged.differences.append(_flip(decision, None if isinstance(verdict, Accepted) else verdict.code))
        if accepted:
            break
    return judged


def _decided_replies(events: Sequence[Recorded]) -> Iterator[tuple[Recorded, Recorded | None]]:
    for n, event in enumerate(events):
        if event.type == "ModelCalled":
            after = events[n + 1] if n + 1 < len(events) else None
            yield event, after if after is not None and after.type in _ANY_TEMPLATE else None


def _flip(decision: Recorded, code: str | None) -> Difference:
    now = "OutputAccepted" if code is None else "ParseFailed"
    members = (Member("type", decision.type, now), Member("code", decision.payload.get("code"), code))
    return Difference(decision.position, decision.type, "what_if", members)
