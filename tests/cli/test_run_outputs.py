"""``run --out FILE``: what a run came to, in files, each by its extension."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint, free_port

Against = Callable[..., MockEndpoint]


def test_files_hold_what_report_and_results_print(program: Program, against: Against, three: Path) -> None:
    against()
    names = ("r.json", "r.txt", "r.html", "r.jsonl", "r.csv")
    outs = [word for name in names for word in ("--out", name)]
    ended = program("run", three, "--run-id", "r", *outs)
    assert (ended.code, ended.out) == (0, b"")
    for name in names:
        verb = "results" if name in {"r.jsonl", "r.csv"} else "report"
        again = program(verb, "r", "--out", "again" + Path(name).suffix)
        assert again.code == 0
        assert (program.folder / name).read_bytes() == (program.folder / f"again{Path(name).suffix}").read_bytes()
        assert f"Wrote:  {name} ({verb})" in ended.err
    assert program("verify").code == 0


def test_a_file_of_no_known_extension_was_filled_without_a_word(
    program: Program, against: Against, three: Path
) -> None:
    against()
    assert program("run", three, "--run-id", "r").code == 0
    (program.folder / "labels.jsonl").write_text('{"request_id":"INC-1","risk_level":"low"}\n')
    size = program("db", "status", "--json").json["size"]
    for words, known in (
        (("report", "r", "--issue"), ".json, .html, .htm, .txt, .md, .xml"),
        (("results", "r"), ".jsonl, .csv, .txt, .html, .htm"),
        (("grade", "r", "labels.jsonl", "--issue"), ".json, .html, .htm, .txt, .md, .xml"),
        (("compare", "r", "r"), ".json, .html, .htm, .txt"),
        (("reproduce", "r"), ".json, .jsonl, .txt"),
        (("sql", "SELECT 1"), ".txt, .csv, .json, .jsonl"),
    ):
        ended = program(*words, "--out", "o.pdf")
        assert (ended.code, ended.out) == (2, b""), words
        assert f"o.pdf does not say by its extension what it is to be: {known}; or name" in ended.err
        assert not (program.folder / "o.pdf").exists()
    assert program("db", "status", "--json").json["size"] == size
    for out in ("o.pdf", "/dev/null"):
        words = ("--format", "json") if out == "o.pdf" else ()
        assert program("compare", "r", "r", "--out", out, *words).code == 0
    assert (program.folder / "o.pdf").read_bytes().startswith(b"{")


def test_a_run_that_ends_badly_is_written_down_too(program: Program, against: Against, three: Path) -> None:
    against({"status": 401})
    ended = program("run", three, "-j", "1", "--run-id", "r", "--out", "r.json")
    assert ended.code == 4
    assert b'"outcome":"auth_error"' in (program.folder / "r.json").read_bytes()
    again = program("resume", "r", "--out", "again.json")
    assert again.code == 2
    assert not (program.folder / "again.json").exists()


@pytest.mark.parametrize(
    ("outs", "says"),
    [
        (("r.pdf",), "r.pdf does not say by its extension"),
        (("r",), "r does not say by its extension"),
        (("-",), "--out: names a file"),
        (("r.json", "./r.json"), "is also --out"),
        (("incidents.jsonl",), "is also the input"),
        (("nowhere/r.json",), "no folder"),
        (("old.json",), "belongs to the database"),
        (("r.json", "--dry-run"), "a dry run has no report"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_before_anything_is_called(
    program: Program, against: Against, three: Path, outs: tuple[str, ...], says: str
) -> None:
    endpoint = against()
    assert three.name == "incidents.jsonl"
    program("db", "upgrade", "--ledger", "sqlite:///old.json", "--no-key")
    before = three.read_bytes()
    words = [word for out in outs for word in ((out,) if out.startswith("--") else ("--out", out))]
    ended = program("run", three, *words)
    assert ended.code == 2
    assert says in ended.err
    assert endpoint.requests() == []
    assert three.read_bytes() == before
    assert not (program.folder / "replay-ledger.db").exists()


def test_a_run_that_was_stopped_is_written_down_as_it_stands(program: Program) -> None:
    write_requests(program.folder / "many.jsonl", 25)
    nobody = ("--base-url", f"http://127.0.0.1:{free_port()}", "--no-api-key", "--max-attempts", "1")
    assert program("run", "many.jsonl", "--run-id", "r", *nobody, "-j", "1", "--out", "r.json").code == 4
    assert b'"outcome":"incomplete"' in (program.folder / "r.json").read_bytes()
    assert program("resume", "r", "--out", "again.csv").code in {1, 4}
    assert (program.folder / "again.csv").read_bytes() == program("results", "r", "--format", "csv").out


def test_a_file_that_cannot_be_written_was_found_after_every_call_was_paid_for(
    program: Program, against: Against, three: Path
) -> None:
    endpoint = against()
    folder = program.folder / "rof"
    folder.mkdir()
    (program.folder / "there.json").mkdir()
    (program.folder / "kept.csv").write_text("mine")
    (program.folder / "kept.csv").chmod(0o444)
    (program.folder / "away.json").symlink_to("nowhere/away.json")
    before = sorted(program.folder.iterdir())
    folder.chmod(0o555)
    try:
        for out in ("rof/x.json", "there.json", "kept.csv", "away.json"):
            ended = program.unprivileged("run", three, "--out", "r.json", "--out", out)
            assert (ended.code, f"Error: {out} cannot be written: " in ended.err) == (2, True), ended.err
    finally:
        folder.chmod(0o755)
    assert endpoint.requests() == []
    assert sorted(program.folder.iterdir()) == before
    assert list(folder.iterdir()) == []


def test_a_file_that_could_not_be_written_in_the_end_made_a_completed_run_pass_for_bad_input(
    program: Program, against: Against, three: Path
) -> None:
    against(delay_ms=500)
    folder = program.folder / "rof"
    folder.mkdir()
    process = program.start("run", three, "--run-id", "r", "-j", "1", "--out", "rof/x.json", "--out", "r.csv")
    deadline = time.monotonic() + 30
    while not (program.folder / "replay-ledger.db").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    folder.rmdir()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    assert b"Unexpected" not in err
    assert b"Error: rof/x.json: no such file or directory\n" in err
    assert b"The run is recorded. To write it: replay-ledger report r --out rof/x.json\n" in err
    assert b"Wrote:  r.csv (results)" in err
    folder.mkdir()
    assert program("report", "r", "--out", "rof/x.json").code == 0
