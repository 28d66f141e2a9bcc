"""What a caller expects of the ledger before an append: optimistic concurrency in one page."""

from __future__ import annotations

from typing import Final, NamedTuple

ANY: Final = -1
"""No expectation."""

NO_RUN: Final = 0
"""The stream has no event yet."""


class Expected(NamedTuple):
    """The version that a stream must have when the append begins.

    ``request_id`` None names the run's own stream (``run_version``), else the request's
    (``request_version``). ``version`` is that of the stream's last event: ``NO_RUN``, ``ANY``,
    or 1, 2, 3 ...
    """

    run_id: str
    request_id: str | None
    version: int


def holds(expected: int, actual: int) -> bool:
    """Does the stream's version satisfy the expectation?"""
    return expected in {ANY, actual}
