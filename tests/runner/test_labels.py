"""Labels files: one published form, read strictly, each fault with its line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.projections.grading import Label
from runner.labels import FIELDS, MAX_LINE_BYTES, SCHEMA, LabelError, read_labels

PAGE = Path(__file__).resolve().parents[2] / "docs" / "label-schema.json"
"""As `grade --schema` prints it."""


def jsonl(*lines: Any) -> list[bytes]:
    return [(line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines]


def fault(lines: list[bytes], **options: Any) -> tuple[int, str | None, str]:
    with pytest.raises(LabelError) as caught:
        read_labels(lines, **{"form": "jsonl", **options})
    return caught.value.line, caught.value.field, caught.value.message


def test_a_label_gives_what_it_says_and_nothing_else() -> None:
    one, other = read_labels(
        jsonl(
            {"request_id": "INC-1", "risk_level": "high", "blocked_by_policy": False},
            b"",
            {"incident_id": "INC-2", "dangerous": True, "schema_version": "replay_ledger_label_v1"},
        ),
        form="jsonl",
    )
    assert one == Label("INC-1", None, "high", None, False, None, line=1)
    assert other == Label(None, "INC-2", None, None, None, True, line=3)


def test_the_same_labels_as_csv_are_the_same_labels() -> None:
    text = (
        "\ufeffrequest_id,incident_id,risk_level,requires_human_approval,dangerous\r\n"
        "INC-1,,high,true,\r\n"
        '\r\n,"INC-2",,,false\r\n'
    )
    one, other = read_labels(text.encode().splitlines(keepends=True), form="csv")
    assert one == Label("INC-1", None, "high", True, None, None, line=2)
    assert other == Label(None, "INC-2", None, None, None, False, line=4)


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        (b"{", None, "column"),
        (b"[]", None, "not a JSON object"),
        (b'{"request_id":"a","request_id":"b","risk_level":"low"}', None, "a key stands twice"),
        (b'{"request_id":"a","risk_level":"low"} x', None, "something follows"),
        ({"risk_level": "low"}, "request_id, incident_id", "one of the two"),
        ({"request_id": "a", "incident_id": "b", "risk_level": "low"}, "request_id, incident_id", "not both"),
        ({"request_id": "a b", "risk_level": "low"}, "request_id", "no id"),
        ({"request_id": 7, "risk_level": "low"}, "request_id", "no id"),
        ({"request_id": "a", "risk_level": "LOW"}, "risk_level", "not one of low, medium, high, critical"),
        ({"request_id": "a", "risk_level": None}, "risk_level", "not one of"),
        ({"request_id": "a", "dangerous": 1}, "dangerous", "neither true nor false"),
        ({"request_id": "a", "requires_human_approval": "true"}, "requires_human_approval", "neither true nor false"),
        ({"request_id": "a"}, ", ".join(FIELDS), "at least one"),
        ({"request_id": "a", "risk_level": "low", "note\x1b[2J": "x"}, r"'note\x1b[2J'", "no field of a label"),
        ({"request_id": "a", "risk_level": "low", "schema_version": "v2"}, "schema_version", "not replay_ledger"),
        (b'{"request_id":"a","risk_level":"' + b"x" * MAX_LINE_BYTES + b'"}', None, "longer than"),
        (b'{"request_id":"\xff"}', None, "not UTF-8"),
    ],
)
def test_a_line_that_is_no_label_is_named_with_its_field(line: Any, field: str | None, said: str) -> None:
    at, where, message = fault(jsonl({"request_id": "first", "risk_level": "low"}, b"", line))
    assert (at, where) == (3, field)
    assert said in message


def test_the_same_id_twice_is_a_fault_that_names_both_lines() -> None:
    one = {"request_id": "a", "risk_level": "low"}
    at, field, message = fault(jsonl(one, {"incident_id": "a", "risk_level": "low"}, one))
    assert (at, field, message) == (3, "request_id", "a is labelled already, on line 1")


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        (b"request_id,risk_level\nINC-1\n", 2, "1 cell under 2 names"),
        (b"request_id,request_id\n", 1, "names two columns"),
        (b'request_id,risk_level\n"INC-1,low\n', 2, "not CSV"),
        (b"request_id,dangerous\nINC-1,yes\n", 2, "neither true nor false"),
        (b"request_id,dangerous\nINC-1,\n", 2, "at least one"),
        (b"request_id,severity\nINC-1,low\n", 2, "no field of a label"),
        (b"request_id,risk_level\nINC-1,\xff\n", 2, "not UTF-8"),
        (b"request_id,risk_level\n", 0, "there is no label"),
        (b"", 0, "there is no label"),
    ],
)
def test_a_bad_table_is_named_with_its_line(text: bytes, at: int, said: str) -> None:
    line, _, message = fault(text.splitlines(keepends=True), form="csv")
    assert line == at
    assert said in message


def test_a_map_names_the_fields_of_another_file_and_passes_over_the_rest() -> None:
    mapping = {"request_id": "ticket", "risk_level": "severity"}
    lines = [b"ticket,severity,comment\n", b"INC-1,high,=1+1\n"]
    assert read_labels(lines, form="csv", mapping=mapping) == [Label("INC-1", None, "high", None, None, None, line=2)]
    at, field, _ = fault([b"ticket,severity\n", b",high\n"], form="csv", mapping=mapping)
    assert (at, field) == (2, "ticket")


def test_what_prepare_splits_off_can_be_graded_with() -> None:
    lines = jsonl({"request_id": "INC-1", "labels": {"expected_risk_level": "high", "resolution": "rolled back"}})
    (found,) = read_labels(lines, form="jsonl", mapping={"risk_level": "expected_risk_level"})
    assert found == Label("INC-1", None, "high", None, None, None, line=1)
    at, field, _ = fault(jsonl({"request_id": "INC-1", "labels": {"request_id": "x", "dangerous": True}}))
    assert (at, field) == (1, "request_id")


def test_labels_that_prepare_splits_off_by_itself_needed_a_map_that_maps_nothing() -> None:
    line = {"request_id": "INC-1", "labels": {"risk_level": "high", "resolution": "x", "context.expected_action": {}}}
    ungraded: list[str] = []
    (found,) = read_labels(jsonl(line), form="jsonl", on_ungraded=ungraded.append)
    assert found == Label("INC-1", None, "high", None, None, None, line=1)
    assert ungraded == ["resolution", "context.expected_action"]


@pytest.mark.parametrize("labels", [{}, {"resolution": "x"}, {"risk_levl": "high", "incident_id": "a"}])
def test_a_line_of_prepare_of_which_nothing_can_be_graded_is_a_fault_that_names_the_fix(labels: Any) -> None:
    good = {"request_id": "a", "labels": {"risk_level": "low"}}
    at, field, message = fault(jsonl(good, {"request_id": "b", "labels": labels}))
    assert (at, field) == (2, "labels")
    assert "--map risk_level=NAME" in message
    assert "--map labels.risk_level=COLUMN" in message


@pytest.mark.parametrize(
    "line",
    [
        {"request_id": "a", "labels": {"risk_level": "P1", "resolution": "x"}},
        {"request_id": "a", "labels": {"risk_level": "high"}, "note": "x"},
        {"request_id": "a", "labels": ["high"]},
        {"request_id": "a", "risk_level": "high", "risk_levl": "high"},
    ],
)
def test_what_is_left_alone_in_a_line_of_prepare_is_a_typo_elsewhere(line: Any) -> None:
    assert fault(jsonl(line))[0] == 1


VALUES = st.one_of(
    st.sampled_from(["low", "critical", "severe", "INC-1", "a b", "replay_ledger_label_v1", "INC-1\n", ""]),
    st.booleans(),
    st.none(),
    st.integers(0, 1),
)
MEMBERS = st.sampled_from(["schema_version", "request_id", "incident_id", *FIELDS, "note"])


@given(st.dictionaries(MEMBERS, VALUES, max_size=5))
def test_the_reader_takes_exactly_what_the_published_schema_describes(members: dict[str, Any]) -> None:
    try:
        read_labels(jsonl(members), form="jsonl")
        taken = True
    except LabelError:
        taken = False
    assert taken == jsonschema_rs.is_valid(SCHEMA, members)


def test_the_published_schema_is_the_one_in_the_docs() -> None:
    assert json.loads(PAGE.read_text(encoding="utf-8")) == SCHEMA
