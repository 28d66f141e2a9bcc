"""Reports that were given out are on record once, and come out again with the same bytes."""

from __future__ import annotations

from hashlib import sha256

import pytest

from ledger.projections.report import report
from ledger.render.issue import RENDERINGS, Issued, erased_since, issue, issued, last_consumed, rendering
from ledger.store import Store
from tests.ledger.bundle.ledgers import told
from tests.ledger.projections.conftest import either  # noqa: F401 - a fixture
from tests.ledger.store.making import redaction

OF_A_RUN = [of for of in RENDERINGS if of.kind != "grades"]  # those need labels: test_grades.py


@pytest.fixture
def store(either: Store) -> Store:  # noqa: F811
    either.append(told(0, run_id="other", lines=2))
    either.append(told(1, run_id="mine", lines=8))
    return either


def give_out(store: Store, kind: str, form: str) -> Issued:
    of, position = rendering(kind, form), last_consumed(store, "mine")
    digest = sha256(b"".join(of.render(store, "mine", position))).hexdigest()
    return issue(store, "mine", of, as_of_position=position, sha256=digest, actor="tester")


def test_the_same_bytes_are_issued_once(store: Store) -> None:
    first = give_out(store, "report", "json")
    size = store.head().size
    assert (first.new, first.position) == (True, size)
    assert give_out(store, "report", "json") == first._replace(new=False)
    assert store.head().size == size
    assert issued(store, first.sha256) == [first._replace(new=False)]
    assert give_out(store, "report", "html").position == size + 1
    assert issued(store, "0" * 64) == []


def test_issuing_a_report_does_not_change_it(store: Store) -> None:
    before = report(store, "mine")
    for of in OF_A_RUN:
        give_out(store, of.kind, of.format)
    assert report(store, "mine") == before
    assert last_consumed(store, "mine") == before["as_of"]["position"]


def test_whatever_was_issued_comes_out_again(store: Store) -> None:
    made = [give_out(store, of.kind, of.format) for of in OF_A_RUN]
    assert len({report.sha256 for report in made}) == len(OF_A_RUN)
    for found in made:
        of = rendering(found.kind, found.format, found.renderer_version, found.projection)
        again = b"".join(of.render(store, found.run_id, found.as_of_position))
        assert sha256(again).hexdigest() == found.sha256


def test_the_last_event_that_counts_is_the_reports_own_as_of_also_in_the_middle(store: Store) -> None:
    end = report(store, "mine")["as_of"]["position"]
    start = next(event.position for event in store.events("mine"))
    for position in range(start, store.head().size + 1):
        assert last_consumed(store, "mine", position) == min(position, end)


def test_a_rendering_that_never_was_is_a_key_error() -> None:
    for words in (("report", "docx"), ("grades", "csv"), ("report", "json", 99), ("report", "json", 1, "report/9")):
        with pytest.raises(KeyError):
            rendering(*words)  # type: ignore[arg-type]


def test_what_was_erased_since_is_counted(store: Store) -> None:
    first = next(event.position for event in store.events("mine"))
    store.append([redaction(first)])
    found = give_out(store, "results", "jsonl")
    assert erased_since(store, found) == 0
    store.append([redaction(first + 1)])
    store.append([redaction(2)])  # of the other run
    assert erased_since(store, found) == 1
