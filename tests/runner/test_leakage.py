from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import zipfile
import zlib
from typing import Any

import pytest

from runner.leak_rules import ALLOWED_NAMES, CONTRACT_FIELDS, MAX_FINDINGS, PHRASES, WHOLE_NAMES
from runner.leakage import scan_body, scan_request
from runner.prompts import CONTRACT_TUNED, messages
from runner.requests import ReplayRequest, parse_line
from tests.runner.leaks import document, found, scan


def base64_of(text: str, encoding: str = "utf-8") -> str:
    return base64.b64encode(text.encode(encoding)).decode()


def test_a_clean_request_has_no_finding() -> None:
    assert found() == []


# --- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        *("evaluation_labels", "evaluationLabels", "EvaluationLabels", "EVALUATION-LABELS", "evaluation.label"),
        *(
            "expectedAction",
            "expected_actions",
            "ground-truth",
            "groundTruth",
            "GROUND_TRUTH",
            "gold",
            "Gold",
            "GOLD_V2",
        ),
        *("answer_key", "answerKey", "repair_success", "RepairSuccess", "my_evaluation_labels_v2", "evaluationlabels"),
        *(
            "goldAnswer",
            "labels_gold",
            "labels-for-evaluation",
            "correct_answers",
            "y_true",
            "isCorrect",
            "oracleAction",
        ),
        *("expected_risk_level", "expected_requires_human_approval", "eVaLuAtIoNlAbElS", "eval_labels", "rubric"),
        *(
            "reference_solution",
            "true_label",
            "human_labels",
            "grading_rubric",
            "judge.score",
            "g0ld",
            "exp3cted_act1on",
        ),
    ],
)
def test_a_label_is_found_by_its_name_in_any_spelling(key: str) -> None:
    assert found({"deep": [{"deeper": {key: "restart"}}]}) == [("label_key", f"incident_context.deep[0].deeper.{key}")]


@pytest.mark.parametrize(
    "key",
    [
        *(
            "evaluation labels",
            "evaluation\u200b_labels",
            "evaluation_\u00adlabels",
            "\uff52\uff45\uff50\uff41ir_success",
        ),
        *("\u0435xpected_\u0430ction", "\u03b5valuati\u03bfn_labels", "e\u0301valuation_labels", "g\u043eld"),
        "\U0001d4f0\U0001d4f8\U0001d4f5\U0001d4ed",
        *("ⓔⓥⓐⓛuation_labels", "expected\u2011action", "ɢᴏʟᴅ_label", "\U000e0067gold", "evaluation/labels", "gold!"),
    ],
)
def test_a_look_alike_or_invisible_spelling_is_found_and_its_key_not_shown(key: str) -> None:
    assert found({key: 1}) == [("label_key", "incident_context.*")]


@pytest.mark.parametrize(
    "member",
    ["metadata", "source_metadata", "response_contract", "labels", "tools", "few_shot"],
)
def test_a_label_is_found_in_every_member_known_or_not(member: str) -> None:
    whole = document()
    whole[member] = {**whole.get(member, {}), "expected_action": "restart"}
    if member == "response_contract":
        whole[member] = {"type": "object", "properties": {"expected_action": {"type": "string"}}}
    assert [finding.rule for finding in scan(whole)] == ["label_key"]


def test_a_label_beside_the_known_members_is_found() -> None:
    assert found(gold={"a": 1}) == [("label_key", "gold")]


def test_a_name_spread_over_two_levels_is_found() -> None:
    assert found({"expected": {"action": "restart"}}) == [("label_key", "incident_context.expected.action")]
    assert found({"ground": [{"truth": "x"}]}) == [("label_key", "incident_context.ground[0].truth")]


def test_a_key_that_says_more_than_a_labels_name_is_not_shown() -> None:
    assert found({"expected_action_restart_pod_7": True}) == [("label_key", "incident_context.*")]
    assert found({"restart_pod_is_the_expected_action": True}) == [("label_key", "incident_context.*")]


def test_what_stands_below_a_refused_member_is_not_listed_or_shown() -> None:
    assert found({"evaluation_labels": {"restart_pod_7": {"repair_success": True}}}) == [
        ("label_key", "incident_context.evaluation_labels")
    ]


