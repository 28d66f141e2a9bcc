"""What a forger makes fit who owns the database and has read the format: everything that needs no key.

After any change to rows, ``mend`` makes a ledger of them again: numbers positions and versions anew, moves times so
that none goes back, counts what runs ended with, follows positions named in redactions, hashes payloads, contents,
leaves and nodes, writes the head, folds the projection tables, and takes out the stored checkpoints that
no longer agree. What he wants left as it is, he names.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final, Literal

from sqlalchemy import Connection, Table, delete, insert, select, text
from sqlmodel import SQLModel

from ledger.events import Counts, Event
from ledger.integrity import merkle
from ledger.integrity.canonical import encode_payload
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import SigningKey, sign_note
from ledger.projections.projection import fold_all
from ledger.projections.rebuild import rebuild
from ledger.projections.report import ReportFold
from ledger.projections.scratch import UnreadableEvent
from ledger.projections.tables import fold
from ledger.store import open_store
from ledger.store.envelope import FORMAT, commitment
from ledger.store.read import decoded
from ledger.store.records import EVENT_COLUMNS, decode_content
from ledger.tables import PROJECTION_TABLES, RECORD_TABLES
from tests.ledger.integrity.tampering import owner, unguarded

Part = Literal["positions", "versions", "times", "counts", "commitments", "checkpoints"]
Row = dict[str, Any]

TABLES: Final[dict[str, Table]] = {
    name: SQLModel.metadata.tables[name] for name in (*RECORD_TABLES, *PROJECTION_TABLES)
}
_FACTS: Final = EVENT_COLUMNS[: EVENT_COLUMNS.index("payload") + 1]


def mend(url: str, keep: Collection[Part] = ()) -> None:
    """Make everything fit that needs no key, but for the parts named."""
    with unguarded(url) as connection:
        _Forgery(connection, frozenset(keep)).run()
    with open_store(url, "write", fold=fold) as store, suppress(UnreadableEvent):
        rebuild(store)


def pour(source: str, url: str) -> None:
    """Put the rows of another ledger in place of all that are there."""
    with owner(source) as there, unguarded(url) as here:
        for table in TABLES.values():
            _write(here, table, _read(there, table))


def store_checkpoint(url: str, key: SigningKey) -> str:
    """Sign the ledger as it stands, and put that in place of what is stored at its size; gives the note."""
    with unguarded(url) as connection:
        origin, size, root = connection.execute(text("SELECT origin, size, root FROM ledger_head")).one()
        note = sign_note(format_checkpoint(Checkpoint(origin, size, bytes(root))), [key])
        connection.execute(text("DELETE FROM checkpoints WHERE size = :size"), {"size": size})
        connection.execute(insert(TABLES["checkpoints"]), [{"size": size, "root": bytes(root), "note": note}])
    return note


def take_event(connection: Connection, source: str, position: int) -> None:
    """Put another ledger's event and its content in place of the one of that number."""
    with owner(source) as there:
        for name in ("events", "contents"):
            table = TABLES[name]
            at = table.c.position == position
            (row,) = there.execute(select(table).where(at)).mappings()
            connection.execute(table.update().where(at).values(**row))


def take_content(connection: Connection, source: str, position: int) -> None:
    """Put back a content from another copy of the ledger."""
    table = TABLES["contents"]
    with owner(source) as there:
        (row,) = there.execute(select(table).where(table.c.position == position)).mappings()
    connection.execute(insert(table), [dict(row)])


def name_in_redaction(connection: Connection, position: int, erased: int) -> None:
    """Let the ``ContentRedacted`` event at ``position`` name one position more."""
    table = TABLES["events"]
    at = table.c.position == position
    said = json.loads(connection.execute(select(table.c.payload).where(at)).scalar_one())
    payload = _encoded(said | {"positions": [*said["positions"], erased]})
    connection.execute(table.update().where(at).values(payload=payload))


