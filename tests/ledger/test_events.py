"""Event ids, and payloads as they enter an event."""

from __future__ import annotations

import os
from random import Random

from ledger.event_ids import new_event_id
from ledger.events import EVENT_TYPES
from tests import stories


def test_a_forked_child_does_not_make_its_parents_ids() -> None:
    new_event_id()  # random bytes are drawn for many ids at once, and a fork copies those that are left
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "\n".join(new_event_id() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = {line[15:] for line in os.read(reader, 10_000).decode().splitlines()}
    ours = {new_event_id()[15:] for _ in range(50)}
    assert len(theirs) == len(ours) == 50
    assert not theirs & ours


def test_ten_thousand_ids_are_all_different() -> None:
    assert len({new_event_id() for _ in range(10_000)}) == 10_000


def test_the_facts_of_every_payload_are_what_its_model_dumps() -> None:
    seen = set()
    for seed in range(300):
        for event in stories.story(Random(seed)):
            payload = EVENT_TYPES[event.type].model_validate(event.payload)
            assert payload.facts() == payload.model_dump() == event.payload
            seen.add(event.type)
    assert {"LeakRejected", "RunCompleted", "RunAbandoned"} <= seen  # those with models inside
