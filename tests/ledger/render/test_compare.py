"""Comparisons and grades as they are shown: hostile text acts nowhere, and the same facts give the same bytes."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ledger.events import new_event
from ledger.integrity.canonical import encode_keeping_integers
from ledger.projections.compare import Comparison
from ledger.projections.cost import Prices
from ledger.projections.decisions import read_decisions
from ledger.projections.grades import each_grade, grades
from ledger.projections.grading import record_grades
from ledger.projections.report import report
from ledger.projections.tables import fold
from ledger.render import (
    compare_html,
    compare_json,
    compare_text,
    grades_html,
    grades_junit,
    grades_md,
    grades_text,
    report_json,
)
from ledger.render.issue import RENDERINGS, erased_since, issue, issued, rendering
from ledger.render.shares import difference, p_value, percent, share
from ledger.store import Store, open_store
from ledger.store.copy import copy_ledger
from tests.ledger.projections.conftest import either, store  # noqa: F401 - fixtures
from tests.ledger.projections.test_grades import label
from tests.ledger.projections.two_runs import BLOCKED, FALLBACK, HIGH, LOW, a_run, asked, contents_of, redact
from tests.ledger.render.test_report_html_1 import Page
from tests.ledger.render.test_same_bytes import SURROUNDINGS
from tests.stories import MODEL, called, digest, started

GOLDEN = Path(__file__).parents[2] / "data" / "grades"
HOSTILE = (
    '</style><script>alert(1)</script>"\'&<img src=x onerror=y> =HYPERLINK("http://x") | `rm -rf` \r\n'
    "\x1b[2J\x1b]0;owned\x07 \u202etxt.exe\u200b \u2028 end"
)
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Whatever would act on a terminal or hide, but for the newline between our own lines."""


def compared(of: Store) -> Comparison:
    return Comparison(of, read_decisions(of, "a"), read_decisions(of, "b"))


def fill(of: Store, action: str = HOSTILE) -> None:
    first = asked(("INC-1", LOW), ("INC-2", HIGH), ("INC-3", FALLBACK), ("INC-4", LOW), ("INC-5", LOW))
    second = asked(("INC-1", HIGH), ("INC-2", LOW), ("INC-3", BLOCKED), ("INC-4", LOW), ("INC-6", LOW))
    further = {"note": action, "big": 2**70, "ratio": 0.5, "list": [action]}
    of.append(a_run("a", first, action=action, answer=further, leaks=1))
    of.append(a_run("b", second, action="wait", policy_id="policy-2"))


# --- comparisons ----------------------------------------------------------------------------


def test_the_costs_stand_side_by_side_and_other_prices_are_named(store: Store) -> None:  # noqa: F811
    for run_id, price, model in (("a", "1000", MODEL), ("b", "2", MODEL), ("c", "2", "other")):
        prices = Prices("USD", digest(price), {model: {"prompt": price, "completion": price}})
        begun = new_event(started(settings=prices.settings()), run_id=run_id)
        replied = new_event(called(1), run_id=run_id, request_id="INC-1", content="{}")
        _, *rest, decided, ended = a_run(run_id, asked(("INC-1", LOW)))
        store.append([begun, *rest, replied, decided, ended])
    store.append(a_run("d", asked(("INC-1", LOW))))

    def both(first: str, second: str) -> tuple[dict[str, Any], str, str]:
        pair = Comparison(store, read_decisions(store, first), read_decisions(store, second))
        text, html = (b"".join(form.render(pair)).decode() for form in (compare_text, compare_html))
        return pair.summary(), text, html

    summary, text, html = both("a", "b")
    assert [summary[side]["cost"] for side in ("first", "second")] == [report(store, run)["cost"] for run in "ab"]
    assert re.search(r"^cost +0\.12 USD +0\.00024 USD$", text, re.MULTILINE)
    assert "<td>0.12 USD</td>" in html
    assert "The two runs were priced by different lists." in text
    _, text, html = both("b", "c")
    assert re.search(r"^cost +0\.00024 USD +unknown, at least 0 USD$", text, re.MULTILINE)
    assert "different lists" not in text + html
    assert re.search(r"^cost +not priced +0\.12 USD$", both("d", "a")[1], re.MULTILINE)


