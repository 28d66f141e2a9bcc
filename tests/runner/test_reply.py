from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.codes import lookup
from runner.contract import Accepted, Broken, Contract, judge
from runner.reply import CallFailure, Exchange, Reply, TransportFault, classify
from tests.runner.asked import ANSWER, completion, exchange, reply

KEY = "sk-" + "a1B2" * 8


def failure(body: bytes, **members: Any) -> CallFailure:
    told = classify(exchange(body, **members))
    assert isinstance(told, CallFailure), told
    return told


def choice_of(message: Any, **members: Any) -> bytes:
    return json.dumps({"choices": [{"finish_reason": "stop", "message": message, **members}]}).encode()


@given(st.binary(max_size=300), st.none() | st.integers(100, 999), st.booleans())
def test_any_bytes_are_a_reply_or_a_failure_with_a_known_code(body: bytes, status: int | None, truncated: bool) -> None:
    told = classify(exchange(body, status=status, truncated=truncated))
    if isinstance(told, CallFailure):
        assert lookup(told.code)
    else:
        assert isinstance(judge(told, Contract()), (Accepted, Broken))


envelopes = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["stop", "text", "length", "{}", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "error", "usage", "type", "text", "finish_reason", "id", "refusal"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(envelopes)
def test_any_json_is_a_reply_or_a_failure(envelope: object) -> None:
    told = classify(exchange(json.dumps(envelope).encode()))
    assert isinstance(told, (Reply, CallFailure))


@given(envelopes)
def test_any_message_is_a_reply_or_a_failure(message: object) -> None:
    told = classify(exchange(choice_of(message)))
    assert isinstance(told, (Reply, CallFailure))


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (401, "auth_error", False),
        (403, "auth_error", False),
        (429, "rate_limited", True),
        (301, "unexpected_redirect", False),
        (307, "unexpected_redirect", False),
        (304, "unexpected_redirect", False),
        (400, "http_400", False),
        (404, "http_404", False),
        (422, "http_422", False),
        (408, "http_408", True),
        (409, "http_409", True),
        (500, "http_500", True),
        (503, "http_503", True),
        (204, "http_204", False),
    ],
)
def test_the_status_is_looked_at_before_the_body(status: int, code: str, retryable: bool) -> None:
    told = failure(completion(json.dumps(ANSWER)), status=status, retry_after_ms=1500)
    assert (told.code, told.retryable, told.http_status, told.retry_after_ms) == (code, retryable, status, 1500)
    assert told.stops_run is (code == "auth_error")
    assert not told.outcome_unknown


def test_a_status_that_a_callers_client_does_not_tell_is_fine() -> None:
    assert isinstance(classify(exchange(completion("x"), status=None)), Reply)


@pytest.mark.parametrize(
    ("code", "unknown"), [("transport_connect", False), ("transport_timeout", True), ("transport_cut", True)]
)
def test_a_transport_fault_is_tried_again(code: Any, unknown: bool) -> None:
    told = classify(TransportFault(code=code, outcome_unknown=unknown, detail="no answer", duration_us=5))
    assert isinstance(told, CallFailure)
    assert (told.code, told.retryable, told.outcome_unknown, told.duration_us) == (code, True, unknown, 5)
    assert told.content == b"no answer"


@pytest.mark.parametrize("choices", [{"choices": None}, {}, {"choices": []}])
def test_no_choices_is_a_failure_of_its_own(choices: dict[str, Any]) -> None:
    told = failure(json.dumps({"id": "x", **choices}).encode())
    assert (told.code, told.retryable) == ("no_choices", True)


@pytest.mark.parametrize(
    "envelope",
    [
        {"choices": None, "error": {"message": "upstream busy", "code": 429}},
        {"error": "busy"},
        {"choices": [{"error": {"code": 502}, "finish_reason": "error", "message": {"content": "{}"}}]},
    ],
)
def test_an_error_object_inside_a_200_is_the_providers(envelope: dict[str, Any]) -> None:
    told = failure(json.dumps(envelope).encode())
    assert (told.code, told.retryable) == ("provider_error", True)
    assert told.content.endswith(json.dumps(envelope).encode())


@pytest.mark.parametrize("error", [None, {}, ""])
def test_an_empty_error_member_is_none(error: object) -> None:
    assert reply("x", error=error).content == "x"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"ok",
        b"[]",
        b'"text"',
        b'{"choices":{}}',
        b'{"choices":[1]}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":null}]}',
        b'{"choices":[{"message":{"content":{"a":1}}}]}',
        b'{"choices":[{"message":{"content":"x"}}],"choices":[]}',
        b'{"choices":[{"message":{"content":"x"}}],"usage":NaN}',
        b'{"choices":' + b"[" * 100 + b"]" * 100 + b"}",
        '{"choices":[{"message":{"content":"café"}}]}'.encode("latin-1"),
        completion("x")[:-5],
    ],
)
def test_a_body_that_is_no_chat_completion_is_a_bad_envelope(body: bytes) -> None:
    told = failure(body)
    assert (told.code, told.retryable) == ("bad_envelope", True)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html><h1>hello</h1></html>", "text/html"),
        (b"\n <!doctype html>", None),
        (b"maintenance", "text/html; charset=utf-8"),
        (b'data: {"choices":[]}\n\n', None),
        (b": ping\n\ndata: {}\n\n", "text/event-stream"),
        (b"event: x\ndata: y\n\n", "application/json"),
    ],
)
def test_html_and_event_streams_in_a_200_are_not_tried_again(body: bytes, content_type: str | None) -> None:
    for truncated in (False, True):
        told = failure(body, content_type=content_type, truncated=truncated)
        assert (told.code, told.retryable) == ("not_json_response", False)


