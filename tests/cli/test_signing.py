"""``keys``, ``checkpoint``, and the checkpoint that every command which appends ends with."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from cli import cli
from commands._failures import NO, OK, WRONG_USE
from commands._options import TypedOption
from commands._session import Session
from commands._signing import checkpoint_at_end, code_after, open_to_append, signed
from ledger import open_ledger
from ledger.events import LEDGER_RUN_ID, Event
from ledger.integrity.checkpoint import Checkpoint, parse_checkpoint
from ledger.integrity.note import open_note, parse_vkey
from ledger.integrity.signer_store import KEY, LAST, folder_of
from ledger.integrity.signing_errors import ForkRefused
from ledger.store import Store
from tests.cli.program import Ended, Program, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint
from tests.ledger.integrity.signing import grow

Against = Callable[..., MockEndpoint]
VKEY = re.compile(r"replay-ledger\.local/[0-9a-f-]{36}\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}\n")


@pytest.fixture
def begun(program: Program, ledger_url: str) -> Program:
    """A ledger that was just made, with its key."""
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    assert program("db", "upgrade").code == 0
    return program


@pytest.fixture
def on_file(program: Program) -> Program:
    """The same in the folder's own file, where the database does not matter."""
    assert program("db", "upgrade").code == 0
    return program


def signer_folder(program: Program) -> Path:
    (folder,) = (program.state / "replay-ledger").iterdir()
    return folder


def told(ended: Ended, vkey: str) -> Checkpoint:
    assert ended.code == 0, ended.err
    return parse_checkpoint(open_note(ended.out, [parse_vkey(vkey.strip())]).text)


def stored_sizes(url: str) -> list[int]:
    with open_ledger(url, "read") as store:
        return [checkpoint.size for checkpoint in store.checkpoints()]


def head(url: str) -> Checkpoint:
    with open_ledger(url, "read") as store:
        found = store.head()
    return Checkpoint(found.origin, found.size, found.root)


def append_elsewhere(url: str) -> None:
    """One more event, as a host without the key would append it: unsigned."""
    with open_ledger(url, "write") as store:
        grow(store, 1)


# --- keys and checkpoints ------------------------------------------------------------------


def test_a_new_ledger_has_a_key_and_says_where(program: Program, ledger_url: str) -> None:
    made = program("db", "upgrade", "--ledger", ledger_url, "--json")
    origin = made.json["origin"]
    folder = folder_of(program.state / "replay-ledger", origin)
    assert str(folder) in made.err
    assert folder.is_dir()
    shown = program("keys", "show", "--ledger", ledger_url)
    assert (shown.code, shown.err) == (0, "")
    assert VKEY.fullmatch(shown.text)
    with open_ledger(ledger_url, "read") as store:
        created = next(iter(store.events(LEDGER_RUN_ID)))
        assert isinstance(created, Event)
        assert created.payload["vkey"] == shown.text.strip()
    assert stored_sizes(ledger_url) == [1], "a new ledger is signed"


def test_a_checkpoint_is_a_note_and_nothing_else_on_both_ways_out(begun: Program, ledger_url: str) -> None:
    vkey = begun("keys", "show").text
    append_elsewhere(ledger_url)
    printed = begun("checkpoint")
    assert printed.err == ""
    assert told(printed, vkey) == head(ledger_url)
    written = begun("checkpoint", "--out", "kept.txt")
    assert (written.code, written.out, written.err) == (0, b"", "")
    assert (begun.folder / "kept.txt").read_bytes() == printed.out
    assert stored_sizes(ledger_url) == [1, 2], "the same tree is kept once"


def test_a_rotation_prints_the_new_key_and_both_sign_once(begun: Program, ledger_url: str) -> None:
    old = begun("keys", "show").text
    rotated = begun("keys", "rotate", "--note", "yearly")
    assert (rotated.code, rotated.text) == (0, begun("keys", "show").text)
    new = rotated.text
    assert new != old
    keys = [parse_vkey(text.strip()) for text in (old, new)]
    assert len(open_note(begun("checkpoint").out, keys).verified) == 2
    append_elsewhere(ledger_url)
    assert open_note(begun("checkpoint").out, keys).verified == (keys[1],)
    with open_ledger(ledger_url, "read") as store:
        (event,) = [e for e in store.events(LEDGER_RUN_ID) if e.type == "KeyRotated"]
        assert b'"note": "yearly"' in (store.content(event.position) or b"")