@pytest.mark.parametrize("name", ALLOWED_NAMES)
def test_a_name_of_ordinary_incident_data_passes(name: str) -> None:
    assert found({name: "value", "alert": {name: {"app": "checkout"}, "more": [{name: 0.93}]}}) == []


@pytest.mark.parametrize(
    "name",
    [
        *(
            "unexpected_outcome",
            "incorrectAnswer",
            "marigold_label",
            "expected_planned_replicas",
            "evaluation_keyspace",
        ),
        *("expectedFixtures", "expected_actionable", "weight_label", "goldfish", "background_truth", "truth_table"),
        *("gold_price", "apache_scoreboard", "target_response_time", "expected_output_rate", "evaluation_result"),
        *("requires_human_approval", "alert_labels", "true_positive", "right_angle", "golden_path", "expected_count"),
    ],
)
def test_a_name_that_only_resembles_a_label_passes(name: str) -> None:
    assert found({name: "value"}) == []


# --- pairs and values ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "name"),
    [
        ({"name": "expected_action", "value": "restart"}, "name"),
        ({"key": "gold", "value": {"stringValue": "restart"}}, "key"),
        ({"Field": "Ground Truth", "Content": "restart"}, "Field"),
        ({"columnName": "repair_success", "defaultValue": True}, "columnName"),
    ],
)
def test_a_name_value_pair_is_found(pair: dict[str, Any], name: str) -> None:
    assert found({"attributes": [{"name": "pod", "value": "a"}, pair]}) == [
        ("label_pair", f"incident_context.attributes[1].{name}")
    ]


def test_a_column_name_is_found() -> None:
    assert found({"columns": ["title", "gold"], "rows": [["a", "b"]]}) == [
        ("label_pair", "incident_context.columns[1]")
    ]


@pytest.mark.parametrize(
    "value", ["repair_success", "Repair-Success", "expectedAction", " ground truth ", "answer_key"]
)
def test_a_labels_name_as_a_whole_value_is_found(value: str) -> None:
    assert found({"timeline": [{"at": "10:40", "outcome": value}]}) == [
        ("label_value", "incident_context.timeline[0].outcome")
    ]


def test_gold_as_the_value_of_a_tier_passes() -> None:
    assert found({"tier": "gold", "tiers": ["gold", "silver"], "labels": {"name": "tier", "value": "gold"}}) == []


def test_a_value_used_as_a_key_is_found_and_not_shown() -> None:
    assert found({"notes": {"gold=restart": 1}}) == [("label_text", "incident_context.notes.*")]
    encoded = base64_of('{"gold":"restart"}').rstrip("=")
    assert found({"notes": {encoded: {"a": 1}}}) == [("label_key", "incident_context.notes.*.gold")]
    assert found({"notes": {encoded: {"gold": 1}}}) == [
        ("label_key", "incident_context.notes.*.gold"),
    ]


# --- text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("expected_action: restart", "The expected action is to restart.", "ground truth = restart", "gold: restart"),
        *("Evaluation labels: none", "expectedAction=restart", "repair_success is true", "expected_output: x"),
        *("<expected_action>restart</expected_action>", "## Ground truth\nrestart the pod", "expected_action_v2 -> x"),
        *(
            "title,expected_action\nlatency,restart\n",
            "- name: expected_action\n  value: restart",
            "**Gold answer**: x",
        ),
        *("The correct action would be a restart", "the right answer is restart", "expected\u00a0action\uff1a restart"),
        *("{'evaluation_labels': True}", "e x p e c t e d _ a c t i o n : restart", "gold\u200b: restart", "y_true=1"),
        *("%65xpected_action%3Drestart", "expected&#95;action&#61;restart", "\\u0065xpected_action: restart"),
    ],
)
@pytest.mark.parametrize("member", ["system_prompt", "user_prompt", "incident_context"])
def test_a_labels_name_that_is_given_a_value_in_text_is_found(text: str, member: str) -> None:
    whole = document({"note": text}) if member == "incident_context" else document(**{member: text})
    path = "incident_context.note" if member == "incident_context" else member
    assert [(finding.rule, finding.path) for finding in scan(whole)] == [("label_text", path)]


@pytest.mark.parametrize("phrase", PHRASES)
def test_each_documented_phrase_is_found(phrase: str) -> None:
    text = f"Note that {phrase.upper().replace(' ', chr(10))} a restart."
    assert "answer_phrase" in [rule for rule, _ in found({"note": text})]


