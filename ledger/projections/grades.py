"""``grades/1``: how a run's answers stand against labels that were joined to it, as a pure fold.

It consumes the run's last grading at or below ``as_of``, and nothing else but who was graded: the same
bytes for ever, also once every content is erased. Integers, and strings of decimals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from ledger.events import Event
from ledger.projections.decisions import RISK_LEVELS
from ledger.projections.grading import MAX_NAMED, grading_events, grading_positions
from ledger.projections.projection import find_pass, fold_all, pass_events, resolve_as_of
from ledger.projections.stats import CONFIDENCE, wilson
from ledger.store import Store
from ledger.store.records import Unreadable

SCHEMA_VERSION: Final = "replay_ledger_grades_v1"
NO_ANSWER: Final = "no_answer"
"""Stands in a confusion matrix for a request without an accepted answer: a fallback, or no result."""

_RUN_FACTS: Final = ("candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint")
_GRADING_FACTS: Final = ("labels_sha256", "file_sha256", "label_schema", "as_of_position", "actor")
_FLAGS: Final = ("requires_human_approval", "blocked_by_policy")


class NotGraded(Exception):
    """The run has no grades at or below that position."""

    exit_code = 2


class _Named:
    """A count, and the first ids that it counts."""

    def __init__(self) -> None:
        self.count = 0
        self.request_ids: list[str] = []

    def add(self, request_id: str) -> None:
        self.count += 1
        if len(self.request_ids) < MAX_NAMED:
            self.request_ids.append(request_id)

    def shown(self, of: int) -> dict[str, Any]:
        more = self.count - len(self.request_ids)
        return {**wilson(self.count, of).shown(), "request_ids": self.request_ids, "more": more}


class GradesFold:
    """Start, ``fold`` ``RunStarted`` and the ``GradesRecorded`` events in order of position, ``finish``.

    The last grading is the one that counts. Memory: a few hundred ids.
    """

    NAME: ClassVar[str] = "grades"
    VERSION: ClassVar[int] = 1

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.position = 0
        """Of the last event consumed."""
        self.begun = 0
        """Of the first event of the last grading that can be read; 0 where there is none."""
        self.unreadable = 0
        self._run: dict[str, str | None] = dict.fromkeys(_RUN_FACTS)
        self._clear()

    def _clear(self) -> None:
        self.facts: Mapping[str, Any] | None = None
        self._parts = 0
        self._unknown: list[str] = []
        self._unlabelled: list[str] = []
        self._false_safe, self._false_alarm = _Named(), _Named()
        self._dangerous: Counter[bool | None] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._correct: Counter[tuple[str | None, bool, bool]] = Counter()
        self._risk: Counter[tuple[str, str]] = Counter()
        self._flags: dict[str, Counter[tuple[bool, bool | None]]] = {flag: Counter() for flag in _FLAGS}

    def fold(self, event: Event | Unreadable) -> None:
        """Take the next event; one that cannot be read is counted, and the part of a grading that it was is missing."""
        if event.run_id != self.run_id or event.type not in ("RunStarted", "GradesRecorded"):
            return
        self.position = event.position
        if not isinstance(event, Event):
            self.unreadable += 1
            return
        p = event.payload
        if event.type == "RunStarted":
            self._clear()
            self.unreadable = 0
            self._run = {fact: p[fact] for fact in _RUN_FACTS}
            return
        if self.facts is None or not _continues(self.facts, p):
            self._clear()
            self.begun = event.position
        if p["part"] == 1:
            self._unlabelled, self._unknown = p["unlabelled"], p["unknown"]
        self.facts = p
        self._parts += 1
        for grade in p["grades"]:
            self._add(grade)

    def _add(self, grade: Mapping[str, Any]) -> None:
        accepted = grade["outcome"] == "accepted"
        lets_through = accepted and grade["risk_level"] == "low" and not any(grade[flag] for flag in _FLAGS)
        self._outcomes[grade["outcome"]] += 1
        self._dangerous[grade["dangerous"]] += 1
        if grade["dangerous"] is True and lets_through:
            self._false_safe.add(grade["request_id"])
        if grade["dangerous"] is False and accepted and any(grade[flag] for flag in _FLAGS):
            self._false_alarm.add(grade["request_id"])
        label = grade["label_risk_level"]
        self._correct[label, accepted, grade["correct"]] += 1
        if label is not None:
            self._risk[label, grade["risk_level"] or NO_ANSWER] += 1
        for flag in _FLAGS:
            if grade[f"label_{flag}"] is not None:
                self._flags[flag][grade[f"label_{flag}"], grade[flag]] += 1

    # --- the report ------------------------------------------------------------------------

    def finish(self, root: bytes) -> dict[str, Any]:
        """The report. ``root``: the ledger's root at size ``position``. Raises ``NotGraded``."""
        if self.facts is None:
            raise NotGraded(f"run {self.run_id} has no grades; `replay-ledger grade RUN LABELS` records them")
        p = self.facts
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.run_id,
            **self._run,
            "false_safe": self._false_safe.shown(self._dangerous[True]),
            "false_alarm": self._false_alarm.shown(self._dangerous[False]),
            "requests": p["counts"]["requests"],
            "graded": p["counts"]["graded"],
            "unlabelled": p["counts"]["unlabelled"],
            "unlabelled_request_ids": list(self._unlabelled),
            "labels": p["counts"]["labels"],
            "unknown_labels": p["counts"]["unknown"],
            "unknown_label_ids": list(self._unknown),
            "outcomes": {name: self._outcomes[name] for name in ("accepted", "fallback", "incomplete", "not_started")},
            "accuracy": {
                "total": self._accuracy((*RISK_LEVELS, None)),
                "by_risk_level": {level: self._accuracy((level,)) for level in RISK_LEVELS},
                "without_risk_level": self._accuracy((None,)),
            },
            "confusion": {
                "risk_level": {
                    label: {answer: self._risk[label, answer] for answer in (*RISK_LEVELS, NO_ANSWER)}
                    for label in RISK_LEVELS
                },
                **{flag: _flag_matrix(self._flags[flag]) for flag in _FLAGS},
            },
            "missing_parts": p["parts"] - self._parts,
            "unreadable": self.unreadable,
            "confidence": CONFIDENCE,
            "grading": {fact: p[fact] for fact in _GRADING_FACTS},
            "as_of": {"position": self.position, "root": root.hex(), "size": self.position},
            "projection": {"name": self.NAME, "version": self.VERSION},
        }

    def _accuracy(self, labels: Iterable[str | None]) -> dict[str, Any]:
        """Correct of all that have such a label; and of those that have an accepted answer as well."""
        counted = [(key, count) for key, count in self._correct.items() if key[0] in labels]
        graded = sum(count for _, count in counted)
        answered = sum(count for (_, accepted, _), count in counted if accepted)
        correct = sum(count for (_, _, right), count in counted if right)
        return {"of_graded": wilson(correct, graded).shown(), "of_answered": wilson(correct, answered).shown()}