def test_a_ledger_made_without_a_key_says_so_until_it_gets_one(program: Program, ledger_url: str) -> None:
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    assert program("db", "upgrade", "--no-key").code == 0
    assert not program.state.exists()
    for words in (("keys", "show"), ("checkpoint",)):
        ended = program(*words)
        assert (ended.code, ended.out) == (2, b"")
        assert "has no signing key" in ended.err
        assert "keys rotate" in ended.err
    assert not program.state.exists(), "asking makes nothing"
    vkey = program("keys", "rotate").text
    assert VKEY.fullmatch(vkey)
    assert told(program("checkpoint"), vkey) == head(ledger_url)


def test_a_host_without_the_key_says_where_it_looked_and_what_the_ledger_says(
    begun: Program, ledger_url: str, tmp_path: Path
) -> None:
    vkey = begun("keys", "show").text.strip()
    begun.variables["REPLAY_LEDGER_SIGNER_DIR"] = str(tmp_path / "elsewhere")
    for words in (("keys", "show"), ("checkpoint",), ("keys", "rotate")):
        ended = begun(*words)
        assert (ended.code, ended.out) == (2, b""), words
        assert "not at hand" in ended.err
        assert vkey in ended.err
        assert str(tmp_path / "elsewhere") in ended.err
    assert not (tmp_path / "elsewhere").exists()
    assert head(ledger_url).size == 1


def test_a_lost_key_is_given_up_only_when_asked_to(on_file: Program) -> None:
    (signer_folder(on_file) / KEY).unlink()
    refused = on_file("keys", "rotate")
    assert refused.code == 2
    assert "--key-lost" in refused.err
    rotated = on_file("keys", "rotate", "--key-lost")
    assert rotated.code == 0
    assert told(on_file("checkpoint"), rotated.text).size == 2


def test_after_key_and_store_are_lost_each_dead_end_names_the_way_out_and_what_is_printed_works(
    begun: Program, ledger_url: str
) -> None:
    append_elsewhere(ledger_url)
    assert begun("checkpoint", "--out", "kept.txt").code == 0
    old = begun("keys", "show").out
    (begun.folder / "OLD.vkey").write_bytes(old)
    shutil.rmtree(begun.state / "replay-ledger")
    for words in (("checkpoint",), ("checkpoint", "--adopt", "kept.txt"), ("keys", "show"), ("keys", "rotate")):
        ended = begun(*words)
        assert (ended.code, ended.out) == (2, b""), words
        assert "--key-lost" in ended.err, words

    for _ in range(2):  # whoever doubts that it was done asks once more
        rotated = begun("keys", "rotate", "--key-lost")
        assert rotated.code == 0, rotated.err
        assert VKEY.fullmatch(rotated.text)
        assert rotated.out not in (b"", old)
        assert "an event says so" in rotated.err
        assert "Nothing is signed by it yet" in rotated.err
        assert head(ledger_url).size == 3, "one event, once"
    for words, code in ((("checkpoint",), 1), (("keys", "rotate"), 1), (("checkpoint", "--adopt", "kept.txt"), 2)):
        ended = begun(*words)
        assert (ended.code, ended.out) == (code, b""), words
        assert "--key OLD.vkey" in ended.err, words

    offered = rotated.err.splitlines()[-1].split()
    assert offered[:2] == ["replay-ledger", "checkpoint"]
    (begun.folder / "FILE").write_bytes((begun.folder / "kept.txt").read_bytes())
    assert told(begun(*offered[1:]), rotated.text) == head(ledger_url)
    assert begun("keys", "rotate", "--key-lost").code == 2, "it is not lost"
    assert begun("checkpoint").code == 0


