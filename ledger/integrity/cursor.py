"""Rows of another table, read alongside the events, in step with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ledger.store.errors import LedgerMalformed


class Cursor:
    """Rows of another table, ordered by their first column, taken as far as the walk has come.

    ``odd``: gets each row with a column that is no whole number, which is then passed over. Without it a
    first column that is no number is a ``LedgerMalformed``.
    """

    def __init__(
        self, table: str, rows: Iterable[tuple[Any, ...]], odd: Callable[[tuple[Any, ...]], None] | None = None
    ) -> None:
        self._table, self._rows, self._odd = table, iter(rows), odd
        self._row: tuple[Any, ...] | None = None
        self.key: float = math.inf
        """First column of the next row; infinite where there is none."""

    def open(self) -> Cursor:
        """Read the first row: from here on the database shows what it holds at this moment."""
        self._advance()
        return self

    def _advance(self) -> None:
        self._row = self._next()
        key = math.inf if self._row is None else self._row[0]
        if not isinstance(key, (int, float)):
            raise LedgerMalformed(f"{self._table} holds a key that is no number")
        self.key = key

    def _next(self) -> tuple[Any, ...] | None:
        for row in self._rows:
            if self._odd is None or all(type(value) is int for value in row):
                return row
            self._odd(row)
        return None

    def upto(self, key: float) -> Iterator[tuple[Any, ...]]:
        """Take the rows whose first column is at most ``key``."""
        while self.key <= key and self._row is not None:
            row = self._row
            self._advance()
            yield row
