from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.requests import (
    KEPT_OF_LONG_LINE,
    MAX_LINE_BYTES,
    BadLine,
    Head,
    ReplayRequest,
    differs,
    identity,
    parse_line,
    read_lines,
)
from runner.variants import NEMOTRON_CONTRACT_TUNED_VARIANT_ID, UnknownVariant
from tests.runner.asked import document, request


def lines_of(data: bytes) -> list[tuple[int, bytes]]:
    return list(read_lines(io.BytesIO(data)))


def bad(**changes: Any) -> BadLine:
    metadata = changes.pop("metadata", None)
    whole = document(**changes)
    if metadata is not None:
        whole["metadata"] = metadata if not isinstance(metadata, dict) else {**whole["metadata"], **metadata}
    return bad_line(json.dumps(whole).encode())


def bad_line(raw: bytes) -> BadLine:
    parsed = parse_line(7, raw)
    assert isinstance(parsed, BadLine), parsed
    assert (parsed.line, parsed.code, parsed.first_line) == (7, "request_invalid", None)
    return parsed


# --- lines ---------------------------------------------------------------------------------


def test_lines_are_numbered_from_one_and_blank_ones_too() -> None:
    assert lines_of(b"a\n\n \t\r\nb\r\n\nc") == [(1, b"a"), (4, b"b"), (6, b"c")]


def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it() -> None:
    assert lines_of(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n") == [(1, b"a"), (2, b"\xef\xbb\xbfb")]
    assert lines_of(b"\xef\xbb\xbf\nb") == [(2, b"b")]


def test_one_line_ending_is_taken_off_and_no_more() -> None:
    assert lines_of(b"a\r\r\n b \n") == [(1, b"a\r"), (2, b" b ")]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b" "])
def test_a_file_of_nothing_has_no_lines(data: bytes) -> None:
    assert lines_of(data) == []


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=10))
def test_lines_come_as_they_were_written(written: list[bytes]) -> None:
    read = lines_of(b"\n".join(b"x" + line + b"x" for line in written))
    assert read == [(number, b"x" + line + b"x") for number, line in enumerate(written, start=1)]


def test_a_line_of_the_greatest_length_is_read_whole() -> None:
    longest = b"x" * MAX_LINE_BYTES
    assert lines_of(b"\xef\xbb\xbf" + longest + b"\r\nb") == [(1, longest), (2, b"b")]
    assert lines_of(b"a\n" + longest) == [(1, b"a"), (2, longest)]


@pytest.mark.parametrize("over", [1, 5, 1000, MAX_LINE_BYTES])
def test_of_a_line_that_is_too_long_the_head_is_kept_and_the_next_line_is_read(over: int) -> None:
    read = lines_of(b"x" * (MAX_LINE_BYTES + over) + b"\r\nb\n")
    assert read == [(1, b"x" * KEPT_OF_LONG_LINE), (2, b"b")]
    assert isinstance(read[0][1], Head)
    assert "longer" in bad_line(read[0][1]).message


def test_a_long_line_of_white_space_is_not_taken_for_a_blank_one() -> None:
    assert [number for number, _ in lines_of(b" " * (MAX_LINE_BYTES + 9) + b"{}\n")] == [1]


def test_memory_stays_bounded_by_one_line() -> None:
    class Endless:
        asked = 0

        def readline(self, size: int, /) -> bytes:
            self.asked = max(self.asked, size)
            return b"" if self.asked > MAX_LINE_BYTES + 64 else b"x" * size if size < 1 << 20 else b"x\n"

    stream = Endless()
    next(read_lines(stream))
    assert stream.asked <= MAX_LINE_BYTES + 64


# --- one line ------------------------------------------------------------------------------


def test_a_whole_request_is_read() -> None:
    whole = document(
        request_id="R-1",
        policy_id="policy:7",
        response_contract={"properties": {"ticket": {"type": "string"}}},
        metadata={"facets": {"severity": "critical", "team": "sre"}},
        unknown={"kept": True},
    )
    raw = json.dumps(whole).encode()
    parsed = parse_line(3, raw)
    assert isinstance(parsed, ReplayRequest)
    assert (parsed.line, parsed.raw, parsed.document) == (3, raw, whole)
    assert (parsed.run_id, parsed.request_id, parsed.incident_id) == ("run-1", "R-1", "INC-1")
    assert parsed.candidate_variant_id == NEMOTRON_CONTRACT_TUNED_VARIANT_ID
    assert (parsed.policy_id, parsed.facets) == ("policy:7", {"severity": "critical", "team": "sre"})
    assert parsed.contract.fields[-1] == "ticket"
    assert parsed.system_prompt_sha256 == hashlib.sha256(b"Return JSON.").hexdigest()
    canonical = b'{"properties":{"ticket":{"type":"string"}}}'
    assert parsed.contract_sha256 == hashlib.sha256(canonical).hexdigest()


