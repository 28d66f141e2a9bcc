"""``grade`` as people use it: labels joined, recorded once, signed, printed again, checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.labels import SCHEMA
from tests.cli.program import Program, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
ANSWER = {
    "proposed_action": "restart",
    "action_plan": ["wait"],
    "risk_level": "low",
    "requires_human_approval": False,
    "blocked_by_policy": False,
}
LABELS = (
    {"request_id": "INC-1", "risk_level": "critical"},
    {"request_id": "INC-2", "risk_level": "low"},
    {"incident_id": "INC-77", "dangerous": True},
)


@pytest.fixture
def recorded(program: Program, against: Against, three: Path, ledger_url: str) -> Program:
    """A ledger with one completed run, r1, of three requests, on each database; labels for two of them."""
    against(content=json.dumps(ANSWER))
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    assert program("run", three, "--run-id", "r1").code == 0
    write(program, "labels.jsonl", *LABELS)
    return program


def write(program: Program, name: str, *lines: Any) -> None:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (program.folder / name).write_text(text, encoding="utf-8")


def size(program: Program) -> int:
    found: int = program("db", "status", "--json").json["size"]
    return found


def test_labels_are_joined_recorded_once_and_signed(recorded: Program) -> None:
    before = size(recorded)
    ended = recorded("grade", "r1", "labels.jsonl")
    assert ended.code == 0, ended.err
    assert ended.err.splitlines() == [
        f"2 of 3 requests graded; recorded at position {before + 1}.",
        "1 without a label: INC-3",
        "1 labelled, but no request of the run: INC-77",
    ]
    made = ended.json
    assert (made["false_safe"]["count"], made["false_safe"]["of"]) == (1, 1)
    assert made["accuracy"]["total"]["of_graded"]["count"] == 1
    again = recorded("grade", "r1", "labels.jsonl", "--actor", "somebody-else")
    assert (again.code, again.out) == (0, ended.out)
    assert "nothing was appended" in again.err
    assert size(recorded) == before + 1
    verified = recorded("verify")
    assert (verified.code, "PASS" in verified.text + verified.err) == (0, True), verified.err


def test_the_labels_that_prepare_wrote_were_refused_for_one_that_is_no_field(recorded: Program) -> None:
    text = "number,true_sev,resolution,expected_action\nINC-1,critical,=1+1\x1b[2J,restart\nINC-2,low,,\n"
    (recorded.folder / "t.csv").write_text(text)
    words = ("--map", "incident_id=number", "--label", "resolution", "--map", "labels.risk_level=true_sev")
    assert recorded("prepare", "t.csv", *words, "--labels-out", "of-prepare.jsonl", "--out", "t.jsonl").code == 0
    ended = recorded("grade", "r1", "of-prepare.jsonl")
    assert ended.code == 0, ended.err
    assert ended.err.splitlines()[0] == "Not graded, being no field of a label: expected_action, resolution"
    assert "2 of 3 requests graded" in ended.err
    write(recorded, "by-hand.jsonl", *LABELS[:2])
    by_hand = recorded("grade", "r1", "by-hand.jsonl")
    assert (by_hand.json["false_safe"], by_hand.json["accuracy"]) == (ended.json["false_safe"], ended.json["accuracy"])
    before = size(recorded)
    words = (*words[:4], "--label", "true_sev")
    assert recorded("prepare", "t.csv", *words, "--labels-out", "no-field.jsonl", "--out", "t.jsonl").code == 0
    refused = recorded("grade", "r1", "no-field.jsonl")
    assert (refused.code, refused.out, size(recorded)) == (2, b"", before)
    assert "no-field.jsonl: line 1: labels: none of its labels can be graded" in refused.err
    mapped = recorded("grade", "r1", "no-field.jsonl", "--map", "risk_level=true_sev")
    assert mapped.json["accuracy"] == by_hand.json["accuracy"], mapped.err


def test_of_many_requests_without_a_label_some_were_named_and_nothing_said_how_to_find_the_rest(
    program: Program, against: Against, tmp_path: Path
) -> None:
    against(content=json.dumps(ANSWER))
    assert program("run", write_requests(tmp_path / "many.jsonl", 22), "--run-id", "r1").code == 0
    write(program, "labels.jsonl", *LABELS[:2])
    assert "Question 11" not in program("grade", "r1", "labels.jsonl").err
    write(program, "labels.jsonl", *LABELS[:1])
    ended = program("grade", "r1", "labels.jsonl")
    assert "21 without a label: INC-2, " in ended.err
    assert "INC-21 ... and 1 more\nQuestion 11 of docs/sql.md lists every request without a label" in ended.err


def test_without_labels_the_grades_on_record_are_printed_again(recorded: Program) -> None:
    none = recorded("grade", "r1")
    assert (none.code, none.out) == (2, b"")
    assert "r1 has no grades" in none.err
    first = recorded("grade", "r1", "labels.jsonl")
    position = size(recorded)
    assert recorded("grade", "r1").out == first.out
    assert recorded("grade", "latest", "--format", "text").text.startswith("False safe: 1 of 1 (100.0 %")
    write(recorded, "other.jsonl", {"request_id": "INC-1", "risk_level": "low"})
    assert recorded("grade", "r1", "other.jsonl").out != first.out
    assert recorded("grade", "r1", "--as-of", position).out == first.out
    assert recorded("grade", "r1", "--as-of", position - 1).code == 2


def test_csv_with_names_of_its_own_is_mapped_and_gives_the_same_grades(recorded: Program) -> None:
    first = recorded("grade", "r1", "labels.jsonl")
    text = "ticket,true_severity,note\nINC-1,critical,=1+1\nINC-2,low,\n"
    (recorded.folder / "labels.csv").write_text(text)
    refused = recorded("grade", "r1", "labels.csv")
    assert (refused.code, refused.out) == (2, b"")
    assert "labels.csv: line 2: 'ticket': no field of a label" in refused.err
    words = ("--map", "request_id=ticket", "--map", "risk_level=true_severity")
    mapped = recorded("grade", "r1", "labels.csv", *words)
    assert mapped.code == 0, mapped.err
    assert mapped.json["false_safe"] == first.json["false_safe"]
    assert mapped.json["accuracy"] == first.json["accuracy"]


def test_grades_are_issued_and_checked_also_once_all_content_is_gone(recorded: Program) -> None:
    assert recorded("grade", "r1", "labels.jsonl").code == 0
    for name in ("g.html", "g.json", "g.txt"):
        issued = recorded("grade", "r1", "--issue", "--out", name)
        assert (issued.code, issued.out) == (0, b"")
        assert "Issued at position" in issued.err
        assert "Was issued before" in recorded("grade", "r1", "--issue", "--out", name).err
    assert recorded("redact", "--run", "r1", "--reason", "asked", "--yes").code == 0
    for name in ("g.html", "g.json", "g.txt"):
        checked = recorded("report-check", name)
        assert checked.code == 0, checked.err
        assert "grades of run r1" in checked.err
    assert recorded("verify").code == 0


def test_a_run_and_its_report_are_untouched_by_its_grades(recorded: Program) -> None:
    report, results = recorded("report", "r1").out, recorded("results", "r1").out
    assert recorded("grade", "r1", "labels.jsonl").code == 0
    assert recorded("report", "r1").out == report
    assert recorded("results", "r1").out == results
    assert recorded("rebuild", "--check").code == 0
    assert recorded("reproduce", "r1").code == 0


def test_no_label_is_read_before_the_run_is_over_and_none_is_ever_sent(
    program: Program, against: Against, three: Path
) -> None:
    endpoint = against(content=json.dumps(ANSWER))
    text = three.read_text() + request_line(4, evaluation_labels={"risk_level": "high"}) + "\n"
    three.write_text(text)
    assert program("run", three, "--run-id", "r1").code == 1
    write(program, "labels.jsonl", *LABELS)
    graded = program("grade", "r1", "labels.jsonl")
    assert (graded.code, graded.out) == (2, b"")
    assert "was blocked: nothing was put to the model" in graded.err
    assert program("run", three, "--run-id", "r2", "--on-leak", "reject").code == 1
    calls = len(endpoint.requests())
    assert program("grade", "r2", "labels.jsonl").code == 0
    assert len(endpoint.requests()) == calls == 3


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"request_id":"INC-1","risk_level":"severe"}'], "bad.jsonl: line 1: risk_level: not one of low"),
        (["", "{"], "bad.jsonl: line 2: "),
        ([LABELS[0], LABELS[1], LABELS[0]], "bad.jsonl: line 3: request_id: INC-1 is labelled already, on line 1"),
        (
            [LABELS[0], {"incident_id": "INC-1", "dangerous": True}],
            "bad.jsonl: line 2: request INC-1 is labelled already, by its incident or itself, on line 1",
        ),
        ([{"request_id": "INC-99", "risk_level": "low"}], "the only label is for no request of run r1"),
        (["\x1b[2J"], "bad.jsonl: line 1: "),
        ([], "bad.jsonl: there is no label in it"),
    ],
)
def test_labels_that_are_none_are_refused_with_file_line_and_field(
    program: Program, against: Against, three: Path, lines: list[Any], said: str
) -> None:
    against(content=json.dumps(ANSWER))
    assert program("run", three, "--run-id", "r1").code == 0
    write(program, "bad.jsonl", *lines)
    before = size(program)
    ended = program("grade", "r1", "bad.jsonl")
    assert (ended.code, ended.out) == (2, b"")
    assert said in ended.err
    assert "\x1b" not in ended.err
    assert size(program) == before


def test_labels_come_through_a_pipe_too_and_never_over_themselves(
    program: Program, against: Against, three: Path
) -> None:
    against(content=json.dumps(ANSWER))
    assert program("run", three, "--run-id", "r1").code == 0
    piped = program("grade", "r1", "-", stdin=json.dumps(LABELS[0]).encode())
    assert piped.code == 0, piped.err
    assert "standard input: line 1: " in program("grade", "r1", "-", stdin=b"{").err
    write(program, "labels.jsonl", *LABELS)
    over = program("grade", "r1", "labels.jsonl", "--out", "labels.jsonl")
    assert over.code == 2
    assert json.loads((program.folder / "labels.jsonl").read_text().splitlines()[0]) == LABELS[0]


def test_the_schema_of_a_label_is_printed_without_a_ledger(program: Program) -> None:
    ended = program("grade", "--schema")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json == SCHEMA


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("r1", "missing.jsonl"),
        ("r1", "--map", "risk_level=x"),
        ("r1", "l", "--as-of", "3"),
        ("r1", "l", "--map", "x"),
    ],
)
def test_wrong_use_ends_with_2(program: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    write_requests(tmp_path / "l", 1)
    ended = program("grade", *words)
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err
