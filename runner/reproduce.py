"""A recorded run through today's decider, offline: what would be decided otherwise, and what cannot be decided.

Nothing is called, asked or written. A page of requests is read at a time, and of their contents no more
than some megabytes, so memory stays bounded whatever the run. What a request comes to is told by
``runner.decide_again``, which is pure; what the lines' own check says by ``runner.guard_again``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ledger.events import EVENT_TYPES, Event
from ledger.projections.projection import Pass, find_pass
from ledger.store import Store, Unreadable
from ledger.store.errors import RunNotFound
from runner.contract import Contract
from runner.decide import RecordedRequest
from runner.decide_again import (
    RESULTS,
    Again,
    Difference,
    Judged,
    Member,
    Recorded,
    decide_again,
    judge_again,
    read_again,
)
from runner.guard_again import LineTerms, line_again
from runner.leakage import LEAK_RULES_VERSION, scan_body
from runner.prompts import check_options
from runner.recorded_requests import (
    UNDECODABLE,
    Asked,
    Stops,
    erased,
    line_pages,
    request_pages,
    unreadable_of_run,
    with_contents,
)
from runner.requests import RunIdentity
from runner.settings import RunSettings
from runner.variants import UnknownVariant, Variant, variant_for

REASONS: Final[Mapping[str, str]] = {
    "erased": "its content was erased",
    "missing": "its content is missing, and no redaction says why",
    "cut": "of a failed call's long body only the head was kept",
    "variant": "this program does not know the run's variant",
    "template": "the run was prompted by another template; only the verdicts on its replies were compared",
    "settings": "the run's settings are not all there, or are none that this program knows",
    "start": "the run's first event cannot be read",
    "reply": "a recorded reply is none today",
}
"""Why a request cannot be decided again, in words."""

Verdict = Literal["same", "different", "incomplete"]
Progress = Callable[[int], None]
"""Called with how many events were dealt with since the last call."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to list: a difference, or what stands in a comparison's way.

    ``kind`` is a ``decide_again.Kind``, or ``undecided`` (``reason`` is one of ``REASONS``), or
    ``unreadable`` (``reason`` is in words). ``request_id`` is null for what belongs to no request.
    """

    run_id: str
    request_id: str | None
    position: int
    event: str
    kind: str
    reason: str | None = None
    members: tuple[Member, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "run_id": self.run_id,
            "request_id": self.request_id,
            "position": self.position,
            "event": self.event,
            "reason": self.reason,
            "members": [member._asdict() for member in self.members],
        }


@dataclass
class Tally:
    """What came of a run; whole once its cases were read to their end.

    ``requests`` = ``reproduced`` + ``differing`` + all ``undecided`` + ``without_result`` +
    ``unreadable_requests``. ``without_result``: not decided in the record either, and what there is of
    it was made again alike. ``kinds`` counts the cases by kind, ``what_if`` the requests.
    """

    run_id: str
    state: str
    """``running``, ``completed``, ``auth_error``, ``blocked``, ``abandoned``; ``unreadable`` where its end is."""
    requests: int = 0
    reproduced: int = 0
    differing: int = 0
    undecided: Counter[str] = field(default_factory=Counter)
    without_result: int = 0
    unreadable_requests: int = 0
    decisions: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    what_if: Counter[str] | None = None
    lines_guarded: int | None = None
    lines_undecided: int = 0
    """Lines that were refused then and whose content is gone; a request's own line is among ``undecided``."""
    leak_rules_version: int | None = None
    """The recorded one; today's is ``LEAK_RULES_VERSION``."""

    @property
    def verdict(self) -> Verdict:
        if self.kinds.keys() - {"undecided"}:
            return "different"
        return "incomplete" if self.kinds or self.state == "running" else "same"

    def as_dict(self) -> dict[str, Any]:
        guard = None
        if self.lines_guarded is not None:
            guard = {
                "lines": self.lines_guarded,
                "differences": self.kinds["guard"],
                "undecided": self.lines_undecided,
                "leak_rules_version": {"recorded": self.leak_rules_version, "today": LEAK_RULES_VERSION},
            }
        what_if = self.what_if
        names = ("accept", "refuse", "ask_again", "no_reply")
        return {
            "kind": "run",
            "run_id": self.run_id,
            "state": self.state,
            "verdict": self.verdict,
            "requests": self.requests,
            "reproduced": self.reproduced,
            "differing": self.differing,
            "undecided": dict(sorted(self.undecided.items())),
            "without_result": self.without_result,
            "unreadable_requests": self.unreadable_requests,
            "decisions": self.decisions,
            "cases": dict(sorted(self.kinds.items())),
            "guard": guard,
            "what_if": None if what_if is None else {f"would_{name}": what_if[name] for name in names},
        }


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict over several runs."""
    found = set(verdicts)
    return "different" if "different" in found else "incomplete" if "incomplete" in found else "same"


class Reproduction:
    """One run's last pass, decided again while ``cases`` is read; ``tally`` is whole at its end.

    ``contract``: hold every reply against this one instead of the request's own, and compare nothing
    else. ``guard``: also ask today's check and leak guard of every recorded line. Raises
    ``RunNotFound``, and ``LedgerError`` where the ledger fails.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        contract: Contract | None = None,
        guard: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._store = store
        self._upto = store.head().size
        self._of = _find(store, run_id)
        self._contract = contract
        self._guard = guard
        self._progress = progress or (lambda _: None)
        self._started = _read_start(store, self._of)
        self.tally = Tally(run_id, _state(_read_at(store, self._of, self._of.last)))
        self.tally.leak_rules_version = self._started.leak_rules_version
        if contract is not None:
            self.tally.what_if = Counter()

    def cases(self) -> Iterator[Case]:
        """What would be otherwise and what cannot be told, in the order of the requests; read once."""
        yield from self._counted(self._unreadable())
        stops = Stops(self._store, self._of)
        for page in request_pages(self._store, self._of):
            for asked in with_contents(self._store, self._of, page):
                yield from self._counted(self._request(asked, stops))
                self._progress(len(asked.events))
        if self._guard:
            yield from self._counted(self._guarded())

    def _counted(self, cases: Iterable[Case]) -> Iterator[Case]:
        for case in cases:
            self.tally.kinds[case.kind] += 1
            yield case

    def _unreadable(self) -> Iterator[Case]:
        """Of the run's own events those that cannot be read; also after the pass, where another may have begun."""
        run_id = self.tally.run_id
        if self._started.missing is not None:
            at, event_type = self._started.missing
            yield Case(run_id, None, at, event_type, "unreadable", "before it there is no start of its run")
        if self._started.undecodable:
            yield Case(run_id, None, self._of.first, "RunStarted", "unreadable", UNDECODABLE)
        for event in unreadable_of_run(self._store, self._of, self._upto):
            if self.tally.state == "running" and event.type not in EVENT_TYPES:
                self.tally.state = "unreadable"  # it may have been the end
            yield Case(run_id, None, event.position, event.type, "unreadable", event.reason)

    # --- a request ---

    def _request(self, asked: Asked, stops: Stops) -> Iterator[Case]:
        self.tally.requests += 1
        if asked.unreadable:
            self.tally.unreadable_requests += 1
            for event in asked.unreadable:
                yield self._case(asked, event.position, event.type, "unreadable", event.reason)
            return
        reason: str | None = asked.lacks or self._started.fault
        if reason is not None:
            yield self._undecided(asked, reason)
            return
        told = self._judged(asked) if self._contract is not None else self._decided(asked, stops)
        for difference in told.differences:
            yield self._differs(asked, difference)
        if told.differences:
            self.tally.differing += 1
            return
        reason = told.undecided or (None if self._started.same_template or self._contract is not None else "template")
        if reason is not None:
            yield self._undecided(asked, reason)
        elif asked.events[-1].type in RESULTS:
            self.tally.reproduced += 1
        else:
            self.tally.without_result += 1

    def _decided(self, asked: Asked, stops: Stops) -> Again:
        started = self._started
        assert started.variant is not None
        assert started.settings is not None
        request = read_again(asked.events[0], asked.request_id, started.variant)
        if isinstance(request, Difference):
            return Again([request])
        told = decide_again(
            RecordedRequest(asked.request_id, request, started.variant, started.model, started.settings),
            asked.events,
            scan_quote=lambda body: bool(scan_body(body)),
            stopping=stops.before,
            same_template=started.same_template,
        )
        self.tally.decisions += told.decisions
        last = asked.events[-1]
        if not told.differences and not told.undecided and last.type not in RESULTS and self._ended_whole:
            # A run is over when each request has its result; today's program would not have ended this one.
            told.differences.append(
                Difference(last.position, last.type, "story", (Member("result", None, "to be decided"),))
            )
        return told

    @property
    def _ended_whole(self) -> bool:
        return self.tally.state in ("completed", "auth_error")

    def _judged(self, asked: Asked) -> Judged:
        assert self._contract is not None
        assert self.tally.what_if is not None
        assert self._started.variant is not None
        judged = judge_again(asked.events, self._contract, self._started.variant.turns)
        if judged.undecided is not None:
            return replace(judged, undecided="reply")
        self.tally.what_if[judged.outcome] += 1
        return judged

    def _undecided(self, asked: Asked, reason: str) -> Case:
        self.tally.undecided[reason] += 1
        first = asked.events[0]
        return self._case(asked, first.position, first.type, "undecided", reason)

    def _differs(self, asked: Asked, difference: Difference) -> Case:
        return self._case(asked, difference.position, difference.event, difference.kind, None, difference.members)

    def _case(
        self,
        asked: Asked,
        position: int,
        event: str,
        kind: str,
        reason: str | None = None,
        members: tuple[Member, ...] = (),
    ) -> Case:
        return Case(self.tally.run_id, asked.request_id or None, position, event, kind, reason, members)

    # --- the lines ---

    def _guarded(self) -> Iterator[Case]:
        """Every recorded line put to today's check and leak guard."""
        self.tally.lines_guarded = 0
        terms = self._started.lines
        for page in line_pages(self._store, self._of):
            broken: set[int] = set()
            contents = self._store.contents([event.position for event in page], broken)
            for event in page:
                self.tally.lines_guarded += 1
                if event.position not in broken:
                    yield from self._line(terms, event, contents.get(event.position))
                elif event.type != "RequestAccepted":  # an accepted one was listed with its request
                    yield Case(
                        *(self.tally.run_id, event.request_id, event.position, event.type, "unreadable", UNDECODABLE)
                    )

    def _line(self, terms: LineTerms | None, event: Event | Unreadable, content: bytes | None) -> Iterator[Case]:
        run_id, own = self.tally.run_id, event.type != "RequestAccepted"
        request_id = event.request_id
        if isinstance(event, Unreadable):  # and listed already
            return
        request_id = request_id or event.payload.get("request_id")
        reason: str | None = self._started.fault or "start"
        if content is None:
            reason = "erased" if erased(self._store, [event.position]) else "missing"
        elif terms is not None:
            members = line_again(Recorded(event.position, event.type, event.payload, content), request_id, terms)
            if members:
                yield Case(run_id, request_id, event.position, event.type, "guard", None, members)
            return
        if own:  # likewise
            self.tally.lines_undecided += 1
            yield Case(run_id, request_id, event.position, event.type, "undecided", reason)


