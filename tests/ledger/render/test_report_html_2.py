"""Version 2 of a report as a page: what it says, in which order, that it is safe, and readable by everyone."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from ledger.events import FallbackApplied, NewEvent
from ledger.projections.identity import Identity, Place
from ledger.projections.incidents import Incident
from ledger.projections.report import report as make_report
from ledger.projections.tables import fold
from ledger.render import report_html, report_html_2, report_json
from ledger.render.issue import issue, last_consumed, rendering
from ledger.render.report_html_2_style import STYLE
from ledger.store import Store, open_store
from tests.ledger.bundle.ledgers import example_ledger
from tests.ledger.projections.conftest import either, store  # noqa: F401 - fixtures
from tests.ledger.projections.test_results import answer, completed, intake, redact, request, told
from tests.ledger.render.hostile import ORIGIN, identity, incident, poisoned
from tests.ledger.render.test_issued_bytes import LINES
from tests.stories import call_failed, call_started, called, output_accepted, started, stories, story

GOLDEN = Path(__file__).parents[2] / "data" / "report_html"
HOSTILE = "</style><script>alert(1)</script>\"'&<img src=x onerror=y>\u202e\x00\x1b[2J"
VOID = ("meta", "wbr", "br")


class Page(HTMLParser):
    """What a browser would make of it: tags in balance, attributes, text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.children: dict[str, list[str]] = {}
        self.pieces: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        """All text, pieces apart by a blank, dashes as hyphens."""
        return " ".join(" ".join(self.pieces).split()).replace("\N{EN DASH}", "-")


def kept(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_bytes())
    return made


@pytest.fixture(scope="module")
def everything() -> dict[str, Any]:
    return kept("everything")


def rendered(report: dict[str, Any], lines: Iterable[Incident] = LINES, who: Identity | None = None) -> bytes:
    return b"".join(report_html_2.render(report, who or identity(), lines, ORIGIN))


def page_of(store: Store, run_id: str = "run-1") -> bytes:  # noqa: F811
    return b"".join(report_html.render(store, make_report(store, run_id), 2))


def page_of_events(events: list[NewEvent]) -> bytes:
    with open_store("sqlite://", "create", fold=fold) as opened:
        opened.append(events)
        return page_of(opened)


# --- bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["completed", "blocked", "everything"])
def test_version_2_gives_the_bytes_that_it_always_gave(name: str) -> None:
    """Reports were issued with these bytes. A change to the page is a new version, never a change to these files."""
    lines = () if name == "blocked" else LINES
    assert rendered(kept(name), lines) == (GOLDEN / f"{name}.2.html").read_bytes()


def test_the_example_ledger_gives_the_page_that_it_always_gave(ledger_url: str) -> None:
    with example_ledger(ledger_url) as opened:
        assert page_of(opened, "example-run") == (GOLDEN / "example.2.html").read_bytes()


def test_the_newest_version_is_used_unless_another_is_asked_for_and_none_is_forgotten(store: Store) -> None:  # noqa: F811
    store.append(told(started(), request(1, "A"), intake(1), *answer("A")))
    made = make_report(store, "run-1")
    assert sorted(report_html.RENDERERS) == [1, 2]
    assert b"".join(report_html.render(store, made)) == b"".join(report_html.render(store, made, 2))
    with pytest.raises(KeyError):
        report_html.render(store, made, 0)


def test_a_page_that_was_issued_in_version_1_comes_out_again_in_it(store: Store) -> None:  # noqa: F811
    store.append(story(Random(3)))
    position = last_consumed(store, "run-1")
    for version in (1, 2):
        of = rendering("report", "html", version)
        digest = sha256(b"".join(of.render(store, "run-1", position))).hexdigest()
        found = issue(store, "run-1", of, as_of_position=position, sha256=digest, actor="tester")
        assert found.renderer_version == version
        again = rendering("report", "html", found.renderer_version, found.projection)
        assert sha256(b"".join(again.render(store, "run-1", position))).hexdigest() == digest
    assert rendering("report", "html").version == 2


def test_neither_an_erasure_nor_what_is_appended_later_changes_a_page(either: Store) -> None:  # noqa: F811
    either.append(max((story(Random(seed), max_lines=12) for seed in range(40)), key=len))
    made = make_report(either, "run-1")
    before = b"".join(report_html.render(either, made, 2))
    redact(either, *(event.position for event in either.events("run-1") if event.type == "RequestAccepted"))
    either.append(story(Random(7), run_id="run-2"))
    assert b"".join(report_html.render(either, made, 2)) == before
    assert page_of(either) == before


# --- a page for everyone -------------------------------------------------------------------


