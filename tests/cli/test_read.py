"""``runs``, ``show``, ``report`` and ``results``: what they print, and for whom."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, Program, clean_environment, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
HOSTILE = "\x1b[2J\x1b]0;owned\x07"


@pytest.fixture
def recorded(program: Program, against: Against, three: Path) -> Program:
    """A ledger with one run, in which each answer tries something on the terminal."""
    answer = {"proposed_action": f"restart {HOSTILE}", "action_plan": ["a"], "risk_level": "low"}
    answer |= {"requires_human_approval": False, "blocked_by_policy": False}
    against(content=json.dumps(answer))
    assert program("run", three, "--run-id", "r1", "--description", f"said {HOSTILE}").code == 0
    return program


def on_a_terminal(program: Program, *words: str, env: dict[str, str] | None = None) -> str:
    """What a person sees: standard output and standard error are one terminal."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *words], cwd=program.folder, env=clean_environment(env), stdin=side, stdout=side, stderr=side
    )
    os.close(side)
    seen = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(main)
    assert process.wait(timeout=60) == 0, seen
    return seen.decode()


def test_on_a_terminal_results_are_a_table_and_nothing_acts_on_it(recorded: Program) -> None:
    for words in (("results", "r1"), ("show", "r1"), ("show", "r1", "INC-1"), ("show", "r1", "INC-1", "--content")):
        seen = on_a_terminal(recorded, *words)
        assert "\x07" not in seen
        assert "\x1b]" not in seen
        assert "\x1b[2J" not in seen
    assert "REQUEST" in on_a_terminal(recorded, "results", "r1")
    assert "Usable as evaluation: yes" in on_a_terminal(recorded, "report", "r1")


def test_in_a_pipe_results_are_json_lines_and_the_report_is_json(recorded: Program) -> None:
    lines = recorded("results", "r1").text.splitlines()
    assert [json.loads(line)["request_id"] for line in lines] == ["INC-1", "INC-2", "INC-3"]
    assert recorded("report", "r1").json["schema_version"] == "agent_nemotron_external_report_v1"


def test_the_same_report_has_the_same_bytes_wherever_it_goes(recorded: Program) -> None:
    first = recorded("report", "r1")
    assert recorded("report", "r1", "--out", "report.json").out == b""
    assert (recorded.folder / "report.json").read_bytes() == first.out
    later = recorded("report", "r1", "--as-of", str(first.json["as_of"]["position"]))
    assert later.out == first.out
    text = recorded("report", "r1", "--out", "report.txt")
    assert (text.code, text.out) == (0, b"")
    assert (recorded.folder / "report.txt").read_bytes() == recorded("report", "r1", "--format", "text").out


def test_the_version_of_what_a_report_counts_can_be_named_and_one_that_never_was_is_refused(recorded: Program) -> None:
    named = recorded("report", "r1", "--projection", "report/1", "--format", "json")
    assert named.out == recorded("report", "r1", "--format", "json").out
    assert named.json["projection"] == {"name": "report", "version": 1}
    refused = recorded("report", "r1", "--projection", "report/9")
    assert (refused.code, refused.out) == (2, b"")
    assert "'report/9'" in refused.err
    assert "'report/1'" in refused.err


def test_the_page_of_a_report_names_its_requests_and_is_the_one_of_its_position(recorded: Program) -> None:
    page = recorded("report", "r1", "--format", "html").out
    made = recorded("report", "r1", "--format", "json")
    assert hashlib.sha256(made.out).hexdigest().encode() in page
    assert recorded("report", "r1", "--issue", "--out", "page.html").code == 0
    assert (recorded.folder / "page.html").read_bytes() == page
    assert recorded("report-check", "page.html").code == 0
    early = recorded("report", "r1", "--format", "html", "--as-of", str(made.json["as_of"]["position"] - 1)).out
    assert b"the run has not ended" in early
    assert page.count(b'<tr id="l') == early.count(b'<tr id="l') == made.json["requests"]


def test_a_report_is_made_as_of_a_position_or_a_time(recorded: Program) -> None:
    events = recorded("show", "r1", "INC-2", "--json").json["events"]
    decided = next(event for event in events if event["type"] == "OutputAccepted")
    before = recorded("report", "r1", "--as-of", str(decided["position"] - 1)).json
    assert before["outcome"] == "incomplete"
    at = recorded("report", "r1", "--as-of", decided["recorded_at"]).json
    assert at["accepted_first"] > before["accepted_first"]


