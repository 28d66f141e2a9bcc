"""Reports and results in the formats people ask for. Nothing here reads a ledger or a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ledger.render import report_json, report_text, results_csv, results_jsonl, results_table

RenderReport = Callable[[Mapping[str, Any]], bytes]
RenderResults = Callable[[Iterable[Mapping[str, Any]]], Iterator[bytes]]

REPORT_FORMATS: Final[dict[str, RenderReport]] = {"json": report_json.render, "text": report_text.render}
RESULTS_FORMATS: Final[dict[str, RenderResults]] = {
    "jsonl": results_jsonl.render,
    "csv": results_csv.render,
    "table": results_table.render,
}

RENDERER_VERSIONS: Final = {
    ("report", "json"): 1,
    ("report", "text"): 1,
    ("results", "jsonl"): 1,
    ("results", "csv"): 1,
    ("results", "table"): 1,
}
"""Raised where a change gives other bytes for the same report or results; recorded where one is issued."""
