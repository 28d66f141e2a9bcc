"""The first schema: the record, the projection tables, and what keeps the record append-only."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from migrations import sql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, not read from the models: a revision stays what it was when the models move on.
TEXT: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BIG: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME: Final = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")

SQLITE_OBJECTS: Final = (
    "events_check_insert",
    "events_refuse_update",
    "events_refuse_delete",
    "contents_check_insert",
    "contents_refuse_update",
    "contents_check_delete",
    "redactions_check_insert",
    "redactions_refuse_update",
    "redactions_refuse_delete",
    "tree_nodes_check_insert",
    "tree_nodes_refuse_update",
    "tree_nodes_refuse_delete",
    "checkpoints_check_insert",
    "checkpoints_refuse_update",
    "checkpoints_refuse_delete",
    "ledger_head_check_insert",
    "ledger_head_check_update",
    "ledger_head_refuse_delete",
    "results",
    "token_usage",
)
POSTGRES_OBJECTS: Final = (
    "refuse_change",
    "events_check_insert",
    "contents_check_insert",
    "contents_check_delete",
    "redactions_check_insert",
    "ledger_head_check_update",
    "results",
    "token_usage",
)


def upgrade() -> None:
    """Make everything."""
    for make in (_events, _contents, _redactions, _tree_nodes, _ledger_head, _checkpoints):
        make()
    for make in (_runs, _requests, _model_calls, _failures, _reports):
        make()
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    for name in SQLITE_OBJECTS if on_sqlite else POSTGRES_OBJECTS:
        sql.run(revision, name)


def _key(name: str, kind: sa.types.TypeEngine[Any], comment: str) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False, nullable=False, comment=comment)


def _col(name: str, kind: sa.types.TypeEngine[Any], comment: str) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, comment=comment)


def _null(name: str, kind: sa.types.TypeEngine[Any], comment: str) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True, comment=comment)


def _events() -> None:
    op.create_table(
        "events",
        _key("position", BIG, "1, 2, 3 ... dense over the ledger"),
        _col("event_id", TEXT, "UUIDv7 made by the writer"),
        _col("type", TEXT, "What happened, past tense"),
        _col("schema", sa.Integer(), "Version of the payload's form"),
        _col("run_id", TEXT, "The run, or $ledger"),
        _col("run_version", BIG, "1, 2, 3 ... dense within the run"),
        _null("request_id", TEXT, "The request; null for run-level events"),
        _null("request_version", BIG, "1, 2, 3 ... dense within the request"),
        _col("recorded_at", TIME, "Time of the append (UTC)"),
        _col("payload", TEXT, "The facts: canonical JSON, exactly the bytes that are hashed"),
        _col("payload_sha256", TEXT, "SHA-256 of payload, hex"),
        _null("content_commitment", TEXT, "SHA-256(0x02, salt, content), hex; null where no content"),
        _col("leaf_hash", sa.LargeBinary(), "SHA-256(0x00, canonical JSON of the envelope)"),
        sa.UniqueConstraint("event_id", name="events_event_id"),
        sa.UniqueConstraint("run_id", "request_id", "request_version", name="events_request_version"),
        sa.UniqueConstraint("run_id", "run_version", name="events_run_version"),
        comment="The log: one immutable row an event",
    )
    started = sa.text("type = 'RunStarted'")
    op.create_index(
        "events_run_started", "events", ["run_id", "position"], sqlite_where=started, postgresql_where=started
    )


def _contents() -> None:
    op.create_table(
        "contents",
        _key("position", BIG, "The event it belongs to"),
        _col("salt", sa.LargeBinary(), "32 random bytes, destroyed with the content"),
        _col("encoding", TEXT, "utf-8 or base64: how body holds the bytes"),
        _col("body", TEXT, "The content exactly as it was"),
        comment="The evidence: text and raw bytes, until lawfully redacted",
    )


def _redactions() -> None:
    op.create_table(
        "redactions",
        _key("position", BIG, "The event whose content was erased"),
        _col("event_position", BIG, "The ContentRedacted event"),
        comment="Which content was erased, and by which event",
    )


def _tree_nodes() -> None:
    op.create_table(
        "tree_nodes",
        _key("level", sa.Integer(), "1: 256 leaves, 2: 65,536 ..."),
        _key("node_index", BIG, "0, 1, 2 ... within its level"),
        _col("hash", sa.LargeBinary(), "The subtree's root (RFC 6962)"),
        comment="Roots of complete subtrees of 256, 65,536 ... leaves",
        sqlite_with_rowid=False,
    )


def _ledger_head() -> None:
    op.create_table(
        "ledger_head",
        _key("id", sa.Integer(), "Always 1"),
        _col("origin", TEXT, "The ledger's name, part of every leaf"),
        _col("format", sa.Integer(), "Version of the ledger format"),
        _col("size", BIG, "Number of events"),
        _col("root", sa.LargeBinary(), "RFC 6962 root over all leaves"),
        _col("frontier", sa.LargeBinary(), "Roots of the perfect subtrees, largest first"),
        _null("recorded_at", TIME, "Time of the last event (UTC)"),
        sa.CheckConstraint("id = 1", name="ledger_head_one_row"),
        comment="One row: where the log stands. All of it can be computed again from events",
    )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        _key("size", BIG, "Tree size signed"),
        _col("root", sa.LargeBinary(), "The root signed"),
        _col("note", TEXT, "The signed note, whole"),
        comment="Signed checkpoints",
    )


def _runs() -> None:
    op.create_table(
        "runs",
        _key("run_id", TEXT, "The run"),
        _col("state", TEXT, "running, completed, auth_error, blocked or abandoned"),
        _col("candidate_id", TEXT, "The candidate agent"),
        _null("candidate_variant_id", TEXT, "The variant; null for the baseline"),
        _null("prompt_profile", TEXT, "The variant's prompt profile"),
        _col("model", TEXT, "The model asked for"),
        _col("endpoint", TEXT, "Scheme, host, port and path called"),
        _col("template_version", sa.Integer(), "Version of the prompt template"),
        _col("leak_rules_version", sa.Integer(), "Version of the leak guard's rules"),
        _col("software_version", TEXT, "The program that drove the run"),
        _col("actor", TEXT, "Who started it"),
        _col("settings", TEXT, "JSON: the options given"),
        _col("tags", TEXT, "JSON: ids to ids"),
        _null("lines", BIG, "Lines read; null until intake is complete"),
        _null("input_sha256", TEXT, "SHA-256 of the whole input file"),
        _col("failures", TEXT, "JSON: run-level codes"),
        _col("started_at", TIME, "Time of RunStarted"),
        _col("started_position", BIG, "Position of the last RunStarted"),
        _null("ended_at", TIME, "Time of the terminal event"),
        _null("ended_position", BIG, "Position of the terminal event"),
        comment="One row a run, since its last RunStarted",
        sqlite_with_rowid=False,
    )


def _requests() -> None:
    op.create_table(
        "requests",
        _key("run_id", TEXT, "The run"),
        _key("request_id", TEXT, "The request"),
        _col("line", BIG, "Line of the input file"),
        _col("incident_id", TEXT, "The incident"),
        _null("policy_id", TEXT, "The policy in force"),
        _col("facets", TEXT, "JSON: ids to ids"),
        _col("accepted_position", BIG, "Position of RequestAccepted"),
        _col("accepted_at", TIME, "Time of RequestAccepted"),
        _null("outcome", TEXT, "accepted_first, accepted_after_retry or fallback; null: no result yet"),
        _null("error", TEXT, "The last error code; null where accepted"),
        _null("first_error", TEXT, "The first error code ever"),
        _col("outcome_unknown", sa.Boolean(), "A call may have been made whose reply never came whole"),
        _null("turn", sa.Integer(), "The turn that decided; null where never sent"),
        _null("risk_level", TEXT, "What the result says: low, medium, high, critical"),
        _null("requires_human_approval", sa.Boolean(), "What the result says"),
        _null("blocked_by_policy", sa.Boolean(), "What the result says (for a model's answer: what the model said)"),
        _null("allowances", TEXT, "JSON: tolerances the parser used"),
        _null("decided_position", BIG, "Position of OutputAccepted or FallbackApplied"),
        _null("decided_at", TIME, "Time of the decision"),
        comment="One row an accepted request, with its result once there is one",
        sqlite_with_rowid=False,
    )


def _model_calls() -> None:
    op.create_table(
        "model_calls",
        _key("run_id", TEXT, "The run"),
        _key("request_id", TEXT, "The request"),
        _key("attempt", sa.Integer(), "1, 2, 3 ... over the request"),
        _col("turn", sa.Integer(), "1: the first prompt; 2: the corrective retry"),
        _col("state", TEXT, "started, answered or failed"),
        _col("started_position", BIG, "Position of ModelCallStarted"),
        _col("started_at", TIME, "Time the intent was durable"),
        _col("sent_bytes", BIG, "Size of the body sent"),
        _col("quote_withheld", sa.Boolean(), "The bad answer was not quoted back, as it would have leaked"),
        _null("finished_position", BIG, "Position of ModelCalled or ModelCallFailed"),
        _null("finished_at", TIME, "Time the outcome was recorded"),
        _null("code", TEXT, "Error code of a failed attempt"),
        _null("http_status", sa.Integer(), "HTTP status"),
        _null("retry_after_ms", BIG, "What the server asked to wait"),
        _null("wait_ms", BIG, "The wait decided on before the next attempt"),
        _null("will_retry", sa.Boolean(), "Another attempt follows"),
        _null("outcome_unknown", sa.Boolean(), "May have been sent; no whole reply came"),
        _null("response_id", TEXT, "The reply's id"),
        _null("model", TEXT, "The model that answered, by its own word"),
        _null("finish_reason", TEXT, "The reply's finish reason"),
        _null("system_fingerprint", TEXT, "The reply's fingerprint"),
        _null("odd_metadata", sa.Boolean(), "A member of the reply was unfit to be recorded as a fact"),
        _null("prompt_tokens", BIG, "Null where not reported"),
        _null("completion_tokens", BIG, "Null where not reported"),
        _null("total_tokens", BIG, "Null where not reported"),
        _null("cached_tokens", BIG, "Null where not reported"),
        _null("reasoning_tokens", BIG, "Null where not reported"),
        _null("reply_bytes", BIG, "Size of the reply's body"),
        _null("body_truncated", sa.Boolean(), "The body passed the ceiling; its head alone is kept"),
        _null("scrubbed", BIG, "Secrets removed from the reply"),
        _null("duration_us", BIG, "Microseconds from sending to the last byte"),
        comment="One row an HTTP attempt",
        sqlite_with_rowid=False,
    )


def _failures() -> None:
    op.create_table(
        "failures",
        _key("position", BIG, "The event"),
        _col("run_id", TEXT, "The run"),
        _null("request_id", TEXT, "The request"),
        _col("type", TEXT, "The event's type"),
        _col("code", TEXT, "Error code"),
        _null("line", BIG, "Line of the input, for rejected and leaking lines"),
        _null("turn", sa.Integer(), "The turn, where there is one"),
        _null("attempt", sa.Integer(), "The attempt, where there is one"),
        _col("detail", TEXT, "JSON: fields, findings, or [] where there are none"),
        _col("recorded_at", TIME, "Time of the event"),
        comment="One row an event that says something went wrong",
    )
    op.create_index("failures_run", "failures", ["run_id", "position"])


def _reports() -> None:
    op.create_table(
        "reports",
        _key("position", BIG, "The ReportIssued event"),
        _col("run_id", TEXT, "The run"),
        _col("kind", TEXT, "report or results or grades"),
        _col("format", TEXT, "json, html, jsonl ..."),
        _col("projection", TEXT, "Name and version of the fold"),
        _col("renderer_version", sa.Integer(), "Version of the rendering"),
        _col("as_of_position", BIG, "Last event consumed"),
        _col("sha256", TEXT, "SHA-256 of the bytes issued"),
        _col("actor", TEXT, "Who issued it"),
        _col("recorded_at", TIME, "Time of the event"),
        comment="One row a report that was issued",
    )
    op.create_index("reports_sha256", "reports", ["sha256"])
