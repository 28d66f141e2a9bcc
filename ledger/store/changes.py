"""How a projection asks the store to change its rows: a few named statements, declared once.

A table projection is a pure function from an event to ``(Change, values)`` pairs. The store runs
them inside the append's own transaction (grouped, in bulk); a rebuild runs the same pairs into a
scratch database. Only rows keyed by the event's own run and request may be touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

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
