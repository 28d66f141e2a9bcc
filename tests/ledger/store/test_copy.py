"""A copy is the same ledger, whichever way it goes; anything less is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import copy_ledger, open_ledger
from ledger.events import ParseFailed
from ledger.store import Checkpoint, open_store
from ledger.store.errors import CopyRefused, LedgerNotFound, NotALedger
from tests.ledger.store.making import Clock, accepted, call, plain_sql, redaction, some, started

TABLES = (
    *("events", "contents", "redactions", "tree_nodes", "ledger_head", "checkpoints"),
    *("runs", "requests", "model_calls", "failures", "reports"),
)


def everything(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, as text, in the order of the first two columns."""
    with open_ledger(url, "read") as store:
        return {
            table: sorted(tuple(map(str, map(plain, row))) for row in store.rows(f"SELECT * FROM {table}"))
            for table in TABLES
        }


def plain(value: object) -> object:
    return int(value) if isinstance(value, bool) else bytes(value) if isinstance(value, memoryview) else value


@pytest.fixture
def full(begun_url: str) -> str:
    """A ledger with something in each table of the record: binary content, an erased one, nodes, a checkpoint."""
    with open_ledger(begun_url, "write", clock=Clock()) as store:
        store.append([started(), accepted("b", line=900, content=b"\xff\0"), accepted("e", line=901, content=b"")])
        store.append(some(300))
        store.append([redaction(3, 10)])
        store.save_checkpoint(Checkpoint(100, store.root_at(100), "a note\n\n\u2014 signed\n"))
    return begun_url


@pytest.fixture(params=["to sqlite", pytest.param("to postgresql", marks=pytest.mark.postgresql)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for a copy: a file that is not there, or an empty database."""
    if request.param == "to sqlite":
        yield f"sqlite:///{tmp_path / 'copy.db'}"
        return
    server = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url.render_as_string(hide_password=False)
    server.drop_database(url)


def test_a_copy_has_every_row_unchanged(full: str, target: str) -> None:
    heard: list[tuple[int, int]] = []
    head = copy_ledger(full, target, lambda done, total: heard.append((done, total)))
    assert everything(target) == everything(full)
    assert heard[-1] == (305, 305)
    with open_ledger(target, "write", clock=Clock()) as copy:
        assert copy.head() == head
        assert copy.root_at(305) == head.root
        (receipt,) = copy.append([call(ParseFailed(turn=1, code="broken", fields=[]), request_id="q300")])
        assert (receipt.position, receipt.request_version) == (306, 2)
        with pytest.raises(Exception, match="refused"), plain_sql(target) as sql:
            sql("DELETE FROM events WHERE position = 5")


def test_a_copy_is_of_the_ledger_as_it_was_when_it_began(full: str, target: str) -> None:
    with open_ledger(full, "write", clock=Clock()) as store:
        before = store.head()

        def append_meanwhile(done: int, total: int) -> None:
            store.append([accepted("late", line=5000)])
            store.append([redaction(20)])

        copied = copy_ledger(full, target, append_meanwhile)
    assert copied == before
    with open_ledger(target, "read") as copy:
        assert copy.head() == before
        assert copy.content(20) is not None


def test_a_copy_that_is_interrupted_leaves_nothing_and_can_be_made_again(full: str, target: str) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_ledger(full, target, interrupt)
    with pytest.raises(LedgerNotFound):
        open_store(target, "read")
    copy_ledger(full, target)
    assert everything(target) == everything(full)


def test_a_copy_never_goes_into_a_ledger_or_another_programs_database(full: str, target: str) -> None:
    open_store(target, "create").close()
    with pytest.raises(CopyRefused, match="not empty"):
        copy_ledger(full, target)
    with pytest.raises(CopyRefused, match="not empty"):
        copy_ledger(full, full)


def test_what_is_no_ledger_cannot_be_copied(tmp_path: Path, ledger_url: str, target: str) -> None:
    with plain_sql(ledger_url) as sql:
        sql("CREATE TABLE orders (id integer)")
    with pytest.raises(NotALedger):
        copy_ledger(ledger_url, target)
    with pytest.raises(LedgerNotFound):
        copy_ledger(f"sqlite:///{tmp_path}/none.db", target)


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        (
            "events",
            "UPDATE events SET payload = replace(payload, ':', ': ') WHERE position = 7",
            "position 7: the payload",
        ),
        ("events", "UPDATE events SET run_version = 99999 WHERE position = 7", "position 7: the envelope"),
        ("events", "UPDATE events SET run_id = 'a\"b' WHERE position = 7", "position 7: .* is no run id"),
        ("events", "UPDATE events SET leaf_hash = 'x' WHERE position = 7", "position 7: the envelope"),
        ("events", "DELETE FROM events WHERE position = 7", "position 7 is missing"),
        ("events", "DELETE FROM events WHERE position = 305", "source's head"),
        ("events", "UPDATE events SET type = 'Unheard' WHERE position = 7", "position 7 cannot be read"),
        ("contents", "UPDATE contents SET body = 'x' WHERE position = 7", "position 7: the content does not match"),
        ("contents", "UPDATE contents SET encoding = 'base64' WHERE position = 7", "position 7 cannot be decoded"),
        ("contents", "DELETE FROM contents WHERE position = 7", "position 7: the content is missing"),
        ("redactions", "DELETE FROM redactions WHERE position = 10", "position 10: the content is missing"),
        ("contents", "INSERT INTO contents VALUES (10, 'salt', 'utf-8', 'x')", "position 10: the content is there"),
        ("ledger_head", "UPDATE ledger_head SET root = frontier", "source's head"),
    ],
)
def test_a_ledger_that_was_tampered_with_is_not_copied(
    full: str, tmp_path: Path, table: str, change: str, said: str
) -> None:
    with plain_sql(full) as sql:
        if full.startswith("sqlite"):
            for (name,) in sql("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", table):
                sql(f"DROP TRIGGER {name}")
        else:
            sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        sql(change)
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    with pytest.raises(CopyRefused, match=said):
        copy_ledger(full, target)
    with pytest.raises(LedgerNotFound):
        open_store(target, "read")
