"""Questions to SQLite: a file opened read-only, an authorizer that lets nothing but reading pass, a limit in time.

Sources: https://sqlite.org/c3ref/set_authorizer.html, https://sqlite.org/security.html
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final, TypeVar

from ledger.query.answer import Answer, Budget, Question, in_batches
from ledger.query.apart import Apart
from ledger.query.errors import BadQuery, QueryTimeout, bad_query
from ledger.query.text import Token
from ledger.store.place import Place
from ledger.store.sqlite_file import open_for_reading, translated

T = TypeVar("T")

LONGEST_VALUE: Final = 64 * 1024 * 1024
"""Bytes of the longest text, blob or row that a question may make."""

_STEPS: Final = 4000  # of SQLite's machine, between two looks at the clock: some ten microseconds
_GRACE: Final = 1.0  # seconds for the look at the clock to come first, which leaves nothing behind
_INNOCUOUS: Final = 0x200000  # SQLITE_INNOCUOUS: can have no effect and reveals nothing
_JSON: Final = re.compile(r"jsonb?(_[a-z_]+)?\Z|->>?\Z")  # as harmless, though older versions do not say so
_READS: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_ACTIONS: Final = {
    getattr(sqlite3, f"SQLITE_{name}"): name
    for name in (
        *("ALTER_TABLE", "ANALYZE", "ATTACH", "CREATE_INDEX", "CREATE_TABLE", "CREATE_TEMP_INDEX", "CREATE_TEMP_TABLE"),
        *("CREATE_TEMP_TRIGGER", "CREATE_TEMP_VIEW", "CREATE_TRIGGER", "CREATE_VIEW", "CREATE_VTABLE", "DELETE"),
        *("DETACH", "DROP_INDEX", "DROP_TABLE", "DROP_TRIGGER", "DROP_VIEW", "INSERT", "PRAGMA", "REINDEX"),
        *("SAVEPOINT", "TRANSACTION", "UPDATE"),
    )
}
_WHOLE_NUMBER: Final = re.compile(r"(?:0|-?[1-9][0-9]{0,17})\Z")
_AT_FAULT: Final = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}
)


@contextmanager
def ask(place: Place, question: Question, role: str | None = None) -> Iterator[Answer]:
    """See ``ledger.query.ask``. SQLite has no roles: to name one is ``BadQuery``."""
    if role is not None:
        raise BadQuery("a SQLite ledger has no roles: --role is for Postgres")
    tokens = question.read("sqlite")
    with translated(place):
        connection = open_for_reading(place)
        try:
            asking = _Asking(connection, question, tokens)
        except BaseException:
            connection.close()
            raise
        with closing(asking):
            yield asking.answer()


def _bound(text: str) -> str | int:
    """A whole number as one, as SQLite compares numbers with text by kind; a column of text has it as text again."""
    return int(text) if _WHOLE_NUMBER.match(text) else text


class _Asking:
    """One question on a connection of its own, which from here on can do nothing but read.

    The database works apart: it looks at the clock between two steps of its machine, but a single call of a function
    is one step, and may take for ever (LIKE on long texts).
    """

    def __init__(self, connection: sqlite3.Connection, question: Question, tokens: list[Token]) -> None:
        self._connection, self._question, self._tokens = connection, question, tokens
        self._budget = Budget(question.seconds)
        self._refused: str | None = None
        # A table-valued function is made where it is first named, by a CREATE TABLE that the authorizer would refuse.
        for function in ("json_each", "json_tree"):
            connection.execute(f"SELECT 1 FROM {function}('[]')").fetchall()  # noqa: S608 - our own two
        found = connection.execute("SELECT name, flags FROM pragma_function_list").fetchall()
        self._functions = {name for name, flags in found if flags & _INNOCUOUS or _JSON.match(name)}
        connection.text_factory = _text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._look, _STEPS)
        self._cursor: sqlite3.Cursor | None = None
        self._apart = Apart()

    def answer(self) -> Answer:
        """The columns, and the rows as they are read."""
        values = {name: _bound(text) for name, text in self._question.params.items()}
        sql = self._question.sql[: self._tokens[-1].end]
        cursor = self._cursor = self._do(lambda: self._connection.execute(sql, values))
        columns = tuple(column[0] for column in cursor.description or ())
        return Answer(columns, in_batches(lambda wanted: self._do(lambda: cursor.fetchmany(wanted))))

    def _do(self, work: Callable[[], T]) -> T:
        with self._explained():
            try:
                return self._apart.do(work, self._budget.left + _GRACE)
            except TimeoutError:
                raise QueryTimeout(self._question.seconds) from None

    def close(self) -> None:
        """Let all go. What the database still works on would be waited for: it is left, and goes when that is done."""
        self._apart.end()
        if not self._apart.is_lost:
            if self._cursor is not None:
                self._cursor.close()
            self._connection.close()

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _READS or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in self._functions):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            self._refused = f"the function {second}"
        elif first == "sqlite_master":  # touched where a virtual table is made: pragma_table_info() and its like
            self._refused = "a virtual table"
        else:
            self._refused = _ACTIONS.get(action, "that")
        return sqlite3.SQLITE_DENY

    def _look(self) -> int:
        return int(self._budget.is_spent)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The database works within; what it finds wrong with the question is a ``BadQuery``."""
        try:
            with self._budget.running():
                yield
        except (sqlite3.Error, sqlite3.Warning) as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code == sqlite3.SQLITE_INTERRUPT:
                raise QueryTimeout(self._question.seconds) from None
            if code in _AT_FAULT:
                raise self._bad(str(error)) from None
            raise

    def _bad(self, said: str) -> BadQuery:
        sql = self._question.sql
        if self._refused is not None:
            return bad_query(f"refused, as it does more than read: {self._refused}", sql)
        return bad_query(said, sql, self._place(said))

    def _place(self, said: str) -> int | None:
        """Where in the text the error is. SQLite names a piece of it: where that is there once, that is the place."""
        if said == "incomplete input":
            return self._tokens[-1].end
        found = re.search(
            r'near "(.*)": syntax error|no such (?:column|table|function): (.*)|unrecognized token: "(.*)"', said
        )
        if found is None:
            return None
        name = next(group for group in found.groups() if group is not None).rpartition(".")[2]
        places = [token for token in self._tokens if self._question.sql[token.begin : token.end] == name]
        if found[1] is not None:
            places = [token for token in places if self._fails_by(token)][:1]
        return places[0].begin if len(places) == 1 else None

    def _fails_by(self, token: Token) -> bool:
        """Is the text no beginning of a statement any more, once this token is there?"""
        try:
            self._connection.execute(f"EXPLAIN {self._question.sql[: token.end]}").close()
        except sqlite3.Error as error:
            return "syntax error" in str(error)
        return False


def _text(data: bytes) -> str:
    """Text, also where it is not UTF-8: what is not is shown as an escape."""
    return data.decode("utf-8", "backslashreplace")
