"""Reading events: whole, by run, by request, in pages, and what cannot be understood."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.events import Event
from ledger.store import Store, Unreadable, read
from ledger.store.errors import LedgerError, LedgerMalformed
from tests.ledger.store.making import accepted, plain_sql, some, started
from tests.stories import story


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "PAGE", 7)


@pytest.fixture
def mixed(store: Store, small_pages: None) -> tuple[Store, list[Event]]:
    """Three runs interleaved, one of them started three times; and every event of the ledger."""
    random = Random(5)
    for number in range(60):
        run_id = random.choice(["a", "b", "c"])
        if run_id == "b" and number in {9, 10, 11, 12, 30, 31, 32, 33, 34, 35, 50}:
            store.append([started("b")])
        store.append([accepted(f"q{random.randrange(4)}", run_id=run_id, line=number)])
    events = [event for event in store.events() if isinstance(event, Event)]
    assert [event.position for event in events] == list(range(1, store.head().size + 1))
    return store, events


def test_the_events_of_a_run_are_found_from_any_position_to_any(mixed: tuple[Store, list[Event]]) -> None:
    store, events = mixed
    size = len(events)
    for run_id in ("a", "b", "c", "$ledger", "nobody"):
        for after in (0, 1, 2, 17, 40, size - 1, size, size + 5):
            for upto in (None, 0, 1, 17, 41, size, size + 5):
                wanted = [
                    event
                    for event in events
                    if event.run_id == run_id and after < event.position <= (size if upto is None else upto)
                ]
                assert list(store.events(run_id, after=after, upto=upto)) == wanted


def test_the_events_of_a_request_are_found(mixed: tuple[Store, list[Event]]) -> None:
    store, events = mixed
    for request_id in ("q0", "q3", "nothing"):
        for after, upto in ((0, None), (10, 50), (30, 20)):
            found = list(store.events("a", request_id=request_id, after=after, upto=upto))
            wanted = [e for e in events if (e.run_id, e.request_id) == ("a", request_id)]
            assert found == [e for e in wanted if after < e.position <= (upto or len(events))]


def test_a_run_is_read_from_its_last_start(mixed: tuple[Store, list[Event]]) -> None:
    store, events = mixed
    starts = [event.position for event in events if event.type == "RunStarted"]
    assert len(starts) > 2
    for upto in (None, starts[1], starts[1] + 1, starts[1] - 1, starts[0] - 1):
        end = len(events) if upto is None else upto
        last = max((position for position in starts if position <= end), default=None)
        wanted = [] if last is None else [e for e in events if e.run_id == "b" and last <= e.position <= end]
        assert list(store.events("b", upto=upto, since_last_start=True)) == wanted
    (one, *_) = store.events("b", since_last_start=True, request_id="q1")
    assert one.position > starts[-1]
    assert list(store.events("a", since_last_start=True)) == []


def test_a_request_without_a_run_is_no_question(store: Store) -> None:
    with pytest.raises(ValueError, match="some run's"):
        store.events(request_id="q1")
    with pytest.raises(ValueError, match="some run's"):
        store.events(since_last_start=True)


def test_records_come_in_pages_too(mixed: tuple[Store, list[Event]]) -> None:
    store, events = mixed
    assert [record.position for record in store.records()] == [event.position for event in events]
    assert [record.position for record in store.records(after=5, upto=20)] == list(range(6, 21))
    assert list(store.records(after=len(events))) == []


def test_rows_are_streamed_with_named_parameters(store: Store) -> None:
    store.append(some(3000))
    sql = "SELECT position, 'it''s :not %s' FROM events WHERE run_id = :run AND position > :after ORDER BY position"
    rows = store.rows(sql, {"run": "run", "after": 10})
    assert next(rows) == (11, "it's :not %s")
    assert sum(1 for _ in rows) == 2990
    abandoned = store.rows(sql, {"run": "run", "after": 0})
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    (time,) = next(store.rows("SELECT recorded_at FROM events LIMIT 1"))
    assert time == "2026-11-30T20:42:00.000000Z"


# --- what cannot be understood -------------------------------------------------------------


def tamper(url: str, change: str) -> None:
    """Change an event as somebody who owns the database can."""
    with plain_sql(url) as sql:
        if url.startswith("sqlite"):
            sql("DROP TRIGGER events_refuse_update")
        else:
            sql("ALTER TABLE events DISABLE TRIGGER USER")
        sql(f"UPDATE events SET {change} WHERE position = 3")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("type = 'Unheard'", "unknown type"),
        ("schema = 9", "RequestAccepted schema 9 is not known (present: 1)"),
        ("payload = 'no json'", "its payload is not JSON"),
        ("payload = '[]'", "its payload is not of its type's form"),
        ("payload = '{\"line\":1}'", "its payload is not of its type's form"),
        ("payload = 'null'", "its payload is not of its type's form"),
        ("payload = replace(payload, '\"line\":', '\"line\":-')", "its payload is not of its type's form"),
    ],
)
@pytest.mark.parametrize("events", [3, 60], ids=["read one by one", "read in bulk"])
def test_an_event_that_cannot_be_understood_comes_as_such(
    store: Store, begun_url: str, change: str, reason: str, events: int
) -> None:
    store.append(some(events))
    tamper(begun_url, change)
    found = list(store.events("run"))
    assert [event.position for event in found] == list(range(2, events + 2))
    assert [type(event) for event in found].count(Unreadable) == 1
    type_ = "Unheard" if "Unheard" in change else "RequestAccepted"
    assert found[1] == Unreadable(3, "run", "q2", type_, reason)


ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    2**53,
    1.0,
    "",
    "x y",
    "a\0b",
    "x" * 201,
    [],
    [1],
    {},
    {"a": "é"},
    {"a": 1},
)
EVENTS = [event for seed in range(20) for event in story(Random(seed))]
ROWS = [
    (at, e.event_id, e.type, e.schema, "run", at, e.request_id, None, "2026-11-30T20:42:00.000000Z", e.payload_json)
    for at, e in enumerate(EVENTS, start=1)
]


def with_member(row: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    payload = orjson.loads(row[9])
    return (*row[:9], orjson.dumps(payload | {min(payload): value}))


def with_column(row: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*row[:at], value, *row[at + 1 :])


BENT = st.one_of(
    st.builds(with_member, st.sampled_from(ROWS), st.sampled_from(ODD)),
    st.builds(with_column, st.sampled_from(ROWS), st.just(2), st.sampled_from(["Unheard", None, "RunStarted"])),
    st.builds(with_column, st.sampled_from(ROWS), st.just(3), st.sampled_from([0, 9, None, "1"])),
    st.builds(with_column, st.sampled_from(ROWS), st.just(9), st.sampled_from([None, 5, b"", b"{", b"[]", b"{},{}"])),
)


@given(st.lists(BENT, max_size=2), st.integers(0, 200))
@settings(max_examples=150, deadline=None)
def test_events_read_in_bulk_are_what_they_are_one_by_one(bent: list[tuple[Any, ...]], after: int) -> None:
    rows = [*ROWS[after : after + 60], *bent]
    assert read.decoded(rows) == [read.decoded([row])[0] for row in rows]


@pytest.mark.parametrize("begun_url", ["sqlite"], indirect=True)
def test_a_payload_that_is_not_text_spoils_its_own_event_alone(store: Store, begun_url: str) -> None:
    store.append(some(3))
    tamper(begun_url, "payload = CAST(x'7bff7d' AS TEXT)")
    found = list(store.events())
    assert [type(event) for event in found] == [Event, Event, Unreadable, Event]
    with pytest.raises(LedgerMalformed):
        list(store.records())


@pytest.mark.parametrize("change", ["encoding = 'rot13'", "encoding = 'base64', body = '***'"])
def test_content_that_cannot_be_decoded_names_its_position(store: Store, begun_url: str, change: str) -> None:
    store.append(some(3))
    with plain_sql(begun_url) as sql:
        if begun_url.startswith("sqlite"):
            sql("DROP TRIGGER contents_refuse_update")
        else:
            sql("ALTER TABLE contents DISABLE TRIGGER USER")
        sql(f"UPDATE contents SET {change} WHERE position = 3")
    with pytest.raises(LedgerMalformed, match="position 3"):
        store.content(3)
    assert store.content(4) == b"line 3"


def test_a_head_that_is_gone_is_said(store: Store, begun_url: str) -> None:
    with plain_sql(begun_url) as sql:
        if begun_url.startswith("sqlite"):
            sql("DROP TRIGGER ledger_head_refuse_delete")
        else:
            sql("ALTER TABLE ledger_head DISABLE TRIGGER USER")
        sql("DELETE FROM ledger_head")
    with pytest.raises(LedgerMalformed, match="no head"):
        store.head()
    with pytest.raises(LedgerMalformed, match="no head"):
        store.append(some(1))


@pytest.mark.parametrize("change", ["frontier = root", "size = size + 1"])
def test_nothing_is_built_on_a_damaged_head(store: Store, begun_url: str, change: str) -> None:
    store.append(some(2))
    with plain_sql(begun_url) as sql:
        sql(f"UPDATE ledger_head SET {change}")
    assert store.head().size in {3, 4}
    with pytest.raises(LedgerError):
        store.append(some(1, first=3))
