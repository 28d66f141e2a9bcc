"""Whole runs decided again: what this program recorded it decides alike, and a changed rule shows where it bites."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import open_ledger
from ledger.event_ids import new_event_id
from ledger.events import Event, NewEvent
from ledger.integrity.canonical import encode_payload
from ledger.integrity.holds import By
from ledger.integrity.redact import Target, redact
from ledger.store import Store, open_store
from ledger.store.errors import RunNotFound
from runner import contract as contract_module
from runner import guard_again, recorded_requests, reproduce
from runner.contract import Contract
from runner.demo_incidents import DEMO_SCRIPTS
from runner.nemotron import NemotronExternalRunnerConfig, run_nemotron_external_replay
from runner.plan import ResumeOverrides
from runner.replay import abandon_run, resume_run, start_run
from runner.reproduce import Case, Reproduction, Tally, worst
from runner.simulated_model import SimulatedEndpoint
from runner.simulated_replies import REPLIES, Script
from runner.stop import StopSignal
from runner.variants import BASELINE, CONTRACT_TUNED, UnknownVariant
from tests.runner.playing import ANSWER, a_plan, a_request, completion, lines_of, play, refusal
from tests.runner.scripted_http import Handler, raw_server, reply
from tests.runner.test_decide_again import without_fences
from tests.stories import stories

LEAKING = {"incident_context": {"title": "x", "evaluation_labels": {"repair_success": True}}}
NO_DELAY = "Retry-After: 0"
FENCED = completion(f"```json\n{json.dumps(ANSWER)}\n```")
KINDS = [name for name in REPLIES if name != "unauthorized"]


def told(ledger_url: str, run_id: str = "played", **how: Any) -> tuple[list[Case], Tally]:
    with open_ledger(ledger_url, "read") as store:
        return told_by(store, run_id, **how)


def told_by(store: Store, run_id: str = "played", **how: Any) -> tuple[list[Case], Tally]:
    run = Reproduction(store, run_id, **how)
    cases = list(run.cases())
    tally = run.tally
    parts = (tally.reproduced, tally.differing, tally.without_result, tally.unreadable_requests)
    assert sum(parts) + tally.undecided.total() == tally.requests
    json.dumps(tally.as_dict())
    json.dumps([case.as_dict() for case in cases])
    return cases, tally


def where(cases: list[Case]) -> list[tuple[str | None, str, str]]:
    return [(case.request_id, case.event, case.kind) for case in cases]


async def every_kind(ledger_url: str, *, tuned: bool) -> list[Event]:
    """A run in which the simulated model answers in every way that it can: each way first, and then well."""
    scripts = {f"INC-{n}": Script(replies=(kind, "well")) for n, kind in enumerate(KINDS)}
    scripts |= {f"INC-{n + 100}": Script(replies=(kind,)) for n, kind in enumerate(KINDS)}
    requests = [
        a_request(int(name[4:]), tuned=tuned, incident_context={"incident_id": name, "title": "x"}) for name in scripts
    ]
    with SimulatedEndpoint(scripts) as endpoint, open_ledger(ledger_url, "create") as store:
        plan = a_plan(endpoint.base_url, concurrency=64, attempt_timeout="1.5", max_attempts=2)
        outcome = await start_run(store, io.BytesIO(lines_of(requests)), plan)
        assert outcome.state == "completed"
        return [event for event in store.events("played") if isinstance(event, Event)]


# --- no difference -------------------------------------------------------------------------


@pytest.mark.parametrize("tuned", [True, False], ids=["contract tuned", "baseline"])
async def test_every_way_to_answer_is_decided_again_alike_and_a_rule_taken_away_shows_in_its_replies_alone(
    ledger_url: str, tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = await every_kind(ledger_url, tuned=tuned)
    cases, tally = told(ledger_url, guard=True)
    assert cases == []
    assert tally.verdict == "same"
    assert tally.requests == tally.reproduced == tally.lines_guarded == 2 * len(KINDS)
    decisions = ("ModelCallStarted", "OutputAccepted", "ParseFailed", "Retried", "FallbackApplied")
    assert tally.decisions == sum(event.type in decisions for event in events)

    monkeypatch.setattr(contract_module, "read_answer", without_fences)
    fenced = [e for e in events if e.type == "OutputAccepted" and "fence" in e.payload["allowances"]]
    cases, tally = told(ledger_url)
    assert [(case.request_id, case.position) for case in cases] == [(e.request_id, e.position) for e in fenced]
    assert len(cases) == tally.differing == 2
    assert {case.kind for case in cases} == {"decision"}
    assert [member[1:] for member in cases[0].members] == [
        ("OutputAccepted", "ParseFailed"),
        (None, "model_output_ambiguous"),
    ]
    assert tally.verdict == "different"


async def test_the_incidents_of_the_demo_are_decided_again_alike_on_both_databases(ledger_url: str) -> None:
    from runner.demo_incidents import _LINES

    requests = [{**line["request"], "run_id": "played"} for line in _LINES]
    with SimulatedEndpoint(DEMO_SCRIPTS) as endpoint, open_ledger(ledger_url, "create") as store:
        plan = a_plan(endpoint.base_url, concurrency=64, attempt_timeout="1.5", max_attempts=2)
        await start_run(store, io.BytesIO(lines_of(requests)), plan)
    cases, tally = told(ledger_url, guard=True)
    assert (cases, tally.verdict, tally.reproduced) == ([], "same", len(requests))


async def test_requests_that_a_refused_key_left_unsent_are_decided_again_alike(ledger_url: str) -> None:
    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(completion("no"))

    scripts: list[bytes | Handler] = [completion(), slowly, slowly, refusal(401)]
    requests = [a_request(n) for n in range(1, 31)]
    await play(ledger_url, requests, *scripts, concurrency=4)
    cases, tally = told(ledger_url)
    assert (cases, tally.verdict, tally.state) == ([], "same", "auth_error")
    assert tally.reproduced == 30


async def test_a_key_refused_before_a_resume_does_not_stop_what_comes_after_it(ledger_url: str) -> None:
    async with raw_server(refusal(401)) as server:
        with open_ledger(ledger_url, "create") as store:
            plan = a_plan(server.base_url, concurrency=1)
            await start_run(store, io.BytesIO(lines_of([a_request(1)])), plan)
            events = [event for event in store.events("played") if isinstance(event, Event)]
            failed = next(event for event in events if event.type == "ModelCallFailed")
            of = reproduce.find_pass(store, "played")
            stops = recorded_requests.Stops(store, of)
    assert not stops.before(failed.position)
    assert stops.before(failed.position + 1)


async def test_replies_too_large_or_scrubbed_are_decided_again_on_what_was_kept(ledger_url: str) -> None:
    large = completion("x" * (1 << 20) + "x")
    echo = completion(json.dumps({**ANSWER, "proposed_action": "use key-for-tests and sk-abcdefghijklmnop1234"}))
    played = await play(ledger_url, [a_request(1), a_request(2)], large, echo, completion())
    assert any(event.payload["body_truncated"] for event in played.of("ModelCalled"))
    assert any(event.payload["scrubbed"] for event in played.of("ModelCalled"))
    cases, tally = told(ledger_url)
    assert (cases, tally.verdict, tally.reproduced) == ([], "same", 2)


async def test_a_quote_that_was_withheld_is_withheld_again_until_the_guard_changes(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaky = completion('{"expected_action": "restart"}')
    played = await play(ledger_url, [a_request(1)], leaky, completion())
    assert [event.payload["quote_withheld"] for event in played.of("ModelCallStarted")] == [False, True]
    assert told(ledger_url)[0] == []
    monkeypatch.setattr(reproduce, "scan_body", lambda body: ())
    cases, _ = told(ledger_url)
    assert where(cases) == [("INC-1", "ModelCallStarted", "guard")]
    assert cases[0].members[1] == ("quote_withheld", True, False)


async def test_calls_in_doubt_are_taken_as_failed_and_a_resumed_run_is_decided_again_alike(ledger_url: str) -> None:
    stop = StopSignal()

    async def hang(*_: object) -> None:
        stop.request()
        stop.request()
        await asyncio.sleep(60)

    async with raw_server(hang, completion()) as server:
        with open_ledger(ledger_url, "create") as store:
            plan = a_plan(server.base_url, attempt_timeout="50")
            await start_run(store, io.BytesIO(lines_of([a_request(1), a_request(2)])), plan, stop=stop)
        cases, tally = told(ledger_url)
        assert (cases, tally.verdict, tally.state, tally.without_result) == ([], "incomplete", "running", 2)
        with open_ledger(ledger_url, "write") as store:
            await resume_run(store, "played", ResumeOverrides("tester", api_key="key-for-tests"))
    cases, tally = told(ledger_url)
    assert (cases, tally.verdict, tally.reproduced) == ([], "same", 2)


async def test_an_abandoned_run_has_requests_without_a_result_and_that_is_no_difference(ledger_url: str) -> None:
    await play(ledger_url, [a_request(n) for n in range(1, 41)], refusal(503, NO_DELAY), max_attempts=1)
    with open_ledger(ledger_url, "write") as store:
        abandon_run(store, "played", reason="superseded", actor="tester")
    cases, tally = told(ledger_url)
    assert (cases, tally.verdict, tally.state) == ([], "same", "abandoned")
    assert (tally.reproduced, tally.without_result) == (20, 20)


class Brings:
    """A caller's own client: each call gets the next answer, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def post(self, url: str, **_: Any) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Answers(answer)


