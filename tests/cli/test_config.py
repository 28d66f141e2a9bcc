"""``--config``: options in a file, below all the others, and none of them misread in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]

CONFIG = """
ledger = "sqlite:///kept.db"
actor = "nightly"

[run]
run_id = "from-config"
seed = 1
max-tokens = 64
temperature = 0.20
top_p = 1
stop = ["a b", "c"]
tag = {team = "sre", shift = "night"}
extra-body = {top_k = 5, min_p = 0.05}
format = "json"

[report]
format = "json"
"""


def test_a_config_file_comes_after_the_env_file_and_that_after_the_environment_and_options(
    program: Program, against: Against, three: Path
) -> None:
    against()
    (program.folder / "c.toml").write_text(CONFIG)
    (program.folder / "vars").write_text("REPLAY_LEDGER_SEED=2\nREPLAY_LEDGER_MAX_TOKENS=32\nREPLAY_LEDGER_TOP_P=0.5\n")
    ended = program(
        *("run", three, "--config", "c.toml", "--env-file", "vars", "--seed", "4"),
        env={"REPLAY_LEDGER_MAX_TOKENS": "16", "REPLAY_LEDGER_SEED": "3"},
    )
    assert ended.code == 0, ended.err
    assert ended.json["run_id"] == "from-config"
    assert sorted(path.name for path in program.folder.glob("*.db")) == ["kept.db"]
    shown = program("show", "latest", "--json", "--config", "c.toml").json
    assert shown["tags"] == {"team": "sre", "shift": "night"}
    assert {name: shown["settings"][name] for name in ("seed", "max_tokens", "top_p")} == {
        "seed": 4,
        "max_tokens": 16,
        "top_p": "0.5",
    }
    assert shown["settings"]["temperature"] == "0.20"
    events = program("show", "latest", "INC-1", "--content", "--json", "--config", "c.toml").json["events"]
    body = json.loads(next(event for event in events if event["type"] == "ModelCallStarted")["content"]["body"])
    assert (body["stop"], body["top_k"], body["min_p"]) == (["a b", "c"], 5, 0.05)


def test_it_may_stand_before_the_verb_or_be_named_by_the_environment(program: Program, three: Path) -> None:
    (program.folder / "c.toml").write_text('[run]\nmodel = "m-7"\nno-api-key = true\n')
    for words, env in [
        (("--config", "c.toml", "run", three, "--dry-run"), {}),
        (("run", three, "--dry-run", "--config", "c.toml"), {}),
        (("run", three, "--dry-run"), {"REPLAY_LEDGER_CONFIG": "c.toml"}),
    ]:
        ended = program(*words, env=env)
        assert ended.code == 0, ended.err
        assert ended.json["model"] == "m-7"


def test_of_two_options_for_one_thing_the_typed_one_counts(program: Program, three: Path, against: Against) -> None:
    against()
    assert program("run", three, "--run-id", "r").code == 0
    (program.folder / "c.toml").write_text('[report]\nformat = "json"\n[runs]\njson = true\n')
    assert program("report", "r", "--config", "c.toml").json["run_id"] == "r"
    assert b"{" not in program("report", "r", "--config", "c.toml", "--format", "text").out[:1]
    assert program("runs", "--config", "c.toml").json


def test_a_ledger_that_is_typed_before_the_verb_comes_before_the_one_in_the_file(program: Program) -> None:
    (program.folder / "c.toml").write_text('ledger = "sqlite:///kept.db"\n[runs]\nledger = "sqlite:///other.db"\n')
    for words, named in [
        (("--ledger", "sqlite:///typed.db", "runs", "--config", "c.toml"), "typed.db"),
        (("--config", "c.toml", "runs"), "other.db"),
        (("--config", "c.toml", "show", "latest"), "kept.db"),
    ]:
        ended = program(*words)
        assert ended.code == 4
        assert named in ended.err


def test_a_table_of_a_command_within_a_group_is_its_own(program: Program) -> None:
    (program.folder / "c.toml").write_text("[db.upgrade]\nno_key = true\n[db.status]\nnone = 1\n")
    ended = program("db", "upgrade", "--config", "c.toml")
    assert ended.code == 0, ended.err
    assert not program.state.exists() or not list(program.state.rglob("*.pem"))
    ended = program("db", "status", "--config", "c.toml")
    assert ended.code == 2
    assert "'db.status.none'" in ended.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[run]\nmodle = 'm'\n", "'run.modle'"),
        ("[rnu]\nmodel = 'm'\n", "'rnu'"),
        ("model = 'm'\n", "'model'"),
        ("run = 1\n", "run is no table"),
        ("[run]\napi_key = 'k'\n", "'run.api-key'"),
        ("[run]\nconfig = 'other.toml'\n", "'run.config'"),
        ("[run]\nenv-file = 'vars'\n", "'run.env-file'"),
        ("[run]\nbase_url = 'a'\nbase-url = 'b'\n", "'base_url' stands twice"),
        ("[run]\nmodel = true\n", "run.model is neither text nor a number"),
        ("[run]\nmodel = ['m']\n", "run.model is neither text nor a number"),
        ("[run]\nno-key = 'no'\n", "run.no-key is neither true nor false"),
        ("[run]\nstop = [['a']]\n", "run.stop is neither text nor a number"),
        ("[run]\ntemperature = nan\n", "--temperature' (in c.toml)"),
        ("[run]\nseed = 0.5\n", "--seed' (in c.toml)"),
        ("[run]\nseed = 1979-05-27\n", "run.seed is neither text nor a number"),
        ("[run]\nconcurrency = 0\n", "--concurrency' (in c.toml)"),
        ("[run]\ntag = ['x']\n", "--tag' (in c.toml)"),
        ("[run\n", "c.toml: not TOML"),
        ("[run]\nmodel = 'a'\nmodel = 'b'\n", "c.toml: not TOML"),
        ("x = " + "[" * 20_000, "c.toml: not TOML"),
    ],
)
def test_what_a_file_cannot_mean_is_refused_with_its_place(
    program: Program, three: Path, content: str, says: str
) -> None:
    (program.folder / "c.toml").write_text(content)
    ended = program("run", three, "--dry-run", "--no-api-key", "--config", "c.toml")
    assert ended.code == 2
    assert says in ended.err
    assert ended.out == b""


def test_the_file_that_the_docs_show_is_taken(program: Program, three: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (program.folder / "c.toml").write_text(block.replace('out = ["report.html", "results.csv"]\n', ""))
    body = program("run", three, "--dry-run", "--config", "c.toml").json
    assert (body["model"], body["stop"], body["top_k"], body["temperature"]) == ("nemotron", ["END"], 5, 0.2)
    (program.folder / "c.toml").write_text(block)
    assert "a dry run has no report" in program("run", three, "--dry-run", "--config", "c.toml").err


@pytest.mark.parametrize("name", ["accept-clock", "debug"])
def test_what_sets_a_safeguard_aside_cannot_stand_in_a_file(program: Program, three: Path, name: str) -> None:
    (program.folder / "c.toml").write_text(f"[run]\n{name} = true\n")
    ended = program("run", three, "--no-api-key", "--config", "c.toml")
    assert ended.code == 2
    assert f"'run.{name}'" in ended.err
    assert not (program.folder / "replay-ledger.db").exists()


def test_a_file_that_is_not_there_or_not_text_is_named(program: Program) -> None:
    assert program("runs", "--config", "absent.toml").err == "Error: absent.toml: no such file or directory\n"
    (program.folder / "c.toml").write_bytes(b"\xff")
    ended = program("runs", "--config", "c.toml")
    assert (ended.code, ended.err) == (2, "Error: c.toml: not UTF-8 text\n")
