"""What the database itself refuses, asked with nothing but its driver, as anybody could."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import psycopg
import pytest

from ledger.store import Checkpoint, Store, open_store
from ledger.store.records import EVENT_COLUMNS
from tests.harness import postgres
from tests.ledger.store.making import SHA, Clock, plain_sql, redaction, some

REFUSED = r"refused|UNIQUE|unique|constraint|datatype mismatch"
ID = "'0197a3c0-0000-7000-8000-000000000001'"
SAME_ID = "(SELECT max(event_id) FROM events)"


def values(**members: object) -> str:
    """A row of ``events`` that would be right after 301 events, but for what ``members`` say."""
    row = {
        "position": 302,
        "event_id": ID,
        "type": "'RequestAccepted'",
        "schema": 1,
        "run_id": "'run'",
        "run_version": 300,
        "request_id": "'new'",
        "request_version": 1,
        "recorded_at": "'2026-11-30T20:42:00.000000Z'",
        "payload": "'{}'",
        "payload_sha256": f"'{SHA}'",
        "content_commitment": "NULL",
        "leaf_hash": "'x'",
        **members,
    }
    return f"({', '.join(str(value) for value in row.values())})"


def event(verb: str = "INSERT", **members: object) -> str:
    return f"{verb} INTO events VALUES {values(**members)}"


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ledger with rows in every table: 299 requests at 2 to 300, the first erased by the event at 301.

    One for all tests here: whatever they try, it stays as it is.
    """
    if request.param == "sqlite":
        url, drop = f"sqlite:///{tmp_path_factory.mktemp('guarded') / 'ledger.db'}", None
    else:
        server: postgres.Server = request.getfixturevalue("postgres_server")
        drop = server.create_database()
        url = drop.render_as_string(hide_password=False)
    with open_store(url, "create", clock=Clock()) as store:
        store.append(some(299))
        store.append([redaction(2)])
        store.save_checkpoint(Checkpoint(10, store.root_at(10), "note"))
    yield url
    if drop is not None:
        server.drop_database(drop)


@pytest.fixture
def full(guarded: str) -> Iterator[str]:
    """That ledger; afterwards it must be as it was."""
    with open_store(guarded, "read") as store:
        before = store.head(), list(store.records())
    yield guarded
    with open_store(guarded, "read") as store:
        assert (store.head(), list(store.records())) == before
        assert store.redactions() == [(2, 301)]
        assert [checkpoint.note for checkpoint in store.checkpoints()] == ["note"]
        assert store.read_nodes(1, 0, 1) == [store.root_at(256)]


UPDATES = [
    "UPDATE events SET payload = '{}' WHERE position = 3",
    "UPDATE events SET position = 900 WHERE position = 301",
    "UPDATE events SET type = type",
    "DELETE FROM events WHERE position = 301",
    "DELETE FROM events",
    "UPDATE contents SET body = 'x' WHERE position = 3",
    "UPDATE contents SET position = 2 WHERE position = 3",
    "DELETE FROM contents WHERE position = 3",
    "DELETE FROM contents",
    "UPDATE redactions SET event_position = 1",
    "DELETE FROM redactions",
    "UPDATE tree_nodes SET hash = 'x'",
    "DELETE FROM tree_nodes",
    "UPDATE checkpoints SET note = 'x'",
    "DELETE FROM checkpoints",
    "DELETE FROM ledger_head",
    "UPDATE ledger_head SET size = size - 1",
    "UPDATE ledger_head SET origin = 'mine'",
    "UPDATE ledger_head SET format = 2",
    "UPDATE ledger_head SET id = 2",
]
INSERTS = [
    event(position=303),
    event(position=301),
    event(position=0),
    event(position=-1),
    event(event_id=SAME_ID),
    event(run_version=299),
    event(request_id="'q299'"),
    event() + ", " + values(position=304, event_id=ID.replace("1'", "2'"), run_version=301, request_version=2),
    event(position=301) + " ON CONFLICT (position) DO UPDATE SET payload = '{}'",
    event(event_id=SAME_ID) + " ON CONFLICT (event_id) DO UPDATE SET payload = '{}'",
    "INSERT INTO contents VALUES (1, 'salt', 'utf-8', 'LedgerCreated committed to none')",
    "INSERT INTO contents VALUES (999, 'salt', 'utf-8', 'no such event')",
    "INSERT INTO contents VALUES (2, 'salt', 'utf-8', 'erased')",
    "INSERT INTO contents VALUES (3, 'salt', 'utf-8', 'there')",
    "INSERT INTO contents VALUES (3, 'salt', 'utf-8', 'x') ON CONFLICT (position) DO UPDATE SET body = 'x'",
    "INSERT INTO redactions VALUES (3, 4)",
    "INSERT INTO redactions VALUES (3, 999)",
    "INSERT INTO redactions VALUES (3, 301)",
    "INSERT INTO redactions VALUES (1, 301)",
    "INSERT INTO redactions VALUES (2, 301)",
    "INSERT INTO redactions VALUES (2, 301) ON CONFLICT (position) DO UPDATE SET event_position = 4",
    "INSERT INTO tree_nodes VALUES (1, 0, 'x')",
    "INSERT INTO tree_nodes VALUES (1, 0, 'x') ON CONFLICT (level, node_index) DO UPDATE SET hash = 'x'",
    "INSERT INTO checkpoints VALUES (10, 'x', 'x')",
    "INSERT INTO checkpoints VALUES (10, 'x', 'x') ON CONFLICT (size) DO UPDATE SET note = 'x'",
    "INSERT INTO ledger_head SELECT 2, origin, format, size, root, frontier, recorded_at FROM ledger_head",
    "INSERT INTO ledger_head SELECT 1, origin, format, size, root, frontier, recorded_at FROM ledger_head",
]
COLUMNS = ", ".join(EVENT_COLUMNS)
ON_SQLITE = [
    event("INSERT OR REPLACE", position=301),
    event("INSERT OR REPLACE", event_id=SAME_ID),
    event("INSERT OR REPLACE", run_version=2),
    event("INSERT OR REPLACE", request_id="'q1'"),
    event("INSERT OR IGNORE", run_version=2),
    event("REPLACE", position=5),
    event(position="NULL"),
    f"INSERT INTO events (rowid, {COLUMNS}) VALUES (302, {values(position=5)[1:]}",
    f"INSERT INTO events ({COLUMNS}, rowid) VALUES {values()[:-1]}, 5)",
    "UPDATE OR REPLACE events SET position = 3 WHERE position = 301",
    "UPDATE events SET rowid = 900 WHERE position = 301",
    "INSERT OR REPLACE INTO contents VALUES (3, 'salt', 'utf-8', 'forged')",
    "INSERT OR REPLACE INTO contents (rowid, salt, encoding, body) VALUES (3, 'salt', 'utf-8', 'forged')",
    "INSERT OR REPLACE INTO redactions VALUES (2, 4)",
    "INSERT OR REPLACE INTO tree_nodes VALUES (1, 0, 'x')",
    "INSERT OR REPLACE INTO checkpoints VALUES (10, 'x', 'forged')",
    "INSERT OR REPLACE INTO ledger_head SELECT 1, 'mine', format, size, root, frontier, recorded_at FROM ledger_head",
]
ON_POSTGRES = [
    *(f"TRUNCATE {table} CASCADE" for table in ("events", "contents", "redactions", "tree_nodes", "checkpoints")),
    "TRUNCATE ledger_head",
    "TRUNCATE events, contents, redactions, tree_nodes, checkpoints, ledger_head",
    "MERGE INTO contents AS c USING (VALUES (3)) AS v (p) ON c.position = v.p WHEN MATCHED THEN UPDATE SET body = 'x'",
]


