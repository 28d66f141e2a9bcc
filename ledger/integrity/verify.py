"""Verify a ledger: hash everything again, look at everything that refers to it, say what is unproven.

``Walk`` reads the events once, in order. What is about many rows at once (versions within a run
or a request, stray rows, projection tables, counts) is asked of the database, so that memory does
not grow with the number of requests; Python holds the names of runs without an end, no more.

Nothing here ever says PASS without an anchor, a signed checkpoint that vouches for the end of the
ledger: whoever can write to the database could otherwise cut off the tail, or write the whole
ledger anew, and nobody would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

import orjson

from ledger.integrity.guards import faulty_guards
from ledger.integrity.merkle import FANOUT_BITS
from ledger.integrity.survey import DATABASE_FILE, Survey, check_file, survey
from ledger.integrity.verdict import MAX_FINDINGS, MAX_LISTED, Findings, Kind, Verdict, Window, printable
from ledger.integrity.walk import Progress, Walk
from ledger.projections import rebuild
from ledger.projections.counts import counts
from ledger.projections.scratch import UnreadableEvent
from ledger.store import Store
from ledger.store.errors import LedgerBusy, LedgerMalformed, NotALedger, StatementRefused


def verify(store: Store, *, progress: Progress | None = None) -> Verdict:
    """Check the whole ledger. Reads only; others may append meanwhile, their events are not judged.

    ``progress`` is called now and then with (events done, events in all). What cannot be read is a
    finding; that the database does not answer is a ``LedgerError``.
    """
    found = Findings()
    unchecked: list[str] = []
    try:
        seen = survey(store, found)
    except LedgerMalformed as error:
        return unreadable(error)
    walk = None if seen.head is None else Walk(store, found, seen.head, head_sound=seen.head_sound)
    if walk is None:
        unchecked.append("the events: without the head nobody knows their origin, so they were not hashed again")
    for name, stage in _stages(store, found, unchecked, seen, walk, progress):
        try:
            stage()
        except UnreadableEvent as error:
            found.add(error.position, "payload", "edited", "no projection can take this event")
        except LedgerMalformed as error:
            found.add(walk.last_position + 1 if walk else None, "database", "edited", printable(error))
        except (NotALedger, StatementRefused):
            if seen.whole:
                raise
            unchecked.append(f"{name}: a table or a column that this needs is gone")
    return _verdict(seen, walk, found, unchecked)


def unreadable(error: LedgerMalformed) -> Verdict:
    """The verdict on a database so damaged that not even its tables can be listed."""
    found = Findings()
    found.add(None, DATABASE_FILE, "edited", printable(error))
    return _verdict(Survey(whole=False, head=None, head_sound=False), None, found, ["the events: none could be read"])


def _stages(
    store: Store, found: Findings, unchecked: list[str], seen: Survey, walk: Walk | None, progress: Progress | None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is checked, each under the name by which it is said that it could not be."""
    yield "the database file", lambda: check_file(store, found)
    if walk is not None:
        yield "the events", lambda: walk.run(progress)
    yield "versions", lambda: _check_versions(store, found)
    if seen.head_sound:
        yield "rows of no event", lambda: _check_strays(store, found)
        yield "the projection tables", lambda: _check_projections(store, found, unchecked)
    else:
        unchecked.append("the projection tables, and rows of no event: there is no sound head to go by")
    yield "the database's guards", lambda: _check_guards(store, unchecked)


# --- guards --------------------------------------------------------------------------------


def _check_guards(store: Store, unchecked: list[str]) -> None:
    faulty = faulty_guards(store)
    if faulty:
        more = [f"and {len(faulty) - MAX_LISTED} more"] if len(faulty) > MAX_LISTED else []
        unchecked.append(
            "that nobody changed rows past the database's own guards, which are not as they were made: "
            + ", ".join([*faulty[:MAX_LISTED], *more])
        )


# --- versions ------------------------------------------------------------------------------

_VERSIONS_SQL: Final = """
SELECT position, {version}, version_before, position_before FROM (
  SELECT position, {version},
    lag({version}) OVER stream AS version_before, lag(position) OVER stream AS position_before
  FROM events WHERE {version} IS NOT NULL
  WINDOW stream AS (PARTITION BY {stream} ORDER BY {version}, position)
) AS numbered
WHERE {version} <> coalesce(version_before, 0) + 1 OR position_before > position
ORDER BY position LIMIT {limit}
"""
_STREAMS: Final = {"run_version": "run_id", "request_version": "run_id, request_id"}


def _check_versions(store: Store, found: Findings) -> None:
    """1, 2, 3 ... within each run and each request, in order of position."""
    for version, stream in _STREAMS.items():
        sql = _VERSIONS_SQL.format(version=version, stream=stream, limit=MAX_FINDINGS + 1)
        for position, number, before, position_before in store.rows(sql, {}):
            kind, text = _version_fault(number, before or 0, position_before is not None and position_before > position)
            found.add(position, version, kind, text)


def _version_fault(number: object, before: object, backwards: bool) -> tuple[Kind, str]:
    if not isinstance(number, int) or not isinstance(before, int):
        return "edited", "no version"
    if number > before + 1:
        return "removed", f"{number} follows {before} in its stream"
    if backwards:
        return "reordered", "stands before an event of a smaller version"
    return "inserted", f"{number} is there more than once, or is no version"


