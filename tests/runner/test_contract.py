from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.integrity.canonical import encode_keeping_integers
from runner.contract import RISK_LEVELS, Accepted, Broken, Contract, ContractError, judge
from runner.contract_schema import MAX_SUBSCHEMAS
from runner.reply import Reply
from tests.runner.asked import ANSWER, reply

FIVE = Contract()


def judged(content: str, contract: Contract = FIVE, **members: Any) -> Accepted | Broken:
    return judge(Reply(content=content, **members), contract)


def answer(**changes: Any) -> str:
    return json.dumps({**ANSWER, **changes})


def broken(content: str, contract: Contract = FIVE, **members: Any) -> Broken:
    verdict = judged(content, contract, **members)
    assert isinstance(verdict, Broken), verdict
    return verdict


def accepted(content: str, contract: Contract = FIVE, **members: Any) -> Accepted:
    verdict = judged(content, contract, **members)
    assert isinstance(verdict, Accepted), verdict
    return verdict


def keeps_the_five(output: dict[str, Any]) -> bool:
    return (
        isinstance(output["proposed_action"], str)
        and bool(output["proposed_action"].strip())
        and isinstance(output["action_plan"], list)
        and all(isinstance(step, str) for step in output["action_plan"])
        and output["risk_level"] in RISK_LEVELS
        and type(output["requires_human_approval"]) is bool
        and type(output["blocked_by_policy"]) is bool
    )


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["low", "High", "", " ", "true", "\ud83d", "\0", "ok"])
    | st.lists(st.sampled_from(["a", 1, None, ["b"]]), max_size=3)
)
objects = st.fixed_dictionaries(
    {}, optional={name: values | st.just(right) for name, right in ANSWER.items()} | {"ticket": values}
)


@given(objects, st.sampled_from(["{}", "```json\n{}\n```", "<think>x</think>{}", "Sure: {}", " {} ", "{}{}"]))
def test_an_accepted_output_always_keeps_the_five_fields_and_can_be_encoded(
    members: dict[str, Any], frame: str
) -> None:
    verdict = judged(frame.replace("{}", json.dumps(members)))
    if isinstance(verdict, Accepted):
        assert keeps_the_five(verdict.output)
        assert list(verdict.output) == list(ANSWER)
        encode_keeping_integers(verdict.output)
    else:
        assert verdict.code.startswith("model_output_")


@given(st.text(alphabet='{}[]":,<think>/`json \n\ud83d\x00\ufeff1e', max_size=120), st.booleans())
def test_any_text_is_accepted_or_broken(text: str, parts: bool) -> None:
    judged(text, parts_joined=parts)


def test_the_plain_answer_is_accepted_without_allowances() -> None:
    assert judged(answer()) == Accepted(ANSWER, ())


@pytest.mark.parametrize(
    ("before", "after", "allowances"),
    [
        (" \n", "\r\n\t", ("white_space",)),
        ("\ufeff", "", ("bom",)),
        ("<think>Restarts are safe.</think>", "", ("think",)),
        ("<ThInK>\nno\n</THINK>\n\n", "", ("think",)),
        ("```json\n", "\n```", ("fence",)),
        ("```\n", "\n```", ("fence",)),
        ("```JSON", "```", ("fence",)),
        ("\ufeff \n<think>{}</think>\n```json\r\n", "\r\n```\n", ("bom", "white_space", "think", "fence")),
    ],
)
def test_what_is_allowed_round_the_answer_is_taken_away_and_recorded(
    before: str, after: str, allowances: tuple[str, ...]
) -> None:
    assert judged(before + answer() + after) == Accepted(ANSWER, allowances)


def test_joined_text_parts_are_recorded() -> None:
    verdict = judge(
        reply([{"type": "text", "text": answer()[:20]}, {"type": "text", "text": answer()[20:] + "\n"}]), FIVE
    )
    assert verdict == Accepted(ANSWER, ("text_parts", "white_space"))


