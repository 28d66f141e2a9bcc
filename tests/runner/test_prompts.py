from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from ledger.integrity.canonical import encode_keeping_integers
from runner import sent_json
from runner.contract import Broken, judge
from runner.prompts import (
    BASELINE,
    CONTRACT_TUNED,
    MAX_QUOTE_BYTES,
    RESERVED_MEMBERS,
    VARIANTS,
    UnknownVariant,
    check_options,
    first_body,
    messages,
    retry_body,
    variant_for,
    variant_named,
)
from runner.reply import Reply
from runner.requests import ReplayRequest, parse_line
from runner.settings import RunSettings
from tests.runner.asked import request

EXAMPLE = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "ledger_example" / "events.jsonl"
PLAIN = RunSettings()


def body(settings: RunSettings = PLAIN, **members: Any) -> dict[str, Any]:
    sent = first_body(request(**members), CONTRACT_TUNED, "test-model", settings)
    told: dict[str, Any] = json.loads(sent)
    assert rfc8785.dumps(told) == sent
    return told


def second_text(content: str | None, quote: str | None, **members: Any) -> str:
    asked = request(**members)
    broken = judge(Reply(content=content), asked.contract)
    assert isinstance(broken, Broken)
    sent = json.loads(retry_body(asked, CONTRACT_TUNED, "test-model", PLAIN, broken, quote))
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    text: str = sent["messages"][1]["content"]
    first: str = messages(asked, CONTRACT_TUNED)[1]["content"]
    assert text.startswith(first)
    return text.removeprefix(first)


@pytest.mark.skipif(not EXAMPLE.exists(), reason="other people's vectors are not at hand")
def test_the_baseline_body_is_that_of_the_example_ledger() -> None:
    events = [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if line]
    accepted = next(event for event in events if event["envelope"]["type"] == "RequestAccepted")
    started = next(event for event in events if event["envelope"]["type"] == "ModelCallStarted")
    asked = parse_line(accepted["payload"]["line"], accepted["content"].encode())
    assert isinstance(asked, ReplayRequest)
    sent = first_body(asked, BASELINE, "example-model", PLAIN)
    assert sent == started["content"].encode()
    assert len(sent) == started["payload"]["body_bytes"]


def test_the_baseline_sends_two_messages_and_nothing_else() -> None:
    asked = request(tuned=False, incident_context={"b": 1, "a": [0.5, 9007199254740993, "é"]})
    assert messages(asked, BASELINE) == [
        {"role": "system", "content": "Return JSON."},
        {
            "role": "user",
            "content": 'What should be done?\n\nINCIDENT CONTEXT (JSON):\n{"a":[0.5,9007199254740993,"é"],"b":1}',
        },
    ]
    assert json.loads(first_body(asked, BASELINE, "m", PLAIN)).keys() == {"messages", "model", "stream"}


def test_braces_and_placeholders_in_prompts_are_sent_as_they_are() -> None:
    asked = request(user_prompt="{contract} {0} {{x}} %s", incident_context={"q": "{user_prompt}"})
    text = messages(asked, CONTRACT_TUNED)[1]["content"]
    assert text.startswith('{contract} {0} {{x}} %s\n\nINCIDENT CONTEXT (JSON):\n{"q":"{user_prompt}"}\n\n')


def test_the_tuned_variant_adds_the_exact_contract() -> None:
    asked = request(
        response_contract={
            "properties": {
                "ticket": {"type": "string"},
                "team": {"enum": ["sre", "dba"]},
                "risk_level": {"const": "low"},
            },
            "required": ["ticket"],
        }
    )
    section = messages(asked, CONTRACT_TUNED)[1]["content"].partition("\n\nEXACT JSON CONTRACT\n")[2]
    for line in (
        "- proposed_action: non-empty string",
        "- action_plan: list of strings",
        '- risk_level: "low"',
        "- requires_human_approval: true or false",
        "- blocked_by_policy: true or false",
        "- ticket: string",
        '- team (optional): one of "sre", "dba"',
    ):
        assert line in section.splitlines()
    assert "exactly one JSON object" in section


def test_only_what_was_given_is_sent() -> None:
    settings = RunSettings(
        temperature="0.2",
        top_p="1",
        max_tokens=256,
        max_tokens_field="max_completion_tokens",
        seed=7,
        stop=("END",),
        reasoning_effort="low",
        response_format="json_object",
        extra_body={"nvext": {"guided": True}, "é": 1},
        concurrency=3,
        rpm=60,
    )
    told = body(settings)
    del told["messages"]
    assert told == {
        "model": "test-model",
        "stream": False,
        "temperature": 0.2,
        "top_p": 1,
        "max_completion_tokens": 256,
        "seed": 7,
        "stop": ["END"],
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "nvext": {"guided": True},
        "é": 1,
    }


