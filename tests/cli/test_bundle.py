"""``bundle``, ``bundle-check``, ``verifier``, ``prove``, issued reports: evidence that leaves the house."""

from __future__ import annotations

import hashlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from commands._failures import Refused
from commands.bundle import _write
from tests.cli.program import Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint
from tests.ledger.bundle.bundles import entries, judge, repack

Against = Callable[..., MockEndpoint]


@pytest.fixture
def recorded(program: Program, against: Against, three: Path) -> Program:
    """A ledger with one completed run, signed, its key at hand; the public key and a checkpoint kept in files."""
    against()
    assert program("run", three, "--run-id", "r1").code == 0
    (program.folder / "ledger.vkey").write_bytes(program("keys", "show").out)
    return program


def key_of(program: Program) -> str:
    return (program.folder / "ledger.vkey").read_text().strip()


def keep_checkpoint(program: Program, name: str = "kept.txt") -> Path:
    assert program("checkpoint", "--out", name).code == 0
    return program.folder / name


def size(program: Program) -> int:
    with closing(sqlite3.connect(program.folder / "replay-ledger.db")) as database:
        return int(database.execute("SELECT size FROM ledger_head").fetchone()[0])


def without_key(program: Program) -> tuple[str, str]:
    return "--signer-dir", str(program.folder / "nowhere")


# --- bundle --------------------------------------------------------------------------------


def test_a_bundle_is_written_signed_and_passes(recorded: Program) -> None:
    ended = recorded("bundle", "latest")
    assert (ended.code, ended.out) == (0, b"")
    data = (recorded.folder / "audit-r1.zip").read_bytes()
    assert hashlib.sha256(data).hexdigest() in ended.err
    kept = keep_checkpoint(recorded)
    checked = recorded("bundle-check", "audit-r1.zip", "--key", key_of(recorded), "--checkpoint", kept)
    assert (checked.code, checked.err) == (0, "")
    assert checked.text.startswith("PASS  run r1 of replay-ledger.local/")
    assert judge(data, key_of(recorded), kept.read_bytes())[0] == 0
    assert entries(data)["report.json"] == recorded("report", "r1", "--format", "json").out
    assert entries(data)["report.html"] == recorded("report", "r1", "--format", "html").out
    assert entries(data)["results.jsonl"] == recorded("results", "r1", "--format", "jsonl").out


def test_bundled_again_nothing_is_appended_and_the_bytes_are_the_same(recorded: Program) -> None:
    assert recorded("bundle", "r1", "--out", "one.zip").code == 0
    before = size(recorded)
    assert recorded("bundle", "r1", "--out", "two.zip").code == 0
    assert recorded("bundle", "r1", "--out", "two.zip").code == 0
    assert size(recorded) == before
    assert (recorded.folder / "one.zip").read_bytes() == (recorded.folder / "two.zip").read_bytes()


def test_another_bundle_under_the_usual_name_is_never_replaced(recorded: Program, three: Path) -> None:
    assert recorded("bundle", "r1").code == 0
    first = (recorded.folder / "audit-r1.zip").read_bytes()
    assert recorded("bundle", "r1").code == 0
    assert recorded("run", three, "--run-id", "r2").code == 0
    ended = recorded("bundle", "r1")
    assert ended.code == 2
    assert "--out" in ended.err
    assert (recorded.folder / "audit-r1.zip").read_bytes() == first
    assert recorded("bundle", "r1", "--out", "audit-r1.zip").code == 0
    assert (recorded.folder / "audit-r1.zip").read_bytes() != first


def test_without_the_key_a_stored_checkpoint_serves_or_nothing_is_written(recorded: Program, three: Path) -> None:
    before = size(recorded)
    ended = recorded("bundle", "r1", *without_key(recorded))
    assert ended.code == 2
    assert "never issued" in ended.err
    assert not (recorded.folder / "audit-r1.zip").exists()
    assert size(recorded) == before
    assert recorded("bundle", "r1", "--out", "signed.zip").code == 0
    assert recorded("bundle", "r1", *without_key(recorded)).code == 0
    signed = (recorded.folder / "signed.zip").read_bytes()
    assert (recorded.folder / "audit-r1.zip").read_bytes() == signed
    # appended since by a host that signs nothing: the stored checkpoint still covers run r1
    assert recorded("run", three, "--run-id", "r2", *without_key(recorded)).code == 0
    assert recorded("bundle", "r1", *without_key(recorded), "--out", "again.zip").code == 0
    assert (recorded.folder / "again.zip").read_bytes() == signed
    ended = recorded("bundle", "r2", *without_key(recorded))
    assert ended.code == 2
    assert not (recorded.folder / "audit-r2.zip").exists()