def test_what_sets_a_safeguard_aside_is_taken_from_the_command_line_alone(on_file: Program) -> None:
    (on_file.folder / "kept.txt").write_bytes(on_file("checkpoint").out)
    for command in _commands(cli()):
        for parameter in command.params:
            if parameter.name in {"yes", "key_lost", "accept_clock", "adopt", "force"}:
                assert isinstance(parameter, TypedOption), f"{command.name} {parameter.name}"
    (signer_folder(on_file) / KEY).unlink()
    (on_file.folder / "options.toml").write_text("[keys.rotate]\nkey-lost = true\n")
    in_file = on_file("keys", "rotate", "--config", "options.toml")
    assert in_file.code == 2
    assert "nothing can be set by 'keys.rotate.key-lost'" in in_file.err
    refused = on_file("keys", "rotate", env={"REPLAY_LEDGER_KEY_LOST": "1"})
    assert refused.code == 2
    assert "with --key-lost where it is gone" in refused.err


def _commands(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from _commands(command) if isinstance(command, click.Group) else [command]


# --- where the key is ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "variables", "place"),
    [
        (["--signer-dir", "typed"], {}, "typed"),
        (["--signer-dir", "typed"], {"REPLAY_LEDGER_SIGNER_DIR": "named"}, "typed"),
        ([], {"REPLAY_LEDGER_SIGNER_DIR": "named", "XDG_STATE_HOME": "{folder}/xdg"}, "named"),
        ([], {"XDG_STATE_HOME": "{folder}/xdg", "HOME": "{folder}/home"}, "xdg/replay-ledger"),
        ([], {"XDG_STATE_HOME": "", "HOME": "{folder}/home"}, "home/.local/state/replay-ledger"),
        ([], {"XDG_STATE_HOME": "relative", "HOME": "{folder}/home"}, "home/.local/state/replay-ledger"),
    ],
)
def test_the_key_lies_where_it_is_looked_for(
    program: Program, words: list[str], variables: dict[str, str], place: str
) -> None:
    env = {name: value.format(folder=program.folder) for name, value in variables.items()}
    origin = program("db", "upgrade", "--json", *words, env=env).json["origin"]
    assert (folder_of(program.folder / place, origin) / KEY).is_file()
    assert program("keys", "show", *words, env=env).code == 0
    assert program(*words, "keys", "show", env=env).code == 0, "it is a global option too"


def test_two_ledgers_share_a_signers_folder_without_meeting(program: Program) -> None:
    keys = set()
    for name in ("one", "two"):
        url = f"sqlite:///{name}.db"
        assert program("db", "upgrade", "--ledger", url, "--signer-dir", "signers").code == 0
        keys.add(program("keys", "show", "--ledger", url, "--signer-dir", "signers").text)
    assert len(keys) == 2


def test_where_no_key_can_be_kept_no_ledger_is_made(program: Program, ledger_url: str, three: Path) -> None:
    (program.folder / "file").write_text("in the way")
    for words in (("db", "upgrade"), ("run", three, "--no-api-key", "--base-url", "http://127.0.0.1:9/v1")):
        ended = program(*words, "--ledger", ledger_url, "--signer-dir", "file")
        assert ended.code == 4
        for said in ("file", "no ledger was made", "--signer-dir", "--no-key"):
            assert said in ended.err
    assert program("runs", "--ledger", ledger_url).code == 4


def test_a_key_whose_ledger_could_not_be_made_is_taken_away_again(program: Program) -> None:
    ended = program("db", "upgrade", "--ledger", "sqlite:///no-such-folder/ledger.db")
    assert ended.code == 4
    assert list((program.state / "replay-ledger").iterdir()) == []


def test_a_second_ledger_of_a_name_that_was_signed_is_refused_before_it_is_made(program: Program) -> None:
    named = ("db", "upgrade", "--origin", "audit.example.com/agents")
    assert program(*named).code == 0
    again = program(*named, "--ledger", "sqlite:///second.db")
    assert again.code == 2
    assert "a fork of it" in again.err
    assert not (program.folder / "second.db").exists()
    assert program(*named).code == 0, "the first one is only upgraded"


def test_ledgers_made_at_once_leave_one_ledger_and_one_key(program: Program, ledger_url: str) -> None:
    makers = [program.start("db", "upgrade", "--ledger", ledger_url) for _ in range(3)]
    for maker in makers:
        _, err = maker.communicate(timeout=60)
        assert maker.returncode == 0, err.decode()
    folder = signer_folder(program)
    assert program("keys", "show", "--ledger", ledger_url).code == 0
    assert (folder / KEY).is_file()
    assert stored_sizes(ledger_url) == [1]


