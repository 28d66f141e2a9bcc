"""A report to paste into a pull request: what was, in words and tables, and nothing that acts or is left out unsaid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from ledger.events import NewEvent
from ledger.projections.incidents import Incident
from ledger.render import grades_md, report_card, report_md, report_words
from tests.ledger.render.hostile import ORIGIN, TEXTS, fallback, identity, incident, poisoned, refused
from tests.ledger.render.test_markdown import check_harmless
from tests.ledger.render.test_report import report_of
from tests.stories import stories, story


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A report with something in every section."""
    for seed in range(10_000):
        found = report_of(story(Random(seed)))
        if all(found[name] for name in ("errors", "first_errors", "allowances", "facets", "failures", "policy_ids")):
            return found
    raise AssertionError("no story has it all")


def words(report: dict[str, Any], *incidents: Any, **changes: Any) -> str:
    """The report's words; with incidents its counts are theirs."""
    if incidents:
        accepted = [one for one in incidents if one.accepted]
        levels = {level: dict.fromkeys(report_words.DECISIONS, 0) for level in report_words.RISK_LEVELS}
        levels["low"]["neither"] = sum(one.low_and_neither for one in incidents)
        counts = {"requests": len(incidents), "accepted_first": len(accepted), "accepted_after_retry": 0}
        changes = {"decisions": {"by_risk_level": levels}, **counts, **changes}
    return b"".join(report_md.render({**report, **changes}, identity(), incidents, ORIGIN)).decode("utf-8")


def rows(text: str, section: str) -> list[list[str]]:
    """The cells of the tables of a section, without heads."""
    block = text.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if line[:1] == "|"]
    rules = [index for index, cells in enumerate(found) if all(set(cell) <= set("-:") for cell in cells)]
    return [cells for index, cells in enumerate(found) if index not in rules and index + 1 not in rules]


@settings(max_examples=60)
@given(stories(), TEXTS)
def test_no_renderer_makes_anything_of_a_hostile_report(told: list[NewEvent], text: str) -> None:
    lines = [
        incident(1, request_id=text),
        fallback(2, text, request_id=text, first_error="other"),
        refused(3, where=text, error=text, request_id=None),
    ]
    made = poisoned(report_of(told), text)
    (data,) = report_md.render(made, identity(text), lines, text)
    check_harmless(data.decode("utf-8"))


def test_usability_and_what_vouches_for_it_come_before_all_else(report: dict[str, Any]) -> None:
    text = words(report)
    first, why, *_ = text.split("\n\n")
    assert first == "# Report of run `run-1`"
    assert why == "**Usable as evaluation: no**, because"
    assert all(f"- {reason}\n" in text for reason in report_words.why_not_usable(report))
    head = text.split("\n## ")[0]
    for value in (report["as_of"]["root"], ORIGIN, "replay-ledger verify"):
        assert f"`{value}`" in head
    assert " valid" not in text.replace("no valid request", "")


def test_a_run_that_is_usable_is_said_to_be_and_why() -> None:
    made = next(
        found for seed in range(1000) if (found := report_of(story(Random(seed))))["valid"] and found["requests"] > 1
    )
    assert f"**Usable as evaluation: yes**, because all {made['requests']} requests have an accepted" in words(made)


@given(stories())
def test_outcomes_add_up_to_the_requests(told: list[NewEvent]) -> None:
    made = report_of(told)
    *seven, total = (int(cells[1].strip("*")) for cells in rows(words(made), "Requests"))
    assert sum(seven) == total == made["requests"]


def test_the_identity_card_says_which_run_it_is_and_which_part_of_the_file(report: dict[str, Any]) -> None:
    card = dict(rows(words(report), "The run"))
    assert card["selection"] == "`50 of 1,155 lines (limit=1-1155, sample=50, sample_seed=7)`"
    assert card["settings"] == "`json_mode=true`, `temperature=0.2`"
    assert (card["started by"], card["resumed by"]) == ("`ops-7`", "`ops-8 (2 times)`, `ops-9`")
    assert card["first event"] == "`position 2, 2026-11-30T20:41:03.000001Z`"
    assert card["model asked"] == "`example/model-1`"


def test_what_is_not_known_is_said_to_be_unknown_and_never_nothing_or_0(report: dict[str, Any]) -> None:
    nobody = identity()
    for name in ("candidate_id", "candidate_variant_id", "model", "settings", "lines", "first", "software_version"):
        setattr(nobody, name, None)
    tokens = {**dict.fromkeys(report["tokens"]), "calls_without_usage": 2}
    made = {**report, "tokens": tokens, "latency_us": dict.fromkeys(report["latency_us"])}
    text = b"".join(report_md.render(made, nobody, (), ORIGIN)).decode()
    card = dict(rows(text, "The run"))
    for name in ("candidate", "variant", "model asked", "settings", "selection", "first event", "software"):
        assert card[name] == "unknown"
    calls = dict(rows(text, "Model calls"))
    assert calls["tokens"] == "prompt unknown, completion unknown, total unknown, cached unknown, reasoning unknown"
    assert calls["usage unknown"].startswith("2 of ")
    assert calls["latency of answered calls, waits apart"] == "p50 unknown, p90 unknown, p99 unknown, max unknown"
    assert calls["cost"] == "not priced"


