"""Contents that are not what was recorded, told to whoever had them shown."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from commands._output import say
from ledger.projections.conversations import Evidence

_SAID: Final = 20
_FAULTS: Final = {
    "altered": "does not match the record: it is not what its event committed to",
    "missing": "is missing and no redaction says why",
    "undecodable": "cannot be decoded",
}


def tell_faults(faults: Collection[Evidence], where: str = "") -> None:
    """The first of them by position, how many more there are, and who says what else. ``where``: added to each."""
    for evidence in list(faults)[:_SAID]:
        say(f"The content of position {evidence.position} {_FAULTS[evidence.state]}{where}.")
    if len(faults) > _SAID:
        say(f"... and {len(faults) - _SAID:,} more contents that are not as recorded")
    if faults:
        say("`replay-ledger verify` says what else does not match.")
