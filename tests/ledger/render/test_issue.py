"""Reports that were given out are on record once, and come out again with the same bytes."""

from __future__ import annotations

from hashlib import sha256

import pytest

from ledger.projections.report import report
from ledger.render.issue import RENDERINGS, Issued, Rendering, erased_since, issue, issued, last_consumed, rendering
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


def give_out(store: Store, of: Rendering) -> Issued:
    position = last_consumed(store, "mine")
    digest = sha256(b"".join(of.render(store, "mine", position))).hexdigest()
    return issue(store, "mine", of, as_of_position=position, sha256=digest, actor="tester")


def test_the_same_bytes_are_issued_once(store: Store) -> None:
    first = give_out(store, rendering("report", "json"))
    size = store.head().size
    assert (first.new, first.position) == (True, size)
    assert give_out(store, rendering("report", "json")) == first._replace(new=False)
    assert store.head().size == size
    assert issued(store, first.sha256) == [first._replace(new=False)]
    assert give_out(store, rendering("report", "html")).position == size + 1
    assert issued(store, "0" * 64) == []


def test_issuing_a_report_does_not_change_it(store: Store) -> None:
    before = report(store, "mine")
    for of in OF_A_RUN:
        give_out(store, of)
    assert report(store, "mine") == before
    assert last_consumed(store, "mine") == before["as_of"]["position"]


def test_whatever_was_issued_comes_out_again(store: Store) -> None:
    made = [give_out(store, of) for of in OF_A_RUN]
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
    found = give_out(store, rendering("results", "jsonl"))
    assert erased_since(store, found) == 0
    store.append([redaction(first + 1)])
    store.append([redaction(2)])  # of the other run
    assert erased_since(store, found) == 1


def test_every_format_of_a_report_keeps_its_bytes_after_its_contents_were_erased_and_more_was_appended(
    store: Store,
) -> None:
    forms = [of for of in RENDERINGS if of.kind == "report"]
    position = last_consumed(store, "mine")
    before = [b"".join(of.render(store, "mine", position)) for of in forms]
    contents = store.contents(event.position for event in store.events("mine"))
    store.append([redaction(*contents)])
    assert contents
    assert store.contents(contents) == {}
    store.append(told(2, run_id="later", lines=2))
    assert [b"".join(of.render(store, "mine", None)) for of in forms] == before
    assert [b"".join(of.render(store, "mine", position)) for of in forms] == before
    assert {of.format for of in forms} == {"json", "text", "html", "md", "junit"}
