"""``results --format html`` and ``--request-id``, as people use them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import Program, request_line, write_requests
from tests.cli.test_read import on_a_terminal
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]


@pytest.fixture
def recorded(program: Program, against: Against, tmp_path: Path) -> Program:
    """A ledger with one run of three requests, the second of which took a failed call and a corrective turn."""
    against(
        {"match": "incident 2", "status": 503},
        {"match": "incident 2", "content": "<script>alert(1)</script>"},
    )
    file = write_requests(tmp_path / "in.jsonl", 3)
    assert program("run", file, "--run-id", "r1", "--variant", "contract_tuned_v1").code == 0
    return program


def altered(program: Program) -> int:
    """Another text in the place of an accepted answer, by whoever owns the file; its position."""
    with closing(sqlite3.connect(program.folder / "replay-ledger.db")) as ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            ledger.execute(f'DROP TRIGGER "{trigger}"')
        sql = "SELECT position FROM events WHERE type = 'OutputAccepted' AND request_id = 'INC-3'"
        (position,) = ledger.execute(sql).fetchone()
        ledger.execute("UPDATE contents SET body = replace(body, 'high', 'low') WHERE position = ?", (position,))
        ledger.commit()
    return int(position)


def test_the_page_is_chosen_by_format_or_extension_and_leaves_the_ledger_as_it_was(recorded: Program) -> None:
    before = (recorded.folder / "replay-ledger.db").read_bytes()
    shown = recorded("results", "r1", "--format", "html")
    assert (shown.code, shown.err) == (0, "")
    assert recorded("results", "r1", "--out", "page.HTML").code == 0
    assert (recorded.folder / "page.HTML").read_bytes() == shown.out
    assert (recorded.folder / "replay-ledger.db").read_bytes() == before
    page = shown.text
    for said in (
        *(
            "Failed: http_503, HTTP 503",
            "The corrective turn",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            "restart edge proxy",
        ),
        *("broken: model_output_invalid_json", "accepted after the corrective turn", "Decide on incident 3."),
    ):
        assert said in page, said
    assert "<script" not in page


def test_a_line_on_the_terminal_tells_how_far_the_page_is_and_goes_away_and_never_mixes_with_the_page(
    recorded: Program,
) -> None:
    seen = on_a_terminal(recorded, "results", "r1", "--out", "page.html")
    assert "1/3 lines of the index" in seen
    assert seen.endswith("\r\x1b[K")
    only = on_a_terminal(recorded, "results", "r1", "--request-id", "INC-1", "--out", "page.html")
    assert "1/1 lines" in only
    page = on_a_terminal(recorded, "results", "r1", "--format", "html")
    assert page.startswith("<!doctype html>")
    assert "\x1b" not in page


def test_only_the_requests_asked_for_come_in_every_format(recorded: Program) -> None:
    only = ("--request-id", "INC-3", "--request-id", "INC-1")
    lines = [json.loads(line) for line in recorded("results", "r1", *only).text.splitlines()]
    assert [line["request_id"] for line in lines] == ["INC-1", "INC-3"]
    assert len(recorded("results", "r1", "--format", "csv", *only).text.splitlines()) == 3
    page = recorded("results", "r1", "--format", "html", *only).text
    assert page.count("<article") == 2
    assert "Decide on incident 2." not in page


@pytest.mark.parametrize("form", ["jsonl", "html"])
def test_a_request_that_the_run_does_not_have_is_refused_before_anything_is_written(
    recorded: Program, form: str
) -> None:
    words = ("results", "r1", "--format", form, "--out", "x", "--request-id", "INC-1", "--request-id")
    for asked, said in (("INC-9", "run r1 has no request 'INC-9'"), ("\x1b[2J", "is no request id")):
        ended = recorded(*words, asked)
        assert (ended.code, ended.out) == (2, b"")
        assert said in ended.err
        assert not (recorded.folder / "x").exists()


def test_a_line_that_was_refused_is_told_as_such(program: Program, against: Against, tmp_path: Path) -> None:
    against()
    leaking = json.dumps(json.loads(request_line(2)) | {"ground_truth": {"expected_action": "wipe it"}})
    file = write_requests(tmp_path / "in.jsonl", 2, bad={2: leaking})
    program("run", file, "--run-id", "r1", "--on-leak", "reject")
    page = program("results", "r1", "--format", "html").text
    assert "refused: holds its own labels" in page
    assert "wipe it" not in page
    ended = program("results", "r1", "--request-id", "INC-2")
    assert ended.code == 2
    assert "was never put to the model" in ended.err


def test_a_text_that_is_not_the_recorded_one_is_named_and_ends_with_1(recorded: Program) -> None:
    position = altered(recorded)
    page = recorded("results", "r1", "--out", "page.html")
    assert page.code == 1
    assert f"The content of position {position} does not match the record" in page.err
    assert "Does not match the record" in (recorded.folder / "page.html").read_text()
    for form in ("jsonl", "csv", "table"):
        ended = recorded("results", "r1", "--format", form, "--out", f"r.{form}")
        assert ended.code == 1
        assert f"the content of position {position} does not match the record" in ended.err
        assert not (recorded.folder / f"r.{form}").exists()
    assert recorded("results", "r1", "--request-id", "INC-1").code == 0
