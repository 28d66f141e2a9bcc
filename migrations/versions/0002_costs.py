"""What the calls cost, in two views over what the tables held already. Nothing is changed, and nothing is filled."""

from __future__ import annotations

from typing import Final

from migrations import sql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

VIEWS: Final = ("call_costs", "run_costs")


def upgrade() -> None:
    """Make the views. On Postgres who may read them is for `db grants`, as after each upgrade."""
    for view in VIEWS:
        sql.run(revision, view)
