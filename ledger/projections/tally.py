"""Do the projection tables equal a fresh fold? Answered in one pass, without a second copy of them.

Every change that the fold makes (``tables.fold``) becomes a part of one row: a request's row, for
instance, is made of a part written when it was accepted, one written when it was decided, and, where
something went wrong, one about its errors. Each part is hashed, and the hashes are added up. The rows
that are stored are taken apart into the same parts, hashed and added up likewise. The sums agree
only where the parts do: a hash is SHA-256 over 32 bytes drawn afresh for each comparison and never
shown, then the part, so nobody who alters rows can choose differences that cancel; sums are taken
modulo 2^256. Parts carry their row's key and the positions of their events, and stored rows are read in
order of a key that must rise, so parts that agree are rows that agree.

Memory: one entry a run without an end, and one a request between its first error and its result. What
would need more, or another order, is ``Unusual``: whoever asked then compares row by row
(``rebuild.check``), as he does where the sums differ, to name the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from ledger.events import Counts, Event
from ledger.projections import tables
from ledger.store.changes import Change
from ledger.tables import RunRow

KEY_BYTES: Final = 32
MODULUS: Final = 1 << 256
RUN_COLUMNS: Final = tuple(RunRow.model_fields)

# One byte each, before the part: parts of different kinds never hash alike.
RUN, ACCEPTED, DECIDED, ERRORS, STARTED, ANSWERED, FAILED, FAILURE, REPORT = (bytes([kind]) for kind in range(9))

_CLEAN_VERSION: Final = 4
"""The request's version at a result without an error before it: accepted, call started, called, result."""

_RESULTS: Final = ("accepted_first", "accepted_after_retry", "fallback_records")
_REFUSED: Final = {"LeakRejected": "leak_rejected", "RequestRejected": "rejected"}


class Unusual(Exception):
    """Events in an order, or rows with values, that this way of comparing is not made for."""


def part(kind: bytes, values: tuple[Any, ...]) -> bytes:
    """A part's bytes, others for other values: null, bools, integers and text, no floats (NaN would be null)."""
    return kind + orjson.dumps(values)


def sum_of(key: bytes, parts: Iterable[bytes]) -> int:
    """The sum of the parts' hashes under ``key``."""
    from_bytes = int.from_bytes
    return sum([from_bytes(sha256(key + each).digest(), "little") for each in parts]) % MODULUS


class Errors:
    """What a request's events say went wrong; ``decided``: its result came, and later errors are unusual."""

    __slots__ = ("decided", "first", "last", "unknown")

    def __init__(self) -> None:
        self.first: str | None = None
        self.last: str | None = None
        self.unknown = False
        self.decided = False

    def note(self, code: str, *, unknown: bool = False) -> None:
        """The next error."""
        if self.decided:
            raise Unusual
        self.first = code if self.first is None else self.first
        self.last = code
        self.unknown = self.unknown or unknown

    def follow(self, later: Errors) -> None:
        """Take over what later events said."""
        self.first = later.first if self.first is None else self.first
        self.last = self.last if later.last is None else later.last
        self.unknown, self.decided = self.unknown or later.unknown, later.decided

    def parts(self, run_id: str, request_id: str) -> list[bytes]:
        """The part about errors; there is none where there were none."""
        return errors_part(self.first, self.unknown, None if self.decided else self.last, run_id, request_id)


def errors_part(first_error: str | None, unknown: bool, error: str | None, run_id: str, request_id: str) -> list[bytes]:
    """``error``: the last one, where there is no result (with one, it is part of that)."""
    if first_error is None and not unknown:
        return []
    return [part(ERRORS, (first_error, unknown, error, run_id, request_id))]


class End(NamedTuple):
    """A run's terminal event: where it stands and the counts that it gives (None: it was blocked)."""

    position: int
    counts: Mapping[str, int] | None


class RunPart:
    """What some events in a row say of one run.

    ``restarted``: they begin with its start, which clears it. ``again``: it is known not to be its first.
    """

    def __init__(self, *, restarted: bool, again: bool = False) -> None:
        self.restarted, self.again = restarted, again
        self.columns: dict[str, Any] = {}
        self.total = 0
        self.counted: Counter[str] = Counter()
        self.errors: dict[str, Errors] = {}
        self.accepted_again: list[str] = []
        self.end: End | None = None

    def untouched(self) -> bool:
        """Do its events change nothing of the run's rows?"""
        return not (self.restarted or self.columns or self.total or self.errors or self.end)

    def errors_of(self, request_id: str) -> Errors:
        """The request's errors so far."""
        found = self.errors.get(request_id)
        if found is None:
            found = self.errors[request_id] = Errors()
        return found


