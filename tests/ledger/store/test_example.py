"""The example ledger, made by an independent program from the description of the format alone."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ledger.events import NewEvent
from ledger.integrity import canonical
from ledger.store import open_store
from ledger.store.envelope import Envelopes
from tests.ledger.store.making import Clock

EXAMPLE = Path(__file__).parents[2] / "data" / "ledger_example"
ERASED = 6
ERASED_CONTENT = base64.b64decode("//4gbm90IFVURi04")
ERASED_SALT = bytes.fromhex("3d547e341ed3c35631819bd9bfe33d6f900dda1d053a014194af6b7444bb9fba")


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXAMPLE / "events.jsonl").read_text(encoding="utf-8").splitlines()]


def as_new(line: dict[str, Any]) -> NewEvent:
    envelope = line["envelope"]
    content = salt = None
    if envelope["position"] == ERASED:
        content, salt = ERASED_CONTENT, ERASED_SALT
    elif line["content"] is not None:
        body = line["content"]
        content = body.encode() if line["encoding"] == "utf-8" else base64.b64decode(body)
        salt = bytes.fromhex(line["salt"])
    return NewEvent(
        event_id=envelope["event_id"],
        type=envelope["type"],
        schema=envelope["schema"],
        run_id=envelope["run_id"],
        request_id=envelope["request_id"],
        payload=line["payload"],
        payload_json=canonical.encode_payload(line["payload"]),
        content=content,
        salt=salt,
    )


def test_the_example_gets_the_same_leaves_and_roots_at_every_size(ledger_url: str) -> None:
    roots = json.loads((EXAMPLE / "roots.json").read_text())
    created, *rest = lines()
    origin = created["envelope"]["ledger"]
    clock = Clock(datetime.fromisoformat(created["envelope"]["recorded_at"]))
    with open_store(ledger_url, "create", clock=clock, origin=origin, created=as_new(created)) as store:
        assert store.head().root.hex() == roots["1"]
        for line in rest:
            clock.now = datetime.fromisoformat(line["envelope"]["recorded_at"])
            (receipt,) = store.append([as_new(line)])
            assert receipt.position == line["envelope"]["position"]
            assert store.head().root.hex() == roots[str(receipt.position)]
        for size, root in roots.items():
            assert store.root_at(int(size)).hex() == root
        assert store.content(ERASED) is None
        assert store.redactions() == [(ERASED, len(rest) + 1)]
        for record, line in zip(store.records(), [created, *rest], strict=True):
            assert record.payload.encode() == canonical.encode(line["payload"])
            assert (record.body, record.encoding) == (line["content"], line["encoding"])
            assert (record.salt.hex() if record.salt else None) == line["salt"]


@pytest.mark.parametrize("line", lines(), ids=lambda line: line["envelope"]["type"])
def test_our_envelope_is_the_examples_byte_for_byte(line: dict[str, Any]) -> None:
    members = dict(line["envelope"])
    assert members.pop("v") == 1
    members["type_"] = members.pop("type")
    encoded = Envelopes(members.pop("ledger")).encode(**members)
    assert encoded == canonical.encode(line["envelope"])
