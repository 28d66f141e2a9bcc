"""Rows that belong to no event: the walk cannot meet them, since no event up to the head leads to them."""

from __future__ import annotations

from typing import Final

from ledger.integrity.merkle import FANOUT_BITS
from ledger.integrity.verdict import MAX_FINDINGS, Findings, printable
from ledger.store import Store

_HIGHEST: Final = 7
"""The level above which a node has more leaves than a position can number."""

_BEYOND_SQL: Final = """
SELECT position FROM {table} WHERE position < 1
UNION ALL
SELECT position FROM {table} WHERE position > (SELECT size FROM ledger_head WHERE id = 1)
ORDER BY 1 LIMIT :limit
"""
_NUMBERED: Final = ("events", "contents", "redactions")
_LEVELS_SQL: Final = """
SELECT level, min(node_index), max(node_index), (SELECT max(size) FROM ledger_head) FROM tree_nodes GROUP BY level
"""
_HEADS_SQL: Final = "SELECT count(*) FROM ledger_head"


def check_strays(store: Store, found: Findings) -> None:
    """Look for events, contents, redactions and nodes beyond the head, and for a second head."""
    for table in _NUMBERED:
        for (position,) in store.rows(_BEYOND_SQL.format(table=table), {"limit": MAX_FINDINGS + 1}):
            at = position if type(position) is int else None
            found.add(at, table, "inserted", "stands beyond the size that the head says")
    for level, first, last, size in store.rows(_LEVELS_SQL, {}):
        if not all(type(number) is int for number in (level, first, last, size)):
            found.add(None, "tree_nodes", "edited", "a level or an index that is no number")
        elif not 1 <= level <= _HIGHEST or first < 0 or (last + 1) << level * FANOUT_BITS > size:
            found.add(None, "tree_nodes", "inserted", f"nodes of level {printable(level)} beyond the last event")
    for (heads,) in store.rows(_HEADS_SQL, {}):
        if heads != 1:
            found.add(None, "ledger_head", "inserted", f"{heads} heads where there is one")
