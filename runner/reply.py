"""What came back from one HTTP exchange: a reply to decide on, or a failed call.

Status before body, body before anything in it. A reply's envelope is read strictly but for the text
inside it, which ``contract`` judges; text of others enters a payload only where it is short, plain
and holds no key. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ledger.events import FOREIGN_TEXT_PATTERN
from runner.codes import is_retried
from runner.scrub import looks_like_key
from runner.strict_json import StrictJsonError, loads

MAX_COUNT: Final = 2**53 - 1
KEPT_OF_FAILURE: Final = 64 * 1024
"""Bytes of a failed call's body that are kept as content."""

TransportCode = Literal["transport_connect", "transport_timeout", "transport_cut"]

_FOREIGN_TEXT: Final = re.compile(FOREIGN_TEXT_PATTERN)
_HTML: Final = re.compile(rb"[ \t\r\n]*<")
_EVENT_STREAM: Final = re.compile(rb"[ \t\r\n]*(?:data|event|id|retry)?:")
_PLAIN_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}\Z")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A whole HTTP answer, its keys scrubbed.

    ``body_bytes`` counts what came; ``body`` is that, or its first 64 KiB where ``truncated`` says
    that the ceiling was met. ``http_status`` is null where a caller's client does not tell.
    """

    http_status: int | None
    body: bytes
    body_bytes: int
    truncated: bool
    content_type: str | None
    retry_after_ms: int | None
    duration_us: int
    scrubbed: int


@dataclass(frozen=True, slots=True)
class TransportFault:
    """No whole answer came. ``outcome_unknown``: the request may have been sent."""

    code: TransportCode
    outcome_unknown: bool
    detail: str
    duration_us: int
    scrubbed: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to decide on. The first seven members are for ``contract.judge``, the rest are facts.

    ``content`` is the message's text, or the text parts of a list joined; null where there is none.
    ``stop_reason`` is the finish reason as given, ``finish_reason`` as it may be recorded.
    ``choices`` counts the answers in the reply; only one was asked for.
    """

    content: str | None
    parts_joined: bool = False
    stop_reason: str | None = None
    refused: bool = False
    tool_call: bool = False
    oversized: bool = False
    choices: int = 1
    response_id: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    system_fingerprint: str | None = None
    odd_metadata: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CallFailure:
    """An attempt that gave nothing to decide on. ``detail`` is for people and holds no foreign text
    but what the transport said; ``body`` is what came, scrubbed."""

    code: str
    http_status: int | None
    retry_after_ms: int | None
    retryable: bool
    stops_run: bool
    outcome_unknown: bool
    duration_us: int | None
    detail: str
    body: bytes = b""

    @property
    def content(self) -> bytes:
        """What is kept as the event's content: the error text, a blank line, the body's head."""
        text = self.detail.encode("utf-8", "backslashreplace")
        return text + b"\n\n" + self.body[:KEPT_OF_FAILURE] if self.body else text


