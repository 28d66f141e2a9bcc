"""A small ledger whose every answer is known: two runs over the same incidents, with what can happen in them.

Run ``first`` (baseline, policy-a) and run ``second`` (contract tuned, policy-b) replay INC-1 to INC-4. Time goes on by
ten minutes an event, so that hours differ; the same on both databases.
"""

from __future__ import annotations

import json

from ledger.events import (
    LEDGER_RUN_ID,
    ContentRedacted,
    Counts,
    FallbackApplied,
    Finding,
    IntakeCompleted,
    LeakRejected,
    ParseFailed,
    Payload,
    Retried,
    RunCompleted,
    new_event,
)
from ledger.projections.tables import fold
from ledger.store import open_store
from tests.ledger.store.making import Clock
from tests.stories import (
    accepted,
    call_failed,
    call_started,
    called,
    digest,
    output_accepted,
    output_text,
    report_issued,
    started,
)

HOSTILE = '=HYPERLINK("http://evil.example","x")\x1b[2J\x1b]0;owned\x07\u202e\n| `x` <script>'
PRICED = {
    "temperature": "0.2",
    "prices_sha256": digest("prices"),
    "prices_currency": "USD",
    "prompt_price:example/model-1": "0.15",
    "completion_price:example/model-1": "0.6",
    "prompt_price:example/model-2": "3",
    "completion_price:example/model-2": "15",
}
TUNED = "nemo_nemotron_fabric__contract_tuned_v1"


def make(url: str) -> None:
    """Make the ledger at ``url``."""
    clock = Clock()
    with open_store(url, "create", fold=fold, clock=clock, origin="replay-ledger.local/asked") as store:

        def say(payload: Payload, run: str, request: str | None = None, content: str | bytes | None = None) -> None:
            clock.pass_(minutes=10)
            store.append([new_event(payload, run_id=run, request_id=request, content=content)])

        _first(say)
        _second(say)
        positions = [
            row[0] for row in store.rows("SELECT decided_position FROM requests WHERE request_id = 'INC-1'", {})
        ]
        redaction = ContentRedacted(positions=[min(positions)], reason="subject_request", actor="dpo-1")
        say(redaction, LEDGER_RUN_ID, content='{"operator":"Petra Doe","legal_basis":"Art. 17"}')


def _request(say, run: str, line: int, policy: str) -> None:
    text = json.dumps({"incident_id": f"INC-{line}", "system_prompt": "Return JSON."})
    payload = accepted(line, f"INC-{line}", policy_id=policy, facets={"team": "checkout" if line < 3 else "search"})
    say(payload, run, f"INC-{line}", text)


def _answered(say, run: str, request: str, attempt: int, *, turn: int = 1, **changes) -> None:
    say(call_started(attempt, turn), run, request, '{"messages":[]}')
    say(called(attempt, turn, **changes), run, request, '{"choices":[]}')


def _accept(say, run: str, request: str, action: str, turn: int = 1, **changes) -> None:
    facts = output_accepted(turn, **changes)
    say(facts, run, request, output_text(facts, action))


def _end(say, run: str, **counts: int) -> None:
    names = ("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected", "not_started")
    seven = dict.fromkeys((*names, "incomplete"), 0) | counts
    say(RunCompleted(outcome="completed", counts=Counts(requests=sum(counts.values()), **seven)), run)
    say(report_issued(), run)


def _intake(accepted_lines: int, leaking: int) -> IntakeCompleted:
    return IntakeCompleted(
        lines=accepted_lines + leaking,
        accepted=accepted_lines,
        rejected=0,
        leaking=leaking,
        input_sha256=digest("input"),
        selection=None,
    )


def _first(say) -> None:
    say(started(settings=PRICED), "first", content='{"operator":"someone","host":"h1"}')
    for line in (1, 2, 3):
        _request(say, "first", line, "policy-a")
    say(
        LeakRejected(line=4, request_id="INC-4", findings=[Finding(rule="label_key", path="gold")]),
        "first",
        content="{}",
    )
    say(_intake(3, 1), "first")
    # INC-1 is blocked by the model's own word; it answers as another model, a minute late.
    _answered(say, "first", "INC-1", 1, model="example/model-2", duration_us=61_000_000)
    _accept(say, "first", "INC-1", "drop the table", risk_level="critical", blocked_by_policy=True)
    # INC-2 meets a 429 and a 503, then an answer that reports no usage.
    for attempt, code in ((1, "rate_limited"), (2, "http_503")):
        say(call_started(attempt), "first", "INC-2", '{"messages":[]}')
        failed = call_failed(attempt, code, will_retry=True, wait_ms=250, http_status=429 if attempt == 1 else 503)
        say(failed, "first", "INC-2", "slow down")
    _answered(say, "first", "INC-2", 3, prompt_tokens=None, completion_tokens=None, total_tokens=None)
    _accept(say, "first", "INC-2", HOSTILE, risk_level="low", requires_human_approval=False)
    # INC-3 breaks the contract, which has one turn: the fallback.
    _answered(say, "first", "INC-3", 1, duration_us=3_000_000)
    say(ParseFailed(turn=1, code="model_output_invalid_json", fields=[]), "first", "INC-3")
    say(FallbackApplied(code="model_output_invalid_json", turn=1), "first", "INC-3")
    _end(say, "first", accepted_first=2, fallback_records=1, leak_rejected=1)


def _second(say) -> None:
    say(started(variant=TUNED, model="example/model-3"), "second", content='{"operator":"someone"}')
    for line in (1, 2, 3):
        _request(say, "second", line, "policy-b")
    say(_intake(3, 0), "second")
    _answered(
        say, "second", "INC-1", 1, model="example/model-3", prompt_tokens=50, completion_tokens=5, total_tokens=55
    )
    _accept(say, "second", "INC-1", "ask a human", risk_level="critical", blocked_by_policy=True)
    _answered(say, "second", "INC-2", 1, model=None)
    _accept(say, "second", "INC-2", "restart checkout", risk_level="high")
    # INC-3 is asked twice.
    _answered(say, "second", "INC-3", 1, model="example/model-3")
    say(ParseFailed(turn=1, code="model_output_missing_fields:risk_level", fields=["risk_level"]), "second", "INC-3")
    say(Retried(turn=2, code="model_output_missing_fields:risk_level"), "second", "INC-3")
    _answered(say, "second", "INC-3", 2, turn=2, model="example/model-3", duration_us=9_000_000)
    _accept(say, "second", "INC-3", "scale up", 2, risk_level="medium")
    _end(say, "second", accepted_first=2, accepted_after_retry=1)
