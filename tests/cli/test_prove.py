"""``verify``, ``rebuild`` and ``db``: the record is whole, its tables follow, a copy is the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]


@pytest.fixture
def recorded(program: Program, against: Against, three: Path) -> Program:
    """A ledger with one completed run."""
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    return program


def tamper(program: Program, *statements: str) -> None:
    """Change the ledger's file as its owner could, past the triggers."""
    database = sqlite3.connect(program.folder / "replay-ledger.db")
    with database:
        triggers = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in triggers:
            database.execute(f'DROP TRIGGER "{name}"')
        for statement in statements:
            database.execute(statement)
    database.close()


def test_a_whole_ledger_without_an_anchor_is_incomplete(recorded: Program) -> None:
    elsewhere = {"XDG_STATE_HOME": str(recorded.folder / "another-host")}
    ended = recorded("verify", env=elsewhere)
    assert ended.code == 3
    assert ended.text.startswith("INCOMPLETE")
    verdict = recorded("verify", "--json", env=elsewhere).json
    assert (verdict["verdict"], verdict["findings"]) == ("INCOMPLETE", [])


def test_an_edited_event_fails_and_its_position_is_named(recorded: Program) -> None:
    tamper(
        recorded,
        """UPDATE events SET payload = replace(payload, '"turn":1', '"turn":2') WHERE type = 'OutputAccepted'""",
    )
    ended = recorded("verify")
    assert ended.code == 1
    assert ended.text.startswith("FAIL")
    assert "edited" in ended.text
    assert recorded("verify", "--json").json["findings"]


def test_tables_that_differ_from_the_log_are_found_and_made_anew(recorded: Program) -> None:
    before = recorded("rebuild", "--check")
    assert before.code == 0
    assert "what the log says" in before.err
    tamper(recorded, "UPDATE requests SET risk_level = 'low', error = 'made-up' WHERE request_id = 'INC-2'")
    found = recorded("rebuild", "--check")
    assert found.code == 1
    assert "requests (r1, INC-2): altered: error, risk_level" in found.err
    assert recorded("verify").code == 1
    anew = recorded("rebuild", "--json")
    assert (anew.code, anew.json["replaced"]) == (0, ["requests"])
    assert recorded("rebuild", "--check").code == 0


def test_the_status_of_a_ledger_is_told(program: Program, ledger_url: str) -> None:
    absent = program("db", "status", "--ledger", ledger_url)
    assert absent.code == 4
    made = program("db", "upgrade", "--ledger", ledger_url, "--origin", "audit.example.com/agents", "--json")
    assert made.code == 0, made.err
    status = program("db", "status", "--ledger", ledger_url, "--json").json
    assert status == made.json
    assert (status["origin"], status["size"]) == ("audit.example.com/agents", 1)
    text = program("db", "status", "--ledger", ledger_url).text
    assert "audit.example.com/agents" in text
    assert program("db", "upgrade", "--ledger", ledger_url).code == 0


def test_an_odd_origin_is_refused_and_nothing_is_made(program: Program) -> None:
    ended = program("db", "upgrade", "--origin", "-bad origin\n")
    assert ended.code != 0
    assert program("runs").code == 4


def test_a_copy_has_the_same_root_reports_and_results(recorded: Program, ledger_url: str) -> None:
    ended = recorded("db", "copy", "sqlite:///replay-ledger.db", ledger_url)
    assert (ended.code, ended.out) == (0, b"")
    assert ended.err.count(recorded("report", "r1").json["as_of"]["root"]) == 2
    assert "the same" in ended.err
    for words in (("report", "r1"), ("results", "r1"), ("show", "r1", "--json"), ("runs", "--json")):
        assert recorded(*words, "--ledger", ledger_url).out == recorded(*words).out
    again = recorded("db", "copy", "sqlite:///replay-ledger.db", ledger_url)
    assert again.code != 0
    assert recorded("verify", "--ledger", ledger_url).code == 0, "what was signed of the one vouches for the other"