class Fold(NamedTuple):
    """What the events of one range make of the tables: to be joined with what the ranges before it made."""

    runs: dict[str, RunPart]
    total: int


class Folding:
    """Takes the events of one range, page by page."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._key = key
        self._runs: dict[str, RunPart] = {}
        self._total = 0

    def take(self, events: Iterable[Event]) -> None:
        """The next events, in order of position, payloads of their types' forms. Raises ``Unusual``."""
        fold, kinds, dumps = tables.fold, _KINDS, orjson.dumps
        parts: dict[str, list[bytes]] = {}
        run_id, run = "", RunPart(restarted=False)
        made: list[bytes] = []
        for event in events:
            changes = fold(event)
            if not changes:
                continue
            if event.run_id != run_id:
                run_id = event.run_id
                run, made = self._runs.setdefault(run_id, RunPart(restarted=False)), parts.setdefault(run_id, [])
            for change, values in changes:
                kind = kinds.get(id(change))
                if kind is not None and run.end is None:
                    made.append(kind + dumps(values))
                else:
                    run = self._apply(run, event, change, values, made)
        for name, each in parts.items():
            self._runs[name].total += sum_of(self._key, each)

    def done(self) -> Fold:
        """What they make of the tables."""
        return Fold(self._runs, self._total % MODULUS)

    def _apply(self, run: RunPart, event: Event, change: Change, values: tuple[Any, ...], made: list[bytes]) -> RunPart:
        """A change that is more than a part; give the run that later changes belong to."""
        action = _ACTIONS.get(id(change))
        if action is not None:
            if run.end is not None and run.end.position != event.position:
                raise Unusual
            action(run, event, values, made)
        elif change is tables.ADD_REPORT:
            self._total += sum_of(self._key, [part(REPORT, values)])
        elif change is tables.CLEAR_RUN[0]:
            made.clear()
            return self._clear(event.run_id)
        elif change not in tables.CLEAR_RUN:  # the rest of which clears other tables of the same run
            raise Unusual
        return run

    def _clear(self, run_id: str) -> RunPart:
        before = self._runs[run_id]
        if before.end is not None and before.end.counts is not None:
            raise Unusual  # it went on after its end
        run = self._runs[run_id] = RunPart(restarted=True, again=not before.untouched())
        return run


# --- what each change of the fold makes ----------------------------------------------------

Action = Callable[[RunPart, Event, tuple[Any, ...], list[bytes]], None]


def _accept(run: RunPart, event: Event, values: tuple[Any, ...], made: list[bytes]) -> None:
    run.counted["accepted"] += 1
    if event.request_version != 1:
        request_id = str(event.request_id)
        if request_id in run.errors:  # noted when there was no row to note them in
            raise Unusual
        run.accepted_again.append(request_id)
    made.append(part(ACCEPTED, values))


def _accept_output(run: RunPart, event: Event, values: tuple[Any, ...], made: list[bytes]) -> None:
    run.counted[values[0]] += 1
    if event.request_version != _CLEAN_VERSION or event.request_id in run.errors:
        errors = run.errors_of(str(event.request_id))
        if errors.decided:
            raise Unusual
        errors.decided = True
    made.append(part(DECIDED, values))


_FIRST_ERROR_AT: Final = len(tables.APPLY_FALLBACK.sets)


def _apply_fallback(run: RunPart, event: Event, values: tuple[Any, ...], made: list[bytes]) -> None:
    run.counted["fallback_records"] += 1
    errors = run.errors_of(str(event.request_id))
    errors.note(values[_FIRST_ERROR_AT])
    errors.decided = True
    made.append(part(DECIDED, values[:_FIRST_ERROR_AT] + values[_FIRST_ERROR_AT + 1 :]))


def _note_error(run: RunPart, event: Event, values: tuple[Any, ...], made: list[bytes]) -> None:
    run.errors_of(str(event.request_id)).note(values[0])


def _note_unknown(run: RunPart, event: Event, values: tuple[Any, ...], made: list[bytes]) -> None:
    run.errors_of(str(event.request_id)).note(values[0], unknown=True)


def _add_failure(run: RunPart, event: Event, values: tuple[Any, ...], made: list[bytes]) -> None:
    refused = _REFUSED.get(event.type)
    if refused is not None:
        run.counted[refused] += 1
    made.append(part(FAILURE, values))


def _change_run(change: Change) -> Action:
    names = (*change.sets, *change.key)

    def action(run: RunPart, _event: Event, values: tuple[Any, ...], _made: list[bytes]) -> None:
        run.columns.update(zip(names, values, strict=True))

    return action


def _end_run(change: Change) -> Action:
    changed = _change_run(change)

    def action(run: RunPart, event: Event, values: tuple[Any, ...], made: list[bytes]) -> None:
        run.end = End(event.position, event.payload.get("counts"))
        changed(run, event, values, made)

    return action


