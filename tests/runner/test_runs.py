"""The stories that runs tell: for each case the events in order, and what report and results make of them."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from ledger import open_ledger
from ledger.events import Event
from ledger.projections.report import report
from runner.plan import (
    InputDiffers,
    KeyInInput,
    KeyMissing,
    NoValidLine,
    ResumeOverrides,
    RunEnded,
    RunError,
    RunExists,
)
from runner.replay import abandon_run, dry_run, resume_run, start_run
from runner.stop import StopSignal
from tests.runner.playing import (
    ANSWER,
    a_plan,
    a_request,
    completion,
    lines_of,
    play,
    read_back,
    refusal,
    story,
)
from tests.runner.scripted_http import raw_server

LEAKING = {"incident_context": {"title": "x", "evaluation_labels": {"repair_success": True}}}
NO_DELAY = "Retry-After: 0"


def outcomes(report: dict) -> dict[str, int]:
    names = "accepted_first accepted_after_retry fallback_records leak_rejected rejected not_started incomplete"
    seven = {name: report[name] for name in names.split()}
    assert sum(seven.values()) == report["requests"]
    return {name: count for name, count in seven.items() if count}


async def test_a_clean_request_is_accepted_in_one_call(ledger_url: str) -> None:
    played = await play(ledger_url, [a_request(tuned=False)], completion())
    assert played.story() == "RS RA IC MCS MC OA RC"
    assert outcomes(played.report) == {"accepted_first": 1}
    assert played.report["valid"] is True
    assert played.results[0]["model_output"] == ANSWER
    assert played.results[0]["error"] is None
    assert played.contents[played.of("ModelCallStarted")[0].position] == played.sent[0]


async def test_a_leak_in_the_second_of_three_stops_the_run_before_any_call(ledger_url: str) -> None:
    played = await play(ledger_url, [a_request(1), a_request(2, **LEAKING), a_request(3)], completion())
    assert played.story() == "RS RA LR RA IC RB"
    assert outcomes(played.report) == {"leak_rejected": 1, "not_started": 2}
    assert played.report["outcome"] == "blocked"
    assert played.report["failures"][0] == "request_self_grading_leak"
    assert "request_self_grading_leak:INC-2:incident_context.evaluation_labels" in played.report["failures"]
    assert played.results == []
    assert played.sent == []


async def test_under_reject_the_leaking_request_is_left_out_and_the_report_is_not_valid(ledger_url: str) -> None:
    requests = [a_request(1), a_request(2, **LEAKING), a_request(3)]
    played = await play(ledger_url, requests, completion(), on_leak="reject")
    assert played.story() == "RS RA LR RA IC MCS MC OA MCS MC OA RC"
    assert outcomes(played.report) == {"leak_rejected": 1, "accepted_first": 2}
    assert played.report["valid"] is False
    assert len(played.sent) == 2


@pytest.mark.parametrize(
    "bad",
    [b'{"broken"', a_request(1), a_request(2, schema_version="v9"), a_request(2, run_id="other")],
    ids=["broken JSON", "a duplicate", "an unknown version", "another run"],
)
async def test_a_bad_line_stops_the_run_or_is_left_out(ledger_url: str, bad: object) -> None:
    requests = [a_request(1), bad, a_request(3)]
    blocked = await play(ledger_url, requests, completion())
    assert blocked.story() == "RS RA RR RA IC RB"
    assert outcomes(blocked.report) == {"rejected": 1, "not_started": 2}
    assert blocked.outcome.failures == ("request_invalid",)
    # Blocked before any call, the same run may start again; what came before no longer counts.
    again = await play(ledger_url, requests, completion(), on_invalid="reject")
    assert again.story() == "RS RA RR RA IC RB RS RA RR RA IC MCS MC OA MCS MC OA RC"
    assert outcomes(again.report) == {"rejected": 1, "accepted_first": 2}
    assert again.outcome.faults.kept[0].line == 2


async def test_a_duplicate_names_both_lines(ledger_url: str) -> None:
    played = await play(ledger_url, [a_request(1), a_request(2), a_request(1)], completion(), on_invalid="reject")
    rejected = played.of("RequestRejected")[0].payload
    assert (rejected["line"], rejected["first_line"], rejected["request_id"]) == (3, 1, "INC-1")


async def test_a_duplicate_far_from_the_first_is_found(ledger_url: str) -> None:
    requests = [a_request(n) for n in range(1, 400)] + [a_request(7)]
    played = await play(ledger_url, requests, completion())
    assert played.of("RequestRejected")[0].payload["first_line"] == 7
    assert played.sent == []


async def test_bad_lines_before_the_first_valid_one_are_recorded_after_the_start(ledger_url: str) -> None:
    played = await play(ledger_url, [b"nonsense", b"", a_request(3)], completion(), on_invalid="reject")
    assert played.story() == "RS RR RA IC MCS MC OA RC"
    assert played.of("RequestRejected")[0].payload["line"] == 1
    assert played.of("RequestAccepted")[0].payload["line"] == 3


async def test_without_a_key_the_run_is_blocked_and_no_line_is_recorded(ledger_url: str) -> None:
    played = await play(ledger_url, [a_request(1)], completion(), api_key="")
    assert played.story() == "RS RB"
    assert played.report["requests"] == 0
    assert played.report["failures"] == ["api_key_missing"]
    assert played.report["valid"] is False
    assert played.sent == []


async def test_a_bad_answer_then_a_good_one_is_accepted_after_the_retry(ledger_url: str) -> None:
    missing = {name: value for name, value in ANSWER.items() if name != "blocked_by_policy"}
    played = await play(ledger_url, [a_request()], completion(json.dumps(missing)), completion())
    assert played.story() == "RS RA IC MCS MC PF RT MCS MC OA RC"
    assert outcomes(played.report) == {"accepted_after_retry": 1}
    result = played.results[0]
    assert result["error"] is None
    assert result["first_error"] == "model_output_missing_fields:blocked_by_policy"
    assert result["retry_used"] is True
    second = json.loads(played.sent[1])["messages"]
    assert [message["role"] for message in second] == ["system", "user"]
    assert "Previous model output was invalid" in second[1]["content"]
    assert "blocked_by_policy" in second[1]["content"].partition("Previous model output was invalid")[2]


async def test_the_baseline_has_one_turn_and_then_fails_closed(ledger_url: str) -> None:
    played = await play(ledger_url, [a_request(tuned=False)], completion("Restart it."))
    assert played.story() == "RS RA IC MCS MC PF FA RC"
    assert played.report["external_error_records"] == 1
    output = played.results[0]["model_output"]
    assert (output["risk_level"], output["blocked_by_policy"], output["requires_human_approval"]) == (
        "critical",
        True,
        True,
    )
    assert (output["proposed_action"], output["action_plan"]) == ("", [])


async def test_transport_retries_are_a_budget_of_their_own(ledger_url: str) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(30)

    scripts = [refusal(429, NO_DELAY), refusal(503, NO_DELAY), completion("no"), hang]
    played = await play(ledger_url, [a_request()], *scripts, attempt_timeout="1.5")
    assert played.story() == "RS RA IC MCS MCF MCS MCF MCS MC PF RT MCS MCF MCS MCF MCS MCF FA RC"
    assert [event.payload["attempt"] for event in played.of("ModelCallStarted")] == [1, 2, 3, 4, 5, 6]
    result = played.results[0]
    assert (result["first_error"], result["error"]) == ("rate_limited", "transport_timeout")
    assert len(result["trace_events"]) == 1
    assert all(event.payload["outcome_unknown"] for event in played.of("ModelCallFailed")[2:])


async def test_a_refused_key_stops_the_run_and_closes_each_request(ledger_url: str) -> None:
    requests = [a_request(n) for n in range(1, 61)]
    played = await play(ledger_url, requests, completion(), completion(), refusal(401), concurrency=4)
    assert played.outcome.state == "auth_error"
    assert played.report["outcome"] == "auth_error"
    assert outcomes(played.report) == {"accepted_first": 2, "fallback_records": 58}
    assert played.report["not_started"] == 0
    codes = [event.payload["code"] for event in played.of("FallbackApplied")]
    assert codes.count("auth_error") >= 1
    assert codes.count("not_sent") + codes.count("auth_error") == 58
    assert all(e.payload["turn"] is None for e in played.of("FallbackApplied") if e.payload["code"] == "not_sent")
    assert len(played.sent) <= 2 + 4


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_what_is_not_tried_again_is_called_once(ledger_url: str, status: int) -> None:
    played = await play(ledger_url, [a_request()], refusal(status))
    assert played.story() == "RS RA IC MCS MCF FA RC"
    assert played.results[0]["error"] == f"http_{status}"


async def test_twenty_failures_in_a_row_stop_the_run_which_can_be_resumed(ledger_url: str) -> None:
    requests = [a_request(n) for n in range(1, 41)]
    played = await play(ledger_url, requests, refusal(503, NO_DELAY), max_attempts=1)
    assert played.outcome.state == "incomplete"
    assert played.outcome.stopped_by == "twenty_failures"
    assert len(played.sent) == 20
    assert outcomes(played.report) == {"fallback_records": 20, "not_started": 20}
    async with raw_server(completion()) as server:
        with open_ledger(ledger_url, "write") as store:
            # A resume goes by the recorded endpoint, which is gone by now: it fails closed, and says so.
            outcome = await resume_run(store, "played", ResumeOverrides("tester", api_key="key-for-tests"))
            assert outcome.answered == 0
        assert server.requests == []


async def test_a_stop_awaits_the_replies_in_flight_and_a_resume_calls_only_the_rest(ledger_url: str) -> None:
    stop = StopSignal()

    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not stop.requested:
            stop.request()
        await asyncio.sleep(0.3)
        writer.write(completion())

    async with raw_server(slowly, slowly, completion()) as server:
        with open_ledger(ledger_url, "create") as store:
            plan = a_plan(server.base_url, concurrency=2)
            file = io.BytesIO(lines_of([a_request(n) for n in range(1, 6)]))
            stopped = await start_run(store, file, plan, stop=stop)
            first = read_back(ledger_url, stopped, [])
            resumed = await resume_run(store, "played", ResumeOverrides("second", api_key="key-for-tests"))
        assert stopped.state == "incomplete"
        assert stopped.stopped_by == "SIGINT"
        assert outcomes(first.report)["not_started"] >= 3
        assert resumed.state == "completed"
        assert len(server.requests) == 5
    played = read_back(ledger_url, resumed, [])
    assert played.of("RunResumed")[0].payload == {"actor": "second", "outcomes_unknown": 0}
    assert outcomes(played.report) == {"accepted_first": 5}


async def test_a_second_stop_ends_at_once_and_leaves_the_call_open_until_the_resume(ledger_url: str) -> None:
    stop = StopSignal()

    async def hang(*_: object) -> None:
        stop.request()
        stop.request()
        await asyncio.sleep(60)

    async with raw_server(hang, completion()) as server:
        with open_ledger(ledger_url, "create") as store:
            plan = a_plan(server.base_url, attempt_timeout="50")
            stopped = await asyncio.wait_for(start_run(store, io.BytesIO(lines_of([a_request()])), plan, stop=stop), 10)
            assert stopped.state == "incomplete"
            assert read_back(ledger_url, stopped, []).story() == "RS RA IC MCS"
            resumed = await resume_run(store, "played", ResumeOverrides("tester", api_key="key-for-tests"))
    played = read_back(ledger_url, resumed, [])
    assert played.story() == "RS RA IC MCS RR+ MCF MCS MC OA RC"
    failed = played.of("ModelCallFailed")[0].payload
    assert (failed["code"], failed["outcome_unknown"], failed["duration_us"]) == ("outcome_unknown", True, None)
    assert played.results[0]["trace_complete"] is False
    assert played.results[0]["first_error"] == "outcome_unknown"


async def test_a_file_cut_short_at_intake_is_resumed_with_the_same_file_only(ledger_url: str) -> None:
    requests = [a_request(n) for n in range(1, 301)]
    requests[5] = a_request(2)
    stop = StopSignal()
    stop.request()
    async with raw_server(completion()) as server:
        with open_ledger(ledger_url, "create") as store:
            plan = a_plan(server.base_url, on_invalid="reject", concurrency=8)
            await start_run(store, io.BytesIO(lines_of(requests)), plan, stop=stop)
            recorded = [event for event in store.events("played") if isinstance(event, Event)]
            assert "IC" not in story(recorded).split()
            again = ResumeOverrides("tester", api_key="key-for-tests")
            with pytest.raises(RunError, match="give the file again"):
                await resume_run(store, "played", again)
            other = [a_request(n, user_prompt="something else") for n in range(1, 301)]
            with pytest.raises(InputDiffers, match="line 1 "):
                await resume_run(store, "played", again, io.BytesIO(lines_of(other)))
            with pytest.raises(InputDiffers, match="ends before"):
                await resume_run(store, "played", again, io.BytesIO(lines_of(requests[:3])))
            resumed = await resume_run(store, "played", again, io.BytesIO(lines_of(requests)))
    played = read_back(ledger_url, resumed, [])
    completed = played.of("IntakeCompleted")[0].payload
    assert (completed["lines"], completed["accepted"], completed["rejected"]) == (300, 299, 1)
    assert outcomes(played.report) == {"accepted_first": 299, "rejected": 1}


async def test_an_abandoned_run_is_over_for_good(ledger_url: str) -> None:
    stop = StopSignal()

    async def hang(*_: object) -> None:
        stop.request()
        stop.request()
        await asyncio.sleep(60)

    async with raw_server(hang) as server:
        with open_ledger(ledger_url, "create") as store:
            lines = io.BytesIO(lines_of([a_request(1), a_request(2)]))
            stopped = await start_run(store, lines, a_plan(server.base_url, attempt_timeout="50"), stop=stop)
            counts = abandon_run(store, "played", reason="superseded", actor="tester", note="another model is used")
            assert (counts.incomplete, counts.not_started) == (1, 1)
            with pytest.raises(RunEnded):
                abandon_run(store, "played", reason="superseded", actor="tester")
            with pytest.raises(RunEnded):
                await resume_run(store, "played", ResumeOverrides("tester", api_key="key-for-tests"))
    played = read_back(ledger_url, stopped, [])
    assert played.story() == "RS RA RA IC MCS MCF RX"
    assert played.report["outcome"] == "abandoned"
    assert outcomes(played.report) == {"incomplete": 1, "not_started": 1}


async def test_a_run_id_that_the_ledger_has_is_refused_with_the_commands_to_type(ledger_url: str) -> None:
    await play(ledger_url, [a_request()], completion())
    with pytest.raises(RunExists, match=r"replay-ledger resume played.*--run-id"):
        await play(ledger_url, [a_request()], completion())
    other = await play(ledger_url, [a_request()], completion(), run_id="another")
    assert other.outcome.state == "completed"


async def test_a_file_without_a_valid_line_records_nothing(ledger_url: str) -> None:
    for content in ([], [b"\n\n"], [b"nonsense", b"{}"]):
        with pytest.raises(NoValidLine):
            await play(ledger_url, content, completion())
    with open_ledger(ledger_url, "read") as store:
        assert store.head().size == 1


async def test_a_resume_without_the_key_records_nothing(ledger_url: str) -> None:
    stop = StopSignal()
    stop.request()
    async with raw_server(completion()) as server:
        with open_ledger(ledger_url, "create") as store:
            await start_run(store, io.BytesIO(lines_of([a_request()])), a_plan(server.base_url), stop=stop)
            size = store.head().size
            with pytest.raises(KeyMissing):
                await resume_run(store, "played", ResumeOverrides("tester"))
            assert store.head().size == size


async def test_the_key_is_nowhere_in_the_ledger_though_the_server_echoes_it(ledger_url: str) -> None:
    key = "sekret-0123456789abcdef"
    echo = completion(json.dumps(ANSWER | {"proposed_action": f"use {key}"}))
    error = refusal(503, NO_DELAY, f"X-Echo: {key}", body=f'{{"error":"bad key {key}"}}'.encode())
    played = await play(ledger_url, [a_request()], error, echo, api_key=key)
    assert played.outcome.state == "completed"
    assert played.of("ModelCalled")[0].payload["scrubbed"] == 1
    texts = [*played.contents.values(), json.dumps(played.results).encode(), json.dumps(played.report).encode()]
    assert all(key.encode() not in text for text in texts)
    assert all(key not in json.dumps(event.payload) for event in played.events)


async def test_a_selection_takes_its_lines_and_guards_the_rest(ledger_url: str) -> None:
    requests = [a_request(1), a_request(2), b"nonsense", a_request(4), a_request(5, **LEAKING)]
    played = await play(ledger_url, requests, completion(), limit="1-2", on_leak="reject")
    assert played.story() == "RS RA RA LR IC MCS MC OA MCS MC OA RC"
    payload = played.of("IntakeCompleted")[0].payload
    assert (payload["lines"], payload["accepted"], payload["selection"]) == (5, 2, {"limit": "1-2"})


async def test_a_sample_is_the_same_for_the_same_seed(ledger_url: str) -> None:
    requests = [a_request(n) for n in range(1, 101)]
    drawn = []
    for run_id in ("one", "two"):
        played = await play(ledger_url, requests, completion(), run_id=run_id, sample=7, sample_seed=3)
        drawn.append([event.request_id for event in played.of("RequestAccepted")])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 7


def test_a_dry_run_needs_no_key_network_or_ledger() -> None:
    lines = lines_of([a_request(1), a_request(2), a_request(1), b"nonsense", a_request(5, **LEAKING)])
    plan = a_plan("http://127.0.0.1:9/v1", api_key=None, on_leak="reject", on_invalid="reject")
    tried = dry_run(io.BytesIO(lines), plan)
    assert (tried.lines, tried.accepted, tried.faults.rejected, tried.faults.leaking) == (5, 2, 2, 1)
    assert tried.first_body is not None
    assert json.loads(tried.first_body)["model"] == "test-model"
    assert tried.max_calls == 2 * 2 * 3


async def test_a_report_as_of_an_earlier_position_is_the_report_of_that_moment(ledger_url: str) -> None:
    played = await play(ledger_url, [a_request(1), a_request(2)], completion())
    first_result = played.of("OutputAccepted")[0].position
    with open_ledger(ledger_url, "read") as store:
        then = report(store, "played", as_of=first_result)
    assert then["outcome"] == "incomplete"
    assert outcomes(then) == {"accepted_first": 1, "not_started": 1}
    assert then["as_of"]["position"] == first_result


async def test_a_line_that_holds_our_own_key_is_neither_recorded_nor_sent(ledger_url: str) -> None:
    key = "sekret-0123456789abcdef"
    requests = [a_request(1), a_request(2, user_prompt=f'curl -H "Authorization: Bearer {key}"')]
    async with raw_server(completion()) as server:
        with open_ledger(ledger_url, "create") as store:
            with pytest.raises(KeyInInput, match="line 2 holds the API key") as refused:
                await start_run(store, io.BytesIO(lines_of(requests)), a_plan(server.base_url, api_key=key))
            assert key not in str(refused.value)
            events = [event for event in store.events() if isinstance(event, Event)]
            contents = store.contents([event.position for event in events])
        assert server.requests == []
    assert all(key.encode() not in content for content in contents.values())


async def test_a_changed_file_given_to_a_resume_is_refused_though_its_intake_was_complete(ledger_url: str) -> None:
    stop = StopSignal()

    async def last_one(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stop.request()
        writer.write(completion())

    requests = [a_request(n) for n in range(1, 5)]
    again = ResumeOverrides("tester", api_key="key-for-tests")
    async with raw_server(last_one, completion()) as server:
        with open_ledger(ledger_url, "create") as store:
            await start_run(store, io.BytesIO(lines_of(requests)), a_plan(server.base_url), stop=stop)
            changed = [*requests[:3], a_request(4, user_prompt="something else")]
            with pytest.raises(InputDiffers, match="not the one that was recorded"):
                await resume_run(store, "played", again, io.BytesIO(lines_of(changed)))
            resumed = await resume_run(store, "played", again, io.BytesIO(lines_of(requests)))
    assert resumed.state == "completed"


async def test_a_request_id_that_no_line_has_is_told(ledger_url: str) -> None:
    requests = [a_request(1), a_request(2)]
    played = await play(ledger_url, requests, completion(), request_ids=("INC-2", "INC-9"))
    assert played.outcome.warnings == ("no line has the request id INC-9 that was asked for",)
    plan = a_plan("http://127.0.0.1:9/v1", api_key=None, request_ids=("INC-2", "INC-9"))
    assert dry_run(io.BytesIO(lines_of(requests)), plan).unmatched == ("INC-9",)


async def test_what_cannot_be_searched_is_not_said_to_hold_labels(ledger_url: str) -> None:
    opaque = a_request(1, incident_context={"dump": "QUJD" * 30_000 + "!!!!"})
    played = await play(ledger_url, [opaque, a_request(2)], completion(), on_leak="reject")
    (fault,) = played.outcome.faults.kept
    assert "cannot be searched for evaluation labels" in fault.message