def test_runs_are_listed_newest_first_within_a_span_of_time(recorded: Program, three: Path) -> None:
    assert recorded("run", three, "--run-id", "r2", "--tag", "team=sre").code == 0
    listed = [json.loads(line) for line in recorded("runs", "--json").text.splitlines()]
    assert [run["run_id"] for run in listed] == ["r2", "r1"]
    assert listed[0]["tags"] == {"team": "sre"}
    boundary = listed[0]["started_at"]
    assert [line.split()[0] for line in recorded("runs").text.splitlines()] == ["run_id", "r2", "r1"]
    since = recorded("runs", "--json", "--since", boundary).text.splitlines()
    until = recorded("runs", "--json", "--until", boundary).text.splitlines()
    assert [json.loads(line)["run_id"] for line in since] == ["r2"]
    assert [json.loads(line)["run_id"] for line in until] == ["r1"]
    assert recorded("runs", "--until", "1999-01-01").err == "No runs.\n"


def test_show_tells_settings_state_and_counts(recorded: Program) -> None:
    shown = recorded("show", "r1", "--json").json
    assert shown["state"] == "completed"
    assert shown["counts"]["accepted_first"] == 3
    assert shown["said"]["description"] == f"said {HOSTILE}"
    text = recorded("show", "r1").text
    for said in ("state                 completed", "accepted_first        3", "description"):
        assert said in text


def test_the_timeline_of_a_request_has_each_event_and_its_content_when_asked(recorded: Program) -> None:
    told = recorded("show", "r1", "INC-2", "--json").json
    types = [event["type"] for event in told["events"]]
    assert types == ["RequestAccepted", "ModelCallStarted", "ModelCalled", "OutputAccepted"]
    assert all("content" not in event for event in told["events"])
    whole = recorded("show", "r1", "INC-2", "--json", "--content").json["events"]
    assert json.loads(whole[0]["content"]["body"])["incident_id"] == "INC-2"
    assert json.loads(whole[1]["content"]["body"])["messages"][0]["content"] == "You handle incidents."
    text = recorded("show", "r1", "INC-2").text
    assert text.index("RequestAccepted") < text.index("ModelCallStarted") < text.index("OutputAccepted")


def test_a_request_that_was_refused_is_told_with_its_line(program: Program, against: Against, tmp_path: Path) -> None:
    against()
    leaking = json.dumps(json.loads(request_line(2)) | {"ground_truth": {"expected_action": "x"}})
    file = write_requests(tmp_path / "in.jsonl", 3, bad={2: leaking})
    program("run", file, "--run-id", "r1")
    ended = program("show", "r1", "INC-2")
    assert ended.code == 2
    assert "LeakRejected on line 2 (request_self_grading_leak)" in ended.err


@pytest.mark.parametrize("words", ["report r1", "results r1", "run --help"])
def test_a_reader_that_has_seen_enough_ends_the_program_quietly(recorded: Program, words: str) -> None:
    process = recorded.start(*words.split())
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_no_colour_is_printed_where_none_is_wanted(recorded: Program) -> None:
    assert "\x1b[" not in on_a_terminal(recorded, "runs", env={"NO_COLOR": "1"})


def test_an_output_took_the_place_of_the_ledger(recorded: Program) -> None:
    ledger = recorded.folder / "replay-ledger.db"
    (recorded.folder / "link").symlink_to(ledger)
    for verb in ("report", "results"):
        for name in (ledger.name, ledger, "link", f"{ledger.name}-wal", f"{ledger.name}-locks/x"):
            ended = recorded(verb, "r1", "--out", name)
            assert (ended.code, ended.out) == (2, b""), name
            assert "belongs to the database" in ended.err
    assert recorded("report", "r1").code == 0


@pytest.mark.parametrize("type_", ["ModelCalled", "RunCompleted"])
def test_a_run_with_an_event_that_cannot_be_read_ended_with_0(recorded: Program, type_: str) -> None:
    whole = recorded("results", "r1").out
    with closing(sqlite3.connect(recorded.folder / "replay-ledger.db")) as ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            ledger.execute(f'DROP TRIGGER "{trigger}"')
        (position,) = ledger.execute("SELECT min(position) FROM events WHERE type = ?", (type_,)).fetchone()
        ledger.execute("UPDATE events SET payload = '{' WHERE position = ?", (position,))
        ledger.commit()
    results, report = recorded("results", "r1"), recorded("report", "r1")
    assert (results.code, report.code) == (1, 1), results.err + report.err
    assert len(results.out.splitlines()) == len(whole.splitlines())
    assert report.json["failures"] == [f"unreadable:{position}"]
    for ended in (results, report):
        assert f"Event {position} cannot be read" in ended.err


@pytest.mark.parametrize(
    "words",
    ["results r1 --format csv", "results r1 --format jsonl", "results r1 --format html", "report r1 --format json"],
)
def test_a_format_for_machines_acted_on_the_terminal(recorded: Program, words: str) -> None:
    seen = on_a_terminal(recorded, *words.split())
    assert seen.startswith(("{", "schema_version", "run_id", "<!doctype html>"))
    assert not set(seen) & {"\x07", "\x1b", "\x9b"}
