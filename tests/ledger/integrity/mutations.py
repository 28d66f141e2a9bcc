"""One random change to a ledger's rows: any table, any row, any column. The same seed makes the same change."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from tests.ledger.integrity.forging import TABLES

KEYS: Final = {name: [column.name for column in table.primary_key.columns] for name, table in TABLES.items()}
LOG: Final = {"events": 8, "contents": 4, "redactions": 1}
"""The tables that a forger makes everything else fit to, and how often each is drawn."""

ALL: Final = {
    **LOG, "tree_nodes": 1, "checkpoints": 1, "ledger_head": 2,
    "runs": 1, "requests": 1, "model_calls": 1, "failures": 1, "reports": 1,
}  # fmt: skip
_TRIES: Final = 50


class Row(NamedTuple):
    """A row of a table as the database gives it."""

    table: str
    values: dict[str, Any]

    @property
    def where(self) -> tuple[str, dict[str, Any]]:
        """A condition that this row alone meets, and its parameters."""
        keys = KEYS[self.table]
        return " AND ".join(f"{key} = :key_{key}" for key in keys), {f"key_{key}": self.values[key] for key in keys}


class Change(NamedTuple):
    """What was done, and the position at which something is not as it was; None where the table has none."""

    said: str
    position: int | None


def mutate(connection: Connection, random: Random, tables: Mapping[str, int] = ALL) -> Change:
    """Change something: what the database refuses is drawn again."""
    for _ in range(_TRIES):
        try:
            with connection.begin_nested():
                change = _change(connection, random, tables)
        except DBAPIError:
            continue
        if change is not None:
            return change
    raise AssertionError("no change was taken")


def _change(connection: Connection, random: Random, tables: Mapping[str, int]) -> Change | None:
    table = random.choices(list(tables), list(tables.values()))[0]
    found = connection.execute(text(f"SELECT * FROM {table} ORDER BY {', '.join(KEYS[table])}")).mappings()
    rows = [Row(table, dict(row)) for row in found]
    if not rows:
        return None
    row, other = random.choice(rows), random.choice(rows)
    column = random.choice(list(row.values))
    how = random.choices((_edit, _exchange, _delete, _double), (8, 3, 3, 2))[0]
    said = how(connection, random, row, other, column)
    if said is None:
        return None
    # A row that is there once more is in the wrong place, the one it was made from is not.
    position = row.values["position"] if table in LOG and how is not _double else None
    return Change(f"{table} {dict(list(row.values.items())[:2])}: {said}", position)


def _edit(connection: Connection, random: Random, row: Row, other: Row, column: str) -> str | None:
    on_sqlite = connection.dialect.name == "sqlite"
    value = _another(random, row.values[column], other.values[column], any_type=on_sqlite)
    if value == row.values[column]:
        return None
    _set(connection, row, column, value)
    return f"{column} set to {value!r:.60}"


def _exchange(connection: Connection, random: Random, row: Row, other: Row, column: str) -> str | None:
    if column in KEYS[row.table] or row.values[column] == other.values[column]:
        return None
    _set(connection, row, column, other.values[column])
    _set(connection, other, column, row.values[column])
    return f"{column} exchanged with {dict(list(other.values.items())[:2])}"


def _delete(connection: Connection, random: Random, row: Row, other: Row, column: str) -> str | None:
    where, params = row.where
    connection.execute(text(f"DELETE FROM {row.table} WHERE {where}"), params)
    return "deleted"


def _double(connection: Connection, random: Random, row: Row, other: Row, column: str) -> str | None:
    """The row once more, under another key, and with another number where only one may have it."""
    values = dict(row.values)
    for name in {*KEYS[row.table], *({"event_id", "run_version", "request_version"} & set(values))}:
        values[name] = _another(random, values[name], values[name], any_type=False)
    marks = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {row.table} ({', '.join(values)}) VALUES ({marks})"), values)
    return f"once more as {dict(list(values.items())[:2])}"


def _set(connection: Connection, row: Row, column: str, value: Any) -> None:
    where, params = row.where
    connection.execute(text(f"UPDATE {row.table} SET {column} = :value WHERE {where}"), {"value": value, **params})


def _another(random: Random, value: Any, elsewhere: Any, *, any_type: bool) -> Any:
    """A value in place of one: what stands in another row, a small change, nothing, or one of another type."""
    kind = random.random()
    if kind < 0.3:
        return elsewhere
    if kind < 0.35:
        return None
    if any_type and kind < 0.45:
        return random.choice((0, 1, -1, 2**53, 1.5, "", "x", b"", b"x", str(value), value is None))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + random.choice((-1000, -1, 1, 1, 7, 1000))
    if isinstance(value, bytes):
        at = random.randrange(len(value) + 1)
        return value[:at] + bytes([random.randrange(256)]) + value[at + 1 :]
    if isinstance(value, str):
        return _other_text(random, value)
    return elsewhere if value is None else value.replace(microsecond=(value.microsecond + 1) % 1_000_000)


def _other_text(random: Random, value: str) -> str:
    at = random.randrange(len(value) + 1)
    sign = random.choice('abcdef0123456789 {}":,.é')
    return random.choice(
        (value[:at] + sign + value[at + 1 :], value[:at] + sign + value[at:], value[:at] + value[at + 1 :])
    )
