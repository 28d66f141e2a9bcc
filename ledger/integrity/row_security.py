"""Row-level security of Postgres on the ledger's tables: the migration makes none, and it hides rows.

Who reads through it cannot tell a row that is hidden from one that is gone. So what it hides is unproven,
not altered: a verdict says that it is on, and where it hides rows from this very reader, of what it does not judge.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.integrity.guards import OURS
from ledger.store import Store
from ledger.tables import PROJECTION_TABLES, PROJECTION_VIEWS

CONTENTS: Final = "contents"
_SQL: Final = """
SELECT c.relname::text, row_security_active(c.oid)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND c.relrowsecurity ORDER BY c.relname
"""


class RowSecurity(NamedTuple):
    """The tables of ours that it is on for, and those of them in which it may hide rows from this reader."""

    on: tuple[str, ...] = ()
    hiding: tuple[str, ...] = ()

    @property
    def hides_record(self) -> bool:
        """Is anything hidden without which no event can be judged?"""
        return any(table not in (*PROJECTION_TABLES, CONTENTS) for table in self.hiding)

    @property
    def hides_projections(self) -> bool:
        """Are rows of the tables made from the log hidden?"""
        return any(table in PROJECTION_TABLES for table in self.hiding)

    @property
    def hides_contents(self) -> bool:
        """Is a content that is not seen perhaps there?"""
        return CONTENTS in self.hiding

    def told(self) -> str:
        """One sentence for a verdict, where it is on."""
        said = f"that everybody sees the same rows: row-level security, which is not ours, is on for {_list(self.on)}"
        if not self.hiding:
            return said
        left_out = ["the events"] if self.hides_record else []
        left_out += [f"contents that are not seen, and the views ({_list(PROJECTION_VIEWS)})"]
        left_out += ["the tables made from the log"] if self.hides_projections else []
        return (
            f"{said}, and may hide rows of {_list(self.hiding)} from this reader, who cannot tell what is hidden from "
            f"what is gone. Left out: {'; '.join(left_out)}. Verify as the owner of the tables, or switch it off"
        )


def row_security(store: Store) -> RowSecurity:
    """Where it is on, and where it applies to whoever has this store open."""
    if store.dialect == "sqlite":
        return RowSecurity()
    found = [(table, active) for table, active in store.rows(_SQL) if table in OURS]
    return RowSecurity(tuple(table for table, _ in found), tuple(table for table, active in found if active))


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)