# --- how the run was started ---------------------------------------------------------------


@dataclass(frozen=True)
class _Start:
    """What ``RunStarted`` says. ``fault``: why nothing of the run can be decided again.

    ``missing``: where there is none, the position and the type of the run's first event.
    """

    fault: str | None
    leak_rules_version: int | None = None
    variant: Variant | None = None
    same_template: bool = False
    model: str = ""
    settings: RunSettings | None = None
    lines: LineTerms | None = None
    missing: tuple[int, str] | None = None
    undecodable: bool = False


def _find(store: Store, run_id: str) -> Pass:
    """The run's last pass; all of the run where no start of it is found. Raises ``RunNotFound``."""
    try:
        return find_pass(store, run_id)
    except RunNotFound:
        ((first, last),) = store.rows(_SPAN_SQL, {"run_id": run_id})
        if first is None:
            raise
        return Pass(run_id, first, last)


_SPAN_SQL: Final = "SELECT min(position), max(position) FROM events WHERE run_id = :run_id"


def _read_at(store: Store, of: Pass, position: int) -> Event | Unreadable | None:
    """The run's event at that position; None where it is another run's."""
    return next(store.events(of.run_id, after=position - 1, upto=position), None)


def _state(end: Event | Unreadable | None) -> str:
    """By the last event of the pass and no table: what is appended while this reads does not count."""
    if isinstance(end, Event) and end.type == "RunCompleted":
        return str(end.payload["outcome"])
    return _ENDS.get(end.type, "running") if end is not None and end.request_id is None else "running"