# --- rows that belong to no event ----------------------------------------------------------

_BEYOND_SQL: Final = """
WITH head AS (SELECT size FROM ledger_head WHERE id = 1)
SELECT 'events', position FROM events, head WHERE position < 1 OR position > size
UNION ALL
SELECT 'contents', position FROM contents, head WHERE position < 1 OR position > size
UNION ALL
SELECT 'redactions', position FROM redactions, head WHERE position < 1 OR position > size
ORDER BY 2 LIMIT :limit
"""
_LEVELS_SQL: Final = """
SELECT level, min(node_index), max(node_index), (SELECT max(size) FROM ledger_head) FROM tree_nodes GROUP BY level
"""
_HEADS_SQL: Final = "SELECT count(*) FROM ledger_head"


def _check_strays(store: Store, found: Findings) -> None:
    """Rows that the walk cannot meet, since no event up to the head leads to them."""
    for table, position in store.rows(_BEYOND_SQL, {"limit": MAX_FINDINGS + 1}):
        found.add(position, table, "inserted", "stands beyond the size that the head says")
    for level, first, last, size in store.rows(_LEVELS_SQL, {}):
        end = (last + 1) << level * FANOUT_BITS if level > 0 else 0
        if level < 1 or first < 0 or end > size:
            found.add(None, "tree_nodes", "inserted", f"nodes of level {printable(level)} beyond the last event")
    for (heads,) in store.rows(_HEADS_SQL, {}):
        if heads != 1:
            found.add(None, "ledger_head", "inserted", f"{heads} heads where there is one")


# --- projections ---------------------------------------------------------------------------

_ENDS_SQL: Final = """
SELECT e.position, e.run_id, e.payload, r.ended_position
FROM events e LEFT JOIN runs r ON r.run_id = e.run_id
WHERE e.type IN ('RunCompleted', 'RunAbandoned') AND e.position <= :size
ORDER BY e.position
"""


def _check_projections(store: Store, found: Findings, unchecked: list[str]) -> None:
    """Projection tables equal to a fresh fold; then the counts that runs ended with, from the tables.

    ``unchecked`` gets sentences about what could not be compared.
    """
    try:
        differences = rebuild.check(store, MAX_FINDINGS + 1)
    except LedgerBusy:
        unchecked.append("the projection tables: events were appended faster than they could be compared")
        return
    for table, key, kind, columns in differences:
        row = ", ".join(printable(part) for part in key)
        detail = f" in {', '.join(columns)}" if columns else ""
        found.add(None, table, "projection altered", f"row ({row}): {kind}{detail}")
    if differences:
        return
    for position, run_id, payload, ended_position in store.rows(_ENDS_SQL, {"size": store.head().size}):
        if ended_position != position:
            unchecked.append(f"the counts at position {position}: run {printable(run_id)} went on after its end")
        elif orjson.loads(payload)["counts"] != counts(store, run_id).model_dump():
            found.add(position, "payload", "edited", "the run's counts are not what its events add up to")


# --- the verdict ---------------------------------------------------------------------------


def _verdict(seen: Survey, walk: Walk | None, found: Findings, unchecked: list[str]) -> Verdict:
    head = seen.head if seen.head_sound else None
    window = None if walk is None else _window(walk)
    open_runs = [] if walk is None else [printable(run_id) for run_id in walk.open_runs]
    return Verdict(
        origin=None if seen.head is None else seen.head.origin,
        size=None if head is None else head.size,
        root=None if head is None else head.root.hex(),
        events=0 if walk is None else walk.events,
        findings=found.sorted(),
        findings_left_out=found.left_out,
        unproven=(*(() if walk is None else _unproven(walk, window)), *unchecked),
        unsigned=window,
        open_runs=tuple(open_runs[:MAX_LISTED]),
        open_runs_left_out=max(0, len(open_runs) - MAX_LISTED),
        redactions=() if walk is None else tuple(walk.redactions),
        redactions_left_out=0 if walk is None else walk.redactions_left_out,
    )


def _unproven(walk: Walk, window: Window | None) -> Iterator[str]:
    if window is not None:
        minutes = "an unknown number of" if window.minutes is None else window.minutes
        yield (
            f"no signed checkpoint vouches for the end of the ledger: positions {window.first} to {window.last},"
            f" {window.events} events over {minutes} min, are unsigned, so a tail cut off or a history"
            " written anew would not be seen"
        )
    if walk.checkpoints:
        yield f"stored checkpoints that match the events but are signed by keys that nobody named: {walk.checkpoints}"
    if walk.open_runs:
        yield f"runs without a terminal event, of which nobody knows what they still had to do: {len(walk.open_runs)}"


def _window(walk: Walk) -> Window | None:
    if walk.first_time is None or walk.last_time is None:
        return None
    since, until = printable(walk.first_time), printable(walk.last_time)
    return Window(1, walk.last_position, since, until, _minutes(since, until))


def _minutes(since: str, until: str) -> int | None:
    try:
        span = datetime.fromisoformat(until) - datetime.fromisoformat(since)
    except ValueError:  # not times: a finding says so
        return None
    return -(-span // timedelta(minutes=1))
