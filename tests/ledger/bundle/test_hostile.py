"""Bundles made to mislead the verifier, exhaust it, or write on the terminal: each is refused in a clear line."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import resource
import shlex
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.integrity.canonical import encode
from tests.ledger.bundle.bundles import (
    EXAMPLE,
    KEY,
    NAMES,
    PROGRAM,
    entries,
    event_line,
    example_zip,
    forge,
    judge,
    judge_example,
    load_verifier,
    pack,
    repack,
    run_main,
    vkey,
)
from tests.ledger.bundle.ledgers import bundle_of, sign, story_ledger, told

ROOT = Path(__file__).parents[3]
PARTS = entries(example_zip())
LOCAL = struct.Struct("<4s5H3L2H")


def standalone(*words: object, memory: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the file as an auditor does: isolated, without site packages, in a process of its own."""

    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    command = [sys.executable, "-I", "-S", str(PROGRAM), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, preexec_fn=limit)


def with_header(entry: str, **changes: int) -> bytes:
    """The example with other numbers in the local header of an entry."""
    fields = ("signature", "version", "flags", "method", "time", "date", "crc", "size", "full", "name", "extra")
    data = bytearray(example_zip())
    at = next(found.start() for found in re.finditer(rb"PK\x03\x04.{26}" + entry.encode(), data, re.DOTALL))
    values = dict(zip(fields, LOCAL.unpack_from(data, at), strict=True)) | changes
    LOCAL.pack_into(data, at, *values.values())
    return bytes(data)


# --- the zip -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 45},
        {"flags": 1},
        {"flags": 8},
        {"flags": 0x800},
        {"method": 8},
        {"time": 1},
        {"date": 0x22},
        {"name": 1000},
        {"crc": 1},
        {"extra": 20},
        {"size": 0},
        {"full": 0},
        {"size": 2**32 - 1, "full": 2**32 - 1},
        {"size": 10**9, "full": 10**9},
        {"size": 1, "full": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["README.txt", "events.jsonl", "report.html"])
def test_a_header_that_says_anything_else_is_refused(name: str, changes: dict[str, int]) -> None:
    code, said = judge_example(with_header(name, **changes))
    assert code == 1
    assert said.startswith(("zip:", "manifest.json:"))


def test_sizes_that_lie_are_named() -> None:
    _, said = judge_example(with_header("events.jsonl", size=10**9, full=10**9))
    assert said == "zip: events.jsonl is said to have 1000000000 bytes, more than the file holds"


def test_other_names_another_order_or_number_of_entries_are_refused() -> None:
    renamed = {("readme.txt" if name == "README.txt" else name): data for name, data in PARTS.items()}
    reordered = {name: PARTS[name] for name in (NAMES[1], NAMES[0], *NAMES[2:])}
    path = {("../" + name if name == "report.html" else name): data for name, data in PARTS.items()}
    for parts in (
        renamed,
        reordered,
        path,
        {**PARTS, "verify.py": b"print('PASS')"},
        {name: data for name, data in PARTS.items() if name != "report.html"},
        {},
    ):
        code, said = judge_example(pack(parts))
        assert code == 1
        assert said.startswith("zip:")


def test_a_deflated_bundle_is_refused() -> None:
    assert judge_example(pack(PARTS, compress=zipfile.ZIP_DEFLATED))[0] == 1


def test_a_file_of_10_gb_is_refused_at_once_and_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    with path.open("wb") as file:
        file.write(example_zip()[: LOCAL.size])
        file.truncate(10 * 10**9)
    done = standalone(path, "--key", vkey(), memory=500 * 2**20)
    assert (done.returncode, done.stderr) == (1, "")
    assert "4 GiB" in done.stdout


def test_an_entry_of_4_gb_that_is_not_there_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse.zip"
    with path.open("wb") as file:
        file.write(with_header("README.txt", size=2**31, full=2**31))
        file.truncate(2**31 + 10**6)
    done = standalone(path, "--key", vkey(), memory=500 * 2**20)
    assert (done.returncode, done.stderr) == (1, "")
    assert "checksum of README.txt" in done.stdout


