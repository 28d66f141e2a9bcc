"""``redact``, ``hold`` and ``retention`` as people use them."""

from __future__ import annotations

import json
import os
import pty
import select
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
YES = ("--reason", "asked", "--yes")


@pytest.fixture
def recorded(program: Program, against: Against, three: Path) -> Program:
    """A ledger with one completed run, r1."""
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    return program


def files_with(program: Program, text: str) -> list[str]:
    names = program.folder.glob("replay-ledger.db*")
    return sorted(path.name for path in names if path.is_file() and text.encode() in path.read_bytes())


def test_a_redacted_run_is_still_proven_and_its_text_is_gone(recorded: Program) -> None:
    before = recorded("report", "r1", "--format", "json")
    assert files_with(recorded, "Decide on incident")
    ended = recorded("redact", "--run", "r1", *YES, "--basis", "art. 17", "--json")
    assert ended.code == 0, ended.err
    assert "run r1 are erased" in ended.err
    assert "bundles" in ended.err
    members = ended.json
    assert (members["run_id"], members["request_id"], members["may_hold_copies"]) == ("r1", None, None)
    assert files_with(recorded, "Decide on incident") == []
    assert recorded("report", "r1", "--format", "json").out == before.out
    verdict = recorded("verify", "--json").json
    assert verdict["findings"] == []
    assert [item["contents"] for item in verdict["redactions"]] == [members["contents"]]
    erased = f"position {members['events'][0]}: {members['contents']} contents of run r1; request INC-1 of run r1; "
    assert erased in recorded("verify").text
    assert recorded("rebuild", "--check").code == 0
    first, *_ = [json.loads(line) for line in recorded("results", "r1", "--format", "jsonl").text.splitlines()]
    assert (first["redacted"], first["model_output"]["proposed_action"]) == (True, None)
    assert "redacted" in recorded("show", "r1").text
    assert recorded("db", "copy", "sqlite:///replay-ledger.db", "sqlite:///copy.db").code == 0
    assert recorded("verify", "--json", "--ledger", "sqlite:///copy.db").json["findings"] == []


def test_one_request_goes_and_the_others_stay(recorded: Program) -> None:
    ended = recorded("redact", "--run", "r1", "--request", "INC-2", *YES)
    assert ended.code == 0, ended.err
    assert "request INC-2 of run r1" in ended.err
    assert files_with(recorded, "Decide on incident 2") == []
    assert files_with(recorded, "Decide on incident 1")
    timeline = recorded("show", "r1", "INC-2").text
    assert "content redacted, by event" in timeline
    assert "Decide on" not in timeline
    assert "content redacted" not in recorded("show", "r1", "INC-1").text
    events = recorded("show", "r1", "INC-2", "--json").json["events"]
    assert {event["redacted_by"] is None for event in events if event["type"] == "RequestAccepted"} == {False}


def test_a_dry_run_says_what_would_go_and_changes_nothing(recorded: Program) -> None:
    before = (recorded.folder / "replay-ledger.db").read_bytes()
    ended = recorded("redact", "--run", "latest", "--dry-run")
    assert (ended.code, ended.out) == (0, b"")
    for kind in ("RunStarted", "RequestAccepted", "ModelCallStarted", "ModelCalled", "OutputAccepted"):
        assert kind in ended.err
    found = recorded("redact", "--run", "r1", "--request", "INC-1", "--dry-run", "--json").json
    assert found["contents"] == sum(item["contents"] for item in found["erasable"]) == 4
    assert found["bytes"] > 500
    assert (recorded.folder / "replay-ledger.db").read_bytes() == before
    assert recorded("redact", "--run", "r1", *YES).code == 0
    again = recorded("redact", "--run", "r1", "--dry-run")
    assert (again.code, "Nothing is left" in again.err) == (0, True)


