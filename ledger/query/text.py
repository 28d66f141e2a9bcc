"""Reading a question's text without a database: words, parameters, and that it is one statement.

That nothing is written is for the database to hold: a connection that cannot write, an authorizer, a read-only
transaction. What is read here is what they do not say in the same words: that there is one statement, which
parameters it has, and which names it uses. A text whose reading could differ from the database's own is refused.

Sources: https://sqlite.org/lang_expr.html and https://sqlite.org/c3ref/bind_blob.html;
https://www.postgresql.org/docs/current/sql-syntax-lexical.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from ledger.query.errors import bad_query
from ledger.store.place import Dialect

LONGEST_TEXT: Final = 1_000_000
"""Characters that a question may have."""

Kind = Literal["word", "quoted", "text", "number", "parameter", "sign"]

# Both databases: every character beyond ASCII may stand in a name, blanks of Unicode too.
_WORD: Final = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*")
_NUMBER: Final = re.compile(r"[0-9][0-9A-Fa-fxX_.]*")
_BLANK: Final = re.compile(r"[ \t\n\r\f\v]+")
_PARAMETER: Final = re.compile(r":([A-Za-z_][A-Za-z0-9_]*)")
_DOLLAR_QUOTE: Final = re.compile(r"\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$")
_OTHER_MARK: Final = {"sqlite": re.compile(r"\?[0-9]*|[@#$][A-Za-z_0-9]*"), "postgresql": re.compile(r"\$[0-9]+")}
_BEGINNINGS: Final = frozenset({"select", "with", "values", "table"})
_TAKEN: Final[dict[Dialect, str]] = {"sqlite": "SELECT, WITH or VALUES", "postgresql": "SELECT, WITH, VALUES or TABLE"}


class Token(NamedTuple):
    """A piece of a question: ``value`` is a name's own text, a parameter's name, else as it stands."""

    kind: Kind
    value: str
    begin: int
    end: int


def read(sql: str, dialect: Dialect) -> list[Token]:
    """The tokens of one statement that asks, without blanks, comments and the semicolon at its end.

    Raises ``BadQuery`` for several statements, none, one that begins with no word that asks, and text that cannot be
    read for certain.
    """
    if len(sql) > LONGEST_TEXT:
        raise bad_query(f"the query has {len(sql):,} characters; {LONGEST_TEXT:,} are taken", sql)
    if not is_plain(sql):
        raise bad_query("the query has a character that no text may hold: U+0000, or half of a pair", sql)
    tokens = list(_Reader(sql, dialect).tokens())
    for index, token in enumerate(tokens):
        if token.value == ";" and token.kind == "sign":
            if following := [other for other in tokens[index:] if other.value != ";" or other.kind != "sign"]:
                raise bad_query("one statement at a time: another one follows", sql, following[0].begin)
            tokens = tokens[:index]
            break
    return _checked_beginning(tokens, sql, dialect)


def is_plain(text: str) -> bool:
    """Can both databases hold it: no U+0000, no lone surrogate?"""
    try:
        return b"\0" not in text.encode("utf-8")
    except UnicodeEncodeError:
        return False


def _checked_beginning(tokens: list[Token], sql: str, dialect: Dialect) -> list[Token]:
    first = next((token for token in tokens if token.value != "("), None)
    if first is None:
        raise bad_query("there is no query in this", sql)
    word = first.value.lower() if first.kind == "word" else ""
    if word not in _BEGINNINGS or (word == "table" and dialect == "sqlite"):
        raise bad_query(
            f"only what begins with {_TAKEN[dialect]} is answered: nothing here can write", sql, first.begin
        )
    return tokens


def parameters(tokens: list[Token]) -> list[str]:
    """Names of the parameters, in order of their first use."""
    return list(dict.fromkeys(token.value for token in tokens if token.kind == "parameter"))


class _Reader:
    """One pass over the text."""

    def __init__(self, sql: str, dialect: Dialect) -> None:
        self._sql, self._dialect = sql, dialect
        self._on_postgres = dialect == "postgresql"
        self._at = 0

    def tokens(self) -> Iterator[Token]:
        while True:
            self._skip()
            if self._at == len(self._sql):
                return
            token = self._next()
            self._at = token.end
            yield token

    def _next(self) -> Token:
        char = self._sql[self._at]
        if char == "'":
            return self._text(self._at, escapes=False)
        if char == '"' or (char == "`" and not self._on_postgres):
            return self._quoted(char)
        if char == "[" and not self._on_postgres:
            return self._bracketed()
        if found := _WORD.match(self._sql, self._at):
            return self._word(found)
        if found := _NUMBER.match(self._sql, self._at):
            return self._token("number", found.group(), found.end())
        return self._mark(char)

    def _mark(self, char: str) -> Token:
        if self._on_postgres:
            if self._sql.startswith("::", self._at):
                return self._token("sign", "::", self._at + 2)
            if found := _DOLLAR_QUOTE.match(self._sql, self._at):
                return self._until(found.group(), found.end(), "text")
        if found := _PARAMETER.match(self._sql, self._at):
            return self._token("parameter", found[1], found.end())
        if found := _OTHER_MARK[self._dialect].match(self._sql, self._at):
            raise bad_query("a parameter is written :name, and given by --param name=value", self._sql, self._at)
        return self._token("sign", char, self._at + 1)

    def _word(self, found: re.Match[str]) -> Token:
        word, after = found.group(), self._sql[found.end() : found.end() + 2]
        if after.startswith("'") and word.lower() in {"e", "n", "b", "x"}:
            return self._text(found.end(), escapes=self._on_postgres and word.lower() == "e")
        if self._on_postgres and word.lower() == "u" and after in {"&'", '&"'}:
            raise bad_query("text and names with U& are not read here; write the characters", self._sql, self._at)
        return self._token("word", word, found.end())

    def _text(self, quote: int, *, escapes: bool) -> Token:
        at = quote + 1
        while (at := self._find_any("'\\" if escapes else "'", at)) < len(self._sql):
            if self._sql[at] == "\\" or self._sql.startswith("''", at):
                at += 2
                continue
            self._refuse_continuation(at + 1)
            return self._token("text", self._sql[self._at : at + 1], at + 1)
        raise bad_query("a quote that is opened here is never closed", self._sql, quote)

    def _refuse_continuation(self, after: int) -> None:
        """On Postgres a text goes on after a line break, and then with the escapes of its beginning."""
        if not self._on_postgres:
            return
        held, self._at = self._at, after
        self._skip()
        follows, self._at = self._at, held
        if self._sql.startswith("'", follows):
            raise bad_query("two texts side by side; join them with ||", self._sql, follows)

    def _find_any(self, chars: str, start: int) -> int:
        found = [at for at in (self._sql.find(char, start) for char in chars) if at >= 0]
        return min(found, default=len(self._sql))

    def _quoted(self, quote: str) -> Token:
        at = self._at + 1
        while (at := self._sql.find(quote, at)) >= 0:
            if not self._sql.startswith(quote * 2, at):
                name = self._sql[self._at + 1 : at].replace(quote * 2, quote)
                return self._token("quoted", name, at + 1)
            at += 2
        raise bad_query("a quote that is opened here is never closed", self._sql, self._at)

    def _bracketed(self) -> Token:
        end = self._sql.find("]", self._at)
        if end < 0:
            raise bad_query("a bracket that is opened here is never closed", self._sql, self._at)
        return self._token("quoted", self._sql[self._at + 1 : end], end + 1)

    def _until(self, mark: str, start: int, kind: Kind) -> Token:
        end = self._sql.find(mark, start)
        if end < 0:
            raise bad_query("a quote that is opened here is never closed", self._sql, self._at)
        return self._token(kind, self._sql[self._at : end + len(mark)], end + len(mark))

    def _token(self, kind: Kind, value: str, end: int) -> Token:
        return Token(kind, value, self._at, end)

    def _skip(self) -> None:
        """Pass over blanks and comments."""
        while True:
            if found := _BLANK.match(self._sql, self._at):
                self._at = found.end()
            elif self._sql.startswith("--", self._at):
                self._at = self._find_any("\n\r" if self._on_postgres else "\n", self._at)
            elif self._sql.startswith("/*", self._at):
                self._at = self._after_comment()
            else:
                return

    def _after_comment(self) -> int:
        depth, at = 0, self._at
        for found in re.compile(r"/\*|\*/").finditer(self._sql, self._at):
            if found.group() == "/*":
                depth += 1 if self._on_postgres or not depth else 0
            else:
                depth -= 1
            if not depth:
                return found.end()
        raise bad_query("a comment that is opened here is never closed", self._sql, at)
