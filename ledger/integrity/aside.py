"""What a database can answer by itself, asked in a thread of its own while the events are hashed.

The thread dies with the process: a question that takes long keeps nobody who was told to stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ledger.integrity.verdict import Findings

Question = Callable[[Findings], None]


class Answer(NamedTuple):
    """What came of a question: its findings, and the error that ended it, if any."""

    name: str
    found: Findings
    error: Exception | None


class Aside:
    """Asks questions one after another; ``answers`` waits for them. ``inline``: without a thread."""

    def __init__(self, questions: dict[str, Question], *, inline: bool) -> None:
        self._questions = questions
        self._answers: list[Answer] = []
        self._thread = None if inline else threading.Thread(target=self._ask, name="verify-aside", daemon=True)
        if self._thread is not None:
            self._thread.start()

    def answers(self) -> Iterator[Answer]:
        """What came of each, in the order in which they were asked."""
        if self._thread is None:
            self._ask()
        else:
            self._thread.join()
        yield from self._answers

    def _ask(self) -> None:
        for name, question in self._questions.items():
            found = Findings()
            error = None
            try:
                question(found)
            except Exception as caught:  # noqa: BLE001 - whoever waits for the answer judges it
                error = caught
            self._answers.append(Answer(name, found, error))
