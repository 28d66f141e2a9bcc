"""What the page of results is made of: no script, nothing loaded from anywhere, every text escaped and bounded.

The page is not issued: it depends on contents, which may be erased. So what stands here may change.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

from ledger.projections.conversations import Evidence
from ledger.render import durations
from ledger.render.page import shown
from ledger.render.safe import parts

LONGEST: Final = 100_000
"""Characters of one text that are shown; what is left out is counted, and `show` has it."""

_SCROLLED_CHARACTERS: Final = 1_500
_SCROLLED_LINES: Final = 24

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; --warn: #b3261e; --good: #1b6e3c; --link: #0b57d0;
  --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --warn: #f2b8b5; --good: #8fd6a8; --link: #a8c7fa; --paper: #121212 }
}
* { box-sizing: border-box }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 84rem; padding: 1rem;
  background: var(--paper) }
a { color: var(--link) }
h1 { font-size: 1.5rem; line-height: 1.25 } h2 { font-size: 1.25rem; margin: 0 }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem }
h4 { font-size: .95rem; margin: 0 0 .25rem }
h1, h2, h3, h4, dd, td, th, li, p, pre, summary, code { overflow-wrap: anywhere }
p { margin: .5rem 0 } code, pre { font-family: ui-monospace, monospace; font-size: .85rem }
.first, .flag { border: 1px solid var(--line); border-left-width: .5rem; padding: .25rem 1rem; margin: .5rem 0 }
.flag { border-color: var(--warn); font-weight: 600 }
.note { opacity: .8; font-size: .9rem }
.scroll { overflow-x: auto }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1rem; margin: .5rem 0 }
dt { font-weight: 600 } dd { margin: 0 }
table { border-collapse: collapse } caption { text-align: left; padding: .25rem 0; font-size: .9rem; opacity: .8 }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top }
td { font-variant-numeric: tabular-nums }
.index { font-size: .9rem } .index td, .index th { overflow-wrap: normal; white-space: nowrap }
.index .code { white-space: normal; overflow-wrap: anywhere; min-width: 11rem }
.index .ours { font-style: italic }
.timeline { font-size: .85rem } .timeline td, .timeline th { overflow-wrap: normal; white-space: nowrap }
.timeline .code { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; max-width: 14rem }
.timeline .facts { white-space: normal; overflow-wrap: anywhere; min-width: 18rem }
.counts { min-width: 20rem } .output th { overflow-wrap: normal; white-space: nowrap }
.fields { width: 100%; table-layout: fixed }
.fields th:first-child { width: 22% } .fields thead th:last-child { width: 18% }
.ok { color: var(--good) } .wrong { color: var(--warn); font-weight: 600 }
pre { background: var(--soft); border: 1px solid var(--line); margin: .25rem 0 .5rem; padding: .5rem;
  white-space: pre-wrap; unicode-bidi: isolate; max-width: 100% }
.escape { background: var(--warn); color: var(--paper); border-radius: .2rem; padding: 0 .15rem }
pre.long { max-height: 24rem; overflow-y: auto }
.exchange { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1rem; margin: .5rem 0 1rem }
.side { border-top: 3px solid var(--line); padding-top: .5rem; min-width: 0 }
.pale { border-top-style: dashed }
article { border-top: 4px double var(--line); margin: 2.5rem 0 0; padding: 1rem 0 0; content-visibility: auto;
  contain-intrinsic-size: auto 80rem }
article header { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; align-items: baseline;
  justify-content: space-between }
article nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .9rem }
ol { margin: 0; padding-left: 1.5rem }
@media screen and (max-width: 56rem) {
  .exchange { grid-template-columns: minmax(0, 1fr) }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0 } dd { margin-bottom: .5rem }
  .index thead { position: absolute; clip-path: inset(50%); height: 1px; width: 1px; overflow: hidden }
  .index, .index tbody { display: block }
  .index tr { display: flex; flex-wrap: wrap; gap: 0 1rem; border-bottom: 1px solid var(--line); padding: .35rem 0 }
  .index th, .index td { border: 0; padding: 0 }
  .index .name { flex: 1 0 calc(100% - 3rem); min-width: 0; max-width: calc(100% - 3rem) }
  .index th { flex: 0 0 2rem } .index .code { min-width: 0 }
  .index td:nth-of-type(n+3)::before { opacity: .7 }
  .index td:nth-of-type(3)::before { content: "risk: " }
  .index td:nth-of-type(4)::before { content: "blocked: " }
  .index td:nth-of-type(5)::before { content: "approval: " }
  .index td:nth-of-type(6)::before { content: "attempts: " }
  .index td:nth-of-type(7)::before { content: "code: " }
}
@media screen and (max-width: 40rem) {
  .stacked caption { display: block } .output th { white-space: normal }
  .stacked thead { position: absolute; clip-path: inset(50%); height: 1px; width: 1px; overflow: hidden }
  .stacked, .stacked tbody, .stacked tr, .stacked th, .stacked td { display: block; width: auto }
  .stacked tr { border-bottom: 1px solid var(--line); padding: .35rem 0 }
  .stacked th, .stacked td { border: 0; padding: 0 } .fields th:first-child { width: auto }
  .fields td:nth-of-type(1)::before { content: "asked: "; opacity: .7 }
  .fields td:nth-of-type(2)::before { content: "given: "; opacity: .7 }
  .fields td:nth-of-type(3)::before { content: "verdict: "; opacity: .7 }
}
@media print {
  :root { font-size: 10pt } body { max-width: none; padding: 0 } article nav { display: none }
  article { content-visibility: visible }
  nav details::details-content { content-visibility: visible; block-size: auto }
  pre.long { max-height: none; overflow: visible } .scroll { overflow: visible }
  .index { font-size: 8pt } .timeline { font-size: 7pt }
  .index td, .timeline td, .timeline th { white-space: normal; padding-right: .4rem }
  .index .code, .timeline .code, .timeline .facts { min-width: 0 }
  h2, h3, h4, header { break-after: avoid } tr, .first, .flag { break-inside: avoid }
}
"""
_POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'"
)
FOOT: Final = "</main>\n</body>\n</html>\n"


