from __future__ import annotations

import codecs
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.prepare import (
    Fault,
    Prepared,
    PrepareError,
    PrepareOptions,
    PrepareSummary,
    prepare_records,
    prepare_stream,
)
from runner.prepare_forms import as_facet, as_id
from runner.prepare_sources import Record
from runner.requests import ReplayRequest, _is_id, parse_line
from tests.runner.leaks import ALERTS, scan

RULE = {
    "service": "Prometheus self-monitoring",
    "group": "Basic",
    "alertname": "TargetMissing",
    "title": "Target missing",
    "severity": "critical",
    "description": "A target has disappeared.",
    "expr": "up == 0",
    "for": None,
}
NOTIFICATION = {
    "version": "4",
    "groupKey": '{}:{alertname="HighLatency"}',
    "status": "firing",
    "receiver": "oncall",
    "groupLabels": {"alertname": "HighLatency"},
    "commonLabels": {"alertname": "HighLatency"},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager.example.com",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "HighLatency", "severity": "page now", "service": "checkout", "pod": "a"},
            "annotations": {"summary": "p99 is 4s"},
            "startsAt": "2026-01-01T10:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example.com/graph",
            "fingerprint": "a6ead519",
        },
        {
            "status": "resolved",
            "labels": {"alertname": "HighLatency", "pod": "b"},
            "annotations": {},
            "startsAt": "2026-01-01T10:00:00Z",
            "endsAt": "2026-01-01T10:40:00Z",
            "fingerprint": "b6ead519",
        },
    ],
}


class Outcome:
    """What became of a file."""

    def __init__(self, path: Path, **options: Any) -> None:
        out, labels = io.BytesIO(), io.BytesIO()
        form = options.pop("format", "auto")
        self.faults: list[Fault] = []
        with path.open("rb") as stream:
            self.summary: PrepareSummary = prepare_stream(
                stream,
                path.name,
                out,
                labels_out=labels,
                format=form,
                options=PrepareOptions(**options),
                on_fault=self.faults.append,
            )
        self.text = out.getvalue().decode()
        self.requests = [json.loads(line) for line in self.text.splitlines()]
        self.labels = [json.loads(line) for line in labels.getvalue().splitlines()]


def label_line(request_id: str, labels: dict[str, Any]) -> dict[str, Any]:
    return {"request_id": request_id, "labels": labels}


def written(tmp_path: Path, name: str, content: Any) -> Path:
    path = tmp_path / name
    if isinstance(content, list):
        content = "".join(json.dumps(one) + "\n" for one in content)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")
    return path


def refused(tmp_path: Path, name: str, content: Any, **options: Any) -> PrepareError:
    with pytest.raises(PrepareError) as caught:
        Outcome(written(tmp_path, name, content), **options)
    return caught.value


# --- alert rules ---------------------------------------------------------------------------


def test_an_alert_rule_becomes_a_request(tmp_path: Path) -> None:
    outcome = Outcome(written(tmp_path, "rules.jsonl", [RULE]), variant="contract_tuned_v1", run_id="run-1")
    (request,) = outcome.requests
    assert outcome.summary == PrepareSummary(records=1, written=1, labels=0)
    assert request["incident_id"] == "prometheus-self-monitoring-targetmissing"
    assert request["run_id"] == "run-1"
    assert request["incident_context"]["expr"] == "up == 0"
    assert "for" not in request["incident_context"]
    assert request["source_metadata"] == {"source": "prometheus", "file": "rules.jsonl", "record": "line 1"}
    assert request["metadata"] == {
        "request_only": True,
        "not_replacement_evidence": True,
        "candidate_variant_id": "nemo_nemotron_fabric__contract_tuned_v1",
        "prompt_profile": "contract_tuned_v1",
        "facets": {"severity": "critical", "service": "Prometheus-self-monitoring"},
    }
    assert isinstance(parse_line(1, outcome.text.encode().strip()), ReplayRequest)


def test_requests_for_a_run_named_latest_were_made(tmp_path: Path) -> None:
    assert refused(tmp_path, "rules.jsonl", [RULE], run_id="latest").field == "run_id"


