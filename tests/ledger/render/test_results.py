"""Results as JSON lines, CSV and a table: from hand-made results, hostile ones among them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from ledger.render import results_csv, results_jsonl, results_table

USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "cached_tokens": None, "reasoning_tokens": 0}
REPLY = {
    "attempt": 1,
    "turn": 1,
    "http_status": 200,
    "finish_reason": "stop",
    "model": "example-model",
    "response_id": "chatcmpl-1",
    "usage": USAGE,
    "duration_us": 20_000,
}


def result(
    action: str | None = "rollout restart", added: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """A result as ``ledger.projections.results`` gives them."""
    output: dict[str, Any] = {
        "proposed_action": action,
        "action_plan": None if action is None else ["inspect", "restart"],
        "risk_level": "medium",
        "requires_human_approval": True,
        "blocked_by_policy": False,
        **(added or {}),
    }
    return {
        "schema_version": "agent_nemotron_external_result_v1",
        "run_id": "run-1",
        "request_id": "INC-1",
        "incident_id": "INC-1",
        "candidate_id": "nemo_nemotron_fabric",
        "candidate_variant_id": None,
        "model": "example-model",
        "model_output": output,
        "error": None,
        "first_error": None,
        "retry_used": False,
        "fallback_used": False,
        "trace_complete": True,
        "allowances": [],
        "redacted": False,
        "trace_events": [REPLY],
        **changes,
    }


def rows_of(*results: dict[str, Any]) -> list[dict[str, str]]:
    text = b"".join(results_csv.render(results)).decode("utf-8")
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_a_json_line_is_canonical_and_keeps_every_digit_of_an_integer() -> None:
    (line,) = results_jsonl.render([result(added={"ticket": 9_223_372_036_854_775_807})])
    assert line.endswith(b"}\n")
    assert line.startswith(b'{"allowances":[],"candidate_id"')
    assert b'"ticket":9223372036854775807' in line


def test_the_header_names_the_columns_and_numbers_and_flags_stay_as_they_are() -> None:
    (row,) = rows_of(result(action="-2+3", added={"delta": -3}, trace_events=[REPLY, REPLY]))
    assert tuple(row) == results_csv.COLUMNS
    assert row["proposed_action"] == "'-2+3"
    assert (row["prompt_tokens"], row["reasoning_tokens"], row["duration_us"]) == ("20", "0", "40000")
    assert (row["cached_tokens"], row["error"]) == ("", "")
    assert (row["requires_human_approval"], row["blocked_by_policy"]) == ("true", "false")
    assert row["added_fields"] == '{"delta":-3}'
    assert json.loads(row["action_plan"]) == ["inspect", "restart"]


def test_a_token_count_that_one_reply_did_not_give_leaves_the_sum_unknown() -> None:
    silent = {**REPLY, "usage": {**USAGE, "prompt_tokens": None}}
    (row,) = rows_of(result(trace_events=[REPLY, silent]))
    assert (row["prompt_tokens"], row["completion_tokens"], row["replies"]) == ("", "40", "2")


def test_a_request_without_a_reply_has_no_tokens_and_no_duration() -> None:
    (row,) = rows_of(result(trace_events=[]))
    assert (row["replies"], row["prompt_tokens"], row["duration_us"]) == ("0", "", "")


def test_quotes_commas_and_line_breaks_of_a_model_stay_in_their_cell() -> None:
    action = 'say "hi", then\r\nstop'
    (row,) = rows_of(result(action=action))
    assert row["proposed_action"] == action
    assert list(rows_of(result(action="a"), result(action="b"))[1].values()).count("b") == 1


def test_a_redacted_text_is_an_empty_cell_and_marked_in_the_table() -> None:
    redacted = result(action=None, redacted=True)
    (row,) = rows_of(redacted)
    assert (row["proposed_action"], row["action_plan"], row["redacted"]) == ("", "", "true")
    assert "[redacted]" in "".join(results_table.render([redacted]))


def test_a_table_holds_one_line_a_result_whatever_the_model_wrote() -> None:
    hostile = result(action="\x1b[2J\nfake row  accepted\u202e" + "x" * 300)
    lines = list(results_table.render([hostile, result(fallback_used=True, error="http_503", request_id="INC-22")]))
    assert len(lines) == 3
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    assert r"\x1b[2J\nfake row" in lines[1]
    assert "more characters]" in lines[1]
    assert lines[2].split()[:2] == ["INC-22", "fallback"]


def test_columns_of_a_table_stand_under_their_heads_whatever_the_width_of_a_character() -> None:
    lines = list(results_table.render([result(action="日本"), result(request_id="a-much-longer-request-id")]))
    assert lines[1].index("accepted") == lines[2].index("accepted") == lines[0].index("RESULT")


def test_a_table_is_written_as_results_come_after_the_first_two_hundred() -> None:
    taken = 0

    def many() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield result()

    lines = results_table.render(many())
    assert next(lines).startswith("REQUEST")
    assert taken == 200
    assert sum(1 for _ in lines) == 1000