def test_reports_issued_beyond_the_last_signature_are_not_bundled_without_the_key(recorded: Program) -> None:
    from ledger import open_ledger
    from tests.ledger.bundle.ledgers import issue_all, make_reports

    with open_ledger(f"sqlite:///{recorded.folder / 'replay-ledger.db'}", "write") as store:
        issue_all(store, "r1", make_reports(store, "r1"))
    ended = recorded("bundle", "r1", *without_key(recorded))
    assert ended.code == 2
    assert "no stored checkpoint covers" in ended.err
    assert not list(recorded.folder.glob("*.zip"))


def test_after_an_erasure_the_bundle_still_passes_and_holds_no_erased_text(recorded: Program) -> None:
    assert b"Decide on incident 2." in _bundle(recorded, "before.zip")
    assert recorded("redact", "--run", "r1", "--request", "INC-2", "--reason", "asked", "--yes").code == 0
    after = _bundle(recorded, "after.zip")
    assert b"Decide on incident 2." not in after
    assert b"Decide on incident 1." in after
    assert judge(after, key_of(recorded), keep_checkpoint(recorded).read_bytes())[0] == 0
    assert entries(after)["report.json"] == entries((recorded.folder / "before.zip").read_bytes())["report.json"]
    earlier = judge((recorded.folder / "before.zip").read_bytes(), key_of(recorded))
    assert earlier[0] == 3  # what was handed out before is as good as it was


def _bundle(program: Program, name: str) -> bytes:
    assert program("bundle", "r1", "--out", name).code == 0
    return (program.folder / name).read_bytes()


@pytest.mark.parametrize("out", ["-", ".", "replay-ledger.db", "no/such/folder.zip", "/dev/null"])
def test_a_place_where_no_bundle_can_be_is_refused_before_anything_is_appended(recorded: Program, out: str) -> None:
    before = size(recorded)
    ended = recorded("bundle", "r1", "--out", out)
    assert ended.code == 2, ended.err
    assert size(recorded) == before


@pytest.mark.parametrize(
    "command",
    [("bundle", "r1"), ("report", "r1"), ("results", "r1"), ("prove", "1"), ("checkpoint",), ("verifier",)],
    ids=lambda words: words[0],
)
def test_nothing_written_takes_the_place_of_the_signers_own_files(recorded: Program, command: tuple[str, ...]) -> None:
    (folder,) = (recorded.state / "replay-ledger").iterdir()
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert before
    for path, data in before.items():
        ended = recorded(*command, "--out", path)
        assert ended.code == 2
        assert "signer's folder" in ended.err
        assert path.read_bytes() == data


def test_a_run_that_is_not_there_and_a_ledger_that_is_not_there_are_told(recorded: Program) -> None:
    assert recorded("bundle", "nothing").code == 2
    assert recorded("bundle", "r1", "--ledger", "sqlite:///none.db").code == 4
    assert not (recorded.folder / "none.db").exists()


def test_both_databases_give_the_same_bundle_for_a_copied_ledger(recorded: Program, postgres_url: str) -> None:
    assert recorded("bundle", "r1", "--out", "one.zip").code == 0
    assert recorded("db", "copy", "sqlite:///replay-ledger.db", postgres_url).code == 0
    for extra in ((), without_key(recorded)):
        assert recorded("bundle", "r1", "--ledger", postgres_url, "--out", "two.zip", *extra).code == 0
        assert (recorded.folder / "two.zip").read_bytes() == (recorded.folder / "one.zip").read_bytes()


def test_an_altered_ledger_gives_no_bundle(recorded: Program) -> None:
    database = sqlite3.connect(recorded.folder / "replay-ledger.db")
    with database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE contents SET body = body || ' ' WHERE position = 3")
    database.close()
    ended = recorded("bundle", "r1")
    assert ended.code == 4
    assert "position 3 does not match" in ended.err
    assert not (recorded.folder / "audit-r1.zip").exists()


def test_whatever_interrupts_leaves_no_half_file(tmp_path: Path) -> None:
    def interrupted(file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    for replace in (True, False):
        with pytest.raises(KeyboardInterrupt):
            _write(tmp_path / "audit.zip", interrupted, replace=replace)
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "audit.zip").write_bytes(b"another")
    for replace in (True, False):
        with pytest.raises(KeyboardInterrupt):
            _write(tmp_path / "audit.zip", interrupted, replace=replace)
        assert (tmp_path / "audit.zip").read_bytes() == b"another"
        assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(Refused):
        _write(tmp_path / "audit.zip", lambda file: None, replace=False)


def test_ctrl_c_while_a_bundle_is_written_leaves_the_folder_as_it_was(recorded: Program, tmp_path: Path) -> None:
    """Stopped at whatever it is doing; where it was too quick, the bundle is whole."""
    for delay in (0.6, 0.9, 1.2):
        process = recorded.start("bundle", "r1", "--out", "stopped.zip")
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode in (0, 130, -signal.SIGINT)
        left = [path.name for path in recorded.folder.iterdir() if ".part" in path.name]
        assert left == []
        if (recorded.folder / "stopped.zip").exists():
            assert judge((recorded.folder / "stopped.zip").read_bytes(), key_of(recorded))[0] == 3


