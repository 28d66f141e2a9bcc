"""What version 2 of grades as a page is built from: text made safe, lists, tables, pictures of shares.

Every value goes through ``shown``. Shapes are placed in whole hundredths of a percent: no float is ever written,
so no machine or locale has a say. Grades were issued with these bytes: they never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import Any, Final

from ledger.render.safe import terminal

LONGEST: Final = 400
"""Characters of one value that are shown; what is left out is counted."""

_WHOLE: Final = 10_000
"""A width of 100 %, in hundredths of a percent."""
_LEAST: Final = 60
"""What is there at all is shown at least this wide."""


def shown(value: object) -> str:
    """Whatever it is, as text that neither acts nor hides; flags in words, what is unknown said to be."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(terminal(str(value), LONGEST))


def code(text: object) -> str:
    """A command, an id or a digest, as it would be typed."""
    return f"<code>{shown(text)}</code>"


def count(value: int, noun: str) -> str:
    """``1 request``, ``2,000 requests``."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def section(name: str, title: str, body: Iterable[str], classes: str = "") -> Iterator[str]:
    """A part of the page, by whose ``name`` the contents link to it; ``title`` and ``body`` are HTML."""
    of = f' class="{classes}"' if classes else ""
    yield f'<section{of} aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n'
    for part in body:
        yield f"{part}\n"
    yield "</section>\n"


def pairs(of: Iterable[tuple[str, str]]) -> str:
    """Names and values, the values as HTML."""
    return f"<dl>{''.join(f'<dt>{shown(name)}</dt><dd>{value}</dd>' for name, value in of)}</dl>"


def listed(labelled_by: str, ids: Sequence[str], more: int) -> str:
    """Ids, in a box that is reached and scrolled by keyboard, and how many more there are."""
    found = "".join(f"<li>{code(one)}</li>" for one in ids)
    box = f'<ul class="list" tabindex="0" role="list" aria-labelledby="{labelled_by}">{found}</ul>' if ids else ""
    return box + (f"<p>... and {more:,} more.</p>" if more else "")


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, foot: Sequence[str] | None = None
) -> str:
    """A table whose first column names the row; cells are HTML: numbers, or a picture of the one before it."""
    columns = "".join(
        f'<th scope="col"{_right(place)}>{shown(head)}</th>' if head else '<td class="plot"></td>'
        for place, head in enumerate(heads)
    )
    last = f"<tfoot>{_row(foot)}</tfoot>" if foot else ""
    return (
        f'<div class="scroll"><table><caption>{shown(caption)}</caption><thead><tr>{columns}</tr></thead>'
        f"<tbody>{''.join(map(_row, rows))}</tbody>{last}</table></div>"
    )


def _right(place: int) -> str:
    return ' class="n"' if place else ""


def _row(cells: Sequence[str]) -> str:
    first, *others = cells
    rest = "".join(f'<td class="{"plot" if cell.startswith("<svg") else "n"}">{cell}</td>' for cell in others)
    return f'<tr><th scope="row">{first}</th>{rest}</tr>'


# --- shapes --------------------------------------------------------------------------------


def _at(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02d}%"


def _place(rate: str) -> int:
    return int(Decimal(rate) * _WHOLE)


def plot(of: Mapping[str, Any]) -> str:
    """A share as a mark within its interval, from nothing to all of it; the numbers stand beside it."""
    shapes = '<rect class="track" y="3" width="100%" height="8"/>'
    if of["rate"] is not None:
        low, high = _place(of["low"]), _place(of["high"])
        shapes += f'<rect class="span" x="{_at(low)}" y="3" width="{_at(max(high - low, _LEAST))}" height="8"/>'
        shapes += f'<rect class="point" x="{_at(_place(of["rate"]))}" width="4" height="14"/>'
    return f'<svg width="100%" height="14" aria-hidden="true">{shapes}</svg>'


def stack(title: str, parts: Sequence[tuple[str, str, int]], whole: int) -> str:
    """Bars end to end, each with its letter where there is room: (letter, words, count) of ``whole``."""
    drawn = [max(held * _WHOLE // whole, _LEAST) if held else 0 for _, _, held in parts]
    over = sum(drawn) - _WHOLE
    if over > 0:
        drawn[drawn.index(max(drawn))] -= over
    shapes, left = [], 0
    for (letter, _, _), width in zip(parts, drawn, strict=True):
        if width:
            shapes.append(f'<rect class="part {letter}" x="{_at(left)}" width="{_at(width)}" height="44"/>')
        if width >= 400:
            shapes.append(f'<text class="letter" x="{_at(left + width // 2)}" y="27">{letter.upper()}</text>')
        left += width
    told = "; ".join(f"{letter.upper()} {words}: {held:,}" for letter, words, held in parts)
    return (
        '<figure class="stack"><svg width="100%" height="44" role="img" aria-labelledby="bar-t bar-d">'
        f'<title id="bar-t">{shown(title)}</title><desc id="bar-d">{shown(told)}</desc>'
        f'<rect class="track" width="100%" height="44"/>{"".join(shapes)}</svg></figure>'
    )


def matrix(caption: str, levels: Sequence[str], counts: Mapping[str, Mapping[str, int]], low: str) -> str:
    """Labels down, answers across; ``low`` is the word for an answer that stands before its label in ``levels``.

    The first label's answers name the columns; one that is none of ``levels`` is neither right nor low.
    """
    answers = [*levels, *(answer for answer in next(iter(counts.values())) if answer not in levels)]
    most = max((held for row in counts.values() for held in row.values()), default=0)
    heads = "".join(f'<th scope="col">{word(answer)}</th>' for answer in answers)
    body = "".join(
        f'<tr><th scope="row">{word(label)}</th>'
        + "".join(_cell(levels, label, answer, counts[label][answer], most, low) for answer in answers)
        + "</tr>"
        for label in levels
    )
    return (
        f'<div class="scroll"><table class="heat"><caption>{shown(caption)}</caption><thead>'
        '<tr><th rowspan="2" scope="col">label</th>'
        f'<th class="over" colspan="{len(answers)}" scope="colgroup">answer</th></tr><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(levels: Sequence[str], label: str, answer: str, held: int, most: int, low: str) -> str:
    shade = f"h{-(-held * 5 // most) if most else 0}"
    if answer == label:
        return f'<td class="{shade} right">{held:,}</td>'
    if held and answer in levels and levels.index(answer) < levels.index(label):
        return f'<td class="{shade} watch">{held:,}<small>{low}</small></td>'
    return f'<td class="{shade}">{held:,}</td>'


def word(name: str) -> str:
    """A level or a flag as people say it."""
    return {"true": "yes", "false": "no"}.get(name, shown(name.replace("_", " ")))
