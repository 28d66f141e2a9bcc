"""The first incidents of a kind, and how many there are: what a rendering that may not grow shows of them."""

from __future__ import annotations

from ledger.projections.incidents import Incident


class Picked:
    """``first``: as many as are shown; ``count``: all of them. Memory does not grow."""

    def __init__(self, shown: int) -> None:
        self.first: list[Incident] = []
        self.count = 0
        self._shown = shown

    def add(self, incident: Incident) -> None:
        """Count it, and keep it where there is room."""
        self.count += 1
        if len(self.first) < self._shown:
            self.first.append(incident)

    @property
    def more(self) -> int:
        """How many are not among the first."""
        return self.count - len(self.first)
