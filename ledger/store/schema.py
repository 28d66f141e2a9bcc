"""Is there a ledger, and is its schema the one this program knows?"""

from __future__ import annotations

from typing import Final, TypeGuard

from ledger.store.errors import LedgerNewer, LedgerNotFound, LedgerNotMigrated, NotALedger

SCHEMA_VERSION: Final = "0002"
"""The alembic revision that this code reads and writes."""

VERSION_TABLE: Final = "alembic_version"
HEAD_TABLE: Final = "ledger_head"
RECORD_TABLES: Final = ("events", "contents", "redactions", "tree_nodes", "checkpoints", HEAD_TABLE)
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


def resembles_ledger(tables: set[str]) -> bool:
    """Are so many of the record's tables there that this is a ledger, though perhaps a damaged one?"""
    return len(tables.intersection(RECORD_TABLES)) > len(RECORD_TABLES) // 2


def is_revision(revision: object) -> TypeGuard[str]:
    """Could this be a revision of ours: digits and nothing else?"""
    return isinstance(revision, str) and revision.isascii() and revision.isdigit()


def check_revision(revision: str | None, shown: str) -> None:
    """Raise ``LedgerNewer`` or ``LedgerNotMigrated``, naming both versions, unless it is ours."""
    if revision == SCHEMA_VERSION:
        return
    if revision is None or not is_revision(revision):
        raise NotALedger(f"{shown}: the database is at revision {revision!a}, which is no ledger's")
    both = f"the ledger's schema is version {revision}, this program's is {SCHEMA_VERSION}"
    if revision > SCHEMA_VERSION:
        raise LedgerNewer(f"{shown}: {both}: a newer replay-ledger is needed")
    raise LedgerNotMigrated(f"{shown}: {both}: run `replay-ledger db upgrade` first")
