"""How a ledger's schema came to be: alembic, one baseline, then one file a change, for both databases.

Only ``replay-ledger db upgrade`` (and whatever creates a ledger) runs these; see
``ledger/store/migrate.py``. Developers use alembic's own command line, whose settings are in
``pyproject.toml``.
"""
