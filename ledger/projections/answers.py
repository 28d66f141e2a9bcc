"""The text of accepted answers, joined in from ``contents``: whole, or lawfully erased, or an error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ledger.projections.commitments import ContentAltered, altered
from ledger.store import Store
from ledger.store.errors import LedgerMalformed

VERDICT: Final = ("risk_level", "requires_human_approval", "blocked_by_policy")

_REDACTED_SQL: Final = "SELECT position FROM redactions WHERE position >= :low AND position <= :high"


def erased(store: Store, positions: Sequence[int]) -> set[int]:
    """Those of the positions whose content was redacted."""
    if not positions:
        return set()
    low, high = min(positions), max(positions)
    return {position for (position,) in store.rows(_REDACTED_SQL, {"low": low, "high": high})} & set(positions)


def accepted_output(position: int, verdict: Mapping[str, Any], content: bytes | None) -> dict[str, Any]:
    """The answer that ``OutputAccepted`` at ``position`` holds; once its content is erased, the verdict alone.

    Raises ``LedgerMalformed`` for a content that is no JSON object.
    """
    if content is None:
        return {"proposed_action": None, "action_plan": None, **{fact: verdict[fact] for fact in VERDICT}}
    try:
        # Python's own decoder: integers of any size keep their digits.
        output = json.loads(content)
    except (ValueError, RecursionError):
        output = None
    if not isinstance(output, dict):
        raise LedgerMalformed(f"the content of position {position} is no JSON object")
    return output


def texts(store: Store, positions: Sequence[int]) -> dict[int, bytes | None]:
    """The content of each ``OutputAccepted`` event, None once erased; for a page of a few hundred.

    Raises ``LedgerMalformed`` where one is missing and no redaction says why, ``ContentAltered`` where one is not
    what its event committed to.
    """
    # In this order: what is erased between the two is missing, and known to be erased.
    contents = store.contents(positions)
    gone = erased(store, positions)
    for position in positions:
        if position not in contents and position not in gone:
            raise LedgerMalformed(f"the content of position {position} is missing and no redaction says why")
    for position in altered(store, contents):
        raise ContentAltered(position)
    return {position: None if position in gone else contents[position] for position in positions}
