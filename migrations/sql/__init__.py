"""Reading SQL objects kept one a file, so that a folder reads like a table of contents."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import op

_FOLDER: Final = Path(__file__).parent


def run(revision: str, name: str) -> None:
    """Run ``sql/<revision>/<dialect>/<name>.sql`` on the migration's connection.

    ``@schema@`` in it stands for the schema that the tables are in (Postgres).
    """
    connection = op.get_bind()
    dialect = connection.dialect.name
    text = (_FOLDER / revision / dialect / f"{name}.sql").read_text(encoding="utf-8")
    if "@schema@" in text:
        schema = connection.exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
        text = text.replace("@schema@", schema)
    if dialect == "postgresql":
        text = text.replace("%", "%%")  # the driver reads a lone one as the place of a parameter
    connection.exec_driver_sql(text)