@pytest.mark.parametrize(
    "text",
    [
        "The labels of the pod are app=checkout, severity=critical.",
        "Gold customers are affected; gold is our largest tier, and silver is fine.",
        "The evaluation labels are kept elsewhere.",
        "Expected output: one JSON object. Expected result format: JSON.",
        "Expected resolution time: 2h. The expected value is 5.",
        'sum by (tier) (rate(requests_total{tier="gold",status=~"5.."}[5m])) > 0.1',
        'level=info msg=done status: ok result=success outcome="success" score=0.97 target=http://10.0.0.1:9090',
        "An unexpected action: the incorrect answer: the correctly labelled pod.",
        "Prometheus rule evaluation failures: 3. Alert evaluation is slow.",
        "For example, restart the pod.",
        "C:\\repairs\\success %20 &amp; 100% sure",
    ],
)
def test_ordinary_prose_and_log_lines_pass(text: str) -> None:
    assert found({"note": text}) == []
    assert found(system_prompt=text, user_prompt=text) == []


# --- encodings -----------------------------------------------------------------------------

LEAK = '{"report": {"evaluation_labels": {"repair_success": true}}}'


def test_json_within_strings_is_read_at_every_level_and_the_path_goes_on() -> None:
    text = LEAK
    for _ in range(4):
        text = json.dumps(text)
    assert found({"note": text}) == [("label_key", "incident_context.note.report.evaluation_labels")]
    assert found({"note": f"as seen: {LEAK} and so on"}) == [
        ("label_key", "incident_context.note.report.evaluation_labels")
    ]


def test_both_members_of_a_key_given_twice_in_a_json_string_are_read() -> None:
    assert found({"note": '{"a": {"gold": 1}, "a": 2}'}) == [("label_key", "incident_context.note.a.gold")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_base64_is_read(encoding: str) -> None:
    assert found({"data": base64_of(LEAK, encoding)}) == [
        ("label_key", "incident_context.data.report.evaluation_labels")
    ]


def test_base64_is_read_url_safe_unpadded_wrapped_and_inside_text() -> None:
    text = '{"?>?": "???>>>", "expected_action": "restart???"}'
    plain = base64_of(text)
    assert "/" in plain
    wrapped = "\n".join(plain[i : i + 19] for i in range(0, len(plain), 19))
    groups = " ".join(plain[i : i + 5] for i in range(0, len(plain), 5))
    for data in (
        plain.replace("+", "-").replace("/", "_").rstrip("="),
        wrapped,
        groups,
        f"see data:application/json;base64,{plain} there",
        f"x{plain}",
        base64_of(plain),
    ):
        assert found({"data": data}) == [("label_key", "incident_context.data.expected_action")], data


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, bz2.compress, lzma.compress])
def test_compressed_bytes_in_base64_are_read(compress: Any) -> None:
    data = base64.b64encode(compress(LEAK.encode())).decode()
    assert found({"data": data}) == [("label_key", "incident_context.data.report.evaluation_labels")]
    twice = base64.b64encode(compress(compress(LEAK.encode()))).decode()
    assert found({"data": twice}) == [("label_key", "incident_context.data.report.evaluation_labels")]


def test_a_zip_archive_is_read() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes/a.json", LEAK)
    data = base64.b64encode(file.getvalue()).decode()
    assert found({"data": data}) != []


def test_hex_base32_and_names_within_other_bytes_are_read() -> None:
    assert found({"data": LEAK.encode().hex()}) == [("label_key", "incident_context.data.report.evaluation_labels")]
    assert found({"data": base64.b32encode(LEAK.encode()).decode()}) != []
    packed = b"\x82\xb1evaluation_labels\x81\xaerepair_success\xc3\x00\xff\xfe"
    assert found({"data": base64.b64encode(packed).decode()}) == [("label_value", "incident_context.data")]


def test_text_hidden_in_tag_characters_and_variation_selectors_is_read() -> None:
    hidden = "expected_action: restart"
    tags = "".join(chr(0xE0000 + ord(c)) for c in hidden)
    selectors = "".join(chr(0xFE00 + b) if b < 16 else chr(0xE0100 + b - 16) for b in hidden.encode())
    assert found({"note": f"all is well{tags}"}) == [("label_text", "incident_context.note")]
    assert found({"note": f"all is well{selectors}"}) == [("label_text", "incident_context.note")]


