"""A stored tree in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.integrity.merkle import Frontier


class Tiles:
    """A stored tree, as a ledger keeps it; counts the hashes read."""

    def __init__(self, hashes: Sequence[bytes]) -> None:
        self.leaves = list(hashes)
        self.nodes: dict[int, list[bytes]] = {}
        self.reads = 0
        frontier = Frontier()
        for item in hashes:
            for level, index, node in frontier.append(item):
                row = self.nodes.setdefault(level, [])
                assert index == len(row)
                row.append(node)

    def read_leaves(self, first: int, count: int) -> Sequence[bytes]:
        self.reads += count
        return self.leaves[first : first + count]

    def read_nodes(self, level: int, first: int, count: int) -> Sequence[bytes]:
        self.reads += count
        return self.nodes[level][first : first + count]
