"""Attacks on what stands beside the log: tables made from it, erasures, the tree, the head."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection

from tests.ledger.integrity.attack import RESTORED, Attack, Told, always, by_anchors, forked, shorter
from tests.ledger.integrity.attacks import OUTPUT
from tests.ledger.integrity.forging import TABLES, name_in_redaction, take_content
from tests.ledger.integrity.scene import COVERED, ERASED, OTHER_ORIGIN, REDACTION, RETRIED, Target
from tests.ledger.integrity.tampering import Statement

# --- the tables made from the log ----------------------------------------------------------

_COLUMNS: Final = ", ".join(column for column in sorted(set(TABLES["runs"].c.keys()) - {"run_id"}))
_TOKENS: Final = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")
_USAGE: Final = ", ".join(("run_id", "request_id", "attempt", "model", *_TOKENS))
ALTERED: Final = always("projection altered", None)
_SWAP: Final = "UPDATE requests SET outcome = CASE outcome WHEN 'fallback' THEN 'accepted_first' ELSE 'fallback' END"

PROJECTIONS: Final = (
    Attack(
        "projection-edit",
        "A row edited: a request that was blocked by policy",
        ("UPDATE requests SET blocked_by_policy = NOT blocked_by_policy WHERE request_id = 'INC-7'",),
        ALTERED,
        RESTORED,
    ),
    Attack(
        "projection-swap",
        "The outcomes of two requests exchanged",
        (f"{_SWAP} WHERE run_id = 'run-2'",),
        ALTERED,
        RESTORED,
    ),
    Attack(
        "projection-delete",
        "A row deleted: a failure",
        ("DELETE FROM failures WHERE code = 'http_400'",),
        ALTERED,
        RESTORED,
    ),
    Attack(
        "projection-insert",
        "A row made up: a run that never was",
        (f"INSERT INTO runs (run_id, {_COLUMNS}) SELECT 'run-9', {_COLUMNS} FROM runs WHERE run_id = 'run-1'",),
        ALTERED,
        RESTORED,
    ),
    Attack(
        "report-edit",
        "The digest of a report that was issued",
        (f"UPDATE reports SET sha256 = '{'0' * 64}'",),
        ALTERED,
        RESTORED,
    ),
    Attack(
        "view",
        "A view made to show less than there is",
        (
            "DROP VIEW token_usage",
            f"CREATE VIEW token_usage AS SELECT {_USAGE} FROM model_calls WHERE state = 'answered' AND attempt = 1",
        ),
        ALTERED,
        None,
    ),
)

# --- erasures ------------------------------------------------------------------------------


def _put_back_erased(target: Target, connection: Connection) -> None:
    take_content(connection, target.side("older"), ERASED)


def _hidden_behind(_: Target, connection: Connection) -> None:
    name_in_redaction(connection, REDACTION, OUTPUT)


UNAUTHORISED: Final = always("redacted without authority", OUTPUT)


def _erased(by: int) -> tuple[Statement, ...]:
    return (
        f"DELETE FROM contents WHERE position = {OUTPUT}",
        f"INSERT INTO redactions (position, event_position) VALUES ({OUTPUT}, {by})",
    )


ERASURES: Final = (
    Attack(
        "erase",
        "A content erased, naming an event that orders another erasure",
        _erased(REDACTION),
        UNAUTHORISED,
        forked(OUTPUT),
    ),
    Attack(
        "erase-by-other",
        "A content erased, naming an event that orders no erasure",
        _erased(RETRIED),
        UNAUTHORISED,
        forked(OUTPUT),
    ),
    Attack(
        "erase-by-none",
        "A content erased, naming an event that is not there",
        _erased(9999),
        UNAUTHORISED,
        forked(OUTPUT),
    ),
    Attack(
        "erase-behind",
        "A content erased, and added to those that an earlier event orders to be erased",
        (*_erased(REDACTION), _hidden_behind),
        always("edited", REDACTION),
        forked(REDACTION),
    ),
    Attack(
        "put-back",
        "Erased content put back, the row of its erasure left",
        (_put_back_erased,),
        always(
            "inserted",
            ERASED,
        ),
        shorter(COVERED - 1),
    ),
    Attack(
        "put-back-whole",
        "Erased content put back, the row of its erasure deleted",
        (
            "DELETE FROM redactions",
            _put_back_erased,
        ),
        always("removed", ERASED),
        shorter(COVERED - 1),
    ),
    Attack(
        "unerase",
        "The row of an erasure deleted",
        ("DELETE FROM redactions",),
        always("removed", ERASED),
        shorter(COVERED - 1),
    ),
)

# --- the tree and the head -----------------------------------------------------------------

HEAD: Final = always("edited", COVERED)


def _head(change: str, **values: Any) -> Statement:
    return f"UPDATE ledger_head SET {change}", values


TREE: Final = (
    Attack(
        "node",
        "A node of the tree edited",
        (("UPDATE tree_nodes SET hash = :h", {"h": b"h" * 32}),),
        always("edited", 1),
        RESTORED,
    ),
    Attack("node-delete", "A node of the tree deleted", ("DELETE FROM tree_nodes",), always("removed", 1), RESTORED),
    Attack("head-root", "The head's root edited", (_head("root = :h", h=b"h" * 32),), HEAD, RESTORED),
    Attack("head-frontier", "The head's frontier edited", (_head("frontier = :h", h=b"h" * 32),), HEAD, RESTORED),
    Attack(
        "head-time", "The head's time edited", (_head("recorded_at = '2091-01-01T00:00:00.000000Z'"),), HEAD, RESTORED
    ),
    Attack(
        "head-larger",
        "The head's size made larger",
        (_head("size = size + 1"),),
        always("truncated", COVERED + 1),
        RESTORED,
    ),
    Attack(
        "head-smaller",
        "The head's size made smaller",
        (_head("size = size - 1"),),
        always("inserted", COVERED),
        RESTORED,
    ),
    Attack("head-format", "The head's format version edited", (_head("format = 2"),), HEAD, HEAD),
    Attack(
        "origin",
        "The ledger given another name",
        (_head(f"origin = '{OTHER_ORIGIN}'"),),
        always("edited", 1),
        by_anchors(
            Told("forked", None),
        ),
    ),
)
