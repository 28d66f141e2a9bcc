"""The files that ``prepare`` is given, sound and hostile: each form read, each fault named with its place."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from commands._mapping import fields_from
from runner.labels import read_labels
from runner.prepare import PrepareError, PrepareOptions, prepare_stream
from runner.prepare_fields import FACETS, GROUPS, IDS_AND_TEXTS, find, look_up, without
from runner.prepare_reading import read_source
from runner.prepare_sources import Fault, Record, Skipped
from tests.runner.leaks import ALERTS
from tests.runner.test_prepare import NOTIFICATION, Outcome, refused, written

RULES = """
groups:
- name: node
  interval: 30s
  labels: {team: core, severity: info}
  rules:
  - record: job:up:sum
    expr: sum by (job) (up)
  - alert: NodeDown
    expr: up == 0
    for: 5m
    labels:
      severity: critical
    annotations:
      summary: "{{ $labels.instance }} is down"
  - alert: Retries
    expr: rate(retries[5m]) > no
"""


def found(content: str | bytes, name: str, wanted: Any = "auto") -> list[Any]:
    data = content.encode() if isinstance(content, str) else content
    return list(read_source(io.BufferedReader(io.BytesIO(data)), name, wanted))  # type: ignore[arg-type]


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


# --- notifications -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        lines(NOTIFICATION, NOTIFICATION),
        json.dumps(NOTIFICATION, indent=2) + "\n\n" + json.dumps(NOTIFICATION, indent=1) + "\n",
        json.dumps(NOTIFICATION) + json.dumps(NOTIFICATION),
        "\ufeff\n\n" + json.dumps(NOTIFICATION, indent=2) + json.dumps(NOTIFICATION),
    ],
    ids=["a line each", "spread over lines", "on one line", "after a mark, end to end"],
)
@pytest.mark.parametrize("name", ["hooks.json", "hooks.jsonl", "hooks", "hooks.log"])
def test_notifications_one_after_another_are_told_by_their_content(text: str, name: str) -> None:
    records = found(text, name)
    assert [record.format for record in records] == ["alertmanager"] * 4
    assert [record.members["fingerprint"] for record in records] == ["a6ead519", "b6ead519"] * 2


def test_a_document_that_spreads_over_lines_is_placed_at_its_first() -> None:
    text = json.dumps(NOTIFICATION, indent=2)
    records = found(f"\n{text}\n\n{text}\n", "hooks.json")
    height = text.count("\n") + 1
    assert [record.place for record in records[::2]] == ["line 2, alerts[0]", f"line {height + 3}, alerts[0]"]


def test_what_is_wrong_in_a_document_is_placed_in_the_file() -> None:
    broken = '{\n  "alerts": [],\n\n  "status": nothing\n}\n'
    first = json.dumps(NOTIFICATION, indent=2)
    (fault,) = [one for one in found(f"{first}\n{broken}{first}", "hooks.json") if isinstance(one, Fault)]
    line = first.count("\n") + 2
    assert fault.place == f"line {line}"
    assert f"(line {line + 3}, column 13)" in fault.message


def test_one_broken_document_does_not_take_the_next_with_it() -> None:
    text = json.dumps(NOTIFICATION, indent=2)
    assert len(found(f"{text}\n{{\n x\n}}\n{text}", "hooks.json")) == 5


@pytest.mark.parametrize("between", [",", "]", "}", '"', "null"])
def test_what_stands_between_documents_is_no_json(between: str) -> None:
    text = json.dumps(NOTIFICATION, indent=2)
    assert any(isinstance(one, Fault) for one in found(f"{text}\n{between}\n{text}", "hooks.json"))


def test_a_document_that_never_ends_is_a_fault_where_it_begins() -> None:
    text = json.dumps(NOTIFICATION, indent=2)
    *_, fault = found(f"{text}\n{{\n", "hooks.json")
    assert isinstance(fault, Fault)
    assert fault.place == f"line {text.count(chr(10)) + 2}"


def test_a_broken_first_line_does_not_swallow_the_lines_after_it() -> None:
    fault, record = found('{"incident_id":\n{"incident_id":"b"}\n', "a.jsonl")
    assert (fault.place, record.place) == ("line 1", "line 2")


@pytest.mark.parametrize("after", ["x", "]", "null", "}"])
def test_a_line_with_something_after_its_object_is_a_fault_of_that_line(after: str) -> None:
    fault, record = found(f'{{"incident_id":"a","x":[{{}}]}} {after}\n{{"incident_id":"b"}}\n', "a.jsonl")
    assert (fault.place, record.place) == ("line 1", "line 2")


def test_brackets_inside_strings_end_nothing() -> None:
    alert = {"labels": {"alertname": 'a}{]["\\'}}
    text = json.dumps({"alerts": [alert]}, indent=2)
    assert [record.members for record in found(text * 3, "a.json")] == [alert] * 3


def test_alerts_that_alertmanager_left_out_are_told(tmp_path: Path) -> None:
    outcome = Outcome(written(tmp_path, "hook.json", {**NOTIFICATION, "truncatedAlerts": 7}))
    assert dict(outcome.summary.skipped) == {"alerts that Alertmanager left out of its notifications": 7}


def test_a_document_too_long_to_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.prepare_json.MAX_DOCUMENT_BYTES", 1000)
    with pytest.raises(PrepareError, match="longer than 1000 bytes"):
        found(json.dumps(NOTIFICATION, indent=2), "a.json")


@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_json_nested_without_end_is_a_fault(bracket: str) -> None:
    (fault,) = found('{"incident_id":"a","x":' + bracket * 100_000 + "\n", "a.jsonl")
    assert isinstance(fault, Fault)
    assert "nested deeper" in fault.message


def test_a_context_that_is_too_deep_for_a_request_is_a_fault(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(63):
        deep = {"a": deep}
    error = refused(tmp_path, "a.jsonl", [{"incident_id": "1", "x": deep}])
    assert (error.place, error.field) == ("line 1", None)
    assert "deeper" in error.message


# --- rule files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"), [("r.yml", "auto"), ("r.yaml", "auto"), ("r", "auto"), ("r", "prometheus")]
)
def test_a_rule_file_gives_its_alerting_rules(name: str, wanted: str) -> None:
    skipped, down, retries = found(RULES, name, wanted)
    assert skipped == Skipped(1, "recording rules")
    assert (down.place, retries.place) == ("line 9", "line 16")
    assert down.members == {
        "alertname": "NodeDown",
        "group": "node",
        "expr": "up == 0",
        "for": "5m",
        "annotations": {"summary": "{{ $labels.instance }} is down"},
        "labels": {"team": "core", "severity": "critical"},
    }
    assert retries.members["expr"] == "rate(retries[5m]) > no"


def test_a_rule_of_a_file_becomes_a_request(tmp_path: Path) -> None:
    outcome = Outcome(written(tmp_path, "node.rules.yml", RULES), constants={"policy_id": "freeze-7"})
    down, _ = outcome.requests
    assert down["incident_id"] == "nodedown"
    assert down["policy_id"] == "freeze-7"
    assert down["metadata"]["facets"] == {"severity": "critical", "team": "core"}
    assert down["source_metadata"] == {"source": "prometheus", "file": "node.rules.yml", "record": "line 9"}
    assert down["incident_context"]["status"] == "firing"
    assert dict(outcome.summary.skipped) == {"recording rules": 1}


def test_rules_as_kubernetes_has_them_are_read() -> None:
    one = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": yaml.safe_load(RULES)}
    listed = {"apiVersion": "v1", "kind": "List", "items": [one, one]}
    for text, name in [(yaml.safe_dump(listed), "r.yml"), (json.dumps(listed), "r.json")]:
        names = [record.members["alertname"] for record in found(text, name) if isinstance(record, Record)]
        assert names == ["NodeDown", "Retries"] * 2


def test_other_objects_beside_the_rules_are_passed_over(tmp_path: Path) -> None:
    rule = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": yaml.safe_load(RULES)}
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "spec": {"groups": "x"}}
    outcome = Outcome(written(tmp_path, "all.yml", yaml.safe_dump_all([monitor, rule, None])))
    assert outcome.summary.written == 2
    assert dict(outcome.summary.skipped) == {"objects of other kinds": 1, "recording rules": 1}


def test_a_rule_file_in_json_is_told_by_its_content() -> None:
    records = found(json.dumps(yaml.safe_load(RULES), indent=1), "r.json")
    assert [one.place for one in records[1:]] == ["line 1, groups[0].rules[1]", "line 1, groups[0].rules[2]"]


@pytest.mark.skipif(not ALERTS.exists(), reason="the alert rules are not here")
def test_real_rules_make_the_same_incidents_from_a_rule_file_as_from_json_lines(tmp_path: Path) -> None:
    rules = [json.loads(line) for line in ALERTS.read_text(encoding="utf-8").splitlines()]
    groups: dict[str, list[dict[str, Any]]] = {}
    for rule in rules:
        made = {
            "alert": rule["alertname"],
            "expr": rule["expr"],
            **({"for": rule["for"]} if rule["for"] else {}),
            "labels": {"severity": rule["severity"], "service": rule["service"]},
            "annotations": {"summary": rule["title"], "description": rule["description"]},
        }
        groups.setdefault(f"{rule['service']} / {rule['group']}", []).append(made)
    document = {"groups": [{"name": name, "rules": members} for name, members in groups.items()]}
    path = written(tmp_path, "all.rules.yml", yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    from_yaml, from_lines = Outcome(path), Outcome(ALERTS)
    assert from_yaml.summary.written == len(rules) == 1155
    assert {one["incident_id"] for one in from_yaml.requests} == {one["incident_id"] for one in from_lines.requests}
    exprs = sorted(one["incident_context"]["expr"] for one in from_yaml.requests)
    assert exprs == sorted(rule["expr"] for rule in rules)
    assert {one["metadata"]["facets"]["severity"] for one in from_yaml.requests} == {r["severity"] for r in rules}


@pytest.mark.parametrize(
    ("content", "place", "field"),
    [
        ("", None, None),
        ("# nothing\n", None, None),
        ("groups: x\n", "line 1", "groups"),
        ("- a\n", None, None),
        ("a: 1\n", "line 1", "groups"),
        ("groups:\n- name: a\n", "line 2", "rules"),
        ("groups:\n- name: a\n  rules: [x]\n", "line 2, groups[0].rules[0]", None),
        ("groups:\n- name: a\n  rules:\n  - alert: A\n", "line 4", "expr"),
        ("groups:\n- name: a\n  rules:\n  - alert: [A]\n    expr: up\n", "line 4", "alert"),
        ("groups:\n- name: a\n  rules:\n  - expr: up\n", "line 4", "alert"),
        ("groups:\n- name: a\n  rules:\n  - {alert: A, expr: up, labels: [x]}\n", "line 4", "labels"),
        ("groups:\n- name: a\n  rules:\n  - {alert: A, expr: up, alert: B}\n", "line 4", None),
        ("groups:\n- &a [*a]\n", "line 2", None),
        ("groups: !!set {a}\n", "line 1", None),
    ],
)
def test_a_rule_file_that_is_none_is_refused_with_its_place(
    tmp_path: Path, content: str, place: str | None, field: str | None
) -> None:
    error = refused(tmp_path, "r.yml", content)
    expected = "line 1, groups[0].rules[0]" if place and "rules[0]" in place else place
    assert (error.place, error.field) == (expected, field)


def test_a_rule_file_that_is_not_utf_8_is_refused_by_its_line() -> None:
    with pytest.raises(PrepareError, match="line 2: not UTF-8"):
        found(b"groups:\n- name: \xff\n", "r.yml")
    with pytest.raises(PrepareError, match="not UTF-8"):
        found("groups: []".encode("utf-16"), "r.yml")


def test_a_rule_that_holds_its_answer_leaks_or_is_split(tmp_path: Path) -> None:
    text = RULES.replace("summary:", "expected_action: restart\n      summary:")
    outcome = Outcome(written(tmp_path, "r.yml", text))
    assert outcome.labels == [{"request_id": "nodedown", "labels": {"annotations.expected_action": "restart"}}]
    spoken = RULES.replace("is down", "the expected action is: restart it")
    error = refused(tmp_path, "s.yml", spoken)
    assert (error.place, error.field, error.leaks) == ("line 9", "incident_context.annotations.summary", True)


# --- CSV -----------------------------------------------------------------------------------


def test_cells_keep_what_they_hold() -> None:
    cells = ["=HYPERLINK(1)", "+1", "@x", 'q"q', "a\r\nb", "\x1b[31m", "\u202e", "<script>", "  "]
    quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    (record,) = found("\ufeff" + ",".join(f"c{n}" for n in range(len(cells))) + "\r\n" + quoted + "\r\n", "a.csv")
    assert list(record.members.values()) == cells


def test_a_row_is_placed_at_its_first_line() -> None:
    records = found('a,b\n1,"x\ny"\n\n2,z\n', "a.csv")
    assert [record.place for record in records] == ["line 2", "line 5"]


def test_a_row_of_another_width_and_a_nul_are_faults_and_reading_goes_on() -> None:
    first, second, third, fourth = found("a,b\n1\n1,2,3\n1,\x00\n1,2\n", "a.csv")
    assert [str(one) for one in (first, second, third)] == [
        "a.csv, line 2: 1 cell under 2 columns",
        "a.csv, line 3: 3 cells under 2 columns",
        "a.csv, line 4, field b: U+0000 in the text",
    ]
    assert fourth.members == {"a": "1", "b": "2"}


def test_a_long_cell_is_read_and_one_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = found("a,b\n1," + "x" * 500_000 + "\n", "a.csv")
    assert len(record.members["b"]) == 500_000
    monkeypatch.setattr("runner.prepare_csv.MAX_ROW_CHARS", 1000)
    for text in ("a,b\n1," + "x" * 2000 + "\n", 'a,b\n1,"' + "x\n" * 2000, "a," + "b" * 2000 + "\n"):
        with pytest.raises(PrepareError, match="longer than 1000 characters"):
            found(text, "a.csv")


@pytest.mark.parametrize("text", ['a,b\n1,"2"x\n', 'a,b\n1,"2\n3,4\n'])
def test_quotes_that_do_not_fit_end_it_all(text: str) -> None:
    with pytest.raises(PrepareError, match="line 2"):
        found(text, "a.csv")


# --- fields --------------------------------------------------------------------------------

NESTED = {"a": {"b": [{"c/d": 1}, {"e~f": 2}]}, "x.y": 3, "/a": 4, "x": {"y": 5}, "": 6}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("/a/b/0/c~1d", 1),
        ("/a/b/1/e~0f", 2),
        ("a.b.0.c/d", 1),
        ("x.y", 3),
        ("/x/y", 5),
        ("/a", 4),
        ("/", 6),
        ("/a/b/2", None),
        ("/a/b/-", None),
        ("/a/b/01", None),
        ("/a/b/0/c~1d/x", None),
        ("/nowhere", None),
    ],
)
def test_a_column_is_found_by_its_name_its_pointer_or_its_path(column: str, value: Any) -> None:
    assert look_up(NESTED, column) == value


def test_what_went_elsewhere_is_taken_out_and_nothing_else() -> None:
    record = {"a": [{"x": 1, "y": 2}, 3], "b": 4}
    ways = [find(record, column) for column in ("/a/0/x", "/a/1", "/nowhere", "b")]
    assert without(record, ways) == {"a": [{"y": 2}, None]}
    assert record == {"a": [{"x": 1, "y": 2}, 3], "b": 4}


def test_a_source_that_is_never_sent_is_not_in_the_context_either(tmp_path: Path) -> None:
    record = {"incident_id": "a", "links": {"ticket": "https://example.com/7", "wiki": "w"}}
    (request,) = Outcome(written(tmp_path, "a.jsonl", [record]), mapping={"source.url": "/links/ticket"}).requests
    assert request["incident_context"] == {"links": {"wiki": "w"}}
    assert request["source_metadata"]["url"] == "https://example.com/7"


def test_constants_fill_in_what_a_record_does_not_say(tmp_path: Path) -> None:
    records = [{"incident_id": "a", "p": "policy 7", "x": True}, {"incident_id": "b", "p": None, "x": False}]
    outcome = Outcome(
        written(tmp_path, "a.jsonl", records),
        mapping={"policy_id": "p", "facets.cold": "x"},
        constants={"policy_id": "default", "facets.env": "prod", "context.site": "north"},
    )
    first, second = outcome.requests
    assert first["policy_id"].startswith("policy-7-")
    assert second["policy_id"] == "default"
    assert first["metadata"]["facets"] == {"cold": "true", "env": "prod"}
    assert second["metadata"]["facets"] == {"cold": "false", "env": "prod"}
    assert first["incident_context"] == {"x": True, "site": "north"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"constants": {"incident_id": "a"}}, "incident_id"),
        ({"constants": {"labels.risk_level": "low"}}, "labels.risk_level"),
        ({"constants": {"context.": "a"}}, "context."),
        ({"mapping": {"incident_id": "/a~2"}}, "/a~2"),
        ({"label_fields": ["/a~"]}, "/a~"),
        ({"mapping": {f"facets.f{n}": "a" for n in range(9)}}, "facets"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, options: dict[str, Any], field: str) -> None:
    assert refused(tmp_path, "a.jsonl", [{"incident_id": "a", "a": 1}], **options).field == field


def test_labels_are_named_by_pointers_and_get_the_names_that_they_are_read_by(tmp_path: Path) -> None:
    records = [{"incident_id": "a", "review": [{"level": "high", "by": "anna"}], "note": "n"}]
    outcome = Outcome(
        written(tmp_path, "a.jsonl", records),
        mapping={"labels.risk_level": "/review/0/level"},
        label_fields=["review[0].by"],
    )
    assert outcome.labels == [{"request_id": "a", "labels": {"risk_level": "high", "review[0].by": "anna"}}]
    assert outcome.requests[0]["incident_context"] == {"review": [{}], "note": "n"}


def test_the_flags_of_cells_are_flags_among_the_labels(tmp_path: Path) -> None:
    text = "incident_id,stop,level\na,true,high\nb,false,low\nc,,low\n"
    mapping = {"labels.blocked_by_policy": "stop", "labels.risk_level": "level"}
    outcome = Outcome(written(tmp_path, "a.csv", text), mapping=mapping)
    assert [line["labels"] for line in outcome.labels] == [
        {"blocked_by_policy": True, "risk_level": "high"},
        {"blocked_by_policy": False, "risk_level": "low"},
        {"risk_level": "low"},
    ]


def test_grade_reads_the_labels_that_are_split_off(tmp_path: Path) -> None:
    text = "number,seen,level,stop,resolution\n7 b,slow,high,true,rolled back\n8,down,low,,restarted\n"
    mapping = {"incident_id": "number", "labels.risk_level": "level", "labels.blocked_by_policy": "stop"}
    outcome = Outcome(written(tmp_path, "a.csv", text.replace(",resolution", ",note")), mapping=mapping)
    read = read_labels([json.dumps(line).encode() for line in outcome.labels], form="jsonl")
    assert [(one.request_id, one.risk_level, one.blocked_by_policy) for one in read] == [
        (outcome.requests[0]["incident_id"], "high", True),
        ("8", "low", None),
    ]
    outcome = Outcome(written(tmp_path, "b.csv", text), mapping=mapping, label_fields=["resolution"])
    lines_of = [json.dumps(line).encode() for line in outcome.labels]
    assert len(read_labels(lines_of, form="jsonl")) == 2


def test_the_file_of_fields_that_the_docs_show_does_what_they_say(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "prepare.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mapping.toml").write_text(block)
    fields = fields_from([str(tmp_path / "mapping.toml")], [], [], [], None)
    record = {
        "ticket": {"key": "OPS-7"},
        "description": "slow",
        "review": [{"risk": "high"}],
        "where": ["north"],
        "closed_by": "anna",
    }
    outcome = Outcome(
        written(tmp_path, "a.jsonl", [record]),
        mapping=fields.mapping,
        constants=fields.constants,
        label_fields=fields.labels,
    )
    (request,) = outcome.requests
    assert request["incident_id"] == "OPS-7"
    assert request["incident_context"] == {"symptom": "slow"}
    assert request["policy_id"] == "change-freeze-2026"
    assert request["metadata"]["facets"] == {"site": "north", "env": "prod"}
    assert outcome.labels == [{"request_id": "OPS-7", "labels": {"risk_level": "high", "closed_by": "anna"}}]
    assert all(f"`{name}" in page for name in (*IDS_AND_TEXTS, *GROUPS, *FACETS))


def test_a_request_is_not_prepared_again(tmp_path: Path) -> None:
    first = Outcome(written(tmp_path, "a.jsonl", [{"incident_id": "a"}]))
    error = refused(tmp_path, "b.jsonl", first.text)
    assert (error.place, error.field) == ("line 1", "schema_version")


# --- what is left out ----------------------------------------------------------------------

MIXED = [
    {"incident_id": "a", "n": 1},
    {"incident_id": "b", "note": "the expected action is: restart pod 7"},
    {"n": 2},
    {"incident_id": "a", "n": 3},
    {"incident_id": "c", "n": 4},
]


def test_every_fault_is_named_before_anything_is_refused(tmp_path: Path) -> None:
    faults: list[Fault] = []
    path = written(tmp_path, "a.jsonl", MIXED)
    out = io.BytesIO()
    with path.open("rb") as stream, pytest.raises(PrepareError) as caught:
        prepare_stream(stream, path.name, out, on_fault=faults.append)
    assert [(fault.place, fault.kind) for fault in faults] == [
        ("line 2", "leak"),
        ("line 3", "invalid"),
        ("line 4", "invalid"),
    ]
    assert caught.value.leaks
    assert caught.value.fault == faults[0]
    assert "pod 7" not in "".join(map(str, faults))


def test_what_is_to_be_left_out_is_left_out_and_counted(tmp_path: Path) -> None:
    outcome = Outcome(written(tmp_path, "a.jsonl", MIXED), on_invalid="reject", on_leak="reject")
    assert [request["incident_id"] for request in outcome.requests] == ["a", "c"]
    assert (outcome.summary.records, outcome.summary.written) == (5, 2)
    assert (outcome.summary.invalid, outcome.summary.leaking) == (2, 1)
    assert len(outcome.faults) == 3


@pytest.mark.parametrize(("left_out", "leaks"), [("on_leak", False), ("on_invalid", True)])
def test_what_is_not_to_be_left_out_still_stops_it_all(tmp_path: Path, left_out: str, leaks: bool) -> None:
    assert refused(tmp_path, "a.jsonl", MIXED, **{left_out: "reject"}).leaks is leaks


def test_a_file_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, "a.jsonl", MIXED[1:3], on_invalid="reject", on_leak="reject")
    assert "nothing in it becomes a request" in error.message


class Endless(io.RawIOBase):
    """Rows that are made as they are read."""

    def __init__(self, rows: int) -> None:
        self.rows, self.left, self.rest = rows, rows, b"incident_id,title\n"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while len(self.rest) < len(buffer) and self.left:
            self.rest += f"incident-{self.left},{'a title that goes on ' * 20}\n".encode()
            self.left -= 1
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


class Nowhere(io.BytesIO):
    def write(self, data: Any, /) -> int:
        return len(data)


def test_memory_does_not_grow_with_the_file() -> None:
    peaks = []
    for rows in (500, 3_000):
        tracemalloc.start()
        summary = prepare_stream(io.BufferedReader(Endless(rows)), "a.csv", Nowhere())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert summary.written == rows
    assert peaks[1] < peaks[0] + 500_000


@given(st.binary(max_size=200), st.sampled_from(["a.json", "a.jsonl", "a.csv", "a.yml", "a"]))
def test_any_bytes_become_requests_or_a_refusal(data: bytes, name: str) -> None:
    stream = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    try:
        prepare_stream(stream, name, io.BytesIO(), options=PrepareOptions(on_invalid="reject"))
    except PrepareError as error:
        assert str(error).startswith(name)  # noqa: PT017
