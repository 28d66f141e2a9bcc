"""Appending, the same on both databases."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

import pytest

from ledger.events import LEDGER_RUN_ID, Event, LedgerCreated, NewEvent, RetentionSet, new_event
from ledger.integrity.merkle import root
from ledger.store import ANY, NO_RUN, Batch, Expected, Store, open_store
from ledger.store.changes import Change, RowChange
from ledger.store.envelope import Envelopes, commitment
from ledger.store.errors import (
    ClockWentBack,
    EventIdReused,
    InvalidEvent,
    LedgerError,
    PartialBatch,
    StatementRefused,
    VersionConflict,
)
from ledger.store.records import Receipt
from tests.ledger.store.making import START, Clock, accepted, redaction, some, started


def test_a_ledger_begins_with_its_creation(store: Store) -> None:
    (created,) = store.events()
    assert isinstance(created, Event)
    assert (created.position, created.type, created.run_id, created.run_version) == (1, "LedgerCreated", "$ledger", 1)
    assert created.payload["format"] == 1
    assert created.payload["vkey"] is None
    assert store.head().size == 1


def test_positions_and_versions_are_dense_in_every_stream(store: Store) -> None:
    store.append([started("a"), accepted("q1", run_id="a")])
    store.append([accepted("q1", run_id="b"), accepted("q2", run_id="b")])
    receipts = store.append([accepted("q1", run_id="a"), accepted("q2", run_id="a")])
    assert [(r.position, r.run_version, r.request_version) for r in receipts] == [(6, 3, 2), (7, 4, 1)]
    assert store.version("a") == 4
    assert store.version("a", "q1") == 2
    assert store.version("nobody") == 0
    assert store.version("a", "nothing") == 0


def test_every_hash_follows_from_what_is_stored(store: Store) -> None:
    store.append([started(), *some(40)])
    head = store.head()
    encode = Envelopes(head.origin).encode
    leaves = []
    for record in store.records():
        assert sha256(record.payload.encode()).hexdigest() == record.payload_sha256
        if record.body is None:
            assert record.content_commitment is None
        else:
            assert record.salt is not None
            assert record.content_commitment == commitment(record.salt, record.body.encode())
        envelope = encode(*record[:9], record.payload_sha256, record.content_commitment)
        assert record.leaf_hash == sha256(b"\0" + envelope).digest()
        leaves.append(record.leaf_hash)
    assert len(leaves) == head.size == 42
    assert root(leaves) == head.root


def test_nodes_of_complete_subtrees_are_kept_and_give_every_root(store: Store) -> None:
    for first in range(1, 1200, 400):
        store.append(some(400, first=first))
    leaves = [record.leaf_hash for record in store.records()]
    assert [store.read_nodes(1, index, 1) for index in range(5)] == [
        [root(leaves[index * 256 : (index + 1) * 256])] if index < 4 else [] for index in range(5)
    ]
    for size in (0, 1, 255, 256, 257, 511, 1000, 1024, len(leaves)):
        assert store.root_at(size) == root(leaves[:size])


@pytest.mark.parametrize(
    "content",
    [b"", b"text", "caf\u00e9 \U0001f600 \r\n\t".encode(), b"\xff\xfe not UTF-8", b"a\0b", b"\xed\xa0\x80", None],
)
def test_content_comes_back_exactly_as_it_went_in(store: Store, content: bytes | None) -> None:
    (receipt,) = store.append([accepted("q1", content=content)])
    assert store.content(receipt.position) == content
    assert store.contents([1, receipt.position, 99]) == ({} if content is None else {receipt.position: content})
    (record,) = store.records(after=receipt.position - 1)
    assert (record.body is None) == (record.content_commitment is None) == (content is None)


def test_each_content_has_a_salt_of_its_own(store: Store) -> None:
    store.append(some(50))
    salts = {record.salt for record in store.records(after=1)}
    assert len(salts) == 50
    assert all(salt is not None and len(salt) == 32 for salt in salts)


def test_many_contents_are_fetched_at_once(store: Store) -> None:
    store.append(some(1200))
    assert store.contents(range(2, 1300)) == {line + 1: f"line {line}".encode() for line in range(1, 1201)}


# --- expectations --------------------------------------------------------------------------


def test_a_version_that_is_not_the_expected_one_is_a_conflict(store: Store) -> None:
    store.append([started()], [Expected("run", None, NO_RUN)])
    with pytest.raises(VersionConflict) as conflict:
        store.append([started()], [Expected("run", None, NO_RUN)])
    assert (conflict.value.expected, conflict.value.actual) == (0, 1)
    with pytest.raises(VersionConflict):
        store.append([accepted("q1")], [Expected("run", None, 1), Expected("run", "q1", 3)])
    assert store.head().size == 2
    store.append([accepted("q1")], [Expected("run", None, 1), Expected("run", "q1", 0)])
    store.append([accepted("q1")], [Expected("run", None, ANY), Expected("run", "q1", 1)])


def test_an_expectation_may_be_of_a_stream_that_is_not_appended_to(store: Store) -> None:
    store.append([started("other")])
    with pytest.raises(VersionConflict):
        store.append([started()], [Expected("other", None, 0)])
    store.append([started()], [Expected("other", None, 1)])


def test_another_writer_is_noticed(begun_url: str, store: Store, clock: Clock) -> None:
    store.append([started()])
    with open_store(begun_url, "write", clock=clock) as other:
        other.append([accepted("q1")])
    with pytest.raises(VersionConflict) as conflict:
        store.append([accepted("q1")], [Expected("run", None, 1)])
    assert conflict.value.actual == 2
    (receipt,) = store.append([accepted("q1")])
    assert (receipt.position, receipt.run_version, receipt.request_version) == (4, 3, 2)


def test_another_writer_is_noticed_where_the_next_event_is_of_a_run_of_its_own(
    begun_url: str, store: Store, clock: Clock
) -> None:
    store.append([started(), accepted("q1")])
    with open_store(begun_url, "write", clock=clock) as other:
        other.append([accepted("q1"), accepted("q2")])
    store.append([started("another")])
    receipts = store.append([accepted("q1"), accepted("q2"), accepted("q3")])
    assert [(receipt.run_version, receipt.request_version) for receipt in receipts] == [(5, 3), (6, 2), (7, 1)]


def test_another_writer_is_noticed_between_the_requests_of_a_run_that_began_here(
    begun_url: str, store: Store, clock: Clock
) -> None:
    with open_store(begun_url, "write", clock=clock) as other:
        for turn in range(3):
            (here,) = store.append([accepted(f"q{turn}")])
            (there,) = other.append([accepted(f"q{turn}")])
            (again,) = store.append([accepted(f"q{turn}")])
            assert [here.request_version, there.request_version, again.request_version] == [1, 2, 3]
            assert again.run_version == 3 * (turn + 1)


def test_what_is_remembered_of_streams_may_be_given_up_at_any_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.store.append._CACHED_STREAMS", 3)
    for turn in range(1, 4):
        for request in ("q1", "q2", "q3", "q4"):
            (receipt,) = store.append([accepted(request)])
            assert receipt.request_version == turn


# --- event ids -----------------------------------------------------------------------------


def test_the_same_events_again_give_their_first_receipts(store: Store, clock: Clock) -> None:
    events = [started(), accepted("q1"), accepted("q2", content=None)]
    first = store.append(events, [Expected("run", None, NO_RUN)])
    clock.pass_(seconds=5)
    store.append([accepted("q3")])
    assert store.append(events, [Expected("run", None, NO_RUN)]) == first
    assert store.append(events[1:]) == first[1:]
    assert store.head().size == 5


def test_the_same_events_are_known_to_a_store_opened_later(begun_url: str, store: Store) -> None:
    events = some(3)
    first = store.append(events)
    with open_store(begun_url, "write", clock=Clock()) as later:
        assert later.append(events) == first


@pytest.mark.parametrize(
    "change",
    [
        {"type": "RequestRejected"},
        {"run_id": "other"},
        {"request_id": "other"},
        {"payload_json": b"{}"},
        {"content": b"other"},
        {"content": None},
    ],
)
def test_a_known_id_with_another_event_behind_it_is_refused(store: Store, change: dict[str, object]) -> None:
    event = accepted("q1", content=b"content")
    store.append([event])
    with pytest.raises(EventIdReused):
        store.append([event._replace(**change)])  # type: ignore[arg-type]
    (late,) = some(1)
    (outcome, same) = store.append_group([Batch([late]), Batch([late._replace(**change)])])  # type: ignore[arg-type]
    assert isinstance(outcome, list)
    assert isinstance(same, EventIdReused)


def test_an_event_without_content_is_not_the_same_with_some(store: Store) -> None:
    event = accepted("q1", content=None)
    store.append([event])
    with pytest.raises(EventIdReused):
        store.append([event._replace(content=b"")])


def test_an_id_twice_in_one_batch_is_refused(store: Store) -> None:
    (event,) = some(1)
    with pytest.raises(EventIdReused):
        store.append([event, event])
    store.append([event])
    with pytest.raises(EventIdReused):
        store.append([event, event])


def test_a_batch_of_which_part_is_known_is_refused(store: Store) -> None:
    events = some(3)
    store.append(events[:1])
    with pytest.raises(PartialBatch):
        store.append(events)
    assert store.head().size == 2


def test_an_event_whose_content_was_erased_is_still_known(store: Store) -> None:
    event = accepted("q1", content=b"secret")
    (first,) = store.append([event])
    store.append([redaction(first.position)])
    assert store.append([event]) == [first]
    with pytest.raises(EventIdReused):
        store.append([event._replace(content=None)])


# --- groups --------------------------------------------------------------------------------


def test_what_is_wrong_with_one_batch_of_a_group_fails_that_one_alone(store: Store) -> None:
    known = accepted("known")
    store.append([started(), known])
    outcomes = store.append_group(
        [
            Batch(some(2)),
            Batch([accepted("late")], [Expected("run", None, 2)]),
            Batch([known]),
            Batch([known, accepted("new")]),
            Batch([known._replace(content=b"x")]),
            Batch([accepted("q1")], [Expected("run", "q1", 1)]),
        ]
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [list, VersionConflict, list, PartialBatch, EventIdReused, list]
    (last,) = outcomes[5]  # type: ignore[misc]
    assert (last.position, last.run_version, last.request_version) == (6, 5, 2)
    assert store.head().size == 6
    assert [event.position for event in store.events()] == list(range(1, 7))


def test_a_retry_within_a_group_is_one_event(store: Store) -> None:
    events = some(2)
    first, second = store.append_group([Batch(events), Batch(events)])
    assert first == second
    assert store.head().size == 3


def test_a_group_in_which_nothing_is_new_changes_nothing(store: Store) -> None:
    before = store.head()
    (outcome,) = store.append_group([Batch([accepted("q")], [Expected("run", None, 7)])])
    assert isinstance(outcome, VersionConflict)
    assert store.append_group([]) == []
    assert store.append([]) == []
    assert store.head() == before


def test_a_row_that_the_database_refuses_fails_its_batch_alone(ledger_url: str) -> None:
    def fold(event: Event) -> list[RowChange]:
        kind = None if event.request_id == "poison" else "report"
        columns = ("run_id", "kind", "format", "projection", "renderer_version", "as_of_position", "sha256", "actor")
        values = (event.run_id, kind, "f", "p", 1, 1, "s", "a", event.recorded_at, event.position)
        return [(Change("insert", "reports", ("position",), (*columns, "recorded_at")), values)]

    with open_store(ledger_url, "create", fold=fold) as store:
        good, bad, fine = store.append_group([Batch(some(1)), Batch([accepted("poison")]), Batch(some(1, first=2))])
        assert isinstance(good, list)
        assert isinstance(bad, StatementRefused)
        assert isinstance(fine, list)
        assert [r.position for r in (*good, *fine)] == [2, 3]
        assert list(store.rows("SELECT count(*) FROM reports")) == [(2,)]


def test_a_fold_that_cannot_read_a_payload_fails_its_batch_alone(ledger_url: str) -> None:
    def fold(event: Event) -> list[RowChange]:
        if event.request_id == "odd":
            raise KeyError("line")
        return []

    with open_store(ledger_url, "create", fold=fold) as store:
        bad, good = store.append_group([Batch([accepted("odd")]), Batch(some(1))])
        assert isinstance(bad, InvalidEvent)
        assert isinstance(good, list)
        assert good[0].position == 2


# --- what is no event ----------------------------------------------------------------------


def changed(**members: object) -> NewEvent:
    return accepted("q1", content=b"c")._replace(**members)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "event",
    [
        changed(event_id="not-a-uuid"),
        changed(event_id="0197A3C0-0000-7000-8000-000000000001"),
        changed(event_id="0197a3c0-0000-4000-8000-000000000001"),
        changed(event_id="0197a3c0-0000-7000-8000-000000000001\n"),
        changed(type="Unheard"),
        changed(schema=2),
        changed(schema=0),
        changed(run_id='a","b":"c'),
        changed(run_id="run\n"),
        changed(run_id=""),
        changed(run_id="x" * 129),
        changed(request_id="$ledger"),
        changed(salt=b"short"),
        changed(content=None, salt=bytes(32)),
        new_event(LedgerCreated(format=1, software_version="0", vkey=None), run_id=LEDGER_RUN_ID),
        redaction(1)._replace(run_id="run"),
        redaction(1),
        redaction(99),
    ],
)
def test_what_is_no_event_is_refused_and_leaves_no_trace(store: Store, event: NewEvent) -> None:
    before = store.head()
    with pytest.raises(InvalidEvent):
        store.append([accepted("fine"), event])
    assert store.head() == before


def test_a_ledger_begins_with_no_other_event(ledger_url: str) -> None:
    with pytest.raises(InvalidEvent):
        open_store(ledger_url, "create", created=new_event(RetentionSet(days=1), run_id=LEDGER_RUN_ID))
    with open_store(ledger_url, "create") as store:  # nothing of the failed beginning is left
        assert store.head().size == 1


# --- redaction -----------------------------------------------------------------------------


def test_a_redaction_event_erases_in_the_same_step(store: Store) -> None:
    receipts = store.append(some(4))
    (event,) = store.append([redaction(receipts[0].position, receipts[2].position)])
    assert store.redactions() == [(receipts[0].position, event.position), (receipts[2].position, event.position)]
    assert sorted(store.contents(r.position for r in receipts)) == [receipts[1].position, receipts[3].position]
    erased = next(store.records(after=receipts[0].position - 1))
    assert (erased.salt, erased.body, erased.redacted_by) == (None, None, event.position)
    with pytest.raises(InvalidEvent):
        store.append([redaction(receipts[0].position)])
    assert store.erase_traces() is None


# --- time ----------------------------------------------------------------------------------


def test_a_transaction_has_one_time_and_it_never_goes_back(store: Store, clock: Clock) -> None:
    clock.pass_(microseconds=7)
    first, second = store.append(some(2))
    assert first.recorded_at == second.recorded_at == "2026-11-30T20:42:00.000007Z"
    clock.pass_(minutes=-4)
    (late,) = store.append(some(1, first=3))
    assert late.recorded_at == first.recorded_at


def test_a_clock_far_behind_is_refused_unless_it_is_accepted(begun_url: str, store: Store, clock: Clock) -> None:
    clock.pass_(minutes=-6)
    with pytest.raises(ClockWentBack, match=r"20:36:00.*20:42:00.*--accept-clock"):
        store.append(some(1))
    assert store.head().size == 1
    with open_store(begun_url, "write", clock=clock, accept_clock=True) as tolerant:
        (receipt,) = tolerant.append(some(1))
    assert receipt.recorded_at == "2026-11-30T20:42:00.000000Z"


def test_a_time_without_an_offset_is_refused(store: Store, clock: Clock) -> None:
    clock.now = datetime(2027, 1, 1)  # noqa: DTZ001
    with pytest.raises(ValueError, match="offset"):
        store.append(some(1))
    clock.now = START
    assert store.append(some(1))[0].position == 2


def test_without_a_clock_the_time_is_now(ledger_url: str) -> None:
    with open_store(ledger_url, "create") as store:
        (receipt,) = store.append(some(1))
        behind = datetime.now(START.tzinfo) - datetime.fromisoformat(receipt.recorded_at)
        assert abs(behind.total_seconds()) < 60
        assert store.head().recorded_at == receipt.recorded_at


def test_a_ledger_in_memory_does_all_of_it() -> None:
    with open_store("sqlite://", "create") as store:
        events = some(300)
        receipts = store.append(events)
        assert isinstance(receipts[0], Receipt)
        assert store.append(events) == receipts
        assert store.root_at(301) == store.head().root
        assert [event.position for event in store.events("run")] == list(range(2, 302))
        assert list(store.rows("SELECT count(*) FROM events WHERE run_id = :run", {"run": "run"})) == [(300,)]
        with pytest.raises(LedgerError), store.driver_lock("run", "me"), store.driver_lock("run", "you"):
            pass
