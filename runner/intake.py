"""Intake: every line of the file is judged and recorded before any network is used.

Each line is checked (form, ids, leak guard), and what was found is appended in groups, durable as
the file is read. The file is read to its end in every mode, so that every fault is named. Calls
are later built from what was recorded here, never from the file again.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, NamedTuple

from ledger.events import (
    Event,
    IntakeCompleted,
    LeakRejected,
    NewEvent,
    RequestAccepted,
    RequestRejected,
    new_event,
)
from ledger.store import Store, Writer
from runner.leakage import Finding, scan_request
from runner.plan import Fault, Faults, InputDiffers, KeyInInput, NoValidLine, Progress, ProgressEvent
from runner.prompts import messages
from runner.requests import INVALID, BadLine, ReplayRequest, RunIdentity, differs, parse_line, read_lines
from runner.selection import Selection
from runner.stop import StopSignal
from runner.variants import Variant

GROUP: Final = 128
"""Lines judged and appended together."""

MAX_HELD_BYTES: Final = 64 * 2**20
"""Bad lines held back while the first valid one, which names the run, is being looked for."""

LEAK_CODE: Final = "request_self_grading_leak"
UNSEARCHED: Final = frozenset({"opaque_blob", "nested_too_deep", "too_much_to_decode"})
"""Rules that refuse what cannot be looked through: no label was seen, and none can be ruled out."""
INTAKE_TYPES: Final = ("RequestAccepted", "RequestRejected", "LeakRejected")

Line = tuple[int, int, bytes]
"""Ordinal among the lines that are not blank, number in the file, the bytes."""


class Leak(NamedTuple):
    """A line that holds its own evaluation labels."""

    line: int
    raw: bytes
    request_id: str | None
    findings: tuple[Finding, ...]


Judged = ReplayRequest | BadLine | Leak


class HashingReader(io.BufferedIOBase):
    """A stream that hashes all that is read of it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        data = self._stream.read(-1 if size is None else size)
        self._hash.update(data)
        return data

    def readline(self, size: int | None = -1) -> bytes:
        data = self._stream.readline(-1 if size is None else size)
        self._hash.update(data)
        return data

    def hexdigest(self) -> str:
        """SHA-256 of the whole stream, whose rest is read first."""
        while self.read(1 << 20):
            pass
        return self._hash.hexdigest()


class Source:
    """The file as numbered lines, with its digest. A held line is given again first."""

    def __init__(self, stream: BinaryIO) -> None:
        self._reader = HashingReader(stream)
        self._lines: Iterator[Line] = (
            (ordinal, number, raw) for ordinal, (number, raw) in enumerate(read_lines(self._reader), start=1)
        )
        self.count = 0

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        line = next(self._lines)
        self.count = max(self.count, line[0])
        return line

    def hold_back(self, lines: Iterable[Line]) -> None:
        self._lines = itertools.chain(lines, self._lines)

    def sha256(self) -> str:
        return self._reader.hexdigest()


def find_first_valid(source: Source, variant_override: str | None) -> ReplayRequest:
    """The first valid line, which names run, candidate and variant. The source then starts anew.

    Raises ``NoValidLine`` where there is none: nothing has been recorded by then.
    """
    held: list[Line] = []
    held_bytes = 0
    first_problem: BadLine | None = None
    for line in source:
        held.append(line)
        held_bytes += len(line[2])
        parsed = parse_line(line[1], line[2], variant_override=variant_override)
        if isinstance(parsed, ReplayRequest):
            source.hold_back(held)
            return parsed
        first_problem = first_problem or parsed
        if held_bytes > MAX_HELD_BYTES:
            break
    raise NoValidLine(_no_valid_line(first_problem, len(held)))


def _no_valid_line(problem: BadLine | None, lines: int) -> str:
    if problem is None:
        return "the file is empty: no replay request in it"
    where = f"line {problem.line}" + (f", field {problem.field}" if problem.field else "")
    return f"none of the first {lines} lines is a replay request; {where}: {problem.message}"


