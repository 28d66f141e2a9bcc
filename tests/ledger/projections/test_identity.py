"""Which run it is: what was asked, of whom, by whom, which part of the file, from when to when."""

from __future__ import annotations

import pytest

from ledger.events import IntakeCompleted, LeakRejected, RunAbandoned, RunBlocked, RunResumed
from ledger.projections.counts import Outcomes
from ledger.projections.identity import identity
from ledger.projections.report import report
from ledger.store import Store
from ledger.store.errors import RunNotFound
from tests.ledger.projections.test_results import answer, completed, intake, request, told
from tests.stories import digest, report_issued, started


def test_a_run_is_known_by_what_its_start_recorded_and_the_part_of_the_file_that_it_took(either: Store) -> None:
    start = started(
        variant="tuned", settings={"temperature": "0.2", "limit": "1-3"}, tags={"release": "r-7"}, leak_rules_version=3
    )
    chosen = IntakeCompleted(
        lines=1155, accepted=1, rejected=0, leaking=1, input_sha256=digest("f"), selection={"limit": "1-3"}
    )
    leak = LeakRejected(line=2, request_id=None, findings=[])
    either.append(told(start, request(1, "A"), leak, chosen, RunResumed(actor="ops-8", outcomes_unknown=0)))
    either.append(told(*answer("A"), completed(), report_issued()))
    found = identity(either, "run-1")
    assert (found.candidate_id, found.candidate_variant_id, found.prompt_profile) == (
        *("nemo_nemotron_fabric", "tuned", "contract_tuned_v1"),
    )
    assert (found.settings, found.tags) == ({"temperature": "0.2", "limit": "1-3"}, {"release": "r-7"})
    assert (found.actor, found.software_version, found.leak_rules_version) == ("ops-7", "0.1.0", 3)
    assert (found.template_version, found.template_sha256) == (1, digest("template"))
    assert (found.taken, found.lines, found.selection) == (2, 1155, {"limit": "1-3"})
    assert found.resumed_by == ["ops-8"]
    assert found.first is not None
    assert found.last is not None
    assert (found.first.position, found.last.position) == (2, report(either, "run-1")["as_of"]["position"])
    (times,) = either.rows("SELECT min(recorded_at), max(recorded_at) FROM events WHERE position IN (2, 10)", {})
    assert (found.first.recorded_at, found.last.recorded_at) == tuple(times)


def test_what_is_not_known_yet_is_null_and_a_second_start_forgets_the_first(store: Store) -> None:
    store.append(told(started(actor="one"), request(1, "A"), intake(1), RunBlocked(failures=["request_invalid"])))
    store.append(told(started(actor="two"), request(1, "A")))
    found = identity(store, "run-1")
    assert (found.actor, found.lines, found.taken, found.selection, found.input_sha256) == ("two", *[None] * 4)
    assert identity(store, "run-1", 5).lines == 1
    assert identity(store, "run-1", 5).actor == "one"
    with pytest.raises(RunNotFound):
        identity(store, "run-1", 1)


def test_who_abandoned_it_and_for_which_reason_is_told(store: Store) -> None:
    counts = Outcomes().counts()
    store.append(told(started(), RunAbandoned(actor="ops-9", reason="superseded", counts=counts)))
    found = identity(store, "run-1")
    assert (found.abandoned_by, found.abandoned_for) == ("ops-9", "superseded")