@pytest.mark.parametrize(
    "text",
    [
        "Here you are: " + answer(),
        answer() + "\nHope this helps!",
        answer() + answer(),
        answer() + "\n" + answer(blocked_by_policy=True),
        "```bash\nreboot\n```\n```json\n" + answer() + "\n```",
        "```json\n" + answer() + "\n```\n```json\n" + answer() + "\n```",
        "Sure!\n```json\n" + answer() + "\n```",
        "```json\n" + answer() + "\n```\nDone.",
        "```python\n" + answer() + "\n```",
        "````\n" + answer() + "\n````",
        "<think>maybe " + answer(),
        "<THINK>no end",
        "<think>a<think>b</think>" + answer(),
        "<think>a</think><think>b</think>" + answer(),
        "reasoning without a beginning</think>" + answer(),
        answer() + "<think>late</think>",
        "```json\n<think>x</think>" + answer() + "\n```",
        "\ufeff\ufeff" + answer(),
        "{thought} " + answer(),
        "[INC-204] " + answer(),
        '"quoted" ' + answer(),
    ],
)
def test_an_object_beside_something_else_is_ambiguous(text: str) -> None:
    assert broken(text).code == "model_output_ambiguous"


@pytest.mark.parametrize(
    "text",
    [
        "I would restart the pod.",
        answer()[:-1],
        answer()[:40],
        "{'proposed_action': 'x', 'blocked_by_policy': False,}",
        "{\u201cproposed_action\u201d:\u201crestart\u201d}",
        answer()[:-1] + ',"risk_level":"low"}',
        answer()[:-1] + ',"x":NaN}',
        answer()[:-1] + ',"x":1e999}',
        answer()[:-1] + ',"x":9223372036854775808}',
        answer()[:-1] + ',"x":' + "9" * 5000 + "}",
        answer()[:-1] + ',"x":{"a":1,"a":1}}',
        answer()[:-1] + ",}",
        "yes",
        "// comment",
        "\u00a0" + "rubbish",
    ],
)
def test_what_is_no_json_and_no_object_beside_another_is_invalid(text: str) -> None:
    assert broken(text).code == "model_output_invalid_json"


@pytest.mark.parametrize("text", ["[]", "[" + answer() + "]", '"text"', "5", "null", "true", json.dumps(answer())])
def test_a_top_level_value_that_is_no_object_is_refused(text: str) -> None:
    assert broken(text).code == "model_output_not_object"


@pytest.mark.parametrize(
    "text", ["", " \n", "\u3000", "\ufeff", "<think>only thought</think>", "```json\n```", "``````"]
)
def test_an_answer_without_text_is_empty(text: str) -> None:
    assert broken(text).code == "model_output_empty"


def test_no_content_is_empty() -> None:
    assert judge(Reply(content=None), FIVE) == Broken("model_output_empty", (), ("The answer was empty.",))


@pytest.mark.parametrize(
    "text", [answer(proposed_action="a\0b"), answer()[:-1] + r',"\ud83d":1}', "\ud83d" + answer(), "\0"]
)
def test_half_of_a_pair_and_the_null_character_are_invalid_unicode(text: str) -> None:
    assert broken(text).code == "model_output_invalid_unicode"


def test_deep_nesting_is_a_code_of_its_own() -> None:
    assert broken(answer(action_plan=0).replace("0", "[" * 70 + "]" * 70)).code == "model_output_too_deep"
    assert broken("[" * 500_000).code == "model_output_too_deep"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"stop_reason": "length"}, "truncated"),
        ({"stop_reason": "length", "refused": True}, "truncated"),
        ({"stop_reason": "content_filter"}, "refused"),
        ({"refused": True}, "refused"),
        ({"stop_reason": "tool_calls"}, "empty"),
        ({"stop_reason": "function_call"}, "empty"),
        ({"oversized": True}, "too_large"),
        ({"choices": 2}, "ambiguous"),
    ],
)
def test_finish_reason_refusal_and_size_come_before_the_text(members: dict[str, Any], code: str) -> None:
    assert broken(answer(), **members).code == f"model_output_{code}"


@pytest.mark.parametrize("reason", [None, "stop", "eos", "LENGTH", "error"])
def test_any_other_finish_reason_disqualifies_nothing(reason: str | None) -> None:
    assert accepted(answer(), stop_reason=reason).output == ANSWER


def test_a_tool_call_beside_an_answer_in_the_text_disqualifies_nothing() -> None:
    assert accepted(answer(), tool_call=True).output == ANSWER


