"""What a verification found, as values, as plain text and as a dict for machines.

Three verdicts. PASS: everything was hashed again and an anchor vouches for the end. INCOMPLETE:
nothing is wrong, but something is unproven. FAIL: something does not match. Nothing of the
ledger's content is repeated here, and what a tampered row may hold is never printed raw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple

Kind = Literal[
    "edited",
    "removed",
    "inserted",
    "reordered",
    "truncated",
    "rolled back",
    "forked",
    "redacted without authority",
    "projection altered",
    "signature bad",
]
Result = Literal["PASS", "INCOMPLETE", "FAIL"]

EXIT_CODES: Final[dict[Result, int]] = {"PASS": 0, "FAIL": 1, "INCOMPLETE": 3}
MAX_FINDINGS: Final = 100
MAX_LISTED: Final = 20
MAX_SCOPES: Final = 5

SIGNERS_STORE: Final = "the signer's store on this machine"
"""What an anchor of the ledger's own signer is called; a weaker one than a file that was kept elsewhere."""

NOT_PROVEN: Final = (
    "that every true event was appended: what was left out beforehand leaves no trace here",
    "that what was appended is true: the record shows what was written, not that it was so",
    "anything after the last anchor: whoever can write to the database can cut off or rewrite what no signature covers",
    "the hour: recorded_at is the ledger's own claim",
)
"""docs/ledger-format.md, section 8."""


class Finding(NamedTuple):
    """Something that does not match. Findings alike at adjacent positions are one, up to ``last``.

    ``position`` is null for what belongs to no event. ``member`` is a member of the envelope or
    ``payload``, ``content``, ``salt``, ``encoding``, a table's name, or ``database file``.
    """

    position: int | None
    last: int | None
    member: str
    kind: Kind
    text: str


class Scope(NamedTuple):
    """Whose contents: a request's, or where ``request_id`` is None those of the run itself; and how many."""

    run_id: str
    request_id: str | None
    contents: int

    def __str__(self) -> str:
        return f"run {self.run_id}" if self.request_id is None else f"request {self.request_id} of run {self.run_id}"


class Redaction(NamedTuple):
    """One ``ContentRedacted`` event: where it stands, how many contents it erased, why, by whom, and whose they were.

    ``scopes`` holds the first ``MAX_SCOPES``, ``scopes_left_out`` counts the rest.
    """

    position: int
    contents: int
    reason: str
    actor: str
    scopes: tuple[Scope, ...] = ()
    scopes_left_out: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Its members, the scopes' too."""
        return {**self._asdict(), "scopes": [scope._asdict() for scope in self.scopes]}

    def __str__(self) -> str:
        whose = "; ".join(map(str, self.scopes)) + (
            f"; and {self.scopes_left_out} more" if self.scopes_left_out else ""
        )
        of = f" of {whose}" if whose else ""
        count = _count(self.contents, "content")
        return f"position {self.position}: {count}{of}, reason {self.reason}, by {self.actor}"


class Window(NamedTuple):
    """Events ``first`` to ``last``, the times of both, and the minutes between, rounded up."""

    first: int
    last: int
    since: str
    until: str
    minutes: int | None

    @property
    def events(self) -> int:
        """How many."""
        return self.last - self.first + 1

    def as_dict(self) -> dict[str, Any]:
        """Its members, and how many events."""
        return {**self._asdict(), "events": self.events}

    def __str__(self) -> str:
        minutes = "an unknown number of" if self.minutes is None else self.minutes
        place = f"position {self.first}" if self.first == self.last else f"positions {self.first} to {self.last}"
        return f"{place}, {_count(self.events, 'event')} over {minutes} min"