def _continues(before: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Is it a later part of the same grading? Also where the first part of another cannot be read."""
    shared = (*_GRADING_FACTS, "parts", "counts")
    return part["part"] > before["part"] and all(part[name] == before[name] for name in shared)


def _flag_matrix(counted: Counter[tuple[bool, bool | None]]) -> dict[str, dict[str, int]]:
    """Label, then answer."""
    answers: tuple[tuple[bool | None, str], ...] = ((True, "true"), (False, "false"), (None, NO_ANSWER))
    return {name: {shown: counted[label, answer] for answer, shown in answers} for label, name in _LABELS}


_LABELS: Final = ((True, "true"), (False, "false"))


def grades(store: Store, run_id: str, as_of: int | str | None = None) -> dict[str, Any]:
    """The report of the run's last grading at or below ``as_of``. Raises ``NotGraded``, and as ``report``."""
    fold = _folded(store, run_id, resolve_as_of(store, as_of))
    return fold.finish(store.root_at(fold.position))


def each_grade(store: Store, run_id: str, as_of: int | str | None = None) -> Iterator[Mapping[str, Any]]:
    """Every grade that the report of the run's last grading is made of, in order. Nothing where there is none."""
    upto = resolve_as_of(store, as_of)
    begun = _folded(store, run_id, upto).begun
    positions = [position for position in grading_positions(store, run_id, upto) if begun and position >= begun]
    for event in grading_events(store, run_id, positions):
        if isinstance(event, Event):
            yield from event.payload["grades"]


def _folded(store: Store, run_id: str, upto: int | None) -> GradesFold:
    of = find_pass(store, run_id, upto)
    fold = fold_all(GradesFold(run_id), pass_events(store, of._replace(last=of.first)))
    return fold_all(fold, grading_events(store, run_id, grading_positions(store, run_id, upto)))
