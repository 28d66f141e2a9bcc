from __future__ import annotations

from pathlib import Path

from runner.leak_rules import LEAK_RULES_VERSION, RULES, rule_table
from runner.leakage import LEAK_RULES_VERSION as EXPORTED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "leak-guard.md"


def test_the_page_prints_the_rules_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    _, _, rest = page.partition("<!-- rules: begin -->\n")
    table, _, _ = rest.partition("<!-- rules: end -->")
    assert table == rule_table()


def test_the_table_names_every_rule_and_the_version() -> None:
    assert EXPORTED == LEAK_RULES_VERSION
    assert f"Rules version {LEAK_RULES_VERSION}." in rule_table()
    assert all(f"| `{rule}` |" in rule_table() for rule in RULES)


def test_every_rule_that_the_guard_names_is_in_the_table_and_the_reverse() -> None:
    code = "".join((PAGE.parents[1] / "runner" / name).read_text(encoding="utf-8") for name in ("leak_walk.py",))
    assert {rule for rule in RULES if f'"{rule}"' in code} == set(RULES)
