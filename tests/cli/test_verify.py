"""``verify``: PASS by a checkpoint and a key, its window, its anchors, and what is refused before anything is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import open_ledger
from tests.cli.program import Program
from tests.harness.mock_endpoint import MockEndpoint
from tests.ledger.integrity.signing import grow

Against = Callable[..., MockEndpoint]


@pytest.fixture
def kept(program: Program, against: Against, three: Path, ledger_url: str) -> Program:
    """A ledger with a completed run, its last checkpoint and its key kept in files."""
    against()
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    assert program("run", three, "--run-id", "r1").code == 0
    assert program("checkpoint", "--out", "kept.txt").code == 0
    (program.folder / "ledger.vkey").write_bytes(program("keys", "show").out)
    return program


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """A machine on which there is no signer's store."""
    return {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}


def append_unsigned(program: Program, count: int) -> None:
    """Events of a run without an end, as a host without the key would append them."""
    with open_ledger(program.variables["REPLAY_LEDGER_LEDGER"], "write") as store:
        grow(store, count)


def test_on_the_signers_machine_a_ledger_passes_and_is_told_to_rest_on_a_weaker_anchor(kept: Program) -> None:
    ended = kept("verify")
    assert (ended.code, ended.text.split()[0]) == (0, "PASS"), ended.text
    assert "signer's store on this machine" in ended.text
    assert "weaker than a checkpoint that you kept elsewhere" in ended.text
    assert "What this does not prove" in ended.text
    said = kept("verify", "--json", "--jobs", 2).json
    assert (said["verdict"], said["anchored"]["source"]) == ("PASS", "the signer's store on this machine")


def test_elsewhere_it_takes_a_key_and_a_checkpoint(kept: Program, elsewhere: dict[str, str]) -> None:
    vkey = (kept.folder / "ledger.vkey").read_text().strip()
    for words, code in (
        ((), 3),
        (("--key", "ledger.vkey"), 3),
        (("--checkpoint", "kept.txt"), 3),
        (("--key", "ledger.vkey", "--checkpoint", "kept.txt"), 0),
        (("--key", vkey, "--checkpoint", "kept.txt"), 0),
        (("--key", vkey, "--checkpoint", "kept.txt", "--no-projections"), 3),
        (("--key", vkey, "--at-checkpoint", "kept.txt"), 0),
    ):
        assert kept("verify", *words, env=elsewhere).code == code, words
    ended = kept("verify", "--key", "ledger.vkey", "--checkpoint", "kept.txt", env=elsewhere)
    assert "by the file kept.txt" in ended.text
    assert "weaker" not in ended.text


def test_what_stands_beyond_the_checkpoint_is_a_window(kept: Program, elsewhere: dict[str, str]) -> None:
    by = ("--key", "ledger.vkey", "--checkpoint", "kept.txt")
    append_unsigned(kept, 4)
    said = kept("verify", *by, "--json", env=elsewhere).json
    assert (said["verdict"], said["unsigned"]["events"]) == ("INCOMPLETE", 4)
    assert any("more than the 0 allowed" in sentence for sentence in said["unproven"])
    said = kept("verify", *by, "--max-window", 4, "--json", env=elsewhere).json
    assert not any("allowed" in sentence for sentence in said["unproven"])
    # The run that was begun has no end; the events that the checkpoint covers have.
    assert kept("verify", "--key", "ledger.vkey", "--at-checkpoint", "kept.txt", env=elsewhere).code == 0


def test_a_pass_by_a_window_from_the_environment_does_not_look_like_any_other(
    kept: Program, elsewhere: dict[str, str]
) -> None:
    by = ("--key", "ledger.vkey", "--checkpoint", "kept.txt")
    elsewhere |= {"REPLAY_LEDGER_MAX_WINDOW": "1000"}
    assert kept("run", "incidents.jsonl", "--run-id", "r2", env=elsewhere).code == 0
    ended = kept("verify", *by, env=elsewhere)
    assert ended.code == 0, ended.text
    said = kept("verify", *by, "--json", env=elsewhere).json
    beyond = said["unsigned"]["events"]
    assert beyond > 3
    assert (said["verdict"], said["max_window"], said["beyond_anchor"]) == ("PASS", 1000, beyond)
    assert ended.text.startswith(f"PASS with a window of up to 1000 events allowed: {beyond} stand beyond the anchor  ")
    unanchored = kept("verify", "--max-window", 1, env=elsewhere)
    assert unanchored.text.startswith("INCOMPLETE with a window of up to 1 event allowed: no anchor  ")
    assert kept("verify", *by, "--max-window", 0, env=elsewhere).text.startswith("INCOMPLETE  ")


def test_a_file_put_back_from_an_older_copy_was_rolled_back(program: Program, against: Against, three: Path) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    file = program.folder / "replay-ledger.db"
    shutil.copyfile(file, program.folder / "older.db")
    assert program("run", three, "--run-id", "r2").code == 0
    for name in ("-wal", "-shm"):
        file.with_name(file.name + name).unlink(missing_ok=True)
    shutil.copyfile(program.folder / "older.db", file)
    ended = program("verify")
    assert ended.code == 1
    assert "rolled back" in ended.text
    assert "to" in ended.text


def test_a_checkpoint_of_another_ledger_fails(kept: Program) -> None:
    assert kept("db", "upgrade", "--ledger", "sqlite:///other.db").code == 0
    assert kept("checkpoint", "--ledger", "sqlite:///other.db", "--out", "other.txt").code == 0
    ended = kept("verify", "--checkpoint", "other.txt")
    assert ended.code == 1
    assert "forked" in ended.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--checkpoint", "incidents.jsonl"), "incidents.jsonl is no checkpoint"),
        (("--at-checkpoint", "incidents.jsonl"), "incidents.jsonl is no checkpoint"),
        (("--checkpoint", "absent.txt"), "absent.txt"),
        (("--key", "nonsense"), "--key: neither a key"),
        (("--key", "incidents.jsonl"), "--key"),
        (("--key", "empty"), "empty is empty"),
        (("--max-window", "-1"), "--max-window"),
        (("--jobs", "0"), "--jobs"),
    ],
)
def test_what_cannot_be_judged_by_is_wrong_use(kept: Program, words: tuple[str, ...], said: str) -> None:
    (kept.folder / "empty").touch()
    ended = kept("verify", *words)
    assert ended.code == 2, ended.err
    assert said in ended.err
    assert ended.out == b""


def test_a_signers_store_that_cannot_be_used_is_left_out_and_said_so(kept: Program) -> None:
    (folder,) = (kept.state / "replay-ledger").iterdir()
    (folder / "checkpoint.txt").write_text("no note")
    ended = kept("verify")
    assert ended.code == 3
    assert "left out" in ended.err
    folder.chmod(0o755)
    ended = kept("verify")
    assert ended.code == 3
    assert "left out" in ended.err


def test_one_event_was_called_1_events(program: Program) -> None:
    assert program("db", "upgrade", "--no-key").code == 0
    assert "\n  1 event read and hashed again; " in program("verify").text
