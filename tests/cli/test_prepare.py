"""``prepare``: alerts in, requests out, labels apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from runner.labels import MAX_LINE_BYTES, read_labels
from tests.cli.program import Program

WEBHOOK = {
    "version": "4",
    "status": "firing",
    "receiver": "on-call",
    "groupLabels": {"alertname": "KubePodCrashLooping"},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "https://alerts.example",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "KubePodCrashLooping", "severity": "critical", "service": "checkout"},
            "annotations": {"summary": "Pods restart"},
            "startsAt": "2026-11-30T20:42:00Z",
            "fingerprint": "a6ead519",
        }
    ],
}


def test_a_notification_becomes_requests_that_a_dry_run_takes(program: Program, tmp_path: Path) -> None:
    (tmp_path / "hook.json").write_text(json.dumps(WEBHOOK, indent=2))
    ended = program("prepare", "hook.json", "--out", "in.jsonl", "--variant", "contract_tuned_v1")
    assert (ended.code, ended.out) == (0, b"")
    assert ended.err == "1 record; 1 request and 0 labels written.\n"
    assert program("run", "in.jsonl", "--dry-run").code == 0
    assert program("prepare", "hook.json", "--variant", "contract_tuned_v1").out == (tmp_path / "in.jsonl").read_bytes()


def test_labels_go_to_a_file_of_their_own_and_nowhere_else(program: Program, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("number,description,resolution\n17,checkout is down,rolled back\n")
    mapped = ("--map", "incident_id=number", "--map", "context=description", "--label", "resolution")
    ended = program("prepare", "t.csv", *mapped, "--labels-out", "labels.jsonl")
    assert ended.code == 0, ended.err
    assert "rolled back" not in ended.text
    assert json.loads((tmp_path / "labels.jsonl").read_text()) == {
        "request_id": "17",
        "labels": {"resolution": "rolled back"},
    }
    without = program("prepare", "t.csv", *mapped, "--out", "in.jsonl")
    assert without.code == 2
    assert "labels" in without.err
    assert not (tmp_path / "in.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b"", "empty"),
        ("a.jsonl", b'{"a": 1}\n{"a":\n', "line 2"),
        ("a.json", b'{"neither": "nor"}', "form"),
        ("a.csv", b"a,b\n\xff,2\n", "UTF-8"),
    ],
)
def test_what_cannot_become_a_request_is_named(
    program: Program, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    ended = program("prepare", name, "--map", "incident_id=a", "--out", "in.jsonl")
    assert ended.code == 2
    assert name in ended.err
    assert says in ended.err
    assert not (tmp_path / "in.jsonl").exists()


@pytest.mark.parametrize("words", [("--map", "incident_id"), ("--map", "a=b", "--map", "a=c"), ("--variant", "nope")])
def test_a_bad_option_is_named(program: Program, words: tuple[str, ...]) -> None:
    ended = program("prepare", "absent.jsonl", *words)
    assert ended.code == 2
    assert words[0] in ended.err


def test_a_missing_file_is_named(program: Program) -> None:
    ended = program("prepare", "absent.jsonl")
    assert (ended.code, ended.err) == (2, "Error: absent.jsonl: no such file or directory\n")


TICKETS = "number,description,resolution\n17,checkout is down,rolled back\n"
MAPPED = ("--map", "incident_id=number", "--map", "context=description", "--label", "resolution")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--out", "t.csv", "--labels-out", "l"), "--out: t.csv is also the input"),
        (("--out", "./link", "--labels-out", "l"), "--out: ./link is also the input"),
        (("--out", "hard", "--labels-out", "l"), "--out: hard is also the input"),
        (("--labels-out", "t.csv"), "--labels-out: t.csv is also the input"),
        (("--out", "new", "--labels-out", "./new"), "--labels-out: ./new is also --out"),
        (("--labels-out", "-"), "--labels-out: standard output gets the requests"),
        (("--system-prompt-file", "p", "--out", "p", "--labels-out", "l"), "--out: p is also --system-prompt-file"),
    ],
)
def test_an_output_took_the_place_of_the_input_or_of_the_other_output(
    program: Program, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "t.csv").write_text(TICKETS)
    (tmp_path / "p").write_text("Decide.")
    (tmp_path / "link").symlink_to("t.csv")
    (tmp_path / "hard").hardlink_to(tmp_path / "t.csv")
    ended = program("prepare", "t.csv", *MAPPED, *words)
    assert (ended.code, ended.out) == (2, b"")
    assert says in ended.err
    assert (tmp_path / "t.csv").read_text() == TICKETS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hard", "link", "p", "t.csv"]


def test_both_outputs_may_be_thrown_away(program: Program, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TICKETS)
    assert program("prepare", "t.csv", *MAPPED, "--out", "/dev/null", "--labels-out", "/dev/null").code == 0


def test_labels_without_a_file_of_their_own_did_not_name_the_option(program: Program, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TICKETS)
    ended = program("prepare", "t.csv", *MAPPED)
    assert ended.code == 2
    assert "--labels-out" in ended.err


RULES = """groups:
- name: node
  rules:
  - record: a:b
    expr: b
  - alert: NodeDown
    expr: up == 0
    labels: {severity: critical}
