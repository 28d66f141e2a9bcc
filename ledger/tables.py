"""The whole schema on one page: SQLModel tables, the same on SQLite and Postgres.

The first part is the record (docs/ledger-format.md, section 2). The second part is projections:
derived facts, without content, that may be dropped and folded again. Triggers, views and column
comments are made by the migrations.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import Field, SQLModel

from ledger.times import format_time


class UtcTime(TypeDecorator[str]):
    """RFC 3339 text in Python and on SQLite (fixed width, so it sorts), TIMESTAMPTZ on Postgres."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(Text())

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return format_time(value) if isinstance(value, datetime) else value


def _text() -> TypeEngine[Any]:
    return Text().with_variant(Text(collation="C"), "postgresql")


def _big() -> TypeEngine[Any]:
    return BigInteger().with_variant(Integer(), "sqlite")


def _col(kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str, **options: Any) -> Any:
    options.setdefault("nullable", False)
    return Field(sa_column=Column(kind, comment=comment, **options))


def _null(kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str) -> Any:
    return Field(default=None, sa_column=Column(kind, comment=comment, nullable=True))


def _table(comment: str, *constraints: Any, rowid: bool = False) -> tuple[Any, ...]:
    # WITHOUT ROWID: a hidden rowid would be a way round the triggers.
    return (*constraints, {"comment": comment, "sqlite_with_rowid": rowid})


_STARTED: Final = text("type = 'RunStarted'")

# --- the record ----------------------------------------------------------------------------


class EventRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "events"
    __table_args__ = _table(
        "The log: one immutable row an event",
        UniqueConstraint("event_id", name="events_event_id"),
        UniqueConstraint("run_id", "run_version", name="events_run_version"),
        UniqueConstraint("run_id", "request_id", "request_version", name="events_request_version"),
        Index("events_run_started", "run_id", "position", sqlite_where=_STARTED, postgresql_where=_STARTED),
        rowid=True,
    )
    position: int = _col(_big(), "1, 2, 3 ... dense over the ledger", primary_key=True, autoincrement=False)
    event_id: str = _col(_text(), "UUIDv7 made by the writer")
    type: str = _col(_text(), "What happened, past tense")
    schema_: int = Field(sa_column=Column("schema", Integer, nullable=False, comment="Version of the payload's form"))
    run_id: str = _col(_text(), "The run, or $ledger")
    run_version: int = _col(_big(), "1, 2, 3 ... dense within the run")
    request_id: str | None = _null(_text(), "The request; null for run-level events")
    request_version: int | None = _null(_big(), "1, 2, 3 ... dense within the request")
    recorded_at: str = _col(UtcTime, "Time of the append (UTC)")
    payload: str = _col(_text(), "The facts: canonical JSON, exactly the bytes that are hashed")
    payload_sha256: str = _col(_text(), "SHA-256 of payload, hex")
    content_commitment: str | None = _null(_text(), "SHA-256(0x02, salt, content), hex; null where no content")
    leaf_hash: bytes = _col(LargeBinary, "SHA-256(0x00, canonical JSON of the envelope)")


class ContentRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "contents"
    __table_args__ = _table("The evidence: text and raw bytes, until lawfully redacted", rowid=True)
    position: int = _col(_big(), "The event it belongs to", primary_key=True, autoincrement=False)
    salt: bytes = _col(LargeBinary, "32 random bytes, destroyed with the content")
    encoding: str = _col(_text(), "utf-8 or base64: how body holds the bytes")
    body: str = _col(_text(), "The content exactly as it was")


class RedactionRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "redactions"
    __table_args__ = _table("Which content was erased, and by which event", rowid=True)
    position: int = _col(_big(), "The event whose content was erased", primary_key=True, autoincrement=False)
    event_position: int = _col(_big(), "The ContentRedacted event")


class TreeNodeRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "tree_nodes"
    __table_args__ = _table("Roots of complete subtrees of 256, 65,536 ... leaves")
    level: int = _col(Integer, "1: 256 leaves, 2: 65,536 ...", primary_key=True, autoincrement=False)
    node_index: int = _col(_big(), "0, 1, 2 ... within its level", primary_key=True, autoincrement=False)
    hash: bytes = _col(LargeBinary, "The subtree's root (RFC 6962)")


class LedgerHeadRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "ledger_head"
    __table_args__ = _table(
        "One row: where the log stands. All of it can be computed again from events",
        CheckConstraint("id = 1", name="ledger_head_one_row"),
        rowid=True,
    )
    id: int = _col(Integer, "Always 1", primary_key=True, autoincrement=False)
    origin: str = _col(_text(), "The ledger's name, part of every leaf")
    format: int = _col(Integer, "Version of the ledger format")
    size: int = _col(_big(), "Number of events")
    root: bytes = _col(LargeBinary, "RFC 6962 root over all leaves")
    frontier: bytes = _col(LargeBinary, "Roots of the perfect subtrees, largest first")
    recorded_at: str | None = _null(UtcTime, "Time of the last event (UTC)")


class CheckpointRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "checkpoints"
    __table_args__ = _table("Signed checkpoints", rowid=True)
    size: int = _col(_big(), "Tree size signed", primary_key=True, autoincrement=False)
    root: bytes = _col(LargeBinary, "The root signed")
    note: str = _col(_text(), "The signed note, whole")


RECORD_TABLES: Final = ("events", "contents", "redactions", "tree_nodes", "ledger_head", "checkpoints")

# --- projections ---------------------------------------------------------------------------


class RunRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "runs"
    __table_args__ = _table("One row a run, since its last RunStarted")
    run_id: str = _col(_text(), "The run", primary_key=True)
    state: str = _col(_text(), "running, completed, auth_error, blocked or abandoned")
    candidate_id: str = _col(_text(), "The candidate agent")
    candidate_variant_id: str | None = _null(_text(), "The variant; null for the baseline")
    prompt_profile: str | None = _null(_text(), "The variant's prompt profile")
    model: str = _col(_text(), "The model asked for")
    endpoint: str = _col(_text(), "Scheme, host, port and path called")
    template_version: int = _col(Integer, "Version of the prompt template")
    leak_rules_version: int = _col(Integer, "Version of the leak guard's rules")
    software_version: str = _col(_text(), "The program that drove the run")
    actor: str = _col(_text(), "Who started it")
    settings: str = _col(_text(), "JSON: the options given")
    tags: str = _col(_text(), "JSON: ids to ids")
    lines: int | None = _null(_big(), "Lines read; null until intake is complete")
    input_sha256: str | None = _null(_text(), "SHA-256 of the whole input file")
    failures: str = _col(_text(), "JSON: run-level codes")
    started_at: str = _col(UtcTime, "Time of RunStarted")
    started_position: int = _col(_big(), "Position of the last RunStarted")
    ended_at: str | None = _null(UtcTime, "Time of the terminal event")
    ended_position: int | None = _null(_big(), "Position of the terminal event")


class RequestRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "requests"
    # No index but the key: Postgres took one on (run_id, line) for the look-up of a request, each a walk over the run.
    __table_args__ = _table("One row an accepted request, with its result once there is one")
    run_id: str = _col(_text(), "The run", primary_key=True)
    request_id: str = _col(_text(), "The request", primary_key=True)
    line: int = _col(_big(), "Line of the input file")
    incident_id: str = _col(_text(), "The incident")
    policy_id: str | None = _null(_text(), "The policy in force")
    facets: str = _col(_text(), "JSON: ids to ids")
    accepted_position: int = _col(_big(), "Position of RequestAccepted")
    accepted_at: str = _col(UtcTime, "Time of RequestAccepted")
    outcome: str | None = _null(_text(), "accepted_first, accepted_after_retry or fallback; null: no result yet")
    error: str | None = _null(_text(), "The last error code; null where accepted")
    first_error: str | None = _null(_text(), "The first error code ever")
    outcome_unknown: bool = _col(Boolean, "A call may have been made whose reply never came whole")
    turn: int | None = _null(Integer, "The turn that decided; null where never sent")
    risk_level: str | None = _null(_text(), "What the result says: low, medium, high, critical")
    requires_human_approval: bool | None = _null(Boolean, "What the result says")
    blocked_by_policy: bool | None = _null(Boolean, "What the result says (for a model's answer: what the model said)")
    allowances: str | None = _null(_text(), "JSON: tolerances the parser used")
    decided_position: int | None = _null(_big(), "Position of OutputAccepted or FallbackApplied")
    decided_at: str | None = _null(UtcTime, "Time of the decision")


class ModelCallRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "model_calls"
    __table_args__ = _table("One row an HTTP attempt")
    run_id: str = _col(_text(), "The run", primary_key=True)
    request_id: str = _col(_text(), "The request", primary_key=True)
    attempt: int = _col(Integer, "1, 2, 3 ... over the request", primary_key=True, autoincrement=False)
    turn: int = _col(Integer, "1: the first prompt; 2: the corrective retry")
    state: str = _col(_text(), "started, answered or failed")
    started_position: int = _col(_big(), "Position of ModelCallStarted")
    started_at: str = _col(UtcTime, "Time the intent was durable")
    sent_bytes: int = _col(_big(), "Size of the body sent")
    quote_withheld: bool = _col(Boolean, "The bad answer was not quoted back, as it would have leaked")
    finished_position: int | None = _null(_big(), "Position of ModelCalled or ModelCallFailed")
    finished_at: str | None = _null(UtcTime, "Time the outcome was recorded")
    code: str | None = _null(_text(), "Error code of a failed attempt")
    http_status: int | None = _null(Integer, "HTTP status")
    retry_after_ms: int | None = _null(_big(), "What the server asked to wait")
    wait_ms: int | None = _null(_big(), "The wait decided on before the next attempt")
    will_retry: bool | None = _null(Boolean, "Another attempt follows")
    outcome_unknown: bool | None = _null(Boolean, "May have been sent; no whole reply came")
    response_id: str | None = _null(_text(), "The reply's id")
    model: str | None = _null(_text(), "The model that answered, by its own word")
    finish_reason: str | None = _null(_text(), "The reply's finish reason")
    system_fingerprint: str | None = _null(_text(), "The reply's fingerprint")
    odd_metadata: bool | None = _null(Boolean, "A member of the reply was unfit to be recorded as a fact")
    prompt_tokens: int | None = _null(_big(), "Null where not reported")
    completion_tokens: int | None = _null(_big(), "Null where not reported")
    total_tokens: int | None = _null(_big(), "Null where not reported")
    cached_tokens: int | None = _null(_big(), "Null where not reported")
    reasoning_tokens: int | None = _null(_big(), "Null where not reported")
    reply_bytes: int | None = _null(_big(), "Size of the reply's body")
    body_truncated: bool | None = _null(Boolean, "The body passed the ceiling; its head alone is kept")
    scrubbed: int | None = _null(_big(), "Secrets removed from the reply")
    duration_us: int | None = _null(_big(), "Microseconds from sending to the last byte")


class FailureRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "failures"
    __table_args__ = _table(
        "One row an event that says something went wrong",
        Index("failures_run", "run_id", "position"),
        rowid=True,
    )
    position: int = _col(_big(), "The event", primary_key=True, autoincrement=False)
    run_id: str = _col(_text(), "The run")
    request_id: str | None = _null(_text(), "The request")
    type: str = _col(_text(), "The event's type")
    code: str = _col(_text(), "Error code")
    line: int | None = _null(_big(), "Line of the input, for rejected and leaking lines")
    turn: int | None = _null(Integer, "The turn, where there is one")
    attempt: int | None = _null(Integer, "The attempt, where there is one")
    detail: str = _col(_text(), "JSON: fields, findings, or [] where there are none")
    recorded_at: str = _col(UtcTime, "Time of the event")


class ReportRow(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "reports"
    __table_args__ = _table("One row a report that was issued", Index("reports_sha256", "sha256"), rowid=True)
    position: int = _col(_big(), "The ReportIssued event", primary_key=True, autoincrement=False)
    run_id: str = _col(_text(), "The run")
    kind: str = _col(_text(), "report or results or grades")
    format: str = _col(_text(), "json, html, jsonl ...")
    projection: str = _col(_text(), "Name and version of the fold")
    renderer_version: int = _col(Integer, "Version of the rendering")
    as_of_position: int = _col(_big(), "Last event consumed")
    sha256: str = _col(_text(), "SHA-256 of the bytes issued")
    actor: str = _col(_text(), "Who issued it")
    recorded_at: str = _col(UtcTime, "Time of the event")


PROJECTION_TABLES: Final = ("runs", "requests", "model_calls", "failures", "reports")
PROJECTION_VIEWS: Final = ("results", "token_usage", "call_costs", "run_costs")