# --- commands that append ------------------------------------------------------------------


def test_run_resume_and_abandon_end_with_a_checkpoint(
    program: Program, against: Against, three: Path, ledger_url: str
) -> None:
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    assert stored_sizes(ledger_url) == [head(ledger_url).size]
    assert (
        program("run", three, "--run-id", "dead", "--base-url", "http://127.0.0.1:9/v1", "--max-attempts", "1").code
        == 4
    )
    assert stored_sizes(ledger_url)[-1] == head(ledger_url).size, "a run that failed is signed too"


def test_a_run_that_leaks_ends_with_its_own_exit_code_and_is_signed(
    program: Program, against: Against, ledger_url: str
) -> None:
    against()
    leaking = request_line(2, incident_context={"ground_truth": "restart"})
    file = write_requests(program.folder / "leaking.jsonl", 3, bad={2: leaking})
    assert program("run", file, "--ledger", ledger_url).code == 1
    assert stored_sizes(ledger_url) == [head(ledger_url).size]


def test_a_run_stopped_by_ctrl_c_is_signed_and_so_are_its_resume_and_its_end(
    program: Program, mock_endpoint: Against
) -> None:
    endpoint = mock_endpoint(delay_ms=700)
    program.variables |= {"REPLAY_LEDGER_BASE_URL": endpoint.base_url, "REPLAY_LEDGER_API_KEY": "key-of-the-tests-0123"}
    file = write_requests(program.folder / "many.jsonl", 12)
    process = program.start("run", file, "--run-id", "r1", "-j", "2")
    while endpoint.stats()["calls"] < 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    url = f"sqlite:///{program.folder / 'replay-ledger.db'}"
    assert stored_sizes(url) == [head(url).size]
    assert program("resume", "r1", "-j", "12").code == 0
    assert stored_sizes(url)[-1] == head(url).size
    assert len(stored_sizes(url)) == 2


def test_an_abandoned_run_is_signed(program: Program, ledger_url: str, three: Path) -> None:
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    stopped = ("run", three, "--run-id", "r1", "--base-url", "http://127.0.0.1:9/v1", "--no-api-key", "--model", "m")
    process = program.start(*stopped, "--max-attempts", "50")
    while not _has_run(ledger_url):
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=60)
    assert stored_sizes(ledger_url) == [], "a killed run leaves its events unsigned"
    assert program("abandon", "r1", "--reason", "test").code == 0
    assert stored_sizes(ledger_url) == [head(ledger_url).size], "and the next command signs them"


def _has_run(url: str) -> bool:
    try:
        with open_ledger(url, "read") as store:
            return store.head().size > 3
    except Exception:  # noqa: BLE001 - there is no ledger yet
        return False


def test_a_host_without_the_key_appends_says_so_in_one_line_and_the_next_checkpoint_covers_it(
    program: Program, against: Against, three: Path, ledger_url: str
) -> None:
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    against()
    assert program("db", "upgrade").code == 0
    elsewhere = {"XDG_STATE_HOME": str(program.folder / "another-host")}
    ended = program("run", three, "--run-id", "r1", env=elsewhere)
    assert ended.code == 0
    (said,) = [line for line in ended.err.splitlines() if "sign" in line.lower()]
    assert "Recorded, but not signed here" in said
    assert str(program.folder / "another-host") in said
    assert "The next checkpoint by whoever holds it covers this" in said
    assert not (program.folder / "another-host").exists()
    assert stored_sizes(ledger_url) == [1]
    assert told(program("checkpoint"), program("keys", "show").text) == head(ledger_url)


def test_events_appended_under_a_wrong_signers_folder_are_not_left_unsigned_in_silence(
    program: Program, against: Against, three: Path
) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    issued = program("report", "r1", "--format", "json", "--issue", "--signer-dir", "empty")
    held = program("hold", "set", "--run", "r1", "--id", "h", "--signer-dir", "empty")
    lifted = program("hold", "lift", "h", "--signer-dir", "empty")
    kept = program("retention", "set", "1", "--signer-dir", "empty")
    for ended in (issued, held, lifted, kept):
        assert ended.code == 0, ended.err
        assert ended.err.count("not signed here") == 1, ended.err
        assert str(program.folder / "empty") in ended.err
    assert not (program.folder / "empty").exists()


