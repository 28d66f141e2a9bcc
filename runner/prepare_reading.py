"""A file that ``prepare`` is given, read by what it is: a stream of bytes in, records out.

Everything is read as a stream and in bounded memory: a file may hold millions of rows, and a single
document, row or line has a limit. What a file holds is told by its content where its name does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Final, Literal

from runner.prepare_csv import read_csv
from runner.prepare_json import read_json
from runner.prepare_rules import read_rules
from runner.prepare_sources import Format, Found

_YAML_SUFFIXES: Final = frozenset({".yml", ".yaml"})
_JSON_SUFFIXES: Final = frozenset({".json", ".jsonl", ".ndjson"})
_LOOKS_LIKE_YAML: Final = re.compile(rb"(?:---|%YAML|#|groups[ ]*:|apiVersion[ ]*:|kind[ ]*:)")
_BEFORE_TEXT: Final = b"\xef\xbb\xbf \t\r\n"


def read_source(
    stream: BufferedReader,
    file: str,
    wanted: Literal["auto"] | Format = "auto",
    on_columns: Callable[[Sequence[str]], None] | None = None,
) -> Generator[Found]:
    """What ``stream`` holds. ``file`` is its name in messages; ``auto`` goes by its content and its name's end.

    ``on_columns`` gets the names of a table's columns before its first row. Raises ``PrepareError``.
    """
    suffix = Path(file).suffix.lower()
    if wanted == "csv" or (wanted == "auto" and suffix == ".csv"):
        yield from read_csv(stream, file, on_columns)
    elif _is_yaml(stream, suffix, wanted):
        yield from read_rules(stream, file)
    else:
        yield from read_json(stream, file, wanted)


def _is_yaml(stream: BufferedReader, suffix: str, wanted: Literal["auto"] | Format) -> bool:
    if wanted not in {"auto", "prometheus"}:
        return False
    if suffix in _YAML_SUFFIXES:
        return True
    start = stream.peek().lstrip(_BEFORE_TEXT)
    if wanted == "prometheus":
        return start != b"" and not start.startswith(b"{")
    return suffix not in _JSON_SUFFIXES and _LOOKS_LIKE_YAML.match(start) is not None
