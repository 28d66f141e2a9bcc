"""A ledger with everything that a report can tell: retries, refusals, leaks, prices, hostile text, grades."""

from __future__ import annotations

from random import Random

from ledger.events import NewEvent
from ledger.projections.grading import Label, record_grades
from ledger.projections.tables import fold
from ledger.store import Store, open_store
from tests.ledger.query import scene
from tests.stories import digest, story

TOLD = "told"
"""The run with the longest story; beside it are those of ``tests.ledger.query.scene``, ``first`` and ``second``."""


def make(url: str) -> None:
    """Make the ledger at ``url``."""
    scene.make(url)
    with open_store(url, "write", fold=fold, accept_clock=True) as store:
        store.append(
            max(filter(_is_over, (story(Random(seed), run_id=TOLD, max_lines=12) for seed in range(60))), key=len)
        )
        for run_id in ("first", "second", TOLD):
            _grade(store, run_id)


def _is_over(events: list[NewEvent]) -> bool:
    return any(event.type == "RunCompleted" for event in events)


def _grade(store: Store, run_id: str) -> None:
    """Labels for every other request, some of them met, and one that is for none."""
    requests = [
        request
        for (request,) in store.rows("SELECT request_id FROM requests WHERE run_id = :r ORDER BY line", {"r": run_id})
    ]
    levels = ("low", "critical", "medium", "high")
    labels = [
        Label(request, None, levels[number % 4], None, number % 3 == 0, None, line=number + 1)
        for number, request in enumerate([*requests[::2], "nobody"])
    ]
    record_grades(store, run_id, labels, file_sha256=digest("labels"), actor="ops-7")