_ENDS: Final = {"RunCompleted": "unreadable", "RunBlocked": "blocked", "RunAbandoned": "abandoned"}


def _read_start(store: Store, of: Pass) -> _Start:
    started = _read_at(store, of, of.first)
    if not isinstance(started, Event):
        return _Start("start")
    if started.type != "RunStarted":
        return _Start("start", missing=(started.position, started.type))
    payload, broken = started.payload, set[int]()
    content = store.contents([of.first], broken).get(of.first)
    version = payload["leak_rules_version"]
    if broken:
        return _Start("start", version, undecodable=True)
    try:
        variant = variant_for(payload["candidate_variant_id"])
    except UnknownVariant:
        return _Start("variant", version)
    try:
        told = {} if content is None else json.loads(content)
        settings = RunSettings.from_recorded(payload["settings"], told.get("settings", {}))
        check_options(settings)
    except (ValueError, AttributeError):
        gone = content is None and erased(store, [of.first])
        return _Start("erased" if gone else "settings", version, variant)
    template = (payload["prompt_profile"], payload["template_version"], payload["template_sha256"])
    given = of.run_id if told.get("run_id_given") else None
    identity = RunIdentity(of.run_id, payload["candidate_id"], variant.id, given)
    return _Start(
        None,
        version,
        variant,
        template == (variant.prompt_profile, variant.template_version, variant.template_sha256),
        payload["model"],
        settings,
        LineTerms(identity, variant, variant.override if told.get("variant_given") else None),
    )
