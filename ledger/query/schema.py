"""Every table and view of a ledger that a question may use, as data: names, kinds, comments.

What SQLite cannot keep, comments, is here for both databases; tests hold it equal to what is in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sqlalchemy import BigInteger, Boolean, Integer, LargeBinary
from sqlmodel import SQLModel

from ledger.tables import PROJECTION_TABLES, UtcTime

ANSWERS: Final = (
    *("runs", "requests", "model_calls", "results", "failures", "token_usage", "call_costs", "run_costs"),
    *("events", "reports"),
)
RECORD: Final = ("redactions", "contents", "checkpoints", "ledger_head", "tree_nodes")
TABLES: Final = (*ANSWERS, *RECORD)
"""In the order in which they are told; ``results``, ``token_usage`` and the costs are views."""

KINDS: Final = {
    "text": ("TEXT", "text"),
    "integer": ("INTEGER", "bigint or integer"),
    "flag": ("0 or 1", "boolean"),
    "time": ("TEXT, 2026-11-30T20:42:00.123456Z", "timestamptz"),
    "bytes": ("BLOB", "bytea"),
}
"""Kind -> what it is on SQLite, and on Postgres."""


class ColumnInfo(NamedTuple):
    """A column. ``nullable`` is None for a view's, of which databases do not say."""

    name: str
    kind: str
    nullable: bool
    comment: str


class TableInfo(NamedTuple):
    """A table or a view."""

    name: str
    is_view: bool
    comment: str
    columns: tuple[ColumnInfo, ...]


def tables() -> Iterator[TableInfo]:
    """All of them, in the order of ``TABLES``."""
    for name in TABLES:
        yield _VIEWS[name] if name in _VIEWS else _table(name)


def _table(name: str) -> TableInfo:
    found = SQLModel.metadata.tables[name]
    columns = (
        ColumnInfo(column.name, _kind(column.type), bool(column.nullable), column.comment or "")
        for column in found.columns
    )
    return TableInfo(name, is_view=False, comment=found.comment or "", columns=tuple(columns))


def _kind(type_: object) -> str:
    if isinstance(type_, Boolean):
        return "flag"
    if isinstance(type_, UtcTime):
        return "time"
    if isinstance(type_, Integer | BigInteger):
        return "integer"
    return "bytes" if isinstance(type_, LargeBinary) else "text"


def _view(name: str, comment: str, base: str, *columns: str | ColumnInfo) -> TableInfo:
    """A view; a name alone is a column of the table ``base``, taken as it is."""
    known = {column.name: column for column in _table(base).columns}
    told = (known[column] if isinstance(column, str) else column for column in columns)
    return TableInfo(name, is_view=True, comment=comment, columns=tuple(told))


_VIEWS: Final = {
    "results": _view(
        "results",
        "One row a request that has a result, with the text of the answer while it is kept",
        "requests",
        *("run_id", "request_id", "incident_id", "line", "policy_id", "facets"),
        ColumnInfo("outcome", "text", False, "accepted_first, accepted_after_retry or fallback"),
        ColumnInfo("risk_level", "text", False, "low, medium, high or critical"),
        ColumnInfo("requires_human_approval", "flag", False, "What the result says"),
        ColumnInfo(
            *("blocked_by_policy", "flag", False), "What the result says (for a model's answer: what the model said)"
        ),
        ColumnInfo("retry_used", "flag", False, "A call of turn 2 was started"),
        ColumnInfo("fallback_used", "flag", False, "No answer could be accepted"),
        ColumnInfo("trace_complete", "flag", False, "Accepted, and the outcome of each call is known"),
        *("error", "first_error", "turn"),
        ColumnInfo("allowances", "text", False, "JSON: tolerances the parser used"),
        ColumnInfo("decided_position", "integer", False, "Position of OutputAccepted or FallbackApplied"),
        ColumnInfo("decided_at", "time", False, "Time of the decision (UTC)"),
        ColumnInfo("proposed_action", "text", True, "Text of the answer; null once redacted; empty for a fallback"),
        ColumnInfo("action_plan", "text", True, "JSON list of the answer; null once redacted; [] for a fallback"),
    ),
    "token_usage": _view(
        "token_usage",
        "One row a model call that was answered",
        "model_calls",
        *("run_id", "request_id", "attempt", "model"),
        *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens"),
    ),
    "call_costs": _view(
        "call_costs",
        "One row a model call, with what it cost at the prices that the run recorded",
        "model_calls",
        *("run_id", "request_id", "attempt", "model"),
        ColumnInfo("currency", "text", True, "What the prices are in; null where the run had none"),
        ColumnInfo("cost_state", "text", False, "priced, not_billed (never connected, or refused) or without_cost"),
        ColumnInfo("cost_picos", "integer", True, "Cost in 10^-12 of the currency; null where it is unknown"),
    ),
    "run_costs": _view(
        "run_costs",
        "One row a run, with what its calls cost, as in its report",
        "runs",
        "run_id",
        ColumnInfo("currency", "text", True, "What the prices are in; null where the run had none"),
        ColumnInfo("calls", "integer", False, "Model calls, whatever became of them"),
        ColumnInfo("calls_priced", "integer", False, "Calls whose cost is known from their tokens"),
        ColumnInfo("calls_not_billed", "integer", False, "Calls never connected or refused, which cost nothing"),
        ColumnInfo("calls_without_cost", "integer", False, "Calls whose cost is unknown"),
        ColumnInfo("known", "text", True, "Decimal text: the cost of the calls that are priced"),
        ColumnInfo("total", "text", True, "Decimal text: the cost of all calls; null where that of any is unknown"),
        ColumnInfo("prices_sha256", "text", True, "SHA-256 of the file of prices"),
    ),
}
assert set(TABLES) >= {*PROJECTION_TABLES, *_VIEWS}