@dataclass(frozen=True)
class Judge:
    """Judges single lines: form, ids, leak guard. Pure; duplicates are the caller's to know."""

    identity: RunIdentity
    variant: Variant
    selection: Selection
    variant_override: str | None = None

    def judge(self, line: Line) -> Judged | None:
        """What a line is; None where the selection leaves it out and it does not leak."""
        ordinal, number, raw = line
        parsed = parse_line(number, raw, variant_override=self.variant_override)
        taken = self.selection.takes(ordinal, parsed.request_id)
        if isinstance(parsed, BadLine):
            return parsed if taken else None
        if taken:
            other = differs(parsed, self.identity)
            if other is not None:
                return other
        leak = self.guard(parsed)
        if leak is not None:
            return leak
        return parsed if taken else None

    def guard(self, request: ReplayRequest) -> Leak | None:
        findings = scan_request(
            request.document,
            request_id=request.request_id,
            incident_id=request.incident_id,
            messages=messages(request, self.variant),
        )
        if not findings:
            return None
        id_leaks = any(finding.path in ("request_id", "incident_id") for finding in findings)
        return Leak(request.line, request.raw, None if id_leaks else request.request_id, findings)


def refuse_secrets(lines: Iterable[Line], secrets: Sequence[bytes]) -> None:
    """Raise ``KeyInInput`` at a line that holds one of our own secrets, before it is recorded or sent."""
    for _, number, raw in lines:
        if any(secret in raw for secret in secrets):
            raise KeyInInput(
                f"line {number} holds the API key (or the value of a header): it was neither recorded nor sent. "
                "Take it out of the file, and change the key: it has been written down"
            )


def duplicate(request: ReplayRequest, first_line: int) -> BadLine:
    """The line as a bad one, since another has its request id."""
    return BadLine(
        line=request.line,
        raw=request.raw,
        request_id=request.request_id,
        code=INVALID,
        field="request_id",
        message=f"request id {request.request_id} stands on line {first_line} already",
        first_line=first_line,
    )


def fault_of(judged: BadLine | Leak) -> Fault:
    """A refused line as it is printed: places and rules, never values."""
    if isinstance(judged, BadLine):
        return Fault(judged.line, judged.code, judged.message, judged.request_id, judged.field)
    places = ", ".join(f"{f.path or '(whole request)'} ({f.rule})" for f in judged.findings[:5])
    found = not UNSEARCHED.issuperset(finding.rule for finding in judged.findings)
    what = "holds its own evaluation labels" if found else "cannot be searched for evaluation labels"
    return Fault(
        line=judged.line,
        code=LEAK_CODE,
        message=f"the request {what}: {places}",
        request_id=judged.request_id,
        findings=judged.findings,
    )