def test_where_nothing_was_appended_nothing_is_said_of_a_signature(
    program: Program, against: Against, three: Path
) -> None:
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    again = program("run", three, "--run-id", "r1", "--signer-dir", "empty")
    assert again.code == 2
    assert "not signed" not in again.err


def test_a_ledger_that_never_had_a_key_is_appended_to_without_a_word_of_one(
    program: Program, against: Against, three: Path
) -> None:
    against()
    for name in ("r1", "r2"):
        ended = program("run", three, "--run-id", name, "--no-key")
        assert ended.code == 0, ended.err
        assert "not signed" not in ended.err


def test_the_demo_is_signed_with_a_key_in_its_own_folder(program: Program) -> None:
    ended = program("demo", "--folder", "shown", timeout=120)
    assert ended.code == 0, ended.err
    assert not program.state.exists()
    url = f"sqlite:///{program.folder / 'shown' / 'ledger.db'}"
    assert stored_sizes(url) == [head(url).size]
    shown = program("keys", "show", "--ledger", url, "--signer-dir", "shown/signer")
    assert VKEY.fullmatch(shown.text)


# --- what is not signed --------------------------------------------------------------------


@pytest.fixture
def restored(begun: Program, ledger_url: str) -> Program:
    """An older copy of a signed ledger in its place."""
    begun.variables.pop("REPLAY_LEDGER_LEDGER")
    backup = "sqlite:///backup.db"
    assert begun("db", "copy", ledger_url, backup).code == 0
    append_elsewhere(ledger_url)
    assert begun("checkpoint", "--ledger", ledger_url).code == 0
    begun.variables["REPLAY_LEDGER_LEDGER"] = backup
    return begun


def test_a_restored_backup_is_not_signed_and_nothing_is_paid_for_on_it(
    restored: Program, against: Against, three: Path
) -> None:
    endpoint = against()
    for words in (("checkpoint",), ("run", three), ("keys", "rotate"), ("abandon", "r1", "--reason", "x")):
        ended = restored(*words)
        assert (ended.code, ended.out) == (1, b""), words
        assert "1 events, but a checkpoint over 2 was signed" in ended.err
        assert "Put back a copy" in ended.err
    assert endpoint.stats()["calls"] == 0
    assert head(f"sqlite:///{restored.folder}/backup.db").size == 1


def test_a_restored_backup_can_still_be_read(restored: Program) -> None:
    assert restored("runs").code == 0
    assert restored("db", "status").code == 0


def test_a_copy_is_the_same_ledger_and_is_signed_on_by_the_same_key(on_file: Program, ledger_url: str) -> None:
    original = f"sqlite:///{on_file.folder / 'replay-ledger.db'}"
    append_elsewhere(original)
    vkey = on_file("keys", "show").text
    assert on_file("db", "copy", original, ledger_url).code == 0
    assert on_file("keys", "show", "--ledger", ledger_url).text == vkey
    assert told(on_file("checkpoint", "--ledger", ledger_url), vkey) == head(original)
    assert len(list((on_file.state / "replay-ledger").iterdir())) == 1


def test_a_copy_warns_that_only_one_of_the_two_may_go_on_as_the_other_is_then_refused(
    on_file: Program, ledger_url: str
) -> None:
    original = f"sqlite:///{on_file.folder / 'replay-ledger.db'}"
    append_elsewhere(original)
    assert on_file("checkpoint", "--out", "kept.txt").code == 0
    vkey = on_file("keys", "show").text.strip()
    for words in ((), ("--json",)):
        copied = on_file("db", "copy", original, ledger_url if not words else "sqlite:///read.db", *words)
        assert copied.code == 0, copied.err
        assert "Append to one of the two only" in copied.err
        assert "verify --signer-dir DIR --key VKEY --checkpoint FILE" in copied.err
    append_elsewhere(ledger_url)
    assert on_file("checkpoint", "--ledger", ledger_url).code == 0
    assert "rolled back" in on_file("verify", "--ledger", original).text
    refused = on_file("abandon", "r1", "--reason", "x", "--ledger", original)
    assert (refused.code, "this is an older copy" in refused.err) == (1, True), refused.err
    alone = ("--signer-dir", "own", "--key", vkey, "--checkpoint", "kept.txt")
    judged = on_file("verify", "--ledger", original, *alone)
    assert "Does not match" not in judged.text, judged.text
    assert "by the file kept.txt" in judged.text


