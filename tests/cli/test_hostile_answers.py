"""Answers that try something on whoever reads them: a page, a spreadsheet, a terminal. Nothing of it acts.

The free text stands in ``results``, ``show`` and ``compare`` only; no format of a report holds any.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from ledger.render.issue import RENDERINGS
from ledger.store import open_store
from tests.cli.program import Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
LONG = "x" * 900_000
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)></td></table></style>",
    '=HYPERLINK("http://x.example","ok")',
    "+cmd|' /C calc'!A0",
    "a|b`c``d\\|e<!-- [x](javascript:y)",
    "one\ntwo\r\nthree",
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://x.example\x07link\x1b]8;;\x07\x9b31m",
    "safe\u202egnp.exe\u2066x\u2069\u200b",
    LONG,
)
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What moves a terminal's cursor, hides or turns text round; a line feed ends our own lines."""


class Tags(HTMLParser):
    """The elements and attributes that a browser would find."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.feed(page.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {value or "" for name, value in attrs if name in ("href", "src")}


def check_page(page: bytes) -> None:
    found = Tags(page)
    assert not found.tags & {"script", "img", "iframe", "object", "form", "link", "base"}
    assert not [name for name in found.attributes if name.startswith("on")]
    assert not [address for address in found.addresses if not address.startswith("#")]
    assert not ACTS.search(page.decode("utf-8"))


@pytest.fixture
def recorded(program: Program, against: Against) -> Program:
    """Two runs, r1 and r2, of the same incidents; each answer of r1 is hostile, and r2 differs in every one."""
    flags = {"requires_human_approval": False, "blocked_by_policy": False}
    risks = {"r1": "low", "r2": "high"}
    file = write_requests(program.folder / "in.jsonl", len(HOSTILE))
    for run, risk in risks.items():
        answers = [
            {"proposed_action": text, "action_plan": [text[:500], "b"], "risk_level": risk, **flags} for text in HOSTILE
        ]
        against(*({"content": json.dumps(answer)} for answer in answers))
        assert program("run", file, "--run-id", run, "-j", "1").code == 0
    return program


def test_nothing_that_a_model_wrote_acts_wherever_it_is_shown(recorded: Program) -> None:
    lines = recorded("results", "r1", "--format", "jsonl").text.splitlines()
    assert tuple(json.loads(line)["model_output"]["proposed_action"] for line in lines) == HOSTILE, "to the letter"

    table = recorded("results", "r1", "--format", "table").text
    assert len(table.splitlines()) == len(HOSTILE) + 1
    assert max(map(len, table.splitlines())) < 400
    texts = [table, recorded("compare", "r1", "r2", "--format", "text").text]
    texts += [recorded("show", "r1", f"INC-{number}").text for number in (1, 6, 7)]
    texts.append(recorded("show", "r1", "INC-6", "--content").text)
    for text in texts:
        assert not ACTS.search(text)
    assert r"\x1b]0;owned\x07" in table

    for words in (("compare", "r1", "r2"), ("results", "r1")):
        ended = recorded(*words, "--format", "html")
        assert ended.code in {0, 1}, "a comparison that finds a difference ends with 1"
        check_page(ended.out)
        assert b"&lt;script&gt;alert(1)" in ended.out


def test_a_spreadsheet_and_a_csv_reader_find_texts_and_no_formulas(recorded: Program) -> None:
    before = csv.field_size_limit(len(LONG) + 1)
    try:
        data = recorded("results", "r1", "--format", "csv").text
        rows = list(csv.reader(io.StringIO(data, newline=""), strict=True))
    finally:
        csv.field_size_limit(before)
    assert len(rows) == len(HOSTILE) + 1
    assert {len(row) for row in rows} == {len(rows[0])}
    place = rows[0].index("proposed_action")
    assert [row[place].removeprefix("'") for row in rows[1:]] == list(HOSTILE)
    assert not [cell[:20] for row in rows for cell in row if re.match(r"\s*[=+\-@]", cell)]
    assert all(row[rows[0].index("prompt_tokens")].isdigit() for row in rows[1:])


def test_no_format_of_a_report_holds_a_word_of_it(recorded: Program) -> None:
    with open_store(f"sqlite:///{recorded.folder / 'replay-ledger.db'}", "read") as store:
        for of in RENDERINGS:
            if of.kind == "report":
                data = b"".join(of.render(store, "r1", None))
                assert not re.search(rb"alert\(|HYPERLINK|cmd\||gnp|xxxxx|three", data), of.format
                if of.format == "html":
                    check_page(data)
