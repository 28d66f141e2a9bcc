"""A report as continuous integration reads it: cases that add up, and no green light for what is not usable."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import pytest
from hypothesis import given, settings

from ledger.events import NewEvent
from ledger.projections.incidents import Incident, incidents
from ledger.projections.report import report as make_report
from ledger.projections.tables import fold
from ledger.render import grades_junit, report_forms, report_junit
from ledger.store import open_store
from tests.ledger.render.hostile import ORIGIN, TEXTS, fallback, identity, incident, poisoned, refused
from tests.ledger.render.test_report import report_of
from tests.stories import stories, story

# Element: attributes it must have, those it may have, elements it may hold. After the schema of Jenkins.
COUNTS = {"tests", "failures", "errors"}
FORM: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", *COUNTS}, {"testsuite"}),
    "testsuite": ({"name", *COUNTS}, {"time", "skipped", "timestamp"}, {"properties", "testcase"}),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"classname", "name"}, {"time"}, {"failure", "error"}),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message", "type"}, set(), set()),
}


def read(data: bytes) -> ElementTree.Element:
    """The document, by a parser that takes no declaration of an entity, held to the schema's form."""

    def refuse(*_: object) -> None:
        raise AssertionError("a document type")

    strict = expat.ParserCreate()
    strict.StartDoctypeDeclHandler = strict.EntityDeclHandler = strict.ExternalEntityRefHandler = refuse
    strict.Parse(data, True)
    root = ElementTree.fromstring(data)
    assert root.tag == "testsuites"
    for element in root.iter():
        needed, allowed, children = FORM[element.tag]
        assert needed <= set(element.attrib) <= needed | allowed
        assert {child.tag for child in element} <= children
        for name in ("time",):
            assert name not in element.attrib or float(element.attrib[name]) >= 0
    for suite in root:
        tags = [child.tag for child in suite]
        assert tags == sorted(tags), "properties first, once"
        assert counted(suite) == [int(suite.attrib[name]) for name in ("tests", "failures", "errors")]
    assert counted(root) == [int(root.attrib[name]) for name in ("tests", "failures", "errors")]
    return root


