"""Rows of another table, read alongside the events, in step with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from ledger.store.errors import LedgerMalformed


class Cursor:
    """Rows of another table, ordered by their first column, taken as far as the walk has come."""

    def __init__(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._table, self._rows = table, iter(rows)
        self._row: tuple[Any, ...] | None = None
        self.key: float = math.inf
        """First column of the next row; infinite where there is none."""

    def open(self) -> Cursor:
        """Read the first row: from here on the database shows what it holds at this moment."""
        self._advance()
        return self

    def _advance(self) -> None:
        self._row = next(self._rows, None)
        key = math.inf if self._row is None else self._row[0]
        if not isinstance(key, (int, float)):
            raise LedgerMalformed(f"{self._table} holds a key that is no number")
        self.key = key

    def upto(self, key: float) -> Iterator[tuple[Any, ...]]:
        """Take the rows whose first column is at most ``key``."""
        while self.key <= key and self._row is not None:
            row = self._row
            self._advance()
            yield row
