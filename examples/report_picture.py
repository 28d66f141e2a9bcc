"""Draw a text report as a picture for a page, its longer sections left out.

replay-ledger report RUN --format text | python examples/report_picture.py > report.svg
"""

from __future__ import annotations

import sys
from html import escape

LINE_HEIGHT, CHARACTER_WIDTH, MARGIN, COLUMNS = 17, 7.8, 18, 100
LEFT_OUT = ("By ", "First error", "Tolerances", "The model refused", "Models that answered")


def picture(lines: list[str]) -> str:
    """An SVG of the lines in a fixed-width face, dark on light, headings in bold."""
    width, height = round(COLUMNS * CHARACTER_WIDTH) + 2 * MARGIN, len(lines) * LINE_HEIGHT + 2 * MARGIN
    rows = []
    for number, line in enumerate(lines):
        y = MARGIN + LINE_HEIGHT * (number + 0.75)
        weight = ' font-weight="bold"' if line and not line.startswith(" ") else ""
        rows.append(f'<text x="{MARGIN}" y="{y:g}"{weight} xml:space="preserve">{escape(line[:COLUMNS])}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="13"'
        f' font-family="ui-monospace, Menlo, Consolas, monospace" fill="#1f2328">\n'
        f'<rect width="{width}" height="{height}" rx="6" fill="#f6f8fa" stroke="#d0d7de"/>\n'
        + "\n".join(rows)
        + "\n</svg>\n"
    )


def shortened(lines: list[str]) -> list[str]:
    """The report's lines but for those of the sections left out."""
    kept, inside = [], False
    for line in lines:
        if line and not line.startswith(" "):
            inside = line.startswith(LEFT_OUT)
        if not inside:
            kept.append(line)
    return kept


if __name__ == "__main__":
    sys.stdout.write(picture(shortened(sys.stdin.read().splitlines())))
