"""Reading: pages by key, never by offset, so that memory stays bounded and no page is read twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from ledger.events import EVENT_TYPES, Event, placed_event
from ledger.shapes import in_form
from ledger.store.backend import Backend, Fetches, Row
from ledger.store.errors import LedgerMalformed
from ledger.store.records import EVENT_COLUMNS, Record, Unreadable, decode_content
from ledger.upcast import upcast

PAGE: Final = 1000
_CONTENTS_AT_ONCE: Final = 500

_ENVELOPE: Final = ", ".join(EVENT_COLUMNS[:9])
_RECORDS_SQL: Final = f"""
SELECT {", ".join(f"e.{column}" for column in EVENT_COLUMNS)}, c.salt, c.encoding, c.body, r.event_position
FROM events AS e
LEFT JOIN contents AS c ON c.position = e.position LEFT JOIN redactions AS r ON r.position = e.position
WHERE e.position > :at AND e.position <= :end ORDER BY e.position
"""  # noqa: S608 - our own columns
_LAST_POSITION_SQL: Final = "SELECT coalesce(max(position), 0) FROM events"
_LAST_START_SQL: Final = """
SELECT position FROM events WHERE run_id = :run_id AND type = 'RunStarted' AND position <= :upto
ORDER BY position DESC LIMIT 1
"""
_RUN_VERSION_SQL: Final = "SELECT coalesce(max(run_version), 0) FROM events WHERE run_id = :run_id"
_REQUEST_VERSION_SQL: Final = """
SELECT coalesce(max(request_version), 0) FROM events WHERE run_id = :run_id AND request_id = :request_id
"""
_POSITION_OF_VERSION_SQL: Final = "SELECT position FROM events WHERE run_id = :run_id AND run_version = :version"
_NO_END: Final = 2**62

_TYPE, _SCHEMA = EVENT_COLUMNS.index("type"), EVENT_COLUMNS.index("schema")
_SCHEMAS: Final = {name: cls.SCHEMA for name, cls in EVENT_TYPES.items()}
_VALIDATE: Final = {name: cls.__pydantic_validator__.validate_python for name, cls in EVENT_TYPES.items()}
_WORTH_COLUMNS: Final = 32
"""Of fewer rows, a type has so few that one by one is faster."""


def version(backend: Backend, run_id: str, request_id: str | None) -> int:
    """The version of a stream's last event; 0 where it has none."""
    if request_id is None:
        ((found,),) = backend.fetch(_RUN_VERSION_SQL, {"run_id": run_id})
    else:
        ((found,),) = backend.fetch(_REQUEST_VERSION_SQL, {"run_id": run_id, "request_id": request_id})
    return int(found)


def events(
    backend: Backend,
    run_id: str | None,
    *,
    after: int,
    upto: int | None,
    request_id: str | None,
    since_last_start: bool,
    of_no_request: bool = False,
) -> Iterator[Event | Unreadable]:
    """See ``Store.events``."""
    end = _NO_END if upto is None else upto
    if since_last_start:
        started = backend.fetch(_LAST_START_SQL, {"run_id": run_id, "upto": end})
        if not started:
            return
        after = max(after, started[0][0] - 1)
    for rows in _pages(backend, run_id, request_id, after, end, of_no_request=of_no_request):
        yield from decoded(rows)


def _pages(
    backend: Backend, run_id: str | None, request_id: str | None, after: int, end: int, *, of_no_request: bool
) -> Iterator[Sequence[Row]]:
    """Rows of ``_ENVELOPE`` and payload with after < position <= end, a page at a time.

    Within a run or a request, positions rise with versions: the version is the key, and the page
    in which a position passes ``end`` is the last.
    """
    if run_id is None:
        key, at, where = "position", after, "TRUE"
    elif request_id is None:
        key, at, where = "run_version", _version_at(backend, run_id, after), "run_id = :run_id"
    else:
        key, at, where = "request_version", 0, "run_id = :run_id AND request_id = :request_id"
    if of_no_request:
        where += " AND request_id IS NULL"
    sql = f"""
        SELECT {_ENVELOPE}, {backend.payload_column} FROM events
        WHERE {where} AND {key} > :at ORDER BY {key} LIMIT {PAGE}
    """  # noqa: S608 - our own columns
    params: dict[str, Any] = {"run_id": run_id, "request_id": request_id}
    index = EVENT_COLUMNS.index(key)
    while True:
        rows = backend.fetch(sql, {**params, "at": at})
        wanted = rows
        if rows and (rows[0][0] <= after or rows[-1][0] > end):
            wanted = [row for row in rows if after < row[0] <= end]
        if wanted:
            yield wanted
        if len(rows) < PAGE or rows[-1][0] > end:
            return
        at = rows[-1][index]


def request_events(
    backend: Backend, positions: Sequence[int], *, after: int, upto: int
) -> Iterator[Event | Unreadable]:
    """See ``Store.request_events``."""
    marks = ", ".join(f":p{number}" for number in range(len(positions)))
    columns = ", ".join(f"e.{column}" for column in EVENT_COLUMNS[:9])
    payload = backend.payload_column.replace("payload", "e.payload")
    sql = f"""
        SELECT {columns}, {payload}
        FROM events AS named JOIN events AS e ON e.run_id = named.run_id AND e.request_id = named.request_id
        WHERE named.position IN ({marks}) AND e.position > :after AND e.position <= :upto ORDER BY e.position
    """  # noqa: S608 - our own columns
    numbered = {f"p{number}": position for number, position in enumerate(positions)}
    yield from decoded(backend.fetch(sql, {**numbered, "after": after, "upto": upto}))


