"""The append-only store of events, on SQLite and Postgres (docs/ledger-format.md, sections 1 to 3)."""

from ledger.store.changes import Change, RowChange, TableFold, no_fold
from ledger.store.errors import LedgerError
from ledger.store.expected import ANY, NO_RUN, Expected
from ledger.store.open import open_store
from ledger.store.records import Batch, Checkpoint, Head, Receipt, Record, Unreadable
from ledger.store.store import Store, Transaction
from ledger.store.writer import Writer

__all__ = [
    "ANY",
    "NO_RUN",
    "Batch",
    "Change",
    "Checkpoint",
    "Expected",
    "Head",
    "LedgerError",
    "Receipt",
    "Record",
    "RowChange",
    "Store",
    "TableFold",
    "Transaction",
    "Unreadable",
    "Writer",
    "no_fold",
    "open_store",
]