@pytest.mark.parametrize("statement", UPDATES + INSERTS)
def test_a_change_of_the_record_is_refused_by_both_databases(full: str, statement: str) -> None:
    with plain_sql(full) as sql, pytest.raises(Exception, match=REFUSED):
        sql(statement)


@pytest.mark.parametrize("guarded", ["sqlite"], indirect=True)
@pytest.mark.parametrize("statement", ON_SQLITE)
def test_a_way_round_that_only_sqlite_has_is_refused(full: str, statement: str) -> None:
    with plain_sql(full) as sql:
        sql("PRAGMA recursive_triggers = OFF")
        with pytest.raises(sqlite3.Error, match=REFUSED):
            sql(statement)


@pytest.mark.postgresql
@pytest.mark.parametrize("guarded", ["postgresql"], indirect=True)
@pytest.mark.parametrize("statement", ON_POSTGRES)
def test_a_way_round_that_only_postgres_has_is_refused(full: str, statement: str) -> None:
    with plain_sql(full) as sql, pytest.raises(psycopg.Error, match="refused"):
        sql(statement)


@pytest.mark.postgresql
@pytest.mark.parametrize("guarded", ["postgresql"], indirect=True)
def test_a_replication_role_does_not_switch_the_triggers_off(full: str) -> None:
    with plain_sql(full) as sql:
        sql("SET session_replication_role = replica")
        with pytest.raises(psycopg.Error, match="refused"):
            sql("DELETE FROM events WHERE position = 301")
        with pytest.raises(psycopg.Error, match="refused"):
            sql("INSERT INTO contents VALUES (2, 'salt', 'utf-8', 'erased')")


def test_a_temporary_table_does_not_pass_for_one_of_the_ledgers(full: str) -> None:
    with plain_sql(full) as sql:
        sql("CREATE TEMPORARY TABLE redactions (position bigint, event_position bigint)")
        sql(
            "INSERT INTO temp.redactions VALUES (3, 301)"
            if "sqlite" in full
            else "INSERT INTO redactions VALUES (3, 301)"
        )
        with pytest.raises(Exception, match="no redaction names it"):
            sql("DELETE FROM contents WHERE position = 3")


def test_what_the_format_allows_is_allowed(store: Store, begun_url: str) -> None:
    """An event by hand, a redaction by hand: the triggers let through what keeps the rules."""
    store.append(some(2))
    store.append([redaction(2)])
    with plain_sql(begun_url) as sql:
        sql(event(position=5, run_version=3, content_commitment=f"'{SHA}'"))
        sql("INSERT INTO contents VALUES (5, 'salt', 'utf-8', 'text')")
        named = """'{"actor":"a","positions":[5,3],"reason":"r"}'"""
        later = {"position": 6, "event_id": ID.replace("1'", "7'"), "run_version": 4, "request_version": 2}
        sql(event(**later, type="'ContentRedacted'", payload=named))
        with pytest.raises(Exception, match="no ContentRedacted event names the position"):
            sql("INSERT INTO redactions VALUES (5, 4)")
        sql("INSERT INTO redactions VALUES (5, 6)")
        sql("DELETE FROM contents WHERE position = 5")
        assert sql("SELECT count(*) FROM contents WHERE position = 5") == [(0,)]
