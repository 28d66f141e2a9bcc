"""``db grants``: what the three roles can do on a real Postgres, and what they cannot."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL, make_url

from ledger.tables import PROJECTION_TABLES, RECORD_TABLES
from tests.cli.program import Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint
from tests.harness.postgres import libpq_url

Against = Callable[..., MockEndpoint]

TABLES = (*RECORD_TABLES, *PROJECTION_TABLES, "alembic_version")
WEIRD = """we"ird; DROP TABLE events; --'\\ %s"""


@dataclass
class People:
    """A ledger on Postgres with one completed run, r1, and three people who may log in, one a role."""

    program: Program
    owner: URL
    passwords: dict[str, str]
    suffix: str

    def url(self, who: str) -> str:
        one = self.owner.set(username=f"{who}_{self.suffix}", password=self.passwords[who])
        return one.render_as_string(hide_password=False)

    def connect(self, who: str) -> psycopg.Connection:
        return psycopg.connect(libpq_url(make_url(self.url(who))), autocommit=True)

    def as_owner(self) -> psycopg.Connection:
        return psycopg.connect(libpq_url(self.owner), autocommit=True)


IN_ANY_SCHEMA = pytest.mark.parametrize("schema", ["public", 'in "their own" schema'], indirect=True)


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "public"))


@pytest.fixture
def people(program: Program, against: Against, three: Path, postgres_url: str, schema: str) -> Iterator[People]:
    suffix = secrets.token_hex(4)
    owner = make_url(postgres_url)
    with psycopg.connect(libpq_url(owner), autocommit=True) as connection:
        if connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() != (True,):
            pytest.skip("roles are made by a superuser, which this server's user is not")
        if schema != "public":
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET search_path = {}").format(
                    sql.Identifier(owner.database or ""), sql.Identifier(schema)
                )
            )
    against()
    assert program("run", three, "--run-id", "r1", "--ledger", postgres_url).code == 0
    roles = {who: f"{WEIRD} {who} {suffix}" for who in ("writer", "redactor", "auditor")}
    found = People(program, owner, {who: secrets.token_hex(12) for who in roles}, suffix)
    names = [word for who, role in roles.items() for word in (f"--{who}", role)]
    printed = program("db", "grants", *names, "--ledger", postgres_url)
    assert printed.code == 0, printed.err
    with found.as_owner() as connection:
        for _ in range(2):  # again after an upgrade
            connection.execute(printed.out)
        for who, role in roles.items():
            login = sql.Identifier(f"{who}_{suffix}")
            made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}")
            connection.execute(made.format(login, sql.Literal(found.passwords[who]), sql.Identifier(role)))
    yield found
    with found.as_owner() as connection:
        for name in (*(f"{who}_{suffix}" for who in roles), *roles.values()):
            connection.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


@IN_ANY_SCHEMA
def test_an_auditor_runs_every_command_that_reads(people: People) -> None:
    program, url = people.program, people.url("auditor")
    for words in (
        ("runs",),
        ("show", "r1"),
        ("show", "r1", "INC-2", "--content"),
        ("results", "r1", "--format", "jsonl"),
        ("report", "r1", "--format", "json"),
        ("prove", "3"),
        ("keys", "show"),
        ("rebuild", "--check"),
        ("db", "status"),
        ("hold", "list"),
        ("retention", "show"),
        ("redact", "--run", "r1", "--dry-run"),
    ):
        as_auditor = program(*words, "--ledger", url)
        assert as_auditor.code == 0, (words, as_auditor.err)
        as_owner = program(*words, "--ledger", people.owner.render_as_string(hide_password=False))
        if words[0] != "db":  # which names the place
            assert as_auditor.out == as_owner.out, words
    verdict = program("verify", "--json", "--ledger", url)
    assert verdict.json["findings"] == []
    assert verdict.code in {0, 3}
    copied = program("db", "copy", url, "sqlite:///copy.db")
    assert copied.code == 0, copied.err


def test_an_auditor_can_write_nothing(people: People) -> None:
    with people.connect("auditor") as connection:
        for table in TABLES:
            for statement in (
                f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
                f"UPDATE {table} SET {_a_column(connection, table)} = {_a_column(connection, table)}",
                f"DELETE FROM {table}",
                f"TRUNCATE {table}",
                f"SELECT * FROM {table} FOR UPDATE",
                f"SELECT * FROM {table} FOR KEY SHARE",
                f"LOCK TABLE {table} IN EXCLUSIVE MODE",
                f"COPY {table} FROM STDIN",
            ):
                _refused(connection, statement)


