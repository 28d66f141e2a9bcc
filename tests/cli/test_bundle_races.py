"""Somebody appends between a bundle's reports and its signature: the reports are made again, or it gives up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from commands import bundle as command
from ledger.events import NewEvent, RunResumed, new_event
from ledger.store import Checkpoint, Store
from ledger.store.errors import LedgerBusy
from tests.ledger.bundle.bundles import KEY, entries, judge
from tests.ledger.bundle.ledgers import bundled, sign, story_ledger, told
from tests.ledger.store.making import redaction


class RacingSigner:
    """Signs; the first ``times``, somebody else appends just before."""

    def __init__(self, event: Callable[[], NewEvent], times: int) -> None:
        self.event, self.times = event, times

    def sign(self, store: Store) -> Checkpoint:
        if self.times:
            self.times -= 1
            store.append([self.event()])
        head = store.head()
        return Checkpoint(head.size, head.root, sign(store))


@pytest.fixture
def issued_and_signed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, bytes], str]]:
    monkeypatch.setattr(command, "signed", lambda ctx, store, work: (work(), None))

    def call(store: Store, signer: Any) -> tuple[dict[str, bytes], str]:
        context = click.Context(command.bundle)
        with contextlib.ExitStack() as files:
            made, note = command._issued_and_signed(context, store, "mine", signer, "tester", files)
            return {name: b"".join(report.chunks()) for name, report in made.items()}, note

    return call


def resumed(run_id: str = "mine") -> NewEvent:
    return new_event(RunResumed(actor="ops-8", outcomes_unknown=0), run_id=run_id)


def test_a_run_that_goes_on_meanwhile_is_reported_as_it_is_when_it_is_signed(
    tmp_path: Path, issued_and_signed: Callable[..., tuple[dict[str, bytes], str]]
) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=4, ended=False)) as store:
        reports, note = issued_and_signed(store, RacingSigner(resumed, 2))
        code, said = judge(bundled(store, "mine", note, reports), str(KEY.verifier_key), note.encode())
    assert code == 3, said
    assert "no terminal event" in said


def test_text_that_is_erased_meanwhile_is_not_in_the_results(
    tmp_path: Path, issued_and_signed: Callable[..., tuple[dict[str, bytes], str]]
) -> None:
    stories = (told(seed, run_id="mine", lines=4) for seed in range(100))
    mine = next(events for events in stories if any(event.type == "OutputAccepted" for event in events))
    with story_ledger(tmp_path, mine) as store:
        answer = next(event.position for event in store.events("mine") if event.type == "OutputAccepted")
        reports, note = issued_and_signed(store, RacingSigner(lambda: redaction(answer), 1))
        data = bundled(store, "mine", note, reports)
    assert judge(data, str(KEY.verifier_key), note.encode())[0] == 0
    assert b'"redacted":true' in entries(data)["results.jsonl"]


def test_what_is_appended_for_other_runs_does_not_matter(
    tmp_path: Path, issued_and_signed: Callable[..., tuple[dict[str, bytes], str]]
) -> None:
    other = iter(told(3, run_id="other", lines=9, at_least=9))
    with story_ledger(tmp_path, told(0, run_id="mine", lines=4)) as store:
        signer = RacingSigner(lambda: next(other), 9)
        reports, note = issued_and_signed(store, signer)
        assert signer.times == 8
        assert judge(bundled(store, "mine", note, reports), str(KEY.verifier_key), note.encode())[0] == 0


def test_a_run_that_never_stands_still_is_given_up(
    tmp_path: Path, issued_and_signed: Callable[..., tuple[dict[str, bytes], str]]
) -> None:
    with (
        story_ledger(tmp_path, told(0, run_id="mine", lines=4, ended=False)) as store,
        pytest.raises(LedgerBusy, match="try again"),
    ):
        issued_and_signed(store, RacingSigner(resumed, 99))