class Answers:
    """A response that tells nothing but its body."""

    def __init__(self, body: Any) -> None:
        self.body = body

    def raise_for_status(self) -> None:
        if self.body == "refused":
            raise ValueError("refused")

    def json(self) -> Any:
        return self.body


async def test_a_run_from_python_with_a_callers_client_is_decided_again_alike(ledger_url: str) -> None:
    message = {"role": "assistant", "content": json.dumps(ANSWER)}
    good = {"id": "x", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    answers = [TimeoutError(), OSError(), "refused", {"choices": []}, {"error": "no"}, {"n": {1}}, "text", good]
    config = NemotronExternalRunnerConfig(api_key="key-for-tests", concurrency=4, request_timeout="60")
    requests = [a_request(n) for n in range(1, 5)]
    await run_nemotron_external_replay(
        requests=requests, config=config, client=Brings(*answers, "text", good), ledger=ledger_url
    )
    cases, tally = told(ledger_url, guard=True)
    assert (cases, tally.verdict, tally.reproduced) == ([], "same", 4)


async def test_settings_that_shape_the_body_are_read_back(ledger_url: str) -> None:
    given = {"temperature": "0.20", "seed": 7, "stop": ("END",), "extra_body": {"top_k": 4}, "max_tokens": 900}
    await play(ledger_url, [a_request(1)], completion(), response_format="json_schema", **given)
    assert told(ledger_url)[0] == []


async def test_nothing_is_written_and_pages_and_room_change_nothing(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play(ledger_url, [a_request(n) for n in range(1, 8)], completion("no"), completion(), FENCED)
    with open_ledger(ledger_url, "read") as store:
        before = store.head()
    whole = told(ledger_url, guard=True)[1].as_dict()
    monkeypatch.setattr(recorded_requests, "PAGE", 2)
    monkeypatch.setattr(recorded_requests, "MAX_HELD_BYTES", 1)
    assert told(ledger_url, guard=True)[1].as_dict() == whole
    with open_ledger(ledger_url, "read") as store:
        assert store.head() == before


async def test_of_a_run_started_again_only_the_last_pass_is_decided(ledger_url: str) -> None:
    requests = [a_request(1), b"nonsense"]
    await play(ledger_url, requests, completion())
    await play(ledger_url, requests, completion(), on_invalid="reject")
    cases, tally = told(ledger_url, guard=True)
    assert (cases, tally.requests, tally.lines_guarded) == ([], 1, 2)


async def test_a_run_blocked_for_want_of_a_key_has_nothing_to_decide(ledger_url: str) -> None:
    await play(ledger_url, [a_request(1)], completion(), api_key="")
    cases, tally = told(ledger_url, guard=True)
    assert (cases, tally.requests, tally.state, tally.verdict) == ([], 0, "blocked", "same")


async def test_a_run_that_the_ledger_does_not_have_is_an_error_by_name(ledger_url: str) -> None:
    await play(ledger_url, [a_request(1)], completion())
    with pytest.raises(RunNotFound):
        told(ledger_url, "another")


# --- what cannot be decided ----------------------------------------------------------------


async def test_an_erased_request_is_counted_and_listed_and_the_others_are_decided(ledger_url: str) -> None:
    await play(ledger_url, [a_request(n) for n in (1, 2, 3)], completion())
    with open_ledger(ledger_url, "write") as store:
        redact(store, Target("played", "INC-2"), reason="asked", by=By("tester", None, None))
    cases, tally = told(ledger_url, guard=True)
    assert [(case.request_id, case.kind, case.reason) for case in cases] == [("INC-2", "undecided", "erased")]
    assert (tally.verdict, tally.reproduced, dict(tally.undecided)) == ("incomplete", 2, {"erased": 1})


async def test_a_run_erased_whole_is_incomplete_whatever_its_settings_held(ledger_url: str) -> None:
    await play(ledger_url, [a_request(1), a_request(2, **LEAKING)], completion(), on_leak="reject", stop=("END",))
    with open_ledger(ledger_url, "write") as store:
        redact(store, Target("played"), reason="asked", by=By("tester", None, None))
    cases, tally = told(ledger_url, guard=True)
    assert [(case.event, case.reason) for case in cases] == [("RequestAccepted", "erased"), ("LeakRejected", "erased")]
    assert (tally.verdict, dict(tally.undecided), tally.lines_undecided) == ("incomplete", {"erased": 1}, 1)


async def test_a_difference_beside_an_erased_request_is_still_a_difference(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play(ledger_url, [a_request(1), a_request(2)], FENCED)
    with open_ledger(ledger_url, "write") as store:
        redact(store, Target("played", "INC-2"), reason="asked", by=By("tester", None, None))
    monkeypatch.setattr(contract_module, "read_answer", without_fences)
    cases, tally = told(ledger_url)
    assert [case.kind for case in cases] == ["decision", "undecided"]
    assert tally.verdict == "different"


async def test_a_variant_that_this_program_does_not_know_is_said_and_not_guessed(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(variant_id: str | None) -> None:
        raise UnknownVariant(str(variant_id))

    await play(ledger_url, [a_request(1)], completion())
    monkeypatch.setattr(reproduce, "variant_for", unknown)
    cases, tally = told(ledger_url)
    assert [(case.kind, case.reason) for case in cases] == [("undecided", "variant")]
    assert tally.verdict == "incomplete"


@pytest.mark.parametrize("tuned", [True, False])
async def test_under_another_template_verdicts_are_compared_and_the_rest_is_said_not_to_be(
    ledger_url: str, tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play(ledger_url, [a_request(1, tuned=tuned), a_request(2, tuned=tuned)], FENCED, completion("no"))
    present = CONTRACT_TUNED if tuned else BASELINE
    newer = replace(present, template_version=2, user_template="{user_prompt}: {incident_context}")
    monkeypatch.setattr(reproduce, "variant_for", lambda _: newer)
    cases, tally = told(ledger_url)
    assert [(case.kind, case.reason) for case in cases] == [("undecided", "template")] * 2
    assert (tally.verdict, dict(tally.undecided)) == ("incomplete", {"template": 2})
    monkeypatch.setattr(contract_module, "read_answer", without_fences)
    cases, tally = told(ledger_url)
    assert where(cases)[0] == ("INC-1", "OutputAccepted", "decision")
    assert tally.verdict == "different"


async def test_an_event_that_cannot_be_read_is_no_agreement(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.store import read

    await play(ledger_url, [a_request(1), a_request(2)], completion())
    monkeypatch.delitem(read._SCHEMAS, "OutputAccepted")
    cases, tally = told(ledger_url)
    assert [(case.request_id, case.kind, case.event) for case in cases] == [
        ("INC-1", "unreadable", "OutputAccepted"),
        ("INC-2", "unreadable", "OutputAccepted"),
    ]
    assert (tally.verdict, tally.unreadable_requests) == ("different", 2)


@pytest.mark.parametrize("event_type", ["RunStarted", "RunCompleted"])
async def test_a_start_or_an_end_that_cannot_be_read_is_no_agreement_either(
    ledger_url: str, event_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ledger.store import read

    await play(ledger_url, [a_request(1)], completion())
    monkeypatch.delitem(read._SCHEMAS, event_type)
    cases, tally = told(ledger_url)
    assert where(cases)[0] == (None, event_type, "unreadable")
    assert tally.verdict == "different"


async def test_what_is_appended_while_it_reads_does_not_count(ledger_url: str) -> None:
    await play(ledger_url, [a_request(n) for n in range(1, 41)], refusal(503, NO_DELAY), max_attempts=1)
    with open_ledger(ledger_url, "write") as store:
        run = Reproduction(store, "played")
        abandon_run(store, "played", reason="superseded", actor="tester")
        assert list(run.cases()) == []
        assert (run.tally.state, run.tally.verdict) == ("running", "incomplete")


def retold(events: list[Event], contents: dict[int, bytes]) -> list[NewEvent]:
    """The same events for another ledger."""
    return [
        NewEvent(*(e.event_id, e.type, e.schema, e.run_id, e.request_id, e.payload), encode_payload(e.payload), content)
        for e in events
        for content in [contents.get(e.position)]
    ]


async def test_a_run_that_ended_over_an_undecided_request_is_told(ledger_url: str) -> None:
    """As a program would that lost sight of one: today's does not end a run so."""
    played = await play(ledger_url, [a_request(1), a_request(2)], completion())
    last = played.of("OutputAccepted")[-1]
    with open_ledger("sqlite://", "create") as store:
        store.append(retold([event for event in played.events if event is not last], played.contents))
        cases, tally = told_by(store)
        assert where(cases) == [("INC-2", "ModelCalled", "story")]
        assert tally.verdict == "different"


async def test_an_acceptance_out_of_place_is_not_passed_over(ledger_url: str) -> None:
    played = await play(ledger_url, [a_request(1), a_request(2)], completion())
    first, second = played.of("RequestAccepted")
    without_request = second._replace(request_id=None)
    twice = first._replace(event_id=new_event_id())
    for odd, expected in (
        (without_request, [(None, "RequestAccepted", "unreadable")]),
        (twice, [("INC-1", "RequestAccepted", "story")]),
    ):
        with open_store("sqlite://", "create", fold=lambda event: ()) as store:
            others = [event for event in played.events if event.request_id != "INC-2" and event.type != "RunCompleted"]
            store.append(retold([*others[:2], odd, *others[2:]], played.contents))
            cases, tally = told_by(store)
            assert where(cases) == expected
            assert tally.verdict == "different"


# --- the lines -----------------------------------------------------------------------------

MIXED = [
    a_request(1),
    b"nonsense",
    a_request(2, **LEAKING),
    a_request(1),
    a_request(4, schema_version="v9"),
    a_request(5, run_id="other"),
    a_request(6, run_id="other", **LEAKING),
    b'{"incident_id":"' + b"x" * (9 << 20) + b'"}',
    a_request(7, tuned=False),
    a_request(8, incident_id="gold-answer=restart"),
    a_request(9, incident_id="expected_action"),
]


@pytest.mark.parametrize("how", [{}, {"run_id": "given"}, {"variant": "baseline"}, {"limit": "1-5"}])
async def test_lines_of_every_kind_are_judged_again_alike(ledger_url: str, how: dict[str, Any]) -> None:
    played = await play(ledger_url, MIXED, completion(), on_leak="reject", on_invalid="reject", **how)
    kinds = {event.type for event in played.events}
    assert {"RequestAccepted", "RequestRejected", "LeakRejected"} <= kinds
    cases, tally = told(ledger_url, played.outcome.run_id, guard=True)
    assert cases == []
    assert tally.verdict == "same"
    assert tally.lines_guarded == sum(len(played.of(f"{kind}")) for kind in ("RequestRejected", "LeakRejected")) + len(
        played.of("RequestAccepted")
    )


async def test_a_guard_that_lets_more_pass_or_less_is_told_line_by_line(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play(ledger_url, MIXED[:4], completion(), on_leak="reject", on_invalid="reject")
    found = guard_again.scan_request
    monkeypatch.setattr(guard_again, "scan_request", lambda *_, **__: ())
    cases, tally = told(ledger_url, guard=True)
    assert where(cases) == [("INC-2", "LeakRejected", "guard")]
    assert cases[0].members == (("type", "LeakRejected", "RequestAccepted"),)
    assert (tally.verdict, tally.as_dict()["guard"]["differences"]) == ("different", 1)
    assert told(ledger_url)[0] == [], "without --guard nobody asks"

    def everything(*_: Any, request_id: str, incident_id: str, messages: Any) -> Any:
        return found({"gold": 1}, request_id=request_id, incident_id=incident_id)

    monkeypatch.setattr(guard_again, "scan_request", everything)
    cases, _ = told(ledger_url, guard=True)
    assert [(case.event, case.members[0].name) for case in cases] == [
        ("RequestAccepted", "type"),
        ("LeakRejected", "findings"),
        ("RequestRejected", "type"),
    ]


async def test_a_check_that_refuses_more_is_told_as_the_requests(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runner import requests

    await play(ledger_url, [a_request(1)], completion())
    monkeypatch.setattr(requests, "SCHEMA_VERSION", "v2")
    cases, tally = told(ledger_url)
    assert where(cases) == [("INC-1", "RequestAccepted", "request")]
    assert tally.verdict == "different"


# --- what if -------------------------------------------------------------------------------


async def test_under_the_same_contract_no_verdict_is_another(ledger_url: str) -> None:
    await play(ledger_url, [a_request(n) for n in (1, 2)], completion("no"), completion(), FENCED)
    cases, tally = told(ledger_url, contract=Contract())
    assert (cases, tally.verdict) == ([], "same")
    assert tally.as_dict()["what_if"] == {
        "would_accept": 2,
        "would_refuse": 0,
        "would_ask_again": 0,
        "would_no_reply": 0,
    }


async def test_under_a_stricter_contract_those_it_would_refuse_are_counted_and_listed(ledger_url: str) -> None:
    low = completion(json.dumps({**ANSWER, "risk_level": "low"}))
    requests = [a_request(n, tuned=False) for n in (1, 2, 3, 4)]
    await play(ledger_url, requests, completion(), low, completion("no"), refusal(404))
    strict = Contract({"properties": {"risk_level": {"enum": ["low"]}}})
    cases, tally = told(ledger_url, contract=strict)
    assert where(cases) == [("INC-1", "OutputAccepted", "what_if")]
    assert tally.what_if == {"accept": 1, "refuse": 2, "no_reply": 1}
    assert tally.verdict == "different"


# --- stories -------------------------------------------------------------------------------


@given(stories(), st.booleans())
def test_whatever_story_a_ledger_tells_it_is_judged_to_its_end(events: list[NewEvent], guard: bool) -> None:
    """None of these tell of real requests: nothing agrees by chance, nothing raises, every request is counted."""
    with open_ledger("sqlite://", "create") as store:
        store.append(events)
        cases, tally = told_by(store, "run-1", guard=guard)
        assert tally.reproduced == 0
        assert len([case for case in cases if case.kind == "request"]) == tally.requests
        told_by(store, "run-1", contract=Contract())


way = st.sampled_from(
    [
        completion(),
        FENCED,
        completion("no"),
        completion("{}"),
        completion(None, finish_reason="length"),
        completion(json.dumps(ANSWER) * 2),
        refusal(400),
        refusal(503, NO_DELAY),
        reply(b'{"choices": []}'),
        reply(b"<html>"),
        reply(b"\xff\xfe"),
    ]
)


@settings(max_examples=25)
@given(st.lists(way, min_size=1, max_size=6), st.booleans(), st.integers(1, 3))
def test_a_run_against_any_endpoint_is_decided_again_alike(ways: list[bytes], tuned: bool, max_attempts: int) -> None:
    async def run(store: Store) -> None:
        async with raw_server(*ways) as server:
            plan = a_plan(server.base_url, max_attempts=max_attempts)
            await start_run(store, io.BytesIO(lines_of([a_request(n, tuned=tuned) for n in (1, 2)])), plan)

    with open_ledger("sqlite://", "create") as store:
        asyncio.run(run(store))
        cases, tally = told_by(store)
        assert (cases, tally.verdict, tally.reproduced) == ([], "same", 2)


def test_over_several_runs_the_worst_verdict_counts() -> None:
    assert worst([]) == worst(["same", "same"]) == "same"
    assert worst(["same", "incomplete"]) == "incomplete"
    assert worst(["incomplete", "different", "same"]) == "different"
