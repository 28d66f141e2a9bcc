"""A question and its answer, on either database.

Values of an answer: None, bool (Postgres alone; SQLite has 0 and 1), int, float, Decimal, str, bytes. Times are
RFC 3339 text in UTC. Whatever else Postgres knows (dates, intervals, arrays, JSON) comes as its own text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from ledger.query.errors import QueryTimeout, bad_query
from ledger.query.text import Token, is_plain, parameters, read
from ledger.store.place import Dialect

Value = None | bool | int | float | Decimal | str | bytes
Row = tuple[Value, ...]

DEFAULT_SECONDS: Final = 60
_FIRST_ROWS, _MOST_ROWS, _BYTES_AT_ONCE = 8, 100, 4_000_000


@dataclass(frozen=True)
class Question:
    """A SELECT, the values of its ``:name`` parameters as text, and how long the database may take (seconds)."""

    sql: str
    params: Mapping[str, str] = field(default_factory=dict)
    seconds: float = DEFAULT_SECONDS

    def read(self, dialect: Dialect) -> list[Token]:
        """Its tokens. Raises ``BadQuery``, also where a parameter has no value or a value no parameter."""
        tokens = read(self.sql, dialect)
        asked = parameters(tokens)
        if unknown := sorted(set(self.params) - set(asked)):
            raise bad_query(f"the query has no parameter :{unknown[0]}", self.sql)
        for name, value in self.params.items():
            if not is_plain(value):
                raise bad_query(f"the value of :{name} has a character that no text may hold", self.sql)
        for token in tokens:
            if token.kind == "parameter" and token.value not in self.params:
                raise bad_query(
                    f"the parameter :{token.value} has no value (--param {token.value}=...)", self.sql, token.begin
                )
        return tokens


@dataclass(frozen=True)
class Answer:
    """The columns' names, and the rows as the database finds them: read once, in bounded memory."""

    columns: tuple[str, ...]
    rows: Iterator[Row]


class Budget:
    """What is left of a question's time. Counts while the database works, not while the rows are read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds
        self._until = float("inf")

    @property
    def milliseconds(self) -> int:
        """What is left; never 0, which is for ever to some."""
        return max(int(self._left * 1000), 1)

    @property
    def left(self) -> float:
        """Seconds that are left, as of when the database last began or stopped."""
        return self._left

    @property
    def is_empty(self) -> bool:
        """Asked once the database has stopped."""
        return self._left <= 0

    @property
    def is_spent(self) -> bool:
        """Asked while the database works."""
        return time.monotonic() > self._until

    @contextmanager
    def running(self) -> Iterator[None]:
        """The database works within the block. Raises ``QueryTimeout`` where nothing is left when it begins."""
        if self._left <= 0:
            raise QueryTimeout(self.seconds)
        begun = time.monotonic()
        self._until = begun + self._left
        try:
            yield
        finally:
            self._left -= time.monotonic() - begun


def in_batches(fetch: Callable[[int], list[Row]]) -> Iterator[Row]:
    """Rows from ``fetch``, which gives up to so many: fewer at once where they are long, at most a hundred."""
    wanted = _FIRST_ROWS
    while True:
        rows = fetch(wanted)
        yield from rows
        if len(rows) < wanted:
            return
        longest = max(sum(len(value) for value in row if isinstance(value, str | bytes)) for row in rows)
        wanted = max(1, min(_MOST_ROWS, _BYTES_AT_ONCE // (longest + 1)))