def counted(of: ElementTree.Element) -> list[int]:
    cases = list(of.iter("testcase"))
    assert all(len(case) <= 1 for case in cases)
    return [len(cases), *(sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error"))]


def rendered(report: dict[str, Any], lines: Iterable[Incident], who: Any = None) -> ElementTree.Element:
    return read(b"".join(report_junit.render(report, who or identity(), lines, ORIGIN)))


def properties(root: ElementTree.Element) -> dict[str, str]:
    return {one.attrib["name"]: one.attrib["value"] for one in root.iter("property")}


def of_lines(*lines: Incident, **changes: Any) -> dict[str, Any]:
    """A report whose counts are those of the lines."""
    made = report_of(story(Random(1)))
    outcomes = ("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected")
    counts = {name: sum(line.outcome == name for line in lines) for name in (*outcomes, "not_started", "incomplete")}
    errors: dict[str, int] = {}
    for line in lines:
        if line.outcome == "fallback_records":
            errors[line.error or ""] = errors.get(line.error or "", 0) + 1
    valid = all(line.accepted for line in lines) and bool(lines)
    made |= {"valid": valid, "outcome": "completed", "unreadable": 0, "failures": [], "errors": errors}
    return {**made, **counts, "requests": len(lines), **changes}


def test_each_outcome_is_what_it_is_to_a_reader_of_tests() -> None:
    unsent = {"incident_id": "INC-9", "error": None, "first_error": None}
    lines = (
        incident(1),
        incident(2, outcome="accepted_after_retry", first_error="model_output_empty", attempts=2),
        fallback(3, "http_503", first_error="rate_limited", attempts=3, waited_ms=250, facets={"team": "a"}),
        fallback(4, "not_sent", attempts=0),
        refused(5, request_id="INC-1", where="request_id"),
        refused(6, "leak_rejected", error="request_self_grading_leak", request_id=None, where="evaluation_labels"),
        refused(7, "not_started", **unsent),
        refused(8, "incomplete", **unsent, attempts=1, failed_us=None),
        fallback(9, "auth_error"),
    )
    root = rendered(of_lines(*lines), lines)
    found = [
        (case.attrib["name"], *((case[0].tag, case[0].attrib["type"]) if len(case) else ("passed", "")))
        for case in root.iter("testcase")
    ]
    assert found == [
        ("INC-1", "passed", ""),
        ("INC-2", "passed", ""),
        ("INC-3", "failure", "http_503"),
        ("INC-4", "error", "not_sent"),
        ("INC-1 (line 5)", "error", "request_invalid"),
        ("line-6", "error", "request_self_grading_leak"),
        ("INC-7", "error", "not_started"),
        ("INC-8", "error", "incomplete"),
        ("INC-9", "failure", "auth_error"),
    ]
    third = next(case for case in root.iter("testcase") if case.attrib["name"] == "INC-3")
    assert (third.attrib["classname"], third.attrib["time"]) == (
        "nemo_nemotron_fabric.nemo_nemotron_fabric__contract_tuned_v1",
        "0.020000",
    )
    assert (third[0].text or "").splitlines() == [
        "incident: INC-3, line 3",
        "first error: rate_limited",
        "last error: http_503",
        "attempts: 3, which took 20.000 ms, and 250.000 ms between them",
        "team: a",
        "position: 13, decided at 23",
        "replay-ledger show run-1 INC-3",
    ]
    open_call = next(case for case in root.iter("testcase") if case.attrib["name"] == "INC-8")
    assert "time" not in open_call.attrib, "what is not known is not 0"
    leak = next(case for case in root.iter("testcase") if case.attrib["name"] == "line-6")
    assert "where: evaluation_labels" in (leak[0].text or "")


@settings(max_examples=60)
@given(stories())
def test_cases_add_up_to_the_requests_of_whatever_run(told: list[NewEvent]) -> None:
    with open_store("sqlite://", "create", fold=fold) as store:
        store.append(told)
        made = make_report(store, "run-1")
        root = read(b"".join(report_forms.render(store, made, "junit")))
        lines = list(incidents(store, "run-1", made["as_of"]["position"]))
    of_requests = root[0]
    assert int(of_requests.attrib["tests"]) == made["requests"] == len(lines)
    passed = made["requests"] - int(of_requests.attrib["failures"]) - int(of_requests.attrib["errors"])
    assert passed == made["accepted_first"] + made["accepted_after_retry"]
    green = int(root.attrib["failures"]) + int(root.attrib["errors"]) == 0 and made["requests"] > 0
    assert green == made["valid"]
    assert len({case.attrib["name"] for case in of_requests.iter("testcase")}) == made["requests"]


@settings(max_examples=60)
@given(stories(), TEXTS)
def test_hostile_text_is_valid_xml_and_shown_escaped(told: list[NewEvent], text: str) -> None:
    lines = [incident(1, request_id=text), fallback(2, text, where=text, facets={text: text}, first_error="x")]
    made = poisoned(of_lines(*lines), text) | {"errors": {}, "outcome": "completed"}
    root = rendered(made, lines, identity(text))
    everything = "".join(root.itertext()) + "".join("".join(element.attrib.values()) for element in root.iter())
    assert not set(everything) & set("\x00\x0b\x1b\u202e\u200b\ufffe\u2028\u0085\t\r")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unreadable": 1, "failures": ["unreadable:7"]}, "1 event that cannot be read"),
        ({"outcome": "incomplete"}, "the run has not ended"),
        ({"outcome": "abandoned"}, "the run was abandoned"),
    ],
)
def test_a_run_whose_every_request_passed_is_no_green_light_where_it_is_not_usable(
    changes: dict[str, Any], why: str
) -> None:
    root = rendered(of_lines(incident(1), **changes, valid=False), [incident(1)])
    assert [suite.attrib["name"] for suite in root] == ["run-1", "run-1 as a whole"]
    assert (root.attrib["tests"], root.attrib["errors"], root[0].attrib["tests"]) == ("2", "1", "1")
    assert root[1][0][0].attrib == {"message": why, "type": "not_usable"}
    assert all(failure in (root[1][0][0].text or "") for failure in changes.get("failures", []))