def test_missing_fields_are_named_alone_and_in_order() -> None:
    verdict = broken(json.dumps({"risk_level": 5, "action_plan": []}))
    assert verdict.code == "model_output_missing_fields:proposed_action,requires_human_approval,blocked_by_policy"
    assert verdict.fields == ("proposed_action", "requires_human_approval", "blocked_by_policy")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("proposed_action", ""),
        ("proposed_action", " \t"),
        ("proposed_action", None),
        ("proposed_action", ["x"]),
        ("action_plan", None),
        ("action_plan", "[]"),
        ("action_plan", {"0": "x"}),
        ("action_plan", [1]),
        ("action_plan", [["x"]]),
        ("risk_level", "High"),
        ("risk_level", "low "),
        ("risk_level", None),
        ("risk_level", ["low"]),
        ("risk_level", {"a": 1}),
        ("requires_human_approval", "true"),
        ("requires_human_approval", 1),
        ("blocked_by_policy", 0),
        ("blocked_by_policy", None),
        ("blocked_by_policy", "False"),
    ],
)
def test_nothing_is_coerced(field: str, value: object) -> None:
    assert broken(answer(**{field: value})).code == f"model_output_invalid_fields:{field}"


def test_invalid_fields_are_named_in_the_contracts_order() -> None:
    verdict = broken(answer(blocked_by_policy="no", proposed_action=1))
    assert verdict.code == "model_output_invalid_fields:proposed_action,blocked_by_policy"


def test_an_empty_plan_is_a_plan() -> None:
    assert accepted(answer(action_plan=[])).output["action_plan"] == []


def test_further_members_do_not_enter_the_output() -> None:
    assert accepted(answer(confidence=0.9, reasoning="x")).output == ANSWER


def test_problems_name_indexes_and_allowed_values() -> None:
    problems = broken(answer(action_plan=[{"do": "drain"}, "restart", None, 3], risk_level="High")).problems
    assert "index 0, 2, 3" in problems[0]
    assert all(level in problems[1] for level in RISK_LEVELS)


@given(st.text(alphabet="QZX", min_size=6, max_size=12))
def test_problems_never_quote_the_model(marker: str) -> None:
    contract = Contract({"properties": {"ticket": {"type": "string", "maxLength": 3}}, "additionalProperties": False})
    for text in (
        answer(ticket=marker),
        answer(risk_level=marker),
        answer(ticket="x", **{marker: 1}),
        json.dumps({marker: marker}),
        answer()[:-1] + f',"{marker}":1,"{marker}":2}}',
        marker,
        marker + answer(),
        answer(action_plan=[marker, {marker: 1}], proposed_action=[marker]),
    ):
        verdict = broken(text, contract)
        assert marker not in verdict.code + "".join(verdict.fields) + "".join(verdict.problems)


# --- contracts with a schema ---------------------------------------------------------------


def test_a_schema_adds_fields_and_narrows_values() -> None:
    contract = Contract(
        {
            "type": "object",
            "properties": {
                "ticket": {"type": "string", "pattern": "^INC-[0-9]+$"},
                "eta_minutes": {"type": "integer", "minimum": 0},
                "risk_level": {"enum": ["low", "medium"]},
            },
            "required": ["ticket"],
        }
    )
    assert contract.fields == (*ANSWER, "ticket", "eta_minutes")
    assert contract.allowed("risk_level") == ("low", "medium")
    assert accepted(answer(ticket="INC-7", other=1), contract).output == {**ANSWER, "ticket": "INC-7"}
    assert accepted(answer(ticket="INC-7", eta_minutes=5), contract).output["eta_minutes"] == 5
    assert broken(answer(), contract).code == "model_output_missing_fields:ticket"
    assert broken(answer(ticket=7, eta_minutes=-1), contract).code == "model_output_invalid_fields:ticket,eta_minutes"
    assert broken(answer(ticket="INC-7", eta_minutes=True), contract).fields == ("eta_minutes",)
    assert broken(answer(ticket="INC-7", risk_level="high"), contract).fields == ("risk_level",)


def test_the_five_fields_stay_strict_whatever_the_schema_says() -> None:
    contract = Contract({"properties": {"risk_level": True, "action_plan": {"type": ["array", "string"]}}})
    assert broken(answer(risk_level="extreme"), contract).fields == ("risk_level",)
    assert broken(answer(action_plan="drain"), contract).fields == ("action_plan",)


