"""Questions to Postgres: a cursor, which only a SELECT can have, in a read-only transaction, with a limit in time.

A read-only transaction lets functions pass that act beside it (``pg_terminate_backend``, ``lo_export``, ``dblink``,
``set_config``). Postgres says of each function whether it may have effects: those it calls volatile are refused by
name, but for a few that do nothing. What Postgres does not show everybody (``pg_authid``) is refused too: nothing of a
ledger is in it, and a user who asks as a superuser would be shown the passwords of others.

Sources: https://www.postgresql.org/docs/current/: sql-declare.html, sql-set-transaction.html, xfunc-volatility.html
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import sql as composed
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.string import TextLoader

from ledger.query.answer import Answer, Budget, Question, Row, in_batches
from ledger.query.errors import BadQuery, QueryTimeout, bad_query
from ledger.query.text import Token, parameters
from ledger.store.grants import Roles
from ledger.store.place import Place
from ledger.store.postgres_session import Connection, make_engine, own_connection, translated

AUDITOR: Final = Roles().auditor
"""Where no role is named, this one's rights are used, if it may read the ledger and the user may become it."""

_CURSOR: Final = "replay_ledger_query"
_IDLE_S: Final = 600  # a reader that pauses for longer loses the rest: while we stand open the server keeps old rows
_SETTINGS: Final = """
SET LOCAL standard_conforming_strings = on; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = {};
SET LOCAL idle_in_transaction_session_timeout = '{}s'; SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1;
SET LOCAL intervalstyle = 'iso_8601'
"""
# Another role has another "$user"; the ledger is found where it was.
_PIN_SCHEMAS: Final = """
SELECT set_config('search_path', string_agg(quote_ident(name), ', ' ORDER BY place), true)
FROM unnest(current_schemas(false)) WITH ORDINALITY AS found (name, place)
"""
_AUDITOR_SQL: Final = """
SELECT 1 FROM pg_catalog.pg_roles
WHERE rolname = %(auditor)s AND pg_has_role(oid, '{}')
  AND has_schema_privilege(oid, current_schema(), 'USAGE') AND has_table_privilege(oid, 'events', 'SELECT')
"""
# Of functions that came from elsewhere the stable ones too: crosstab(text) of tablefunc runs the SQL that it is given.
_VOLATILE_SQL: Final = """
SELECT DISTINCT proname FROM pg_catalog.pg_proc
WHERE proname = ANY(%s)
  AND (provolatile = 'v' OR (provolatile = 's' AND pronamespace <> 'pg_catalog'::regnamespace))
"""
# Volatile, as they give something else each time, or ask how large a table is; none does anything.
_HARMLESS: Final = frozenset(
    {"clock_timestamp", "gen_random_uuid", "pg_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size"}
    | {"pg_total_relation_size", "random", "timeofday"}
)
# Stable to Postgres; yet each call takes a transaction's number, or reads the table that a text names.
_NOT_HARMLESS: Final = frozenset(
    {"txid_current", "pg_current_xact_id"}
    | {f"{what}_to_xml{more}" for what in ("table", "schema", "database") for more in ("", "_and_xmlschema")}
)
# Of these everybody sees the rows, and superusers the passwords in them.
_SECRET_IN_PART: Final = frozenset({"pg_user_mappings", "user_mapping_options", "_pg_user_mappings"})
_NOT_PUBLIC_SQL: Final = """
SELECT relname FROM pg_catalog.pg_class
WHERE relnamespace = 'pg_catalog'::regnamespace AND relname = ANY(%s) AND relkind IN ('r', 'v')
  AND NOT has_table_privilege('public', oid, 'SELECT')
"""
_OWN_KINDS: Final = frozenset({"bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "bytea"})
_MOMENT: Final = re.compile(rb"(\d{4,6}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00\Z")
_TOOK_TOO_LONG: Final = "57014"
# Classes of SQLSTATE that are no fault of the question: connection, resources, intervention, system, damage.
_NOT_THE_QUESTION: Final = ("08", "28", "3D", "53", "55", "57", "58", "XX")
_NO_RIGHT: Final = "42501"
_READ_ONLY: Final = "25006"


class _Moment(Loader):
    """TIMESTAMPTZ as RFC 3339 text, as on SQLite; infinity and years before 1 as Postgres writes them."""

    def load(self, data: Buffer) -> str:
        found = _MOMENT.match(bytes(data))
        if found is None:
            return bytes(data).decode("utf-8")
        day, hour, fraction = (part.decode("ascii") for part in found.groups(b""))
        return f"{day}T{hour}.{fraction:0<6}Z"


@contextmanager
def ask(place: Place, question: Question, role: str | None = None) -> Iterator[Answer]:
    """See ``ledger.query.ask``."""
    tokens = question.read("postgresql")
    with translated(place):
        engine = make_engine(place)
        try:
            connection = own_connection(engine, place)
            with connection:
                yield from _answered(connection, place, question, tokens, role)
        finally:
            engine.dispose()


def _answered(
    connection: Connection, place: Place, question: Question, tokens: list[Token], role: str | None
) -> Iterator[Answer]:
    asking = _Asking(connection, place, question, tokens)
    try:
        asking.prepare(role)
        with asking.cursor() as cursor:
            yield asking.answer(cursor)
    finally:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")


class _Asking:
    """One question on a connection of its own, in one transaction that is never committed."""

    def __init__(self, connection: Connection, place: Place, question: Question, tokens: list[Token]) -> None:
        self._connection, self._place, self._question, self._tokens = connection, place, question, tokens
        self._budget = Budget(question.seconds)
        self._cancelled = False
        self._text, self._moved = _numbered(question.sql, tokens)

    def prepare(self, role: str | None) -> None:
        """Begin the transaction. Raises ``BadQuery`` for a role that cannot be taken, and what does or tells more."""
        execute = self._connection.execute
        execute("BEGIN READ ONLY")
        execute(_PIN_SCHEMAS)
        if role is not None:
            self._take(role)
        elif execute(_AUDITOR_SQL.format(self._membership), {"auditor": AUDITOR}).fetchone():
            self._take(AUDITOR)
        execute(composed.SQL(_SETTINGS).format(self._budget.milliseconds, composed.SQL(str(_IDLE_S))))
        names = {token.value for token in self._lowered()}
        acting = {row[0] for row in execute(_VOLATILE_SQL, (list(names),)).fetchall()} - _HARMLESS
        secret = {row[0] for row in execute(_NOT_PUBLIC_SQL, (list(names),)).fetchall()}
        self._refuse(acting | (names & _NOT_HARMLESS), "as it may do more than read: the function")
        self._refuse(secret | (names & _SECRET_IN_PART), "as Postgres does not show it to everybody:")

    def _refuse(self, names: set[str], why: str) -> None:
        for token in self._lowered():
            if token.value in names:
                raise bad_query(f"refused, {why} {token.value}", self._question.sql, token.begin)

    @property
    def _membership(self) -> str:
        return "SET" if self._connection.info.server_version >= 160_000 else "MEMBER"

    def _take(self, role: str) -> None:
        try:
            self._connection.execute(composed.SQL("SET LOCAL ROLE {}").format(composed.Identifier(role)))
        except psycopg.Error as error:
            if (error.sqlstate or "").startswith(("22", "42")):
                raise BadQuery(f"--role {role}: {self._said(error)}") from None
            raise

    def _lowered(self) -> Iterator[Token]:
        """Every name in the question, as Postgres looks it up."""
        for token in self._tokens:
            if token.kind == "word":
                # Only the letters of ASCII: that is what Postgres does where the encoding is UTF-8.
                yield token._replace(value=re.sub("[A-Z]+", lambda found: found.group().lower(), token.value))
            elif token.kind == "quoted":
                yield token

    def cursor(self) -> Any:
        """A cursor whose values come as ``Answer`` says."""
        cursor = psycopg.RawServerCursor(self._connection, _CURSOR)
        for info in self._connection.adapters.types:
            if info.name not in _OWN_KINDS:
                cursor.adapters.register_loader(info.oid, TextLoader)
            cursor.adapters.register_loader(info.array_oid, TextLoader)
        cursor.adapters.register_loader("timestamptz", _Moment)
        return cursor

    def answer(self, cursor: Any) -> Answer:
        """Declare the cursor; its rows are fetched as they are read."""
        values = [self._question.params[name] for name in parameters(self._tokens)]
        with self._explained():
            cursor.execute(self._text, values)
        return Answer(tuple(column.name for column in cursor.description or ()), in_batches(self._fetching(cursor)))

    def _fetching(self, cursor: Any) -> Callable[[int], list[Row]]:
        def fetch(wanted: int) -> list[Row]:
            with self._explained():
                rows: list[Row] = cursor.fetchmany(wanted)
                return rows

        return fetch

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The database works within; what it finds wrong with the question is a ``BadQuery``."""
        try:
            with self._budget.running(), self._cancelled_in_time():
                yield
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state == _TOOK_TOO_LONG and (self._cancelled or self._budget.is_empty):
                raise QueryTimeout(self._question.seconds) from None
            if not state or state.startswith(_NOT_THE_QUESTION) or state == _NO_RIGHT:
                raise
            raise self._bad(error, state) from None

    @contextmanager
    def _cancelled_in_time(self) -> Iterator[None]:
        # The server's own limit is one a statement, and each fetch is one.
        timer = threading.Timer(self._budget.milliseconds / 1000, self._cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _cancel(self) -> None:
        self._cancelled = True
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5)

    def _bad(self, error: psycopg.Error, state: str) -> BadQuery:
        said = self._said(error)
        if state == _READ_ONLY:
            said = f"refused, as it does more than read: {said}"
        return bad_query(said, self._question.sql, self._offset(error.diag.statement_position))

    def _said(self, error: psycopg.Error) -> str:
        message = error.diag.message_primary or str(error)
        hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
        return self._place.scrub(message + hint)

    def _offset(self, position: str | None) -> int | None:
        """The place in the question of a place (from 1) in the statement that was sent."""
        if position is None:
            return None
        offset = int(position) - 1 - len(f'DECLARE "{_CURSOR}" CURSOR FOR ')
        shift = max((shift for begin, shift in self._moved if begin <= offset), default=0, key=abs)
        return offset - shift if 0 <= offset - shift <= len(self._question.sql) else None


def _numbered(sql: str, tokens: list[Token]) -> tuple[str, list[tuple[int, int]]]:
    """The text with ``$1`` ... for its parameters and without what follows its last token.

    Beside it where in the new text it is shifted, and by how many characters.
    """
    numbers = {name: f"${number}" for number, name in enumerate(parameters(tokens), start=1)}
    parts, moved, at, shift, length = [], [(0, 0)], 0, 0, 0
    for token in tokens:
        if token.kind == "parameter":
            mark = numbers[token.value]
            parts += [sql[at : token.begin], mark]
            length += token.begin - at + len(mark)
            shift += len(mark) - (token.end - token.begin)
            at = token.end
            moved.append((length, shift))
    parts.append(sql[at : tokens[-1].end])
    return "".join(parts), moved