def test_a_run_that_was_blocked_before_any_request_is_an_error() -> None:
    made = of_lines(outcome="blocked", failures=["api_key_missing"])
    root = rendered(made, ())
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("1", "0", "1")
    assert "api_key_missing" in (root[1][0][0].text or "")


def test_properties_say_which_run_it_is_and_what_it_stands_on() -> None:
    lines = [incident(1), fallback(2)]
    made = of_lines(*lines)
    root = rendered(made, lines)
    found = properties(root)
    assert found["run_id"] == "run-1"
    assert found["model_asked"] == "example/model-1"
    assert found["as_of_position"] == str(made["as_of"]["position"])
    assert found["root"] == made["as_of"]["root"]
    assert found["ledger"] == ORIGIN
    assert found["usable_as_evaluation"] == "no"
    assert found["why_not_usable"] == "1 request without an answer that could be accepted"
    assert found["selection"].startswith("50 of 1,155 lines")
    assert root[0].attrib["timestamp"] == "2026-11-30T20:41:03.000001Z", "the run's own, not the moment's"
    assert root[0].attrib["time"] == "62.250000"


def test_cases_are_written_as_they_are_read() -> None:
    taken = 0

    def many() -> Iterable[Incident]:
        nonlocal taken
        for line in range(1000):
            taken += 1
            yield incident(line)

    pieces = iter(report_junit.render(of_lines(incident(1)), identity(), many(), ORIGIN))
    for _ in range(5):
        next(pieces)
    assert 0 < taken < 10


def grade(number: int, **changes: Any) -> dict[str, Any]:
    fields = ("label_risk_level", "label_requires_human_approval", "label_blocked_by_policy", "dangerous", "risk_level")
    nothing = dict.fromkeys((*fields, "requires_human_approval", "blocked_by_policy"))
    named = {"request_id": f"INC-{number}", "incident_id": f"INC-{number}"}
    return {**named, **nothing, "outcome": "accepted", "correct": False, **changes}


def test_grades_fail_by_what_is_wrong_and_are_an_error_without_an_answer() -> None:
    import json

    data = Path(__file__).parents[2] / "data" / "grades" / "some.1.json"
    made = json.loads(data.read_bytes())
    flags = {"requires_human_approval": False, "blocked_by_policy": False}
    each = [
        grade(1, label_risk_level="critical", dangerous=True, risk_level="low", **flags),
        grade(2, label_risk_level="low", dangerous=False, risk_level="high", **flags | {"blocked_by_policy": True}),
        grade(3, dangerous=True, outcome="fallback"),
        grade(4, label_risk_level="low", risk_level="low", correct=True, **flags),
    ]
    root = read(b"".join(grades_junit.render(made, each)))
    found = [(case[0].tag, case[0].attrib["type"]) if len(case) else ("passed", "") for case in root.iter("testcase")]
    assert found == [("failure", "false_safe"), ("failure", "false_alarm"), ("error", "fallback"), ("passed", "")]
    first = next(root.iter("failure"))
    assert (first.text or "").splitlines()[1] == "risk_level: label critical, answer low"
    assert properties(root)["unlabelled"] == "1"
    assert properties(root)["false_safe"].startswith("1 of 3 (33.3 %")
    lost = read(b"".join(grades_junit.render({**made, "missing_parts": 1}, each)))
    assert (lost.attrib["tests"], lost.attrib["errors"]) == ("5", "2")
    assert "cannot be read" in lost[1][0][0].attrib["message"]
