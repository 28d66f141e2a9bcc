"""What can be wrong with a question, as one line and the place in it."""

from __future__ import annotations

from typing import Final

from ledger.store.errors import LedgerError

_LONGEST_MESSAGE: Final = 500
_SHOWN_BEFORE: Final = 60
_SHOWN: Final = 100


class BadQuery(LedgerError):
    """A question that cannot be answered as it is: broken, several, one that writes, a parameter without a value."""

    exit_code = 2

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class QueryTimeout(LedgerError):
    """The database took longer than the question may. Rows that were given out before are not the whole answer."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no whole answer within {seconds:g} s: the query was stopped (--timeout gives it more)")


def bad_query(message: str, sql: str, offset: int | None = None) -> BadQuery:
    """The error, with line and column (from 1), the line itself and a caret where ``offset`` (characters) is known."""
    message = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."
    if offset is None:
        return BadQuery(message)
    offset = min(offset, len(sql))
    begin = sql.rfind("\n", 0, offset) + 1
    end = sql.find("\n", offset)
    line, column = sql.count("\n", 0, offset) + 1, offset - begin
    first = max(0, column - _SHOWN_BEFORE)
    # Whatever is no plain character is a blank here: escapes would move what stands above the caret.
    shown = "".join(char if char.isprintable() else " " for char in sql[begin : end if end >= 0 else None])
    return BadQuery(
        f"{message}, at line {line}, column {column + 1}",
        f"  {shown[first : first + _SHOWN]}",
        f"  {' ' * (column - first)}^",
    )
