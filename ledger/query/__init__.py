"""Questions in SQL, asked of a ledger that they cannot change.

``text`` reads a question without a database: one statement, and the names of its parameters. ``sqlite`` and
``postgres`` ask it, each on a connection that cannot write; ``ask`` opens the right one. ``schema`` tells which
tables and columns there are.
"""

from __future__ import annotations

from ledger.query.answer import Answer, Question
from ledger.query.ask import ask
from ledger.query.errors import BadQuery, QueryTimeout

__all__ = ["Answer", "BadQuery", "QueryTimeout", "Question", "ask"]
