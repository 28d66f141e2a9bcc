"""Results as a table for a person at a terminal. Everything in it was escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from ledger.render.columns import line, widths
from ledger.render.safe import terminal

RENDERER_VERSION: Final = 1
HEADER: Final = ("REQUEST", "RESULT", "RISK", "APPROVAL", "BLOCKED", "ERROR", "PROPOSED ACTION")
_MEASURED_ROWS: Final = 200
_ACTION_LIMIT: Final = 60


def render(results: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The header, then a line a result, as they come.

    The first rows set the widths, so that a million results need no more memory than these.
    """
    rows = map(_cells, results)
    measured = [HEADER, *islice(rows, _MEASURED_ROWS)]
    column_widths = widths(measured)
    for cells in chain(measured, rows):
        yield line(cells, column_widths) + "\n"


def _cells(result: Mapping[str, Any]) -> tuple[str, ...]:
    output = result["model_output"]
    return (
        terminal(result["request_id"]),
        _outcome(result),
        output["risk_level"],
        _yes_no(output["requires_human_approval"]),
        _yes_no(output["blocked_by_policy"]),
        terminal(result["error"] or "-"),
        _action(result),
    )


def _outcome(result: Mapping[str, Any]) -> str:
    if result["fallback_used"]:
        return "fallback"
    return "accepted, 2nd turn" if result["retry_used"] else "accepted"


def _yes_no(flag: bool) -> str:
    return "yes" if flag else "no"


def _action(result: Mapping[str, Any]) -> str:
    action = result["model_output"]["proposed_action"]
    if action is None:
        return "[redacted]"
    return terminal(action, _ACTION_LIMIT) or "-"