def test_erasing_what_is_erased_says_so_and_ends_well(recorded: Program) -> None:
    assert recorded("redact", "--run", "r1", *YES).code == 0
    size = recorded("db", "status", "--json").json["size"]
    again = recorded("redact", "--run", "r1", *YES)
    assert (again.code, "Nothing was left to erase" in again.err) == (0, True)
    assert recorded("db", "status", "--json").json["size"] == size


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--run", "r1", "--reason", "asked"), "--yes"),
        (("--run", "r1", "--yes"), "--reason"),
        (("--run", "latest", *YES), "named whole: --run r1"),
        (("--run", "r", *YES), "named whole"),
        (("--run", "nothing", *YES), "no run begins"),
        (("--run", "$ledger", *YES), "not a run"),
        (("--run", "r1", "--request", "INC-9", *YES), "run r1 has no request INC-9"),
        (("--run", "r1", "--request", "INC 9", *YES), "no id"),
        (("--run", "r1", "--reason", "free text", "--yes"), "no id"),
        ((*YES,), "--run"),
    ],
)
def test_wrong_use_erases_nothing(recorded: Program, words: tuple[str, ...], said: str) -> None:
    ended = recorded("redact", *words)
    assert (ended.code, ended.out) == (2, b"")
    assert said in ended.err
    assert recorded("verify", "--json").json["redactions"] == []


def test_a_run_without_an_end_is_not_erased(program: Program, against: Against, tmp_path: Path) -> None:
    against({"repeat": 1000, "status": 503})
    many = write_requests(tmp_path / "many.jsonl", 30)
    assert program("run", many, "--run-id", "r1", "--max-attempts", 1, "-j", 1).code == 4
    ended = program("redact", "--run", "r1", *YES)
    assert ended.code == 2
    assert "resume it or abandon it" in ended.err
    assert program("abandon", "r1", "--reason", "given-up").code == 0
    assert program("redact", "--run", "r1", *YES).code == 0


def test_a_hold_forbids_an_erasure_until_it_is_lifted(recorded: Program) -> None:
    assert recorded("hold", "set", "--run", "latest", "--id", "case-1", "--note", "\x1b[31mcounsel").code == 0
    held = recorded("redact", "--run", "r1", *YES)
    assert held.code == 1
    assert "case-1 on run r1" in held.err
    assert recorded("redact", "--run", "r1", "--dry-run").code == 1
    again = recorded("hold", "set", "--id", "case-1")
    assert (again.code, "in force already, on run r1" in again.err) == (2, True)
    listed = recorded("hold", "list")
    assert listed.text.startswith("case-1  on run r1\n")
    assert "\\x1b[31mcounsel" in listed.text
    lifted = recorded("hold", "lift", "case-1", "--note", "closed", "--actor", "legal-2")
    assert (lifted.code, lifted.out) == (0, b"")
    assert recorded("hold", "lift", "case-1").code == 2
    assert recorded("hold", "list").out == b""
    (hold,) = [json.loads(line) for line in recorded("hold", "list", "--all", "--json").text.splitlines()]
    assert (hold["hold_id"], hold["run_id"], hold["said_when_lifted"]["actor"]) == ("case-1", "r1", "legal-2")
    assert "lifted" in recorded("hold", "list", "--all").text
    assert recorded("redact", "--run", "r1", *YES).code == 0


def test_a_hold_that_was_never_set_cannot_be_lifted(recorded: Program) -> None:
    ended = recorded("hold", "lift", "case-9")
    assert ended.code == 2
    assert "no hold case-9" in ended.err
    assert recorded("hold", "set", "--run", "nothing", "--id", "case-9").code == 2


def test_the_retention_floor_forbids_an_erasure_and_is_lowered_with_a_reason(recorded: Program) -> None:
    assert recorded("retention", "show").text.startswith("0 days")
    assert recorded("retention", "set", "183").code == 0
    young = recorded("redact", "--run", "r1", *YES)
    assert young.code == 1
    assert "kept for 183 days" in young.err
    assert recorded("retention", "set", "0").code == 2
    lowered = recorded("retention", "set", "0", "--note", "the law changed")
    assert (lowered.code, "lowered from 183 to 0" in lowered.err) == (0, True)
    shown = recorded("retention", "show", "--json").json
    assert (shown["days"], [floor["days"] for floor in shown["floors"]]) == (0, [183, 0])
    assert shown["floors"][1]["said"]["note"] == "the law changed"
    assert "the law changed" in recorded("retention", "show").text
    same = recorded("retention", "set", "0")
    assert (same.code, "already" in same.err) == (0, True)
    for days in ("-1", "36526", "soon", "1.5"):
        assert recorded("retention", "set", "--", days).code == 2
    assert recorded("redact", "--run", "r1", *YES).code == 0


