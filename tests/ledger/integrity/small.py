"""A small finished ledger of two runs, to be looked at and tampered with."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

from ledger.events import LEDGER_RUN_ID, ContentRedacted, Counts, IntakeCompleted, NewEvent, RunCompleted, new_event
from ledger.projections.tables import fold
from ledger.store import Store, open_store
from tests import stories

ORIGIN = "ledger.example/audit"
REQUESTS = 70
ACCEPTED, CALLED, OUTPUT = 3, 73 + 2, 73 + 3  # positions of INC-1's RequestAccepted, ModelCalled, OutputAccepted
END = 2 + REQUESTS + 1 + 3 * REQUESTS + 1  # position of run-1's RunCompleted


def opened(url: str, mode: Literal["read", "write", "create"]) -> Store:
    return open_store(url, mode, fold=fold, origin=ORIGIN if mode == "create" else None)


def clean_run(run_id: str, requests: int) -> list[NewEvent]:
    """A run in which every request is answered well at once."""
    events: list[NewEvent] = []

    def say(payload: Any, request_id: str | None = None, content: str | bytes | None = None) -> None:
        events.append(new_event(payload, run_id=run_id, request_id=request_id, content=content))

    say(stories.started(), content='{"host":"h1"}')
    names = [f"INC-{number}" for number in range(1, requests + 1)]
    for line, name in enumerate(names, 1):
        say(stories.accepted(line, name), name, f'{{"incident_id":"{name}","user_prompt":"café 😀"}}')
    intake = {"lines": requests, "accepted": requests, "rejected": 0, "leaking": 0}
    say(IntakeCompleted(**intake, input_sha256=stories.digest("input"), selection=None))
    for name in names:
        output = stories.output_accepted()
        say(stories.call_started(1), name, '{"messages":[]}')
        say(stories.called(1), name, b"\xff\xfe" + name.encode())
        say(output, name, stories.output_text(output))
    counts = dict.fromkeys(Counts.model_fields, 0) | {"requests": requests, "accepted_first": requests}
    say(RunCompleted(outcome="completed", counts=Counts(**counts)))
    return events


def build(url: str) -> None:
    """Positions: 1 LedgerCreated; 2 to 284 run-1; then a story; last, the redaction of INC-2's line."""
    with opened(url, "create") as store:
        store.append(clean_run("run-1", REQUESTS))
        store.append(stories.story(Random(7), run_id="run-2"))
        store.append([redaction(ACCEPTED + 1)])


def redaction(*positions: int, run_id: str = LEDGER_RUN_ID) -> NewEvent:
    payload = ContentRedacted(positions=list(positions), reason="gdpr", actor="dpo-1")
    return new_event(payload, run_id=run_id, content="a person asked")
