"""Are the triggers that keep the record append-only there, as they were made, and switched on? And are there others?

A trigger that is gone proves nothing wrong: no hash covers it. It does mean that whoever dropped it
could have changed rows since, so a verdict names it among what is unproven. A trigger, or a rule of Postgres,
that somebody else made on a table of ours does what nobody knows with each row, such as keep a copy of a
text that is erased: no hash covers that either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from ledger.integrity.verdict import printable
from ledger.store import Store
from ledger.store.place import Dialect
from ledger.store.schema import RECORD_TABLES, VERSION_TABLE, is_revision
from ledger.tables import PROJECTION_TABLES, PROJECTION_VIEWS

OURS: Final = frozenset({*RECORD_TABLES, *PROJECTION_TABLES, *PROJECTION_VIEWS, VERSION_TABLE})
"""The tables and views that the migrations make."""

_SQLITE_SQL: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
_POSTGRES_SQL: Final = """
SELECT c.relname::text, t.tgname::text, t.tgenabled::text, t.tgqual IS NULL, p.proname::text, p.prosrc
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE n.nspname = current_schema() AND NOT t.tgisinternal
"""
_SQLITE_PLACES_SQL: Final = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"
# A view is itself a rule, of the name _RETURN; a constraint's own triggers are internal.
_POSTGRES_PLACES_SQL: Final = """
SELECT 'trigger', t.tgname::text, c.relname::text
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND NOT t.tgisinternal
UNION ALL
SELECT 'rule', r.rulename::text, c.relname::text
FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND r.rulename <> '_RETURN'
"""
_ENABLED_ALWAYS: Final = "A"
_LEADING_COMMENTS: Final = re.compile(r"\A(?:\s*--[^\n]*\n)+")
_TRIGGER: Final = re.compile(r"CREATE TRIGGER (\w+) [^;]*? ON (\w+)\s[^;]*? EXECUTE FUNCTION (\w+)\(\)")
_FUNCTION: Final = re.compile(r"CREATE FUNCTION (\w+)\(\).*?AS \$\$(.*?)\$\$", re.DOTALL)


def faulty_guards(store: Store) -> list[str]:
    """Each guard that is not as the migration made it: its name and, in words, what is wrong with it."""
    return sorted(_on_sqlite(store) if store.dialect == "sqlite" else _on_postgres(store))


def foreign_triggers(store: Store) -> list[str]:
    """Each trigger, and each rule of Postgres, on a table or view of ours that the migration did not make.

    In words: ``a trigger that is not ours: NAME on TABLE``. One of ours that was altered is ``faulty_guards``' to tell.
    """
    found = _foreign_on_sqlite(store) if store.dialect == "sqlite" else _foreign_on_postgres(store)
    return sorted(f"a {kind} that is not ours: {printable(name)} on {printable(table)}" for kind, name, table in found)


def _foreign_on_sqlite(store: Store) -> Iterator[tuple[str, str, str]]:
    made = {text.split()[2] for text in map(_first_words, made_by_migration("sqlite")) if text[:14] == "CREATE TRIGGER"}
    for name, table in store.rows(_SQLITE_PLACES_SQL):
        # SQLite knows no upper and lower case in names, and keeps a trigger's table as it was written.
        if str(table).lower() in OURS and name not in made:
            yield "trigger", name, table


def _foreign_on_postgres(store: Store) -> Iterator[tuple[str, str, str]]:
    made = {(name, table) for name, table, _ in _TRIGGER.findall("\n".join(made_by_migration("postgresql")))}
    for kind, name, table in store.rows(_POSTGRES_PLACES_SQL):
        if table in OURS and (kind == "rule" or (name, table) not in made):
            yield kind, name, table


def made_by_migration(dialect: Dialect) -> Iterator[str]:
    """The SQL that made this dialect's triggers and views, a text a file: each revision adds its own."""
    # The folder is not imported as a package: that would bring in all of alembic.
    for revision in files("migrations").joinpath("sql").iterdir():
        if is_revision(revision.name):
            for file in revision.joinpath(dialect).iterdir():
                if file.name.endswith(".sql"):
                    yield file.read_text(encoding="utf-8")


def _first_words(text: str) -> str:
    """SQLite keeps a trigger's text from its first word on."""
    return _LEADING_COMMENTS.sub("", text)


def _on_sqlite(store: Store) -> Iterator[str]:
    there = {name: " ".join(str(sql).split()) for name, sql in store.rows(_SQLITE_SQL)}
    for text in made_by_migration("sqlite"):
        words = _first_words(text).split()
        if words[:2] != ["CREATE", "TRIGGER"]:
            continue
        name = words[2]
        if name not in there:
            yield f"{name} is missing"
        elif there[name] != " ".join(words):
            yield f"{name} is altered"


def _on_postgres(store: Store) -> Iterator[str]:
    made = "\n".join(made_by_migration("postgresql"))
    bodies = dict(_FUNCTION.findall(made))
    there = {(table, name): rest for table, name, *rest in store.rows(_POSTGRES_SQL)}
    for name, table, function in _TRIGGER.findall(made):
        guard = f"{name} on {table}"
        if (table, name) not in there:
            yield f"{guard} is missing"
            continue
        enabled, unconditional, called, body = there[table, name]
        if enabled != _ENABLED_ALWAYS:
            yield f"{guard} is not always enabled"
        elif not unconditional or called != function or body != bodies[function]:
            yield f"{guard} is altered"
