"""A position from a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from ledger.events import TERMINAL_TYPES, RunResumed, new_event
from ledger.projections import projection
from ledger.projections.projection import position_at, resolve_as_of
from ledger.store import Store, open_store
from tests.stories import started

FIRST = datetime(2026, 11, 30, 20, 42, tzinfo=UTC)


@pytest.fixture(scope="module")
def timed(module_url: str) -> Iterator[Store]:
    """Positions 1 to 8, a second apart, two events at each time from the second on."""
    now = [FIRST]
    with open_store(module_url, "create", clock=lambda: now[0]) as opened:
        opened.append([new_event(started(), run_id="run-1")])
        for second in (1, 2, 3):
            now[0] = FIRST + timedelta(seconds=second)
            opened.append([new_event(RunResumed(actor="a", outcomes_unknown=0), run_id="run-1") for _ in range(2)])
        yield opened


@pytest.mark.parametrize(
    ("seconds", "position"), [(-1, 0), (0, 2), (0.999999, 2), (1, 4), (2.5, 6), (3, 8), (100_000, 8)]
)
def test_a_time_is_the_last_position_recorded_by_then(timed: Store, seconds: float, position: int) -> None:
    assert position_at(timed, FIRST + timedelta(seconds=seconds)) == position


@pytest.mark.parametrize(
    ("as_of", "position"),
    [
        (None, None),
        (7, 7),
        ("7", 7),
        ("2026-11-30T20:42:01Z", 4),
        ("2026-11-30T21:42:01.5+01:00", 4),
        ("2026-11-30T20:42:01.000000Z", 4),
    ],
)
def test_a_position_or_a_time_may_be_given(timed: Store, as_of: int | str | None, position: int | None) -> None:
    assert resolve_as_of(timed, as_of) == position


@pytest.mark.parametrize("as_of", ["", "yesterday", "2026-11-30", "2026-11-30T20:42:01", "-1", "٣", "1e3"])
def test_anything_else_is_refused(timed: Store, as_of: str) -> None:
    with pytest.raises(ValueError, match="time"):
        resolve_as_of(timed, as_of)


def test_every_terminal_type_ends_a_pass() -> None:
    assert all(f"'{name}'" in projection._MILESTONES_SQL for name in TERMINAL_TYPES)
