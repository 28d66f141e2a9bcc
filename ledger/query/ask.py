"""From a ledger's URL and a question to its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ledger.query import sqlite
from ledger.query.answer import Answer, Question
from ledger.store import open_store
from ledger.store.place import parse


@contextmanager
def ask(url: str, question: Question, *, role: str | None = None) -> Iterator[Answer]:
    """Ask; the answer's rows may be read within the block.

    ``role``: on Postgres, the role whose rights are used, which the URL's user must be a member of. None takes
    ``replay_ledger_auditor`` where there is one that may read this ledger and the user may become it.

    Raises ``BadQuery`` (also while rows are read), ``QueryTimeout``, and what ``open_store`` raises where there is no
    ledger to ask.
    """
    place = parse(url)
    question.read(place.dialect)
    open_store(url, "read").close()  # says what is wrong with what is there
    if place.dialect == "sqlite":
        with sqlite.ask(place, question, role) as answer:
            yield answer
        return
    from ledger.query import postgres  # noqa: PLC0415 - its driver is slow to import, and SQLite does without

    with postgres.ask(place, question, role) as answer:
        yield answer
