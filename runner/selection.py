"""Which lines of a file a run takes: a range, named requests, a sample, or all of them.

A sample is drawn by hashing the seed with each line's ordinal, so that the same seed takes the
same lines on any machine, and any Python, for ever.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from runner.plan import NothingSelected, RunError
from runner.requests import parse_line, read_lines
from runner.settings import RunSettings

_SHOWN: Final = 5


@dataclass(frozen=True)
class Selection:
    """Ordinals count the lines that are not blank, from 1."""

    first: int = 1
    last: int | None = None
    request_ids: frozenset[str] | None = None
    sample: frozenset[int] | None = None
    recorded: dict[str, str | int] | None = None
    """What ``IntakeCompleted`` says of it; None where every line is taken."""

    def takes(self, ordinal: int, request_id: str | None) -> bool:
        if ordinal < self.first or (self.last is not None and ordinal > self.last):
            return False
        if self.sample is not None and ordinal not in self.sample:
            return False
        return self.request_ids is None or request_id in self.request_ids

    def unmatched(self, seen: Iterable[str]) -> tuple[str, ...]:
        """Request ids that were asked for and are not among those seen."""
        return tuple(sorted((self.request_ids or frozenset()) - frozenset(seen)))


def select(settings: RunSettings, stream: BinaryIO) -> Selection:
    """The selection that the settings ask for. A sample reads the stream once and rewinds it.

    Raises ``RunError`` where a sample is asked of a stream that cannot be rewound.
    """
    recorded: dict[str, str | int] = {}
    first, last = 1, None
    if settings.limit is not None:
        first, last = (int(part) for part in settings.limit.split("-"))
        recorded["limit"] = settings.limit
    if settings.request_ids is not None:
        ids = "\n".join(sorted(set(settings.request_ids)))
        recorded["request_ids"] = len(set(settings.request_ids))
        recorded["request_ids_sha256"] = hashlib.sha256(ids.encode()).hexdigest()
    sample = None
    if settings.sample is not None:
        if not stream.seekable():
            raise RunError("--sample needs a file that can be read twice, not a pipe")
        seed = settings.sample_seed or 0
        sample = _draw(stream, settings.sample, seed, first, last)
        recorded |= {"sample": settings.sample, "sample_seed": seed}
    return Selection(
        first=first,
        last=last,
        request_ids=None if settings.request_ids is None else frozenset(settings.request_ids),
        sample=sample,
        recorded=recorded or None,
    )


def check_takes_one(selection: Selection, settings: RunSettings, variant: str | None, stream: BinaryIO) -> None:
    """Raise ``NothingSelected`` where no line is taken. Reads the stream up to the first and rewinds it.

    A stream that cannot be rewound is let pass, and so is one without a line: that is told as such.
    """
    if selection.recorded is None or not stream.seekable():
        return
    start, ordinal = stream.tell(), 0
    for ordinal, (number, raw) in enumerate(read_lines(stream), start=1):
        by_id = selection.request_ids is not None
        request_id = parse_line(number, raw, variant_override=variant).request_id if by_id else None
        if selection.takes(ordinal, request_id):
            break
    else:
        if ordinal:
            raise NothingSelected(takes_none(settings, ordinal))
    stream.seek(start)


def takes_none(settings: RunSettings, lines: int) -> str:
    """What is said where a selection takes no line."""
    ids = sorted(set(settings.request_ids or ()))
    asked = [f"--limit {settings.limit}"] if settings.limit is not None else []
    asked += [f"--request-id {one}" for one in ids[:_SHOWN]]
    asked += [f"{len(ids) - _SHOWN:,} more ids"] if len(ids) > _SHOWN else []
    asked += [f"--sample {settings.sample}"] if settings.sample is not None else []
    there = "there is 1 line" if lines == 1 else f"there are {lines:,} lines"
    return f"the selection takes no line ({', '.join(asked)}): {there}, blank ones not counted"


def _draw(stream: BinaryIO, size: int, seed: int, first: int, last: int | None) -> frozenset[int]:
    start = stream.tell()
    drawn = heapq.nsmallest(size, _keys(stream, seed, first, last))
    stream.seek(start)
    return frozenset(ordinal for _, ordinal in drawn)


def _keys(stream: BinaryIO, seed: int, first: int, last: int | None) -> Iterator[tuple[bytes, int]]:
    for ordinal, _ in enumerate(read_lines(stream), start=1):
        if ordinal >= first and (last is None or ordinal <= last):
            yield hashlib.sha256(f"{seed}:{ordinal}".encode()).digest(), ordinal
