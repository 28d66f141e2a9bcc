"""``prepare``: alerts in, requests out, labels apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    assert "1 requests" in ended.err
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
