"""Is there a ledger, and is its schema the one this program knows?"""

from __future__ import annotations

from typing import Final

from ledger.store.errors import LedgerNewer, LedgerNotFound, LedgerNotMigrated, NotALedger

SCHEMA_VERSION: Final = "0001"
"""The alembic revision that this code reads and writes."""

VERSION_TABLE: Final = "alembic_version"
HEAD_TABLE: Final = "ledger_head"
REVISION_SQL: Final = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608


def holds_ledger(tables: set[str], shown: str) -> bool:
    """True for a ledger's tables, False for none at all. Raises ``NotALedger`` for anything else."""
    if {VERSION_TABLE, HEAD_TABLE} <= tables:
        return True
    if tables:
        raise NotALedger(f"{shown}: the database holds other tables and no ledger")
    return False


def require_ledger(tables: set[str], shown: str) -> None:
    """Raise ``LedgerNotFound`` for an empty database, ``NotALedger`` for another program's."""
    if not holds_ledger(tables, shown):
        raise LedgerNotFound(f"{shown}: the database is empty, there is no ledger in it")


def check_revision(revision: str | None, shown: str) -> None:
    """Raise ``LedgerNewer`` or ``LedgerNotMigrated``, naming both versions, unless it is ours."""
    if revision == SCHEMA_VERSION:
        return
    if revision is None or not revision.isdigit():
        raise NotALedger(f"{shown}: the database is at revision {revision!a}, which is no ledger's")
    both = f"the ledger's schema is version {revision}, this program's is {SCHEMA_VERSION}"
    if revision > SCHEMA_VERSION:
        raise LedgerNewer(f"{shown}: {both}: a newer replay-ledger is needed")
    raise LedgerNotMigrated(f"{shown}: {both}: run `replay-ledger db upgrade` first")