def test_what_may_be_absent_may_be_null_as_well() -> None:
    whole = document(tuned=False)
    optional = dict.fromkeys(("run_id", "request_id", "policy_id", "response_contract", "source_metadata"))
    whole |= optional
    whole["metadata"] |= {"candidate_variant_id": None, "prompt_profile": None, "facets": None}
    parsed = parse_line(1, json.dumps(whole).encode())
    assert isinstance(parsed, ReplayRequest)
    assert parsed.request_id == "INC-1"
    assert parsed.run_id is None
    assert parsed.candidate_variant_id is None
    assert parsed.facets == {}
    assert parsed.contract_sha256 == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema_version": "v2"}, "schema_version"),
        ({"schema_version": None}, "schema_version"),
        ({"incident_id": None}, "incident_id"),
        ({"incident_id": 5}, "incident_id"),
        ({"incident_id": "two words"}, "incident_id"),
        ({"incident_id": ""}, "incident_id"),
        ({"incident_id": "$ledger"}, "incident_id"),
        ({"incident_id": "INC-1\n"}, "incident_id"),
        ({"request_id": "é"}, "request_id"),
        ({"request_id": "x" * 129}, "request_id"),
        ({"run_id": ["r"]}, "run_id"),
        ({"candidate_id": None}, "candidate_id"),
        ({"candidate_id": "-x"}, "candidate_id"),
        ({"policy_id": True}, "policy_id"),
        ({"system_prompt": None}, "system_prompt"),
        ({"system_prompt": ["x"]}, "system_prompt"),
        ({"user_prompt": 5}, "user_prompt"),
        ({"incident_context": None}, "incident_context"),
        ({"incident_context": "text"}, "incident_context"),
        ({"source_metadata": []}, "source_metadata"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"request_only": False}}, "metadata.request_only"),
        ({"metadata": {"request_only": "true"}}, "metadata.request_only"),
        ({"metadata": {"request_only": 1}}, "metadata.request_only"),
        ({"metadata": {"not_replacement_evidence": None}}, "metadata.not_replacement_evidence"),
        ({"metadata": {"candidate_variant_id": "unknown"}}, "metadata.candidate_variant_id"),
        ({"metadata": {"candidate_variant_id": 5}}, "metadata.candidate_variant_id"),
        ({"metadata": {"prompt_profile": "unknown"}}, "metadata.prompt_profile"),
        ({"metadata": {"prompt_profile": "baseline"}}, "metadata.prompt_profile"),
        ({"metadata": {"prompt_profile": NEMOTRON_CONTRACT_TUNED_VARIANT_ID}}, "metadata.prompt_profile"),
        ({"metadata": {"facets": []}}, "metadata.facets"),
        ({"metadata": {"facets": {f"f{n}": "x" for n in range(9)}}}, "metadata.facets"),
        ({"metadata": {"facets": {"two words": "x"}}}, "metadata.facets"),
        ({"metadata": {"facets": {"team": "a b"}}}, "metadata.facets.team"),
        ({"metadata": {"facets": {"team": 5}}}, "metadata.facets.team"),
        ({"response_contract": True}, "response_contract"),
        ({"response_contract": {"$ref": "http://example.com"}}, "response_contract.$ref"),
        ({"response_contract": {"properties": {"x": {"type": "nope"}}}}, "response_contract.properties.x.type"),
        ({"response_contract": {"description": "x" * 200_000}}, "response_contract"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(changes: dict[str, Any], field: str) -> None:
    parsed = bad(**changes)
    assert parsed.field == field
    assert parsed.message


@pytest.mark.parametrize(
    "raw",
    [
        b"not json",
        b"[]",
        b"5",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":"\\ud83d"}',
        b'{"a":"\\u0000"}',
        b"\xff\xfe{\x00",
        b'{"a":9223372036854775808}',
        b"[" * 5000,
        b"{} {}",
    ],
)
def test_a_line_is_parsed_as_strictly_as_an_answer(raw: bytes) -> None:
    parsed = bad_line(raw)
    assert (parsed.raw, parsed.request_id, parsed.field) == (raw, None, None)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_bad_line_and_raise_nothing(raw: bytes) -> None:
    assert isinstance(parse_line(1, raw), BadLine)


names = st.sampled_from([*document(), "request_id", "policy_id", "response_contract"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(["", "x", "INC-1", "a b", "$ref"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["$ref", "properties", "type", "enum", "allOf", "required", "facets", "request_only", "pattern"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(names, anything, max_size=3))
def test_any_members_give_a_request_or_a_bad_line(members: dict[str, Any]) -> None:
    parsed = parse_line(1, json.dumps({**document(), **members}).encode())
    if isinstance(parsed, BadLine):
        assert parsed.field is None or parsed.field.isprintable()
        assert parsed.message


def test_a_bad_line_has_its_request_id_only_where_that_is_one() -> None:
    assert bad(user_prompt=5).request_id == "INC-1"
    assert bad(user_prompt=5, request_id="R-9").request_id == "R-9"
    assert bad(request_id="not an id").request_id is None
    assert bad(incident_id=5).request_id is None


def test_messages_never_hold_the_value() -> None:
    marker = "QZXQZX"
    for changes in (
        {"user_prompt": [marker]},
        {"incident_id": f"{marker} {marker}"},
        {"schema_version": marker},
        {"metadata": {"candidate_variant_id": marker}},
        {"metadata": {"facets": {f"{marker} x": marker}}},
        {"response_contract": {"type": marker}},
        {"response_contract": {"properties": {"x": {f"{marker} y": 1, "$ref": marker}}}},
        {"response_contract": {"properties": {f"{marker} z": {}}}},
    ):
        parsed = bad(**changes)
        assert marker not in parsed.message + (parsed.field or "")


@pytest.mark.parametrize(
    ("metadata", "override", "variant_id"),
    [
        ({}, None, None),
        ({"prompt_profile": "contract_tuned_v1"}, None, NEMOTRON_CONTRACT_TUNED_VARIANT_ID),
        ({"candidate_variant_id": NEMOTRON_CONTRACT_TUNED_VARIANT_ID}, None, NEMOTRON_CONTRACT_TUNED_VARIANT_ID),
        (
            {"candidate_variant_id": NEMOTRON_CONTRACT_TUNED_VARIANT_ID, "prompt_profile": "contract_tuned_v1"},
            None,
            NEMOTRON_CONTRACT_TUNED_VARIANT_ID,
        ),
        ({"prompt_profile": "contract_tuned_v1"}, "baseline", None),
        ({}, "contract_tuned_v1", NEMOTRON_CONTRACT_TUNED_VARIANT_ID),
        ({}, NEMOTRON_CONTRACT_TUNED_VARIANT_ID, NEMOTRON_CONTRACT_TUNED_VARIANT_ID),
        ({"candidate_variant_id": "someone_elses"}, "baseline", None),
    ],
)
def test_the_variant_is_the_lines_or_the_override(
    metadata: dict[str, Any], override: str | None, variant_id: str | None
) -> None:
    raw = json.dumps(document(tuned=False, metadata=metadata)).encode()
    parsed = parse_line(1, raw, variant_override=override)
    assert isinstance(parsed, ReplayRequest)
    assert parsed.candidate_variant_id == variant_id
    assert parsed.prompt_profile == ("contract_tuned_v1" if variant_id else None)


def test_an_override_that_names_no_variant_is_an_error_of_the_caller() -> None:
    with pytest.raises(UnknownVariant, match="contract_tuned_v1"):
        parse_line(1, b"{}", variant_override="nope")


def test_one_contract_is_compiled_once() -> None:
    schema = {"properties": {"ticket": {"type": "string"}}}
    first, second = request(response_contract=schema), request(response_contract=schema, incident_id="INC-2")
    assert first.contract is second.contract


# --- one run -------------------------------------------------------------------------------


def test_a_line_of_another_run_candidate_or_variant_differs() -> None:
    run = identity(request())
    for changes, field in (
        ({"run_id": "run-2"}, "run_id"),
        ({"candidate_id": "other"}, "candidate_id"),
        ({"tuned": False}, "metadata.candidate_variant_id"),
    ):
        other = differs(request(**changes), run)
        assert other is not None
        assert (other.field, other.code, other.request_id) == (field, "request_invalid", "INC-1")


def test_a_line_that_names_no_run_belongs_to_any() -> None:
    assert differs(request(run_id=None), identity(request())) is None


def test_a_given_run_id_overrides_what_the_lines_say() -> None:
    run = replace(identity(request()), run_id="given", given_run_id="given")
    assert differs(request(run_id="run-2"), run) is None


def test_a_made_run_id_is_no_line_of_another_file() -> None:
    run = replace(identity(request(run_id=None)), run_id="replay-1")
    assert differs(request(run_id=None), run) is None
    assert differs(request(run_id="run-2"), run) is not None
