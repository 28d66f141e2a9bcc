"""Envelopes are made from a template; these hold it against the real encoder."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.event_ids import new_event_id
from ledger.events import EVENT_TYPES, ID_PATTERN, LEDGER_RUN_ID
from ledger.integrity import canonical
from ledger.store.envelope import ORIGIN_PATTERN, Envelopes, are_fit, check_members, check_origin
from ledger.store.errors import InvalidEvent
from ledger.tables import format_time

ids = st.from_regex(ID_PATTERN, fullmatch=True)
origins = st.from_regex(ORIGIN_PATTERN, fullmatch=True)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
versions = st.integers(1, 2**53 - 1)
times = st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.timezones()).map(format_time)  # noqa: DTZ001
uuids = st.builds(lambda _: new_event_id(), st.integers())


@given(
    origin=origins,
    position=versions,
    event_id=uuids,
    type_=st.sampled_from(sorted(EVENT_TYPES)),
    run_id=ids | st.just(LEDGER_RUN_ID),
    run_version=versions,
    request=st.none() | st.tuples(ids, versions),
    recorded_at=times,
    payload_sha256=digests,
    content_commitment=st.none() | digests,
)
def test_the_template_agrees_with_the_canonical_encoder(
    origin: str,
    position: int,
    event_id: str,
    type_: str,
    run_id: str,
    run_version: int,
    request: tuple[str, int] | None,
    recorded_at: str,
    payload_sha256: str,
    content_commitment: str | None,
) -> None:
    request_id, request_version = request or (None, None)
    check_members(event_id, type_, 1, run_id, request_id)
    encoded = Envelopes(origin).encode(
        position,
        event_id,
        type_,
        1,
        run_id,
        run_version,
        request_id,
        request_version,
        recorded_at,
        payload_sha256,
        content_commitment,
    )
    assert encoded == canonical.encode(
        {
            "v": 1,
            "ledger": origin,
            "position": position,
            "event_id": event_id,
            "type": type_,
            "schema": 1,
            "run_id": run_id,
            "run_version": run_version,
            "request_id": request_id,
            "request_version": request_version,
            "recorded_at": recorded_at,
            "payload_sha256": payload_sha256,
            "content_commitment": content_commitment,
        }
    )


@pytest.mark.parametrize("origin", ["", "a b", 'a"b', "/a", "a\n", "\u00e9", "x" * 256, "a\\b"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(InvalidEvent):
        check_origin(origin)


@pytest.mark.parametrize("origin", ["replay-ledger.local/0197a3c0", "audit.example.com/agents", "A", "x" * 255])
def test_an_origin_is_a_name_one_could_own(origin: str) -> None:
    assert check_origin(origin) == origin


def bent(text: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Text with one character changed, more or less; most of what comes of it is no longer what it was."""
    return st.builds(
        lambda whole, at, new, cut: whole[: at % (len(whole) + 1)] + new + whole[at % (len(whole) + 1) + cut :],
        *(
            text,
            st.integers(0, 40),
            st.sampled_from(["", "\n", "-", "7", "g", "A", "\u0660", "x" * 130]),
            st.integers(0, 1),
        ),
    )


known = st.sampled_from([*EVENT_TYPES, "Unheard"])
members = st.tuples(
    uuids | bent(uuids),
    st.tuples(known, st.sampled_from([1, 1, 1, 0, 2])),
    ids | st.just(LEDGER_RUN_ID) | bent(ids),
    st.none() | ids | bent(ids) | st.just(LEDGER_RUN_ID),
)


@given(st.lists(members, min_size=1, max_size=4))
def test_events_are_fit_together_exactly_where_each_is(
    events: list[tuple[str, tuple[str, int], str, str | None]],
) -> None:
    def fit(event: tuple[str, tuple[str, int], str, str | None]) -> bool:
        event_id, kind, run_id, request_id = event
        try:
            check_members(event_id, *kind, run_id, request_id)
        except InvalidEvent:
            return False
        return True

    event_ids, kinds, run_ids, request_ids = zip(*events, strict=True)
    together = are_fit(event_ids, set(kinds), run_ids, request_ids, [None] * len(events))
    assert together == all(map(fit, events))


def test_an_id_that_holds_two_lines_is_not_taken_for_two_ids() -> None:
    one, other = new_event_id(), new_event_id()
    for pair in ([f"{one}\n{other}", ""], ["", f"{one}\n{other}"], [one[:20], f"{one[20:]}\n{other}"]):
        assert not are_fit(pair, {("Retried", 1)}, ["run"] * 2, [None] * 2, [None] * 2)


def test_a_salt_that_is_given_is_looked_at_by_itself() -> None:
    assert not are_fit([new_event_id()], {("Retried", 1)}, ["run"], [None], [bytes(32)])