def test_nothing_that_a_model_wrote_acts_in_the_text(store: Store) -> None:  # noqa: F811
    fill(store)
    text = b"".join(compare_text.render(compared(store))).decode()
    assert not ACTS.search(text)
    assert r"\x1b[2J\x1b]0;owned\x07 \u202etxt.exe" in text
    assert "INC-2: risk_level, requires_human_approval" in text
    assert "3 incidents of 6 decided differently; 2 asked in one run only." in text
    assert "The first run refused 1 line of its file" in text
    assert "4 pairs were asked with another policy." in text
    assert "fallback (transport_timeout)" in text


def test_nothing_that_a_model_wrote_acts_in_the_page(store: Store) -> None:  # noqa: F811
    fill(store)
    data = b"".join(compare_html.render(compared(store)))
    page = Page(data)
    allowed = (
        "html head meta title style body main h1 h2 h3 p div strong ul ol li dl dt dd table caption thead tbody tr"
    )
    assert {tag for tag, _ in page.tags} <= {*allowed.split(), "th", "td"}
    assert {name for _, attributes in page.tags for name in attributes} <= {
        *("lang", "charset", "http-equiv", "content", "name", "scope", "class")
    }
    assert not ACTS.search(data.decode())
    text = "".join(page.text)
    assert "</style><script>alert(1)</script>" in text
    assert "1180591620717411303424" in text
    check_policy(data, page)


