"""The example that an independent program made: appended here, it must give the same report and results."""

from __future__ import annotations

import base64
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from ledger.events import NewEvent
from ledger.integrity.canonical import encode_payload
from ledger.projections.rebuild import check
from ledger.projections.report import report
from ledger.projections.results import results
from ledger.projections.tables import fold
from ledger.render import report_json, results_jsonl
from ledger.store import Store, open_store
from tests.ledger.integrity import vectors

ERASED = (6, "//4gbm90IFVURi04", "3d547e341ed3c35631819bd9bfe33d6f900dda1d053a014194af6b7444bb9fba")
"""Position, content (base64) and salt of what event 14 erases."""


def load() -> list[dict[str, Any]]:
    path = vectors.folder("ledger_example") / "events.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def bundled(name: str) -> bytes:
    with zipfile.ZipFile(vectors.folder("ledger_example") / "audit-example-run.zip") as bundle:
        return bundle.read(name)


def new_event(record: dict[str, Any]) -> NewEvent:
    envelope, body, salt = record["envelope"], record["content"], record["salt"]
    content = None if body is None else body.encode()
    if envelope["position"] == ERASED[0]:
        content, salt = base64.b64decode(ERASED[1]), ERASED[2]
    return NewEvent(
        event_id=envelope["event_id"],
        type=envelope["type"],
        schema=envelope["schema"],
        run_id=envelope["run_id"],
        request_id=envelope["request_id"],
        payload=record["payload"],
        payload_json=encode_payload(record["payload"]),
        content=content,
        salt=None if salt is None else bytes.fromhex(salt),
    )


@pytest.fixture(scope="module")
def example(module_url: str) -> Iterator[Store]:
    records = load()
    times = [datetime.fromisoformat(record["envelope"]["recorded_at"]) for record in records]
    now = [times[0]]
    with open_store(
        module_url,
        "create",
        fold=fold,
        origin=records[0]["envelope"]["ledger"],
        created=new_event(records[0]),
        clock=lambda: now[0],
        accept_clock=True,
    ) as store:
        for time, record in zip(times[1:], records[1:], strict=True):
            now[0] = time
            store.append([new_event(record)])
        yield store


def test_its_root_is_the_one_that_was_signed(example: Store) -> None:
    roots = vectors.load("ledger_example/roots.json")
    assert example.head().root.hex() == roots["14"]


def test_its_report_agrees_in_every_member_but_one(example: Store) -> None:
    """The prompt counted 10 tokens for 240 bytes: 10 x 16 < 240, so by the rule it is suspected of being cut.

    The example's report says 0 there.
    """
    theirs = json.loads(bundled("report.json"))
    ours = report(example, "example-run")
    assert theirs["suspected_prompt_truncation"] == 0
    assert ours == {**theirs, "suspected_prompt_truncation": 1}
    assert report_json.render({**ours, "suspected_prompt_truncation": 0}) == bundled("report.json")


def test_its_results_have_the_same_bytes(example: Store) -> None:
    """Event 6, an error text, was erased since: the request's line and its answer were not."""
    assert b"".join(results_jsonl.render(results(example, "example-run"))) == bundled("results.jsonl")


@pytest.mark.parametrize("as_of", [10, 13, "2026-11-30T20:42:10.000010Z", "2026-11-30T21:42:13.999+01:00"])
def test_its_report_is_the_same_whenever_it_is_asked_for(example: Store, as_of: int | str) -> None:
    assert report(example, "example-run", as_of) == report(example, "example-run")


def test_its_report_in_the_middle_of_the_run_is_that_of_the_middle(example: Store) -> None:
    early = report(example, "example-run", "2026-11-30T20:42:07.999999Z")
    assert (early["outcome"], early["incomplete"]) == ("incomplete", 1)
    assert early["as_of"]["root"] == vectors.load("ledger_example/roots.json")["7"]
    assert list(results(example, "example-run", 8)) == []


def test_its_tables_are_what_its_events_say(example: Store) -> None:
    assert check(example) == []
