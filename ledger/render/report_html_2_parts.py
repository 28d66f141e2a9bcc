"""What version 2 of a report's page is built from: text made safe, numbers, tables, bars, columns.

Every value goes through ``shown``. Shapes are placed in whole hundredths of a percent or pixels: no float
is ever written, so no machine or locale has a say. Reports were issued with these bytes: they never change.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from ledger.render import durations
from ledger.render.safe import parts, terminal

LONGEST: Final = 400
"""Characters of one value that are shown; what is left out is counted."""


def shown(value: object) -> str:
    """Whatever it is, as text that neither acts nor hides; flags in words, what is unknown said to be."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _marked(str(value), escape)


def breaking(value: str) -> str:
    """A code, which may be long, as text that a line may be broken in where its parts end."""
    return _marked(value, lambda part: _JOINT.sub(r"\1<wbr>", escape(part)))


def plain(value: object) -> str:
    """As ``shown``, for where there can be no element: the page's own name."""
    return escape(terminal(str(value), LONGEST))


def _marked(text: str, made: Callable[[str], str]) -> str:
    """Escapes, which stand for characters that act or hide, are told from the same letters in the text."""
    held = "".join(
        f'<span class="escape">{escape(part)}</span>' if acts else made(part) for part, acts in parts(text[:LONGEST])
    )
    return held if len(text) <= LONGEST else f"{held}... [{len(text) - LONGEST} more characters]"


_JOINT: Final = re.compile("([_,:/])")


def number(value: int | None) -> str:
    """With commas between thousands; what is unknown said to be."""
    return "unknown" if value is None else f"{value:,}"