_KINDS: Final = {
    id(tables.START_CALL): STARTED,
    id(tables.ANSWER_CALL): ANSWERED,
    id(tables.FAIL_CALL): FAILED,
}
"""Changes that are a part and nothing more."""


def _as_part(kind: bytes) -> Action:
    return lambda _run, _event, values, made: made.append(part(kind, values))


_ACTIONS: Final[dict[int, Action]] = {
    **{change: _as_part(kind) for change, kind in _KINDS.items()},
    id(tables.START_RUN): _change_run(tables.START_RUN),
    id(tables.FINISH_INTAKE): _change_run(tables.FINISH_INTAKE),
    id(tables.END_RUN): _end_run(tables.END_RUN),
    id(tables.BLOCK_RUN): _end_run(tables.BLOCK_RUN),
    id(tables.ACCEPT_REQUEST): _accept,
    id(tables.NOTE_ERROR): _note_error,
    id(tables.NOTE_UNKNOWN): _note_unknown,
    id(tables.ACCEPT_OUTPUT): _accept_output,
    id(tables.APPLY_FALLBACK): _apply_fallback,
    id(tables.ADD_FAILURE): _add_failure,
}


# --- ranges joined -------------------------------------------------------------------------


class _Run:
    """A run that has no end yet, or was blocked and may start again (``again``: it did)."""

    def __init__(self, *, again: bool) -> None:
        self.again = again
        self.blocked = False
        self.columns: dict[str, Any] = {}
        self.total = 0
        self.counted: Counter[str] = Counter()
        self.errors: dict[str, Errors] = {}
        self.troubled: set[str] = set()

    def parts(self, run_id: str) -> list[bytes]:
        """Those not added up yet: the run's own row, and errors of requests without a result."""
        parts = [part(RUN, tuple(map(self.columns.get, RUN_COLUMNS)))]
        for request_id, errors in self.errors.items():
            parts += errors.parts(run_id, request_id)
        return parts


class Uncounted(NamedTuple):
    """A run that ended with requests without a result: how many of them were begun was not followed."""

    position: int
    run_id: str
    counts: Mapping[str, int]


class Tally:
    """What all events up to here make of the tables."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._open: dict[str, _Run] = {}
        self._total = 0
        self.uncounted: list[Uncounted] = []

    def join(self, fold: Fold) -> None:
        """Take the next range. Raises ``Unusual``, also where a run's counts are not what was folded."""
        self._total += fold.total
        for run_id, made in fold.runs.items():
            if made.restarted:
                self._open[run_id] = _Run(again=made.again or run_id in self._open)
            if not made.untouched():
                self._join_run(run_id, made)

    def total(self) -> int:
        """The sum over every part of every row."""
        opened = (run.total + sum_of(self._key, run.parts(run_id)) for run_id, run in self._open.items())
        return (self._total + sum(opened)) % MODULUS

    def agrees(self, totals: Iterable[int]) -> bool:
        """Do the sums over the stored tables add up to the same?"""
        return (sum(totals) - self.total()) % MODULUS == 0

    def _join_run(self, run_id: str, made: RunPart) -> None:
        run = self._open.get(run_id)
        if run is None or (run.blocked and not made.restarted):
            raise Unusual
        if made.accepted_again and not (run.again and run.troubled.isdisjoint(made.accepted_again)):
            raise Unusual
        run.columns |= made.columns
        run.total += made.total
        run.counted += made.counted
        for request_id, errors in made.errors.items():
            self._join_errors(run, run_id, request_id, errors)
        if made.end is not None:
            self._end(run, run_id, made.end)

    def _join_errors(self, run: _Run, run_id: str, request_id: str, errors: Errors) -> None:
        before = run.errors.pop(request_id, None)
        if before is not None:
            before.follow(errors)
            errors = before
        if run.again:
            run.troubled.add(request_id)
        if errors.decided:
            run.total += sum_of(self._key, errors.parts(run_id, request_id))
        else:
            run.errors[request_id] = errors

    def _end(self, run: _Run, run_id: str, end: End) -> None:
        run.blocked = end.counts is None
        if end.counts is None:
            return
        seven = {name: run.counted[name] for name in Counts.model_fields if name != "requests"}
        without_result = run.counted["accepted"] - sum(run.counted[name] for name in _RESULTS)
        if without_result:
            self.uncounted.append(Uncounted(end.position, run_id, end.counts))
        elif end.counts != {"requests": sum(seven.values()), **seven}:
            raise Unusual
        self._total += run.total + sum_of(self._key, run.parts(run_id))
        del self._open[run_id]
