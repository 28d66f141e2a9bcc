"""Faults of reports that people told of in public, played through the program: a run over HTTP, then what is printed.

The inputs lie beside the clone and are not part of it; where they are absent these tests skip. Every format comes
from the table of renderings, so that one added later is held to the same. That hash seed, locale, time zone and
folder change no byte (UCL/TLOmodel#419) is ``tests/ledger/render/test_same_bytes.py``.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledger.render.issue import RENDERINGS
from ledger.store import open_store
from tests.cli.program import Program, request_line, write_requests
from tests.harness.mock_endpoint import MockEndpoint
from tests.ledger.render.test_markdown import check_harmless
from tests.ledger.render.test_report_junit import read

Against = Callable[..., MockEndpoint]
CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "cases.json"
REPORTS: list[dict[str, Any]] = json.loads(CASES.read_text(encoding="utf-8")) if CASES.exists() else []
REPORT_FORMATS = sorted({of.format for of in RENDERINGS if of.kind == "report"})

pytestmark = pytest.mark.skipif(not REPORTS, reason="the public reports are not beside this clone")


def by_source(source: str) -> Any:
    return next(report for report in REPORTS if report["source"] == source)["input"]


def every_rendering(program: Program, run: str) -> Iterator[tuple[str, str, bytes]]:
    """Kind, format and bytes of everything that can be issued of the run, in every version."""
    with open_store(f"sqlite:///{program.folder / 'replay-ledger.db'}", "read") as store:
        for of in RENDERINGS:
            if of.kind != "grades":
                yield of.kind, of.format, b"".join(of.render(store, run, None))


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))


def test_no_text_of_a_model_runs_as_a_formula_and_no_number_is_made_a_text(program: Program, against: Against) -> None:
    answers = by_source("promptfoo/promptfoo#9609")
    against(*({"content": answer} for answer in answers))
    file = write_requests(program.folder / "six.jsonl", len(answers))
    assert program("run", file, "--run-id", "r1", "-j", "1").code == 0
    said = [json.loads(answer)["proposed_action"] for answer in answers]
    cells = [row["proposed_action"] for row in rows_of(program("results", "r1", "--format", "csv").out)]
    assert cells == ["'" + text for text in said]
    whole = [json.loads(line)["model_output"]["proposed_action"] for line in program("results", "r1").out.splitlines()]
    assert whole == said, "JSON is as it was"
    for kind, form, data in every_rendering(program, "r1"):
        if form == "csv":
            for row in csv.reader(io.StringIO(data.decode(), newline="")):
                assert not [cell for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\u200b"))]
        if kind == "report":
            assert b"HYPERLINK" not in data, "free text is in no report"
    asked = program("sql", 'SELECT -3.5 AS "=1+1", \'=1+1\' AS "-2", 7 AS plain', "--format", "csv")
    assert asked.out == b"'=1+1,'-2,plain\r\n-3.5,'=1+1,7\r\n"


def test_a_table_in_markdown_keeps_its_columns_whatever_stands_in_a_cell(program: Program, against: Against) -> None:
    answer = by_source("oekazuma/svelte-vitals#465")
    text = json.loads(answer)["proposed_action"]
    model = "grep-a\\|b`|<wc>&lt;"
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
    against({"status": 200, "body": {"id": "c-1", "model": model, "choices": [choice]}})
    file = write_requests(program.folder / "one.jsonl", 1)
    assert program("run", file, "--run-id", "r1", "--model", "asked|for").code == 0
    markdown = program("report", "r1", "--format", "md").text
    for page in check_harmless(markdown, {2, 5, 8}):
        assert ["grep-a\\\\x7cb\\x60\\x7c\\x3cwc\\x3e\\x26lt;", "1"] in page.cells
        assert ["model asked", "asked\\x7cfor"] in page.cells
    assert program("report", "r1").json["models_answered"] == {model: 1}
    assert json.loads(program("results", "r1").out)["model_output"]["proposed_action"] == text
    for kind, form, data in every_rendering(program, "r1"):
        assert kind != "report" or b"then stop" not in data, form


def test_unknown_usage_is_never_0_in_whatever_format(program: Program, against: Against) -> None:
    answer = {"proposed_action": "restart", "action_plan": [], "risk_level": "low"}
    answer |= {"requires_human_approval": False, "blocked_by_policy": True}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(answer)}}
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    told = [usage] * 8 + [None, {name: str(count) for name, count in usage.items()}]
    body = {"id": "c-1", "model": "m", "choices": [choice]}
    against(*({"status": 200, "body": {**body, "usage": of}} for of in told))
    file = write_requests(program.folder / "ten.jsonl", 10)
    assert program("run", file, "--run-id", "r1").code == 0
    tokens = program("report", "r1").json["tokens"]
    assert tokens == {"prompt": 80, "completion": 24, "total": 104, **tokens}
    assert (tokens["cached"], tokens["reasoning"], tokens["calls_without_usage"]) == (None, None, 2)
    words = "prompt 80, completion 24, total 104, cached unknown, reasoning unknown"
    markdown, text = (program("report", "r1", "--format", form).text for form in ("md", "text"))
    assert f"| tokens | {words} |" in markdown
    assert "| usage unknown | 2 of 10 answered calls |" in markdown
    assert f"tokens: {words}" in text
    assert "usage unknown: 2 of 10 answered calls" in text
    unknown = [row for row in rows_of(program("results", "r1", "--format", "csv").out) if not row["prompt_tokens"]]
    assert len(unknown) == 2
    for _, form, data in every_rendering(program, "r1"):
        assert b"-1 " not in data, form
        if form == "html":
            assert b"unknown" in data


def test_one_record_that_cannot_be_read_is_named_and_the_rest_is_kept(program: Program, against: Against) -> None:
    against()
    file = write_requests(program.folder / "some.jsonl", 30)
    assert program("run", file, "--run-id", "r1").code == 0
    with closing(sqlite3.connect(program.folder / "replay-ledger.db")) as ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            ledger.execute(f'DROP TRIGGER "{trigger}"')
        sql = "SELECT position FROM events WHERE type = 'OutputAccepted' AND request_id = 'INC-7'"
        ((position,),) = ledger.execute(sql).fetchall()
        ledger.execute("UPDATE events SET payload = '{' WHERE position = ?", (position,))
        ledger.commit()
    for form in REPORT_FORMATS:
        ended = program("report", "r1", "--format", form)
        assert ended.code == 1, form
        assert f"Event {position} cannot be read" in ended.err
        assert f"unreadable:{position}" in ended.text, form
    made = program("report", "r1").json
    assert (made["valid"], made["accepted_first"], made["incomplete"], made["requests"]) == (False, 29, 1, 30)
    root = read(program("report", "r1", "--format", "junit").out)
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("30", "0", "1")
    for form in ("jsonl", "csv"):
        ended = program("results", "r1", "--format", form)
        assert ended.code == 1
        assert ended.text.count("INC-") >= 29
        assert "INC-30" in ended.text
        assert "INC-7" not in ended.text


def test_a_request_that_cannot_be_read_does_not_stop_what_follows(program: Program, against: Against) -> None:
    """Not its line: nobody knows that it was one. It is still told, and the run is not usable in any format."""
    against()
    file = program.folder / "some.jsonl"
    file.write_text("".join(request_line(number) + "\n" for number in range(1, 4)), encoding="utf-8")
    assert program("run", file, "--run-id", "r1").code == 0
    with closing(sqlite3.connect(program.folder / "replay-ledger.db")) as ledger:
        for (trigger,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            ledger.execute(f'DROP TRIGGER "{trigger}"')
        ledger.execute("UPDATE events SET payload = '[]' WHERE type = 'RequestAccepted' AND request_id = 'INC-2'")
        ledger.commit()
    assert program("report", "r1").json["requests"] == 2
    root = read(program("report", "r1", "--format", "junit").out)
    assert int(root.attrib["errors"]) == 1, "both that can be read passed, and it is no green light"
    assert "Usable as evaluation: no" in program("report", "r1", "--format", "md").text