def test_no_variant_makes_requests_of_the_baseline(tmp_path: Path) -> None:
    (request,) = Outcome(written(tmp_path, "rules.jsonl", [RULE])).requests
    assert "candidate_variant_id" not in request["metadata"]


def test_rules_of_one_name_get_ids_of_their_own(tmp_path: Path) -> None:
    outcome = Outcome(written(tmp_path, "rules.jsonl", [RULE, RULE, RULE]))
    ids = [request["incident_id"] for request in outcome.requests]
    assert ids == [f"prometheus-self-monitoring-targetmissing{suffix}" for suffix in ("", "-2", "-3")]


@pytest.mark.skipif(not ALERTS.exists(), reason="the alert rules are not here")
def test_the_same_file_gives_the_same_bytes() -> None:
    first, second = Outcome(ALERTS), Outcome(ALERTS)
    assert first.text == second.text
    assert len({request["incident_id"] for request in first.requests}) == 1155


def test_prompts_can_be_given(tmp_path: Path) -> None:
    path = written(tmp_path, "rules.jsonl", [RULE])
    (request,) = Outcome(path, system_prompt="Be brief.", user_prompt="And now?").requests
    assert (request["system_prompt"], request["user_prompt"]) == ("Be brief.", "And now?")


# --- Alertmanager --------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [False, True])
def test_a_notification_becomes_a_request_an_alert(tmp_path: Path, lines: bool) -> None:
    content = [NOTIFICATION, NOTIFICATION] if lines else NOTIFICATION
    outcome = Outcome(written(tmp_path, "webhook.json", content))
    first, second = outcome.requests
    assert first["incident_context"] == {
        "alertname": "HighLatency",
        "status": "firing",
        "labels": NOTIFICATION["alerts"][0]["labels"],  # type: ignore[index]
        "annotations": {"summary": "p99 is 4s"},
        "startsAt": "2026-01-01T10:00:00Z",
        "groupLabels": {"alertname": "HighLatency"},
    }
    assert first["metadata"]["facets"] == {"severity": "page-now", "service": "checkout"}
    assert first["source_metadata"]["fingerprint"] == "a6ead519"
    assert first["incident_id"].startswith("highlatency-")
    assert first["incident_id"] != second["incident_id"]


def test_an_incident_that_is_notified_again_is_written_once(tmp_path: Path) -> None:
    later = json.loads(json.dumps(NOTIFICATION))
    later["alerts"][0] |= {"status": "resolved", "endsAt": "2026-01-01T11:00:00Z"}
    outcome = Outcome(written(tmp_path, "webhook.jsonl", [NOTIFICATION, later]))
    assert outcome.summary == PrepareSummary(records=4, written=2, labels=0, repeated=2)


def test_the_end_of_an_incident_is_not_told_to_the_agent(tmp_path: Path) -> None:
    _, resolved = Outcome(written(tmp_path, "webhook.json", NOTIFICATION)).requests
    assert "10:40" not in json.dumps(resolved["incident_context"])
    assert "resolved" not in json.dumps(resolved["incident_context"])
    assert resolved["source_metadata"]["endsAt"] == "2026-01-01T10:40:00Z"


def test_labels_in_annotations_are_split_off(tmp_path: Path) -> None:
    labelled = json.loads(json.dumps(NOTIFICATION))
    labelled["alerts"][0]["annotations"]["expected_action"] = "restart"
    labelled["alerts"][0]["labels"]["resolvedBy"] = "anna"
    outcome = Outcome(written(tmp_path, "webhook.json", labelled), label_fields=["labels.resolvedBy"])
    assert "expected_action" not in outcome.text
    assert "anna" not in outcome.text
    labels = {"labels.resolvedBy": "anna", "annotations.expected_action": "restart"}
    assert outcome.labels == [label_line(outcome.requests[0]["incident_id"], labels)]


# --- JSONL and CSV by mapping --------------------------------------------------------------


