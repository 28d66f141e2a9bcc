"""Hostile text made safe to show: on a terminal, and in a spreadsheet.

What a model, a file or a server wrote is never printed raw. The sets of characters are written
out here rather than asked of ``unicodedata``: the same text gives the same bytes on every Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# Characters that act on a terminal or hide: C0 and C1 controls (escape sequences begin with one),
# bidi marks and overrides, zero-width and other default-ignorable characters, line and paragraph
# separators, interlinear annotation, tags, lone surrogates, noncharacters. From Unicode's
# Bidi_Control and Default_Ignorable_Code_Point.
_INVISIBLE: Final = (
    "\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U0010fffe\U0010ffff"
)
_UNSAFE: Final = re.compile(f"[{_INVISIBLE}]")
_UNSAFE_RUN: Final = re.compile(f"[{_INVISIBLE}]+")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

# A cell that a spreadsheet takes for a formula begins with one of = + - @, also in their wide
# forms, also behind blanks or characters that nobody sees; tab and carriage return alone
# are enough for some.
_FORMULA: Final = re.compile(f"[{_INVISIBLE}]|[\\s]*[=+\\-@\uff1d\uff0b\uff0d\uff20]")


def terminal(text: str, limit: int | None = None) -> str:
    r"""One line that a terminal shows as it is: whatever acts or hides becomes a visible escape.

    At most ``limit`` characters of ``text`` are shown; what is left out is counted in a mark at
    the end. For reading, not for reading back: a backslash in the text stays single.
    """
    if limit is None or len(text) <= limit:
        return _UNSAFE.sub(_escaped, text)
    return f"{_UNSAFE.sub(_escaped, text[:limit])}... [{len(text) - limit} more characters]"


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """What ``terminal`` gives, in runs, each with whether it stands for characters that act or hide.

    For what can mark the escapes, so that they are told from the same letters in the text.
    """
    at = 0
    for match in _UNSAFE_RUN.finditer(text):
        if match.start() > at:
            yield text[at : match.start()], False
        yield terminal(match.group()), True
        at = match.end()
    if at < len(text):
        yield text[at:], False


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def csv_cell(text: str) -> str:
    """The text of one CSV cell, quoted where RFC 4180 asks for it, never a formula.

    A text that a spreadsheet might run is prefixed with an apostrophe: quoting alone does not
    help. For text only; numbers are written as numbers. A lone surrogate, which UTF-8 cannot
    hold, becomes a visible escape.
    """
    text = _SURROGATE.sub(_escaped, text)
    if _FORMULA.match(text):
        text = "'" + text
    if _NEEDS_QUOTES.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
