"""A report as a page: safe wherever it is opened, readable by everyone, and for ever the same in its version."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given

from ledger.events import NewEvent
from ledger.projections.report import ReportFold
from ledger.render import report_html_1
from tests.ledger.render.test_report import report_of
from tests.stories import as_events, stories, story

GOLDEN = Path(__file__).parents[2] / "data" / "report_html"
HOSTILE = "</style><script>alert(1)</script>\"'&<img src=x onerror=y>\u202e\x00\x1b[2J"


class Page(HTMLParser):
    """What a browser would make of it: tags in balance, attributes, text."""

    VOID = ("meta",)

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A report with something in every section."""
    for seed in range(10_000):
        found = report_of(story(Random(seed)))
        if all(found[name] for name in ("errors", "first_errors", "allowances", "facets", "failures", "policy_ids")):
            return found
    raise AssertionError("no story has it all")


def of(seed: int) -> dict[str, Any]:
    fold = ReportFold("run-1")
    for event in as_events(story(Random(seed))):
        fold.fold(event)
    return fold.finish(bytes(range(32)))


@pytest.mark.parametrize("name", ["completed", "blocked", "everything"])
def test_version_1_gives_the_bytes_that_it_always_gave(name: str) -> None:
    """Reports were issued with these bytes. A change to the page is a new version, never a change to these files."""
    import json

    made = json.loads((GOLDEN / f"{name}.json").read_bytes())
    assert report_html_1.render(made) == (GOLDEN / f"{name}.1.html").read_bytes()


@given(stories())
def test_every_report_is_a_well_formed_page_in_balance(told: list[NewEvent]) -> None:
    page = Page(report_html_1.render(report_of(told)))
    assert page.named("html") == [{"lang": "en"}]
    assert len(page.named("h1")) == len(page.named("title")) == len(page.named("main")) == 1
    assert len(page.named("table")) == len(page.named("caption"))
    assert all(attributes.get("scope") in ("row", "col") for attributes in page.named("th"))


def test_nothing_in_a_page_runs_or_is_loaded(report: dict[str, Any]) -> None:
    data = report_html_1.render(report)
    page = Page(data)
    allowed = (
        "html head meta title style body main h1 h2 p div strong ul li dl dt dd table caption thead tbody tfoot tr"
    )
    assert {tag for tag, _ in page.tags} <= {*allowed.split(), "th", "td", "code"}
    assert {name for _, attributes in page.tags for name in attributes} <= {
        *("lang", "charset", "http-equiv", "content", "name", "scope", "class")
    }
    (policy,) = [meta["content"] for meta in page.named("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    (style,) = re.findall(rb"<style>(.*?)</style>", data, re.DOTALL)
    assert f"'sha256-{base64.b64encode(sha256(style).digest()).decode()}'" in policy
    assert b"url(" not in style
    assert b"@import" not in style


def test_every_value_is_escaped(report: dict[str, Any]) -> None:
    def poison(value: Any) -> Any:
        if isinstance(value, str):
            return HOSTILE
        if isinstance(value, list):
            return [poison(item) for item in value]
        if isinstance(value, dict):
            return {name: poison(item) for name, item in value.items()}
        return value

    poisoned = {name: poison(value) for name, value in report.items()} | {"outcome": HOSTILE}
    for name in ("errors", "first_errors", "allowances", "models_answered"):
        poisoned[name] = {HOSTILE: 1}
    poisoned["facets"] = {HOSTILE: {HOSTILE: {"requests": 1, "accepted": 1, "fallback": 0}}}
    data = report_html_1.render(poisoned)
    page = Page(data)
    assert not page.named("script")
    assert not page.named("img")
    assert not re.search("[\u202e\x00\x1b]", data.decode())
    assert "<script>alert(1)</script>" in "".join(page.text)


def test_what_a_report_says_is_on_the_page(report: dict[str, Any]) -> None:
    text = " ".join(Page(report_html_1.render(report)).text)
    for value in (report["run_id"], report["model"], report["endpoint"], report["as_of"]["root"], *report["failures"]):
        assert value in text
    assert "Usable as evaluation: no" in text
    assert "is what the model said" in text
    assert " valid" not in text.replace("no valid request", "")


def test_a_run_that_is_usable_is_said_to_be_and_why() -> None:
    made = next(found for seed in range(1000) if (found := of(seed))["valid"] and found["requests"] > 1)
    text = " ".join(Page(report_html_1.render(made)).text)
    assert f"because all {made['requests']} requests have an accepted answer and none was refused" in text
