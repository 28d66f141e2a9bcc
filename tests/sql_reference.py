"""The tables of a ledger as the last part of ``docs/sql.md``: ``python -m tests.sql_reference`` writes it anew.

What stands above the marker is written by hand; all below it is made from the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ledger.query.schema import KINDS, tables

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "sql.md"
MARKER: Final = "<!-- What follows is made from the code: python -m tests.sql_reference -->\n"


def with_tables(page: str) -> str:
    """The page with its lower part made anew. Raises ``ValueError`` where the marker is missing."""
    upper, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError(f"no line {MARKER.strip()!r}")
    return upper + marker + "".join(_sections())


def _sections() -> Iterator[str]:
    yield "\n| kind | on SQLite | on Postgres |\n|---|---|---|\n"
    for kind, (sqlite, postgres) in KINDS.items():
        yield f"| {kind} | {sqlite} | {postgres} |\n"
    for table in tables():
        yield f"\n### {table.name}\n\n{table.comment}.{' A view.' if table.is_view else ''}\n\n"
        yield "| column | kind | null | meaning |\n|---|---|---|---|\n"
        for column in table.columns:
            yield f"| {column.name} | {column.kind} | {'yes' if column.nullable else ''} | {column.comment} |\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
