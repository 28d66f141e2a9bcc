"""A question's text, read without a database: one statement, its parameters, its names."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.query import BadQuery
from ledger.query.text import LONGEST_TEXT, parameters, read
from ledger.store.place import Dialect
from tests.harness import postgres

BOTH: tuple[Dialect, ...] = ("sqlite", "postgresql")
on_both = pytest.mark.parametrize("dialect", BOTH)


@on_both
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "SELECT 1;;DELETE FROM events",
        "SELECT 1; -- no more\n DELETE FROM events",
        "SELECT 1 /* ; */ ; /* and */ DROP TABLE events;",
        "SELECT ';' ; COMMIT",
        'SELECT ";" FROM runs; ROLLBACK',
        "SELECT 1;'DELETE'",
    ],
)
def test_a_second_statement_is_refused_and_its_place_told(sql: str, dialect: Dialect) -> None:
    with pytest.raises(BadQuery, match="one statement at a time: another one follows, at line"):
        read(sql, dialect)


@on_both
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1;",
        "SELECT 1 ; ; -- the end",
        "SELECT ';'",
        'SELECT ";"',
        "SELECT 1 -- ; DELETE",
        "/* ; */ SELECT /* ; */ 1;",
    ],
)
def test_semicolons_at_the_end_in_quotes_and_in_comments_part_nothing(sql: str, dialect: Dialect) -> None:
    assert read(sql, dialect)[0].value == "SELECT"


@on_both
@pytest.mark.parametrize(
    "sql",
    [
        *("INSERT INTO runs VALUES (1)", "update runs set model = ''", "DELETE FROM events", "DROP TABLE events"),
        *("PRAGMA writable_schema = 1", "ATTACH 'x' AS y", "DETACH main", "VACUUM INTO 'x'", "REINDEX", "ANALYZE"),
        *("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "SET ROLE none", "RESET ALL", "COPY runs TO PROGRAM 'id'"),
        *(
            "DO 'BEGIN END'",
            "CALL p()",
            "EXECUTE p",
            "LISTEN a",
            "NOTIFY a",
            "LOCK events",
            "EXPLAIN ANALYZE SELECT 1",
        ),
        *(
            "-- SELECT\nDELETE FROM events",
            "/* SELECT 1 */ DELETE FROM events",
            "(DELETE FROM events)",
            '"SELECT" 1',
            "'SELECT'",
        ),
    ],
)
def test_what_begins_with_no_word_that_asks_is_refused(sql: str, dialect: Dialect) -> None:
    words = "SELECT, WITH, VALUES or TABLE" if dialect == "postgresql" else "SELECT, WITH or VALUES"
    with pytest.raises(BadQuery, match=f"only what begins with {words} is answered"):
        read(sql, dialect)


@on_both
@pytest.mark.parametrize("sql", ["", "  \n", ";", "-- SELECT 1", "/* SELECT 1 */"])
def test_nothing_is_no_query(sql: str, dialect: Dialect) -> None:
    with pytest.raises(BadQuery):
        read(sql, dialect)


@on_both
@pytest.mark.parametrize("sql", ["SELECT 'a", 'SELECT "a', "SELECT 1 /* a", "SELECT '''"])
def test_what_is_opened_and_never_closed_is_told_with_its_place(sql: str, dialect: Dialect) -> None:
    with pytest.raises(BadQuery, match="opened here is never closed, at line 1, column"):
        read(sql, dialect)


@on_both
def test_parameters_are_named_once_in_the_order_of_their_first_use(dialect: Dialect) -> None:
    sql = "SELECT ':no', \":no\" /* :no */ FROM runs -- :no\n WHERE run_id = :b AND model=:a OR run_id = :b"
    assert parameters(read(sql, dialect)) == ["b", "a"]


def test_a_cast_and_quoted_texts_of_postgres_are_no_parameters() -> None:
    sql = "SELECT '1'::int, $$ :no; $$, $q$ :no $$ ; $q$, E'\\' :no ;', a[1:2] FROM runs"
    assert parameters(read(sql, "postgresql")) == []


def test_brackets_and_backquotes_of_sqlite_are_names() -> None:
    assert [token.value for token in read("SELECT [a;b], `c``;:d`", "sqlite")] == ["SELECT", "a;b", ",", "c`;:d"]


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [*product(["sqlite"], ["SELECT ?", "SELECT ?1", "SELECT @a", "SELECT $a"]), ("postgresql", "SELECT $1")],
)
def test_parameters_in_another_spelling_are_refused(dialect: Dialect, sql: str) -> None:
    with pytest.raises(BadQuery, match="written :name"):
        read(sql, dialect)


@pytest.mark.parametrize(
    "sql", ["SELECT U&'\\0041'", 'SELECT u&"\\0041"', "SELECT E'a'\n'\\''", "SELECT 'a' -- x\n 'b'"]
)
def test_what_postgres_may_read_otherwise_is_refused(sql: str) -> None:
    with pytest.raises(BadQuery):
        read(sql, "postgresql")


@on_both
@pytest.mark.parametrize("sql", ["SELECT '\0'", "SELECT '\ud800'", "SELECT 1 --" + "x" * LONGEST_TEXT])
def test_characters_and_lengths_that_no_database_takes_are_refused(sql: str, dialect: Dialect) -> None:
    with pytest.raises(BadQuery):
        read(sql, dialect)


@on_both
@pytest.mark.parametrize("count", [10_000, 90_000])
def test_a_long_question_is_read_in_time_that_grows_with_it(count: int, dialect: Dialect) -> None:
    assert len(read("SELECT 'it''s'" + ", 'it''s'" * count, dialect)) == 2 * count + 2


PIECES = (
    *(" ", "\n", ";", "'", "''", '"', "\\", "--", "/*", "*/", "$$", "$a$", "E'", "x'", "U&'", "[", "]", "`"),
    *(
        ", zzz(1)",
        ", ZZZ(2)",
        ', "zzz"(3)',
        " || 'a'",
        ", 1",
        "1E",
        ", n'a",
        "\u00a0",
        "é",
        ":a",
        "::text",
        " --'",
        " */ '",
    ),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=10).map("".join).map("SELECT 1".__add__)
# Each has a second statement or a call in it for a reader with one rule too few; to the database it is plain to see.
TRICKS = {
    "sqlite": (
        "SELECT 1 /* /* */ ; SELECT 2 /* */ */",
        "SELECT '\\'; SELECT 2 --'",
        "SELECT 1 -- a\r; SELECT 2\n; SELECT 3",
    ),
    "postgresql": (
        *("SELECT E'\\'', zzz(1) --'", "SELECT E'a'\n'\\'', zzz(1) --'", "SELECT 1 /* /* */ ' */, zzz(1) --'"),
        *(
            "SELECT $$'$$, zzz(1) --'",
            "SELECT $a$ $$ $a$, zzz(1) --$$",
            'SELECT "a""b", zzz(1) FROM (SELECT 1 AS "a""b") x',
        ),
        *(
            "SELECT 1 -- a\r, zzz(1)",
            "SELECT 'a\\', zzz(1) --'",
            "SELECT (SELECT 1 AS a$$), zzz(1) --$$",
        ),
        *("SELECT E'\\''; SELECT 2 --'", "SELECT 1 /* /* */ ' */; SELECT 2 --'"),
    ),
}


def accepted(sql: str, dialect: Dialect) -> bool:
    try:
        read(sql, dialect)
    except BadQuery:
        return False
    return True


def statement(sql: str, dialect: Dialect) -> str:
    """What is sent of an accepted text: all up to its last token."""
    return sql[: read(sql, dialect)[-1].end]


def sees_more(said: str, sql: str, dialect: Dialect) -> bool:
    """Does the database's word on an accepted text name a statement, or a function, that was not read in it?"""
    if not accepted(sql, dialect):
        return False
    names = {token.value.lower() for token in read(sql, dialect) if token.kind in ("word", "quoted")}
    return "one statement" in said or "multiple commands" in said or ("function zzz" in said and "zzz" not in names)