def head(title: str) -> str:
    """Everything up to and with the heading of the page."""
    name = shown(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1 id="top">{name}</h1>\n'
    )


def heading(text: str, level: int) -> str:
    """A heading."""
    return f"<h{level}>{shown(text)}</h{level}>\n"


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{shown(text)}</p>\n"


def note(text: str) -> str:
    """A remark of ours."""
    return f'<p class="note">{shown(text)}</p>\n'


def flag(text: str) -> str:
    """What must not be overlooked."""
    return f'<div class="flag"><p>{shown(text)}</p></div>\n'


def pairs(*of: tuple[str, object]) -> str:
    """Names and values."""
    return f"<dl>{''.join(f'<dt>{shown(name)}</dt><dd>{shown(value)}</dd>' for name, value in of)}</dl>\n"


def table(kind: str, caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first of a row names it. ``kind``: its class."""
    columns = "".join(f'<th scope="col">{shown(name)}</th>' for name in heads)
    body = "".join(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>\n' for name, *cells in rows)
    return (
        f'<div class="scroll"><table class="{kind}"><caption>{shown(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>{body}</tbody></table></div>\n"
    )


def cell(value: object, kind: str = "") -> str:
    """One cell of a table. ``kind``: its class."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<td{attribute}>{shown(value)}</td>"


def breaking(text: str | None) -> str:
    """A code or an id, which may be long, as HTML that a line may be broken in where its parts end."""
    return _JOINT.sub(r"\1<wbr>", shown(text))


_JOINT: Final = re.compile("([_,:/])")


def code_cell(text: str | None) -> str:
    """One cell of a table with such a code."""
    return f'<td class="code">{breaking(text)}</td>'


def text_box(label: str, text: str, *, closed: bool = False) -> str:
    """A text of others under its name and size. ``closed``: it opens when asked to."""
    name, held = f"{shown(label)}, {count(len(text), 'character')}", box(label, text)
    if closed:
        return f"<details><summary>{name}</summary>\n{held}</details>\n"
    return f"<h4>{name}</h4>\n{held}"


def box(label: str, text: str) -> str:
    """A text of others, line by line as it is. A long one scrolls; what is left out of a very long one is counted."""
    cut = text[:LONGEST]
    lines = cut.split("\n")
    # A newline right after the tag is no part of the text: browsers drop it, and keep one that follows.
    held = "\n" + "\n".join(map(marked, lines))
    long = len(cut) > _SCROLLED_CHARACTERS or len(lines) > _SCROLLED_LINES
    # What scrolls must be reachable by the keyboard, and then has to have a name.
    attributes = f' class="long" tabindex="0" role="region" aria-label="{shown(label)}"' if long else ""
    more = len(text) - LONGEST
    left_out = f"{count(more, 'more character')} left out here; replay-ledger show --content has the whole text."
    return f"<pre{attributes}>{held}</pre>\n{flag(left_out) if more > 0 else ''}"


def marked(text: str) -> str:
    """Text whose escapes, which stand for characters that act or hide, are told from the same letters in it."""
    return "".join(
        f'<span class="escape">{escape(part)}</span>' if acts else escape(part) for part, acts in parts(text)
    )


def text_of(body: bytes) -> str:
    r"""Bytes as text; those that are no UTF-8 are visible escapes."""
    return body.decode("utf-8", "backslashreplace")


def json_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # only where somebody altered the ledger
        return "(too deep to be shown)"


def absence(evidence: Evidence, what: str) -> str:
    """What to say of a content that is not shown, or not to be believed; nothing of one that is as recorded."""
    at = f"position {evidence.position}"
    match evidence.state:
        case "erased":
            return (
                f'<p class="note">{shown(f"Erased: {what} ({at}) was erased by event {evidence.redacted_by}.")}</p>\n'
            )
        case "missing":
            return flag(f"Missing: {what} ({at}) is not there, and no redaction says why.")
        case "undecodable":
            return flag(f"Unreadable: {what} ({at}) cannot be decoded.")
        case "altered":
            return flag(
                f"Does not match the record: {what} ({at}) is not what was recorded. What stands here was put "
                "in its place since; replay-ledger verify says what else does not match."
            )
    return ""


def count(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def milliseconds(microseconds: int | None) -> str | None:
    """A duration, as the page of a report has it."""
    return None if microseconds is None else durations.milliseconds(microseconds)