def _version_at(backend: Backend, run_id: str, after: int) -> int:
    """The run's version at position ``after``, by bisection: positions rise with versions."""
    low, high = 0, version(backend, run_id, None) if after > 0 else 0
    while low < high:
        middle = (low + high + 1) // 2
        found = backend.fetch(_POSITION_OF_VERSION_SQL, {"run_id": run_id, "version": middle})
        if not found:  # versions are dense unless rows were removed: then leave nothing out
            return 0
        low, high = (middle, high) if found[0][0] <= after else (low, middle - 1)
    return low


def decoded(rows: Sequence[Row]) -> list[Event | Unreadable]:
    """Events from rows, one for one, their payloads brought to the present schema; ``Unreadable`` what cannot be.

    A payload then has the members of its type and each is of its form, so a fold may trust what it is given,
    even from a ledger that somebody altered.
    """
    found = _in_bulk(rows) if len(rows) >= _WORTH_COLUMNS else None
    return list(map(_decoded, rows)) if found is None else found


def _in_bulk(rows: Sequence[Row]) -> list[Event | Unreadable] | None:
    """All of them at once, at half of what they cost one by one; None where one of them is out of the ordinary."""
    *facts, texts = zip(*rows, strict=True)
    try:
        payloads = list(map(orjson.loads, texts))
    except (ValueError, TypeError):
        return None
    by_type: dict[tuple[Any, Any], list[Any]] = {}
    for kind, payload in zip(zip(facts[_TYPE], facts[_SCHEMA], strict=True), payloads, strict=True):
        by_type.setdefault(kind, []).append(payload)
    if not all(_SCHEMAS.get(type_) == schema and in_form(type_, of) for (type_, schema), of in by_type.items()):
        return None
    return list(map(placed_event, zip(*facts, payloads, strict=True)))


def _decoded(row: Row) -> Event | Unreadable:
    position, event_id, type_, schema, run_id, run_version, request_id, request_version, time, text = row
    try:
        payload = orjson.loads(text)
        current = _SCHEMAS[type_]
        if schema != current:
            payload = upcast(type_, schema, payload)
        _VALIDATE[type_](payload)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        return Unreadable(position, run_id, request_id, type_, _reason(type_, error))
    return placed_event(
        (position, event_id, type_, current, run_id, run_version, request_id, request_version, time, payload)
    )


def _reason(type_: object, error: Exception) -> str:
    if type_ not in _SCHEMAS:
        return "unknown type"
    if isinstance(error, orjson.JSONDecodeError):
        return "its payload is not JSON"
    return str(error) if isinstance(error, LookupError) else "its payload is not of its type's form"


def contents(backend: Backend, positions: Iterable[int], undecodable: set[int] | None = None) -> dict[int, bytes]:
    """See ``Store.contents``."""
    found: dict[int, bytes] = {}
    remaining = iter(positions)
    while chunk := list(islice(remaining, _CONTENTS_AT_ONCE)):
        for position, encoding, body in _bodies(backend, chunk):
            try:
                found[position] = decode_content(position, encoding, body)
            except LedgerMalformed:
                if undecodable is None:
                    raise
                undecodable.add(position)
    return found


def _bodies(backend: Backend, positions: Sequence[int]) -> Iterator[Row]:
    """Position, encoding and body; no encoding where the body is one that the driver itself cannot decode."""
    marks = ", ".join(f":p{number}" for number in range(len(positions)))
    sql = f"SELECT position, encoding, body FROM contents WHERE position IN ({marks})"  # noqa: S608
    try:
        yield from backend.fetch(sql, {f"p{n}": at for n, at in enumerate(positions)})
    except LedgerMalformed:  # on SQLite one text that is not UTF-8 spoils the answer for all
        if len(positions) == 1:
            yield (positions[0], None, None)
            return
        for position in positions:
            yield from _bodies(backend, [position])


def records(backend: Fetches, after: int, upto: int | None) -> Iterator[Record]:
    """See ``Store.records``."""
    ((last,),) = backend.fetch(_LAST_POSITION_SQL)
    end = last if upto is None else min(last, upto)
    for at in range(after, end, PAGE):
        rows = backend.fetch(_RECORDS_SQL, {"at": at, "end": min(at + PAGE, end)})
        yield from map(Record._make, rows)


def tree_nodes(backend: Backend, level: int, first: int, count: int) -> list[bytes]:
    """Stored roots of complete subtrees of 256**level leaves."""
    sql = """
        SELECT hash FROM tree_nodes
        WHERE level = :level AND node_index >= :first AND node_index < :end ORDER BY node_index
    """
    return [row[0] for row in backend.fetch(sql, {"level": level, "first": first, "end": first + count})]


def leaf_hashes(backend: Backend, first: int, count: int) -> list[bytes]:
    """Leaf hashes from index ``first`` (position - 1) on."""
    sql = "SELECT leaf_hash FROM events WHERE position > :first AND position <= :end ORDER BY position"
    return [row[0] for row in backend.fetch(sql, {"first": first, "end": first + count})]
