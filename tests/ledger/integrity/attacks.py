"""Attacks on the log itself: on each member of an event, on the order of events, on the end."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection

from tests.ledger.integrity.attack import RESTORED, Attack, always, forked, shorter
from tests.ledger.integrity.forging import take_event
from tests.ledger.integrity.scene import CALLS, COVERED, FALLBACK, RUN_1_END, Target, outputs_of
from tests.ledger.integrity.tampering import Statement

# --- edits ---------------------------------------------------------------------------------

OUTPUT: Final = outputs_of(7)

AGAIN: Final = "0197a3c0-0000-7000-8000-000000000000"


def event_set(member: str, value: str, at: int = OUTPUT) -> str:
    return f"UPDATE events SET {member} = {value} WHERE position = {at}"


def content_set(change: str, at: int = OUTPUT, **values: Any) -> Statement:
    return f"UPDATE contents SET {change} WHERE position = {at}", values


def payload_replaced(before: str, after: str, at: int = OUTPUT) -> Statement:
    return f"UPDATE events SET payload = replace(payload, :a, :b) WHERE position = {at}", {"a": before, "b": after}


EDITED: Final = always("edited", OUTPUT)
LOW_RISK: Final = payload_replaced('"risk_level":"medium"', '"risk_level":"low"')

EDITS: Final = (
    Attack(
        "position",
        "An event's number, to one past the end",
        (
            event_set("position", "9999"),
            "UPDATE contents SET position = 9999 WHERE position = " + str(OUTPUT),
        ),
        always("removed", OUTPUT),
        forked(OUTPUT),
        keep=frozenset({"counts"}),  # it stands behind the end of its run now, where nothing counts it
    ),
    Attack("event_id", "An event's id", (event_set("event_id", f"'{AGAIN}'"),), EDITED, forked(OUTPUT)),
    Attack(
        "type",
        "An event's type, to one that has the same facts (FallbackApplied to Retried)",
        (event_set("type", "'Retried'", FALLBACK),),
        always("edited", FALLBACK),
        forked(FALLBACK),
    ),
    Attack(
        "type-of-other-facts",
        "An event's type, to one that has other facts",
        (event_set("type", "'ModelCallFailed'"),),
        EDITED,
        EDITED,
    ),
    Attack("schema", "The version of an event's form", (event_set("schema", "2"),), EDITED, EDITED),
    Attack("run_id", "The run that an event belongs to", (event_set("run_id", "'run-9'"),), EDITED, forked(OUTPUT)),
    Attack(
        "run_version",
        "An event's number within its run",
        (event_set("run_version", "run_version + 200"),),
        EDITED,
        always("removed", OUTPUT),
        keep=frozenset({"versions"}),
    ),
    Attack(
        "request_id",
        "The request that an event belongs to",
        (event_set("request_id", "'INC-9999'"),),
        EDITED,
        forked(OUTPUT),
    ),
    Attack(
        "request_version",
        "An event's number within its request",
        (event_set("request_version", "request_version + 1"),),
        EDITED,
        always("removed", OUTPUT),
        keep=frozenset({"versions"}),
    ),
    Attack(
        "recorded_at",
        "The time of an event, to an earlier one",
        (event_set("recorded_at", "'2026-11-30T20:42:00.000000Z'"),),
        EDITED,
        forked(OUTPUT),
    ),
    Attack(
        "recorded_at-backwards",
        "The time of an event, so that time goes back there",
        (event_set("recorded_at", "'2026-11-30T20:42:00.000000Z'"),),
        EDITED,
        EDITED,
        keep=frozenset({"times"}),
    ),
    Attack(
        "payload_sha256",
        "The digest of an event's facts",
        (event_set("payload_sha256", f"'{'0' * 64}'"),),
        EDITED,
        RESTORED,
    ),
    Attack(
        "content_commitment",
        "What an event commits to as its content",
        (event_set("content_commitment", f"'{'0' * 64}'"),),
        EDITED,
        RESTORED,
    ),
    Attack(
        "content_commitment-kept",
        "What an event commits to as its content, the content left as it is",
        (event_set("content_commitment", f"'{'0' * 64}'"),),
        EDITED,
        EDITED,
        keep=frozenset({"commitments"}),
    ),
    Attack(
        "leaf_hash",
        "An event's leaf hash",
        (
            (
                "UPDATE events SET leaf_hash = :h WHERE position = :p",
                {
                    "h": b"h" * 32,
                    "p": OUTPUT,
                },
            ),
        ),
        EDITED,
        RESTORED,
    ),
    Attack("payload", "An event's facts: a risk of medium made low", (LOW_RISK,), EDITED, forked(OUTPUT)),
    Attack(
        "payload-form",
        "An event's facts, written in another form of the same JSON",
        (payload_replaced(":", ": "),),
        EDITED,
        EDITED,
    ),
    Attack(
        "counts",
        "The counts that a run ended with",
        (payload_replaced('"rejected":0', '"rejected":1', RUN_1_END),),
        always("edited", RUN_1_END),
        always("edited", RUN_1_END),
        keep=frozenset({"counts"}),
    ),
    Attack(
        "content",
        "A content: what the model answered",
        (content_set("body = replace(body, 'restart', 'delete')"),),
        EDITED,
        forked(OUTPUT),
    ),
    Attack(
        "content-form",
        "A content: the same bytes, stored as base64",
        (content_set("encoding = 'base64', body = 'eyJtZXNzYWdlcyI6W119'", CALLS + 1),),
        always("edited", CALLS + 1),
        always("edited", CALLS + 1),
    ),
    Attack("salt", "A content's salt", (content_set("salt = :salt", salt=b"s" * 32),), EDITED, forked(OUTPUT)),
)


# --- removed, inserted, reordered ----------------------------------------------------------


def deleted(where: str) -> tuple[Statement, ...]:
    return f"DELETE FROM contents WHERE {where}", f"DELETE FROM events WHERE {where}"


def moved(where: str, to: str, *, tail: bool = False) -> tuple[Statement, ...]:
    """Numbers changed, by way of numbers that nobody has. ``tail``: up to the end, where an erasure is ordered."""
    places = [("events", "position"), ("contents", "position"), *([("redactions", "event_position")] if tail else [])]
    return tuple(
        statement.replace("position", column)
        for table, column in places
        for statement in (
            f"UPDATE {table} SET position = -({to}) WHERE {where}",
            f"UPDATE {table} SET position = -position WHERE position < 0",
        )
    )


def inserted(after: int, like: int) -> tuple[Statement, ...]:
    """An event that is another one once more, after a position; those beyond are moved up."""
    columns = "type, schema, run_id, request_id, recorded_at, payload, payload_sha256, leaf_hash"
    version = f"(SELECT request_version + 9999 FROM events WHERE position = {like})"
    return (
        *(moved(f"position > {after}", "position + 1", tail=True) if after < COVERED else ()),
        (
            f"INSERT INTO events (position, event_id, run_version, request_version, {columns})"
            f" SELECT {after + 1}, '{AGAIN}', 9999, {version}, {columns} FROM events WHERE position = {like}"
        ),
    )


def _event_of_another_ledger(target: Target, connection: Connection) -> None:
    take_event(connection, target.side("other"), OUTPUT)


MIDDLE: Final = f"position IN ({OUTPUT - 2}, {OUTPUT - 1}, {OUTPUT})"

MOVES: Final = (
    Attack(
        "delete", "An event deleted", deleted(f"position = {OUTPUT}"), always("removed", OUTPUT), shorter(COVERED - 1)
    ),
    Attack(
        "delete-and-renumber",
        "An event deleted, and those after it numbered anew",
        (*deleted(f"position = {OUTPUT}"), *moved(f"position > {OUTPUT}", "position - 1", tail=True)),
        always("reordered", OUTPUT),
        shorter(COVERED - 1),
    ),
    Attack(
        "delete-a-call",
        "A model call and its answer deleted",
        deleted(MIDDLE),
        always(
            "removed",
            OUTPUT - 1,
        ),
        shorter(COVERED - 3),
    ),
    Attack(
        "delete-first",
        "The ledger's first event deleted",
        ("DELETE FROM events WHERE position = 1",),
        always(
            "removed",
            1,
        ),
        always("inserted", 1),
    ),
    Attack(
        "delete-content",
        "A content deleted",
        (f"DELETE FROM contents WHERE position = {OUTPUT}",),
        always(
            "removed",
            OUTPUT,
        ),
        forked(OUTPUT),
    ),
    Attack(
        "insert",
        "An event inserted in the middle",
        inserted(OUTPUT, OUTPUT),
        always("edited", OUTPUT + 1),
        forked(
            OUTPUT + 1,
            COVERED + 1,
        ),
    ),
    Attack(
        "reorder",
        "Two neighbouring events exchanged",
        moved(
            f"position IN ({OUTPUT}, {OUTPUT + 1})",
            f"{2 * OUTPUT + 1} - position",
        ),
        always("reordered", OUTPUT),
        forked(OUTPUT),
    ),
    Attack(
        "renumber",
        "Ten events numbered in another order",
        moved(f"position BETWEEN {OUTPUT} AND {OUTPUT + 9}", f"{OUTPUT} + (position - {OUTPUT} + 3) % 10"),
        always("reordered", OUTPUT),
        forked(OUTPUT),
    ),
    Attack(
        "gap",
        "Events numbered on after a gap",
        moved(f"position > {OUTPUT}", "position + 5", tail=True),
        always(
            "removed",
            OUTPUT + 1,
        ),
        RESTORED,
    ),
    Attack(
        "another-ledgers",
        "An event put in place of the one of that number in another ledger",
        (_event_of_another_ledger,),
        EDITED,
        forked(OUTPUT),
    ),
)

# --- the end -------------------------------------------------------------------------------

CUT: Final = COVERED - 6
_TAIL: Final = (*deleted(f"position > {CUT}"), f"DELETE FROM redactions WHERE event_position > {CUT}")

TAILS: Final = (
    Attack(
        "cut-tail",
        "The last events cut off",
        _TAIL,
        always("truncated", CUT + 1),
        always("rolled back", COVERED),
        keep=frozenset({"checkpoints"}),
    ),
    Attack(
        "cut-tail-and-checkpoints",
        "The last events cut off, and the stored checkpoints over them",
        (*_TAIL, f"DELETE FROM checkpoints WHERE size > {CUT}"),
        always("truncated", CUT + 1),
        shorter(CUT),
    ),
    Attack(
        "empty",
        "Everything deleted but the head",
        (
            *deleted("position > 0"),
            "DELETE FROM redactions",
            "DELETE FROM tree_nodes",
            "DELETE FROM checkpoints",
        ),
        always("truncated", 1),
        None,
    ),
)