def test_a_schema_that_allows_no_other_members_still_allows_the_five() -> None:
    contract = Contract({"properties": {"ticket": {}}, "required": ["ticket"], "additionalProperties": False})
    assert accepted(answer(ticket=None), contract).output == {**ANSWER, "ticket": None}
    verdict = broken(answer(ticket=1, extra=2), contract)
    assert (verdict.code, verdict.fields) == ("model_output_invalid_fields:*", ("*",))


def test_a_rule_about_the_whole_is_named_by_a_star() -> None:
    contract = Contract({"if": {"properties": {"risk_level": {"const": "low"}}}, "then": {"required": ["ticket"]}})
    assert contract.fields == (*ANSWER, "ticket")
    assert accepted(answer(), contract)
    assert broken(answer(risk_level="low"), contract).code == "model_output_invalid_fields:*"


def test_fields_named_through_references_and_all_of_enter_the_result() -> None:
    contract = Contract(
        {
            "$defs": {"t": {"properties": {"ticket": {"type": "string"}}, "required": ["ticket"]}},
            "allOf": [{"$ref": "#/$defs/t"}, {"properties": {"team": {"enum": ["sre", "dba"]}}}],
        }
    )
    assert contract.fields == (*ANSWER, "ticket", "team")
    assert contract.is_required("ticket")
    assert contract.allowed("team") == ("sre", "dba")
    assert broken(answer(), contract).code == "model_output_missing_fields:ticket"
    assert broken(answer(ticket=5), contract).code == "model_output_invalid_fields:*"


def test_an_empty_schema_is_no_schema() -> None:
    assert Contract({}).fields == tuple(ANSWER)
    assert accepted(answer(), Contract({}))


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"properties": {"x": {"$ref": "http://example.com/s.json"}}}, "properties.x.$ref"),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "$ref"),
        ({"$ref": "other.json#/a"}, "$ref"),
        ({"$ref": "#/$defs/none"}, "$ref"),
        ({"$ref": "#/allOf/7", "allOf": [{}]}, "$ref"),
        ({"$ref": "#/allOf/" + "9" * 5000, "allOf": [{}]}, "$ref"),
        ({"$ref": "#nowhere"}, "$ref"),
        ({"$ref": 5}, "$ref"),
        ({"$ref": "#"}, "$ref"),
        ({"properties": {"x": {"$ref": "#/properties/x"}}}, "properties.x.$ref"),
        ({"properties": {"x": {"$dynamicRef": "#a"}}}, "properties.x.$dynamicRef"),
        ({"properties": {"x": {"$id": "http://example.com/x"}}}, "properties.x.$id"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema"),
        ({"type": "strin"}, "type"),
        ({"properties": {"x": {"pattern": "("}}}, "properties.x.pattern"),
        ({"properties": {"x": {"pattern": "(?=a)"}}}, "properties.x.pattern"),
        ({"properties": {"x": {"pattern": r"(a)\1"}}}, "properties.x.pattern"),
        ({"properties": {"x": 5}}, "properties.x"),
        ({"properties": []}, "properties"),
        ({"properties": {"odd name": {}}}, "properties"),
        ({"required": ["a b"]}, "properties"),
        ({"properties": {"x" * 65: {}}}, "properties"),
        ({"properties": {f"f{n}": {} for n in range(200)}}, "properties"),
        ({"properties": {"risk_level": {"type": "integer"}}}, "properties.risk_level"),
        ({"properties": {"risk_level": {"enum": ["severe"]}}}, "properties.risk_level"),
        ({"properties": {"blocked_by_policy": {"type": "string"}}}, "properties.blocked_by_policy"),
        ({"properties": {"action_plan": {"type": "string"}}}, "properties.action_plan"),
        ({"properties": {"proposed_action": {"enum": ["", 5]}}}, "properties.proposed_action"),
        ({"properties": {"proposed_action": False}}, "properties.proposed_action"),
        ({"type": "array"}, "type"),
    ],
)
def test_a_schema_that_cannot_be_a_contract_is_refused_by_place(schema: dict[str, Any], field: str) -> None:
    with pytest.raises(ContractError) as caught:
        Contract(schema)
    assert caught.value.field == field