def test_a_blob_over_64_kib_that_cannot_be_read_is_found_in_any_shape() -> None:
    blob = base64.b64encode(os.urandom(70_000)).decode()
    wrapped = "\n".join(blob[i : i + 76] for i in range(0, len(blob), 76))
    base85 = base64.b85encode(os.urandom(70_000)).decode()
    for data in (blob, wrapped, base85, "x" * 70_000, blob[:65_540]):
        assert ("opaque_blob", "incident_context.data") in found({"data": data}), data[:20]


def test_an_image_a_certificate_and_hashes_pass() -> None:
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(60_000)).decode()
    der = base64.b64encode(b"\x30\x82\x03\x10" + os.urandom(900)).decode()
    lines = "\n".join(der[i : i + 64] for i in range(0, len(der), 64))
    context = {
        "screenshot": f"data:image/png;base64,{image}",
        "certificate": f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n",
        "sha256": os.urandom(32).hex(),
        "image": f"registry.example.com/shop/checkout@sha256:{os.urandom(32).hex()}",
        "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
        "token": base64_of('{"alg":"RS256","kid":"a1"}'),
    }
    assert found(context) == []


def test_a_long_log_passes() -> None:
    line = '2026-01-01T00:00:00Z level=warn msg="upstream timed out" upstream=10.0.0.1:8080 status=504 took=3.0\n'
    assert found({"log": line * 2000}) == []


# --- ids and examples ----------------------------------------------------------------------


def test_the_request_id_itself_is_read() -> None:
    assert found(request_id="inc-7-repair_success") == [("label_id", "request_id")]
    assert found(incident_id="INC-7.expectedAction.restart") == [("label_id", "incident_id")]
    assert found(request_id="gold-customer-7") == []
    one = scan_request({"incident_id": "a"}, request_id="evaluation_labels", incident_id="a")
    assert [(finding.rule, finding.path) for finding in one] == [("label_id", "request_id")]


@pytest.mark.parametrize(
    ("context", "path"),
    [
        ({"examples": [{"id": "INC-1"}, {"id": "INC-4711", "do": "restart"}]}, "examples[1].id"),
        ({"fewShotExamples": {"first": "For inc-4711 restart"}}, "fewShotExamples.first"),
        ({"examples": {"INC-4711": "restart"}}, "examples.*"),
        ({"similar": json.dumps({"example": {"incident": "INC-4711"}})}, "similar.example.incident"),
    ],
)
def test_an_example_with_the_incidents_own_id_is_found(context: dict[str, Any], path: str) -> None:
    assert found(context) == [("own_example", f"incident_context.{path}")]


def test_an_example_with_the_incidents_own_id_is_found_in_a_prompt() -> None:
    prompt = "Example 1:\nIncident: INC-4711\nAnswer: restart the pod\n"
    assert found(system_prompt=prompt) == [("own_example", "system_prompt")]
    assert found(system_prompt=prompt.replace("4711", "4712")) == []
    assert found(system_prompt="Handle INC-4711. For example: restart.") == []


def test_a_short_id_counts_only_where_an_id_stands() -> None:
    assert found({"examples": [{"id": "7", "step": "x"}]}, incident_id="7") == [
        ("own_example", "incident_context.examples[0].id")
    ]
    assert found({"examples": [{"id": 7}]}, incident_id="7") == [("own_example", "incident_context.examples[0].id")]
    assert found({"examples": [{"id": "8", "step": "7"}]}, incident_id="7") == []


def test_the_incidents_own_id_outside_of_examples_passes() -> None:
    assert found({"incident_id": "INC-4711", "url": "https://pager.example.com/INC-4711"}) == []


# --- answers -------------------------------------------------------------------------------

ANSWER = {"proposedAction": "restart", "Risk-Level": "low"}


