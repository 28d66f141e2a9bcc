"""A request and its events so far -> what comes next. Pure: no clock, network, database, chance.

A request's life, by the type of its last event (``STEPS`` and ``MAY_FOLLOW`` are this drawing)::

    RequestAccepted --> call (turn 1)
    ModelCallStarted -> open: its outcome is not known here
    ModelCallFailed --> call again (same turn) | FallbackApplied
    ModelCalled ------> OutputAccepted | ParseFailed, then Retried or FallbackApplied
    ParseFailed ------> Retried | FallbackApplied
    Retried ----------> call (next turn)
    OutputAccepted ---> done
    FallbackApplied --> done

Attempts are numbered over the request; a turn has up to ``max_attempts`` of them. Once the run has
been stopped by a refused key, whatever would need another call gets the fallback ``not_sent``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from ledger.events import (
    FallbackApplied,
    ModelCalled,
    ModelCallFailed,
    ModelCallStarted,
    OutputAccepted,
    ParseFailed,
    Payload,
    Retried,
)
from runner import sent_json
from runner.contract import Accepted, judge
from runner.prompts import first_body, retry_body
from runner.reply import CallFailure, Exchange, Reply, classify
from runner.requests import ReplayRequest
from runner.settings import RunSettings
from runner.variants import Variant

BACKOFF_BASE_SECONDS: Final = 0.5
BACKOFF_CAP_SECONDS: Final = 20.0
NOT_SENT: Final = "not_sent"

MAY_FOLLOW: Final[Mapping[str | None, frozenset[str]]] = {
    None: frozenset({"RequestAccepted"}),
    "RequestAccepted": frozenset({"ModelCallStarted", "FallbackApplied"}),
    "ModelCallStarted": frozenset({"ModelCalled", "ModelCallFailed"}),
    "ModelCallFailed": frozenset({"ModelCallStarted", "FallbackApplied"}),
    "ModelCalled": frozenset({"OutputAccepted", "ParseFailed"}),
    "ParseFailed": frozenset({"Retried", "FallbackApplied"}),
    "Retried": frozenset({"ModelCallStarted", "FallbackApplied"}),
    "OutputAccepted": frozenset(),
    "FallbackApplied": frozenset(),
}
"""Which event of a request may follow which."""


class Past(NamedTuple):
    """An event of the request. ``content`` is the raw body of a ``ModelCalled`` and else not looked at.

    ``reply`` is what that body says, where its reader still has it; None has it read again.
    """

    type: str
    payload: Mapping[str, Any]
    content: bytes | None
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as the ledger has it, and how its run puts it."""

    request_id: str
    request: ReplayRequest
    variant: Variant
    model: str
    settings: RunSettings


