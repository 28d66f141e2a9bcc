"""What is said of text that is not UTF-8, with the way out."""

from __future__ import annotations

import codecs
from typing import Final

_MARKS: Final = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before the mark of UTF-16, which is its beginning
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def way_out(beginning: bytes = b"") -> str:
    """How to make it UTF-8. ``beginning``: of the file, whose byte order mark may tell what it is."""
    for mark, encoding in _MARKS.items():
        if beginning.startswith(mark):
            return f"its byte order mark is that of {encoding}; convert it: `iconv -f {encoding} -t UTF-8`"
    return "convert it: `iconv -f ENCODING -t UTF-8`"
