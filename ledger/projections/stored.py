"""The projection tables as they are stored, taken apart and added up as ``tally.py`` does with events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, islice
from operator import gt, lt
from typing import Any, Final

import orjson
from sqlalchemy import Boolean
from sqlmodel import SQLModel

from ledger.projections import tables
from ledger.projections.collector import paused_collector
from ledger.projections.tally import (
    ACCEPTED,
    ANSWERED,
    DECIDED,
    FAILED,
    FAILURE,
    MODULUS,
    REPORT,
    RUN,
    RUN_COLUMNS,
    STARTED,
    Unusual,
    errors_part,
    sum_of,
)
from ledger.store import Store
from ledger.store.changes import Change, columns_of
from ledger.tables import PROJECTION_TABLES, FailureRow, ModelCallRow, ReportRow, RequestRow

_ROWS_AT_ONCE: Final = 256
_TYPES: Final = frozenset({str, int, bool, type(None)})
_FLAGS: Final = {0: False, 1: True, None: None}
_DECIDED_COLUMNS: Final = columns_of(tables.ACCEPT_OUTPUT)
_UNDECIDED: Final = tuple(name for name in tables.ACCEPT_OUTPUT.sets if name != "error")

Columns = dict[str, Sequence[Any]]


def stored_total(store: Store, key: bytes, table: str) -> int:
    """The sum over every part of every row of the table. Raises ``Unusual``."""
    declared = SQLModel.metadata.tables[table]
    names = [column.name for column in declared.columns]
    flags = [column.name for column in declared.columns if isinstance(column.type, Boolean)]
    primary = [column.name for column in declared.primary_key]
    sql = f"SELECT {', '.join(names)} FROM {table} ORDER BY {', '.join(primary)}"  # noqa: S608 - our own names
    rows, total, last = store.rows(sql), 0, None
    with paused_collector():
        while page := list(islice(rows, _ROWS_AT_ONCE)):
            try:
                columns = _columns(names, page)
                keys = list(zip(*map(columns.__getitem__, primary), strict=True))
                if not all(map(lt, keys, keys[1:])) or (last is not None and not last < keys[0]):
                    raise Unusual
                for flag in flags:
                    columns[flag] = list(map(_FLAGS.__getitem__, columns[flag]))
                total += sum_of(key, _PARTS[table](columns))
            except (TypeError, ValueError, KeyError):  # values of a wrong type
                raise Unusual from None
            last = keys[-1]
    return total % MODULUS


def _columns(names: Sequence[str], page: Sequence[tuple[Any, ...]]) -> Columns:
    if not _TYPES.issuperset(map(type, chain.from_iterable(page))):
        raise Unusual
    return dict(zip(names, zip(*page, strict=True), strict=True))


def _whole(kind: bytes, names: Sequence[str]) -> Callable[[Columns], Iterable[bytes]]:
    return lambda columns: _parts(kind, names, columns)


def _parts(kind: bytes, names: Iterable[str], columns: Columns) -> Iterator[bytes]:
    return map(kind.__add__, map(orjson.dumps, zip(*map(columns.__getitem__, names), strict=True)))


def _where(columns: Columns, names: Iterable[str], chosen: Sequence[bool]) -> Columns:
    return {name: list(compress(columns[name], chosen)) for name in names}


def _refuse_values(columns: Columns, names: Iterable[str]) -> None:
    """Raise ``Unusual`` unless all of these columns are null."""
    if any(column.count(None) != len(column) for column in map(columns.__getitem__, names)):
        raise Unusual


def _refuse_disorder(columns: Columns, later: str, earlier: str) -> None:
    if not all(map(gt, columns[later], columns[earlier])):
        raise Unusual


def _requests(columns: Columns) -> Iterable[bytes]:
    unknown = columns["outcome_unknown"]
    if None in unknown:
        raise Unusual
    accepted = {**columns, "outcome_unknown": [False] * len(unknown)}
    decided = [outcome is not None for outcome in columns["outcome"]]
    done = columns if all(decided) else _where(columns, (*_DECIDED_COLUMNS, "accepted_position"), decided)
    _refuse_disorder(done, "decided_position", "accepted_position")
    if not all(decided):
        _refuse_values(_where(columns, _UNDECIDED, [not each for each in decided]), _UNDECIDED)
    yield from _parts(ACCEPTED, columns_of(tables.ACCEPT_REQUEST), accepted)
    yield from _parts(DECIDED, _DECIDED_COLUMNS, done)
    if True not in unknown and columns["first_error"].count(None) == columns["error"].count(None) == len(unknown):
        return
    errors = zip(columns["first_error"], unknown, columns["error"], strict=True)
    for at, (first, is_unknown, error) in enumerate(errors):
        if first is not None or is_unknown or (error is not None and not decided[at]):
            if first is None and not is_unknown:
                raise Unusual
            left = None if decided[at] else error
            yield from errors_part(first, is_unknown, left, columns["run_id"][at], columns["request_id"][at])


def _null_beside(*changes: Change) -> tuple[str, ...]:
    """The columns of a call that these changes do not write."""
    written = {name for change in changes for name in columns_of(change)}
    return tuple(name for name in ModelCallRow.model_fields if name not in written)


# A call's state: the kind of its last part, the columns of that, and those that are null.
_CALL_STATES: Final = {
    "started": (STARTED, (), _null_beside(tables.START_CALL)),
    "answered": (ANSWERED, columns_of(tables.ANSWER_CALL), _null_beside(tables.START_CALL, tables.ANSWER_CALL)),
    "failed": (FAILED, columns_of(tables.FAIL_CALL), _null_beside(tables.START_CALL, tables.FAIL_CALL)),
}


def _model_calls(columns: Columns) -> Iterable[bytes]:
    states = columns["state"]
    begun = {**columns, "state": ["started"] * len(states)}
    yield from _parts(STARTED, columns_of(tables.START_CALL), begun)
    for state in set(states):
        kind, written, null = _CALL_STATES[state]
        chosen = list(map(state.__eq__, states))
        needed = (*written, *null, "started_position")
        of_state = columns if all(chosen) else _where(columns, needed, chosen)
        _refuse_values(of_state, null)
        if written:
            _refuse_disorder(of_state, "finished_position", "started_position")
            yield from _parts(kind, written, of_state)


_PARTS: Final[dict[str, Callable[[Columns], Iterable[bytes]]]] = {
    "runs": _whole(RUN, RUN_COLUMNS),
    "requests": _requests,
    "model_calls": _model_calls,
    "failures": _whole(FAILURE, columns_of(tables.ADD_FAILURE)),
    "reports": _whole(REPORT, columns_of(tables.ADD_REPORT)),
}
assert set(_PARTS) == set(PROJECTION_TABLES)
# A column that no part has would be compared with nothing.
assert {*columns_of(tables.ACCEPT_REQUEST), *_DECIDED_COLUMNS, "first_error"} == set(RequestRow.model_fields)
assert all(
    {*columns_of(tables.START_CALL), *written, *null} == set(ModelCallRow.model_fields)
    for _, written, null in _CALL_STATES.values()
)
assert set(columns_of(tables.ADD_FAILURE)) == set(FailureRow.model_fields)
assert set(columns_of(tables.ADD_REPORT)) == set(ReportRow.model_fields)
