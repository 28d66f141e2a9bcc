"""What the model calls of a run add up to: attempts, tokens, latency, models.

Unknown is null, never 0: a token total is null where no call reported that count, and the calls
that reported nothing are counted beside it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ledger.integrity.canonical import MAX_INTEGER

TOKEN_KINDS: Final = ("prompt", "completion", "total", "cached", "reasoning")
_TOKEN_MEMBERS: Final = tuple((kind, f"{kind}_tokens") for kind in TOKEN_KINDS)
BYTES_PER_TOKEN_CEILING: Final = 16
"""A prompt counted at fewer tokens than a sixteenth of its bytes was probably cut by the server."""


class CallTotals:
    """Totals over the calls of one pass; durations take 8 bytes a call, the rest is constant."""

    def __init__(self) -> None:
        self.started = 0
        self.answered = 0
        self.failed = 0
        self.outcome_unknown = 0
        self.waited_ms = 0
        self.models_answered: Counter[str] = Counter()
        self.model_mismatch = 0
        self.suspected_prompt_truncation = 0
        self._tokens: dict[str, int | None] = dict.fromkeys(TOKEN_KINDS)
        self._without_usage = 0
        self._durations_us = array("q")

    def add_reply(self, reply: Mapping[str, Any], *, asked_model: str | None, sent_bytes: int | None) -> None:
        """Count a ``ModelCalled``; ``sent_bytes`` is its ``ModelCallStarted``'s, where known."""
        self.answered += 1
        self._durations_us.append(reply["duration_us"])
        model = reply["model"]
        if model is not None:
            self.models_answered[model] += 1
            self.model_mismatch += model != asked_model
        tokens = self._tokens
        for kind, member in _TOKEN_MEMBERS:
            reported = reply[member]
            if reported is not None:
                tokens[kind] = (tokens[kind] or 0) + reported
        prompt_tokens = reply["prompt_tokens"]
        if prompt_tokens is None or reply["completion_tokens"] is None:
            self._without_usage += 1
        if prompt_tokens is not None and sent_bytes is not None:
            self.suspected_prompt_truncation += prompt_tokens * BYTES_PER_TOKEN_CEILING < sent_bytes

    def add_failure(self, failure: Mapping[str, Any]) -> None:
        """Count a ``ModelCallFailed``."""
        self.failed += 1
        self.outcome_unknown += failure["outcome_unknown"]
        self.waited_ms += failure["wait_ms"] or 0

    def tokens(self) -> dict[str, int | None]:
        """Totals over the calls that reported each count, and the calls without usage.

        What a reply claims may add up to more than JSON's integers hold: then nobody can say the total, and it is null.
        """
        told = {kind: total if total is None or total <= MAX_INTEGER else None for kind, total in self._tokens.items()}
        return {**told, "calls_without_usage": self._without_usage}

    def calls(self) -> dict[str, int]:
        """Attempts by what became of them, and the time waited between them (milliseconds)."""
        return {
            "started": self.started,
            "answered": self.answered,
            "failed": self.failed,
            "outcome_unknown": self.outcome_unknown,
            "waited_ms": self.waited_ms,
        }

    def latency_us(self) -> dict[str, int | None]:
        """Percentiles of answered calls in microseconds; all null where none was answered."""
        ordered = sorted(self._durations_us)
        return {
            "p50": nearest_rank(ordered, 50),
            "p90": nearest_rank(ordered, 90),
            "p99": nearest_rank(ordered, 99),
            "max": nearest_rank(ordered, 100),
        }


def nearest_rank(ordered: Sequence[int], percent: int) -> int | None:
    """The smallest value with at least ``percent`` % of all at or below it; null of nothing.

    Always a value that was measured, and no float on the way. ``percent`` is 1 to 100.
    """
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