class _Odd(Exception):
    """The envelope is no chat completion. Holds the code and what is wrong, in our words."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


def classify(outcome: Exchange | TransportFault) -> Reply | CallFailure:
    """What an attempt came to. Total: any bytes give one or the other."""
    if isinstance(outcome, TransportFault):
        return CallFailure(
            code=outcome.code,
            http_status=None,
            retry_after_ms=None,
            retryable=is_retried(outcome.code),
            stops_run=False,
            outcome_unknown=outcome.outcome_unknown,
            duration_us=outcome.duration_us,
            detail=outcome.detail,
        )
    code = status_code(outcome.http_status)
    if code is not None:
        return _failure(outcome, code, f"HTTP status {outcome.http_status}")
    try:
        return _read_body(outcome)
    except _Odd as odd:
        return _failure(outcome, odd.code, odd.detail)


def status_code(status: int | None) -> str | None:
    """The error code of an HTTP status; None for 200 and where no status is known."""
    if status is None or status == 200:
        return None
    if status in (401, 403):
        return "auth_error"
    if status == 429:
        return "rate_limited"
    return "unexpected_redirect" if 300 <= status <= 399 else f"http_{status}"


def _failure(exchange: Exchange, code: str, detail: str) -> CallFailure:
    kind = (exchange.content_type or "").partition(";")[0].strip().lower()
    told = kind if _PLAIN_TYPE.match(kind) else "no plain content type"
    return CallFailure(
        code=code,
        http_status=exchange.http_status,
        retry_after_ms=exchange.retry_after_ms,
        retryable=is_retried(code),
        stops_run=code == "auth_error",
        outcome_unknown=False,
        duration_us=exchange.duration_us,
        detail=f"{code}: {detail} ({told}, {exchange.body_bytes} bytes)",
        body=exchange.body,
    )


def _read_body(exchange: Exchange) -> Reply:
    if exchange.truncated:
        if _other_format(exchange):
            raise _Odd("not_json_response", "HTML or an event stream instead of JSON")
        return Reply(content=None, oversized=True)
    try:
        envelope = loads(exchange.body.removeprefix(_BOM), any_text=True)
    except StrictJsonError as error:
        if _other_format(exchange):
            raise _Odd("not_json_response", "HTML or an event stream instead of JSON") from None
        raise _Odd("bad_envelope", error.code) from None
    if not isinstance(envelope, dict):
        raise _Odd("bad_envelope", "the body is not a JSON object")
    return _read_envelope(envelope)


def _other_format(exchange: Exchange) -> bool:
    """HTML or an event stream, by its name or by its looks. Asked only of what is not JSON."""
    kind = (exchange.content_type or "").partition(";")[0].strip().lower()
    named = kind in ("text/html", "application/xhtml+xml", "text/event-stream")
    return named or bool(_HTML.match(exchange.body) or _EVENT_STREAM.match(exchange.body))


def _read_envelope(envelope: Mapping[str, Any]) -> Reply:
    if envelope.get("error"):
        raise _Odd("provider_error", "an error object inside the reply")
    choices = envelope.get("choices")
    if choices is None or choices == []:
        raise _Odd("no_choices", "the reply holds no choices")
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise _Odd("bad_envelope", "choices is not a list of objects")
    choice: dict[str, Any] = choices[0]
    if choice.get("error"):
        raise _Odd("provider_error", "an error object inside the choice")
    message = choice.get("message")
    if not isinstance(message, dict):
        raise _Odd("bad_envelope", "the choice holds no message object")
    return _read_message(envelope, choice, message, len(choices))


def _read_message(
    envelope: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any], choices: int
) -> Reply:
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise _Odd("bad_envelope", "the message's content is neither text nor a list of parts")
    parts = content if isinstance(content, list) else []
    stop_reason = choice.get("finish_reason")
    foreign = (envelope.get("id"), envelope.get("model"), stop_reason, envelope.get("system_fingerprint"))
    response_id, model, finish_reason, fingerprint = recorded = [foreign_text(text) for text in foreign]
    usage = envelope.get("usage")
    return Reply(
        content=content if isinstance(content, str) else _joined_text(parts),
        parts_joined=isinstance(content, list),
        stop_reason=stop_reason if isinstance(stop_reason, str) else None,
        refused=bool(message.get("refusal")) or any(_member(part, "type") == "refusal" for part in parts),
        tool_call=bool(message.get("tool_calls") or message.get("function_call")),
        choices=choices,
        response_id=response_id,
        model=model,
        finish_reason=finish_reason,
        system_fingerprint=fingerprint,
        odd_metadata=any(kept is None and given is not None for kept, given in zip(recorded, foreign, strict=True)),
        prompt_tokens=_count(_member(usage, "prompt_tokens")),
        completion_tokens=_count(_member(usage, "completion_tokens")),
        total_tokens=_count(_member(usage, "total_tokens")),
        cached_tokens=_count(_member(_member(usage, "prompt_tokens_details"), "cached_tokens")),
        reasoning_tokens=_count(_member(_member(usage, "completion_tokens_details"), "reasoning_tokens")),
    )


def _joined_text(parts: Sequence[Any]) -> str | None:
    """The text parts, joined. Thinking and unknown parts are never a piece of the answer."""
    texts = [part.get("text") for part in parts if _member(part, "type") == "text"]
    strings = [text for text in texts if isinstance(text, str)]
    return "".join(strings) if strings else None


def foreign_text(value: Any) -> str | None:
    """Text that others sent, where it may enter a payload; else None."""
    if isinstance(value, str) and _FOREIGN_TEXT.match(value) and not looks_like_key(value):
        return value
    return None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _count(value: Any) -> int | None:
    """A non-negative integer as reported, else unknown. True is not 1, and unknown is never 0."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    return None
