"""``compare`` as people use it: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Program, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
HOSTILE = "\x1b]0;owned\x07\u202e<script>alert(1)</script>"
LOW = {"risk_level": "low", "requires_human_approval": False, "blocked_by_policy": False}
HIGH = {"risk_level": "high", "requires_human_approval": True, "blocked_by_policy": False}


def saying(verdict: dict[str, Any], action: str = "restart") -> str:
    return json.dumps({"proposed_action": action, "action_plan": ["wait"], **verdict})


@pytest.fixture
def recorded(program: Program, against: Against, three: Path, ledger_url: str) -> Program:
    """Runs r1 and r2 of the same three incidents, which answer otherwise; on each database."""
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    against(content=saying(LOW, HOSTILE))
    assert program("run", three, "--run-id", "r1").code == 0
    against(content=saying(HIGH))
    assert program("run", three, "--run-id", "r2").code == 0
    return program


def test_a_run_agrees_with_itself_and_ends_with_0(recorded: Program) -> None:
    before = recorded("db", "status", "--json").json["size"]
    ended = recorded("compare", "r1", "r1", "--format", "text")
    assert (ended.code, ended.err) == (0, "")
    assert ended.text.startswith("No difference in 3 incidents.\n")
    assert recorded("db", "status", "--json").json["size"] == before


def test_a_difference_ends_with_1_and_shows_both_answers(recorded: Program) -> None:
    ended = recorded("compare", "r1", "latest")
    assert (ended.code, ended.err) == (1, "")
    made = ended.json
    assert made["summary"]["fields"]["risk_level"]["values"] == [{"first": "low", "second": "high", "count": 3}]
    assert [one["incident_id"] for one in made["differences"]] == ["INC-1", "INC-2", "INC-3"]
    assert made["differences"][0]["first"]["model_output"]["proposed_action"] == HOSTILE
    assert made["differences"][0]["second"]["model_output"]["proposed_action"] == "restart"
    for form in ("text", "html"):
        shown = recorded("compare", "r1", "r2", "--format", form)
        assert shown.code == 1
        assert "owned" in shown.text
        assert "<script>" not in (shown.text if form == "html" else "")
        assert not {"\x1b", "\x07", "\u202e"} & set(shown.text)


def test_an_incident_of_one_run_alone_is_a_difference_and_is_named(
    recorded: Program, against: Against, tmp_path: Path
) -> None:
    against(content=saying(LOW))
    assert recorded("run", write_requests(tmp_path / "four.jsonl", 4), "--run-id", "r3").code == 0
    made = recorded("compare", "r1", "r3")
    assert made.code == 1
    assert made.json["differences"] == []
    assert [one["incident_id"] for one in made.json["only_second"]] == ["INC-4"]
    assert made.json["summary"]["agreement"]["of"] == 4


def test_the_format_follows_the_extension_and_a_file_is_replaced_whole(recorded: Program) -> None:
    for name in ("c.json", "c.html", "c.txt"):
        ended = recorded("compare", "r1", "r2", "--out", name)
        assert (ended.code, ended.out, ended.err) == (1, b"", "")
    data = {name: (recorded.folder / name).read_bytes() for name in ("c.json", "c.html", "c.txt")}
    assert data["c.html"].startswith(b"<!doctype html>")
    assert data["c.json"] == recorded("compare", "r1", "r2").out
    assert data["c.txt"] == recorded("compare", "r1", "r2", "--format", "text").out
    assert recorded("compare", "r1", "r2", "--out", "no/such/folder.json").code == 2


def test_a_text_that_was_redacted_is_null_and_the_numbers_stay(recorded: Program) -> None:
    before = recorded("compare", "r1", "r2").json
    assert recorded("redact", "--run", "r1", "--request", "INC-2", "--reason", "asked", "--yes").code == 0
    after = recorded("compare", "r1", "r2").json
    assert after["summary"] == before["summary"]
    assert after["differences"][1]["first"]["model_output"] == {"proposed_action": None, "action_plan": None, **LOW}


def test_two_runs_are_compared_as_they_were(recorded: Program) -> None:
    events = recorded("show", "r2", "INC-2", "--json").json["events"]
    made = recorded("compare", "r1", "r2", "--as-of", str(events[0]["position"])).json
    assert made["summary"]["second"]["state"] == "incomplete"
    assert made["summary"]["comparable"] == 0


@pytest.mark.parametrize("words", [("r1",), ("r1", "nowhere"), ("r1", "r2", "--as-of", "99999")])
def test_wrong_use_ends_with_2_and_prints_no_data(program: Program, against: Against, words: tuple[str, ...]) -> None:
    against(content=saying(LOW))
    (program.folder / "one.jsonl").write_text(request_line(1) + "\n")
    for run_id in ("r1", "r2"):
        assert program("run", "one.jsonl", "--run-id", run_id).code == 0
    ended = program("compare", *words)
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err


@pytest.mark.parametrize("type_", ["OutputAccepted", "RunCompleted"])
def test_an_event_that_cannot_be_read_is_told_and_ends_with_1(
    program: Program, against: Against, three: Path, type_: str
) -> None:
    against(content=saying(LOW))
    assert program("run", three, "--run-id", "r1").code == 0
    position = spoil(program, type_)
    (program.folder / "labels.jsonl").write_text('{"request_id":"INC-2","risk_level":"low"}\n')
    for words in (("compare", "r1", "r1"), ("grade", "r1", "labels.jsonl")):
        ended = program(*words)
        assert ended.code == 1, ended.err
        assert ended.json
        assert "cannot be read" in ended.err
    assert f"Event {position} cannot be read" in program("compare", "r1", "r1").err
    made = program("compare", "r1", "r1").json["summary"]
    assert made["first"]["unreadable"] == 1
    assert made["comparable"] == (2 if type_ == "OutputAccepted" else 3)


def spoil(program: Program, type_: str) -> int:
    """As somebody would who owns the file."""
    with closing(sqlite3.connect(program.folder / "replay-ledger.db")) as ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            if trigger.startswith("events_refuse"):
                ledger.execute(f'DROP TRIGGER "{trigger}"')
        (position,) = ledger.execute("SELECT min(position) FROM events WHERE type = ?", (type_,)).fetchone()
        ledger.execute("UPDATE events SET payload = '{' WHERE position = ?", (position,))
        ledger.commit()
    return int(position)


def test_whoever_stops_reading_gets_the_exit_code_all_the_same(program: Program, against: Against, three: Path) -> None:
    for run_id, verdict in (("r1", LOW), ("r2", HIGH)):
        against(content=saying(verdict))
        assert program("run", three, "--run-id", run_id).code == 0
    process = program.start("compare", "r1", "r2", "--format", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), said) == (1, b"")
