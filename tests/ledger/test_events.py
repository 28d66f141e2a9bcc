"""Event ids, and payloads as they enter an event."""

from __future__ import annotations

import os
import re
import time
from random import Random

import pytest

from ledger.event_ids import new_event_id
from ledger.events import EVENT_TYPES, OutputAccepted, RequestAccepted, new_event
from ledger.integrity.canonical import CanonicalError, encode
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


def test_an_id_is_a_uuid_of_version_7_and_begins_with_its_millisecond() -> None:
    for _ in range(600):  # more than random bytes are drawn for at once
        before = time.time_ns() // 1_000_000
        event_id = new_event_id()
        after = time.time_ns() // 1_000_000
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", event_id)
        assert before - 1 <= int(event_id[:8] + event_id[9:13], 16) <= after + 1  # a float of seconds is rounded


def test_the_facts_of_every_payload_are_what_its_model_dumps() -> None:
    seen = set()
    for seed in range(300):
        for event in stories.story(Random(seed)):
            payload = EVENT_TYPES[event.type].model_validate(event.payload)
            assert payload.facts() == payload.model_dump() == event.payload
            assert new_event(payload, run_id="run").payload_json == encode(payload.model_dump())
            seen.add(event.type)
    assert {"LeakRejected", "RunCompleted", "RunAbandoned"} <= seen  # those with models inside


def test_no_payload_is_made_without_being_validated() -> None:
    payload = OutputAccepted(
        turn=1, risk_level="low", requires_human_approval=False, blocked_by_policy=False, allowances=[]
    )
    with pytest.raises(TypeError, match="OutputAccepted is made by its constructor"):
        OutputAccepted.model_construct(turn=1.5)
    with pytest.raises(TypeError, match="OutputAccepted is made by its constructor"):
        payload.model_copy(update={"turn": 1.5})


def test_what_is_put_into_a_payloads_list_or_object_afterwards_is_checked() -> None:
    output = OutputAccepted(
        turn=1, risk_level="low", requires_human_approval=False, blocked_by_policy=False, allowances=[]
    )
    output.allowances.append(1.5)  # type: ignore[arg-type]
    accepted = RequestAccepted(
        line=1, incident_id="i", policy_id=None, facets={}, system_prompt_sha256="0" * 64, contract_sha256="0" * 64
    )
    accepted.facets["half"] = 0.5  # type: ignore[assignment]
    for payload in (output, accepted):
        with pytest.raises(CanonicalError, match="float"):
            new_event(payload, run_id="run")