"""
LEAKING = """{"incident_id":"a","note":"the expected action is: restart"}
{"incident_id":
{"incident_id":"c"}
"""


def test_a_rule_file_becomes_requests_that_a_dry_run_takes(program: Program, tmp_path: Path) -> None:
    (tmp_path / "node.yml").write_text(RULES)
    ended = program("prepare", "node.yml", "--policy-id", "freeze-7", "--out", "in.jsonl")
    assert (ended.code, ended.err) == (
        0,
        "1 record, 1 recording rule passed over; 1 request and 0 labels written.\n",
    )
    (request,) = [json.loads(line) for line in (tmp_path / "in.jsonl").read_text().splitlines()]
    assert (request["policy_id"], request["metadata"]["facets"]) == ("freeze-7", {"severity": "critical"})
    assert program("run", "in.jsonl", "--dry-run").code == 0


def test_standard_input_is_read(program: Program) -> None:
    ended = program("prepare", "-", stdin=RULES.encode())
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["source_metadata"]["file"] == "standard input"
    assert "standard input" in program("prepare", "-").err


def test_a_leak_ends_with_1_and_nothing_is_written(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LEAKING)
    (tmp_path / "in.jsonl").write_text("as it was")
    for words in ((), ("--out", "in.jsonl", "--labels-out", "labels.jsonl")):
        ended = program("prepare", "a.jsonl", *words)
        assert (ended.code, ended.out) == (1, b"")
        assert (
            "a.jsonl, line 1, field incident_context.note: would leak its evaluation labels (label_text)" in ended.err
        )
        assert "a.jsonl, line 2: not JSON" in ended.err
        assert "restart" not in ended.err
    assert (tmp_path / "in.jsonl").read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "in.jsonl"]


def test_what_may_be_left_out_is_named_and_the_rest_is_written(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LEAKING)
    ended = program("prepare", "a.jsonl", "--on-leak", "reject", "--on-invalid", "reject")
    assert ended.code == 0
    assert json.loads(ended.out)["incident_id"] == "c"
    assert "line 1" in ended.err
    assert "line 2" in ended.err
    assert "1 left out as invalid, 1 left out because they would leak; 1 request and 0 labels written." in ended.err
    assert program("prepare", "a.jsonl", "--on-leak", "reject").code == 2
    assert program("prepare", "a.jsonl", "--on-invalid", "reject").code == 1


def test_a_mistyped_column_was_twenty_lines_that_did_not_say_so(program: Program, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("number,a\x1b[2Jb\n" + "".join(f"{n},x\n" for n in range(40)))
    ended = program("prepare", "t.csv", "--map", "incident_id=nope")
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err == (
        "Error: t.csv, line 1, field nope: no column is called that; the columns are number, a\\x1b[2Jb\n"
        "Nothing was written.\n"
    )


def test_of_many_faults_the_first_are_named_and_the_rest_counted(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"incident_id":"a"}\n' + "{}\n" * 30)
    ended = program("prepare", "a.jsonl")
    assert ended.code == 2
    assert "a.jsonl, line 21" in ended.err
    assert "a.jsonl, line 22" not in ended.err
    assert "... and 10 more records that cannot become requests\n" in ended.err


def test_one_more_fault_was_told_as_many(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"incident_id":"a"}\n' + "{}\n" * 21)
    assert "... and 1 more record that cannot become a request\n" in program("prepare", "a.jsonl").err


def test_one_record_one_request_and_one_label_were_told_as_many(program: Program, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TICKETS)
    ended = program("prepare", "t.csv", *MAPPED, "--labels-out", "l.jsonl")
    assert ended.err == "1 record; 1 request and 1 label written.\n"
    (tmp_path / "t.csv").write_text(TICKETS + "18,slow,waited\n")
    ended = program("prepare", "t.csv", *MAPPED, "--labels-out", "l.jsonl")
    assert ended.err == "2 records; 2 requests and 2 labels written.\n"


OTHER_FORMS = ("x.csv", "x.JSON", "x.yaml", "x.xlsx", "x.jsonl.gz")


@pytest.mark.parametrize("option", ["--out", "--labels-out"])
def test_json_lines_were_written_under_the_name_of_another_format(
    program: Program, tmp_path: Path, option: str
) -> None:
    os.mkfifo(tmp_path / "never-read")
    for name in OTHER_FORMS:
        ended = program("prepare", "never-read", option, name)
        said = f"{option}: {name} would be JSON lines, and its extension says something else: "
        assert (ended.code, ended.out) == (2, b"")
        assert ended.err == f"Error: {said}give it .jsonl or .ndjson, or none\n"
    (tmp_path / "x.csv").write_text("as it was")
    assert program("prepare", "never-read", option, "x.csv").code == 2
    assert (tmp_path / "x.csv").read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["never-read", "x.csv"]


@pytest.mark.parametrize("name", ["x", "x.jsonl", "x.NDJSON", ".labels", "/dev/fd/1"])
def test_a_name_that_says_json_lines_or_nothing_is_taken(program: Program, tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_text(TICKETS)
    ended = program("prepare", "t.csv", *MAPPED, "--out", "in.jsonl", "--labels-out", name)
    assert ended.code == 0, ended.err


def test_labels_too_long_for_grade_were_written_by_prepare(program: Program, tmp_path: Path) -> None:
    def write(length: int) -> None:
        rows = [["number", "text", "resolution", "dangerous"], ["1", "slow", "waited", "true"]]
        rows.append(["2", "down", "x" * length, "true"])
        (tmp_path / "t.csv").write_text("\n".join(map(",".join, rows)) + "\n")

    words = ("prepare", "t.csv", "--map", "incident_id=number", "--label", "resolution", "--label", "dangerous")
    write(100)
    assert program(*words, "--out", "in.jsonl", "--labels-out", "l").code == 0
    room = MAX_LINE_BYTES - len((tmp_path / "l").read_bytes().splitlines(keepends=True)[1]) + 100
    write(room)
    assert program(*words, "--out", "in.jsonl", "--labels-out", "l").code == 0
    lines = (tmp_path / "l").read_bytes().splitlines(keepends=True)
    assert len(lines[1]) == MAX_LINE_BYTES
    assert [label.request_id for label in read_labels(lines, form="jsonl")] == ["1", "2"]

    write(room + 1)
    ended = program(*words, "--out", "in.jsonl", "--labels-out", "l")
    assert (ended.code, (tmp_path / "l").read_bytes()) == (2, b"".join(lines))
    assert ended.err.startswith(
        "Error: t.csv, line 3, field resolution: the longest of labels that come to more than 65536 bytes, which grade"
    )
    assert "xxx" not in ended.err
    ended = program(*words, "--out", "in.jsonl", "--labels-out", "l", "--on-invalid", "reject")
    assert (ended.code, (tmp_path / "l").read_bytes()) == (0, lines[0])
    assert "2 records, 1 left out as invalid; 1 request and 1 label written." in ended.err


MAPPING = """labels = ["closed_by"]
[map]
incident_id = "number"
context.text = "description"
"source.ticket" = "/link"
[facets]
kind = "type"
[set]
policy_id = "default"
facets.env = "prod"
"""


def test_a_file_says_where_many_fields_come_from_and_options_come_before_it(program: Program, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MAPPING)
    row = {"number": 7, "description": "slow", "link": "x", "type": "db", "kind": "disk", "closed_by": "anna"}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    given = ("prepare", "t.jsonl", "--map", "m.toml", "--labels-out", "l.jsonl")
    request = json.loads(program(*given).out)
    assert request["incident_context"] == {"text": "slow"}
    assert request["source_metadata"]["ticket"] == "x"
    assert request["metadata"]["facets"] == {"kind": "db", "env": "prod"}
    assert request["policy_id"] == "default"
    assert json.loads((tmp_path / "l.jsonl").read_text())["labels"] == {"closed_by": "anna"}
    over = json.loads(program(*given, "--facet", "kind=kind", "--policy-id", "p2", "--set", "facets.env=test").out)
    assert over["metadata"]["facets"] == {"kind": "disk", "env": "test"}
    assert over["policy_id"] == "p2"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[map]\na = 1\n", "map.a is not a text"),
        (b"[map.context]\nx = ''\n", "map.context.x is not a text"),
        (b"[maps]\n", "'maps'"),
        (b"map = 1\n", "map is no table"),
        (b"labels = [1]\n", "labels is no list"),
        (b"[map\n", "not TOML"),
        (b"\xff", "UTF-8"),
        (b"a = " + b"[" * 50_000, "not TOML"),
        (b"[map]\nnowhere = 'a'\n", "nowhere"),
    ],
)
def test_a_file_of_fields_that_is_none_is_named(program: Program, tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "m.toml").write_bytes(content)
    (tmp_path / "a.jsonl").write_text('{"incident_id":"a"}')
    ended = program("prepare", "a.jsonl", "--map", "m.toml")
    assert ended.code == 2
    assert says in ended.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--set", "policy_id"), "--set"),
        (("--set", "a=1", "--set", "a=2"), "--set: a is given twice"),
        (("--facet", "x"), "--facet"),
        (("--facet", "x=a", "--map", "facets.x=b"), "--facet: facets.x is given twice"),
        (("--set", "policy_id=a", "--policy-id", "b"), "--policy-id: policy_id is given twice"),
        (("--policy-id", "no id"), "--policy-id"),
        (("--map", "absent.toml"), "there is no file 'absent.toml'"),
        (("--map", "a.jsonl", "--out", "a.jsonl"), "a.jsonl"),
        (("--set", "incident_id=a"), "incident_id"),
        (("--set", "labels.x=a"), "labels.x"),
    ],
)
def test_an_option_for_fields_that_cannot_be_meant_is_named(
    program: Program, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"incident_id":"a"}')
    ended = program("prepare", "a.jsonl", *words)
    assert ended.code == 2
    assert says in ended.err


def test_a_name_that_is_not_utf_8_is_no_obstacle(program: Program, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jsonl")
    (tmp_path / name).write_text('{"incident_id":"a"}')
    ended = program("prepare", name)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["source_metadata"]["file"] == "caf\ufffd.jsonl"


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.yml", BOMB.encode()),
        ("r.yml", b"groups: !!python/object/apply:os.system ['touch ran']\n"),
        ("r.yml", b"groups: [\x1b]31m\n"),
        ("r.yml", b"[" * 100_000),
        ("a.jsonl", b'{"incident_id":' + b"[" * 100_000),
        ("a.json", b'{"alerts":[' + b'{"labels":' * 50_000),
        ("a.csv", b'incident_id,x\n1,"' + b"x\n" * 100_000),
        ("a.csv", b"incident_id,x\n1,\x00\n"),
    ],
)
def test_a_hostile_file_is_refused_in_a_line_or_two(
    program: Program, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    ended = program("prepare", name, "--out", "in.jsonl")
    assert ended.code == 2
    assert ended.err.startswith(f"Error: {name}")
    assert len(ended.err) < 400
    assert "\x1b" not in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_by_signal_leaves_no_half_file(program: Program, tmp_path: Path, number: int, code: int) -> None:
    fifo = tmp_path / "pipe.jsonl"
    os.mkfifo(fifo)
    (tmp_path / "in.jsonl").write_text("as it was")
    process = program.start("prepare", "pipe.jsonl", "--out", "in.jsonl", "--labels-out", "labels.jsonl")
    with fifo.open("wb", buffering=0) as pipe:
        pipe.write(b'{"incident_id":"a","gold":"x"}\n')
        for _ in range(300):
            if len(list(tmp_path.glob(".*.part"))) == 2:
                break
            time.sleep(0.05)
        process.send_signal(number)
        try:
            _, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == code, err
    assert err.strip() == b"Stopped."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "pipe.jsonl"]
    assert (tmp_path / "in.jsonl").read_text() == "as it was"
