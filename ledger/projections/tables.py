"""The projection tables: which rows an event changes. Pure; a few statement shapes, declared once.

``fold`` runs for every event appended, inside the append's own transaction, and again for every
event in a rebuild, so it is a lookup in a dict and a tuple: nothing is compared, nothing is read.
It touches only rows keyed by the event's own run and request, and never stores content.

Values: times as RFC 3339 text, booleans as bools, lists and objects as canonical JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final

import orjson

from ledger.events import Event
from ledger.store.changes import Change, RowChange

NAME: Final = "tables"
VERSION: Final = 1

_RUN: Final = ("run_id",)
_REQUEST: Final = ("run_id", "request_id")
_CALL: Final = ("run_id", "request_id", "attempt")
_POSITION: Final = ("position",)

# --- runs ----------------------------------------------------------------------------------

CLEAR_RUN: Final = tuple(Change("delete", table, _RUN) for table in ("runs", "requests", "model_calls", "failures"))
START_RUN: Final = Change(
    "insert",
    "runs",
    _RUN,
    (
        *("state", "candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint"),
        *("template_version", "leak_rules_version", "software_version", "actor", "settings", "tags"),
        *("failures", "started_at", "started_position"),
    ),
)
FINISH_INTAKE: Final = Change("update", "runs", _RUN, ("lines", "input_sha256"))
END_RUN: Final = Change("update", "runs", _RUN, ("state", "ended_at", "ended_position"))
BLOCK_RUN: Final = Change("update", "runs", _RUN, ("state", "failures", "ended_at", "ended_position"))

# --- requests ------------------------------------------------------------------------------

ACCEPT_REQUEST: Final = Change(
    "insert",
    "requests",
    _REQUEST,
    (*("line", "incident_id", "policy_id", "facets", "accepted_position", "accepted_at"), "outcome_unknown"),
)
NOTE_ERROR: Final = Change("update", "requests", _REQUEST, ("error",), ("first_error",))
NOTE_UNKNOWN: Final = Change("update", "requests", _REQUEST, ("error", "outcome_unknown"), ("first_error",))
_RESULT: Final = (
    *("outcome", "error", "turn", "risk_level", "requires_human_approval", "blocked_by_policy"),
    *("allowances", "decided_position", "decided_at"),
)
ACCEPT_OUTPUT: Final = Change("update", "requests", _REQUEST, _RESULT)
APPLY_FALLBACK: Final = Change("update", "requests", _REQUEST, _RESULT, ("first_error",))

# --- model calls ---------------------------------------------------------------------------

START_CALL: Final = Change(
    "insert", "model_calls", _CALL, ("turn", "state", "started_position", "started_at", "sent_bytes", "quote_withheld")
)
FAIL_CALL: Final = Change(
    "update",
    "model_calls",
    _CALL,
    (
        *("state", "finished_position", "finished_at", "code", "http_status", "retry_after_ms", "wait_ms"),
        *("will_retry", "outcome_unknown", "duration_us"),
    ),
)
_REPLY_FACTS: Final = (
    *("http_status", "response_id", "model", "finish_reason", "system_fingerprint", "odd_metadata"),
    *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens"),
    *("body_bytes", "body_truncated", "scrubbed", "duration_us"),
)
_reply_facts: Final = itemgetter(*_REPLY_FACTS)
ANSWER_CALL: Final = Change(
    "update",
    "model_calls",
    _CALL,
    (
        *("state", "finished_position", "finished_at"),
        *("reply_bytes" if fact == "body_bytes" else fact for fact in _REPLY_FACTS),
    ),
)

# --- failures and reports ------------------------------------------------------------------

ADD_FAILURE: Final = Change(
    "insert",
    "failures",
    _POSITION,
    ("run_id", "request_id", "type", "code", "line", "turn", "attempt", "detail", "recorded_at"),
)
_REPORT_FACTS: Final = ("kind", "format", "projection", "renderer_version", "as_of_position", "sha256", "actor")
ADD_REPORT: Final = Change("insert", "reports", _POSITION, ("run_id", *_REPORT_FACTS, "recorded_at"))


def fold(event: Event) -> Iterable[RowChange]:
    """The changes that an event makes to the projection tables, in the order they apply."""
    handler = _HANDLERS.get(event.type)
    return handler(event) if handler is not None else ()


def _json(value: Any) -> str:
    # Over values of a payload, this sorted encoder and RFC 8785 agree
    # (docs/ledger-format.md, section 1).
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode("utf-8") if value else _EMPTY[type(value)]


_EMPTY: Final[dict[type, str]] = {list: "[]", dict: "{}", tuple: "[]"}


def _failure(
    event: Event,
    code: str,
    detail: Any = (),
    *,
    request_id: str | None = None,
    line: int | None = None,
    turn: int | None = None,
    attempt: int | None = None,
) -> RowChange:
    values = (
        *(event.run_id, request_id or event.request_id, event.type, code, line, turn, attempt),
        *(_json(detail), event.recorded_at, event.position),
    )
    return ADD_FAILURE, values


def _run_started(event: Event) -> Iterable[RowChange]:
    p, run = event.payload, (event.run_id,)
    values = (
        *("running", p["candidate_id"], p["candidate_variant_id"], p["prompt_profile"], p["model"], p["endpoint"]),
        *(p["template_version"], p["leak_rules_version"], p["software_version"], p["actor"]),
        *(_json(p["settings"]), _json(p["tags"]), "[]", event.recorded_at, event.position, event.run_id),
    )
    return (*((change, run) for change in CLEAR_RUN), (START_RUN, values))


def _intake_completed(event: Event) -> Iterable[RowChange]:
    return ((FINISH_INTAKE, (event.payload["lines"], event.payload["input_sha256"], event.run_id)),)


def _run_blocked(event: Event) -> Iterable[RowChange]:
    failures = event.payload["failures"]
    values = ("blocked", _json(failures), event.recorded_at, event.position, event.run_id)
    return (BLOCK_RUN, values), _failure(event, failures[0] if failures else "", failures)


def _run_completed(event: Event) -> Iterable[RowChange]:
    return ((END_RUN, (event.payload["outcome"], event.recorded_at, event.position, event.run_id)),)


def _run_abandoned(event: Event) -> Iterable[RowChange]:
    return ((END_RUN, ("abandoned", event.recorded_at, event.position, event.run_id)),)


def _request_accepted(event: Event) -> Iterable[RowChange]:
    p = event.payload
    values = (
        *(p["line"], p["incident_id"], p["policy_id"], _json(p["facets"]), event.position, event.recorded_at),
        *(False, event.run_id, event.request_id),
    )
    return ((ACCEPT_REQUEST, values),)


def _request_rejected(event: Event) -> Iterable[RowChange]:
    p = event.payload
    detail = [p["field"]] if p["field"] is not None else ()
    return (_failure(event, p["code"], detail, request_id=p["request_id"], line=p["line"]),)


def _leak_rejected(event: Event) -> Iterable[RowChange]:
    p = event.payload
    return (_failure(event, "request_self_grading_leak", p["findings"], request_id=p["request_id"], line=p["line"]),)


def _call_started(event: Event) -> Iterable[RowChange]:
    p = event.payload
    at = event.position, event.recorded_at
    key = event.run_id, event.request_id, p["attempt"]
    return ((START_CALL, (p["turn"], "started", *at, p["body_bytes"], p["quote_withheld"], *key)),)


def _called(event: Event) -> Iterable[RowChange]:
    p = event.payload
    values = (
        "answered",
        event.position,
        event.recorded_at,
        *_reply_facts(p),
        event.run_id,
        event.request_id,
        p["attempt"],
    )
    return ((ANSWER_CALL, values),)


def _call_failed(event: Event) -> Iterable[RowChange]:
    p, run_id, request_id = event.payload, event.run_id, event.request_id
    code, unknown = p["code"], p["outcome_unknown"]
    values = (
        *("failed", event.position, event.recorded_at, code, p["http_status"], p["retry_after_ms"], p["wait_ms"]),
        *(p["will_retry"], unknown, p["duration_us"], run_id, request_id, p["attempt"]),
    )
    noted: RowChange = (
        (NOTE_UNKNOWN, (code, True, code, run_id, request_id))
        if unknown
        else (NOTE_ERROR, (code, code, run_id, request_id))
    )
    return ((FAIL_CALL, values), noted, _failure(event, code, turn=p["turn"], attempt=p["attempt"]))


def _parse_failed(event: Event) -> Iterable[RowChange]:
    p = event.payload
    code = p["code"]
    return (
        (NOTE_ERROR, (code, code, event.run_id, event.request_id)),
        _failure(event, code, p["fields"], turn=p["turn"]),
    )


def _output_accepted(event: Event) -> Iterable[RowChange]:
    p = event.payload
    values = (
        *("accepted_first" if p["turn"] == 1 else "accepted_after_retry", None, p["turn"], p["risk_level"]),
        *(p["requires_human_approval"], p["blocked_by_policy"], _json(p["allowances"])),
        *(event.position, event.recorded_at, event.run_id, event.request_id),
    )
    return ((ACCEPT_OUTPUT, values),)


def _fallback_applied(event: Event) -> Iterable[RowChange]:
    code, turn = event.payload["code"], event.payload["turn"]
    values = (
        *("fallback", code, turn, "critical", True, True, "[]", event.position, event.recorded_at, code),
        *(event.run_id, event.request_id),
    )
    return (APPLY_FALLBACK, values), _failure(event, code, turn=turn)


def _report_issued(event: Event) -> Iterable[RowChange]:
    p = event.payload
    values = (event.run_id, *[p[fact] for fact in _REPORT_FACTS], event.recorded_at, event.position)
    return ((ADD_REPORT, values),)


_HANDLERS: Final[dict[str, Callable[[Event], Iterable[RowChange]]]] = {
    "RunStarted": _run_started,
    "RequestAccepted": _request_accepted,
    "RequestRejected": _request_rejected,
    "LeakRejected": _leak_rejected,
    "IntakeCompleted": _intake_completed,
    "RunBlocked": _run_blocked,
    "ModelCallStarted": _call_started,
    "ModelCalled": _called,
    "ModelCallFailed": _call_failed,
    "ParseFailed": _parse_failed,
    "OutputAccepted": _output_accepted,
    "FallbackApplied": _fallback_applied,
    "RunCompleted": _run_completed,
    "RunAbandoned": _run_abandoned,
    "ReportIssued": _report_issued,
}