@dataclass
class Intake:
    """Records a file under one run. ``already`` are the lines that an earlier driver recorded."""

    store: Store
    writer: Writer
    run_id: str
    judge: Judge
    source: Source
    progress: Progress
    stop: StopSignal
    already: Iterator[RecordedLine] = field(default_factory=lambda: iter(()))
    secrets: tuple[bytes, ...] = ()
    faults: Faults = field(default_factory=Faults)
    accepted: int = 0
    matched: set[str] = field(default_factory=set)
    """Of the request ids that were asked for, those that a line has."""
    _leaking_lines: dict[str, int] = field(default_factory=dict)

    async def run(self) -> bool:
        """Read to the end and write ``IntakeCompleted``; False where a stop came first."""
        self._skip_recorded()
        while group := list(itertools.islice(self.source, GROUP)):
            refuse_secrets(group, self.secrets)
            events = [self._event(judged) for judged in self._without_duplicates(group)]
            if events:
                await self.writer.append(events)
            self.progress(ProgressEvent("intake", self.source.count, None, accepted=self.accepted))
            if self.stop.requested:
                return False
        completed = IntakeCompleted(
            lines=self.source.count,
            accepted=self.accepted,
            rejected=self.faults.rejected,
            leaking=self.faults.leaking,
            input_sha256=self.source.sha256(),
            selection=self.judge.selection.recorded,
        )
        await self.writer.append([new_event(completed, run_id=self.run_id)])
        return True

    def _skip_recorded(self) -> None:
        for recorded in self.already:
            for ordinal_line in self.source:
                if ordinal_line[1] >= recorded.line:
                    break
            else:
                raise InputDiffers(f"line {recorded.line} was recorded, but the file given ends before it")
            if ordinal_line[1] != recorded.line or ordinal_line[2] != recorded.content:
                raise InputDiffers(f"line {recorded.line} of the file given is not the line that was recorded")
            self._count_recorded(recorded)

    def _count_recorded(self, recorded: RecordedLine) -> None:
        payload = recorded.event.payload
        if recorded.event.type == "RequestAccepted":
            self.accepted += 1
            return
        code = LEAK_CODE if recorded.event.type == "LeakRejected" else str(payload["code"])
        findings = tuple(Finding(**finding) for finding in payload.get("findings", ()))
        if findings and payload["request_id"] is not None:
            self._leaking_lines[payload["request_id"]] = recorded.line
        self.faults.add(
            Fault(recorded.line, code, "recorded earlier", payload["request_id"], payload.get("field"), findings)
        )

    def _without_duplicates(self, group: list[Line]) -> Iterator[Judged]:
        judged = [one for one in map(self.judge.judge, group) if one is not None]
        ids = [one.request_id for one in judged if isinstance(one, ReplayRequest)]
        if self.judge.selection.request_ids is not None:
            self.matched.update(one.request_id for one in judged if one.request_id is not None)
        first_lines = self._known_lines(ids)
        for one in judged:
            if isinstance(one, BadLine):
                yield one
                continue
            request_id = one.request_id
            known = None if request_id is None else first_lines.get(request_id, self._leaking_lines.get(request_id))
            if isinstance(one, ReplayRequest):
                yield one if known is None else duplicate(one, known)
                first_lines.setdefault(one.request_id, one.line)
            else:
                yield one
                if request_id is not None:
                    self._leaking_lines.setdefault(request_id, one.line)

    def _known_lines(self, ids: list[str]) -> dict[str, int]:
        if not ids:
            return {}
        names = {f"id{n}": request_id for n, request_id in enumerate(ids)}
        marks = ", ".join(f":{name}" for name in names)
        rows = self.store.rows(
            f"SELECT request_id, line FROM requests WHERE run_id = :run_id AND request_id IN ({marks})",  # noqa: S608
            {"run_id": self.run_id, **names},
        )
        return {str(row[0]): int(row[1]) for row in rows}

    def _event(self, judged: Judged) -> NewEvent:
        if isinstance(judged, ReplayRequest):
            self.accepted += 1
            return accepted_event(judged, self.run_id)
        self.faults.add(fault_of(judged))
        return refused_event(judged, self.run_id)


def accepted_event(request: ReplayRequest, run_id: str) -> NewEvent:
    """``RequestAccepted``, with the line as its content."""
    payload = RequestAccepted(
        line=request.line,
        incident_id=request.incident_id,
        policy_id=request.policy_id,
        facets=request.facets,
        system_prompt_sha256=request.system_prompt_sha256,
        contract_sha256=request.contract_sha256,
    )
    return new_event(payload, run_id=run_id, request_id=request.request_id, content=request.raw)


def refused_event(judged: BadLine | Leak, run_id: str) -> NewEvent:
    """``RequestRejected`` or ``LeakRejected``, run-level, with the line as its content."""
    payload: LeakRejected | RequestRejected
    if isinstance(judged, Leak):
        payload = LeakRejected(line=judged.line, request_id=judged.request_id, findings=list(judged.findings))
    else:
        payload = RequestRejected(
            line=judged.line,
            request_id=judged.request_id,
            code=judged.code,
            field=judged.field,
            first_line=judged.first_line,
        )
    return new_event(payload, run_id=run_id, content=judged.raw)


class RecordedLine(NamedTuple):
    """A line that an earlier driver recorded. ``content`` is None where it was redacted."""

    line: int
    content: bytes | None
    event: Event


def recorded_lines(store: Store, run_id: str) -> Iterator[RecordedLine]:
    """The lines recorded since the last ``RunStarted``, in order, in bounded memory."""
    events: Iterator[Any] = (
        event for event in store.events(run_id, since_last_start=True) if event.type in INTAKE_TYPES
    )
    while page := list(itertools.islice(events, GROUP)):
        contents = store.contents([event.position for event in page])
        for event in page:
            yield RecordedLine(event.payload["line"], contents.get(event.position), event)