def test_large_entries_that_are_read_whole_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    v = load_verifier()
    monkeypatch.setattr(v, "MAX_SMALL", 100)
    code, said = judge_example(example_zip())
    assert code == 1
    assert "larger than it can be" in said
    monkeypatch.undo()
    monkeypatch.setattr(v, "MAX_LINE", 100)
    monkeypatch.setattr(v, "CHUNK", 64)
    assert judge_example(example_zip())[0] == 1


@pytest.mark.parametrize("size", [7, 64, 1000, 5000])
def test_lines_that_are_read_in_pieces_are_the_same_lines(tmp_path: Path, size: int) -> None:
    (tmp_path / "it.zip").write_bytes(example_zip())
    with (tmp_path / "it.zip").open("rb", buffering=size) as file:
        bundle = load_verifier().Bundle(file)
        for name in ("leaves.txt", "events.jsonl", "results.jsonl"):
            lines = []
            for line in bundle.lines(name):
                lines.append(line)
                bundle.read_at(0, 10)  # others may read in between
            assert lines == PARTS[name].splitlines()


def test_a_line_that_is_too_long_or_has_no_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    v = load_verifier()
    said = judge_example(repack({**PARTS, "events.jsonl": PARTS["events.jsonl"][:-1]}))
    assert said == (1, "events.jsonl: the last line has no newline")
    monkeypatch.setattr(v, "MAX_LINE", 100)
    assert judge_example(example_zip()) == (1, "events.jsonl: a line longer than any can be")


# --- signed nonsense: the holder of the key is hostile -------------------------------------


def lines_of_a_run() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in PARTS["events.jsonl"].splitlines()]
    for line in lines:
        line["envelope"]["ledger"] = KEY.name
    return lines


def forged(change: Callable[[list[dict[str, Any]]], object]) -> tuple[int, str]:
    lines = lines_of_a_run()
    change(lines)
    return judge(forge([encode(line) for line in lines]), str(KEY.verifier_key))


def _payload(index: int, **changes: Any) -> Callable[[list[dict[str, Any]]], object]:
    def change(lines: list[dict[str, Any]]) -> None:
        line = lines[index]
        line["payload"] = {**line["payload"], **changes}
        line["envelope"]["payload_sha256"] = hashlib.sha256(encode(line["payload"])).hexdigest()

    return change


