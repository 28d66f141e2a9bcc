from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.codes import CODES, errors_markdown, is_retried, lookup

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_errors_is_the_table() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert page == errors_markdown(), "make it again: python -m runner.codes > docs/errors.md"


def test_no_code_stands_twice() -> None:
    names = [row.code for row in CODES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 599])
def test_statuses_that_may_pass_are_tried_again(status: int) -> None:
    assert is_retried(f"http_{status}")


@pytest.mark.parametrize("status", [100, 201, 204, 400, 404, 418, 422, 600, 999])
def test_other_statuses_are_not_tried_again(status: int) -> None:
    assert not is_retried(f"http_{status}")


@pytest.mark.parametrize(
    ("code", "retried"),
    [
        ("transport_connect", True),
        ("transport_timeout", True),
        ("transport_cut", True),
        ("bad_envelope", True),
        ("no_choices", True),
        ("provider_error", True),
        ("rate_limited", True),
        ("outcome_unknown", True),
        ("not_json_response", False),
        ("unexpected_redirect", False),
        ("auth_error", False),
        ("not_sent", False),
    ],
)
def test_which_transport_codes_are_tried_again(code: str, retried: bool) -> None:
    assert is_retried(code) is retried


def test_a_code_with_its_fields_is_found() -> None:
    assert lookup("model_output_missing_fields:risk_level").group == "model output"
    assert lookup("http_503").code == "http_<status>"


@pytest.mark.parametrize("code", ["", "http_", "http_abc", "model_output", "nonsense"])
def test_an_unknown_code_is_an_error(code: str) -> None:
    with pytest.raises(LookupError):
        lookup(code)


def test_the_pure_modules_use_no_code_that_the_table_lacks() -> None:
    used = set()
    for name in ("answer", "contract", "reply", "decide", "requests"):
        text = (ROOT / "runner" / f"{name}.py").read_text(encoding="utf-8")
        used |= set(re.findall(r'_Odd\(\s*"(\w+)"', text))
        used |= {f"model_output_{code}" for code in re.findall(r'(?:AnswerError|_broken)\(\s*"(\w+)"', text)}
    assert len(used) >= 14
    for code in used:
        assert lookup(code)