def test_a_json_schema_is_sent_strict_and_whole() -> None:
    told = body(
        RunSettings(response_format="json_schema"), response_contract={"properties": {"ticket": {"type": "string"}}}
    )
    sent = told["response_format"]["json_schema"]
    assert sent["strict"] is True
    assert sent["schema"]["required"][-1] == "ticket"
    assert sent["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("member", sorted(RESERVED_MEMBERS))
def test_the_extra_body_cannot_change_what_is_asked(member: str) -> None:
    with pytest.raises(ValueError, match=member):
        check_options(RunSettings(extra_body={member: None}))


def test_an_option_is_not_given_twice() -> None:
    with pytest.raises(ValueError, match="seed"):
        check_options(RunSettings(seed=1, extra_body={"seed": 2}))
    check_options(RunSettings(seed=1, extra_body={"top_k": 2}))


def test_a_temperature_that_no_json_number_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        check_options(RunSettings(temperature="1" + "0" * 400))


# --- turn 2 --------------------------------------------------------------------------------


def test_the_correction_names_fields_and_allowed_values_and_quotes_the_answer() -> None:
    answer = '{"risk_level": "High"}'
    section = second_text(answer, answer)
    assert "Previous model output was invalid: model_output_missing_fields:proposed_action" in section
    assert "Fields at fault: proposed_action, action_plan, requires_human_approval, blocked_by_policy" in section
    assert '- risk_level: one of "low", "medium", "high", "critical"' in section
    assert answer in section


def test_an_answer_that_is_no_json_has_the_allowed_values_told_all_the_same() -> None:
    section = second_text("rubbish", "rubbish")
    assert all(level in section for level in ("low", "medium", "high", "critical"))
    assert "rubbish" in section


@pytest.mark.parametrize("quote", [None, "", " \n"])
def test_nothing_is_quoted_where_there_is_nothing(quote: str | None) -> None:
    section = second_text(None, quote)
    assert "<<<" not in section
    assert "The answer was empty." in section


def test_thinking_is_not_quoted_where_the_answer_can_be_told_from_it() -> None:
    section = second_text("x", "<think>at length</think>the answer")
    assert "at length" not in section
    assert "the answer" in section


@given(st.text(st.characters(), min_size=1, max_size=50), st.integers(1, 400))
def test_the_quote_is_at_most_two_kilobytes_cut_between_characters(piece: str, count: int) -> None:
    section = second_text("x", "q" + piece * count)
    quoted = section.partition("<<<\n")[2].rpartition("\n>>>")[0]
    assert quoted.startswith("q")
    assert len(quoted.encode("utf-8")) <= MAX_QUOTE_BYTES


def test_half_a_pair_and_the_null_character_are_quoted_as_replacement_characters() -> None:
    assert "a\ufffdb\ufffdc" in second_text("x", "a\ud83db\0c")


# --- variants ------------------------------------------------------------------------------


def test_variants_are_found_by_id_profile_and_name() -> None:
    assert variant_for(None) is variant_named("baseline") is BASELINE
    assert (
        variant_for("nemo_nemotron_fabric__contract_tuned_v1") is variant_named("contract_tuned_v1") is CONTRACT_TUNED
    )
    for variant in VARIANTS:
        assert variant_named(variant.override) is variant


def test_an_unknown_variant_is_an_error_that_lists_the_known() -> None:
    for find in (variant_for, variant_named):
        with pytest.raises(UnknownVariant, match="baseline"):
            find("nope")


def test_a_templates_text_does_not_change_without_its_version() -> None:
    """Runs record version and digest. A new text under an old version would make them lie."""
    assert {(v.override, v.template_version): v.template_sha256 for v in VARIANTS} == {
        ("baseline", 1): "faad927860b4d45025f90d4563ef96e91dd8b51f73d55df7b48ce8d1e652d05c",
        (
            "nemo_nemotron_fabric__contract_tuned_v1",
            1,
        ): "3cf7d8dabff1a3cc0a49b4fdc678507f40faf9116ec65d3b31fe4bf091e6fd04",
    }


# --- encoding ------------------------------------------------------------------------------

encodable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)


@given(encodable)
def test_the_fast_encoder_gives_the_canonical_bytes(value: object) -> None:
    try:
        canonical = encode_keeping_integers(value)
    except ValueError:
        with pytest.raises(ValueError, match="surrogate"):
            sent_json.encode(value)
    else:
        assert sent_json.encode(value) == canonical


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_fast_encoder_writes_every_fraction_canonically(value: float) -> None:
    assert sent_json.encode([value]) == rfc8785.dumps([value])
