"""How a projection asks the store to change its rows: a few named statements, declared once.

A table projection is a pure function from an event to ``(Change, values)`` pairs. The store runs
them inside the append's own transaction (grouped, in bulk); a rebuild runs the same pairs into a
scratch database. Only rows keyed by the event's own run and request may be touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from ledger.events import Event


class Change(NamedTuple):
    """One statement shape.

    The values that go with it stand in the order ``sets + sets_if_null + key``. For an insert,
    ``key`` columns are inserted too. ``sets_if_null`` columns keep a value that they have.
    """

    kind: Literal["insert", "update", "delete"]
    table: str
    key: tuple[str, ...]
    sets: tuple[str, ...] = ()
    sets_if_null: tuple[str, ...] = ()


RowChange = tuple[Change, tuple[Any, ...]]
TableFold = Callable[[Event], Iterable[RowChange]]


def no_fold(_: Event) -> Iterable[RowChange]:
    """A ledger without projection tables: for tests and benchmarks of the log alone."""
    return ()


@lru_cache(maxsize=256)
def statement(change: Change, mark: str) -> str:
    """The SQL of a change, with ``mark`` (``?`` or ``%s``) for each value."""
    where = " AND ".join(f"{column} = {mark}" for column in change.key)
    if change.kind == "delete":
        return f"DELETE FROM {change.table} WHERE {where}"  # noqa: S608 - names from our own declarations
    if change.kind == "insert":
        columns = columns_of(change)
        marks = ", ".join([mark] * len(columns))
        return f"INSERT INTO {change.table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
    assigned = [f"{column} = {mark}" for column in change.sets]
    assigned += [f"{column} = coalesce({column}, {mark})" for column in change.sets_if_null]
    return f"UPDATE {change.table} SET {', '.join(assigned)} WHERE {where}"  # noqa: S608


@lru_cache(maxsize=256)
def bulk_statement(change: Change) -> str:
    """Postgres: an insert or update of many rows, each once, given as one JSON array of objects.

    The table's own row type says what the JSON values are.
    """
    rows = f"json_populate_recordset(NULL::{change.table}, %s::json)"
    if change.kind == "insert":
        columns = ", ".join(columns_of(change))
        return f"INSERT INTO {change.table} ({columns}) SELECT {columns} FROM {rows}"  # noqa: S608
    assigned = [f"{column} = v.{column}" for column in change.sets]
    assigned += [f"{column} = coalesce(t.{column}, v.{column})" for column in change.sets_if_null]
    where = " AND ".join(f"t.{column} = v.{column}" for column in change.key)
    return f"UPDATE {change.table} AS t SET {', '.join(assigned)} FROM {rows} AS v WHERE {where}"  # noqa: S608


def columns_of(change: Change) -> tuple[str, ...]:
    """The columns of a change, in the order of its values."""
    return (*change.sets, *change.sets_if_null, *change.key)


_OF_AN_APPEND: Final = 1000
"""In so few changes it is seldom that a row is touched twice; in a rebuild's thousands it is the rule."""


def in_bulk(changes: Iterable[RowChange]) -> list[tuple[Change, list[tuple[Any, ...]]]]:
    """Group changes by their statement so that each can be run once for many rows.

    The outcome is that of running them one by one, and a group names each row once.
    """
    changes = list(changes)
    if len(changes) > _OF_AN_APPEND:
        return _in_order(changes)
    by_shape: dict[int, tuple[Change, list[tuple[Any, ...]]]] = {}  # by identity: hashing a shape costs more
    for change, values in changes:
        group = by_shape.get(id(change))
        if group is None:
            by_shape[id(change)] = change, [values]
        else:
            group[1].append(values)
    groups = list(by_shape.values())
    return groups if _all_of_different_rows(groups) else _in_order(changes)


def _all_of_different_rows(groups: Sequence[tuple[Change, list[tuple[Any, ...]]]]) -> bool:
    """Is no row touched twice, so that any order of the changes gives the same?"""
    rows: dict[str, set[tuple[Any, ...]]] = {}
    expected: dict[str, int] = {}
    for (kind, table, key, _, _), values in groups:
        if kind == "delete":  # of as many rows as its key covers
            return False
        rows.setdefault(table, set()).update([row[-len(key) :] for row in values])
        expected[table] = expected.get(table, 0) + len(values)
    return all(len(rows[table]) == count for table, count in expected.items())


def _in_order(changes: Iterable[RowChange]) -> list[tuple[Change, list[tuple[Any, ...]]]]:
    """As ``in_bulk``, where rows are touched more than once.

    A change joins an earlier group of its shape only where neither that group nor a later one has
    touched its row; and nothing passes a delete, whose key may cover many rows.
    """
    groups: list[tuple[Change, list[tuple[Any, ...]]]] = []
    latest: dict[int, int] = {}  # shape (by identity: hashing it costs more than a group too many) -> its last group
    touched: dict[tuple[Any, ...], int] = {}  # table and key -> last group with that row
    for change, values in changes:
        kind, table, key, _, _ = change
        if kind == "delete":
            groups.append((change, [values]))
            latest.clear()
            touched.clear()
            continue
        row = (table, *values[-len(key) :])
        at = latest.get(id(change), -1)
        if at <= touched.get(row, -1):
            at = latest[id(change)] = len(groups)
            groups.append((change, []))
        groups[at][1].append(values)
        touched[row] = at
    return groups
