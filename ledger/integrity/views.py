"""Are the views, through which people read the projection tables, as they were made?

An altered view shows something else than the tables that were compared with the log, so it is an
altered projection. SQLite keeps a view's text, which is compared. Postgres keeps a parsed form and
writes it out differently from version to version; there the plan of the view is compared with the plan
of its own definition: the planner puts a view's query in its place, so equal definitions plan alike.
"""

from __future__ import annotations

from typing import Final

from ledger.integrity.guards import made_by_migration
from ledger.integrity.verdict import Findings
from ledger.store import Store
from ledger.tables import PROJECTION_VIEWS

_TRIES: Final = 3
"""Statistics that the server gathers meanwhile can change a plan between two questions."""

_SQLITE_SQL: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'view'"


def check_views(store: Store, found: Findings) -> None:
    """Compare each view with the migration that made it; one that is gone is the survey's to tell."""
    altered = _altered_on_sqlite if store.dialect == "sqlite" else _altered_on_postgres
    for name, definition in _definitions(store):
        if altered(store, name, definition):
            found.add(None, name, "projection altered", "the view is not as it was made")


def _definitions(store: Store) -> list[tuple[str, str]]:
    """Each view's name and query."""
    made = []
    for text in made_by_migration(store.dialect):
        head, _, rest = text.partition(" AS\n")
        name = head.removeprefix("CREATE VIEW ")
        if name in PROJECTION_VIEWS:
            made.append((name, rest.partition(";")[0]))
    return sorted(made)


def _altered_on_sqlite(store: Store, name: str, definition: str) -> bool:
    there: dict[str, object] = dict(store.rows(_SQLITE_SQL))
    expected = f"CREATE VIEW {name} AS {definition}".split()
    return name in there and str(there[name]).split() != expected


def _altered_on_postgres(store: Store, name: str, definition: str) -> bool:
    sources = name, f"({definition}) AS {name}"
    return all(_plan(store, sources[0]) != _plan(store, sources[1]) for _ in range(_TRIES))


def _plan(store: Store, source: str) -> list[str]:
    return store.plan(f"SELECT * FROM {source}")  # noqa: S608 - a view of ours, or its query
