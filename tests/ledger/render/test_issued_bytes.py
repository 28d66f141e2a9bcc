"""What a version of a rendering gave once, it gives for ever: files that no change to the code may change.

A report that was issued is found by its bytes. A change to how one looks is a new version beside the old, with
files of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ledger.projections.report import report
from ledger.render import report_forms, report_junit, report_md, report_text, report_words
from ledger.store import Store
from tests.ledger.bundle.ledgers import example_ledger
from tests.ledger.render.hostile import ORIGIN, fallback, identity, incident, refused

DATA = Path(__file__).parents[2] / "data"
EXTENSIONS = {"text": "txt", "md": "md", "junit": "xml"}
FORMS: dict[tuple[str, int], Callable[..., Iterable[bytes]]] = {
    ("text", 2): lambda made, who, _, origin: report_text.render_2(made, who, origin),
    ("md", 1): report_md.render,
    ("junit", 1): report_junit.render,
}
LINES = (
    incident(1),
    fallback(2, "http_503", first_error="rate_limited", attempts=3, waited_ms=250, facets={"team": "a"}),
    refused(3, request_id=None, where="metadata.request_only"),
    refused(4, "leak_rejected", error="request_self_grading_leak", where="a|b`<c>\n*"),
    incident(5, outcome="accepted_after_retry", risk_level="high", requires_human_approval=True, attempts=2),
    fallback(6, "outcome_unknown", outcome="incomplete", failed_us=None, error=None, first_error=None, decided=None),
)


def everything() -> dict[str, Any]:
    """A report with something in every section, whose outcomes are those of the lines."""
    found: dict[str, Any] = json.loads((DATA / "report_html" / "everything.json").read_bytes())
    outcomes = [line.outcome for line in LINES]
    counts = {name: outcomes.count(name) for name, _ in report_words.OUTCOMES}
    found["decisions"]["by_risk_level"]["low"] |= {"total": 1, "neither": 1}
    cost = {"currency": "USD", "known": "0.0042", "total": None, "prices": {}, "prices_sha256": "ab" * 32}
    cost |= {"calls_priced": 7, "calls_not_billed": 1, "calls_without_cost": 2}
    return {**found, **counts, "requests": len(LINES), "cost": cost}


def file_of(name: str, form: str, version: int) -> bytes:
    return (DATA / "report_words" / f"{name}.{version}.{EXTENSIONS[form]}").read_bytes()


@pytest.mark.parametrize(("form", "version"), FORMS)
def test_a_report_with_everything_in_it_has_the_bytes_that_it_always_had(form: str, version: int) -> None:
    assert b"".join(FORMS[form, version](everything(), identity(), LINES, ORIGIN)) == file_of(
        "everything", form, version
    )


@pytest.mark.parametrize(("form", "version"), FORMS)
def test_the_example_ledger_gives_the_bytes_that_it_always_gave(ledger_url: str, form: str, version: int) -> None:
    with example_ledger(ledger_url) as store:
        assert made(store, form, version) == file_of("example", form, version)


def made(store: Store, form: str, version: int) -> bytes:
    return b"".join(report_forms.render(store, report(store, "example-run"), form, version))


def test_no_version_is_without_such_files() -> None:
    versions = {(form, version) for form, version in report_forms.FORMS if form in EXTENSIONS}
    assert versions == {*FORMS, ("text", 1)}