def test_a_lost_store_signs_only_after_a_checkpoint_that_was_kept_is_adopted(begun: Program, ledger_url: str) -> None:
    append_elsewhere(ledger_url)
    assert begun("checkpoint", "--out", "kept.txt").code == 0
    append_elsewhere(ledger_url)
    (signer_folder(begun) / LAST).unlink()
    refused = begun("checkpoint")
    assert (refused.code, refused.out) == (1, b"")
    assert "--adopt FILE" in refused.err
    adopted = begun("checkpoint", "--adopt", "kept.txt")
    assert told(adopted, begun("keys", "show").text) == head(ledger_url)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("", 2, "cannot be trusted"),
        ("not a note\n", 2, "cannot be trusted"),
        ("\x1b[31mred\n\n\u2014 x AAAA\n", 2, "cannot be trusted"),
        (None, 2, "absent.txt: no such file"),
    ],
)
def test_what_is_no_checkpoint_of_ours_is_not_adopted(
    on_file: Program, content: str | None, code: int, said: str
) -> None:
    name = "absent.txt" if content is None else "brought.txt"
    if content is not None:
        (on_file.folder / name).write_text(content)
    ended = on_file("checkpoint", "--adopt", name)
    assert (ended.code, ended.out) == (code, b"")
    assert said in ended.err
    assert "\x1b" not in ended.err


def test_a_bad_vkey_is_wrong_use(on_file: Program) -> None:
    (on_file.folder / "kept.txt").write_bytes(on_file("checkpoint").out)
    ended = on_file("checkpoint", "--adopt", "kept.txt", "--key", "no-vkey")
    assert ended.code == 2
    assert "--key" in ended.err


def test_a_key_that_others_can_read_is_refused_before_anything_is_done(
    program: Program, against: Against, three: Path, ledger_url: str
) -> None:
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    endpoint = against()
    assert program("db", "upgrade").code == 0
    (signer_folder(program) / KEY).chmod(0o644)
    for words in (("run", three), ("checkpoint",), ("keys", "show"), ("keys", "rotate")):
        ended = program(*words)
        assert (ended.code, ended.out) == (2, b""), words
        assert "chmod 600" in ended.err
    assert endpoint.stats()["calls"] == 0
    assert head(ledger_url).size == 1


def test_where_the_signers_folder_cannot_be_written_the_events_are_recorded_and_that_is_said(
    program: Program, against: Against, three: Path
) -> None:
    against()
    assert program("db", "upgrade").code == 0
    folder = signer_folder(program)
    (folder / "lock").unlink(missing_ok=True)
    folder.chmod(0o500)
    ended = program.unprivileged("run", three, "--run-id", "r1")
    folder.chmod(0o700)
    assert ended.code == 4, ended.err
    assert "is recorded, but it is not signed" in ended.err
    assert f"{folder}: permission denied" in ended.err
    assert "Traceback" not in ended.err
    assert program("report", "r1").json["valid"] is True
    url = f"sqlite:///{program.folder / 'replay-ledger.db'}"
    assert stored_sizes(url) == [1]
    assert told(program("checkpoint"), program("keys", "show").text) == head(url)


# --- exit codes at the end -----------------------------------------------------------------


@pytest.fixture
def in_process(tmp_path: Path) -> Iterator[tuple[click.Context, Store]]:
    """A command's context with a new ledger open in it."""
    state = Session({}, ledger=f"sqlite:///{tmp_path / 'ledger.db'}", signer_dir=str(tmp_path / "signers"))
    with click.Context(click.Command("test"), obj=state) as ctx:
        store = open_to_append(ctx, "create")
        checkpoint_at_end(ctx, store)
        yield ctx, store


def fork(ctx: click.Context, store: Store) -> None:
    """Let the signer have signed more than the ledger holds."""
    backup = store.shown.replace("ledger.db", "backup.db")
    from ledger import copy_ledger

    copy_ledger(store.shown, backup)
    with open_ledger(backup, "write") as copy:
        grow(copy, 5)
        checkpoint_at_end(ctx, copy)