def to_sqlite(sql: str) -> str:
    """What SQLite says of a text."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(sql, {"a": 1}).close()
        except (sqlite3.Error, sqlite3.Warning) as error:
            return str(error)
    return ""


@given(TEXTS)
@example(TRICKS["sqlite"][0])
@example("SELECT 1;;")
@settings(max_examples=400)
def test_what_is_read_as_one_statement_is_one_to_sqlite(sql: str) -> None:
    assert not accepted(sql, "sqlite") or not sees_more(to_sqlite(statement(sql, "sqlite")), sql, "sqlite")


@pytest.mark.parametrize("sql", TRICKS["sqlite"])
def test_a_trick_that_hides_a_statement_from_a_reader_of_sqlite_is_seen(sql: str) -> None:
    assert "one statement" in to_sqlite(sql)
    assert not accepted(sql, "sqlite")


@pytest.fixture(scope="module")
def to_postgres(postgres_server: postgres.Server) -> Iterator[Callable[[str], str]]:
    """What Postgres says of a text."""
    with psycopg.connect(postgres.libpq_url(postgres_server.url), autocommit=True) as session:
        yield lambda sql: session.pgconn.prepare(
            b"", re.sub(r"(?<!:):a", "NULL", sql).encode("utf-8")
        ).get_error_message()


@pytest.mark.postgresql
def test_what_is_read_as_one_statement_is_one_to_postgres_and_has_no_name_that_was_not_read(
    to_postgres: Callable[[str], str],
) -> None:
    @given(TEXTS)
    @settings(max_examples=400)
    def holds(sql: str) -> None:
        if accepted(sql, "postgresql"):
            assert not sees_more(to_postgres(statement(sql, "postgresql")), sql, "postgresql")

    holds()


@pytest.mark.postgresql
@pytest.mark.parametrize("sql", TRICKS["postgresql"])
def test_a_trick_that_hides_a_statement_or_a_call_from_a_reader_of_postgres_is_seen(
    sql: str, to_postgres: Callable[[str], str]
) -> None:
    said = to_postgres(sql)
    assert "multiple commands" in said or "function zzz(integer) does not exist" in said
    assert not sees_more(said, sql, "postgresql")
