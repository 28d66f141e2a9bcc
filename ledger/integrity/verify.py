"""Verify a ledger: hash everything again, look at everything that refers to it, say what is unproven.

The events are read once, slice by slice (``slices.py``), in as many processes as the caller allows;
``Walk`` joins the slices in order, and looks row by row at one that is not whole. The projection tables are
compared by a sum over their rows, and row by row where that does not settle it (``derived.py``). What is
about many rows at once (versions within a request, stray rows, the file itself) is asked of the database
meanwhile. Memory does not grow with the number of events or requests.

Nothing here ever says PASS without an anchor, a signed checkpoint kept outside the database that vouches
for the end of the ledger: whoever can write to the database could otherwise cut off the tail, or
write the whole ledger anew, and nobody would see it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from ledger.integrity.anchors import Anchor, OpenedAnchor, open_anchor
from ledger.integrity.aside import Aside, Question
from ledger.integrity.derived import Derived
from ledger.integrity.guards import faulty_guards, foreign_triggers
from ledger.integrity.held import check_held
from ledger.integrity.note import VerifierKey
from ledger.integrity.pool import Slicer
from ledger.integrity.row_security import RowSecurity, row_security
from ledger.integrity.slices import SLICE
from ledger.integrity.strays import check_strays
from ledger.integrity.survey import DATABASE_FILE, Survey, check_file, survey
from ledger.integrity.verdict import MAX_LISTED, Findings, Verdict, printable
from ledger.integrity.versions import REQUEST_VERSION, RUN_VERSION, check_versions
from ledger.integrity.views import check_views
from ledger.integrity.vouching import Vouching, judge
from ledger.integrity.walk import Progress, Walk
from ledger.projections.scratch import UnreadableEvent
from ledger.projections.tally import KEY_BYTES
from ledger.store import Store
from ledger.store.errors import LedgerMalformed, NotALedger, StatementRefused

_UNVOUCHED: Final = Vouching(None, None, None, ())


def verify(
    store: Store,
    *,
    keys: Sequence[VerifierKey] = (),
    anchors: Sequence[Anchor] = (),
    max_window: int = 0,
    at: Anchor | None = None,
    projections: bool = True,
    jobs: int = 1,
    progress: Progress | None = None,
    row_by_row: bool = False,
) -> Verdict:
    """Check the whole ledger. Reads only; others may append meanwhile, their events are not judged.

    ``keys``: those that the caller trusts; an anchor vouches for something only by one of them, or by
    one that rotations lead to. ``max_window``: how many events may stand beyond the anchor. ``at``: judge
    the positions that this checkpoint covers, and nothing else. ``projections``: False leaves their
    tables unchecked, and the verdict says so. ``jobs``: processes that hash. ``progress`` is called now and
    then with (events done, events in all). ``row_by_row``: go the slow way throughout, which is gone
    otherwise where something is wrong; the verdict is the same.

    Raises ``NoteError`` where an anchor is no checkpoint. What cannot be read is a finding; that the
    database does not answer is a ``LedgerError``.
    """
    asked = Asked(
        tuple(keys),
        tuple(map(open_anchor, anchors if at is None else (*anchors, at))),
        max_window,
        None if at is None else open_anchor(at),
        projections,
        jobs,
        progress or _no_progress,
        row_by_row,
    )
    found = Findings()
    security = row_security(store)
    if security.hides_record:
        unseen = Survey(whole=False, head=None, head_sound=False)
        return replace(_verdict(unseen, None, None, _UNVOUCHED, found, [security.told()]), max_window=max_window)
    try:
        seen = survey(store, found)
    except LedgerMalformed as error:
        return unreadable(error)
    return _Verification(store, asked, seen, found, security).run()


def unreadable(error: LedgerMalformed) -> Verdict:
    """The verdict on a database so damaged that not even its tables can be listed."""
    found = Findings()
    found.add(None, DATABASE_FILE, "edited", printable(error))
    seen = Survey(whole=False, head=None, head_sound=False)
    return _verdict(seen, None, None, _UNVOUCHED, found, ["the events: none could be read"])


class Asked(NamedTuple):
    """What ``verify`` was asked for, anchors opened."""

    keys: tuple[VerifierKey, ...]
    anchors: tuple[OpenedAnchor, ...]
    max_window: int
    at: OpenedAnchor | None
    projections: bool
    jobs: int
    progress: Progress
    row_by_row: bool


def _no_progress(_done: int, _total: int) -> None:
    return None


class _Verification:
    """One verification on its way."""

    def __init__(self, store: Store, asked: Asked, seen: Survey, found: Findings, security: RowSecurity) -> None:
        self._store, self._asked, self._seen, self._found = store, asked, seen, found
        self._security = security
        self._unchecked: list[str] = [security.told()] if security.on else []
        if security.hides_contents:
            found.overlook("content", "removed")
        self._vouching = _UNVOUCHED
        self._walk: Walk | None = None
        if seen.head is None:
            self._unchecked.append(
                "the events: without the head nobody knows their origin, so they were not hashed again"
            )
            return
        judged = seen.head.size if asked.at is None else min(asked.at.tree.size, seen.head.size)
        marks = {anchor.tree.size for anchor in asked.anchors}
        self._walk = Walk(store, found, seen.head, head_sound=seen.head_sound, judged=judged, marks=marks)

    def run(self) -> Verdict:
        for name, stage in self._stages():
            self._guarded(name, stage)
        at = None if self._asked.at is None else self._asked.at.tree.size
        verdict = _verdict(self._seen, at, self._walk, self._vouching, self._found, self._unchecked)
        return replace(verdict, max_window=self._asked.max_window)

    def _stages(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What is checked, each under the name by which it is said that it could not be."""
        aside = Aside(self._questions(), inline=self._store.url is None)
        derived = None
        if self._walk is not None:
            derived = Derived(self._store, self._key())
            yield from self._walk_stages(self._walk, derived)
        for name, found, error in aside.answers():
            yield name, partial(self._take_answer, found, error, derived)
        seen, asked = self._seen, self._asked
        if seen.head_sound and asked.at is None:
            yield "rows of no event", lambda: check_strays(self._store, self._found)
        elif asked.at is None:
            self._unchecked.append("the projection tables, and rows of no event: there is no sound head to go by")
        if not asked.projections:
            self._unchecked.append("the projection tables, and the counts that runs ended with: left out as asked")
        elif self._walk is not None and derived is not None:
            yield from self._derived_stages(self._walk, derived)
        yield "the database's guards", self._check_guards

    def _key(self) -> bytes | None:
        """What the sums over the projection tables are made under; None where none are made."""
        asked = self._asked
        wanted = asked.projections and self._seen.head_sound and not asked.row_by_row
        return os.urandom(KEY_BYTES) if wanted else None

    def _walk_stages(self, walk: Walk, derived: Derived) -> Iterator[tuple[str, Callable[[], None]]]:
        with Slicer(self._store, walk.head.origin, derived.key, self._asked.jobs) as slicer:
            yield "the events", lambda: self._walk_events(walk, slicer, derived)
            yield "versions", lambda: self._check_run_versions(walk, derived)
            if walk.redactions:
                yield "legal holds and the retention floor", lambda: check_held(self._store, self._found, walk.judged)
            if self._asked.at is None:
                yield "the projection tables", lambda: derived.add_up(slicer, walk.judged)
        yield "anchors and checkpoints", lambda: self._judge(walk)

    def _derived_stages(self, walk: Walk, derived: Derived) -> Iterator[tuple[str, Callable[[], None]]]:
        if self._asked.at is not None:
            yield "the counts of runs", lambda: derived.check_counts(walk.judged, self._found)
        elif self._seen.head_sound:
            if not self._security.hiding:
                yield "the views", lambda: check_views(self._store, self._found)
            if not self._security.hides_projections:
                yield "the projection tables", lambda: derived.check(self._found, self._unchecked)

    def _guarded(self, name: str, stage: Callable[[], None]) -> None:
        try:
            stage()
        except UnreadableEvent as error:
            self._found.add(error.position, "payload", "edited", "no projection can take this event")
        except LedgerMalformed as error:
            position = self._walk.last_position + 1 if self._walk else None
            self._found.add(position, "database", "edited", printable(error))
        except (NotALedger, StatementRefused):
            if self._seen.whole:
                raise
            self._unchecked.append(f"{name}: a table or a column that this needs is gone")

    # --- stages ----------------------------------------------------------------------------

    def _questions(self) -> dict[str, Question]:
        """What the database is asked meanwhile."""
        asked: dict[str, Question] = {}
        if self._asked.at is None:
            asked["the database file"] = lambda found: check_file(self._store, found)
        if self._walk is not None:
            upto = self._walk.judged
            asked["versions"] = lambda found: check_versions(self._store, found, REQUEST_VERSION, upto)
        return asked

    def _take_answer(self, found: Findings, error: Exception | None, derived: Derived | None) -> None:
        if found and derived is not None:
            derived.doubt()
        self._found.take(found)
        if error is not None:
            raise error

    def _walk_events(self, walk: Walk, slicer: Slicer, derived: Derived) -> None:
        judged, progress = walk.judged, self._asked.progress
        walk.begin()

        def tell() -> None:
            progress(walk.events, judged)

        if self._asked.row_by_row:
            for first in range(1, judged + 1, SLICE):
                walk.read(first, min(first + SLICE - 1, judged), tell)
        else:
            for first, last, checked in slicer.parts(0, judged):
                derived.take(checked.fold)
                if checked.whole is not None and walk.fits(checked.whole):
                    walk.join(checked.whole)
                else:
                    walk.read(first, last, tell)
                tell()
        walk.finish()
        tell()

    def _check_run_versions(self, walk: Walk, derived: Derived) -> None:
        if walk.versions_doubtful:
            derived.doubt()
            check_versions(self._store, self._found, RUN_VERSION, walk.judged)

    def _judge(self, walk: Walk) -> None:
        asked = self._asked
        self._vouching = judge(self._store, walk, self._found, asked.keys, asked.anchors, asked.max_window)

    def _check_guards(self) -> None:
        faulty = faulty_guards(self._store)
        if faulty:
            more = [f"and {len(faulty) - MAX_LISTED} more"] if len(faulty) > MAX_LISTED else []
            self._unchecked.append(
                "that nobody changed rows past the database's own guards, which are not as they were made: "
                + ", ".join([*faulty[:MAX_LISTED], *more])
            )
        foreign = foreign_triggers(self._store)
        self._unchecked += foreign[:MAX_LISTED]
        if len(foreign) > MAX_LISTED:
            self._unchecked.append(f"and {len(foreign) - MAX_LISTED} more triggers or rules that are not ours")