@dataclass(frozen=True, slots=True)
class StartCall:
    """Record the intent, wait, send ``body``."""

    payload: ModelCallStarted
    body: bytes
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Record:
    """Append these, each with its content."""

    events: tuple[tuple[Payload, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The request has its result."""


Step = StartCall | Record | Done
ScanQuote = Callable[[bytes], bool]
"""Does a body that quotes an answer hold evaluation labels?"""


class ImpossibleHistory(ValueError):
    """A request's events do not tell a story that this program writes, or its evidence is gone."""


def decide(recorded: RecordedRequest, past: Sequence[Past], *, scan_quote: ScanQuote, stopping: bool = False) -> Step:
    """The next step of a request.

    ``past``: the request's own events since its ``RequestAccepted``, that one first. ``stopping``: the
    run was stopped by a refused key. Raises ``ImpossibleHistory``.
    """
    _check_order(past)
    return STEPS[past[-1].type](_Story(recorded, past, scan_quote, stopping))


def _check_order(past: Sequence[Past]) -> None:
    before: str | None = None
    for event in past:
        if event.type not in MAY_FOLLOW[before]:
            raise ImpossibleHistory(f"{event.type} cannot follow {before or 'nothing'}")
        before = event.type
    if before is None:
        raise ImpossibleHistory("no event of this request")


@dataclass(frozen=True, slots=True)
class _Story:
    """What a step knows."""

    recorded: RecordedRequest
    past: Sequence[Past]
    scan_quote: ScanQuote
    stopping: bool

    @property
    def last(self) -> Past:
        return self.past[-1]

    @property
    def turn(self) -> Literal[1, 2]:
        """The turn that is on."""
        return 2 if any(event.type == "Retried" for event in self.past) else 1

    def attempts(self) -> int:
        """Calls so far, over all turns."""
        return sum(event.type == "ModelCallStarted" for event in self.past)

    def attempts_in_turn(self) -> int:
        turn = self.turn
        return sum(event.type == "ModelCallStarted" and event.payload["turn"] == turn for event in self.past)


def _call(story: _Story) -> Step:
    if story.stopping:
        return _not_sent()
    body, withheld = _body(story)
    wait_ms = story.last.payload["wait_ms"] if story.last.type == "ModelCallFailed" else None
    payload = ModelCallStarted(
        attempt=story.attempts() + 1, turn=story.turn, body_bytes=len(body), quote_withheld=withheld
    )
    return StartCall(payload, body, wait_ms or 0)


def _body(story: _Story) -> tuple[bytes, bool]:
    """``(body, quote_withheld)`` of the turn that is on."""
    recorded = story.recorded
    how = (recorded.request, recorded.variant, recorded.model, recorded.settings)
    if story.turn == 1:
        return first_body(*how), False
    first_turn = [event for event in story.past if event.type == "ModelCalled" and event.payload["turn"] == 1]
    reply = recorded_reply(first_turn[-1])
    broken = judge(reply, recorded.request.contract)
    if isinstance(broken, Accepted):
        raise ImpossibleHistory("an answer that keeps the contract was tried again")
    body = retry_body(*how, broken, reply.content)
    if reply.content and story.scan_quote(body):
        return retry_body(*how, broken, None), True
    return body, False


def _after_failure(story: _Story) -> Step:
    failed = story.last.payload
    # The plan was made when the call failed; the bound is looked at again, so that no record whatever
    # makes a request go on without end.
    if failed["will_retry"] and story.attempts_in_turn() < story.recorded.settings.max_attempts:
        return _call(story)
    return Record(((FallbackApplied(code=failed["code"], turn=failed["turn"]), None),))


def _after_reply(story: _Story) -> Step:
    verdict = judge(recorded_reply(story.last), story.recorded.request.contract)
    if isinstance(verdict, Accepted):
        output = verdict.output
        accepted = OutputAccepted(
            turn=story.turn,
            risk_level=output["risk_level"],
            requires_human_approval=output["requires_human_approval"],
            blocked_by_policy=output["blocked_by_policy"],
            allowances=list(verdict.allowances),
        )
        return Record(((accepted, sent_json.encode(output)),))
    failed = ParseFailed(turn=story.turn, code=verdict.code, fields=list(verdict.fields))
    return Record(((failed, None), *_after_broken_answer(story, verdict.code)))


def _after_parse_failed(story: _Story) -> Step:
    return Record(_after_broken_answer(story, story.last.payload["code"]))


def _after_broken_answer(story: _Story, code: str) -> tuple[tuple[Payload, None], ...]:
    if story.turn >= story.recorded.variant.turns:
        return ((FallbackApplied(code=code, turn=story.turn), None),)
    if story.stopping:
        return ((FallbackApplied(code=NOT_SENT, turn=None), None),)
    return ((Retried(turn=2, code=code), None),)


def _not_sent() -> Record:
    return Record(((FallbackApplied(code=NOT_SENT, turn=None), None),))


def _open(story: _Story) -> Step:
    raise ImpossibleHistory(f"attempt {story.attempts()} is still open: close it first")


def _done(story: _Story) -> Step:
    return Done()


STEPS: Final[Mapping[str, Callable[[_Story], Step]]] = {
    "RequestAccepted": _call,
    "ModelCallStarted": _open,
    "ModelCallFailed": _after_failure,
    "ModelCalled": _after_reply,
    "ParseFailed": _after_parse_failed,
    "Retried": _call,
    "OutputAccepted": _done,
    "FallbackApplied": _done,
}
"""The step after each type of event."""


# --- between a call and its event ----------------------------------------------------------


class RetryPlan(NamedTuple):
    """``wait_ms`` is null where there is no retry."""

    will_retry: bool
    wait_ms: int | None


def plan_retry(
    failure: CallFailure, *, attempts_in_turn: int, settings: RunSettings, elapsed_seconds: float, jitter: float
) -> RetryPlan:
    """Is a failed attempt made again, and after how long?

    The server's own wait is honoured where it gives one; else the wait doubles from half a second up to
    twenty, and ``jitter`` (0 to 1) takes up to half of it away, so that callers do not return in step.
    ``elapsed_seconds`` since the request's first call; a wait that its budget does not hold is no retry.
    """
    if not failure.retryable or attempts_in_turn >= settings.max_attempts:
        return RetryPlan(False, None)
    if failure.retry_after_ms is not None:
        wait_ms = failure.retry_after_ms
    else:
        whole = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2 ** min(attempts_in_turn - 1, 10))
        wait_ms = round(whole * (1 - jitter / 2) * 1000)
    if elapsed_seconds + wait_ms / 1000 >= settings.request_seconds:
        return RetryPlan(False, None)
    return RetryPlan(True, wait_ms)


def call_failed_payload(
    failure: CallFailure, attempt: int, turn: Literal[1, 2], will_retry: bool, wait_ms: int | None
) -> tuple[ModelCallFailed, bytes]:
    """The event of a failed attempt and its content."""
    payload = ModelCallFailed(
        attempt=attempt,
        turn=turn,
        code=failure.code,
        http_status=failure.http_status,
        retry_after_ms=failure.retry_after_ms,
        wait_ms=wait_ms,
        will_retry=will_retry,
        outcome_unknown=failure.outcome_unknown,
        duration_us=failure.duration_us,
    )
    return payload, failure.content


def model_called_payload(reply: Reply, exchange: Exchange, attempt: int, turn: Literal[1, 2]) -> ModelCalled:
    """The event of a reply. Its content is ``exchange.body``."""
    return ModelCalled(
        attempt=attempt,
        turn=turn,
        http_status=exchange.http_status,
        response_id=reply.response_id,
        model=reply.model,
        finish_reason=reply.finish_reason,
        system_fingerprint=reply.system_fingerprint,
        odd_metadata=reply.odd_metadata,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        total_tokens=reply.total_tokens,
        cached_tokens=reply.cached_tokens,
        reasoning_tokens=reply.reasoning_tokens,
        body_bytes=exchange.body_bytes,
        body_truncated=exchange.truncated,
        scrubbed=exchange.scrubbed,
        duration_us=exchange.duration_us,
    )


def recorded_reply(called: Past) -> Reply:
    """The reply of a recorded ``ModelCalled``, read again from its body.

    Raises ``ImpossibleHistory`` where the body is gone (redacted) or is no reply.
    """
    if called.reply is not None:
        return called.reply
    if called.content is None:
        raise ImpossibleHistory("the body of a reply is no longer there")
    payload = called.payload
    exchange = Exchange(
        http_status=payload["http_status"],
        body=called.content,
        body_bytes=payload["body_bytes"],
        truncated=payload["body_truncated"],
        content_type=None,
        retry_after_ms=None,
        duration_us=payload["duration_us"],
        scrubbed=payload["scrubbed"],
    )
    reply = classify(exchange)
    if isinstance(reply, CallFailure):
        raise ImpossibleHistory(f"a recorded reply reads as {reply.code}")
    return reply