def test_json_by_a_wrong_name_is_read_all_the_same() -> None:
    assert isinstance(classify(exchange(completion("x"), content_type="text/html")), Reply)
    assert isinstance(classify(exchange(b"\xef\xbb\xbf" + completion("x"), content_type=None)), Reply)


def test_a_body_over_the_ceiling_is_a_broken_answer_and_no_transport_fault() -> None:
    body = completion("restart " * 1000)[:4000]
    told = classify(exchange(body, truncated=True, body_bytes=20_000_000))
    assert isinstance(told, Reply)
    assert told.oversized
    assert judge(told, Contract()) == Broken("model_output_too_large", (), ("The answer was far too long.",))


def test_text_parts_are_joined_and_other_parts_never_read() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]},
        {"type": "text", "text": "a"},
        {"type": "text", "text": 5},
        {"type": "future_part", "text": "no"},
        "stray",
        {"type": "text", "text": "b"},
    ]
    told = reply(parts)
    assert (told.content, told.parts_joined) == ("ab", True)
    assert reply([]).content is None
    assert reply([{"type": "thinking", "text": "x"}]).content is None


@pytest.mark.parametrize("refusal", ["I cannot", {"reason": "policy"}])
def test_a_refusal_is_seen(refusal: object) -> None:
    told = classify(exchange(choice_of({"content": json.dumps(ANSWER), "refusal": refusal})))
    assert isinstance(told, Reply)
    assert told.refused


def test_a_refusal_part_is_seen() -> None:
    assert reply([{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "{}"}]).refused


def test_an_absent_refusal_is_none() -> None:
    told = classify(exchange(choice_of({"content": "x", "refusal": None, "tool_calls": []})))
    assert isinstance(told, Reply)
    assert not told.refused
    assert not told.tool_call


def test_the_facts_of_a_plain_reply() -> None:
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 40,
        "total_tokens": 160,
        "prompt_tokens_details": {"cached_tokens": 7},
        "completion_tokens_details": {"reasoning_tokens": 9},
    }
    told = reply("x", usage=usage, system_fingerprint="fp_1")
    assert (told.response_id, told.model, told.finish_reason, told.system_fingerprint) == (
        "chatcmpl-1",
        "test-model",
        "stop",
        "fp_1",
    )
    assert not told.odd_metadata
    counts = (told.prompt_tokens, told.completion_tokens, told.total_tokens, told.cached_tokens, told.reasoning_tokens)
    assert counts == (120, 40, 160, 7, 9)


@pytest.mark.parametrize("count", [None, True, False, -1, 1.0, "5", 2**53, [], {}])
def test_a_count_that_is_no_count_is_unknown_and_never_zero(count: object) -> None:
    told = reply(
        "x", usage={"prompt_tokens": count, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": count}}
    )
    assert (told.prompt_tokens, told.completion_tokens, told.cached_tokens) == (None, 40, None)


@pytest.mark.parametrize("usage", [None, [], "many", 5, {"prompt_tokens_details": None}, {"prompt_tokens_details": []}])
def test_usage_of_any_shape_does_no_harm(usage: object) -> None:
    told = reply("x", usage=usage)
    assert told.prompt_tokens is None
    assert told.cached_tokens is None


@pytest.mark.parametrize(
    "model", ["two words", "é", "x" * 201, "", "a\nb", "a\n", 5, ["m"], f"model-{KEY}", "\x1b[31mred"]
)
def test_text_of_others_that_may_not_be_recorded_is_null_and_marked_odd(model: object) -> None:
    told = reply("x", model=model)
    assert told.model is None
    assert told.odd_metadata


def test_absent_text_of_others_is_not_odd() -> None:
    told = classify(exchange(choice_of({"content": "x"}, finish_reason=None)))
    assert isinstance(told, Reply)
    assert not told.odd_metadata
    assert told.finish_reason is None


def test_an_odd_finish_reason_still_decides() -> None:
    told = reply("{}", finish_reason="any other reason")
    assert told.finish_reason is None
    assert told.odd_metadata
    assert told.stop_reason == "any other reason"


def test_a_lone_surrogate_in_the_content_reaches_the_judge_and_no_encoder() -> None:
    body = b'{"id":"\\ud83d","choices":[{"message":{"content":"{\\"a\\":\\"\\ud83d\\"}"}}]}'
    told = classify(exchange(body))
    assert isinstance(told, Reply)
    assert told.response_id is None
    assert told.odd_metadata
    verdict = judge(told, Contract())
    assert isinstance(verdict, Broken)
    assert verdict.code == "model_output_invalid_unicode"


def test_what_is_kept_of_a_failure_is_bounded() -> None:
    told = failure(b"x" * 1_000_000, status=500)
    assert len(told.content) < 70_000


def test_the_detail_holds_no_content_type_that_is_not_plain() -> None:
    told = failure(b"", status=500, content_type="text/\x1b[31mred")
    assert "\x1b" not in told.detail


def test_an_exchange_is_frozen() -> None:
    made = exchange(b"")
    assert isinstance(made, Exchange)
    with pytest.raises(AttributeError):
        made.body = b"other"  # type: ignore[misc]