def _envelope(index: int, **changes: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda lines: lines[index]["envelope"].update(changes)


def test_what_is_bent_below_is_sound_but_for_the_root_that_its_report_quotes() -> None:
    assert forged(lambda lines: None) == (1, "report.json: as_of is not the run's last event and the root there")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_envelope(4, position=6), "line 5: position 6"),
        (_envelope(4, position=10**15), "beyond the checkpoint"),
        (_envelope(4, run_version=5), "run_version"),
        (_envelope(4, request_version=7), "request_version"),
        (_envelope(4, run_id="another"), "another run"),
        (_envelope(4, ledger="another"), "another ledger"),
        (_envelope(4, recorded_at="2025-01-01T00:00:00.000000Z"), "recorded_at"),
        (_envelope(4, recorded_at="2026-11-30T20:42:05.000005+"), "one form"),
        (_envelope(4, v=2), "one form"),
        (_envelope(4, extra=1), "one form"),
        (_envelope(4, type="\u001b[2J"), "one form"),
        (_envelope(4, request_id=None), "one form"),
        (_envelope(4, request_id="a b"), "one form"),
        (_envelope(4, run_id="$other"), "one form"),
        (_envelope(4, position=True), "one form"),
        (_envelope(4, event_id="0197a3c0-0000-4000-8000-000000000005"), "one form"),
        (_envelope(4, event_id="-" * 36), "one form"),
        (_envelope(4, schema=10**9), "one form"),
        (_envelope(4, type="LedgerCreated"), "LedgerCreated"),
        (_envelope(0, run_id="example-run"), "LedgerCreated"),
        (_envelope(4, type="LedgerCreated", run_id="$ledger", run_version=2), "LedgerCreated"),
        (_envelope(0, type="RunStarted"), "LedgerCreated"),
        (_payload(13, positions=[14]), "redacts position 14"),
        (_payload(13, positions=[0]), "redacts position 0"),
        (_payload(13, positions=[-1]), "redacts position -1"),
        (_payload(13, positions=[10**9]), "redacts position"),
        (_payload(13, positions=[5]), "although it was redacted"),
        (_payload(13, positions="6"), "not an event of the format"),
        (_payload(13, positions=None), "not an event of the format"),
        (_payload(13, positions=[[]]), "not an event of the format"),
        (_payload(10, sha256=[]), "not an event of the format"),
        (_payload(10, sha256="0" * 64), "ReportIssued"),
        (_payload(10, as_of_position=9), "ReportIssued"),
        (_payload(10, kind="grades"), "ReportIssued"),
        (_payload(9, outcome="auth_error"), "report.json: outcome"),
        (_payload(9, counts={"requests": 1}), "ended with"),
        (_payload(8, risk_level="low"), "report.json: decisions"),
        (_payload(8, turn=2), "ended with"),
        (_payload(8, turn=[]), "ended with"),
        (_payload(8, risk_level={}), "not an event of the format"),
        (_payload(5, outcome_unknown="x"), "not an event of the format"),
        (_payload(5, outcome_unknown=True), "calls.outcome_unknown"),
        (_payload(1, model="another"), "report.json: model"),
        (_payload(1, ratio=0.5), "payload: no canonical JSON"),
        (lambda lines: lines[4].update(content=None, encoding=None, salt=None), "without authority"),
        (lambda lines: lines[4].update(salt=None), "content: edited"),
        (lambda lines: lines[4].update(encoding=None), "without an encoding"),
        (lambda lines: lines[9].update(salt="0" * 64), "without an encoding"),
        (lambda lines: lines[4].update(more=1), "one form"),
        (lambda lines: lines.pop(0), "position 2"),
        (lambda lines: lines[9]["envelope"].update(type="RunResumed"), "report.json: outcome"),
    ],
)
def test_what_the_keys_holder_signed_is_still_held_against_the_format(
    change: Callable[[list[dict[str, Any]]], object], said: str
) -> None:
    code, found = forged(change)
    assert code == 1
    assert said in found


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":1,"a":1}',
        b'{"b":1,"a":1}',
        b'{"a": 1}',
        b'{"a":1.0}',
        b'{"a":NaN}',
        b'{"a":9007199254740992}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\u0041"}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":1}x',
        b"{}}",
        b'{"positions":[6],"positions":[]}',
    ],
    ids=lambda payload: repr(payload[:30]),
)
def test_a_payload_in_another_form_is_refused_although_its_digest_is_signed(payload: bytes) -> None:
    lines = lines_of_a_run()
    made = [encode(line) for line in lines]
    made[3] = event_line(lines[3]["envelope"], payload)
    code, said = judge(forge(made), str(KEY.verifier_key))
    assert code == 1
    assert said.startswith("events.jsonl, line 4: ")


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"null", b"[]", b"\xff", b'{"content":', b'{"content":"' + b"x" * 10**6, b"\xef\xbb\xbf{}"],
    ids=lambda line: repr(line[:20]),
)
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    for at in (0, 5, 14):
        lines = PARTS["events.jsonl"].splitlines()
        lines.insert(at, line)
        code, said = judge_example(repack({**PARTS, "events.jsonl": b"".join(text + b"\n" for text in lines)}))
        assert code == 1
        assert f"line {at + 1}: " in said


def test_a_report_that_is_no_report_is_refused() -> None:
    for text in (b"", b"{}\n", b"[]\n", b"null\n", b'{"as_of":1}\n', b'{"as_of":{"position":1}}\n', b"\xff\n"):
        code, said = judge_example(repack({**PARTS, "report.json": text}))
        assert code == 1
        assert said.startswith("report.json:")


def test_a_manifest_that_names_another_run_or_none_is_refused() -> None:
    for run_id in ("other", "", "a b", None, 1, "\u001b[31m", "$ledger", "a\n", ["x"]):
        assert judge_example(repack(PARTS, run_id=run_id))[0] == 1
    for changes in ({"bundle": 2}, {"size": 15}, {"ledger": "other"}, {"more": 1}, {"bundle": True}):
        assert judge_example(repack(PARTS, **changes))[0] == 1


