"""``report`` and ``grade`` in the formats that other tools read: a pull request, continuous integration."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from ledger.render.issue import RENDERINGS
from tests.cli.program import Program, request_line
from tests.harness.mock_endpoint import MockEndpoint
from tests.ledger.render.test_markdown import check_harmless
from tests.ledger.render.test_report_junit import properties, read

Against = Callable[..., MockEndpoint]
FORMATS = sorted({of.format for of in RENDERINGS if of.kind == "report"})


@pytest.fixture
def mixed(program: Program, against: Against) -> Program:
    """A ledger with one run, r1: an answer, a fallback, a line that leaks and one that is no request."""
    against({"match": "incident 2.", "content": "no JSON"})
    leaking = request_line(3, evaluation_labels={"risk_level": "high"})
    lines = [request_line(1), request_line(2), leaking, request_line(1), request_line(4)]
    (program.folder / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("--on-leak", "reject", "--on-invalid", "reject", "--out", "run.md", "--out", "run.xml")
    ended = program("run", "in.jsonl", "--run-id", "r1", *words, "--max-fallback-rate", "1")
    assert "Wrote:  run.md (report)" in ended.err
    assert "Wrote:  run.xml (report)" in ended.err
    return program


def test_a_run_is_a_suite_and_each_of_its_lines_a_case(mixed: Program) -> None:
    ended = mixed("report", "r1", "--format", "junit")
    assert ended.code == 0, "whatever the verdict is"
    root = read(ended.out)
    cases = {case.attrib["name"]: case for case in root.iter("testcase")}
    assert {name: [(child.tag, child.attrib["type"]) for child in case] for name, case in cases.items()} == {
        "INC-1": [],
        "INC-2": [("failure", "model_output_invalid_json")],
        "INC-3 (line 3)": [("error", "request_self_grading_leak")],
        "INC-1 (line 4)": [("error", "request_invalid")],
        "INC-4": [],
    }
    report = mixed("report", "r1")
    assert properties(root)["report_json_sha256"] == sha256(report.out).hexdigest()
    assert properties(root)["root"] == report.json["as_of"]["root"]
    assert root.attrib["tests"] == str(report.json["requests"])


def test_what_a_run_wrote_is_what_report_prints(mixed: Program) -> None:
    for form, name in (("md", "run.md"), ("junit", "run.xml")):
        assert (mixed.folder / name).read_bytes() == mixed("report", "r1", "--format", form).out
        mixed("report", "r1", "--out", f"again{Path(name).suffix}")
        assert (mixed.folder / f"again{Path(name).suffix}").read_bytes() == (mixed.folder / name).read_bytes()


def test_the_markdown_says_what_a_reviewer_needs(mixed: Program) -> None:
    text = mixed("report", "r1", "--format", "md").text
    check_harmless(text)
    for line in (
        "- 1 request without an answer that could be accepted",
        "- 1 request refused for holding the labels it is judged by",
        "- 1 request refused as no valid request",
        "| selection | `all 5 lines` |",
        "| **all requests** | **5** |",
        "## Without an accepted answer: 3",
        "| cost | not priced |",
    ):
        assert line in text.splitlines()


def test_every_format_is_issued_and_found_again_once_all_content_is_gone(mixed: Program) -> None:
    for form in FORMATS:
        ended = mixed("report", "r1", "--format", form, "--issue", "--out", f"issued.{form}")
        assert (ended.code, "Issued at position" in ended.err) == (0, True), ended.err
    assert mixed("redact", "--run", "r1", "--reason", "asked", "--yes").code == 0
    for form in FORMATS:
        checked = mixed("report-check", f"issued.{form}")
        assert checked.code == 0, checked.err
        assert f"report of run r1 as {form}" in checked.err
    assert mixed("verify").code == 0


def test_grades_are_a_suite_too_and_found_again(mixed: Program) -> None:
    labels = [{"request_id": "INC-1", "risk_level": "high"}, {"request_id": "INC-2", "dangerous": True}]
    (mixed.folder / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels), encoding="utf-8")
    graded = mixed("grade", "r1", "labels.jsonl", "--issue", "--out", "g.xml")
    assert graded.code == 0, graded.err
    root = read((mixed.folder / "g.xml").read_bytes())
    assert [(case.attrib["name"], *(child.tag for child in case)) for case in root.iter("testcase")] == [
        ("INC-1",),
        ("INC-2", "error"),
    ]
    assert properties(root)["unlabelled"] == "1"
    markdown = mixed("grade", "r1", "--issue", "--out", "g.md")
    assert (markdown.code, markdown.out) == (0, b"")
    check_harmless((mixed.folder / "g.md").read_text(encoding="utf-8"))
    assert mixed("redact", "--run", "r1", "--reason", "asked", "--yes").code == 0
    for name in ("g.xml", "g.md"):
        assert mixed("report-check", name).code == 0
    assert mixed("grade", "r1", "--format", "md").out == (mixed.folder / "g.md").read_bytes()
