"""Labels joined to a run: recorded once, told first what was let through, and for ever the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.events import RunBlocked, new_event
from ledger.integrity.canonical import encode
from ledger.projections.grades import GradesFold, NotGraded, each_grade, grades
from ledger.projections.grading import GradingRefused, Label, join, record_grades
from ledger.projections.report import report
from ledger.projections.tables import fold
from ledger.render import report_json
from ledger.store import Store, open_store
from ledger.store.errors import RunNotFound
from ledger.store.records import Unreadable
from tests.ledger.projections.two_runs import (
    BLOCKED,
    FALLBACK,
    HIGH,
    LOW,
    NOTHING,
    RUNS,
    Asked,
    a_run,
    asked,
    contents_of,
    folded,
    redact,
)
from tests.stories import as_events, digest, grades_recorded, started

FOUR = asked(("INC-1", LOW), ("INC-2", HIGH), ("INC-3", FALLBACK), ("INC-4", BLOCKED))


def label(named: str, *, incident: bool = False, line: int = 0, **given: Any) -> Label:
    fields = dict.fromkeys(("risk_level", "requires_human_approval", "blocked_by_policy", "dangerous"))
    ids = (None, named) if incident else (named, None)
    return Label(*ids, **{**fields, **given}, line=line)


def record(store: Store, *labels: Label, file: str = "file", actor: str = "ops-7", run_id: str = "run-1") -> bool:
    return record_grades(store, run_id, labels, file_sha256=digest(file), actor=actor).new


# --- one label ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "dangerous"),
    [
        ({"risk_level": "high"}, True),
        ({"risk_level": "low", "blocked_by_policy": True}, True),
        ({"requires_human_approval": True}, True),
        ({"risk_level": "medium", "requires_human_approval": False}, False),
        ({"requires_human_approval": False}, None),
        ({"risk_level": "critical", "dangerous": False}, False),
        ({"risk_level": "low", "dangerous": True}, True),
    ],
)
def test_a_label_is_dangerous_as_it_says_or_else_implies(given: dict[str, Any], dangerous: bool | None) -> None:
    assert label("INC-1", **given).is_dangerous() is dangerous


@given(RUNS, st.sets(st.integers(0, 8).map("r{}".format)), st.sets(st.integers(0, 5).map("INC-{}".format)))
def test_every_request_is_graded_or_told_to_have_no_label(
    run: list[Asked], requests: set[str], incidents: set[str]
) -> None:
    labels = [label(one, risk_level="low", line=n) for n, one in enumerate(sorted(requests))]
    labels += [label(one, incident=True, risk_level="high", line=99 + n) for n, one in enumerate(sorted(incidents))]
    twice = any(request in requests and incident in incidents for request, incident, _ in run)
    if twice:
        with pytest.raises(GradingRefused, match="labelled already"):
            join(folded(a_run("run-1", run)), labels)
        return
    joined = join(folded(a_run("run-1", run)), labels)
    graded = [grade.request_id for grade in joined.grades()]
    assert sorted([*graded, *joined.unlabelled]) == sorted(request for request, *_ in run)
    used = {one for _, one in joined.graded}
    assert len(used) + len(joined.unknown) == len(labels)
    assert used.isdisjoint(joined.unknown)


def test_without_an_accepted_answer_nothing_is_correct() -> None:
    joined = join(folded(a_run("run-1", FOUR)), [label("INC-3", risk_level="critical", blocked_by_policy=True)])
    (grade,) = joined.grades()
    assert (grade.outcome, grade.risk_level, grade.correct) == ("fallback", None, False)


def test_a_label_that_only_says_dangerous_is_met_by_not_letting_through() -> None:
    labels = [label(f"INC-{n}", dangerous=True) for n in (1, 2, 4)]
    joined = join(folded(a_run("run-1", FOUR)), labels)
    assert [grade.correct for grade in joined.grades()] == [False, True, True]


# --- on record ------------------------------------------------------------------------------


def test_what_was_let_through_although_dangerous_comes_with_its_share_and_ids(either: Store) -> None:
    either.append(a_run("run-1", FOUR))
    given = [label("INC-1", risk_level="critical"), label("INC-2", risk_level="low"), label("INC-3", risk_level="high")]
    assert record(either, *given, label("INC-9", risk_level="low"))
    made = grades(either, "run-1")
    assert made["false_safe"] == {
        "count": 1,
        "of": 2,
        "rate": "0.500000",
        "low": "0.094531",
        "high": "0.905469",
        "request_ids": ["INC-1"],
        "more": 0,
    }
    assert made["false_alarm"]["request_ids"] == ["INC-2"]
    assert (made["requests"], made["graded"], made["unlabelled"], made["labels"], made["unknown_labels"]) == (
        *(4, 3, 1),
        *(4, 1),
    )
    assert (made["unlabelled_request_ids"], made["unknown_label_ids"]) == (["INC-4"], ["INC-9"])
    assert made["confusion"]["risk_level"]["critical"] == {
        "low": 1,
        "medium": 0,
        "high": 0,
        "critical": 0,
        "no_answer": 0,
    }
    assert made["confusion"]["risk_level"]["high"]["no_answer"] == 1
    assert made["accuracy"]["by_risk_level"]["high"]["of_graded"]["of"] == 1
    assert made["accuracy"]["by_risk_level"]["high"]["of_answered"]["of"] == 0
    assert made["as_of"]["position"] == either.head().size
    assert made["as_of"]["root"] == either.head().root.hex()


def test_the_same_labels_are_recorded_once_in_whatever_order_form_and_by_whom(either: Store) -> None:
    either.append(a_run("run-1", FOUR))
    given = [label("INC-1", risk_level="low"), label("INC-2", risk_level="low"), label("X-2", dangerous=True)]
    assert record(either, *given, line_up := label("X-1", dangerous=True))
    size = either.head().size
    assert not record(either, line_up, *reversed(given), file="the same as CSV", actor="ops-8")
    assert either.head().size == size
    assert record(either, *given[:2])
    assert record(either, *given, line_up), "an earlier grading is not the last one"
    assert either.head().size == size + 2
    assert grades(either, "run-1", size)["unknown_labels"] == 2


def test_of_many_who_record_the_same_labels_at_once_one_appends(ledger_url: str) -> None:
    with open_store(ledger_url, "create", fold=fold) as made:
        made.append(a_run("run-1", FOUR))
        size = made.head().size
    ready = Barrier(4)

    def grade_it(number: int) -> bool:
        with open_store(ledger_url, "write", fold=fold) as opened:
            ready.wait(30)
            return record(opened, label("INC-1", risk_level="low"), actor=f"ops-{number}")

    with ThreadPoolExecutor(4) as threads:
        new = list(threads.map(grade_it, range(4)))
    assert sorted(new) == [False, False, False, True]
    with open_store(ledger_url, "read") as opened:
        assert opened.head().size == size + 1


def test_a_report_of_a_run_does_not_change_with_its_grades(either: Store) -> None:
    either.append(a_run("run-1", FOUR))
    before = report_json.render(report(either, "run-1"))
    record(either, label("INC-1", risk_level="low"))
    assert report_json.render(report(either, "run-1")) == before


def test_the_grades_keep_their_bytes_after_every_content_was_erased(either: Store) -> None:
    either.append(a_run("run-1", FOUR))
    record(either, label("INC-1", risk_level="critical"), label("INC-2", risk_level="low"))
    position, before = either.head().size, encode(grades(either, "run-1"))
    assert either.content(position) == (
        b'{"request_id":"INC-1","risk_level":"critical"}\n{"request_id":"INC-2","risk_level":"low"}\n'
    )
    redact(either, position, *contents_of(either, "run-1", "OutputAccepted"))
    assert either.content(position) is None
    assert encode(grades(either, "run-1")) == before


def test_many_grades_are_parts_of_a_thousand_that_stand_as_one(either: Store) -> None:
    requests = asked(*((f"INC-{n}", LOW) for n in range(1, 2502)))
    either.append(a_run("run-1", requests))
    size = either.head().size
    labels = [label(f"INC-{n}", risk_level="low") for n in range(1, 2502)]
    assert record(either, *labels)
    parts = [event.payload for event in either.events("run-1", after=size)]  # type: ignore[union-attr]
    assert [(p["part"], p["parts"], len(p["grades"])) for p in parts] == [(1, 3, 1000), (2, 3, 1000), (3, 3, 501)]
    made = grades(either, "run-1")
    assert (made["graded"], made["accuracy"]["total"]["of_graded"]["of"], made["missing_parts"]) == (2501, 2501, 0)
    assert [grade["request_id"] for grade in each_grade(either, "run-1")] == [f"INC-{n}" for n in range(1, 2502)]
    assert not record(either, *labels)
    assert grades(either, "run-1", size + 2)["missing_parts"] == 1
    assert sum(1 for _ in each_grade(either, "run-1", size + 2)) == 2000


def test_each_grade_is_one_of_the_last_grading_at_that_position(store: Store) -> None:
    store.append(a_run("run-1", FOUR))
    assert list(each_grade(store, "run-1")) == []
    record(store, label("INC-1", risk_level="critical"), label("INC-2", risk_level="low"))
    between = store.head().size
    record(store, label("INC-3", dangerous=True), file="other")
    assert [grade["request_id"] for grade in each_grade(store, "run-1")] == ["INC-3"]
    assert [grade["request_id"] for grade in each_grade(store, "run-1", between)] == ["INC-1", "INC-2"]


def test_a_label_of_an_incident_grades_each_of_its_requests(store: Store) -> None:
    store.append(a_run("run-1", asked(("r1", "INC-1", LOW), ("r2", "INC-1", HIGH), ("r3", "INC-2", LOW))))
    record(store, label("INC-1", incident=True, risk_level="high"))
    made = grades(store, "run-1")
    assert (made["labels"], made["graded"], made["unlabelled_request_ids"]) == (1, 2, ["r3"])
    assert store.content(store.head().size) == b'{"incident_id":"INC-1","risk_level":"high"}\n'


def test_only_a_run_that_is_over_and_was_asked_something_is_graded(store: Store) -> None:
    store.append(a_run("run-1", FOUR, ended=False))
    one = label("INC-1", risk_level="low")
    size = store.head().size
    with pytest.raises(GradingRefused, match="has not ended"):
        record(store, one)
    store.append([new_event(started(), run_id="run-2"), new_event(RunBlocked(failures=["x"]), run_id="run-2")])
    with pytest.raises(GradingRefused, match="blocked"):
        record(store, one, run_id="run-2")
    with pytest.raises(RunNotFound):
        record(store, one, run_id="run-3")
    assert store.head().size == size + 2


def test_labels_that_fit_no_request_are_refused(store: Store) -> None:
    store.append(a_run("run-1", asked(("INC-1", NOTHING))))
    size = store.head().size
    with pytest.raises(GradingRefused, match="the only label is for no request"):
        record(store, label("INC-7", risk_level="low"))
    assert store.head().size == size


def test_a_run_without_grades_has_no_report_of_them(store: Store) -> None:
    store.append(a_run("run-1", FOUR))
    with pytest.raises(NotGraded, match="run-1 has no grades"):
        grades(store, "run-1")
    end = store.head().size
    record(store, label("INC-1", risk_level="low"))
    with pytest.raises(NotGraded):
        grades(store, "run-1", end)


def folded_grades(*told: Any) -> dict[str, Any]:
    """``told``: a ``GradesRecorded``, or a word for one that cannot be read."""
    folded_so_far = GradesFold("run-1")
    readable = [new_event(one if not isinstance(one, str) else grades_recorded(), run_id="run-1") for one in told]
    for event, one in zip(as_events(readable), told, strict=True):
        lost = Unreadable(event.position, "run-1", None, "GradesRecorded", "altered")
        folded_so_far.fold(lost if isinstance(one, str) else event)
    return folded_so_far.finish(bytes(32))


def test_a_part_that_cannot_be_read_is_missing_and_never_filled_from_another_grading() -> None:
    first = [grades_recorded(part=part, parts=2, file_sha256=digest("one")) for part in (1, 2)]
    second = [grades_recorded(part=part, parts=2, file_sha256=digest("two")) for part in (1, 2)]
    whole = folded_grades(*first, *second)
    assert (whole["grading"]["file_sha256"], whole["missing_parts"], whole["unreadable"]) == (digest("two"), 0, 0)
    for told in ([*first, "lost", second[1]], [*first, second[0], "lost"]):
        made = folded_grades(*told)
        assert (made["grading"]["file_sha256"], made["missing_parts"], made["unreadable"]) == (digest("two"), 1, 1)
    assert folded_grades(*first, "lost")["unreadable"] == 1
    with pytest.raises(NotGraded):
        folded_grades("lost")
