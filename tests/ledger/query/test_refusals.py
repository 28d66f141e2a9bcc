"""Whatever a question tries to change stays as it was: on each database, by each way that is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql as composed

from ledger.query import BadQuery, Question, ask, postgres
from ledger.store.errors import LedgerError
from ledger.store.place import parse
from ledger.tables import PROJECTION_TABLES, RECORD_TABLES
from tests.ledger.query.conftest import Asks
from tests.ledger.query.scene import make
from tests.ledger.store.making import plain_sql

ON_BOTH = (
    *(
        "INSERT INTO runs SELECT * FROM runs",
        "UPDATE events SET payload = '{}'",
        "DELETE FROM contents",
        "DROP TABLE events",
    ),
    *(
        "CREATE TABLE x (a int)",
        "CREATE TEMP TABLE x AS SELECT 1",
        "CREATE VIEW x AS SELECT 1",
        "ALTER TABLE runs RENAME TO x",
    ),
    *("WITH x AS (SELECT 1) DELETE FROM contents", "WITH x AS (SELECT 1) UPDATE runs SET model = ''"),
    *("WITH x AS (SELECT 1) INSERT INTO redactions VALUES (2, 3)", "/* SELECT */ DELETE FROM contents"),
    *(
        "-- SELECT\nDELETE FROM contents",
        "SELECT 1; DELETE FROM contents",
        "SELECT 1 /* ; */; COMMIT; DELETE FROM contents",
    ),
    *("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "VACUUM", "ANALYZE", "REINDEX TABLE events"),
)
ON_SQLITE = (
    *(
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version = 7",
    ),
    *("ATTACH 'other.db' AS other", "DETACH main", "VACUUM INTO 'copy.db'", "REPLACE INTO runs SELECT * FROM runs"),
    *("SELECT load_extension('x')", "SELECT LOAD_EXTENSION('x', 'y')", "SELECT fts3_tokenizer('x', x'00')"),
    *(
        "SELECT * FROM pragma_journal_mode('DELETE')",
        "SELECT * FROM pragma_wal_checkpoint",
        "SELECT writefile('x', 'y')",
    ),
    *("SELECT edit('x')", "SELECT readfile('/etc/passwd')", "EXPLAIN DELETE FROM events", "SELECT * FROM fsdir('/')"),
)
ON_POSTGRES = (
    *("WITH x AS (DELETE FROM contents RETURNING 1) SELECT * FROM x", "SELECT * INTO x FROM runs", "TRUNCATE events"),
    *("WITH x AS (UPDATE runs SET model = '' RETURNING 1) SELECT * FROM x", "SELECT * FROM events FOR UPDATE"),
    *("WITH x AS (INSERT INTO redactions VALUES (2, 3) RETURNING 1) TABLE x", "SELECT * FROM runs FOR KEY SHARE"),
    *("SET transaction_read_only = off", "RESET ALL", "SET SESSION AUTHORIZATION DEFAULT", "RESET ROLE", "DISCARD ALL"),
    *("SET TRANSACTION READ WRITE", "SELECT set_config('transaction_read_only', 'off', true)"),
    *("SELECT set_config('default_transaction_read_only', 'off', false)", "SELECT set_config('role', 'none', true)"),
    *(
        "SELECT set_config('statement_timeout', '0', false)",
        "SELECT count(*), pg_catalog.set_config('role','none',true) FROM runs",
    ),
    *("COPY runs TO PROGRAM 'id'", "COPY (SELECT 1) TO '/tmp/x'", "DO 'BEGIN DELETE FROM contents; END'", "CALL x()"),
    *("SELECT pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('/')", "SELECT pg_read_binary_file('/etc/passwd')"),
    *("SELECT lo_import('/etc/passwd')", "SELECT lo_export(1, '/tmp/x')", "SELECT lo_create(0)", "SELECT lo_unlink(1)"),
    *(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
        "SELECT pg_cancel_backend(1)",
        "SELECT pg_reload_conf()",
    ),
    *("SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock_shared(1)", "SELECT pg_notify('a', 'b')", "NOTIFY a"),
    *(
        "SELECT nextval('x')",
        "SELECT setval('x', 1)",
        "SELECT pg_switch_wal()",
        "SELECT pg_stat_reset()",
        "SELECT pg_sleep(9)",
    ),
    *("SELECT pg_create_physical_replication_slot('a')", "SELECT pg_logical_emit_message(false, 'a', 'b')"),
    *("SELECT dblink('x', 'DELETE FROM events')", "SELECT query_to_xml('DELETE FROM contents', true, false, '')"),
    *(
        'SELECT "pg_terminate_backend"(1)',
        "SELECT pg_catalog . /* */ PG_TERMINATE_BACKEND (1)",
        'SELECT U&"pg\\005fsleep"(9)',
    ),
    *(
        "SELECT 1 WHERE EXISTS (SELECT pg_notify('a', 'b'))",
        "SELECT * FROM pg_ls_dir('/') AS a",
        "LOCK events",
        "PREPARE a AS SELECT 1",
    ),
    *("SELECT 1 INTO TEMP x", "SELECT lo_from_bytea(0, 'x')", "COPY runs FROM PROGRAM 'id'", "RESET statement_timeout"),
    *("SET ROLE none", "SET LOCAL ROLE none", "SELECT pg_current_xact_id()", "SELECT txid_current()", "LISTEN a"),
    *(
        "SELECT $$a$$; DELETE FROM contents",
        "SELECT 1 \\; DELETE FROM contents",
        "MERGE INTO runs USING runs AS r ON true",
    ),
    *("SELECT ts_stat('DELETE FROM contents')", "SELECT pg_read_file('postgresql.conf', 0, 1)", "SHOW ALL"),
    *("DECLARE a CURSOR FOR SELECT 1", "FETCH ALL FROM replay_ledger_query", "EXPLAIN ANALYZE DELETE FROM contents"),
)

SECRETS_OF_POSTGRES = (
    *("SELECT rolpassword FROM pg_authid", "TABLE pg_catalog.pg_authid", 'SELECT * FROM "pg_authid"'),
    *("SELECT passwd FROM pg_shadow", "SELECT * FROM pg_file_settings", "SELECT * FROM pg_hba_file_rules"),
    *("SELECT * FROM pg_user_mappings", "SELECT * FROM information_schema.user_mapping_options"),
    *("SELECT table_to_xml('pg_authid', true, false, '')", "SELECT schema_to_xml('pg_catalog', true, false, '')"),
    *("SELECT database_to_xml(true, false, '')", "SELECT (SELECT max(a.rolpassword) FROM PG_AUTHID AS a) FROM runs"),
    *("SELECT * FROM pg_largeobject", "SELECT count(*) FROM pg_subscription", "SELECT stavalues1 FROM pg_statistic"),
)


def digest_of(url: str) -> str:
    """Everything that is in the ledger."""
    path = parse(url).path
    if path is not None:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    with plain_sql(url) as run:
        names = "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
        rows = [run(f"SELECT t::text FROM {table} AS t ORDER BY 1") for table in (*RECORD_TABLES, *PROJECTION_TABLES)]
        settings = run("SELECT setdatabase::text, setconfig::text FROM pg_db_role_setting ORDER BY 1")
        return hashlib.sha256(repr((rows, run(names), settings)).encode()).hexdigest()


@pytest.fixture
def unchanged(asked_url: str) -> Iterator[None]:
    before = digest_of(asked_url)
    yield
    assert digest_of(asked_url) == before


def others(url: str) -> tuple[str, ...]:
    return ON_SQLITE if url.startswith("sqlite") else ON_POSTGRES


@pytest.mark.usefixtures("unchanged")
def test_whatever_does_more_than_read_is_refused_and_the_ledger_stays_as_it_was(
    asked_url: str, asks: Asks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for attack in (*ON_BOTH, *others(asked_url)):
        with pytest.raises(BadQuery) as refused:
            asks(attack)
        assert refused.value.exit_code == 2, attack
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unchanged")
def test_without_our_reading_of_the_text_the_databases_refuse_it_all_the_same(
    asked_url: str, asks: Asks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text's own rules are the second fence. Functions that act beside a transaction have but the first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ledger.query.text._checked_beginning", lambda tokens, *_: tokens)
    monkeypatch.setattr("ledger.query.postgres._VOLATILE_SQL", "SELECT 'nothing' WHERE %s::text[] IS NULL")
    beside = ("pg_", "PG_", "lo_", "set_config", "U&", "query_to_xml", "dblink", "FETCH", "txid_")
    for attack in (*ON_BOTH, *others(asked_url)):
        if not any(name in attack for name in beside):
            with pytest.raises(LedgerError):
                asks(attack)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unchanged")
def test_on_postgres_not_even_a_superuser_is_shown_passwords_and_files(asks: Asks, asked_url: str) -> None:
    if asked_url.startswith("sqlite"):
        pytest.skip("SQLite has none")
    for attack in SECRETS_OF_POSTGRES:
        with pytest.raises(BadQuery, match=r"refused, as (Postgres does not show|it may do more)"):
            asks(attack)
    assert asks("SELECT count(*) > 0 FROM pg_roles, pg_tables WHERE tablename = 'runs'") == [(True,)]


@pytest.mark.usefixtures("unchanged")
def test_a_question_that_writes_is_refused_even_where_its_parameter_says_so(asks: Asks) -> None:
    hostile = "first'; DELETE FROM contents; --"
    assert asks("SELECT count(*) FROM runs WHERE run_id = :run", {"run": hostile}) == [(0,)]
    assert asks("SELECT CAST(:x AS text)", {"x": hostile}) == [(hostile,)]


def test_the_file_of_a_ledger_holds_the_same_bytes_after_a_question(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    make(url)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert list(before) == ["ledger.db"]
    with ask(url, Question("SELECT * FROM events ORDER BY payload")) as answer:
        assert len(list(answer.rows)) > 40
    beside = {"ledger.db-shm"}  # made by SQLite for its readers, as is a write-ahead log, an empty one
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file() and path.name not in beside}
    assert after.pop("ledger.db-wal", b"") == b""
    assert after == before


@pytest.mark.usefixtures("unchanged")
def test_sqlite_makes_no_copy_attaches_nothing_and_loads_nothing_by_names_in_a_select(
    asks: Asks, asked_url: str
) -> None:
    if not asked_url.startswith("sqlite"):
        pytest.skip("SQLite's own")
    assert asks("SELECT count(*) FROM json_each('[1,2]')") == [(2,)]
    with pytest.raises(BadQuery, match="does more than read: the function load_extension"):
        asks("SELECT load_extension('x')")
    with pytest.raises(BadQuery, match="does more than read: a virtual table"):
        asks("SELECT * FROM pragma_table_info('runs')")


def test_no_column_of_the_ledger_has_the_name_of_a_function_that_is_refused(asked_url: str) -> None:
    if asked_url.startswith("sqlite"):
        pytest.skip("Postgres' own")
    with plain_sql(asked_url) as run:
        names = [
            name
            for (name,) in run("SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'public'")
        ]
        assert len(names) > 50
        volatile = "SELECT DISTINCT proname::text FROM pg_proc WHERE provolatile = 'v' AND proname = ANY(?)"
        assert run(volatile, names) == []


def test_functions_that_are_not_postgres_own_pass_where_they_are_immutable(postgres_url: str) -> None:
    make(postgres_url)
    with plain_sql(postgres_url) as run:
        for name, kind in (("zz_acts", "VOLATILE"), ("zz_runs", "STABLE"), ("zz_counts", "IMMUTABLE")):
            run(f"CREATE FUNCTION {name}(text) RETURNS int LANGUAGE sql {kind} AS 'SELECT 1'")
    for name in ("zz_acts", "zz_runs"):
        question = Question(f"SELECT {name}('DELETE FROM events')")
        with pytest.raises(BadQuery, match=f"may do more than read: the function {name}"), ask(postgres_url, question):
            pass
    with ask(postgres_url, Question("SELECT zz_counts('x')")) as answer:
        assert list(answer.rows) == [(1,)]


WORDS = (
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "WITH x AS (",
        ")",
        "(",
        "*",
        ",",
        ";",
        "runs",
        "events",
        "contents",
        "payload",
        "position",
        "x",
    ),
    *(
        "DELETE",
        "UPDATE",
        "SET",
        "INSERT INTO",
        "VALUES (1)",
        "RETURNING 1",
        "DROP TABLE",
        "ATTACH",
        "PRAGMA",
        "COMMIT",
        "INTO",
    ),
    *(
        "FOR UPDATE",
        "UNION ALL",
        "count(*)",
        "load_extension('x')",
        "pg_notify('a', 'b')",
        "nextval('a')",
        "'a'",
        '"a"',
        "1",
        "=",
    ),
    *(
        "-- a\n",
        "/* a",
        "*/",
        "NULL",
        ":a",
        "json_each('[1]')",
        "LIMIT 1",
        "EXPLAIN",
        "TABLE",
        "CREATE",
        "AS",
        "JOIN",
        "ON",
        "\x00",
    ),
)


def test_no_words_in_any_order_change_the_ledger_or_fail_in_another_way_than_told(asked_url: str) -> None:
    before = digest_of(asked_url)

    @given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), st.booleans())
    @settings(max_examples=120)
    def holds(words: str, begun: bool) -> None:
        sql = f"SELECT * FROM runs {words}" if begun else f"SELECT {words}"
        params = {"a": "1"} if ":a" in words else {}
        with suppress(LedgerError), ask(asked_url, Question(sql, params, seconds=2)) as answer:
            list(islice(answer.rows, 50))

    holds()
    assert digest_of(asked_url) == before


@pytest.mark.parametrize("sql", ["SELECT " + "(" * 50_000 + "1" + ")" * 50_000, "SELECT 1" + " + 1" * 100_000])
def test_a_query_nested_without_end_is_refused_in_words(asks: Asks, sql: str) -> None:
    with pytest.raises(BadQuery) as refused:
        asks(sql)
    assert len(str(refused.value)) < 1000


@pytest.fixture
def role(asked_url: str) -> Iterator[Callable[..., None]]:
    """Make a role on Postgres with the rights that are given; it goes with the test."""
    if asked_url.startswith("sqlite"):
        pytest.skip("SQLite has no roles")
    made: list[composed.Identifier] = []
    with psycopg.connect(asked_url.replace("+psycopg", ""), autocommit=True) as owner:

        def make(name: str, *tables: str) -> None:
            made.append(composed.Identifier(name))
            owner.execute(composed.SQL("CREATE ROLE {}").format(made[-1]))
            for table in tables:
                owner.execute(composed.SQL("GRANT SELECT ON {} TO {}").format(composed.Identifier(table), made[-1]))

        yield make
        for one in made:
            owner.execute(composed.SQL("DROP OWNED BY {}; DROP ROLE {}").format(one, one))


def test_on_postgres_a_role_that_is_named_gives_its_rights_and_no_more(asks: Asks, role: Callable[..., None]) -> None:
    role("asks_runs", "runs")
    assert asks("SELECT current_user, count(*) FROM runs", role="asks_runs") == [("asks_runs", 2)]
    with pytest.raises(LedgerError, match="no right to that") as refused:
        asks("SELECT * FROM contents", role="asks_runs")
    assert refused.value.exit_code == 4
    with pytest.raises(BadQuery, match='--role nobody"here: role "nobody"here" does not exist'):
        asks("SELECT 1", role='nobody"here')


def test_on_postgres_the_auditor_is_asked_as_where_that_role_may_read_this_ledger(
    asks: Asks, asked_url: str, role: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "AUDITOR", "asks_as_auditor")
    assert asks("SELECT current_user = session_user") == [(True,)]
    role("asks_as_auditor")
    assert asks("SELECT current_user = session_user") == [(True,)]
    with plain_sql(asked_url) as run:
        run("GRANT SELECT ON events TO asks_as_auditor")
    assert asks("SELECT current_user") == [("asks_as_auditor",)]
    with pytest.raises(LedgerError, match="no right to that"):
        asks("SELECT * FROM contents")


def test_a_role_on_sqlite_is_refused(asks: Asks, asked_url: str) -> None:
    if not asked_url.startswith("sqlite"):
        pytest.skip("SQLite's own")
    with pytest.raises(BadQuery, match="no roles"):
        asks("SELECT 1", role="auditor")