def _a_column(connection: psycopg.Connection, table: str) -> str:
    cursor = connection.execute(f"SELECT * FROM {table} LIMIT 0")
    assert cursor.description is not None
    return f'"{cursor.description[0].name}"'


def _refused(connection: psycopg.Connection, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
        connection.execute(statement)


TAKING_OVER = (
    "CREATE TABLE mine (a int)",
    "CREATE TEMPORARY TABLE redactions (position bigint)",
    "CREATE VIEW mine AS SELECT 1",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA mine",
    "CREATE TABLE mine () INHERITS (events)",
    "CREATE TRIGGER mine BEFORE INSERT ON events EXECUTE FUNCTION ledger_refuse_change()",
    "CREATE RULE mine AS ON INSERT TO events DO INSTEAD NOTHING",
    "ALTER TABLE events DISABLE TRIGGER ALL",
    "ALTER TABLE events OWNER TO CURRENT_USER",
    "DROP TRIGGER refuse_change ON events",
    "DROP TABLE events",
    "ALTER FUNCTION ledger_refuse_change() RENAME TO mine",
    "SET session_replication_role = replica",
    "COPY (SELECT 1) TO PROGRAM 'true'",
)


@pytest.mark.parametrize("who", ["auditor", "writer", "redactor"])
def test_none_of_the_three_can_take_the_ledger_over(people: People, who: str) -> None:
    with people.connect(who) as connection:
        for statement in TAKING_OVER:
            _refused(connection, statement)
        for other in ("auditor", "writer", "redactor"):
            if other != who:
                _refused(connection, f"SET ROLE {other}_{people.suffix}")
        # Granting without the right to grant is a warning at most, and does nothing.
        connection.execute("GRANT ALL ON events TO PUBLIC")
        owner = people.owner.username or ""
        _refused(connection, sql.SQL("SET ROLE {}").format(sql.Identifier(owner)).as_string(None))
    with people.as_owner() as connection:
        rights = connection.execute(
            "SELECT count(*) FROM information_schema.role_table_grants "
            "WHERE grantee = 'PUBLIC' AND table_name = 'events'"
        ).fetchone()
        assert rights == (0,)


@IN_ANY_SCHEMA
def test_a_writer_runs_resumes_and_abandons(people: People, tmp_path: Path, against: Against) -> None:
    program, url = people.program, people.url("writer")
    assert program("run", tmp_path / "incidents.jsonl", "--run-id", "r2", "--ledger", url).code == 0
    against({"repeat": 1000, "status": 503})
    many = write_requests(tmp_path / "many.jsonl", 30)
    words = ("run", many, "--run-id", "r3", "--max-attempts", 1, "-j", 1, "--ledger", url)
    stopped = program(*words)
    assert stopped.code == 4, stopped.err
    again = program("resume", "r3", "--ledger", url)
    assert again.code in {1, 4}, again.err
    assert program("run", many, "--run-id", "r4", "--max-attempts", 1, "-j", 1, "--ledger", url).code == 4
    ended = program("abandon", "r4", "--reason", "tried", "--ledger", url)
    assert ended.code == 0, ended.err
    assert program("rebuild", "--ledger", url).code == 0
    assert program("hold", "set", "--id", "h", "--ledger", url).code == 0
    assert program("hold", "lift", "h", "--ledger", url).code == 0
    assert program("verify", "--json", "--ledger", url).json["findings"] == []


def test_a_writer_cannot_redact_and_cannot_change_what_is_recorded(people: People) -> None:
    url = people.url("writer")
    ended = people.program("redact", "--run", "r1", "--reason", "asked", "--yes", "--ledger", url)
    assert ended.code == 4
    assert "no right" in ended.err
    with people.connect("writer") as connection:
        for table in RECORD_TABLES:
            column = _a_column(connection, table)
            for statement in (
                f"UPDATE {table} SET {column} = {column}",
                f"DELETE FROM {table}",
                f"TRUNCATE {table}",
            ):
                _refused(connection, statement)
        _refused(connection, "INSERT INTO redactions VALUES (2, 2)")
        _refused(connection, "UPDATE ledger_head SET origin = 'mine'")
        _refused(connection, "UPDATE alembic_version SET version_num = '9'")
    verdict = people.program("verify", "--json", "--ledger", url).json
    assert (verdict["findings"], verdict["redactions"]) == ([], [])


@IN_ANY_SCHEMA
def test_a_redactor_redacts(people: People) -> None:
    url = people.url("redactor")
    ended = people.program("redact", "--run", "r1", "--reason", "asked", "--yes", "--ledger", url)
    assert ended.code == 0, ended.err
    assert "VACUUM" in ended.err
    with people.connect("redactor") as connection:
        assert connection.execute(
            "SELECT count(*) FROM contents AS c JOIN events AS e USING (position) WHERE e.run_id = 'r1'"
        ).fetchone() == (0,)
        for statement in ("UPDATE contents SET body = ''", "DELETE FROM events", "UPDATE redactions SET position = 1"):
            _refused(connection, statement)
        with pytest.raises(psycopg.errors.RestrictViolation):
            connection.execute("DELETE FROM contents")
    verdict = people.program("verify", "--json", "--ledger", people.url("auditor")).json
    assert (verdict["findings"], len(verdict["redactions"])) == ([], 1)


def test_on_sqlite_it_says_that_permissions_of_the_file_serve(program: Program) -> None:
    assert program("db", "upgrade").code == 0
    ended = program("db", "grants")
    assert ended.code == 0
    assert all(line.startswith("-- ") for line in ended.text.splitlines())
    assert "permission" in program("db", "grants", "--help").text
    assert "no roles" in ended.text


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("--writer", "one", "--auditor", "one"), "three names"),
        (("--writer", "public"), "keeps that name"),
        (("--auditor", "pg_monitor"), "keeps that name"),
        (("--redactor", "x" * 64), "63 bytes"),
        (("--redactor", ""), "63 bytes"),
    ],
)
def test_a_name_that_cannot_be_a_role_is_refused(
    program: Program, postgres_url: str, names: tuple[str, ...], said: str
) -> None:
    assert program("db", "upgrade", "--ledger", postgres_url).code == 0
    ended = program("db", "grants", *names, "--ledger", postgres_url)
    assert (ended.code, ended.out) == (2, b"")
    assert said in ended.err