@settings(max_examples=40)
@given(stories())
def test_every_report_is_a_well_formed_page_whose_parts_are_named_and_found(events: list[NewEvent]) -> None:
    page = Page(page_of_events(events))
    assert page.named("html") == [{"lang": "en"}]
    assert [len(page.named(tag)) for tag in ("h1", "main", "header", "nav")] == [1, 1, 1, 1]
    assert len(page.named("table")) == len(page.named("caption"))
    assert all(attributes.get("scope") in ("row", "col") for attributes in page.named("th"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert max(Counter(ids).values()) == 1
    links = [str(attributes["href"]) for attributes in page.named("a")]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    labels = [str(attributes["aria-labelledby"]) for _, attributes in page.tags if "aria-labelledby" in attributes]
    assert {name for label in labels for name in label.split()} <= set(ids)
    for picture in page.named("svg"):
        assert picture.get("aria-hidden") == "true" or (picture.get("role") == "img" and picture["aria-labelledby"])


def test_the_parts_stand_in_the_order_in_which_they_are_asked_for(everything: dict[str, Any]) -> None:
    page = Page(rendered(everything))
    parts = [str(attributes["id"]) for attributes in page.named("h2")]
    assert parts == [
        *("verdict", "voucher", "identity", "outcomes", "decisions", "errors", "time", "tokens", "facets", "cost"),
        *("incidents", "evidence"),
    ]
    assert {str(link["href"])[1:] for link in page.named("a")} >= set(parts) - {"voucher"}


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    shares = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, relative luminance and contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def over(ground: str, ink: str, tenths: int) -> str:
    """The colour that ``ink``, so many hundredths of it, gives on ``ground``."""
    pairs = zip(bytes.fromhex(_six(ground)), (int(part) for part in ink.split(",")), strict=True)
    return "#" + "".join(f"{round(under + (part - under) * tenths / 100):02x}" for under, part in pairs)


def _six(colour: str) -> str:
    digits = colour.lstrip("#")
    return "".join(2 * digit for digit in digits) if len(digits) == 3 else digits


def test_text_and_shapes_stand_out_enough_in_light_and_in_dark() -> None:
    roots = re.findall(r":root \{ (?:color-scheme: light dark; )?(--page.*?) \}", STYLE, re.DOTALL)
    assert len(roots) == 2
    shades = [int(share) for share in re.findall(r"rgba\(var\(--heat\), \.(\d+)\)", STYLE.replace(".1)", ".10)"))]
    for root in roots:
        colours: dict[str, str] = dict(re.findall(r"--([a-z]+): ([^;}]+?)\s*(?:;|$)", root))
        for ground in ("card", "page", "soft"):
            assert all(contrast(colours[ink], colours[ground]) >= 4.5 for ink in ("text", "dim", "link")), ground
        assert all(contrast(colours[ink], colours["card"]) >= 4.5 for ink in ("good", "bad"))
        assert contrast(colours["on"], colours["bad"]) >= 4.5  # escapes
        for letter in "abcdefg":
            assert contrast(colours[letter], colours["on"]) >= 4.5, letter
            assert contrast(colours[letter], colours["card"]) >= 3, letter
        assert contrast(colours["bar"], colours["card"]) >= 3
        assert len(shades) == 5
        for shade in shades:
            assert contrast(colours["text"], over(colours["card"], colours["heat"], shade)) >= 4.5


# --- a safe page ---------------------------------------------------------------------------


def test_nothing_in_a_page_runs_or_is_loaded(everything: dict[str, Any]) -> None:
    data = rendered(everything)
    page = Page(data)
    allowed = (
        "html head meta title style body header nav main section div h1 h2 h3 p strong span small b br wbr ul ol li dl"
        " dt dd table caption thead tbody tfoot tr th td code a figure svg desc rect text line"
    )
    assert {tag for tag, _ in page.tags} <= set(allowed.split())
    assert {name for _, attributes in page.tags for name in attributes} <= {
        *("lang", "charset", "http-equiv", "content", "name", "scope", "class", "id", "href", "role", "tabindex"),
        *("aria-labelledby", "aria-label", "aria-hidden", "width", "height", "x", "y", "x1", "x2", "y1", "y2"),
    }
    (policy,) = [meta["content"] for meta in page.named("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    (style,) = re.findall(rb"<style>(.*?)</style>", data, re.DOTALL)
    digest = base64.b64encode(sha256(style).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(rb"url\(|@import|expression|</", style)
    assert not re.search(rb"https?://", data.replace(b"https://models.example/v1/chat/completions", b""))


def test_every_value_is_escaped(everything: dict[str, Any]) -> None:
    facts: dict[str, Any] = dict.fromkeys(("request_id", "incident_id", "error", "first_error", "where"), HOSTILE)
    lines = [
        incident(1, **facts, allowances=(HOSTILE, HOSTILE), facets={HOSTILE: HOSTILE}, policy_id=HOSTILE),
        incident(2, request_id=None, incident_id=None),
    ]
    data = b"".join(report_html_2.render(poisoned(everything, HOSTILE), identity(HOSTILE), lines, HOSTILE))
    page = Page(data)
    assert not page.named("script")
    assert not page.named("img")
    assert not re.search("[\u202e\x00\x1b]", data.decode())
    assert "".join(page.pieces).count("<script>alert(1)</script>") > 30


def test_an_escape_in_a_name_is_marked_and_the_same_letters_are_not(everything: dict[str, Any]) -> None:
    acts = {**everything, "models_answered": {"m\u202e\\u202e": 1}}
    data = rendered(acts).decode()
    assert 'm<span class="escape">\\u202e</span>\\u202e, 1 time' in data
    assert 'Marked, as <span class="escape">\\u202e</span> is here' in data
    (title,) = re.findall("<title>(.*?)</title>", rendered({**everything, "run_id": "r\x1b"}).decode())[:1]
    assert title == "Report of run r\\x1b"


def test_a_value_without_an_end_is_cut_and_what_is_left_out_is_counted(everything: dict[str, Any]) -> None:
    text = Page(rendered(everything, [incident(1, error="z" * 5000, risk_level=None, outcome="fallback_records")])).text
    assert "z... [4600 more characters]" in text
    assert "z" * 401 not in text


# --- what it says --------------------------------------------------------------------------


def test_whether_it_is_usable_is_said_with_the_reason_and_never_as_a_bare_valid(everything: dict[str, Any]) -> None:
    text = Page(rendered(everything)).text
    assert "Usable as evaluation: no Because:" in text
    for member, what in (("fallback_records", "without an answer"), ("leak_rejected", "refused for holding")):
        number = everything[member]
        assert number
        assert f"{number} request{'' if number == 1 else 's'} {what}" in text
    assert " valid" not in text.lower().replace("no valid request", "")
    good = Page(rendered(kept("completed"))).text
    assert kept("completed")["valid"]
    assert "Usable as evaluation: yes" in good
    assert "an accepted answer, and none was refused" in good


def test_what_vouches_for_the_record_and_how_to_check_it_stand_on_the_page(everything: dict[str, Any]) -> None:
    text = Page(rendered(everything)).text
    as_of, run_id = everything["as_of"], everything["run_id"]
    assert text.count(as_of["root"]) == 2
    assert ORIGIN in text
    assert sha256(report_json.render(everything)).hexdigest() in text
    for command in (
        "replay-ledger verify",
        f"replay-ledger report {run_id} --as-of {as_of['position']} --projection report/1 --format json",
        "replay-ledger report-check FILE",
        f"replay-ledger bundle {run_id}",
        f"replay-ledger show {run_id} REQUEST",
    ):
        assert command in text


def test_a_report_that_json_cannot_hold_still_has_a_page_which_says_so(everything: dict[str, Any]) -> None:
    huge = {**everything, "tokens": {**everything["tokens"], "prompt": 2**53}}
    text = Page(rendered(huge)).text
    assert "there is none: a number in it is larger than JSON can hold" in text
    assert "9,007,199,254,740,992" in text


def test_the_run_is_told_by_what_was_asked_and_who_answered_and_the_part_of_the_file(
    everything: dict[str, Any],
) -> None:
    who = identity()
    text = Page(rendered(everything)).text
    told_of = (who.candidate_id, who.candidate_variant_id, who.model, who.endpoint, who.actor, who.template_sha256)
    assert all(fact is not None and fact in text for fact in told_of)
    assert "50 of 1,155 lines" in text
    assert "3 times, by ops-8, ops-9" in text
    assert "position 39, 2026-11-30T20:42:05.250001Z From first to last 1 min 2.3 s" in text
    assert "json_mode true" in text
    assert "prices_sha256" not in text


def test_what_is_not_known_of_a_run_is_said_to_be_unknown(everything: dict[str, Any]) -> None:
    text = Page(rendered(everything, who=Identity("run-1"))).text
    assert "Candidate unknown Variant unknown Model asked unknown" in text
    assert "Settings unknown" in text
    assert "First event unknown Last event unknown" in text
    assert "that the file was read to its end is not on record" in text
    whole = identity()
    whole.lines, whole.taken, whole.selection = 3, 3, None
    whole.last = Place(39, "no time")
    text = Page(rendered(everything, who=whole)).text
    assert "all 3 lines of the file" in text
    assert "From first to last unknown" in text


def test_unknown_tokens_and_costs_are_never_nothing(everything: dict[str, Any]) -> None:
    without = {**everything["tokens"], "cached": None, "calls_without_usage": 4}
    text = Page(rendered({**everything, "tokens": without, "cost": None})).text
    assert "cached unknown" in text
    assert f"4 of {everything['calls']['answered']} answered call" in text
    assert "Not priced" in text
    cost = {"currency": "EUR", "known": "0.0105", "total": None, "calls_priced": 3, "calls_not_billed": 1}
    cost |= {"calls_without_cost": 2, "prices": {"m": {"prompt": "0.5", "completion": "1"}}, "prices_sha256": "ab" * 32}
    text = Page(rendered({**everything, "cost": cost})).text
    assert "In all unknown Known of it 0.0105 EUR" in text
    assert "Cost unknown 2" in text
    assert "m 0.5 1 - -" in text
    assert "In all 0.0105 EUR" in Page(rendered({**everything, "cost": {**cost, "total": "0.0105"}})).text


def test_a_run_with_every_outcome_shows_each_in_the_bar_in_the_table_and_in_its_row(everything: dict[str, Any]) -> None:
    seven = ("accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected")
    seven = (*seven, "not_started", "incomplete")
    report = {**everything, **dict.fromkeys(seven, 2), "requests": 14}
    page = Page(rendered(report, [incident(line, outcome=name) for line, name in enumerate(seven, start=1)]))
    bars = [
        shape for shape in page.named("rect") if str(shape.get("class")).startswith("part") and shape["height"] == "44"
    ]
    assert [str(shape["class"])[-1] for shape in bars] == list("abcdefg")
    assert [row["class"] for row in page.named("tr") if str(row.get("id")).startswith("l")] == list("abcdefg")
    assert "requests 14 100.0 %" in page.text


def test_answers_that_let_through_are_listed_each_with_a_link_to_its_row(store: Store) -> None:  # noqa: F811
    free = output_accepted(risk_level="low", requires_human_approval=False)
    held = output_accepted(risk_level="low", requires_human_approval=False, blocked_by_policy=True)
    asked = output_accepted(risk_level="high", requires_human_approval=False)
    events: list[Any] = [started(), *(request(line, name) for line, name in enumerate("ABCD", start=1)), intake(4)]
    for name, verdict in zip("ABCD", (free, held, asked, free), strict=True):
        events += [(call_started(1), name, "{}"), (called(1), name, "{}"), (verdict, name, "{}")]
    store.append(told(*events))
    page = Page(page_of(store))
    assert [link["href"] for link in page.named("a") if str(link["href"]).startswith("#l")] == [
        *("#let-through", "#l1", "#l4"),
    ]
    assert "2 answers would have been acted on without asking anybody: A D" in page.text
    assert "low 3 1 0 2 listed" in page.text


def test_an_incident_is_told_by_its_facts_and_its_place_in_the_ledger(store: Store) -> None:  # noqa: F811
    store.append(
        told(
            started(),
            request(1, "A"),
            request(2, "B"),
            intake(2),
            (call_started(1), "A", "{}"),
            (call_failed(1, "http_503", wait_ms=250, will_retry=True), "A", "{}"),
            (call_started(2), "A", "{}"),
            (called(2, duration_us=1_049_950), "A", "{}"),
            (FallbackApplied(code="model_output_empty", turn=1), "A"),
        )
    )
    text = Page(page_of(store)).text
    codes = "first http_ 503; model_ output_ empty"
    assert f"1 A incident incident-A fallback (failed closed) {codes} 2 1,051.2 ms 250 ms 3-10" in text
    assert "2 B incident incident-B not started 0 4" in text


def test_a_run_without_a_request_has_a_page(store: Store) -> None:  # noqa: F811
    store.append(told(started(), intake(0), completed()))
    text = Page(page_of(store)).text
    assert "there is no request in it" in text
    assert "None is on record." in text
    assert "No call was answered." in text


def test_many_codes_and_values_are_bounded_and_the_rest_is_counted(everything: dict[str, Any]) -> None:
    codes = {f"code_{index:03d}": 1 for index in range(60)}
    values = {f"v-{index:03d}": {"requests": 2, "accepted": 1, "fallback": 1} for index in range(30)}
    text = Page(rendered({**everything, "errors": codes, "facets": {"team": values}})).text
    assert "10 further codes, in the report as json 10" in text
    assert "5 further values, in the report as json 10" in text
    assert "v-024" in text
    assert "v-025" not in text


def test_ten_thousand_incidents_stay_under_five_megabytes(everything: dict[str, Any]) -> None:
    facets = {"region": "eu-1", "service": "edge-proxy", "severity": "critical", "team": "team-17"}
    facts: dict[str, Any] = {
        "facets": facets,
        "policy_id": "change-freeze-2026",
        "waited_ms": 1500,
        "allowances": ("fence",),
    }
    lines = (
        incident(line, incident_id=f"incident-{line}", first_error="http_503", **facts) for line in range(1, 10_001)
    )
    data = rendered(everything, lines)
    assert len(data) < 5_000_000
    assert data.count(b'<tr id="l') == 10_000
    assert data.count(b'<div class="rows">') == 100