def dump(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, with the types of its values, in an order of its own."""
    with owner(url) as connection:
        return {
            name: sorted(
                (tuple((type(value).__name__, value) for value in row) for row in _all(connection, name)), key=repr
            )
            for name in (*TABLES, "alembic_version")
        }


def _all(connection: Connection, name: str) -> Any:
    return connection.execute(text(f"SELECT * FROM {name}")).all()


def _read(connection: Connection, table: Table) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in connection.execute(select(table)).mappings()]


def _write(connection: Connection, table: Table, rows: list[Row]) -> None:
    connection.execute(delete(table))
    if rows:
        connection.execute(insert(table), rows)


class _Forgery:
    def __init__(self, connection: Connection, keep: frozenset[Part]) -> None:
        self._connection, self._keep = connection, keep
        self._origin: str = connection.execute(text("SELECT origin FROM ledger_head")).scalar_one()
        self._events = sorted(_read(connection, TABLES["events"]), key=lambda row: int(row["position"]))
        self._contents = {row["position"]: row for row in _read(connection, TABLES["contents"])}
        self._redactions = _read(connection, TABLES["redactions"])

    def run(self) -> None:
        self._settle_redactions()
        if "positions" not in self._keep:
            self._number_positions()
        if "versions" not in self._keep:
            self._number_versions()
        if "times" not in self._keep:
            for earlier, later in zip(self._events[-2::-1], self._events[:0:-1], strict=True):
                earlier["recorded_at"] = min(earlier["recorded_at"], later["recorded_at"])
        if "counts" not in self._keep:
            self._count()
        self._hash()
        for name, rows in (
            ("events", self._events),
            ("contents", list(self._contents.values())),
            ("redactions", self._redactions),
        ):
            _write(self._connection, TABLES[name], rows)
        self._plant()

    # --- erasures --------------------------------------------------------------------------

    def _settle_redactions(self) -> None:
        """An erasure is named by an event and by a row, or by neither; what was put back was never erased."""
        there = {row["position"]: row for row in self._events}
        rows = {}
        for row in self._redactions:
            event = there.get(row["event_position"])
            named = event is not None and row["position"] in _positions(event)
            if named and row["position"] in there and row["position"] not in self._contents:
                rows[row["position"]] = row
        self._redactions = list(rows.values())
        for event in list(self._events):
            if event["type"] == "ContentRedacted":
                self._name(event, [p for p in _positions(event) if p in rows])
        self._contents = {position: row for position, row in self._contents.items() if position in there}

    def _name(self, event: Row, positions: list[int]) -> None:
        if not positions:
            self._events.remove(event)
            self._contents.pop(event["position"], None)
        elif positions != _positions(event):
            event["payload"] = _encoded(json.loads(event["payload"]) | {"positions": positions})

    # --- numbers ---------------------------------------------------------------------------

    def _number_positions(self) -> None:
        moved = {row["position"]: position for position, row in enumerate(self._events, 1)}
        if all(before == after for before, after in moved.items()):
            return
        for event in self._events:
            event["position"] = moved[event["position"]]
            if event["type"] == "ContentRedacted":
                self._name(event, sorted(moved[p] for p in _positions(event)))
        self._contents = {moved[p]: row | {"position": moved[p]} for p, row in self._contents.items()}
        self._redactions = [{name: moved[value] for name, value in row.items()} for row in self._redactions]

    def _number_versions(self) -> None:
        seen: Counter[tuple[Any, ...]] = Counter()
        for event in self._events:
            run, request = (event["run_id"],), (event["run_id"], event["request_id"])
            seen[run] += 1
            event["run_version"] = seen[run]
            if event["request_id"] is not None:
                seen[request] += 1
            event["request_version"] = seen[request] if event["request_id"] is not None else None

    def _count(self) -> None:
        for event in self._events:
            if event["type"] not in ("RunCompleted", "RunAbandoned"):
                continue
            of_run = [tuple(row[name] for name in _FACTS) for row in self._events if row["run_id"] == event["run_id"]]
            events = [item for item in decoded(of_run) if isinstance(item, Event)]
            made = fold_all(ReportFold(event["run_id"]), events).finish(bytes(32))
            counts = {name: made[name] for name in Counts.model_fields}
            said = json.loads(event["payload"])
            if said["counts"] != counts:
                event["payload"] = _encoded(said | {"counts": counts})

    # --- hashes ----------------------------------------------------------------------------

    def _hash(self) -> None:
        erased = {row["position"] for row in self._redactions}
        for event in self._events:
            event["payload_sha256"] = hashlib.sha256(event["payload"].encode()).hexdigest()
            content = self._contents.get(event["position"])
            if "commitments" not in self._keep and event["position"] not in erased:
                event["content_commitment"] = None if content is None else _committed(content)
            event["leaf_hash"] = merkle.leaf_hash(encode_payload(self._envelope(event)))

    def _envelope(self, event: Row) -> Row:
        hashed = {name: value for name, value in event.items() if name not in ("payload", "leaf_hash")}
        return {**hashed, "v": FORMAT, "ledger": self._origin}

    def _plant(self) -> None:
        """Nodes, head, and the checkpoints that stay."""
        tree = merkle.Frontier()
        roots, nodes = {}, []
        for event in self._events:
            nodes += [node._asdict() for node in tree.append(event["leaf_hash"])]
            roots[tree.size] = tree.root()
        _write(self._connection, TABLES["tree_nodes"], nodes)
        head = {"size": tree.size, "root": tree.root(), "frontier": tree.to_bytes()}
        table = TABLES["ledger_head"]
        last = self._events[-1]["recorded_at"]
        self._connection.execute(table.update().values(**head, recorded_at=last))
        if "checkpoints" not in self._keep:
            stored = _read(self._connection, TABLES["checkpoints"])
            _write(
                self._connection,
                TABLES["checkpoints"],
                [row for row in stored if roots.get(row["size"]) == row["root"]],
            )


def _positions(event: Row) -> list[int]:
    return list(json.loads(event["payload"]).get("positions", ())) if event["type"] == "ContentRedacted" else []


def _committed(content: Row) -> str:
    return commitment(content["salt"], decode_content(content["position"], content["encoding"], content["body"]))


def _encoded(payload: Row) -> str:
    return encode_payload(payload).decode()
