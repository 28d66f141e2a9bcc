"""What must be there before events can be judged: a sound file, the tables and views, the revision, a head.

Somebody who owns the database can drop or damage any of these. That is a finding, not a reason to
say nothing: the rest is judged as far as it can still be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlmodel import SQLModel

from ledger.integrity.verdict import Findings, printable
from ledger.store import Store
from ledger.store.backend import HEAD_SQL
from ledger.store.errors import LedgerMalformed
from ledger.store.records import Head
from ledger.store.schema import HEAD_TABLE, RECORD_TABLES, REVISION_SQL, SCHEMA_VERSION, VERSION_TABLE
from ledger.tables import PROJECTION_TABLES, PROJECTION_VIEWS

DATABASE_FILE: Final = "database file"
MAX_FILE_FAULTS: Final = 20

# A view's columns are not asked for: SQLite cannot tell those of a view whose table is gone.
_RELATIONS_SQL: Final = {
    "sqlite": """
SELECT m.name, 'table', c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'
UNION ALL SELECT name, 'view', NULL FROM sqlite_master WHERE type = 'view'
""",
    "postgresql": """
SELECT c.relname::text, CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END, a.attname::text
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v')
""",
}
# Not as a table, pragma_integrity_check: that raises at the first fault and does not tell the others.
_FILE_SQL: Final = f"PRAGMA integrity_check({MAX_FILE_FAULTS})"
_COUNT_SQL: Final = "SELECT count(*) FROM events"
_HEAD_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "origin": (str,),
    "format": (int,),
    "size": (int,),
    "root": (bytes,),
    "frontier": (bytes,),
    "recorded_at": (str, type(None)),
}


class Survey(NamedTuple):
    """What there is to judge by.

    ``whole``: every table, view and column is there. ``head``: what events are judged by, None where
    not even the origin is known. ``head_sound``: it is the stored head, every value of its right
    kind; else its size is the number of events, and nothing but its origin is to be relied on.
    """

    whole: bool
    head: Head | None
    head_sound: bool


def survey(store: Store, found: Findings) -> Survey:
    """Look at tables, revision and head; what is not as it was made goes to ``found``."""
    relations: dict[tuple[str, str], set[str]] = {}
    for name, kind, column in store.rows(_RELATIONS_SQL[store.dialect]):
        relations.setdefault((name, kind), set()).add(column)
    faulty = set(_missing(relations, found))
    if VERSION_TABLE not in faulty:
        _check_revision(store, found)
    head, sound = (None, False) if faulty & {HEAD_TABLE, "events"} else _head(store, found)
    return Survey(not faulty, head, sound)


def check_file(store: Store, found: Findings) -> None:
    """On SQLite: is every page, index and value of the file well formed? By SQLite's own check.

    What Postgres stores is behind its server, which has no such check for its clients.
    """
    if store.dialect != "sqlite":
        return
    try:
        for line in islice(_file_faults(store), MAX_FILE_FAULTS):
            found.add(None, DATABASE_FILE, "edited", printable(line))
    except LedgerMalformed as error:  # so damaged that the check itself gives up
        found.add(None, DATABASE_FILE, "edited", printable(error))


def _file_faults(store: Store) -> Iterator[str]:
    for (answer,) in store.rows(_FILE_SQL):
        # One answer may be many lines, under a heading that names the database.
        yield from (line for line in str(answer).splitlines() if line != "ok" and not line.startswith("***"))


def _missing(relations: dict[tuple[str, str], set[str]], found: Findings) -> Iterator[str]:
    """Tables and views that are gone, have lost columns, or in whose place something else bears the name."""
    for name in (*RECORD_TABLES, *PROJECTION_TABLES, *PROJECTION_VIEWS, VERSION_TABLE):
        kind, other = ("view", "table") if name in PROJECTION_VIEWS else ("table", "view")
        if (name, kind) not in relations:
            instead = f"; a {other} has its name" if (name, other) in relations else ""
            found.add(None, name, "removed", f"no such {kind}{instead}")
            yield name
            continue
        lost = sorted(_columns(name) - relations[name, kind])
        if lost:
            found.add(None, name, "edited", f"it has no column {', '.join(lost)}")
            yield name


def _columns(name: str) -> set[str]:
    if name == VERSION_TABLE:
        return {"version_num"}
    return set() if name in PROJECTION_VIEWS else set(SQLModel.metadata.tables[name].columns.keys())


def _check_revision(store: Store, found: Findings) -> None:
    revisions = [row[0] for row in store.rows(REVISION_SQL)]
    if not revisions:
        found.add(None, VERSION_TABLE, "removed", "the schema's version is gone")
    elif revisions != [SCHEMA_VERSION]:
        said = ", ".join(printable(item) for item in revisions[:2])
        found.add(None, VERSION_TABLE, "edited", f"the schema's version is {SCHEMA_VERSION}, the table says {said}")


def _head(store: Store, found: Findings) -> tuple[Head | None, bool]:
    rows = list(store.rows(HEAD_SQL))
    if not rows:
        found.add(None, HEAD_TABLE, "removed", "the ledger has no head")
        return None, False
    head = Head(*rows[0])
    wrong = list(_wrong_values(head))
    for member in wrong:
        found.add(None, HEAD_TABLE, "edited", f"its {member} is no {member}: a value of a wrong kind")
    if not wrong:
        return head, True
    if "origin" in wrong:
        return None, False
    ((count,),) = store.rows(_COUNT_SQL)
    return head._replace(size=count), False


def _wrong_values(head: Head) -> Iterator[str]:
    values: dict[str, Any] = head._asdict()
    for member, types in _HEAD_TYPES.items():
        if type(values[member]) not in types or (member == "size" and values[member] < 0):
            yield member