def test_records_are_mapped(tmp_path: Path) -> None:
    record = {
        "ticket": {"key": "OPS 7"},
        "details": {"symptom": "slow", "ground_truth": "restart"},
        "prio": "P1!",
        "url": "https://example.com/7",
        "summary": "Slow",
        "question": "What now?",
        "gold": "restart",
        "closed_by": "anna",
    }
    mapping = {
        "incident_id": "ticket.key",
        "context": "details",
        "context.title": "summary",
        "severity": "prio",
        "facets.tool": "ticket.key",
        "source.url": "url",
        "user_prompt": "question",
    }
    path = written(tmp_path, "tickets.jsonl", [record])
    outcome = Outcome(path, mapping=mapping, label_fields=["closed_by"])
    (request,) = outcome.requests
    assert request["incident_id"].startswith("OPS-7-")
    assert request["incident_context"] == {"symptom": "slow", "title": "Slow"}
    assert request["user_prompt"] == "What now?"
    assert request["metadata"]["facets"] == {"severity": "P1", "tool": "OPS-7"}
    assert request["source_metadata"]["url"] == "https://example.com/7"
    assert outcome.labels[0]["labels"] == {"details.ground_truth": "restart", "gold": "restart", "closed_by": "anna"}


def test_what_is_not_mapped_is_context(tmp_path: Path) -> None:
    record = {"incident_id": "a", "title": "x", "severity": "high", "where": "pager"}
    outcome = Outcome(written(tmp_path, "a.jsonl", [record]), mapping={"source.from": "where"})
    assert outcome.requests[0]["incident_context"] == {"title": "x", "severity": "high"}


def test_csv_is_read_with_its_objects_and_without_its_empty_cells(tmp_path: Path) -> None:
    text = (
        '\ufeffid,title,details,team\r\n1,"a, b","{""x"":1,""repair_success"":true}",\r\n\r\n2,"two\nlines",{},core\r\n'
    )
    mapping = {"incident_id": "id", "context": "details", "context.title": "title"}
    outcome = Outcome(written(tmp_path, "a.csv", text), mapping=mapping)
    first, second = outcome.requests
    assert first["incident_context"] == {"x": 1, "title": "a, b"}
    assert "facets" not in first["metadata"]
    assert second["incident_context"] == {"title": "two\nlines"}
    assert second["metadata"]["facets"] == {"team": "core"}
    assert outcome.labels == [label_line("1", {"context.repair_success": True})]


def test_two_requests_of_one_incident_need_request_ids(tmp_path: Path) -> None:
    records = [{"incident_id": "a", "n": 1}, {"incident_id": "a", "n": 2}]
    error = refused(tmp_path, "a.jsonl", records)
    assert (error.file, error.place, error.field) == ("a.jsonl", "line 2", "incident_id")
    assert "line 1" in error.message
    outcome = Outcome(written(tmp_path, "a.jsonl", records), mapping={"request_id": "n"})
    assert [request["request_id"] for request in outcome.requests] == ["1", "2"]


# --- refusals ------------------------------------------------------------------------------


def test_a_request_that_would_leak_is_not_written(tmp_path: Path) -> None:
    records = [
        {"incident_id": "a", "note": "fine"},
        {"incident_id": "b", "note": "the expected action is: restart pod 7"},
    ]
    with pytest.raises(PrepareError) as caught:
        Outcome(written(tmp_path, "a.jsonl", records))
    assert caught.value.leaks
    assert str(caught.value) == (
        "a.jsonl, line 2, field incident_context.note: would leak its evaluation labels (label_text); "
        "name them as labels, or take them out"
    )


