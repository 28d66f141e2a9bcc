"""The tables that may be asked, as text for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ledger.render.columns import line, widths

if TYPE_CHECKING:
    from ledger.query.schema import TableInfo

RENDERER_VERSION: Final = 1


def render(tables: Iterable[TableInfo]) -> Iterator[bytes]:
    """Each table's name and comment, then a line a column: name, kind, comment."""
    before = ""
    for table in tables:
        yield f"{before}{table.name}{' (view)' if table.is_view else ''}: {table.comment}\n".encode()
        cells = [[f"  {column.name}", column.kind, column.comment] for column in table.columns]
        needed = widths(cells)
        for row in cells:
            yield f"{line(row, needed)}\n".encode()
        before = "\n"
