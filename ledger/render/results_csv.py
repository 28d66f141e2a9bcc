"""Results as CSV (RFC 4180, UTF-8): one row a result, for a spreadsheet.

Text goes through ``safe.csv_cell``, so that nothing a model wrote runs as a formula; numbers and
flags stay as they are. Null is an empty cell. Lists and added fields are JSON text in a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ledger.integrity.canonical import encode_keeping_integers
from ledger.render.safe import csv_cell

RENDERER_VERSION: Final = 1

_IDS: Final = ("run_id", "request_id", "incident_id", "candidate_id", "candidate_variant_id", "model")
_FACTS: Final = ("error", "first_error", "retry_used", "fallback_used", "trace_complete", "redacted")
_OUTPUT: Final = ("risk_level", "requires_human_approval", "blocked_by_policy", "proposed_action", "action_plan")
_USAGE: Final = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")
COLUMNS: Final = (*_IDS, *_FACTS, *_OUTPUT, "added_fields", "allowances", "replies", *_USAGE, "duration_us")
"""The header row. Tokens and duration are sums over the request's replies; empty where a reply
does not say: part of a sum would pass for the whole."""


def render(results: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """The header row, then one row a result, as they come."""
    yield _row(COLUMNS)
    for result in results:
        yield _row(_cells(result))


def _cells(result: Mapping[str, Any]) -> Iterator[Any]:
    output, trace = result["model_output"], result["trace_events"]
    yield from (result[name] for name in (*_IDS, *_FACTS))
    yield from (output[name] for name in _OUTPUT)
    yield {name: value for name, value in output.items() if name not in _OUTPUT} or None
    yield result["allowances"]
    yield len(trace)
    yield from (_sum(event["usage"][name] for event in trace) for name in _USAGE)
    yield _sum(event["duration_us"] for event in trace)


def _sum(values: Iterable[int | None]) -> int | None:
    total: int | None = None
    for value in values:
        if value is None:
            return None
        total = (total or 0) + value
    return total


def _row(cells: Iterable[Any]) -> bytes:
    return (",".join(map(_cell, cells)) + "\r\n").encode("utf-8")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return csv_cell(value)
    return csv_cell(encode_keeping_integers(value).decode("utf-8"))