def test_nothing_that_a_bundle_says_reaches_the_terminal_raw(tmp_path: Path) -> None:
    path = tmp_path / "hostile.zip"
    hostile = "\x1b]0;owned\x07\u202e\x1b[2J"
    note = f"{hostile}\n14\n{'A' * 43}=\n\n\u2014 {hostile} {'A' * 92}\n".encode()
    for parts in (
        {**PARTS, "checkpoint.txt": note},
        {**PARTS, "manifest.json": hostile.encode()},
        {**PARTS, "events.jsonl": hostile.encode() + b"\n"},
    ):
        path.write_bytes(pack(parts) if "manifest.json" in parts and len(parts) else repack(parts))
        code, said = run_main(path, "--key", vkey())
        assert code == 1
        assert re.fullmatch("[ -~\n]+", said)


# --- the program ---------------------------------------------------------------------------


def test_it_runs_isolated_and_gives_each_exit_code(tmp_path: Path) -> None:
    bundle, checkpoint = EXAMPLE / "audit-example-run.zip", EXAMPLE / "pinned-checkpoint-all.txt"
    smaller = EXAMPLE / "pinned-checkpoint-10.txt"
    done = standalone(bundle, "--key", vkey(), "--checkpoint", checkpoint)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("PASS  run example-run of ledger.example/audit\n")
    assert standalone(bundle, "--key", vkey(), "--checkpoint", smaller).returncode == 3
    assert standalone(bundle, "--key", vkey(), "--checkpoint", smaller, "--max-window", 4).returncode == 0
    done = standalone(bundle, "--key", vkey())
    assert (done.returncode, done.stdout.split()[0]) == (3, "INCOMPLETE")
    bent = bytearray(example_zip())
    path = tmp_path / "bent.zip"
    for at in range(50, len(bent), len(bent) // 12):
        bent[at] ^= 4
        path.write_bytes(bent)
        done = standalone(path, "--key", vkey(), "--checkpoint", checkpoint)
        assert (done.returncode, done.stderr, done.stdout.split()[0]) == (1, "", "FAIL")
        bent[at] ^= 4


def test_wrong_use_ends_with_2(tmp_path: Path) -> None:
    bundle, pinned = EXAMPLE / "audit-example-run.zip", EXAMPLE / "pinned-checkpoint-all.txt"
    for words in (
        (),
        (bundle,),
        (bundle, "--key", "nonsense"),
        (bundle, "--key", vkey() + "x"),
        (tmp_path / "none.zip", "--key", vkey()),
        (tmp_path, "--key", vkey()),
        (bundle, "--key", vkey(), "--checkpoint", tmp_path / "none.txt"),
        (bundle, "--key", vkey(), "--max-window", "many"),
        (bundle, "--key", vkey(), "--checkpoint", pinned, "--no-such-option"),
    ):
        code, said = run_main(*words)
        assert code == 2, words
        assert "Traceback" not in said


def test_a_checkpoint_of_ones_own_that_is_none_fails_and_is_not_ignored(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    for text in (b"", b"nonsense", (EXAMPLE / "pinned-checkpoint-all.txt").read_bytes()[:-10], b"\xff"):
        kept.write_bytes(text)
        code, said = run_main(EXAMPLE / "audit-example-run.zip", "--key", vkey(), "--checkpoint", kept)
        assert code == 1
        assert "that you kept" in said


def test_a_file_beside_the_bundle_that_is_too_large_is_refused_and_not_read_in_part(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_bytes((EXAMPLE / "pinned-checkpoint-all.txt").read_bytes() + b"\n" * 2**20)
    code, said = run_main(EXAMPLE / "audit-example-run.zip", "--key", vkey(), "--checkpoint", kept)
    assert code == 1
    assert "larger than it can be" in said


def test_a_pipe_is_no_bundle() -> None:
    command = [sys.executable, "-I", "-S", str(PROGRAM), "/dev/stdin", "--key", vkey()]
    done = subprocess.run(command, input=example_zip(), capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


WORDS = (EXAMPLE / "audit-example-run.zip", "--key", vkey(), "--checkpoint", EXAMPLE / "pinned-checkpoint-all.txt")


@pytest.mark.parametrize("redirected", [">/dev/full", ">&-", "| true"])
@pytest.mark.parametrize("words", [WORDS, WORDS[:3]], ids=["PASS", "INCOMPLETE"])
def test_a_verdict_that_nobody_can_read_ended_with_120_and_a_complaint_of_python_itself(
    words: tuple[object, ...], redirected: str
) -> None:
    program = shlex.join([sys.executable, "-I", "-S", str(PROGRAM), *map(str, words)])
    script = f"set -o pipefail; (sleep 0.5; {program}) {redirected}"  # by then, ``true`` has ended
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "")


def test_a_wrong_option_was_echoed_raw(tmp_path: Path) -> None:
    for words in (("--bad\x1b[31m",), ("--max-window", "\x1b[31m"), ("\x1b[31m", "\x1b[32m")):
        done = standalone(*WORDS, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "\\x1b[3" in done.stderr
        assert re.fullmatch("[ -~\n]+", done.stderr)


def test_a_window_smaller_than_none_was_taken() -> None:
    done = standalone(*WORDS, "--max-window", "-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--max-window" in done.stderr


def test_a_named_pipe_as_the_bundle_was_waited_for_without_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = standalone(tmp_path / "pipe", "--key", vkey())
    assert (done.returncode, done.stdout) == (2, "")
    assert "no regular file" in done.stderr


def test_a_file_of_another_kind_was_called_a_bundle_that_does_not_match(tmp_path: Path) -> None:
    path = tmp_path / "it"
    for data in (PARTS["report.html"], b"", b"x", PARTS["checkpoint.txt"]):
        path.write_bytes(data)
        code, said = run_main(path, *WORDS[1:])
        assert code == 2
        assert "neither a bundle nor a proof" in said
    whole = example_zip()
    for damaged in (b"\0" + whole[1:], whole[:-22] + b"\0" + whole[-21:], whole[:30], whole[1:], whole + b"\n"):
        path.write_bytes(damaged)
        code, said = run_main(path, *WORDS[1:])
        assert code == 1, said
        assert "zip: " in said


def test_the_name_of_a_file_with_the_key_was_called_a_bad_key_without_a_hint(tmp_path: Path) -> None:
    (tmp_path / "ledger.vkey").write_text(vkey() + "\n")
    code, said = run_main(WORDS[0], "--key", tmp_path / "ledger.vkey")
    assert code == 2
    assert '--key "$(cat FILE)"' in said


def test_it_imports_the_standard_library_alone_and_nothing_imports_it() -> None:
    tree = ast.parse(PROGRAM.read_text())
    imported = {
        name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    } | {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)
    assert not imported & {"os", "subprocess", "socket", "ssl", "ctypes", "zipfile", "pickle", "urllib"}
    for room in ("cli.py", "commands", "ledger", "runner", "migrations"):
        for path in [ROOT / room] if room.endswith(".py") else (ROOT / room).rglob("*.py"):
            assert not re.search(r"(from|import) .*bundle(\.| import )verifier\b", path.read_text()), path


def test_the_page_on_evidence_names_the_digest_of_the_file() -> None:
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    digests = re.findall(r"\b([0-9a-f]{64})  verify\.py\b", page)
    assert digests == [hashlib.sha256(PROGRAM.read_bytes()).hexdigest()]


def test_payloads_of_a_later_version_leave_the_counts_unproven() -> None:
    """Forged, so that the rest is judged too: only the root that the report quotes is left to be wrong."""
    v = load_verifier()
    lines = lines_of_a_run()
    _envelope(3, schema=2)(lines)
    checkpoint = v.Checkpoint(KEY.name, 14, bytes(32), None)
    record = v.Record("example-run", checkpoint)
    for line in lines:
        record.take(v.Event(encode(line)))
    unproven: list[str] = []
    v.check_report(v.Bundle(io.BytesIO(example_zip())), record, {}, unproven)
    assert "newer verify.py" in unproven[0]


def test_other_runs_are_spoken_of_as_what_they_are_said_to_be(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="one", lines=3), told(1, run_id="two", lines=3)) as store:
        data, _ = bundle_of(store, "one")
        code, said = judge(data, str(KEY.verifier_key), sign(store).encode())
    assert code == 0
    assert "said to be of other runs" in said
    assert "said to be of other runs" not in judge_example(example_zip())[1]