def count(value: int, noun: str) -> str:
    """``1 request``, ``2,000 requests``."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def percent(part: int, whole: int) -> str:
    """A share with one digit after the point, rounded half up; a dash of nothing."""
    if not whole:
        return "\N{EN DASH}"
    tenths = (part * 2000 + whole) // (2 * whole)
    return f"{tenths // 10}.{tenths % 10} %"


def milliseconds(microseconds: int | None) -> str:
    """``20.5 ms``; what is unknown said to be."""
    return shown(None) if microseconds is None else durations.milliseconds(microseconds)


def between(first: str, last: str) -> str:
    """The time between two recorded times, as ``2 h 3 min 4.5 s``; unknown where one of them is no time."""
    return shown(durations.between(first, last))


def code(text: str) -> str:
    """A command or an id, as it would be typed."""
    return f"<code>{shown(text)}</code>"


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


def items(of: Iterable[str]) -> str:
    """A list of HTML."""
    return f"<ul>{''.join(f'<li>{one}</li>' for one in of)}</ul>"


def named(of: Mapping[str, Any] | None, empty: str) -> str:
    """A few members, each with its value; ``empty`` where there are none."""
    if of is None:
        return shown(None)
    return items(f"{shown(name)} {code(_said(value))}" for name, value in sorted(of.items())) if of else empty


def _said(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    foot: Sequence[str] = (),
    classes: str = "",
) -> str:
    """A table whose first column names the row; cells are HTML, those after the first are numbers."""
    columns = "".join(
        f'<th scope="col"{_right(place)}>{head}</th>' if head else "<td></td>" for place, head in enumerate(heads)
    )
    body = "".join(map(row, rows))
    last = f"<tfoot>{row(foot)}</tfoot>" if foot else ""
    of = f' class="{classes}"' if classes else ""
    return (
        f'<div class="scroll"><table{of}><caption>{shown(caption)}</caption><thead><tr>{columns}</tr></thead>'
        f"<tbody>{body}</tbody>{last}</table></div>"
    )


def _right(place: int) -> str:
    return ' class="n"' if place else ""


def row(cells: Sequence[str]) -> str:
    """One row; a cell that is a picture needs no room of its own kept for digits."""
    first, *others = cells
    rest = "".join(f"<td{_of(cell)}>{cell}</td>" for cell in others)
    return f'<tr><th scope="row">{first}</th>{rest}</tr>'


def _of(cell: str) -> str:
    return ' class="meter"' if cell.startswith("<svg") else ' class="n"'


# --- shapes --------------------------------------------------------------------------------

WHOLE: Final = 10_000
"""A width of 100 %, in hundredths of a percent."""
_LEAST: Final = 60
"""What is there at all is shown at least this wide."""


def at(hundredths: int) -> str:
    """A place or width as SVG and CSS write it."""
    return f"{hundredths // 100}.{hundredths % 100:02d}%"


def widths(parts: Sequence[int], whole: int) -> list[int]:
    """How wide to draw each of ``parts`` of ``whole``: nothing that is there too small to be seen."""
    drawn = [max(part * WHOLE // whole, _LEAST) if part else 0 for part in parts]
    over = sum(drawn) - sum(parts) * WHOLE // whole if whole else 0
    if over > 0:
        drawn[drawn.index(max(drawn))] -= over
    return drawn


def meter(part: int, whole: int) -> str:
    """A bar of its length alone; the number stands beside it."""
    (width,) = widths([part], whole)
    return (
        '<svg width="100%" height="10" aria-hidden="true"><rect class="track" width="100%" height="10"/>'
        f'<rect class="fill" width="{at(width)}" height="10"/></svg>'
    )


def stack(parts: Sequence[tuple[str, int]], whole: int, height: int) -> str:
    """Bars end to end, each in the colour of its letter, which it bears where there is room."""
    shapes, left = [], 0
    for (letter, _), width in zip(parts, widths([part for _, part in parts], whole), strict=True):
        if width:
            shapes.append(f'<rect class="part {letter}" x="{at(left)}" width="{at(width)}" height="{height}"/>')
            if width >= 400 and height > 20:
                shapes.append(
                    f'<text class="letter" x="{at(left + width // 2)}" y="{height // 2 + 5}">{letter.upper()}</text>'
                )
        left += width
    return "".join(shapes)


# 1, 2, 5, 10 ... of a millisecond to a thousand seconds, for ever the same, so that runs can be laid side by side.
BOUNDS_US: Final = (*(digit * 10**power for power in range(3, 9) for digit in (1, 2, 5)), 10**9)
BUCKETS: Final = len(BOUNDS_US) + 1
_COLUMN, _TALL, _ABOVE, _BELOW = 72, 120, 18, 20


def bucket(microseconds: int) -> int:
    """Which bucket a time falls in: the first is below 1 ms, the last from 1000 s on."""
    return bisect_right(BOUNDS_US, microseconds)


def bucket_name(index: int) -> str:
    """``20 to 50 ms``, as its column says it."""
    if index == 0:
        return "< 1 ms"
    if index == len(BOUNDS_US):
        return "\N{GREATER-THAN OR EQUAL TO} 1000 s"
    low, high = BOUNDS_US[index - 1], BOUNDS_US[index]
    unit, name = (1_000_000, "s") if low >= 1_000_000 else (1000, "ms")
    return f"{low // unit}\N{EN DASH}{high // unit} {name}"


def columns(name: str, title: str, counts: Sequence[int]) -> str:
    """A histogram over ``BOUNDS_US``, from the first bucket that holds something to the last."""
    held = [index for index, held in enumerate(counts) if held]
    shown_buckets = range(held[0], held[-1] + 1)
    most, wide = max(counts), _COLUMN * len(shown_buckets)
    told = "; ".join(f"{bucket_name(index)}: {counts[index]:,}" for index in shown_buckets)
    base = _ABOVE + _TALL
    shapes = []
    for place, index in enumerate(shown_buckets):
        tall = max(counts[index] * _TALL // most, 2) if counts[index] else 0
        left, middle = place * _COLUMN + 6, place * _COLUMN + _COLUMN // 2
        shapes.append(
            f'<rect class="fill" x="{left}" y="{base - tall}" width="{_COLUMN - 12}" height="{tall}"/>'
            f'<text class="axis count" x="{middle}" y="{base - tall - 5}">{counts[index]:,}</text>'
            f'<text class="axis" x="{middle}" y="{base + 15}">{escape(bucket_name(index))}</text>'
        )
    return (
        f'<figure class="scroll"><svg width="{wide}" height="{base + _BELOW}" role="img"'
        f' aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{shown(title)}</title><desc id="{name}-d">{shown(told)}</desc>{"".join(shapes)}'
        f'<line class="base" x1="0" y1="{base}" x2="{wide}" y2="{base}"/></svg></figure>'
    )