def test_a_cost_that_is_not_known_of_every_call_is_not_told_as_one() -> None:
    cost = {"currency": "USD", "known": "0.0042", "total": "0.0042", "prices_sha256": "ab" * 32, "prices": {}}
    cost |= {"calls_priced": 7, "calls_not_billed": 1, "calls_without_cost": 0}
    assert report_card.cost(cost) == "0.0042 USD (calls: 7 priced, 1 not billed)"
    unknown = report_card.cost({**cost, "total": None, "calls_without_cost": 2})
    assert unknown == "unknown; 0.0042 USD is known of (calls: 7 priced, 1 not billed, 2 of unknown cost)"
    assert report_card.cost(None) == "not priced"


def test_incidents_without_an_answer_are_listed_up_to_a_bound_and_the_rest_counted(report: dict[str, Any]) -> None:
    lines = [incident(1), *(fallback(line) for line in range(2, 62)), refused(62, request_id=None)]
    text = words(report, *lines)
    found = rows(text, "Without an accepted answer: 61")
    assert len(found) == 50
    assert found[0] == ["`INC-2`", "fallback (failed closed)", "`http_503`", "-", "2", "1", "20.000 ms", "12"]
    assert "... and 11 more; `replay-ledger report run-1 --format junit` lists every request." in text
    assert "Low risk, neither blocked nor put to a person: 1" in text
    assert "- `INC-1`, position 21" in text
    few = words(report, fallback(1, "outcome_unknown", failed_us=None), refused(2, where="metadata"))
    assert "more" not in few.split("## Without")[1].split("##")[0]
    assert rows(few, "Without an accepted answer: 2")[0][6] == "unknown"
    assert rows(few, "Without an accepted answer: 2")[1][2] == "`request_invalid at metadata`"


def test_tables_that_could_grow_are_bounded_and_their_rest_is_summed_up(report: dict[str, Any]) -> None:
    facets = {"team": {f"t{n:03}": {"requests": 2, "accepted": 1, "fallback": 1} for n in range(25)}}
    models = {f"m{n:03}": 1 for n in range(25)}
    text = words(report, facets=facets, models_answered=models, failures=[f"unreadable:{n}" for n in range(30)])
    assert rows(text, "By `team`")[-1] == ["... and 5 more", "10", "5", "5"]
    assert rows(text, "Models that answered, by their own word")[-1] == ["... and 5 more", "5"]
    assert "- ... and 10 more: `--format json` lists them" in text


def test_the_evidence_names_the_json_report_by_its_digest(report: dict[str, Any]) -> None:
    from hashlib import sha256

    from ledger.render import report_json

    text = words(report)
    evidence = dict(rows(text, "Evidence"))
    assert evidence["SHA-256 of this report as JSON"] == f"`{sha256(report_json.render(report)).hexdigest()}`"
    assert evidence["root at that size"] == f"`{report['as_of']['root']}`"
    assert f"`replay-ledger report run-1 --as-of {report['as_of']['position']} --out report.json`" in text


def test_a_report_of_ten_thousand_incidents_still_fits_into_a_comment(report: dict[str, Any]) -> None:
    facets = {f"f{n}": {f"v{m}": {"requests": 1, "accepted": 1, "fallback": 0} for m in range(999)} for n in range(8)}
    errors = {f"model_output_invalid_fields:{n}": n for n in range(500)}
    failures = [f"unreadable:{n}" for n in range(10_000)]
    text = words(report, *map(fallback, range(10_000)), facets=facets, errors=errors, failures=failures)
    assert len(text) < 60_000
    assert re.search(r"\.\.\. and 9950 more", text)


def test_grades_of_hostile_ids_do_nothing_either() -> None:
    import json
    from pathlib import Path

    grades = json.loads((Path(__file__).parents[2] / "data" / "grades" / "some.1.json").read_bytes())
    hostile = "a|b`<script>@user\n# x"
    grades["false_safe"]["request_ids"] = grades["unknown_label_ids"] = [hostile]
    data = grades_md.render({**grades, "run_id": hostile, "model": hostile, "endpoint": hostile}).decode()
    check_harmless(data)
    assert data.index("False safe: 1 of 3 (33.3 %") < data.index("## Accuracy")
    assert "labels for no request of the run" in data


def test_incidents_are_read_no_further_than_they_are_shown(report: dict[str, Any]) -> None:
    def only_so_many() -> Iterator[Incident]:
        yield from map(fallback, range(50))
        yield from (incident(50 + line) for line in range(20))
        raise AssertionError("read on")

    levels = {level: dict.fromkeys(report_words.DECISIONS, 0) for level in report_words.RISK_LEVELS}
    levels["low"]["neither"] = 99
    made = {**report, "requests": 300, "accepted_first": 200, "accepted_after_retry": 0}
    made["decisions"] = {"by_risk_level": levels}
    text = b"".join(report_md.render(made, identity(), only_so_many(), ORIGIN)).decode()
    assert "## Without an accepted answer: 100" in text
    assert "... and 50 more;" in text
    assert "... and 79 more;" in text