# --- bundle-check and verifier -------------------------------------------------------------


def test_bundle_check_says_what_the_verifier_says_with_the_same_exit_codes(recorded: Program) -> None:
    early = keep_checkpoint(recorded, "early.txt")
    data = _bundle(recorded, "audit-r1.zip")
    kept = keep_checkpoint(recorded)
    assert recorded("verifier", "--out", "verify.py").code == 0
    bent = recorded.folder / "bent.zip"
    bent.write_bytes(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])
    false = recorded.folder / "false.zip"
    manifest = json.loads(entries(data)["manifest.json"])
    kept_members = {name: manifest[name] for name in ("ledger", "run_id", "size")}
    false.write_bytes(repack({**entries(data), "report.html": b"<p>fine</p>"}, **kept_members))
    key = ("--key", key_of(recorded))
    for code, words in (
        (0, ("audit-r1.zip", *key, "--checkpoint", kept)),
        (3, ("audit-r1.zip", *key, "--checkpoint", early)),
        (0, ("audit-r1.zip", *key, "--checkpoint", early, "--max-window", "3")),
        (3, ("audit-r1.zip", *key)),
        (1, ("bent.zip", *key, "--checkpoint", kept)),
        (1, ("false.zip", *key, "--checkpoint", kept)),
        (2, ("none.zip", *key, "--checkpoint", kept)),
        (2, ("audit-r1.zip", "--key", "nonsense")),
    ):
        ours = recorded("bundle-check", *words)
        theirs = subprocess.run(
            [sys.executable, "-I", "-S", "verify.py", *map(str, words)],
            cwd=recorded.folder,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert (ours.code, theirs.returncode) == (code, code), words
        assert ours.out == theirs.stdout
    for words in (("audit-r1.zip",), ("audit-r1.zip", *key, "--max-window", "-1"), ()):
        assert recorded("bundle-check", *words).code == 2


def test_bundle_check_took_a_key_only_as_text_and_not_from_a_file(recorded: Program) -> None:
    _bundle(recorded, "audit-r1.zip")
    kept = keep_checkpoint(recorded)
    words = ("bundle-check", "audit-r1.zip", "--checkpoint", kept, "--key")
    assert recorded(*words, "ledger.vkey").out == recorded(*words, key_of(recorded)).out
    assert recorded(*words, "ledger.vkey").code == 0
    ended = recorded(*words, "none.vkey")
    assert (ended.code, ended.out) == (2, b"")
    assert "neither a key" in ended.err
    assert recorded("report", "r1", "--out", "report.html").code == 0
    ended = recorded("bundle-check", "report.html", "--key", "ledger.vkey")
    assert (ended.code, ended.out) == (2, b"")
    assert "neither a bundle nor a proof" in ended.err


def test_a_checkpoint_larger_than_the_bundles_is_reached_by_a_proof(recorded: Program, three: Path) -> None:
    _bundle(recorded, "audit-r1.zip")
    covered = size(recorded)
    assert recorded("run", three, "--run-id", "r2").code == 0
    kept = keep_checkpoint(recorded)
    words = ("bundle-check", "audit-r1.zip", "--key", key_of(recorded), "--checkpoint", kept)
    assert recorded(*words).code == 3
    assert recorded("prove", "--consistency", covered, size(recorded), "--out", "proof.txt").code == 0
    assert recorded(*words, "--consistency", "proof.txt").code == 0


def test_the_verifier_is_written_with_its_digest(program: Program) -> None:
    ended = program("verifier", "--out", "verify.py")
    written = (program.folder / "verify.py").read_bytes()
    assert (ended.code, ended.text) == (0, f"{hashlib.sha256(written).hexdigest()}  verify.py\n")
    piped = program("verifier")
    assert (piped.code, piped.out) == (0, written)
    assert hashlib.sha256(written).hexdigest() in piped.err


# --- prove ---------------------------------------------------------------------------------


def test_an_event_is_proven_by_position_and_by_id(recorded: Program) -> None:
    kept = keep_checkpoint(recorded)
    by_position = recorded("prove", "5")
    assert by_position.code == 0
    assert by_position.text.startswith("c2sp.org/tlog-proof@v1\nextra ")
    with closing(sqlite3.connect(recorded.folder / "replay-ledger.db")) as database:
        ((event_id,),) = database.execute("SELECT event_id FROM events WHERE position = 5").fetchall()
    assert recorded("prove", event_id).out == by_position.out
    assert recorded("prove", "5", "--checkpoint", kept, "--out", "5.tlog-proof").code == 0
    assert (recorded.folder / "5.tlog-proof").read_bytes() == by_position.out
    words = ("bundle-check", "5.tlog-proof", "--key", key_of(recorded))
    assert recorded(*words).code == 3
    checked = recorded(*words, "--checkpoint", kept)
    assert checked.code == 0
    assert event_id in checked.text


def test_what_cannot_be_proven_ends_with_2_and_says_why(recorded: Program, three: Path) -> None:
    end = size(recorded)
    for words, said in (
        (("prove",), "EVENT"),
        (("prove", "0"), "neither a position"),
        (("prove", "abc"), "neither a position"),
        (("prove", str(end + 1)), f"ends at position {end}"),
        (("prove", "0197a3c0-0000-7000-8000-000000000009"), "holds no event"),
        (("prove", "5", "--consistency", "1", "2"), "EVENT"),
        (("prove", "--consistency", "0", "2"), "0"),
        (("prove", "--consistency", "3", "2"), "not smaller"),
        (("prove", "--consistency", "1", str(end + 1)), f"has {end} events"),
        (("prove", "5", "--checkpoint", three), "no signed checkpoint"),
        (("prove", "5", "--checkpoint", "none.txt"), "none.txt"),
    ):
        ended = recorded(*words)
        assert (ended.code, ended.out) == (2, b""), words
        assert said in ended.err
    assert recorded("run", three, "--run-id", "r2", *without_key(recorded)).code == 0
    ended = recorded("prove", size(recorded))
    assert ended.code == 2
    assert "replay-ledger checkpoint" in ended.err


# --- issued reports ------------------------------------------------------------------------


def test_a_report_is_issued_once_and_known_again(recorded: Program) -> None:
    before = size(recorded)
    first = recorded("report", "r1", "--issue", "--out", "report.html")
    assert (first.code, size(recorded)) == (0, before + 1)
    assert f"position {before + 1}" in first.err
    again = recorded("report", "r1", "--issue", "--format", "html")
    assert again.out == (recorded.folder / "report.html").read_bytes()
    assert size(recorded) == before + 1
    known = recorded("report-check", "report.html")
    assert known.code == 0
    assert f"issued at position {before + 1}" in known.err
    assert recorded("verify").code in (0, 3)
    assert recorded("report", "r1", "--issue", "--as-of", "6", "--format", "json", "--out", "early.json").code == 0
    assert recorded("report-check", "early.json").code == 0


def test_a_report_that_was_never_issued_is_not_known(recorded: Program) -> None:
    recorded("report", "r1", "--out", "report.json")
    ended = recorded("report-check", "report.json")
    assert ended.code == 1
    assert "no report with these bytes was issued" in ended.err
    assert recorded("report-check", "none.json").code == 2


def test_results_whose_text_was_erased_since_are_incomplete(recorded: Program) -> None:
    _bundle(recorded, "audit-r1.zip")
    for name, data in entries((recorded.folder / "audit-r1.zip").read_bytes()).items():
        (recorded.folder / name).write_bytes(data)
    assert recorded("report-check", "results.jsonl").code == 0
    assert recorded("redact", "--run", "r1", "--reason", "asked", "--yes").code == 0
    ended = recorded("report-check", "results.jsonl")
    assert ended.code == 3
    assert "erased since" in ended.err
    for name in ("report.json", "report.html"):
        assert recorded("report-check", name).code == 0


def test_an_issued_report_that_the_ledger_no_longer_gives_is_a_no(recorded: Program) -> None:
    assert recorded("report", "r1", "--issue", "--out", "report.json").code == 0
    database = sqlite3.connect(recorded.folder / "replay-ledger.db")
    with database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("""UPDATE events SET payload = replace(payload, '"turn":1', '"turn":2') WHERE position = 8""")
        database.execute(
            """UPDATE events SET payload = replace(payload, '_us":', '_us":9') WHERE type = 'ModelCalled'"""
        )
    database.close()
    ended = recorded("report-check", "report.json")
    assert ended.code == 1
    assert "OTHER bytes" in ended.err


def test_a_report_as_a_page_is_chosen_by_the_files_name(recorded: Program) -> None:
    assert recorded("report", "r1", "--out", "r.html").code == 0
    page = (recorded.folder / "r.html").read_bytes()
    assert page.startswith(b"<!doctype html>")
    assert page == recorded("report", "r1", "--format", "html").out


def test_a_blocked_run_has_its_bundle_too(program: Program, against: Against) -> None:
    against()
    bad = write_requests(program.folder / "bad.jsonl", 2, bad={2: "{}"})
    assert program("run", bad, "--run-id", "blocked").code == 2
    key = program("keys", "show").text.strip()
    assert program("bundle", "blocked").code == 0
    kept = keep_checkpoint(program)
    assert program("bundle-check", "audit-blocked.zip", "--key", key, "--checkpoint", kept).code == 0
