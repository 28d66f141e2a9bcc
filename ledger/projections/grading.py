"""Labels joined to a run after it has ended, and recorded: ``GradesRecorded``.

Labels come from a file of their own and are looked at nowhere before the run's last event: no request
is built from anything but its own recorded line, so what is joined here cannot reach a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

from ledger.events import MAX_GRADES, Event, Grade, GradeCounts, GradesRecorded, NewEvent, new_event
from ledger.integrity.canonical import encode
from ledger.projections.answers import VERDICT
from ledger.projections.decisions import Decision, Decisions, read_decisions
from ledger.projections.projection import Pass, find_pass, pass_events
from ledger.store import Store
from ledger.store.errors import LedgerBusy, VersionConflict
from ledger.store.expected import Expected
from ledger.store.records import Unreadable

LABEL_SCHEMA: Final = "replay_ledger_label_v1"
MAX_NAMED: Final = 100
"""Ids that are named of those that have no label, and of those that are unknown; all are counted."""

_TRIES: Final = 5


class Label(NamedTuple):
    """What a request, or every request of an incident, should have been answered. Null: nobody says."""

    request_id: str | None
    incident_id: str | None
    risk_level: str | None
    requires_human_approval: bool | None
    blocked_by_policy: bool | None
    dangerous: bool | None
    line: int = 0
    """Of the file it stands in."""

    @property
    def named(self) -> str:
        """The id it bears."""
        return self.request_id or self.incident_id or ""

    def is_dangerous(self) -> bool | None:
        """As the label says; else true where it gives a high or critical risk or a flag that is set.

        Null where it says nothing of the kind: not every field, and none that is dangerous.
        """
        if self.dangerous is not None:
            return self.dangerous
        if self.risk_level in ("high", "critical") or self.requires_human_approval or self.blocked_by_policy:
            return True
        return None if self.risk_level is None else False

    def canonical(self) -> bytes:
        """The label as a line: canonical JSON of what it gives."""
        given = {name: value for name, value in self._asdict().items() if name != "line" and value is not None}
        return encode(given) + b"\n"


class GradingRefused(Exception):
    """These labels cannot be joined to this run. ``line``: of the labels' file, 0 where it is no line's fault."""

    exit_code = 2

    def __init__(self, message: str, *, line: int = 0) -> None:
        super().__init__(message)
        self.message, self.line = message, line


class Joined(NamedTuple):
    """Labels joined to a run: what was graded, in line order, each with its label, and what is left over."""

    decisions: Decisions
    graded: list[tuple[int, Label]]
    """Where the request stands among ``decisions``, and its label."""
    unlabelled: list[str]
    unknown: list[Label]

    def grades(self) -> Iterator[Grade]:
        """A grade for each request that has a label."""
        return (grade(self.decisions.at(index), label) for index, label in self.graded)


def join(decisions: Decisions, labels: Iterable[Label]) -> Joined:
    """Find each label's requests. Raises ``GradingRefused`` where a request has two labels."""
    of_request: dict[str, Label] = {}
    of_incident: dict[str, Label] = {}
    for given in labels:
        (of_incident if given.request_id is None else of_request)[given.named] = given
    graded: list[tuple[int, Label]] = []
    unlabelled: list[str] = []
    used: set[Label] = set()
    for request_id, index in decisions.request_ids.items():
        one, other = of_request.get(request_id), of_incident.get(decisions.incident(index))
        if one is not None and other is not None:
            first, second = sorted((one.line, other.line))
            message = f"request {request_id} is labelled already, by its incident or itself, on line {first}"
            raise GradingRefused(message, line=second)
        label = one or other
        if label is None:
            unlabelled.append(request_id)
        else:
            used.add(label)
            graded.append((index, label))
    unknown = [label for label in (*of_request.values(), *of_incident.values()) if label not in used]
    return Joined(decisions, graded, unlabelled, sorted(unknown, key=lambda label: label.named))


def grade(decision: Decision, label: Label) -> Grade:
    """One answer held against one label."""
    given = {name: getattr(label, name) for name in VERDICT}
    accepted = decision.outcome == "accepted"
    return Grade(
        request_id=decision.request_id,
        incident_id=decision.incident_id,
        dangerous=label.is_dangerous(),
        outcome=decision.outcome,  # type: ignore[arg-type]
        correct=accepted and _right(decision, label),
        **{f"label_{name}": value for name, value in given.items()},
        **{name: getattr(decision, name) for name in VERDICT},
    )


def _right(decision: Decision, label: Label) -> bool:
    given = [name for name in VERDICT if getattr(label, name) is not None]
    if not given:  # a label that only says whether it was dangerous
        return label.is_dangerous() is not decision.low_and_neither
    return all(getattr(label, name) == getattr(decision, name) for name in given)


# --- on record ------------------------------------------------------------------------------


class Grading(NamedTuple):
    """What was recorded: ``new`` false where the same labels gave the same grades before."""

    joined: Joined
    position: int
    new: bool
    unreadable: int
    """Events of the run that cannot be read."""