def test_a_fork_found_at_the_end_becomes_the_exit_code_only_where_there_was_no_other(
    in_process: tuple[click.Context, Store], capsys: pytest.CaptureFixture[str]
) -> None:
    ctx, store = in_process
    result, unsigned = signed(ctx, store, lambda: fork(ctx, store))
    assert result is None
    assert isinstance(unsigned, ForkRefused)
    assert unsigned.exit_code == NO
    with pytest.raises(ForkRefused):
        code_after(OK, unsigned)
    with pytest.raises(ForkRefused):
        checkpoint_at_end(ctx, store)
    capsys.readouterr()
    assert code_after(WRONG_USE, unsigned) == WRONG_USE
    assert code_after(130, unsigned) == 130
    err = capsys.readouterr().err
    assert err.count("is recorded, but it is not signed") == 2
    assert err.count("older copy") == 2


def test_work_that_fails_is_signed_and_its_failure_goes_on(in_process: tuple[click.Context, Store]) -> None:
    ctx, store = in_process

    def work(error: BaseException) -> None:
        grow(store, 1)
        raise error

    for error in (ValueError("its own"), KeyboardInterrupt(), click.Abort()):
        with pytest.raises(type(error)):
            signed(ctx, store, lambda error=error: work(error))
        assert store.checkpoints()[-1].size == store.head().size


def test_work_that_fails_on_a_fork_keeps_its_own_failure(
    in_process: tuple[click.Context, Store], capsys: pytest.CaptureFixture[str]
) -> None:
    ctx, store = in_process
    fork(ctx, store)

    def work() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        signed(ctx, store, work)
    assert "older copy" in capsys.readouterr().err


def test_a_ledger_in_memory_has_no_key(tmp_path: Path) -> None:
    state = Session({}, ledger="sqlite://", signer_dir=str(tmp_path / "signers"))
    with click.Context(click.Command("test"), obj=state) as ctx:
        store = open_to_append(ctx, "create")
        checkpoint_at_end(ctx, store)
        assert store.checkpoints() == []
    assert not (tmp_path / "signers").exists()


# --- outputs and secrets -------------------------------------------------------------------


def test_a_checkpoint_takes_the_place_of_no_ledger_input_or_key(on_file: Program) -> None:
    kept = on_file("checkpoint").out
    (on_file.folder / "kept.txt").write_bytes(kept)
    folder = signer_folder(on_file)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    (on_file.folder / "link").symlink_to(folder / KEY)
    for out in (
        *("replay-ledger.db", "replay-ledger.db-wal", "kept.txt", "./kept.txt"),
        *(folder / KEY, folder / LAST, folder / "new.txt", "link"),
    ):
        ended = on_file("checkpoint", "--adopt", "kept.txt", "--out", out)
        assert ended.code == 2, out
        assert "give" in ended.err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert on_file("runs").code == 0


def test_no_command_prints_anything_of_the_private_key(begun: Program, ledger_url: str) -> None:
    pems = [(signer_folder(begun) / KEY).read_text()]
    printed = [begun(*words) for words in (("keys", "show"), ("checkpoint",), ("keys", "rotate"), ("keys", "show"))]
    pems.append((signer_folder(begun) / KEY).read_text())
    (signer_folder(begun) / KEY).chmod(0o644)
    printed += [begun("checkpoint"), begun("keys", "show")]
    (signer_folder(begun) / KEY).write_text(pems[1].replace("M", "N", 1))
    (signer_folder(begun) / KEY).chmod(0o600)
    printed += [begun("checkpoint"), begun("verify"), begun("runs", "--debug")]
    everything = "".join(ended.text + ended.err for ended in printed)
    for pem in pems:
        body = pem.splitlines()[1]
        assert len(body) == 64
        assert body[-43:] not in everything
        assert body[:40] not in everything
    assert "PRIVATE KEY" not in everything
    with open_ledger(ledger_url, "read") as store:
        rows = list(store.rows("SELECT payload FROM events"))
    assert all(pem.splitlines()[1][-43:] not in payload for pem in pems for (payload,) in rows)