def test_labels_without_a_file_for_them_are_refused_not_dropped(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", [{"incident_id": "a", "gold": "restart pod 7"}])
    with path.open("rb") as stream, pytest.raises(PrepareError, match="no file to split them off to") as caught:
        prepare_stream(stream, path.name, io.BytesIO())
    assert "restart" not in str(caught.value)


def test_a_label_or_column_that_no_record_has_is_refused(tmp_path: Path) -> None:
    records = [{"incident_id": "a", "resolution": "x"}]
    assert refused(tmp_path, "a.jsonl", records, label_fields=["resolutoin"]).field == "resolutoin"
    assert refused(tmp_path, "a.jsonl", records, mapping={"facets.x": "nowhere"}).field == "nowhere"


def test_a_column_that_no_record_has_was_told_by_each_record_alone(tmp_path: Path) -> None:
    error = refused(tmp_path, "a.jsonl", [{"n": "a"}, {"n": "b"}], mapping={"incident_id": "nope"})
    assert str(error) == "a.jsonl, field nope: mapped, but no record has it, labels aside"


@pytest.mark.parametrize(
    ("header", "options", "field", "said"),
    [
        ("number,text", {"mapping": {"incident_id": "nope"}}, "nope", "; the columns are number, text"),
        ("number,text", {"mapping": {"incident_id": "no", "context.a": "/nor"}}, "no, /nor", "no columns are called"),
        ("incident_id,text", {"label_fields": ["txt"]}, "txt", "the columns are incident_id, text"),
        ("incident_id,text", {"mapping": {"labels.risk_level": "txt"}}, "txt", "the columns are incident_id, text"),
        ("number,text", {}, "incident_id", "--map incident_id=COLUMN; the columns are number, text"),
        ("number;text", {}, "incident_id", "number;text, and holds semicolons: cells must be separated by commas"),
        ("number\ttext", {"mapping": {"incident_id": "number"}}, "number", "and holds tabs: cells must be"),
        ("number", {"mapping": {"incident_id": "nope"}}, "nope", "; the only column is number"),
    ],
)
@pytest.mark.parametrize("rows", [0, 40])
def test_a_column_that_a_table_does_not_have_was_told_of_each_row_and_never_of_the_table(
    tmp_path: Path, header: str, options: dict[str, Any], field: str, said: str, rows: int
) -> None:
    told: list[Fault] = []
    path = written(tmp_path, "a.csv", f"{header}\n" + "1,a,surplus\n" * rows)
    with path.open("rb") as stream, pytest.raises(PrepareError) as caught:
        prepare_stream(
            stream,
            path.name,
            io.BytesIO(),
            options=PrepareOptions(**options, on_invalid="reject"),
            on_fault=told.append,
        )
    assert (caught.value.place, caught.value.field, told) == ("line 1", field, [])
    assert said in caught.value.message


def test_the_columns_of_a_file_without_a_header_are_not_all_told(tmp_path: Path) -> None:
    error = refused(tmp_path, "a.csv", ",".join(f"{n}{'x' * 90}" for n in range(50)) + "\n")
    assert "29xxx" in error.message
    assert "30xxx" not in error.message
    assert "x" * 61 not in error.message
    assert error.message.endswith("... and 20 more")


TEMPLATES = ("{{ $value }} errors a second", " {{.Labels.pod}} is down", "{% if a %}b{% endif %}", "{# note #} text")


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_text_that_begins_with_a_template_was_taken_for_broken_json(tmp_path: Path, text: str) -> None:
    mapping = {"incident_id": "n", "context": "description"}
    outcome = Outcome(written(tmp_path, "a.csv", f"n,description\n1,{text}\n"), mapping=mapping)
    assert outcome.requests[0]["incident_context"] == {"description": text}


@pytest.mark.parametrize("text", ["{'a': 1}", '{""a"": 1', "{x", "{"])
def test_a_document_that_is_broken_does_not_pass_for_text(tmp_path: Path, text: str) -> None:
    content = f'n,description\n1,"{text}"\n'
    error = refused(tmp_path, "a.csv", content, mapping={"incident_id": "n", "context": "description"})
    assert (error.place, error.field) == ("line 2", "description")
    assert "begins like JSON" in error.message
    assert "--map context.NAME=COLUMN" in error.message
    outcome = Outcome(tmp_path / "a.csv", mapping={"incident_id": "n", "context.about": "description"})
    assert outcome.requests[0]["incident_context"] == {"about": text.replace('""', '"')}


@pytest.mark.parametrize(
    ("name", "content", "options", "place", "field"),
    [
        ("a.jsonl", "", {}, None, None),
        ("a.jsonl", '{"incident_id":"a"}\n{"incident_id":\n', {}, "line 2", None),
        ("a.jsonl", '{"incident_id":"a"}\n\n[1]\n', {}, "line 3", None),
        ("a.jsonl", '{"incident_id":"a","incident_id":"b"}\n', {}, "line 1", None),
        ("a.jsonl", '{"title":"a"}\n', {}, "line 1", "incident_id"),
        ("a.jsonl", '{"incident_id":["a"]}\n', {}, "line 1", "incident_id"),
        ("a.jsonl", '{"n":"a"}\n{"m":"b"}\n', {"mapping": {"incident_id": "n"}}, "line 2", "n"),
        ("a.jsonl", '{"incident_id":"a"}\n', {"mapping": {"incident": "n"}}, None, "incident"),
        ("a.jsonl", '{"incident_id":"a","c":"{x"}\n', {"mapping": {"context": "c"}}, "line 1", "c"),
        ("a.jsonl", '{"incident_id":"a"}\n', {"run_id": "no id"}, "line 1", "run_id"),
        ("a.jsonl", '{"incident_id":"a"}\n', {"variant": "none such"}, None, None),
        ("a.txt", '{"incident_id":"a"}\n', {}, None, None),
        ("a.json", '{"alerts":[1]}', {}, "line 1, alerts[0]", None),
        ("a.json", '{"alerts":[{"labels":{}}]}', {}, "line 1, alerts[0]", "labels"),
        ("a.json", '{"alerts":3}', {"format": "alertmanager"}, "line 1", "alerts"),
        ("a.json", '{"expr":"up"}', {"format": "prometheus"}, "line 1", "alertname"),
        ("a.csv", "", {}, None, None),
        ("a.csv", "a,a\n", {}, "line 1", None),
        ("a.csv", "incident_id,b\n1,2\n3\n", {}, "line 3", None),
        ("a.csv", 'incident_id,b\n1,"2\n', {}, "line 2", None),
    ],
)
def test_what_cannot_be_prepared_is_named_with_file_place_and_field(
    tmp_path: Path, name: str, content: str, options: dict[str, Any], place: str | None, field: str | None
) -> None:
    error = refused(tmp_path, name, content, **options)
    assert (error.file, error.place, error.field) == (name, place, field)
    assert str(error).startswith(name)


def test_a_csv_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"incident_id,b\n1,\xff\n")
    with pytest.raises(PrepareError, match="not UTF-8"):
        Outcome(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("content", "line", "named"),
    [
        ("incident_id,b\n1,x\n".encode("utf-16"), 1, "of UTF-16; convert it: `iconv -f UTF-16 -t UTF-8`"),
        (codecs.BOM_UTF16_BE + "incident_id,b\n1,x\n".encode("utf-16-be"), 1, "of UTF-16"),
        (b"incident_id,b\r\n1,\xe9\r\n", 2, "`iconv -f ENCODING -t UTF-8`"),
        (b"incident_id,b\n" + b"".join(b"%d,x\n" % n for n in range(5000)) + b"x,\xe9\n", 5002, "ENCODING"),
        (b"incident_id,b\n1,x\n2,\xe2\x82", 3, "ENCODING"),
    ],
)
def test_a_csv_file_that_is_not_utf_8_was_told_to_fail_after_line_0(
    tmp_path: Path, content: bytes, line: int, named: str
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(PrepareError) as refusal:
        Outcome(tmp_path / "a.csv")
    assert refusal.value.place == f"line {line}"
    assert refusal.value.message.startswith("not UTF-8; ")
    assert named in refusal.value.message


# --- ids -----------------------------------------------------------------------------------


@given(st.text(min_size=1))
def test_any_text_becomes_an_id_and_an_id_stays_as_it_is(text: str) -> None:
    made = as_id(text)
    assert _is_id(made)
    assert as_id(made) == made
    facet = as_facet(text)
    assert facet == "" or _is_id(facet)


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=6))
def test_distinct_incidents_keep_distinct_ids(names: list[str]) -> None:
    assert len({as_id(name) for name in names}) == len(names)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=4), max_size=3))
def test_whatever_is_prepared_is_a_request_that_passes_or_a_fault(rows: list[dict[str, Any]]) -> None:
    records = [Record("jsonl", f"line {n}", {"incident_id": n, **row}, {}) for n, row in enumerate(rows, start=1)]
    prepared: list[Prepared | Fault] = []
    with contextlib.suppress(PrepareError):
        prepared.extend(prepare_records(records, "x.jsonl", PrepareOptions()))
    assert len(prepared) == len(records)
    for one in prepared:
        if isinstance(one, Fault):
            continue
        request = parse_line(1, one.line)
        assert isinstance(request, ReplayRequest)
        assert scan(request.document) == ()