# --- the verdict ---------------------------------------------------------------------------


def _verdict(
    seen: Survey, at: int | None, walk: Walk | None, vouching: Vouching, found: Findings, unchecked: list[str]
) -> Verdict:
    head = seen.head if seen.head_sound else None
    open_runs = [] if walk is None else sorted(map(printable, walk.open_runs))
    return Verdict(
        origin=None if seen.head is None else seen.head.origin,
        size=None if head is None else head.size,
        root=None if head is None else head.root.hex(),
        at=at,
        events=0 if walk is None else walk.events,
        findings=found.sorted(),
        findings_left_out=found.left_out,
        unproven=(*vouching.unproven, *(() if walk is None else _unproven(walk)), *unchecked),
        anchored=vouching.anchored,
        signed=vouching.signed,
        unsigned=vouching.unsigned,
        open_runs=tuple(open_runs[:MAX_LISTED]),
        open_runs_left_out=max(0, len(open_runs) - MAX_LISTED),
        redactions=() if walk is None else tuple(walk.redactions),
        redactions_left_out=0 if walk is None else walk.redactions_left_out,
    )


def _unproven(walk: Walk) -> Iterator[str]:
    if walk.open_runs:
        yield f"runs without a terminal event, of which nobody knows what they still had to do: {len(walk.open_runs)}"
    if walk.later_redactions:
        yield (f"erasures that events after the checkpoint order, which it does not vouch for: {walk.later_redactions}")