def test_the_owner_of_the_tables_is_not_made_one_of_the_roles(program: Program, postgres_url: str) -> None:
    assert program("db", "upgrade", "--ledger", postgres_url).code == 0
    owner = make_url(postgres_url).username
    ended = program("db", "grants", "--auditor", owner, "--ledger", postgres_url)
    assert ended.code == 2
    assert "owns" in ended.err


# --- row-level security, which is not ours -------------------------------------------------


def secured(people: People, table: str, visible: str) -> None:
    with people.as_owner() as connection:
        name = sql.Identifier(table)
        connection.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(name))
        connection.execute(sql.SQL("CREATE POLICY p ON {} USING ({})").format(name, sql.SQL(visible)))


@pytest.mark.parametrize(
    ("table", "visible"),
    [
        ("contents", "true"),
        ("contents", "position < 3"),
        ("contents", "false"),
        (PROJECTION_TABLES[0], "true"),
        ("requests", "false"),
        ("events", "position < 3"),
        ("ledger_head", "false"),
        ("alembic_version", "false"),
    ],
)
def test_rows_that_are_hidden_from_an_auditor_are_unproven_and_not_altered(
    people: People, table: str, visible: str
) -> None:
    secured(people, table, visible)
    url = people.url("auditor")
    ended = people.program("verify", "--ledger", url)
    assert (ended.code, ended.text.split()[0]) == (3, "INCOMPLETE"), ended.text
    assert "row-level security, which is not ours, is on for " + table in ended.text
    assert f"may hide rows of {table} from this reader" in ended.text
    by_owner = people.program("verify", "--ledger", people.owner.render_as_string(hide_password=False))
    assert by_owner.code == 3, "its owner, from whom nothing is hidden, is told as well"
    assert "hide rows" not in by_owner.text
    assert by_owner.text.count("row-level security") == 1


def test_what_is_altered_is_found_past_row_level_security(people: People) -> None:
    secured(people, "contents", "true")
    with people.as_owner() as connection:
        connection.execute("ALTER TABLE contents DISABLE TRIGGER ALL")
        connection.execute("UPDATE contents SET body = 'x' WHERE position = (SELECT max(position) FROM contents)")
        connection.execute("ALTER TABLE contents ENABLE TRIGGER ALL")
    assert people.program("verify", "--ledger", people.url("auditor")).code == 1


def test_nothing_is_erased_where_rows_may_be_hidden(people: People) -> None:
    secured(people, "contents", "position < 5")
    with people.as_owner() as connection:
        before = connection.execute("SELECT count(*) FROM contents").fetchone()
    words = ("redact", "--run", "r1", "--reason", "x", "--yes", "--ledger", people.url("redactor"))
    ended = people.program(*words)
    assert ended.code == 1, ended.err
    assert "row-level security may hide rows of contents" in ended.err
    with people.as_owner() as connection:
        assert connection.execute("SELECT count(*) FROM contents").fetchone() == before
