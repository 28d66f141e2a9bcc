"""The first incidents of a kind, of which the report knows how many there are: what is shown where not all may be."""

from __future__ import annotations

from ledger.projections.incidents import Incident


class Picked:
    """``first``: as many of the ``count`` there are as are shown."""

    def __init__(self, count: int, shown: int) -> None:
        self.first: list[Incident] = []
        self.count = count
        self._wanted = min(count, shown)

    @property
    def full(self) -> bool:
        """All that is shown was found; nothing more need be read for it."""
        return len(self.first) >= self._wanted

    def add(self, incident: Incident) -> None:
        """Keep it where there is room."""
        if not self.full:
            self.first.append(incident)

    @property
    def more(self) -> int:
        """How many are not among the first."""
        return self.count - len(self.first)