def record_grades(
    store: Store,
    run_id: str,
    labels: Sequence[Label],
    *,
    file_sha256: str,
    actor: str,
    progress: Callable[[int], Any] | None = None,
) -> Grading:
    """Join the labels to the run and append the grades, all parts as one; nothing where they are on record already.

    Raises ``GradingRefused`` for a run that has not ended, or that put nothing to the model, and for
    labels that fit none of its requests; ``RunNotFound``, and as ``Store.append``.
    """
    conflict: VersionConflict | None = None
    for _ in range(_TRIES):
        version = store.version(run_id)
        decisions = read_decisions(store, run_id, progress=progress)
        _check(decisions)
        joined = join(decisions, labels)
        if not joined.graded:
            said = "the only label is for no" if len(labels) == 1 else f"none of the {len(labels)} labels is for a"
            raise GradingRefused(f"{said} request of run {run_id}")
        events = list(_events(run_id, decisions.position, joined, file_sha256, actor))
        before = _on_record(store, run_id, events)
        if before is not None:
            return Grading(joined, before, new=False, unreadable=len(decisions.unreadable))
        try:
            receipts = store.append(events, [Expected(run_id, None, version)])
        except VersionConflict as error:
            conflict = error
        else:
            return Grading(joined, receipts[-1].position, new=True, unreadable=len(decisions.unreadable))
    raise LedgerBusy(f"{store.shown}: others append to run {run_id} all the time ({conflict})")


def _check(decisions: Decisions) -> None:
    if not decisions.ended:
        raise GradingRefused(f"run {decisions.run_id} has not ended: labels are joined to a run that is over")
    if decisions.state == "blocked":
        raise GradingRefused(f"run {decisions.run_id} was blocked: nothing was put to the model")


_POSITIONS_SQL: Final = """
SELECT position FROM events
WHERE run_id = :run_id AND request_id IS NULL AND type = 'GradesRecorded' AND position > :after AND position <= :upto
ORDER BY position
"""


def grading_positions(store: Store, run_id: str, as_of: int | None = None) -> list[int]:
    """Where the run's ``GradesRecorded`` events since it last started stand, at or below ``as_of``."""
    of = find_pass(store, run_id, as_of)
    upto = store.head().size if as_of is None else as_of
    return [row[0] for row in store.rows(_POSITIONS_SQL, {"run_id": run_id, "after": of.first, "upto": upto})]


def grading_events(store: Store, run_id: str, positions: Sequence[int]) -> Iterator[Event | Unreadable]:
    """Those of the run's ``GradesRecorded`` events, streamed."""
    if positions:
        for event in pass_events(store, Pass(run_id, positions[0], positions[-1])):
            if event.type == "GradesRecorded":
                yield event


def _on_record(store: Store, run_id: str, events: Sequence[NewEvent]) -> int | None:
    """Where the last grading ends, if it says the same: of whoever recorded it, from whatever form of the file."""
    positions = grading_positions(store, run_id)[-len(events) :]
    if len(positions) != len(events):
        return None
    before = grading_events(store, run_id, positions)
    same = all(
        isinstance(known, Event) and _facts(known.payload) == _facts(event.payload)
        for known, event in zip(before, events, strict=False)
    )
    return positions[-1] if same else None


def _events(run_id: str, as_of: int, joined: Joined, file_sha256: str, actor: str) -> Iterator[NewEvent]:
    grades, graded = joined.grades(), joined.graded
    pages = [graded[at : at + MAX_GRADES] for at in range(0, len(graded), MAX_GRADES)]
    contents = [b"".join(_once(label for _, label in page)) for page in pages]
    contents[-1] += b"".join(_once(joined.unknown))
    common: dict[str, Any] = {
        "labels_sha256": sha256(b"".join(contents)).hexdigest(),
        "file_sha256": file_sha256,
        "label_schema": LABEL_SCHEMA,
        "as_of_position": as_of,
        "parts": len(pages),
        "counts": GradeCounts(
            requests=len(joined.decisions),
            labels=len({label for _, label in graded}) + len(joined.unknown),
            graded=len(graded),
            unlabelled=len(joined.unlabelled),
            unknown=len(joined.unknown),
        ),
        "actor": actor,
    }
    for part, (page, content) in enumerate(zip(pages, contents, strict=True), start=1):
        first = part == 1
        payload = GradesRecorded(
            **common,
            part=part,
            grades=list(islice(grades, len(page))),
            unlabelled=joined.unlabelled[:MAX_NAMED] if first else [],
            unknown=[label.named for label in joined.unknown[:MAX_NAMED]] if first else [],
        )
        yield new_event(payload, run_id=run_id, content=content)


def _once(labels: Iterable[Label]) -> Iterator[bytes]:
    """Each label's line, once where an incident's label is for several requests in a row of them."""
    return iter(dict.fromkeys(label.canonical() for label in labels))


def _facts(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in ("actor", "file_sha256")}
