"""What a run is asked to do, what came of it, and how it can be refused: plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from ledger.events import Counts, Finding
from runner.settings import RunSettings

MAX_FAULTS_KEPT: Final = 100
"""Bad and leaking lines kept for printing; all are counted, and all are in the ledger."""


class RunError(Exception):
    """A run that cannot begin or go on. The text is meant for a person and names the place."""

    exit_code = 2


class RunExists(RunError):
    """The ledger has a run by this id already."""


class RunUnknown(RunError):
    """The ledger has no run by this id."""


class RunEnded(RunError):
    """The run has its terminal event: it can be neither resumed nor abandoned."""


class NoValidLine(RunError):
    """The file holds no line that is a replay request; nothing was recorded."""


class NothingSelected(RunError):
    """The selection takes no line of the file; nothing was recorded."""


class InputDiffers(RunError):
    """The file given to a resume is not the one whose lines were recorded."""


class KeyInInput(RunError):
    """A line of the file holds our own API key. It is neither recorded nor sent."""


class KeyMissing(RunError):
    """No API key, and nobody said that the endpoint needs none."""


@dataclass(frozen=True)
class RunPlan:
    """One run to start: where to, how, and on whose behalf.

    ``run_id`` and ``variant`` override what the file says. ``header_values`` holds the secret
    values of the headers that ``settings.headers`` names; like the key it is never shown.
    """

    settings: RunSettings
    model: str
    base_url: str
    actor: str
    api_key: str | None = field(default=None, repr=False)
    header_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    operator: str | None = None
    host: str | None = None
    run_id: str | None = None
    variant: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    git_commit: str | None = None


@dataclass(frozen=True)
class ResumeOverrides:
    """What may be given anew when a run is taken up again; None keeps what was recorded."""

    actor: str
    api_key: str | None = field(default=None, repr=False)
    header_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    concurrency: int | None = None
    rpm: int | None = None
    proxy: str | None = None
    operator: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Fault:
    """A line that was refused: for printing. ``request_id`` is None where it leaks or is no id."""

    line: int
    code: str
    message: str
    request_id: str | None = None
    field: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass
class Faults:
    """Refused lines: all counted, the first ``MAX_FAULTS_KEPT`` kept."""

    rejected: int = 0
    leaking: int = 0
    kept: list[Fault] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        if fault.findings:
            self.leaking += 1
        else:
            self.rejected += 1
        if len(self.kept) < MAX_FAULTS_KEPT:
            self.kept.append(fault)

    @property
    def total(self) -> int:
        return self.rejected + self.leaking


RunState = Literal["completed", "auth_error", "blocked", "incomplete"]
StoppedBy = Literal["SIGINT", "SIGTERM", "twenty_failures"]


@dataclass(frozen=True)
class RunOutcome:
    """How a driver left a run.

    ``state`` "incomplete" means that no terminal event was written: the run can be resumed.
    ``failures`` are the run-level codes. ``answered``: at least one whole reply came.
    """

    run_id: str
    state: RunState
    failures: tuple[str, ...] = ()
    stopped_by: StoppedBy | None = None
    faults: Faults = field(default_factory=Faults)
    calls: int = 0
    answered: int = 0
    counts: Counts | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgressEvent:
    """Where a run stands. ``total`` is None while it is not known."""

    phase: Literal["intake", "calls"]
    done: int
    total: int | None
    accepted: int = 0
    fallbacks: int = 0
    in_flight: int = 0


Progress = Callable[[ProgressEvent], None]


def no_progress(_: ProgressEvent) -> None:
    """For callers who do not watch."""


@dataclass(frozen=True)
class DryRun:
    """What a run would do: nothing was called and nothing recorded."""

    run_id: str | None
    lines: int
    accepted: int
    left_out: int
    faults: Faults
    first_body: bytes | None
    max_calls: int
    unmatched: tuple[str, ...] = ()
    """Request ids that were asked for and that no line has."""
    takes_none: str | None = None
    """What is said where the selection takes no line at all of what could be read but once."""
