"""Whatever a user can get wrong: a message that names the place, the right exit code, nothing lost."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import make_url

from ledger import open_ledger
from ledger.events import Event
from ledger.store.schema import SCHEMA_VERSION
from tests.cli.program import PROGRAM, Program, clean_environment, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
KEYLESS = ("--no-api-key", "--base-url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('{"schema_version": "agent_nemotron_replay_request_v1", ', None),
        (request_line(7, incident_id="INC-3"), "request_id"),
        (request_line(7, schema_version="agent_nemotron_replay_request_v9"), "schema_version"),
        (request_line(7, user_prompt=5), "user_prompt"),
        (request_line(7, user_prompt=None), "user_prompt"),
        (request_line(7, incident_id="../etc"), "incident_id"),
        (request_line(7, metadata={"request_only": False, "not_replacement_evidence": True}), "request_only"),
        (request_line(7, candidate_id="another"), "candidate_id"),
        (request_line(7).replace("INC-7", "INC-\udcff"), None),
    ],
    ids=[
        *("broken-json", "duplicate-id", "unknown-type", "wrong-type", "missing-field", "odd-id", "no-promise"),
        *("another-candidate", "not-utf-8"),
    ],
)
def test_a_bad_line_is_named_with_its_field_and_nothing_is_sent(
    program: Program, against: Against, tmp_path: Path, line: str, field: str | None
) -> None:
    endpoint = against()
    file = tmp_path / "in.jsonl"
    lines = [request_line(number) for number in range(1, 7)] + [line, request_line(8)]
    file.write_bytes("".join(text + "\n" for text in lines).encode("utf-8", "surrogateescape"))
    ended = program("run", file, "--run-id", "r1")
    assert ended.code == 2, ended.err
    assert f"{file}:7: request_invalid: " in ended.err
    if field is not None:
        assert field in ended.err
    assert endpoint.stats()["calls"] == 0
    made = program("report", "r1").json
    assert (made["requests"], made["rejected"], made["failures"]) == (8, 1, ["request_invalid"])


def test_every_bad_line_is_named_not_only_the_first(program: Program, against: Against, tmp_path: Path) -> None:
    against()
    file = write_requests(tmp_path / "in.jsonl", 40, bad=dict.fromkeys(range(2, 40), "{"))
    ended = program("run", file)
    assert ended.code == 2
    assert f"{file}:2: " in ended.err
    assert f"{file}:21: " in ended.err
    assert "and 18 more lines" in ended.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\n\n  \n", "empty"),
        (b"not json at all\n", "line 1"),
        (request_line(1).encode("utf-16"), "line 1"),
    ],
    ids=["empty", "blank", "no-json", "utf-16"],
)
def test_a_file_without_a_request_is_refused_and_records_nothing(
    program: Program, tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(content)
    ended = program("run", file, *KEYLESS)
    assert ended.code == 2
    assert f"Error: {file}: " in ended.err
    assert says in ended.err
    assert program("runs", "--json").out == b""


def test_a_file_that_is_missing_or_a_folder_is_named(program: Program, tmp_path: Path) -> None:
    for name, reason in (("absent.jsonl", "no such file"), (".", "is a directory")):
        ended = program("run", name, *KEYLESS)
        assert (ended.code, ended.out) == (2, b"")
        assert ended.err.strip() == f"Error: {name}: {ended.err.strip().rpartition(': ')[2]}"
        assert reason in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_not_be_read_is_named(program: Program, three: Path) -> None:
    three.chmod(0)
    ended = program.unprivileged("run", three, *KEYLESS)
    assert ended.code == 2
    assert ended.err == f"Error: {three}: permission denied\n"


def test_the_name_of_a_file_does_not_act_on_the_terminal(program: Program) -> None:
    ended = program("run", "a\x1b[2Jb", *KEYLESS)
    assert ended.code == 2
    assert "a\\x1b[2Jb" in ended.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--temperature", "warm"), "--temperature"),
        (("--limit", "7-3"), "--limit"),
        (("--max-fallback-rate", "1.5"), "--max-fallback-rate"),
        (("--extra-body", '{"stream": true}'), "stream may not be given"),
        (("--extra-body", "{"), "--extra-body"),
        (("--extra-body", '{"auth": [{"API_Key": "hunter22"}]}'), "'API_Key' is the name of a secret"),
        (("--sample-seed", "3"), "--sample"),
        (("--tag", "no pair"), "--tag"),
        (("--base-url", "ftp://host/v1"), "--base-url"),
        (("--base-url", "https://user:hunter22@host/v1"), "--base-url"),
        (("--proxy", "http://ann:hunter22@proxy:3128"), "--proxy"),
        (("--header", "X-Team=hunter22"), "NAME=env:VARIABLE"),
        (("--api-key-file", "absent.key"), "absent.key"),
        (("--api-key-env", "A", "--no-api-key"), "one of"),
        (("--variant", "no-such-variant"), "no-such-variant"),
        (("--reasoning-effort", "VERY high"), "--reasoning-effort"),
        (("--model", "my model"), "--model"),
        (("--description", "mind Bearer hunter22hunter22hunter22"), "--description holds a key"),
        (("--extra-body", '{"key": "sk-hunter22hunter22hunter22"}'), "--extra-body holds a key"),
    ],
)
def test_a_bad_option_is_named_and_nothing_is_made(
    program: Program, three: Path, words: tuple[str, ...], says: str
) -> None:
    ended = program("run", three, *words)
    assert (ended.code, ended.out) == (2, b"")
    assert says in ended.err
    assert "hunter22" not in ended.err
    assert sorted(path.name for path in program.folder.iterdir()) == [three.name]


def test_an_option_from_the_environment_is_named_as_such(program: Program, three: Path) -> None:
    ended = program("run", three, env={"REPLAY_LEDGER_TEMPERATURE": "warm"})
    assert ended.code == 2
    assert "REPLAY_LEDGER_TEMPERATURE" in ended.err


@pytest.mark.parametrize(
    ("content", "says"), [(b"JUST WORDS\n", "line 1"), (b"A=1\n\n9B=2\n", "line 3"), (b"A=\xff\n", "not UTF-8")]
)
def test_a_bad_env_file_is_named_with_its_line(program: Program, content: bytes, says: str) -> None:
    (program.folder / "vars").write_bytes(content)
    ended = program("runs", "--env-file", "vars")
    assert ended.code == 2
    assert "vars: " in ended.err
    assert says in ended.err


@pytest.mark.parametrize("by_pipe", [False, True])
@pytest.mark.parametrize("text", ["", "\n\n", "not a request\n", '{"incident_id": 1}\n' * 3])
@pytest.mark.parametrize("more", [(), ("--no-key",)])
def test_a_first_file_without_a_valid_line_leaves_no_ledger_and_no_key_behind(
    program: Program, against: Against, text: str, more: tuple[str, ...], by_pipe: bool
) -> None:
    against()
    (program.folder / "bad.jsonl").write_text(text)
    ended = program("run", "-" if by_pipe else "bad.jsonl", *more, stdin=text.encode())
    assert ended.code == 2
    assert ("standard input: " if by_pipe else "bad.jsonl: ") in ended.err
    assert "signing key" not in ended.err
    assert [path.name for path in program.folder.iterdir()] == ["bad.jsonl"]
    assert not program.state.exists()


def test_what_was_looked_at_before_a_ledger_was_made_is_recorded_as_it_came(program: Program, against: Against) -> None:
    against()
    lines = ["", "bad", request_line(1), request_line(2)]
    text = "\ufeff" + "".join(f"{line}\n" for line in lines)
    (program.folder / "good.jsonl").write_text(text, encoding="utf-8")
    digests = set()
    for name, fifo in (("file", False), ("pipe", True)):
        place = program.folder / "good.jsonl"
        if fifo:
            place = program.folder / "fifo"
            os.mkfifo(place)
            threading.Thread(target=place.write_bytes, args=(text.encode(),)).start()
        url = f"sqlite:///{name}.db"
        ended = program("run", place, "--on-invalid", "reject", "--run-id", "r1", "--ledger", url)
        assert ended.code == 1, ended.err
        report = program("report", "r1", "--format", "json", "--ledger", url).json
        assert (report["requests"], report["rejected"], report["accepted_first"]) == (3, 1, 2)
        with open_ledger(f"sqlite:///{program.folder / name}.db", "read") as store:
            (read,) = [event for event in store.events("r1") if event.type == "IntakeCompleted"]
        assert isinstance(read, Event)
        digests.add(read.payload["input_sha256"])
    assert digests == {sha256(text.encode()).hexdigest()}


# --- the ledger ----------------------------------------------------------------------------

READING = [("runs",), ("show", "r1"), ("results", "r1"), ("report", "r1"), ("verify",), ("db", "status")]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_where_there_is_no_ledger_reading_ends_with_4_and_makes_none(program: Program, words: tuple[str, ...]) -> None:
    ended = program(*words)
    assert (ended.code, ended.out) == (4, b"")
    assert "replay-ledger.db" in ended.err
    assert list(program.folder.iterdir()) == []


@pytest.mark.parametrize("url", ["mysql://ann:hunter22@host/db", "replay-ledger.db", "sqlite:///", "postgres"])
def test_a_url_that_is_no_ledgers_is_refused(program: Program, url: str) -> None:
    ended = program("runs", "--ledger", url)
    assert ended.code == 2
    assert "hunter22" not in ended.err


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(program: Program, three: Path) -> None:
    before = three.read_bytes()
    for words in (("runs",), ("run", three, *KEYLESS), ("db", "upgrade")):
        ended = program(*words, "--ledger", f"sqlite:///{three}")
        assert ended.code == 4, ended.err
        assert three.name in ended.err
    assert three.read_bytes() == before


def test_somebody_elses_database_is_refused_and_left_as_it_is(program: Program, three: Path) -> None:
    path = program.folder / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE customers (name TEXT)")
    database.close()
    for words in (("runs",), ("run", three, *KEYLESS)):
        ended = program(*words, "--ledger", f"sqlite:///{path}")
        assert ended.code == 4, ended.err
    with sqlite3.connect(path) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    database.close()
    assert tables == ["customers"]


def test_an_unreachable_database_ends_with_4_without_the_password(program: Program) -> None:
    ended = program("runs", "--ledger", "postgresql://ann:hunter22@127.0.0.1:9/ledger")
    assert ended.code == 4
    assert "127.0.0.1" in ended.err
    assert "hunter22" not in ended.err


@pytest.mark.postgresql
def test_a_wrong_password_ends_with_4_without_the_password(program: Program, postgres_url: str) -> None:
    url = make_url(postgres_url).set(username="nobody_here", password="hunter22")
    ended = program("runs", "--ledger", url.render_as_string(hide_password=False))
    assert ended.code == 4, ended.err
    assert "hunter22" not in ended.err


def test_a_newer_ledger_is_refused_naming_both_versions(program: Program, against: Against, three: Path) -> None:
    against()
    assert program("run", three).code == 0
    with sqlite3.connect(program.folder / "replay-ledger.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    for words in (("runs",), ("verify",), ("run", three, "--run-id", "r2"), ("db", "upgrade")):
        ended = program(*words)
        assert ended.code == 4, (words, ended.err)
        assert "9999" in ended.err
        assert SCHEMA_VERSION in ended.err


def test_a_read_only_ledger_is_read_but_not_written(program: Program, against: Against, three: Path) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    (program.folder / "replay-ledger.db").chmod(0o444)
    program.folder.chmod(0o555)
    try:
        assert program.unprivileged("report", "r1").code == 0
        ended = program.unprivileged("run", three, "--run-id", "r2")
    finally:
        program.folder.chmod(0o755)
    assert ended.code == 4
    assert "replay-ledger.db" in ended.err


def test_a_damaged_ledger_is_told_and_not_repaired(program: Program, against: Against, three: Path) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    path = program.folder / "replay-ledger.db"
    damaged = bytearray(path.read_bytes())
    damaged[8192:-4096] = b"\xa5" * (len(damaged) - 8192 - 4096)
    path.write_bytes(damaged)
    ended = program("report", "r1")
    assert ended.code == 4, ended.err
    assert program("verify").code in {1, 4}
    assert path.read_bytes() == damaged


# --- what is asked of a ledger -------------------------------------------------------------


def test_an_ambiguous_run_lists_the_candidates(program: Program, against: Against, three: Path) -> None:
    against()
    for run_id in ("replay-a1", "replay-a2", "other"):
        assert program("run", three, "--run-id", run_id).code == 0
    ended = program("report", "replay-a")
    assert ended.code == 2
    assert "replay-a1" in ended.err
    assert "replay-a2" in ended.err
    assert "other" not in ended.err
    assert program("report", "replay-a2").json["run_id"] == "replay-a2"
    assert program("report", "oth").json["run_id"] == "other"
    assert program("report", "latest").json["run_id"] == "other"
    for text, says in (("nothing", "nothing"), ("%", "no run"), ("$ledger", "not a run")):
        missing = program("report", text)
        assert missing.code == 2
        assert says in missing.err
    assert program("show", "other", "INC-9").code == 2
    assert program("report", "other", "--as-of", "100000").code == 2
    assert program("report", "other", "--as-of", "1").code == 2


def test_a_time_before_a_run_is_refused_as_the_time_that_was_asked_for(
    program: Program, against: Against, three: Path
) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    for words in (("report", "r1"), ("results", "r1"), ("compare", "r1", "r1"), ("grade", "r1")):
        ended = program(*words, "--as-of", "1999-01-01")
        assert (ended.code, ended.out) == (2, b""), words
        assert "--as-of 1999-01-01T00:00:00.000000Z (a date is its first moment, 00:00Z)" in ended.err
        assert "the run r1 had not started by then" in ended.err
        assert "position" not in ended.err


def test_closed_standard_output_is_told(program: Program, against: Against, three: Path) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" report r1 >&-', str(PROGRAM)],
        cwd=program.folder,
        env=clean_environment(),
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 2
    assert b"standard output is closed" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_full_device_is_told(program: Program, against: Against, three: Path) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    ended = program("report", "r1", "--out", "/dev/full")
    assert ended.code == 4
    assert "/dev/full: no space left on device" in ended.err


def test_a_result_in_json_lines_survives_being_asked_for_in_each_format(
    program: Program, against: Against, three: Path
) -> None:
    hostile = {"proposed_action": "=cmd|' /C calc'!A0\x1b[2J", "action_plan": [], "risk_level": "low"}
    hostile |= {"requires_human_approval": False, "blocked_by_policy": False}
    against(content=json.dumps(hostile))
    assert program("run", three, "--run-id", "r1").code == 0
    lines = [json.loads(line) for line in program("results", "r1").text.splitlines()]
    assert [line["model_output"]["proposed_action"] for line in lines] == [hostile["proposed_action"]] * 3
    table = program("results", "r1", "--format", "table")
    assert "\x1b" not in table.text
    sheet = program("results", "r1", "--format", "csv", "--out", "results.csv")
    assert (sheet.code, sheet.out) == (0, b"")
    assert ",=cmd" not in (program.folder / "results.csv").read_text()
