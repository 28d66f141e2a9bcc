"""``run``, from outside: what it prints, what it records, how it ends."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.cli.program import Program, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint
from tests.ledger.integrity.tampering import owner, tamper

Against = Callable[..., MockEndpoint]
TUNED = ("--variant", "nemo_nemotron_fabric__contract_tuned_v1")
LEAK = json.loads(request_line(2)) | {"evaluation_labels": {"expected_action": "restart"}}


def test_a_clean_run_ends_with_0_prints_nothing_and_says_what_to_type_next(
    program: Program, against: Against, three: Path, ledger_url: str
) -> None:
    against()
    ended = program("run", three, "--ledger", ledger_url, "--run-id", "r1")
    assert ended.code == 0, ended.err
    assert ended.out == b""
    for said in ("Run r1: completed", "3 requests: 3 accepted at once", "usable as evaluation: yes", "root "):
        assert said in ended.err
    assert "replay-ledger report r1 --ledger" in ended.err
    assert program("report", "r1", "--ledger", ledger_url).json["valid"] is True


def test_json_is_the_report_and_nothing_else(program: Program, against: Against, three: Path) -> None:
    against()
    ended = program("run", three, "--run-id", "r1", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["accepted_first"] == 3
    assert ended.out == program("report", "r1", "--format", "json").out
    text = program("run", three, "--run-id", "r2", "--format", "text")
    assert text.out == program("report", "r2", "--format", "text").out


def test_a_file_may_come_by_standard_input(program: Program, against: Against, three: Path) -> None:
    against()
    ended = program("run", "-", "--run-id", "r1", stdin=three.read_bytes())
    assert ended.code == 0, ended.err
    assert "3 accepted at once" in ended.err


def test_an_answer_that_breaks_the_contract_is_asked_again_under_the_tuned_variant(
    program: Program, against: Against, three: Path
) -> None:
    against({"content": "no json"})
    ended = program("run", three, "--run-id", "r1", "-j", "1", *TUNED)
    assert ended.code == 0, ended.err
    assert "2 accepted at once, 1 accepted after a retry" in ended.err


@pytest.mark.parametrize(
    ("gate", "code", "said"),
    [
        ((), 1, "usable as evaluation: no"),
        (("--max-fallback-rate", "0.34"), 0, "within --max-fallback-rate 0.34: 1 of 3 requests"),
        (("--max-fallback-rate", "0.33"), 1, "past --max-fallback-rate 0.33: 1 of 3 requests"),
        (("--max-error-rate", "0"), 0, "within --max-error-rate 0: 0 of 3 requests"),
    ],
)
def test_a_gate_decides_where_one_is_given(
    program: Program, against: Against, three: Path, gate: tuple[str, ...], code: int, said: str
) -> None:
    against({"content": "no json"})
    ended = program("run", three, "--run-id", "r1", "-j", "1", *gate)
    assert ended.code == code, ended.err
    assert said in ended.err


def test_a_leak_ends_with_1_names_the_line_and_sends_nothing(
    program: Program, against: Against, tmp_path: Path
) -> None:
    endpoint = against()
    file = write_requests(tmp_path / "in.jsonl", 3, bad={2: json.dumps(LEAK)})
    ended = program("run", file, "--run-id", "r1")
    assert ended.code == 1, ended.err
    assert f"{file}:2: request_self_grading_leak: " in ended.err
    assert "evaluation_labels" in ended.err
    assert "restart" not in ended.err
    assert endpoint.stats()["calls"] == 0
    made = program("report", "r1").json
    assert (made["requests"], made["leak_rejected"], made["not_started"], made["outcome"]) == (3, 1, 2, "blocked")


def test_a_leak_that_is_left_out_still_ends_with_1(program: Program, against: Against, tmp_path: Path) -> None:
    endpoint = against()
    file = write_requests(tmp_path / "in.jsonl", 3, bad={2: json.dumps(LEAK)})
    ended = program("run", file, "--on-leak", "reject", "--max-fallback-rate", "1")
    assert ended.code == 1, ended.err
    assert endpoint.stats()["calls"] == 2


def test_a_bad_line_that_is_left_out_ends_with_1_without_a_gate(
    program: Program, against: Against, tmp_path: Path
) -> None:
    endpoint = against()
    file = write_requests(tmp_path / "in.jsonl", 3, bad={2: "{"})
    ended = program("run", file, "--on-invalid", "reject")
    assert ended.code == 1, ended.err
    assert f"{file}:2: request_invalid: " in ended.err
    assert endpoint.stats()["calls"] == 2


def test_without_a_key_nothing_is_sent_and_the_blocked_run_is_recorded(
    program: Program, against: Against, three: Path
) -> None:
    endpoint = against()
    del program.variables["REPLAY_LEDGER_API_KEY"]
    ended = program("run", three, "--run-id", "r1", env={"NVIDIA_API_KEY": "nvidia-key-0123456789"})
    assert ended.code == 2, ended.err
    assert "No API key: none in REPLAY_LEDGER_API_KEY" in ended.err
    assert endpoint.stats()["calls"] == 0
    assert program("report", "r1").json["failures"] == ["api_key_missing"]
    again = program("run", three, "--run-id", "r1", "--no-api-key")
    assert again.code == 0, again.err


def test_the_key_is_sent_and_stands_nowhere_else(program: Program, against: Against, three: Path) -> None:
    endpoint = against({"content": "your key is key-of-the-tests-0123"})
    ended = program("--debug", "run", three, "--run-id", "r1", "--json")
    assert endpoint.stats()["seen_auth"] == 3
    shown = program("show", "r1", "INC-1", "--content")
    secret = b"key-of-the-tests-0123"
    assert secret not in ended.out + ended.err.encode() + shown.out
    for path in program.folder.glob("replay-ledger.db*"):
        if path.is_file():
            assert secret not in path.read_bytes(), path


def test_a_run_that_exists_ends_with_2_and_shows_both_ways_on(program: Program, against: Against, three: Path) -> None:
    against()
    program("run", three, "--run-id", "r1")
    ended = program("run", three, "--run-id", "r1")
    assert ended.code == 2
    assert "replay-ledger resume r1" in ended.err
    assert "--run-id " in ended.err


def test_a_refused_key_ends_with_4_and_every_request_has_a_result(
    program: Program, against: Against, three: Path
) -> None:
    against({"status": 401, "repeat": 3})
    ended = program("run", three, "--run-id", "r1", "-j", "1")
    assert ended.code == 4, ended.err
    assert "the endpoint refused" in ended.err
    made = program("report", "r1").json
    assert (made["outcome"], made["fallback_records"], made["not_started"]) == ("auth_error", 3, 0)


def test_an_unreachable_endpoint_ends_with_4_and_is_recorded(program: Program, three: Path) -> None:
    ended = program(
        *("run", three, "--run-id", "r1", "--base-url", "http://127.0.0.1:9", "--no-api-key"),
        *("--max-attempts", "1", "--max-fallback-rate", "1"),
    )
    assert ended.code == 4, ended.err
    assert "never answered: 3 calls, not one answer; most often transport_connect (3 of 3 requests)" in ended.err
    assert "so the exit code is 4, whatever the gates say" in ended.err
    assert program("report", "r1").json["errors"] == {"transport_connect": 3}


def test_twenty_failures_in_a_row_stop_the_run_and_resume_goes_on(
    program: Program, against: Against, tmp_path: Path
) -> None:
    file = write_requests(tmp_path / "in.jsonl", 30)
    ended = program(
        *("run", file, "--run-id", "r1", "--base-url", "http://127.0.0.1:9", "--no-api-key"), *("--max-attempts", "1")
    )
    assert ended.code == 4, ended.err
    assert "twenty calls in a row" in ended.err
    assert "replay-ledger resume r1" in ended.err
    assert program("report", "r1").json["outcome"] == "incomplete"


def test_what_is_given_is_sent_and_recorded_and_nothing_else(program: Program, against: Against, three: Path) -> None:
    against()
    ended = program(
        *("run", three, "--run-id", "r1", "--limit", "1", "--temperature", "0.20", "--seed", "7"),
        *("--extra-body", '{"top_k": 5}', "--stop", "END", "--tag", "team=sre", "--description", "a trial"),
    )
    assert ended.code == 0, ended.err
    shown = program("show", "r1", "--json").json
    assert set(shown["settings"]) == {"limit", "temperature", "seed", "extra_body", "stop"}
    assert shown["settings"]["temperature"] == "0.20"
    assert shown["said"]["description"] == "a trial"
    assert shown["tags"] == {"team": "sre"}
    events = program("show", "r1", "INC-1", "--content", "--json").json["events"]
    body = json.loads(next(event for event in events if event["type"] == "ModelCallStarted")["content"]["body"])
    assert set(body) == {"model", "messages", "stream", "temperature", "seed", "top_k", "stop"}


def test_an_option_comes_before_the_environment_and_that_before_the_env_file(
    program: Program, against: Against, three: Path
) -> None:
    against()
    (program.folder / "vars").write_text(
        "export REPLAY_LEDGER_RUN_ID=from-file\nREPLAY_LEDGER_SEED=1\nREPLAY_LEDGER_MAX_TOKENS='64'\n# no more\n"
    )
    ended = program(
        *("--env-file", "vars", "run", three, "--run-id", "from-option"),
        env={"REPLAY_LEDGER_RUN_ID": "from-environment", "REPLAY_LEDGER_SEED": "2"},
    )
    assert ended.code == 0, ended.err
    shown = program("show", "latest", "--json").json
    assert shown["run_id"] == "from-option"
    assert shown["settings"] == {"seed": 2, "max_tokens": 64}


def test_a_dry_run_shows_the_first_body_and_touches_neither_key_nor_network_nor_ledger(
    program: Program, three: Path
) -> None:
    ended = program("run", three, "--dry-run", "--model", "m", "--temperature", "0", "--base-url", "http://127.0.0.1:9")
    assert ended.code == 0, ended.err
    body = ended.json
    assert (body["model"], body["temperature"], body["stream"]) == ("m", 0, False)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert "3 fit to be sent" in ended.err
    assert "9 calls at most" in ended.err
    assert sorted(path.name for path in program.folder.iterdir()) == [three.name]


TAKES_NONE = [("--limit", "300-400"), ("--request-id", "nope"), ("--limit", "2", "--request-id", "INC-3")]


@pytest.mark.parametrize("words", TAKES_NONE)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_selection_that_takes_no_line_is_refused_before_anything_is_recorded(
    program: Program, against: Against, three: Path, words: tuple[str, ...], dry: tuple[str, ...]
) -> None:
    endpoint = against()
    ended = program("run", three, *words, *dry)
    assert (ended.code, ended.out) == (2, b""), ended.err
    assert f"{three}: the selection takes no line" in ended.err
    assert "there are 3 lines" in ended.err
    assert all(word.removeprefix("--") in ended.err for word in words)
    assert sorted(path.name for path in program.folder.iterdir()) == [three.name]
    assert endpoint.stats()["calls"] == 0


@pytest.mark.parametrize("words", TAKES_NONE[:2])
def test_a_selection_that_takes_no_line_of_a_pipe_is_told_with_how_many_lines_there_were(
    program: Program, against: Against, three: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    against()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for more, code in ((("--dry-run",), 2), (("--run-id", "r1"), 1)):
        writer = threading.Thread(target=pipe.write_bytes, args=(three.read_bytes(),), daemon=True)
        writer.start()
        ended = program("run", pipe, *words, *more)
        writer.join()
        assert ended.code == code, ended.err
        assert f"Warning: the selection takes no line ({' '.join(words)}" in ended.err
        assert "there are 3 lines" in ended.err


@pytest.mark.parametrize(("bad", "code"), [({2: "{"}, 2), ({2: json.dumps(LEAK)}, 1)])
def test_a_dry_run_ends_as_the_intake_of_the_run_would(
    program: Program, tmp_path: Path, bad: dict[int, str], code: int
) -> None:
    file = write_requests(tmp_path / "in.jsonl", 3, bad=bad)
    ended = program("run", file, "--dry-run")
    assert ended.code == code
    assert f"{file}:2: " in ended.err


def test_the_body_of_a_dry_run_is_the_body_that_is_sent(program: Program, against: Against, three: Path) -> None:
    endpoint = against()
    dry = program("run", three, "--dry-run")
    program("run", three, "--limit", "1")
    assert [seen["sha256"] for seen in endpoint.requests()] == [hashlib.sha256(dry.out).hexdigest()]


def test_a_reader_that_goes_away_does_not_change_the_verdict(program: Program, against: Against, three: Path) -> None:
    against({"content": "no json"})
    process = program.start("run", three, "--json", "-j", "1")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


def test_a_tag_given_twice_lost_its_first_value(program: Program, three: Path) -> None:
    ended = program("run", three, "--dry-run", "--tag", "a=b", "--tag", "a=c")
    assert (ended.code, ended.err) == (2, "Error: --tag: a is given twice\n")


def test_a_request_id_that_no_line_has_went_unnoticed(program: Program, against: Against, three: Path) -> None:
    against()
    asked = ("--request-id", "INC-1", "--request-id", "INC-77")
    tried = program("run", three, "--dry-run", *asked)
    assert tried.code == 2
    assert "INC-77" in tried.err
    assert program("run", three, "--dry-run", *asked, "--json").json["unmatched"] == ["INC-77"]
    assert "INC-77" in next(line for line in program("run", three, *asked).err.splitlines() if "Warning: " in line)


SWALLOWS = {
    "sqlite": ["CREATE TRIGGER zz BEFORE INSERT ON {} BEGIN SELECT raise(IGNORE); END"],
    "postgresql": [
        "CREATE FUNCTION zz() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER zz BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION zz()",
    ],
}


@pytest.mark.parametrize("table", ["contents", "events"])
def test_a_trigger_that_swallowed_what_was_written_was_an_unexpected_key_error(
    program: Program, against: Against, three: Path, ledger_url: str, table: str
) -> None:
    endpoint = against()
    assert program("run", three, "--ledger", ledger_url, "--run-id", "r1").code == 0
    with owner(ledger_url) as connection:
        for statement in SWALLOWS[connection.dialect.name]:
            connection.execute(text(statement.format(table)))
    before = endpoint.stats()["calls"]
    ended = program("run", three, "--ledger", ledger_url, "--run-id", "r2")
    assert ended.code == 4, ended.err
    noticed_by_its_own_triggers = (table, connection.dialect.name) == ("events", "postgresql")
    assert ("refused" if noticed_by_its_own_triggers else "the database did not keep what was written") in ended.err
    assert "Unexpected" not in ended.err
    assert endpoint.stats()["calls"] == before


def test_a_run_whose_content_was_taken_away_was_resumed_into_an_unexpected_key_error(
    program: Program, against: Against, tmp_path: Path, ledger_url: str
) -> None:
    endpoint = against({"repeat": 1000, "status": 503})
    many = write_requests(tmp_path / "many.jsonl", 40)
    assert program("run", many, "--ledger", ledger_url, "--run-id", "r1", "--max-attempts", 1, "-j", 1).code == 4
    tamper(ledger_url, "DELETE FROM contents WHERE position = 42")
    before = endpoint.stats()["calls"]
    ended = program("resume", "r1", "--ledger", ledger_url)
    assert ended.code == 4, ended.err
    assert "the database did not keep what was written: position 42 has no content" in ended.err
    assert endpoint.stats()["calls"] == before


def test_a_run_was_named_latest_and_had_the_word_for_good(program: Program, against: Against, three: Path) -> None:
    endpoint = against()
    named = program.folder / "named.jsonl"
    named.write_text(f"{request_line(1, run_id='latest')}\n")
    for words in (
        ("run", three, "--run-id", "latest"),
        ("run", three, "--run-id", "latest", "--dry-run"),
        ("run", named),
        ("run", named, "--dry-run"),
        ("prepare", three, "--run-id", "latest", "--out", "out.jsonl"),
    ):
        ended = program(*words)
        assert ended.code == 2, words
        assert "'latest' always means the newest run" in ended.err, words
        assert sorted(path.name for path in program.folder.iterdir()) == ["incidents.jsonl", "named.jsonl"], words
    assert endpoint.requests() == []
    assert program("run", named, "--run-id", "mine").code == 0
    assert program("run", three, "--run-id", "later").code == 0
    assert program("report", "latest", "--format", "json").json["run_id"] == "later"


def test_an_integer_that_no_event_can_hold_ended_as_a_fault_of_our_own(program: Program, three: Path) -> None:
    for name in ("--max-tokens", "--rpm", "--sample"):
        for words in ((), ("--dry-run",)):
            ended = program("run", three, "--no-api-key", name, 2**53, *words)
            assert ended.code == 2, (name, words)
            assert f"{name}': {2**53} is not in the range 1<=x<={2**53 - 1}" in ended.err
    ended = program("run", three, "--no-api-key", "--dry-run", "--temperature=-0.1")
    assert (ended.code, "-0.1 is less than 0" in ended.err) == (2, True)
    assert [path.name for path in program.folder.iterdir()] == ["incidents.jsonl"]
