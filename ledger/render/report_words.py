"""The words in which a report's numbers are told, shared by its renderings in words.

Reports were issued in them, so they are never changed: a rendering that wants others brings its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

OUTCOMES: Final = (
    ("accepted_first", "accepted at first"),
    ("accepted_after_retry", "accepted after a retry"),
    ("fallback_records", "fallback (failed closed)"),
    ("leak_rejected", "refused: holds its own labels"),
    ("rejected", "refused: no valid request"),
    ("not_started", "not started"),
    ("incomplete", "begun, without a result"),
)
"""The seven outcomes that add up to the requests, each with its words."""

RISK_LEVELS: Final = ("low", "medium", "high", "critical")
DECISIONS: Final = ("total", "blocked_by_policy", "requires_human_approval", "neither")
TOKENS: Final = ("prompt", "completion", "total", "cached", "reasoning")
PERCENTILES: Final = ("p50", "p90", "p99", "max")
ERRORS: Final = (
    ("errors", "Last error of a result"),
    ("first_errors", "First error of a result, overcome or not"),
    ("allowances", "Tolerances the parser used"),
)

_ENDS: Final = {
    "blocked": "the run was blocked before any call",
    "abandoned": "the run was abandoned",
    "auth_error": "the endpoint refused the key",
    "incomplete": "the run has not ended",
}


def why_usable(report: Mapping[str, Any]) -> str:
    """Why a run is usable as evaluation, where it is: a sentence's second half."""
    requests = report["requests"]
    every = "the only request has" if requests == 1 else f"all {requests} requests have"
    return f"because {every} an accepted answer and none was refused"


def why_not_usable(report: Mapping[str, Any]) -> list[str]:
    """The reasons why a run is not usable as evaluation; empty where it is."""
    reasons = []
    if report["outcome"] != "completed":
        reasons.append(_ENDS[report["outcome"]])
    if not report["requests"]:
        reasons.append("there is no request in it")
    for member, what in (
        ("fallback_records", "without an answer that could be accepted"),
        ("leak_rejected", "refused for holding the labels it is judged by"),
        ("rejected", "refused as no valid request"),
        ("not_started", "never put to the model"),
        ("incomplete", "begun, without a result"),
    ):
        if report[member]:
            reasons.append(f"{count(report[member], 'request')} {what}")
    if report["unreadable"]:
        reasons.append(f"{count(report['unreadable'], 'event')} that cannot be read")
    return reasons


def count(number: int, noun: str) -> str:
    """``1 request``, ``2 requests``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def by_frequency(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent first, those of one frequency by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def calls(of: Mapping[str, int]) -> str:
    """Attempts by what became of them."""
    return (
        f"{of['started']} started, {of['answered']} answered, {of['failed']} failed, "
        f"{of['outcome_unknown']} of unknown outcome"
    )


def latencies(latency_us: Mapping[str, int | None]) -> str:
    """The percentiles in milliseconds."""
    named = ((name, latency_us[name]) for name in PERCENTILES)
    return ", ".join(f"{name} {'unknown' if value is None else milliseconds(value)}" for name, value in named)


def milliseconds(microseconds: int) -> str:
    """Without a float on the way."""
    return f"{microseconds // 1000}.{microseconds % 1000:03d} ms"


def seconds(microseconds: int) -> str:
    """A decimal number of seconds, without a float on the way."""
    return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06d}"


def tokens(of: Mapping[str, int | None]) -> str:
    """Each kind; what no call reported is unknown, never 0."""
    return ", ".join(f"{kind} {or_unknown(of[kind])}" for kind in TOKENS)


def or_unknown(number: int | None) -> str:
    """The digits, or that it is not known."""
    return "unknown" if number is None else str(number)


def bounded(of: Iterable[str], shown: int, more: str) -> Iterator[str]:
    """The first of them; where there are others, ``more`` with their number in place of ``{}`` says so."""
    left = 0
    for index, one in enumerate(of):
        if index < shown:
            yield one
        else:
            left += 1
    if left:
        yield more.format(left)
