"""The record: an append-only, re-checkable log of events, and what is computed from it.

from ledger import open_ledger

with open_ledger("sqlite:///replay-ledger.db", "read") as store:
    for event in store.events("my-run"):
        ...
"""

# ruff: noqa: PLC0415
# Nothing is imported before it is used: whoever imports one module of this package imports this one
# too, and the database drivers take longer to load than most commands to run.
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.store import Head, Store
    from ledger.store.copy import Progress
    from ledger.store.open import Mode

__all__ = ["copy_ledger", "open_ledger"]


def open_ledger(url: str, mode: Mode, **options: Any) -> Store:
    """Open the ledger at ``url``, its projection tables kept up; see ``ledger.store.open_store``."""
    from ledger.projections.tables import fold
    from ledger.store import open_store

    return open_store(url, mode, fold=fold, **options)


def copy_ledger(source: str, target: str, progress: Progress | None = None) -> Head:
    """Copy a ledger unchanged, its projection tables folded anew; see ``ledger.store.copy``."""
    from ledger.projections.tables import fold
    from ledger.store import copy

    return copy.copy_ledger(source, target, progress, fold=fold)
