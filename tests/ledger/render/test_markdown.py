"""Markdown that every renderer reads alike: whatever a text is, it comes out as itself and does nothing."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from markdown_it import MarkdownIt

from ledger.render.markdown import code, heading, items, table
from ledger.render.safe import terminal
from tests.ledger.render.hostile import NASTY, TEXTS

RENDERERS = {
    "as GitHub does, raw HTML let through": MarkdownIt("gfm-like", {"html": True, "linkify": False}),
    "plain, with tables": MarkdownIt("commonmark", {"html": True}).enable("table"),
    "HTML shown as text, quotes made typographic": MarkdownIt("js-default", {"typographer": True}),
}
HARMLESS = {"h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "strong"}


class Read(HTMLParser):
    """What a browser would make of it: tags, attributes, cells a row, and what stands in code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.rows: list[int] = []
        self.codes: list[str] = []
        self.cells: list[list[str]] = []
        self._in_code = self._in_cell = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "code":
            self._in_code = True
            self.codes.append("")
        elif tag == "tr":
            self.rows.append(0)
            self.cells.append([])
        elif tag in ("td", "th"):
            self.rows[-1] += 1
            self.cells[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_code = self._in_code and tag != "code"
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_code:
            self.codes[-1] += data
        if self._in_cell:
            self.cells[-1][-1] += data


def check_harmless(markdown: str, columns: set[int] | None = None) -> list[Read]:
    """No renderer makes anything of it but what we meant; rows have as many cells as their table's head."""
    read = [Read(renderer.render(markdown)) for renderer in RENDERERS.values()]
    for one in read:
        assert one.tags <= HARMLESS, markdown
        assert one.attributes <= {"style"}, markdown
        assert columns is None or set(one.rows) <= columns, markdown
        assert one.codes == read[0].codes
    return read


def shown(text: str) -> str:
    """What is to be read of it: as on a terminal, with what could end a span or a cell escaped."""
    for char, escape in (("`", r"\x60"), ("|", r"\x7c"), ("<", r"\x3c"), (">", r"\x3e"), ("&", r"\x26")):
        text = text.replace(char, escape)
    return terminal(text)


@given(TEXTS, TEXTS, TEXTS)
@example("".join(NASTY), "a\\", "``")
def test_no_text_means_anything_wherever_it_stands(one: str, two: str, three: str) -> None:
    rows = [(code(one), code(two), 1), (code(two), "word", 22)]
    blocks = [
        heading(1, f"Of {code(one)}"),
        f"words {code(two)}, more {code(three)}.",
        "\n".join(items([code(one), f"{code(two)} and {code(three)}"])),
        "\n".join(table([code(three), "second", "third"], rows, 2)),
    ]
    for read in check_harmless("\n\n".join(blocks) + "\n", {3}):
        assert len(read.rows) == 3
        expected = [one, two, three, one, two, three, three, one, two, two]
        found = [text for text in map(shown, expected) if text.strip(" ")]
        assert [" ".join(text.split()) for text in read.codes] == [" ".join(text.split()) for text in found]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("INC-1", "`INC-1`"),
        ("a|b", r"`a\x7cb`"),
        ("grep a\\|b | wc -l\nthen stop", r"`grep a\\x7cb \x7c wc -l\nthen stop`"),
        ("``x``", r"`\x60\x60x\x60\x60`"),
        ("<b>", r"`\x3cb\x3e`"),
        ("", "(empty)"),
        ("  ", "(empty)"),
        (None, "unknown"),
        (7, "`7`"),
    ],
)
def test_a_value_stands_in_a_code_span(text: object, span: str) -> None:
    assert code(text) == span


def test_a_long_text_is_cut_with_a_mark_that_counts_what_is_missing() -> None:
    assert code("x" * 1_000_000) == f"`{'x' * 300}... [999700 more characters]`"