class Anchored(NamedTuple):
    """The events that an anchor vouches for, what the anchor is, and the keys (as vkeys) that it is verified by."""

    window: Window
    source: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one verification.

    ``origin``, ``size`` and ``root`` are the head's, None where it has none that can be read.
    ``at``: the size of the checkpoint by which alone was judged, if any. ``events``: rows read.
    ``max_window``: how many events were allowed to stand beyond the anchor.
    ``findings`` holds the first ``MAX_FINDINGS``, ``findings_left_out`` counts the rest; so with
    ``redactions`` and ``open_runs`` and ``MAX_LISTED``. ``unproven``: plain sentences. ``signed``: events
    after those anchored that a stored checkpoint by a trusted key covers; ``unsigned``: those after them.
    """

    origin: str | None
    size: int | None
    root: str | None
    at: int | None
    events: int
    findings: tuple[Finding, ...]
    findings_left_out: int
    unproven: tuple[str, ...]
    anchored: Anchored | None
    signed: Window | None
    unsigned: Window | None
    open_runs: tuple[str, ...]
    open_runs_left_out: int
    redactions: tuple[Redaction, ...]
    redactions_left_out: int
    max_window: int = 0

    @property
    def beyond(self) -> int:
        """How many events stand beyond the anchor."""
        return sum(window.events for window in (self.signed, self.unsigned) if window is not None)

    @property
    def result(self) -> Result:
        """The verdict's name."""
        if self.findings:
            return "FAIL"
        return "INCOMPLETE" if self.unproven else "PASS"

    @property
    def exit_code(self) -> int:
        """What the command line ends with."""
        return EXIT_CODES[self.result]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``: this dataclass's members, with the verdict and what is not proven."""
        members = asdict(self)
        members["findings"] = [item._asdict() for item in self.findings]
        members["redactions"] = [item.as_dict() for item in self.redactions]
        members["signed"] = None if self.signed is None else self.signed.as_dict()
        members["unsigned"] = None if self.unsigned is None else self.unsigned.as_dict()
        if self.anchored is not None:
            window, source, keys = self.anchored
            members["anchored"] = {"source": source, "keys": list(keys), **window.as_dict()}
        members["beyond_anchor"] = self.beyond
        return {"verdict": self.result, **members, "not_proven": list(NOT_PROVEN)}

    def lines(self) -> Iterator[str]:
        """For people: the verdict, why, what vouches for how much, what was redacted, what it does not prove."""
        origin = "a ledger of unknown origin" if self.origin is None else printable(self.origin)
        said = "no head could be read" if self.size is None else f"the head says size {self.size}, root {self.root}"
        alone = "" if self.at is None else f", judging positions 1 to {self.at} alone: not what follows, nor the tables"
        yield f"{self.result}{self._allowed()}  {origin}"
        events = f"{self.events} {'event' if self.events == 1 else 'events'}"
        yield f"  {events} read and hashed again{alone}; {said}"
        yield from self._finding_lines()
        yield from self._vouching_lines()
        yield from _listed("Unproven", self.unproven)
        yield from _listed("Runs without an end", self.open_runs, self.open_runs_left_out)
        yield from _listed("Erased content", [str(item) for item in self.redactions], self.redactions_left_out)
        yield from _listed("What this does not prove", NOT_PROVEN)

    def _allowed(self) -> str:
        """The window that was allowed: who reads the first line alone must not take it for none."""
        if not self.max_window:
            return ""
        stand = "no anchor" if self.anchored is None else f"{self.beyond} {_stand(self.beyond)} beyond the anchor"
        return f" with a window of up to {_count(self.max_window, 'event')} allowed: {stand}"

    def _vouching_lines(self) -> Iterator[str]:
        if self.anchored is None:
            yield "  anchored: nothing"
        else:
            window, source, keys = self.anchored
            yield f"  anchored: {window}, by {printable(source)}"
            if source == SIGNERS_STORE:
                yield "    (weaker than a checkpoint that you kept elsewhere: who owns this machine can change both)"
            yield from (f"    key {printable(key)}" for key in keys)
        yield f"  signed beyond that: {self.signed or 'nothing'}"
        yield f"  unsigned beyond that: {self.unsigned or 'nothing'}"

    def _finding_lines(self) -> Iterator[str]:
        if not self.findings:
            yield "  everything that was read matches"
            return
        yield "Does not match:"
        for position, last, member, kind, text in self.findings:
            place = "ledger" if position is None else f"position {position}"
            if last is not None and last != position:
                place = f"positions {position} to {last}"
            yield f"  - {place}, {member}: {kind}: {text}"
        if self.findings_left_out:
            yield f"  ... and {self.findings_left_out} more"


class Findings:
    """Collects findings: like ones at adjacent positions become one, and memory stays bounded."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._overlooked: set[tuple[str, Kind]] = set()
        self._latest: dict[tuple[str, str, str], int] = {}
        self.left_out = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def overlook(self, member: str, kind: Kind) -> None:
        """From now on take no such finding: whoever asks for that says in the verdict why it cannot be judged."""
        self._overlooked.add((member, kind))

    def add(self, position: int | None, member: str, kind: Kind, text: str, *, last: int | None = None) -> None:
        """Note something that does not match, from ``position`` to ``last`` where it is many.

        ``text`` must hold nothing of the row but what is ``printable``.
        """
        if (member, kind) in self._overlooked:
            return
        before = self._latest.get((member, kind, text))
        if before is not None and position is not None and self._kept[before].last == position - 1:
            self._kept[before] = self._kept[before]._replace(last=last or position)
        elif len(self._kept) < MAX_FINDINGS:
            self._latest[member, kind, text] = len(self._kept)
            self._kept.append(Finding(position, last or position, member, kind, text))
        else:
            self.left_out += 1

    def take(self, others: Findings) -> None:
        """Add what others found meanwhile."""
        for position, last, member, kind, text in others._kept:
            self.add(position, member, kind, text, last=last)
        self.left_out += others.left_out

    def sorted(self) -> tuple[Finding, ...]:
        """In order of position; those of no position last."""
        return tuple(sorted(self._kept, key=lambda f: (f.position is None, f.position or 0)))


_PLAIN: Final = re.compile(r"[ -~]{1,255}")


def printable(value: object) -> str:
    """The text where it is plain, else an escaped form: a tampered row may hold anything."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else ascii(text)[:255]


def _listed(title: str, items: tuple[str, ...] | list[str], left_out: int = 0) -> Iterator[str]:
    if not items:
        return
    yield f"{title}:"
    for item in items:
        yield f"  - {item}"
    if left_out:
        yield f"  ... and {left_out} more"


def _stand(number: int) -> str:
    return "stands" if number == 1 else "stand"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
