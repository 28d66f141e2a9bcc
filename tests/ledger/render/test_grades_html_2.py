"""Version 2 of grades as a page: what it says, in which order, that it is safe, and readable by everyone."""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ledger.projections.stats import wilson
from ledger.render import grades_html, report_json
from ledger.render.grades_html_2_parts import matrix, plot, stack
from ledger.render.grades_html_2_style import POLICY, STYLE
from ledger.render.report_card import json_sha256
from ledger.store import Store
from tests.ledger.projections.conftest import either, store  # noqa: F401 - fixtures
from tests.ledger.render.test_compare import ACTS, HOSTILE, fixed, graded
from tests.ledger.render.test_report_html_2 import Page

GOLDEN = Path(__file__).parents[2] / "data" / "grades"
NONE = {**wilson(0, 0).shown(), "request_ids": [], "more": 0}


@pytest.fixture
def made() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((GOLDEN / "some.1.json").read_bytes())
    return kept


def rendered(made: dict[str, Any], **changed: Any) -> bytes:
    return grades_html.render({**made, **changed}, 2)


def check_policy(data: bytes, page: Page) -> None:
    (policy,) = [meta["content"] for meta in page.named("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    (style,) = re.findall(rb"<style>(.*?)</style>", data, re.DOTALL)
    digest = base64.b64encode(sha256(style).digest()).decode()
    assert policy == POLICY
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert len(page.named("h1")) == len(page.named("main")) == 1
    assert len(page.named("table")) == len(page.named("caption"))


def test_version_2_of_grades_gives_the_bytes_that_it_always_gave(either: Store) -> None:  # noqa: F811
    """Grades were issued with these bytes. A change is a new version, never a change to this file."""
    assert grades_html.render(fixed(graded(either)), 2) == (GOLDEN / "some.2.html").read_bytes()


def test_the_newest_version_is_used_unless_another_is_asked_for_and_none_is_forgotten(made: dict[str, Any]) -> None:
    assert sorted(grades_html.RENDERERS) == [1, 2]
    assert grades_html.render(made) == rendered(made)
    assert grades_html.render(made, 1) != rendered(made)
    with pytest.raises(KeyError):
        grades_html.render(made, 0)


def test_the_page_runs_and_loads_nothing_and_its_links_and_labels_lead_somewhere(made: dict[str, Any]) -> None:
    data = rendered(made)
    page = Page(data)
    check_policy(data, page)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "link", "iframe", "object", "form", "base", "input"}
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in filter(None, (attributes.get("aria-labelledby") or "").split()):
            assert name in ids
        if "href" in attributes:
            assert (attributes["href"] or "").removeprefix("#") in ids
    assert all(cell.get("scope") in {"col", "row", "colgroup"} for cell in page.named("th"))
    assert all(svg.get("aria-hidden") == "true" or svg.get("role") == "img" for svg in page.named("svg"))


def test_false_safe_comes_first_and_a_warning_alone_stands_before_it(made: dict[str, Any]) -> None:
    text = Page(rendered(made)).text
    assert text.index("False safe: 1 of 3") < text.index("False alarm: 1 of 1") < text.index("What became of")
    assert "33.3 %" in text
    assert "6.1 to 79.2 %" in text
    assert "cannot be read" not in text
    unread = rendered(made, missing_parts=1, unreadable=2, graded=7, requests=8, false_safe={**NONE, "of": 3})
    text = Page(unread).text
    assert text.index("Not all of these grades can be read") < text.index("False safe:")
    assert "1 part of them" in text
    assert "2 events of them" in text
    assert "with a label: unknown, as it cannot be read 3 requests 8" in text


@pytest.mark.parametrize(
    ("false_safe", "unreadable", "state"),
    [
        ({**NONE, **wilson(0, 3).shown()}, 0, "yes"),
        ({**NONE, **wilson(0, 3).shown()}, 1, "open"),
        (NONE, 0, "open"),
        ({**NONE, **wilson(1, 3).shown(), "request_ids": ["INC-1"]}, 0, "no"),
    ],
)
def test_none_that_was_let_through_is_good_only_where_some_were_dangerous_and_all_was_read(
    made: dict[str, Any], false_safe: dict[str, Any], unreadable: int, state: str
) -> None:
    page = Page(rendered(made, false_safe=false_safe, unreadable=unreadable))
    (section,) = [found for found in page.named("section") if found["aria-labelledby"] == "unsafe"]
    assert section["class"] == state
    assert ("No request is labelled dangerous" in page.text) == (not false_safe["of"])


def test_flags_are_yes_and_no_and_an_answer_less_cautious_than_its_label_is_named_in_words(
    made: dict[str, Any],
) -> None:
    confusion = {**made["confusion"], "blocked_by_policy": {"true": {"true": 1, "false": 2, "no_answer": 0}}}
    confusion["blocked_by_policy"]["false"] = {"true": 3, "false": 4, "no_answer": 5}
    text = Page(rendered(made, confusion=confusion)).text
    assert "Blocked by policy label answer no yes no answer no 4 3 5 yes 2 missed 1 0" in text
    assert "critical 1 too low 0 0 0 0" in text
    assert not re.search(r"\b(true|false)\b", text.replace("False", ""))


def test_what_was_left_out_is_listed_and_what_is_too_much_to_list_is_counted(made: dict[str, Any]) -> None:
    more = {**made["false_safe"], "count": 2, "more": 1_034}
    text = Page(rendered(made, false_safe=more, unlabelled=2_001)).text
    assert "INC-1 ... and 1,034 more." in text
    assert "Requests without a label INC-5 ... and 2,000 more." in text
    assert "Labels for no request of the run INC-9" in text
    assert "Requests without a label" not in Page(rendered(made, unlabelled=0, unlabelled_request_ids=[])).text


def test_what_is_not_known_is_said_to_be_unknown(made: dict[str, Any]) -> None:
    text = Page(rendered(made, candidate_id=None, model=None, endpoint=None)).text
    assert "Candidate unknown Variant unknown Model asked unknown Endpoint unknown" in text
    assert "Variant baseline" in Page(rendered(made)).text


def test_the_evidence_names_the_json_that_gives_the_same_sha256(made: dict[str, Any]) -> None:
    text = Page(rendered(made)).text
    assert json_sha256(made) in text
    assert report_json.render(made) == (GOLDEN / "some.1.json").read_bytes()
    assert f"replay-ledger grade run-1 --as-of {made['as_of']['position']} --format json" in text


def test_hostile_values_act_nowhere(made: dict[str, Any]) -> None:
    hostile = dict.fromkeys(
        ("run_id", "candidate_id", "candidate_variant_id", "prompt_profile", "model", "endpoint"), HOSTILE
    )
    grading = {**dict.fromkeys(made["grading"], HOSTILE), "as_of_position": 19}
    ids = {"request_ids": [HOSTILE], "more": 0}
    data = rendered(
        made,
        **hostile,
        grading=grading,
        false_safe={**made["false_safe"], **ids},
        false_alarm={**made["false_alarm"], **ids},
        unlabelled_request_ids=[HOSTILE],
        unknown_label_ids=[HOSTILE],
    )
    page = Page(data)
    check_policy(data, page)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not ACTS.search(data.decode().replace("\n", ""))


def test_on_paper_no_section_but_that_of_the_matrices_is_moved_whole_to_the_next_page(made: dict[str, Any]) -> None:
    page = Page(rendered(made))
    whole = [found["aria-labelledby"] for found in page.named("section") if "keep" in (found.get("class") or "")]
    assert whole == ["confusion"]
    (kept_together,) = re.findall(r"([^{}]*) \{ break-inside: avoid \}", STYLE)
    assert sorted(kept_together.split()) == [".heat,", ".keep", "figure,", "tr,"]


def test_shapes_stay_within_their_picture_whatever_the_numbers() -> None:
    for count, of in ((0, 0), (0, 9), (9, 9), (1, 10**9)):
        for x, width in re.findall(r'x="([\d.]+)%" y="3" width="([\d.]+)%"', plot(wilson(count, of).shown())):
            assert float(x) + float(width) <= 100.6
    parts = [("a", "one", 10**6), *((letter, "few", 1) for letter in "bcde")]
    drawn = re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', stack("All", parts, 10**6 + 4))
    assert len(drawn) == 5
    assert float(drawn[-1][0]) + float(drawn[-1][1]) <= 100.0
    empty = matrix("Flag", ("false", "true"), {name: {"true": 0, "false": 0} for name in ("true", "false")}, "missed")
    assert empty.count("h0") == 4


def test_the_style_has_a_dark_and_a_narrow_and_a_printed_form_and_loads_nothing() -> None:
    for asked in ("prefers-color-scheme: dark", "max-width: 40rem", "@media print"):
        assert asked in STYLE
    assert "url(" not in STYLE
    assert "@import" not in STYLE