def check_policy(data: bytes, page: Page) -> None:
    (policy,) = [meta["content"] for meta in page.named("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    (style,) = re.findall(rb"<style>(.*?)</style>", data, re.DOTALL)
    assert f"'sha256-{base64.b64encode(sha256(style).digest()).decode()}'" in policy
    assert b"url(" not in style
    assert len(page.named("h1")) == len(page.named("title")) == len(page.named("main")) == 1
    assert len(page.named("table")) == len(page.named("caption"))


def test_the_json_is_canonical_and_holds_every_text_as_it_is(store: Store) -> None:  # noqa: F811
    fill(store)
    data = b"".join(compare_json.render(compared(store)))
    made = json.loads(data)
    assert data == encode_keeping_integers(made) + b"\n"
    assert not ACTS.search(data.decode("ascii", "ignore").replace("\n", ""))
    first = made["differences"][0]["first"]["model_output"]
    assert (first["proposed_action"], first["big"], first["note"]) == (HOSTILE, 2**70, HOSTILE)
    assert [one["incident_id"] for one in made["only_first"]] == ["INC-5"]
    assert [one["incident_id"] for one in made["only_second"]] == ["INC-6"]
    assert made["summary"]["differences"] == len(made["differences"]) == 3


def test_a_megabyte_on_one_line_is_cut_where_it_is_shown_and_whole_in_json(store: Store) -> None:  # noqa: F811
    fill(store, "x" * 1_000_000)
    assert len(b"".join(compare_text.render(compared(store)))) < 20_000
    assert len(b"".join(compare_html.render(compared(store)))) < 60_000
    assert b"more characters]" in b"".join(compare_html.render(compared(store)))
    made = json.loads(b"".join(compare_json.render(compared(store))))
    assert len(made["differences"][0]["first"]["model_output"]["proposed_action"]) == 1_000_000


@pytest.mark.parametrize("render", [compare_text.render, compare_html.render, compare_json.render])
def test_an_erased_text_is_said_to_be_erased(store: Store, render: Any) -> None:  # noqa: F811
    fill(store, "call the secretary")
    redact(store, *contents_of(store, "a", "OutputAccepted"))
    data = b"".join(render(compared(store)))
    assert b"call the secretary" not in data
    assert (b'"redacted":true' if render is compare_json.render else b"[redacted]") in data


def test_more_differences_than_are_shown_are_counted(store: Store) -> None:  # noqa: F811
    many = range(compare_html.SHOWN + 3)
    store.append(a_run("a", asked(*((f"INC-{n}", LOW) for n in many))))
    store.append(a_run("b", asked(*((f"INC-{n}", HIGH) for n in many), *((f"NEW-{n}", LOW) for n in many))))
    assert b"... and 453 more; --format json" in b"".join(compare_text.render(compared(store)))
    page = b"".join(compare_html.render(compared(store)))
    assert page.count(b'<table class="answers">') == compare_html.SHOWN
    assert page.count(b"... and 3 more; --format json lists every one.") == 2
    assert len(json.loads(b"".join(compare_json.render(compared(store))))["differences"]) == len(many)


def test_a_test_of_no_pair_was_told_with_a_p_value_and_its_line_was_broken(store: Store) -> None:  # noqa: F811
    for run_id in ("a", "b"):
        store.append(a_run(run_id, asked((f"INC-of-{run_id}", LOW))))
    made = compared(store)
    text = b"".join(compare_text.render(made)).decode()
    assert "Incidents 2: 0 in both runs, 1 only in the first, 1 only in the second.\n" in text
    assert "1.0000" not in text
    assert "1.0000" not in b"".join(compare_html.render(made)).decode()


def test_runs_that_agree_say_so(store: Store) -> None:  # noqa: F811
    for run_id in ("a", "b"):
        store.append(a_run(run_id, asked(("INC-1", LOW))))
    assert b"".join(compare_text.render(compared(store))).startswith(b"No difference in 1 incident.\n")
    store.append(a_run("b", asked(("INC-2", LOW))))
    assert b"have no incident in common" in b"".join(compare_html.render(compared(store)))


def test_a_comparison_has_the_same_bytes_on_both_databases(tmp_path: Path, postgres_url: str) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_store(url, "create", fold=fold) as made:
        fill(made)
    copy_ledger(url, postgres_url, fold=fold)
    renders = (compare_text.render, compare_html.render, compare_json.render)
    written = []
    for place in (url, postgres_url):
        with open_store(place, "read") as opened:
            written.append([b"".join(render(compared(opened))) for render in renders])
    assert written[0] == written[1]


PROGRAM = """
import sys
from ledger.projections.compare import Comparison
from ledger.projections.cost import Prices
from ledger.projections.decisions import read_decisions
from ledger.projections.grades import grades
from ledger.render import compare_html, compare_json, compare_text, grades_forms
from ledger.store import open_store

with open_store(sys.argv[1], "read") as store:
    made = Comparison(store, read_decisions(store, "a"), read_decisions(store, "b"))
    for render in (compare_text.render, compare_html.render, compare_json.render):
        sys.stdout.buffer.writelines(render(made))
    for form, version in sorted(grades_forms.FORMS):
        sys.stdout.buffer.writelines(grades_forms.render(store, grades(store, "a"), form, version))
"""


def test_neither_hash_seed_nor_locale_nor_time_zone_changes_a_byte(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_store(url, "create", fold=fold) as made:
        fill(made)
        labels = [label(f"INC-{number}", risk_level="high") for number in (1, 2, 7, 8)]
        record_grades(made, "a", labels, file_sha256=digest("file"), actor="ops-7")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "LC_", "TZ", "PYTHON"))}
    written = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, url], env={**kept, **around}, capture_output=True, check=True
        ).stdout
        for around in SURROUNDINGS
    }
    assert len(written) == 1


# --- grades ---------------------------------------------------------------------------------


def graded(of: Store) -> dict[str, Any]:
    requests = asked(("INC-1", LOW), ("INC-2", HIGH), ("INC-3", FALLBACK), ("INC-4", BLOCKED), ("INC-5", LOW))
    of.append(a_run("run-1", requests))
    labels = [label("INC-1", risk_level="critical"), label("INC-2", risk_level="low"), label("INC-3", dangerous=True)]
    labels += [label("INC-4", risk_level="low", blocked_by_policy=True), label("INC-9", risk_level="low")]
    record_grades(of, "run-1", labels, file_sha256=digest("file"), actor="ops-7")
    return grades(of, "run-1")


