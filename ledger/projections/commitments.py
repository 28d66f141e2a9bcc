"""Is a content what its event was recorded with? By the commitment alone, a hash each.

Whether the event itself is as it was recorded is ``verify``'s to say; this is for what shows text, so that a
text put in another's place is not handed out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from ledger.store import Store
from ledger.store.envelope import commitment
from ledger.store.errors import LedgerMalformed

_AT_ONCE: Final = 500
_KEPT_SQL: Final = """
SELECT e.position, e.content_commitment, c.salt, r.event_position
FROM events AS e
LEFT JOIN contents AS c ON c.position = e.position LEFT JOIN redactions AS r ON r.position = e.position
WHERE e.position IN (%s)
"""


class ContentAltered(LedgerMalformed):
    """A content that is not the one its event was recorded with."""

    exit_code = 1

    def __init__(self, position: int) -> None:
        super().__init__(
            f"the content of position {position} does not match the record: it is not what its event committed to; "
            "`replay-ledger verify` says what else does not match"
        )


class Kept(NamedTuple):
    """What is on record of an event's content, without the content."""

    commitment: str | None
    """Null where the event had no content."""
    salt: Any
    """Null where there is no content (any more)."""
    redacted_by: int | None

    def matches(self, content: bytes) -> bool:
        """Is this the content that the event was recorded with?"""
        return isinstance(self.salt, bytes) and commitment(self.salt, content) == self.commitment


def kept(store: Store, positions: Sequence[int]) -> dict[int, Kept]:
    """What is on record of the contents of these events."""
    found: dict[int, Kept] = {}
    remaining = iter(positions)
    while chunk := list(islice(remaining, _AT_ONCE)):
        marks = ", ".join(f":p{number}" for number in range(len(chunk)))
        numbered = {f"p{number}": position for number, position in enumerate(chunk)}
        for position, committed, salt, redacted_by in store.rows(_KEPT_SQL % marks, numbered):
            found[position] = Kept(committed, salt, redacted_by)
    return found


def altered(store: Store, contents: Mapping[int, bytes | None]) -> Iterator[int]:
    """Lowest first, those that do not match the record; what is erased (None, or by now) is passed over."""
    held = {position: content for position, content in contents.items() if content is not None}
    for position, of in sorted(kept(store, list(held)).items()):
        if of.redacted_by is None and not of.matches(held[position]):
            yield position