def test_a_schema_that_unfolds_without_end_is_refused_at_once() -> None:
    doubled = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    began = time.perf_counter()
    with pytest.raises(ContractError, match=str(MAX_SUBSCHEMAS)):
        Contract({"$defs": {**doubled, "a40": {}}, "$ref": "#/$defs/a0"})
    assert time.perf_counter() - began < 1


def test_a_long_chain_of_references_is_no_recursion_error() -> None:
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(1500)}
    with pytest.raises(ContractError):
        Contract({"$defs": {**chain, "a1500": {}}, "$ref": "#/$defs/a0"})


def test_references_inside_the_document_are_followed() -> None:
    contract = Contract(
        {
            "$id": "https://example.com/contract",
            "$defs": {"a/b~c": {"enum": ["x", "y"]}, "n": {"$anchor": "num", "type": "integer"}},
            "properties": {"kind": {"$ref": "#/$defs/a~1b~0c"}, "count": {"$ref": "#num"}, "$ref": {"type": "null"}},
        }
        | {"properties": {"kind": {"$ref": "#/$defs/a~1b~0c"}, "count": {"$ref": "#num"}}}
    )
    assert contract.allowed("kind") == ("x", "y")
    assert contract.type_of("count") == "integer"
    assert broken(answer(kind="z", count=1.5), contract).fields == ("kind", "count")


def test_a_pattern_takes_linear_time() -> None:
    contract = Contract({"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}})
    began = time.perf_counter()
    assert broken(answer(x="a" * 500_000 + "!"), contract).fields == ("x",)
    assert time.perf_counter() - began < 2


def test_a_hostile_answer_does_not_make_an_error_larger_than_itself() -> None:
    contract = Contract(
        {
            "properties": {"x": {"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}]}},
            "maxProperties": 6,
        }
    )
    began = time.perf_counter()
    assert broken(answer(x=[1] * 400_000), contract).fields == ("x",)
    assert broken(answer(**{str(n): n for n in range(100_000)}), contract).fields == ("*",)
    assert time.perf_counter() - began < 3


def test_types_are_put_in_words() -> None:
    contract = Contract(
        {
            "properties": {
                "count": {"type": "integer", "minimum": 1, "maximum": 9},
                "owners": {"type": "array", "items": {"type": "string"}},
                "note": {"type": ["string", "null"]},
                "mode": {"const": "dry"},
                "free": {},
                "blocked_by_policy": {"const": True},
            }
        }
    )
    assert contract.described("count") == "integer, at least 1, at most 9"
    assert contract.described("owners") == "list, each item: string"
    assert contract.described("note") == "string or null"
    assert contract.described("mode") == '"dry"'
    assert contract.described("free") == "any JSON value"
    assert contract.described("blocked_by_policy") == "true"
    assert contract.allowed("requires_human_approval") is None


def test_whatever_keeps_the_strict_schema_keeps_the_contract() -> None:
    contract = Contract(
        {
            "properties": {
                "owner": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "team": {"$ref": "#/$defs/team"}},
                },
                "risk_level": {"enum": ["high", "low"]},
            },
            "allOf": [{"required": ["ticket"]}],
            "$defs": {"team": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        }
    )
    strict = contract.strict_schema
    assert strict["additionalProperties"] is False
    assert strict["required"] == list(contract.fields) == list(strict["properties"])
    assert strict["properties"]["owner"]["required"] == ["name", "team"]
    assert strict["$defs"]["team"]["additionalProperties"] is False
    assert strict["properties"]["risk_level"] == {"type": "string", "enum": ["low", "high"]}
    full = {**ANSWER, "risk_level": "low", "owner": {"name": "n", "team": {"id": 1}}, "ticket": "t"}
    import jsonschema_rs

    assert jsonschema_rs.Draft202012Validator(strict).is_valid(full)
    assert accepted(json.dumps(full), contract)


@pytest.mark.parametrize("unit", ["{", "{ ", '{"a', "<think>", "```", "}", '{"a":', "\ufeff", " "])
def test_time_to_tell_what_is_wrong_is_linear(unit: str) -> None:
    began = time.perf_counter()
    judged("x" + unit * 200_000)
    judged(unit * 200_000)
    assert time.perf_counter() - began < 3