def fixed(made: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from ledger to ledger."""
    return {**made, "as_of": {"position": 20, "root": "ab" * 32, "size": 20}}


@pytest.mark.parametrize(("form", "render"), [("txt", grades_text.render), ("html", grades_html.RENDERERS[1])])
def test_version_1_of_grades_gives_the_bytes_that_it_always_gave(
    store: Store,  # noqa: F811
    form: str,
    render: Any,
) -> None:
    """Grades were issued with these bytes. A change is a new version, never a change to these files."""
    assert render(fixed(graded(store))) == (GOLDEN / f"some.1.{form}").read_bytes()


@pytest.mark.parametrize(("form", "extension"), [("md", "md"), ("junit", "xml")])
def test_version_1_of_the_forms_for_others_tools_gives_the_bytes_that_it_always_gave(
    store: Store,  # noqa: F811
    form: str,
    extension: str,
) -> None:
    made = graded(store)
    each = list(each_grade(store, "run-1", made["as_of"]["position"]))
    render = {"md": lambda: [grades_md.render(fixed(made))], "junit": lambda: grades_junit.render(fixed(made), each)}
    assert b"".join(render[form]()) == (GOLDEN / f"some.1.{extension}").read_bytes()


def test_version_1_of_the_fold_gives_the_grades_that_it_always_gave(store: Store) -> None:  # noqa: F811
    assert report_json.render(fixed(graded(store))) == (GOLDEN / "some.1.json").read_bytes()


def test_the_page_of_grades_in_version_1_runs_and_loads_nothing(store: Store) -> None:  # noqa: F811
    data = grades_html.render(graded(store), 1)
    check_policy(data, Page(data))
    assert data.index(b"False safe") < data.index(b"Accuracy")


def test_grades_are_issued_and_come_out_again_after_everything_was_erased(either: Store) -> None:  # noqa: F811
    made = graded(either)
    position = made["as_of"]["position"]
    forms = [of for of in RENDERINGS if of.kind == "grades"]
    assert {of.format for of in forms} == {"json", "text", "html", "md", "junit"}
    for of in forms:
        sha = sha256(b"".join(of.render(either, "run-1", position))).hexdigest()
        assert issue(either, "run-1", of, as_of_position=position, sha256=sha, actor="tester").new
        assert not issue(either, "run-1", of, as_of_position=position, sha256=sha, actor="tester").new
    record_grades(either, "run-1", [label("INC-1", risk_level="low")], file_sha256=digest("two"), actor="ops-7")
    redact(either, *contents_of(either, "run-1", "OutputAccepted"), *contents_of(either, "run-1", "GradesRecorded"))
    for of in forms:
        sha = sha256(b"".join(of.render(either, "run-1", position))).hexdigest()
        (found,) = issued(either, sha)
        assert (found.kind, found.projection) == ("grades", "grades/1")
        assert erased_since(either, found) > 0
        assert rendering(found.kind, found.format, found.renderer_version, found.projection) is of


# --- numbers in words -----------------------------------------------------------------------


def test_numbers_are_told_with_what_they_are_of() -> None:
    half = {"count": 1, "of": 2, "rate": "0.500000", "low": "0.094531", "high": "0.905469"}
    assert share(half) == "1 of 2 (50.0 %, 95 % interval 9.5 to 90.5)"
    assert share({"count": 0, "of": 0, "rate": None, "low": None, "high": None}) == "0 of 0"
    assert percent(None) == "-"
    assert difference({"value": "-0.000001", "low": "-0.125000", "high": "0.250000"}) == "0.0 points (-12.5 to +25.0)"
    assert p_value({"pairs": 0, "p_value": None}) == "-"
    assert [p_value({"pairs": 9, "p_value": text}) for text in ("1", "0.0703125", "0.00009", "1.57772E-30")] == [
        *("1.0000", "0.0703"),
        *("< 0.0001", "< 0.0001"),
    ]