def test_a_reader_that_holds_the_log_is_told_and_the_same_command_finishes_it(recorded: Program) -> None:
    with closing(sqlite3.connect(recorded.folder / "replay-ledger.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        ended = recorded("redact", "--run", "r1", *YES, "--json")
        assert ended.code == 3
        assert ended.json["may_hold_copies"].endswith("replay-ledger.db-wal")
        assert "replay-ledger.db-wal may still hold copies" in ended.err
    assert recorded("redact", "--run", "r1", *YES).code == 0
    assert files_with(recorded, "Decide on incident") == []


def test_an_erasure_a_hold_and_a_floor_end_with_a_checkpoint(recorded: Program) -> None:
    def signed() -> bool:
        with closing(sqlite3.connect(recorded.folder / "replay-ledger.db")) as ledger:
            (same,) = ledger.execute("SELECT max(c.size) = h.size FROM checkpoints AS c, ledger_head AS h").fetchone()
        return bool(same)

    for words in (
        ("hold", "set", "--id", "a"),
        ("hold", "lift", "a"),
        ("retention", "set", "0"),
        ("redact", "--run", "r1", *YES),
    ):
        assert recorded(*words).code == 0
        assert signed(), words


def test_a_person_at_a_terminal_is_asked_first(recorded: Program) -> None:
    assert "Nothing was erased" in at_a_terminal(recorded, "n\n", 1)
    assert "Nothing was erased" in at_a_terminal(recorded, "\n", 1)
    assert recorded("verify", "--json").json["redactions"] == []
    shown = at_a_terminal(recorded, "y\n", 0)
    assert "for good" in shown
    assert "are erased" in shown
    assert len(recorded("verify", "--json").json["redactions"]) == 1
    assert "[y/N]" not in at_a_terminal(recorded, "", 0)


def at_a_terminal(program: Program, typed: str, code: int) -> str:
    """Run `redact` with a terminal for its streams; what was shown."""
    words = [str(PROGRAM), "redact", "--run", "latest", "--reason", "asked"]
    environment = program._environment(None)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(program.folder)
        os.execve(PROGRAM, words, environment)
    shown = b""
    answered = not typed
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1)
        try:
            part = os.read(terminal, 4096) if ready else None
        except OSError:  # the child has ended
            break
        if part == b"":
            break
        shown += part or b""
        if not answered and b"[y/N]" in shown:
            os.write(terminal, typed.encode())
            answered = True
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == code, shown
    return shown.decode()


@pytest.mark.parametrize("by_file", [False, True])
def test_a_variable_does_not_confirm_an_erasure(recorded: Program, by_file: bool) -> None:
    (recorded.folder / "env").write_text("REPLAY_LEDGER_YES=1\n")
    given = {"env": {}} if by_file else {"env": {"REPLAY_LEDGER_YES": "1"}}
    words = ("--env-file", "env") if by_file else ()
    ended = recorded("redact", "--run", "r1", "--reason", "asked", *words, **given)
    assert (ended.code, ended.out) == (2, b"")
    assert "confirm it with --yes" in ended.err
    assert files_with(recorded, "Decide on incident")


@pytest.mark.parametrize("words", [("-1",), ("--note", "a note", "-183")])
def test_a_floor_below_none_was_called_an_option_that_there_is_none_of(
    program: Program, words: tuple[str, ...]
) -> None:
    ended = program("retention", "set", *words)
    assert ended.code == 2
    assert f"Invalid value for 'DAYS': {words[-1]} is not in the range 0<=x<=" in ended.err
    ended = program("retention", "set", "--nte", words[-1])
    assert (ended.code, "No such option '--nte'" in ended.err) == (2, True)