@pytest.mark.parametrize(
    ("whole", "path"),
    [
        (document({"last": ANSWER}), "incident_context.last"),
        (document(ANSWER), "incident_context"),
        (document(source_metadata={"x": [ANSWER]}), "source_metadata.x[0]"),
        (document(examples=[{"output": ANSWER}]), "examples[0].output"),
        (document(**ANSWER), "Risk-Level"),
        (document({"note": json.dumps(ANSWER)}), "incident_context.note"),
        (document({"note": "proposed_action: restart\nrisk level = low"}), "incident_context.note"),
        (
            document({"x": [{"name": "action_plan", "value": []}, {"name": "risk_level", "value": 1}]}),
            "incident_context.x",
        ),
    ],
)
def test_an_object_with_two_of_the_contracts_fields_is_found(whole: dict[str, Any], path: str) -> None:
    assert [(finding.rule, finding.path) for finding in scan(whole)] == [("answer_object", path)]


def test_prompts_and_the_response_contract_may_speak_of_the_contract() -> None:
    example = json.dumps(dict.fromkeys(CONTRACT_FIELDS, "x"))
    schema = {"type": "object", "properties": {"risk_level": {"enum": ["low", "high"]}, "proposed_action": {}}}
    assert found(system_prompt=f"Reply so: {example}", user_prompt=example, response_contract=schema) == []


def test_one_of_the_contracts_fields_passes() -> None:
    assert found({"risk_level": "high", "policy": {"blocked_by_policy": False}}) == []


# --- messages and bodies -------------------------------------------------------------------


def test_a_hit_in_the_document_is_not_listed_again_for_the_message_made_from_it() -> None:
    assert found({"expected_action": "x"}, user_prompt="gold: x") == [
        ("label_text", "user_prompt"),
        ("label_key", "incident_context.expected_action"),
    ]


def test_a_leak_that_only_the_messages_hold_is_found() -> None:
    sent = [{"role": "system", "content": "x"}, {"role": "user", "content": 'y\n{"a":1}\nexpected_action: restart'}]
    findings = scan_request(document(), request_id="INC-4711", incident_id="INC-4711", messages=sent)
    assert [(finding.rule, finding.path) for finding in findings] == [("label_text", "messages[1].content")]
    sent[1]["content"] = 'y\n{"a":1,"gold":2}'
    findings = scan_request(document(), request_id="INC-4711", incident_id="INC-4711", messages=sent)
    assert [(finding.rule, finding.path) for finding in findings] == [("label_key", "messages[1].content.gold")]


def test_a_leak_that_a_prompt_and_the_template_make_together_is_found() -> None:
    whole = document(user_prompt="What now? The expected action")
    sent = [{"role": "user", "content": "What now? The expected action is as follows:\n{}"}]
    findings = scan_request(whole, request_id="INC-4711", incident_id="INC-4711", messages=sent)
    assert [(finding.rule, finding.path) for finding in findings] == [("label_text", "messages[0].content")]


def test_a_quoted_answer_trips_the_scan_of_a_body_and_the_contract_does_not() -> None:
    request = parse_line(1, json.dumps(document()).encode())
    assert isinstance(request, ReplayRequest)
    sent = messages(request, CONTRACT_TUNED)
    assert scan_body(json.dumps({"model": "gold-answer", "messages": sent}).encode()) == ()
    sent[1]["content"] += '\n<<<\n{"proposed_action":"x","expected_action":"restart"}\n>>>'
    (finding,) = scan_body(json.dumps({"messages": sent}).encode())
    assert (finding.rule, finding.path) == ("label_key", "messages[1].content.expected_action")


# --- order and bounds ----------------------------------------------------------------------


def test_findings_come_in_the_order_of_the_document_and_without_duplicates() -> None:
    context = {"b": {"gold": 1}, "a": ["repair_success", "gold: x gold: y", {"gold": 2}]}
    assert found(context) == [
        ("label_key", "incident_context.b.gold"),
        ("label_value", "incident_context.a[0]"),
        ("label_text", "incident_context.a[1]"),
        ("label_key", "incident_context.a[2].gold"),
    ]


def test_a_request_full_of_leaks_is_not_listed_without_end() -> None:
    assert MAX_FINDINGS <= len(found({"a": [{"gold": n} for n in range(5000)]})) <= MAX_FINDINGS + 5


@pytest.mark.parametrize("name", WHOLE_NAMES)
def test_an_everyday_word_is_a_label_only_as_a_whole_name(name: str) -> None:
    assert found({name.replace(" ", "_"): 1}) != []
    assert found({f"{name.replace(' ', '_')}_fish": 1}) == []
