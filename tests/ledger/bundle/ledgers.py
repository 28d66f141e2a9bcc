"""Ledgers to bundle: the example's events appended here, and stories of two runs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from random import Random

from ledger.bundle.build import write_bundle
from ledger.events import NewEvent
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import SigningKey, sign_note
from ledger.projections.tables import fold
from ledger.render.issue import issue, last_consumed, rendering
from ledger.store import Store, open_store
from tests.ledger.bundle.bundles import KEY
from tests.ledger.store.test_example import as_new, lines
from tests.stories import story

RENDERINGS = {
    "report.json": ("report", "json"),
    "results.jsonl": ("results", "jsonl"),
    "report.html": ("report", "html"),
}


def example_ledger(url: str) -> Store:
    """The example's events, appended with their ids, times and salts."""
    created, *rest = lines()
    now = [datetime.fromisoformat(created["envelope"]["recorded_at"])]
    store = open_store(
        url,
        "create",
        fold=fold,
        origin=created["envelope"]["ledger"],
        created=as_new(created),
        clock=lambda: now[0],
        accept_clock=True,
    )
    for line in rest:
        now[0] = datetime.fromisoformat(line["envelope"]["recorded_at"])
        store.append([as_new(line)])
    return store


def told(seed: int, *, run_id: str, lines: int, at_least: int = 0, ended: bool = True) -> list[NewEvent]:
    """A story of about that many lines, with a terminal event or without."""
    terminal = {"RunCompleted", "RunBlocked", "RunAbandoned"}
    while True:
        events = story(Random(seed), run_id=run_id, max_lines=lines)
        last = max((event.type for event in events if event.type in terminal or event.type == "RunStarted"), default="")
        kinds = [event.type for event in events if event.type in terminal | {"RunStarted"}]
        if last and len(events) >= at_least and (kinds[-1] in terminal) is ended:
            return events
        seed += 1


def make_reports(store: Store, run_id: str) -> dict[str, bytes]:
    position = last_consumed(store, run_id)
    return {name: b"".join(rendering(*of).render(store, run_id, position)) for name, of in RENDERINGS.items()}


def issue_all(store: Store, run_id: str, reports: Mapping[str, bytes]) -> None:
    position = last_consumed(store, run_id)
    for name, data in reports.items():
        digest = sha256(data).hexdigest()
        issue(store, run_id, rendering(*RENDERINGS[name]), as_of_position=position, sha256=digest, actor="tester")


def sign(store: Store, key: SigningKey = KEY) -> str:
    head = store.head()
    return sign_note(format_checkpoint(Checkpoint(head.origin, head.size, head.root)), [key])


def bundled(store: Store, run_id: str, note: str, reports: Mapping[str, bytes]) -> bytes:
    with tempfile.TemporaryFile() as file:
        write_bundle(store, run_id, note, {name: [data] for name, data in reports.items()}, file)
        file.seek(0)
        return file.read()


def bundle_of(store: Store, run_id: str) -> tuple[bytes, str]:
    """A bundle of the run with its reports issued, and the note it rests on."""
    reports = make_reports(store, run_id)
    issue_all(store, run_id, reports)
    note = sign(store)
    return bundled(store, run_id, note, reports), note


def story_ledger(folder: Path, *events: list[NewEvent]) -> Store:
    store = open_store(f"sqlite:///{folder / 'stories.db'}", "create", fold=fold, origin=KEY.name)
    for batch in events:
        store.append(batch)
    return store
