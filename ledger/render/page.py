"""What the pages of comparisons and grades are made of: no script, nothing loaded from anywhere, every value escaped.

Grades are issued, so what stands here keeps its bytes: a change is a new version beside this one. The
page of a report shares none of it, for the same reason.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from typing import Final

from ledger.render.safe import terminal

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; --warn: #b3261e }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem } h3 { font-size: 1rem; margin: 1.5rem 0 .25rem }
h1, h3, dd, td, th, li, p { overflow-wrap: anywhere }
.first { border: 1px solid var(--line); border-left-width: .5rem; padding: .5rem 1rem }
.bad { border-left-color: var(--warn) }
.scroll { overflow-x: auto }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0 }
dt { font-weight: 600 } dd { margin: 0 }
table { border-collapse: collapse } caption { text-align: left; padding: .25rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top }
td { font-variant-numeric: tabular-nums }
.numbers td { text-align: right } .numbers thead th + th { text-align: right }
.answers { table-layout: fixed; width: 100% } .answers th:first-child { width: 11rem }
.differs { background: var(--soft); font-weight: 600 }
@media (prefers-color-scheme: dark) { :root { --warn: #f2b8b5 } }
@media print { body { max-width: none } h3, tr { break-inside: avoid } }
"""


def head(title: str, more_style: str = "") -> str:
    """Everything up to and with the heading of the page. ``more_style``: rules of a page's own."""
    name, style = shown(title), _STYLE + more_style
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n"
    )


FOOT: Final = "</main>\n</body>\n</html>\n"


def shown(value: object, limit: int | None = None) -> str:
    """Whatever it is, as text that neither acts nor hides; flags in words, what is unknown a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(terminal(str(value), limit))


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{shown(text)}</h{level}>\n"


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{shown(text)}</p>\n"


def first(text: str, *, bad: bool) -> str:
    """What is to be read before all else."""
    return f'<div class="first{" bad" if bad else ""}"><p><strong>{shown(text)}</strong></p></div>\n'


def pairs(*of: tuple[str, object]) -> str:
    """Names and values."""
    return f"<dl>{''.join(f'<dt>{shown(name)}</dt><dd>{shown(value)}</dd>' for name, value in of)}</dl>\n"


def items(of: Iterable[object]) -> str:
    """A list."""
    return f"<ul>{''.join(f'<li>{shown(one)}</li>' for one in of)}</ul>\n"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "numbers") -> str:
    """A table of numbers; the first cell of a row names it. ``kind``: its class, where it is none of numbers."""
    columns = "".join(f'<th scope="col">{shown(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{shown(name)}</th>{"".join(f"<td>{shown(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    return (
        f'<div class="scroll"><table class="{kind}"><caption>{shown(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )
