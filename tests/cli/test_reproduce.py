"""``reproduce`` as people use it: what it prints, in which form, and how it ends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import Program, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
ANSWER = {"action_plan": [], "risk_level": "low", "requires_human_approval": True, "blocked_by_policy": False}
HOSTILE = "\x1b]0;owned\x07\u202e<script>"
STRICT = json.dumps({"properties": {"risk_level": {"enum": ["critical"]}}})


@pytest.fixture
def recorded(program: Program, against: Against, three: Path, ledger_url: str) -> Program:
    """A ledger with one completed run, r1, of three requests."""
    against()
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    assert program("run", three, "--run-id", "r1").code == 0
    return program


def test_a_run_of_this_program_has_no_difference(recorded: Program) -> None:
    before = recorded("db", "status", "--json").json["size"]
    ended = recorded("reproduce", "r1", "--guard")
    assert (ended.code, ended.err) == (0, ""), ended.text
    assert ended.text.splitlines() == [
        "Run r1 (completed): no difference",
        "  3 requests: 3 as recorded",
        "  6 decisions made again",
        "  3 lines checked again by leak rules version 1: 0 otherwise",
    ]
    assert recorded("db", "status", "--json").json["size"] == before


def altered(program: Program, statement: str, *values: object) -> None:
    """Change the ledger behind its back, as who owns the file can."""
    with closing(sqlite3.connect(program.folder / "replay-ledger.db")) as ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            ledger.execute(f'DROP TRIGGER "{trigger}"')
        ledger.execute(statement, values)
        ledger.commit()


@pytest.fixture
def on_disk(program: Program, against: Against, three: Path) -> Program:
    """As ``recorded``, in the file of the working directory."""
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    return program


@pytest.mark.parametrize(
    ("statement", "position", "counted"),
    [
        ("UPDATE events SET type = 'Foo' WHERE position = ?", 4, "2 as recorded, 1 with an event"),
        (
            "UPDATE events SET request_id = NULL, request_version = NULL WHERE position = ?",
            4,
            "2 as recorded, 1 with an",
        ),
        ("UPDATE events SET type = 'Foo' WHERE position = ?", 2, "3 not reproducible"),
        ("UPDATE events SET payload = '{' WHERE position = ?", 2, "3 not reproducible"),
        ("UPDATE events SET type = 'Foo' WHERE position = ?", 6, "3 as recorded"),
        ("UPDATE events SET payload = '{' WHERE position = ?", 6, "3 as recorded"),
        (
            "UPDATE events SET type = 'Foo' WHERE position = (SELECT max(position) FROM events) AND ? > 0",
            16,
            "3 as rec",
        ),
    ],
)
def test_an_event_that_could_not_be_read_vanished_with_its_request_and_no_difference_was_told(
    on_disk: Program, statement: str, position: int, counted: str
) -> None:
    altered(on_disk, statement, position)
    for words in (("r1",), ("r1", "--guard"), ("--all",)):
        ended = on_disk("reproduce", *words)
        assert ended.code == 1, ended.text
        assert f": event {position}, " in ended.text
        assert f"  3 requests: {counted}" in ended.text
        assert "no difference" not in ended.text


def test_events_that_were_taken_out_took_their_request_or_their_run_with_them(on_disk: Program) -> None:
    altered(on_disk, "DELETE FROM events WHERE position = 4")
    ended = on_disk("reproduce", "r1")
    assert ended.code == 1
    assert "before it there is no acceptance of its request" in ended.text
    assert "  3 requests: 2 as recorded, 1 with an event that cannot be read" in ended.text
    altered(on_disk, "DELETE FROM events WHERE position = 2")
    ended = on_disk("reproduce", "--all")
    assert ended.code == 1
    assert "no request: event 3, RequestAccepted (unreadable): before it there is no start of its run" in ended.text


@pytest.mark.parametrize("body", ["x'fffe'", "CAST(x'fffe' AS TEXT)"])
def test_one_content_that_could_not_be_decoded_took_all_the_rest_with_it(on_disk: Program, body: str) -> None:
    altered(on_disk, f"UPDATE contents SET body = {body} WHERE position = 4")
    for words in (("r1",), ("r1", "--guard"), ("--all",)):
        ended = on_disk("reproduce", *words)
        assert (ended.code, ended.err) == (1, "")
        assert "INC-2: event 4, RequestAccepted (unreadable): its content cannot be decoded\n" in ended.text
        assert "  3 requests: 2 as recorded, 1 with an event that cannot be read\n" in ended.text
    shown = on_disk("show", "r1", "INC-2")
    assert (shown.code, shown.err) == (1, "Event 4 cannot be read whole.\n")
    assert "content that cannot be decoded" in shown.text
    assert "OutputAccepted" in shown.text
    assert [e.get("content_unreadable") for e in on_disk("show", "r1", "INC-2", "--json").json["events"]][:2] == [
        True,
        None,
    ]
    assert on_disk("show", "r1", "INC-1").code == 0


def test_what_was_said_of_a_run_could_not_be_decoded_and_nothing_else_was_shown(on_disk: Program) -> None:
    altered(on_disk, "UPDATE contents SET body = x'fffe' WHERE position = 2")
    shown = on_disk("show", "r1")
    assert (shown.code, shown.err) == (1, "Event 2 cannot be read whole.\n")
    assert "what was said of it at its start cannot be decoded" in shown.text
    assert "accepted_first" in shown.text
    ended = on_disk("reproduce", "r1")
    assert ended.code == 1
    assert "no request: event 2, RunStarted (unreadable): its content cannot be decoded\n" in ended.text


def test_for_machines_each_run_is_one_object_and_the_verdict_the_last(recorded: Program) -> None:
    run, verdict = [json.loads(line) for line in recorded("reproduce", "latest", "--format", "jsonl").out.splitlines()]
    assert (run["kind"], run["run_id"], run["verdict"], run["requests"], run["reproduced"]) == (
        "run",
        "r1",
        "same",
        3,
        3,
    )
    assert verdict == {"kind": "verdict", "verdict": "same", "runs": {"same": 1}}
    whole = recorded("reproduce", "latest", "--format", "json").json
    assert whole == {"cases": [], "runs": [run], "verdict": "same"}


def test_over_all_runs_the_worst_decides(recorded: Program, three: Path) -> None:
    assert recorded("run", three, "--run-id", "r2").code == 0
    assert recorded("redact", "--run", "r1", "--request", "INC-2", "--reason", "asked", "--yes").code == 0
    ended = recorded("reproduce", "--all")
    assert ended.code == 3, ended.text
    lines = ended.text.splitlines()
    assert lines[0].startswith("INC-2: event ")
    assert lines[0].endswith("RequestAccepted (undecided): its content was erased")
    assert "  3 requests: 2 as recorded, 1 not reproducible" in lines
    assert "  not reproducible: erased: 1 (its content was erased)" in lines
    assert "Run r2 (completed): no difference" in lines
    assert lines[-1] == "2 runs: 1 incomplete, 1 same"
    assert [run["run_id"] for run in recorded("reproduce", "--all", "--format", "json").json["runs"]] == ["r1", "r2"]
    assert recorded("reproduce", "r2").code == 0


def test_another_contract_is_asked_about_with_what_would_come_of_it(recorded: Program) -> None:
    (recorded.folder / "strict.json").write_text(STRICT)
    ended = recorded("reproduce", "r1", "--contract", "strict.json")
    assert ended.code == 1, ended.text
    assert "0 would be accepted, 3 refused" in ended.text
    assert "Run r1 (completed): verdicts would be others" in ended.text
    assert "INC-1: event" in ended.text
    cases = recorded("reproduce", "r1", "--contract", "strict.json", "--format", "json", "--out", "cases.json")
    assert (cases.code, cases.out) == (1, b"")
    (first, *_), (run,) = [
        json.loads((recorded.folder / "cases.json").read_bytes())[name] for name in ("cases", "runs")
    ]
    assert first["kind"] == "what_if"
    assert first["members"][1] == {
        "name": "code",
        "recorded": None,
        "today": "model_output_invalid_fields:risk_level",
    }
    assert run["what_if"] == {"would_accept": 0, "would_refuse": 3, "would_ask_again": 0, "would_no_reply": 0}
    (recorded.folder / "same.json").write_text("{}")
    assert recorded("reproduce", "r1", "--contract", "same.json").code == 0


def test_a_run_without_an_end_is_incomplete_and_says_so(program: Program, against: Against, tmp_path: Path) -> None:
    against({"repeat": 1000, "status": 503})
    many = write_requests(tmp_path / "many.jsonl", 40)
    assert program("run", many, "--run-id", "r1", "--max-attempts", 1, "-j", 1).code == 4
    ended = program("reproduce", "r1")
    assert ended.code == 3
    assert "the run has not ended" in ended.text
    assert "20 as recorded, 20 without a result in the record" in ended.text
    assert program("abandon", "r1", "--reason", "tried").code == 0
    assert program("reproduce", "r1").code == 0


def test_whatever_models_and_files_wrote_it_shows_none_of_it(
    program: Program, against: Against, tmp_path: Path
) -> None:
    against(content=json.dumps({**ANSWER, "proposed_action": HOSTILE}))
    file = tmp_path / "hostile.jsonl"
    file.write_text(request_line(1, user_prompt=HOSTILE) + "\n" + HOSTILE + "\n" + request_line(2) + "\n")
    assert program("run", file, "--run-id", "r1", "--on-invalid", "reject").code == 1
    (program.folder / "strict.json").write_text(STRICT)
    for words in (("--guard",), ("--contract", "strict.json")):
        for form in ("text", "json", "jsonl"):
            ended = program("reproduce", "r1", *words, "--format", form)
            assert ended.code == (1 if words == ("--contract", "strict.json") else 0)
            assert "owned" not in ended.text
            assert "script" not in ended.text


def test_who_stops_reading_early_gets_the_verdict_on_the_whole(recorded: Program) -> None:
    (recorded.folder / "strict.json").write_text(STRICT)
    process = recorded.start("reproduce", "r1", "--contract", "strict.json", "--format", "jsonl")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name one run, or --all"),
        (("r1", "--all"), "name one run, or --all"),
        (("nothing",), "no run begins"),
        (("r1", "--contract", "absent.json"), "absent.json"),
        (("r1", "--contract", "broken.json"), "broken.json is not JSON"),
        (("r1", "--contract", "list.json"), "list.json is not a JSON object"),
        (("r1", "--contract", "wrong.json"), "wrong.json: properties.risk_level: "),
        (("r1", "--contract", "remote.json"), "remote.json: "),
        (("r1", "--contract", "large.json"), "longer than"),
    ],
)
def test_wrong_use_ends_with_2_and_names_what(recorded: Program, words: tuple[str, ...], said: str) -> None:
    texts = {
        "broken": "{",
        "list": "[]",
        "wrong": '{"properties":{"risk_level":{"type":"integer"}}}',
        "remote": '{"$ref":"https://example.com/schema.json"}',
        "large": json.dumps({"description": "x" * (1 << 18)}),
    }
    for name, text in texts.items():
        (recorded.folder / f"{name}.json").write_text(text)
    ended = recorded("reproduce", *words)
    assert (ended.code, ended.out) == (2, b""), ended.err
    assert said in ended.err


def test_without_a_ledger_it_ends_with_4(program: Program) -> None:
    assert program("reproduce", "latest").code == 4


def test_a_ledger_without_runs_has_nothing_that_differs(program: Program) -> None:
    assert program("db", "upgrade").code == 0
    ended = program("reproduce", "--all")
    assert (ended.code, ended.text) == (0, "0 runs\n")
