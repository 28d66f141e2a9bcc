"""Whole run stories, as the events that tell them: for tests that need a plausible ledger.

``story(random)`` draws one: intake with bad and leaking lines, calls of several requests
interleaved, retries, time-outs, kills and resumes, a refused key, an abandoned run, a second start
after a blocked one. Every stream it gives is one that the runner could have written.

``stories()`` is the same as a hypothesis strategy; ``as_events`` turns a story into
what folds see without a store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st

from ledger.events import (
    Counts,
    Event,
    FallbackApplied,
    Finding,
    GradeCounts,
    GradesRecorded,
    IntakeCompleted,
    LeakRejected,
    ModelCalled,
    ModelCallFailed,
    ModelCallStarted,
    NewEvent,
    OutputAccepted,
    ParseFailed,
    Payload,
    ReportIssued,
    RequestAccepted,
    RequestRejected,
    Retried,
    RunAbandoned,
    RunBlocked,
    RunCompleted,
    RunResumed,
    RunStarted,
    new_event,
)

MODEL = "example/model-1"
MAX_ATTEMPTS = 3
RISK_LEVELS = ("low", "medium", "high", "critical")
PASSING_CODES = ("transport_connect", "transport_timeout", "transport_cut", "rate_limited", "http_503", "no_choices")
FINAL_CODES = ("http_400", "http_404", "not_json_response", "unexpected_redirect")
BROKEN_CODES = (
    "model_output_invalid_json",
    "model_output_missing_fields:action_plan,risk_level",
    "model_output_refused",
    "model_output_empty",
)
UNKNOWN_CODES = ("transport_timeout", "transport_cut")
LEAK_PATHS = ("evaluation_labels", "incident_context.gold", "source_metadata.*")


def digest(text: str) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def started(*, model: str = MODEL, variant: str | None = None, **changes: Any) -> RunStarted:
    """A RunStarted; any member may be changed."""
    members: dict[str, Any] = {
        "candidate_id": "nemo_nemotron_fabric",
        "candidate_variant_id": variant,
        "prompt_profile": None if variant is None else "contract_tuned_v1",
        "template_version": 1,
        "template_sha256": digest("template"),
        "model": model,
        "endpoint": "https://models.example/v1/chat/completions",
        "settings": {"temperature": "0.2"},
        "leak_rules_version": 1,
        "software_version": "0.1.0",
        "actor": "ops-7",
        "tags": {},
    }
    return RunStarted(**{**members, **changes})


def accepted(line: int, incident_id: str, **changes: Any) -> RequestAccepted:
    """A RequestAccepted; any member may be changed."""
    members: dict[str, Any] = {
        "line": line,
        "incident_id": incident_id,
        "policy_id": None,
        "facets": {},
        "system_prompt_sha256": digest("Return JSON."),
        "contract_sha256": digest("{}"),
    }
    return RequestAccepted(**{**members, **changes})


def call_started(attempt: int, turn: int = 1, **changes: Any) -> ModelCallStarted:
    """A ModelCallStarted; any member may be changed."""
    return ModelCallStarted(**{"attempt": attempt, "turn": turn, "body_bytes": 240, "quote_withheld": False, **changes})


def called(attempt: int, turn: int = 1, **changes: Any) -> ModelCalled:
    """A ModelCalled with usage; any member may be changed."""
    members: dict[str, Any] = {
        "attempt": attempt,
        "turn": turn,
        "http_status": 200,
        "response_id": "chatcmpl-1",
        "model": MODEL,
        "finish_reason": "stop",
        "system_fingerprint": None,
        "odd_metadata": False,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "cached_tokens": None,
        "reasoning_tokens": None,
        "body_bytes": 400,
        "body_truncated": False,
        "scrubbed": 0,
        "duration_us": 20_000,
    }
    return ModelCalled(**{**members, **changes})


def call_failed(attempt: int, code: str, turn: int = 1, **changes: Any) -> ModelCallFailed:
    """A ModelCallFailed; any member may be changed."""
    members: dict[str, Any] = {
        "attempt": attempt,
        "turn": turn,
        "code": code,
        "http_status": None,
        "retry_after_ms": None,
        "wait_ms": None,
        "will_retry": False,
        "outcome_unknown": code in UNKNOWN_CODES or code == "outcome_unknown",
        "duration_us": 1_200,
    }
    return ModelCallFailed(**{**members, **changes})


def output_accepted(turn: int = 1, **changes: Any) -> OutputAccepted:
    """An OutputAccepted; any member may be changed."""
    members: dict[str, Any] = {
        "turn": turn,
        "risk_level": "medium",
        "requires_human_approval": True,
        "blocked_by_policy": False,
        "allowances": [],
    }
    return OutputAccepted(**{**members, **changes})


def output_text(facts: OutputAccepted, action: str = "rollout restart checkout €", **added: Any) -> str:
    """The content of an OutputAccepted: the whole answer, keys sorted (keep added keys ASCII)."""
    answer = {
        "proposed_action": action,
        "action_plan": ["inspect", "restart"],
        "risk_level": facts.risk_level,
        "requires_human_approval": facts.requires_human_approval,
        "blocked_by_policy": facts.blocked_by_policy,
        **added,
    }
    return json.dumps(answer, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def report_issued(as_of: int = 1) -> ReportIssued:
    """A ReportIssued, which no report counts."""
    return ReportIssued(
        kind="report",
        format="json",
        projection="report/1",
        renderer_version=1,
        as_of_position=as_of,
        sha256=digest("report"),
        actor="ops-7",
    )


def grades_recorded(**changes: Any) -> GradesRecorded:
    """A GradesRecorded of one label that is for no request, which no report of a run counts."""
    members: dict[str, Any] = {
        "labels_sha256": digest("labels"),
        "file_sha256": digest("file"),
        "label_schema": "replay_ledger_label_v1",
        "as_of_position": 1,
        "part": 1,
        "parts": 1,
        "counts": GradeCounts(requests=0, labels=1, graded=0, unlabelled=0, unknown=1),
        "grades": [],
        "unlabelled": [],
        "unknown": ["INC-404"],
        "actor": "ops-7",
    }
    return GradesRecorded(**{**members, **changes})


def as_events(story: Iterable[NewEvent], *, first_position: int = 2) -> list[Event]:
    """The story as folds see it: positions and versions dense, a millisecond between events."""
    events: list[Event] = []
    runs: dict[str, int] = {}
    requests: dict[tuple[str, str], int] = {}
    for position, new in enumerate(story, start=first_position):
        run_version = runs[new.run_id] = runs.get(new.run_id, 0) + 1
        request_version = None
        if new.request_id is not None:
            key = (new.run_id, new.request_id)
            request_version = requests[key] = requests.get(key, 0) + 1
        recorded_at = (
            f"2026-11-30T20:{position // 60_000 % 60:02d}:{position // 1000 % 60:02d}.{position % 1000:03d}000Z"
        )
        envelope = (position, new.event_id, new.type, new.schema, new.run_id, run_version)
        events.append(Event(*envelope, new.request_id, request_version, recorded_at, new.payload))
    return events


def stories(run_id: str = "run-1", max_lines: int = 6) -> st.SearchStrategy[list[NewEvent]]:
    """Stories of one run, as a hypothesis strategy; a failure shrinks to few lines.

    A seed rather than ``st.randoms()``: where each choice shrinks, the simplest run is killed and
    resumed for ever.
    """
    return st.builds(
        lambda seed, lines: story(Random(seed), run_id=run_id, max_lines=lines),
        st.integers(min_value=0, max_value=2**32),
        st.integers(min_value=1, max_value=max_lines),
    )


def story(random: Random, *, run_id: str = "run-1", max_lines: int = 6) -> list[NewEvent]:
    """One run, start to wherever it got to. At least one line is a valid request."""
    teller = _Teller(random, run_id)
    while teller.intake(max_lines) and random.random() < 0.5:
        pass  # blocked, mended, started again
    if not teller.blocked:
        teller.calls()
    teller.afterwards()
    return teller.events


@dataclass
class _Request:
    """One request on its way: what may come next depends on ``phase`` alone."""

    request_id: str
    turns: int
    phase: str = "waiting"  # waiting, open, answered, broken, done
    turn: int = 1
    attempts: int = 0
    turn_attempts: int = 0
    code: str = ""
    called: bool = False


@dataclass
class _Teller:
    random: Random
    run_id: str
    events: list[NewEvent] = field(default_factory=list)
    requests: list[_Request] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    blocked: bool = False
    ended: bool = False

    def say(self, payload: Payload, request_id: str | None = None, content: str | bytes | None = None) -> None:
        self.events.append(new_event(payload, run_id=self.run_id, request_id=request_id, content=content))

    def maybe(self, probability: float) -> bool:
        return self.random.random() < probability

    # --- intake ---

    def intake(self, max_lines: int) -> bool:
        """Start the run and read its lines; true where it was blocked."""
        variant = self.random.choice((None, "nemo_nemotron_fabric__contract_tuned_v1"))
        self.requests, self.refused, self.results = [], {"leaking": 0, "rejected": 0}, {}
        self.blocked = False
        self.say(started(variant=variant), content='{"host":"h1","operator":"someone"}')
        if self.maybe(0.05):
            return self.block(["api_key_missing"])
        lines = self.random.randint(1, max_lines)
        valid = self.random.randint(1, lines)
        for line in range(1, lines + 1):
            self.read_line(line, 2 if variant else 1, valid=line == valid)
            if self.maybe(0.05):
                self.say(RunResumed(actor="ops-7", outcomes_unknown=0))
        self.say(
            IntakeCompleted(
                lines=lines,
                accepted=len(self.requests),
                rejected=self.refused["rejected"],
                leaking=self.refused["leaking"],
                input_sha256=digest(str(lines)),
                selection=None,
            )
        )
        failures = ["request_invalid"] if self.refused["rejected"] else []
        failures += ["request_self_grading_leak"] if self.refused["leaking"] else []
        return self.block(failures) if failures and self.maybe(0.5) else False

    def block(self, failures: list[str]) -> bool:
        self.say(RunBlocked(failures=failures))
        self.blocked = True
        return True

    def read_line(self, line: int, turns: int, *, valid: bool) -> None:
        request_id, text = f"INC-{line}", json.dumps({"incident_id": f"INC-{line}", "user_prompt": "café 😀"})
        kind = "accepted" if valid else self.random.choice(("accepted", "accepted", "rejected", "leaking"))
        if kind == "accepted":
            facets = {"severity": self.random.choice(("critical", "warning"))} if self.maybe(0.7) else {}
            policy_id = self.random.choice((None, "policy-a", "policy-b"))
            payload = accepted(line, request_id, facets=facets, policy_id=policy_id)
            self.say(payload, request_id, text)
            self.requests.append(_Request(request_id, turns))
            return
        self.refused[kind] += 1
        if kind == "rejected":
            rejected = RequestRejected(
                line=line,
                request_id=self.random.choice((None, request_id)),
                code="request_invalid",
                field=self.random.choice((None, "system_prompt")),
                first_line=None,
            )
            self.say(rejected, content=text)
            return
        paths = self.random.sample(LEAK_PATHS, self.random.randint(1, len(LEAK_PATHS)))
        findings = [Finding(rule="label_key", path=path) for path in paths]
        self.say(
            LeakRejected(line=line, request_id=self.random.choice((None, request_id)), findings=findings), content=text
        )

    # --- calls ---

    def calls(self) -> None:
        """Step the requests in any order until each has its result, or the run stops."""
        while open_requests := [request for request in self.requests if request.phase != "done"]:
            if self.maybe(0.03) and not self.stop_and_go_on():
                return
            request = self.random.choice(open_requests)
            if request.phase == "open" and self.maybe(0.02):
                self.key_refused(request)
                return
            self.step(request)
        if self.maybe(0.95):
            self.end("completed")

    def stop_and_go_on(self) -> bool:
        """The process dies; a resume closes the open calls. False where nobody resumes."""
        fate = self.random.choice(("resumed", "left", "abandoned"))
        if fate == "left":
            return False
        still_open = [request for request in self.requests if request.phase == "open"]
        if fate == "resumed":
            self.say(RunResumed(actor="ops-8", outcomes_unknown=len(still_open)))
        for request in still_open:
            self.fail(request, "outcome_unknown", duration_us=None)
        if fate == "abandoned":
            self.say(RunAbandoned(actor="ops-8", reason="superseded", counts=self.counts()), content="a note")
            self.ended = True
        return fate == "resumed"

    def key_refused(self, refused: _Request) -> None:
        self.fail(refused, "auth_error", http_status=401)
        self.fall_back(refused, "auth_error", refused.turn)
        for request in self.requests:
            while request.phase in ("open", "answered", "broken"):
                self.step(request)
            if request.phase == "waiting":
                self.fall_back(request, "not_sent", None)
        self.end("auth_error")

    def step(self, request: _Request) -> None:
        if request.phase == "waiting":
            if request.turn_attempts == MAX_ATTEMPTS:
                self.fall_back(request, request.code, request.turn)
            else:
                self.call(request)
        elif request.phase == "open":
            self.hear(request)
        elif request.phase == "answered":
            self.judge(request)
        else:
            self.after_broken(request)

    def call(self, request: _Request) -> None:
        request.attempts, request.turn_attempts = request.attempts + 1, request.turn_attempts + 1
        request.phase, request.called = "open", True
        body_bytes = self.random.choice((240, 4_000))
        withheld = request.turn == 2 and self.maybe(0.2)
        payload = call_started(request.attempts, request.turn, body_bytes=body_bytes, quote_withheld=withheld)
        self.say(payload, request.request_id, '{"messages":[]}')

    def hear(self, request: _Request) -> None:
        if self.maybe(0.6):
            self.answer(request)
        elif self.maybe(0.8):
            self.fail(request, self.random.choice(PASSING_CODES))
        else:
            code = self.random.choice(FINAL_CODES)
            self.fail(request, code)
            self.fall_back(request, code, request.turn)

    def answer(self, request: _Request) -> None:
        tokens = self.random.choice((None, 0, 7, 100))
        payload = called(
            request.attempts,
            request.turn,
            model=self.random.choice((None, MODEL, "example/model-2")),
            prompt_tokens=tokens,
            completion_tokens=self.random.choice((None, tokens)),
            total_tokens=tokens,
            cached_tokens=self.random.choice((None, tokens)),
            duration_us=self.random.randint(0, 60_000_000),
        )
        request.phase = "answered"
        self.say(payload, request.request_id, b"\xff\xfe not UTF-8" if self.maybe(0.1) else '{"choices":[]}')

    def fail(self, request: _Request, code: str, **changes: Any) -> None:
        retried = request.turn_attempts < MAX_ATTEMPTS and code in PASSING_CODES
        payload = call_failed(
            request.attempts,
            code,
            request.turn,
            **{"wait_ms": 250 if retried else None, "will_retry": retried, **changes},
        )
        request.phase, request.code = "waiting", code
        self.say(payload, request.request_id, "connection reset")

    def judge(self, request: _Request) -> None:
        if self.maybe(0.6):
            facts = output_accepted(
                request.turn,
                risk_level=self.random.choice(RISK_LEVELS),
                requires_human_approval=self.maybe(0.5),
                blocked_by_policy=self.maybe(0.3),
                allowances=self.random.choice(([], ["code_fence"], ["byte_order_mark", "think_block"])),
            )
            self.say(facts, request.request_id, output_text(facts))
            self.finish(request, "accepted_first" if request.turn == 1 else "accepted_after_retry")
            return
        request.phase, request.code = "broken", self.random.choice(BROKEN_CODES)
        self.say(ParseFailed(turn=request.turn, code=request.code, fields=[]), request.request_id)

    def after_broken(self, request: _Request) -> None:
        if request.turn == request.turns:
            self.fall_back(request, request.code, request.turn)
            return
        request.turn, request.turn_attempts, request.phase = request.turn + 1, 0, "waiting"
        self.say(Retried(turn=request.turn, code=request.code), request.request_id)

    def fall_back(self, request: _Request, code: str, turn: int | None) -> None:
        self.say(FallbackApplied(code=code, turn=turn), request.request_id)
        self.finish(request, "fallback_records")

    def finish(self, request: _Request, outcome: str) -> None:
        request.phase = "done"
        self.results[outcome] = self.results.get(outcome, 0) + 1

    # --- the end ---

    def end(self, outcome: str) -> None:
        self.say(RunCompleted(outcome=outcome, counts=self.counts()))
        self.ended = True

    def counts(self) -> Counts:
        """The seven outcomes as the teller knows them: what the folds must find."""
        undone = [request for request in self.requests if request.phase != "done"]
        begun = sum(request.called for request in undone)
        seven = {
            **dict.fromkeys(("accepted_first", "accepted_after_retry", "fallback_records"), 0),
            **self.results,
            "leak_rejected": self.refused["leaking"],
            "rejected": self.refused["rejected"],
            "not_started": len(undone) - begun,
            "incomplete": begun,
        }
        return Counts(requests=len(self.requests) + sum(self.refused.values()), **seven)

    def afterwards(self) -> None:
        if self.maybe(0.4):
            self.say(report_issued())
        if self.ended and self.maybe(0.2):
            self.say(grades_recorded(), content="{}")


def counts_told(story_events: Sequence[NewEvent]) -> Counts | None:
    """The counts of the terminal event of a story, where it has one that holds them."""
    for event in reversed(story_events):
        if event.type in ("RunCompleted", "RunAbandoned"):
            return Counts(**event.payload["counts"])
        if event.type in ("RunStarted", "RunBlocked"):
            return None
    return None
