from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.strict_yaml import MAX_DEPTH, MAX_NODES, StrictYamlError, documents


def read(text: str) -> Any:
    (value,) = documents(text)
    return value


def refused(text: str) -> StrictYamlError:
    with pytest.raises(StrictYamlError) as caught:
        list(documents(text))
    return caught.value


def test_every_scalar_is_text_as_prometheus_takes_it() -> None:
    assert read("a: no\nb: 0x10\nc: 1.50\nd: 2026-01-01\ne: 'null'\nf: |\n  x\n  y\n") == {
        "a": "no",
        "b": "0x10",
        "c": "1.50",
        "d": "2026-01-01",
        "e": "null",
        "f": "x\ny\n",
    }


@pytest.mark.parametrize("text", ["a:", "a: ~", "a: null", "a: NULL"])
def test_nothing_is_none(text: str) -> None:
    assert read(text) == {"a": None}


def test_a_mapping_knows_its_line() -> None:
    groups = read("# rules\ngroups:\n  - name: a\n  - name: b\n")["groups"]
    assert [group.line for group in groups] == [3, 4]


def test_several_documents_come_one_by_one() -> None:
    assert list(documents("a: 1\n---\nb: 2\n")) == [{"a": "1"}, {"b": "2"}]


def test_aliases_and_merges_are_followed_and_of_several_the_first_counts() -> None:
    text = """
base: &base {severity: page, team: core}
more: &more {team: edge, tier: one}
one: {<<: *base, team: web}
two:
  <<: [*base, *more]
three: [*base, &x y, *x]
"""
    found = read(text)
    assert found["one"] == {"severity": "page", "team": "web"}
    assert found["two"] == {"severity": "page", "team": "core", "tier": "one"}  # yaml.org/type/merge.html
    assert found["three"] == [{"severity": "page", "team": "core"}, "y", "y"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: !!python/object/apply:os.system [x]\n", 2, "tag"),
        ("a: !!str 1\n", 1, "tag"),
        ("!mine\na: 1\n", 1, "tag"),
        ("a: ! b\n", 1, "tag"),
        ("a: 1\nb: 2\na: 3\n", 3, "twice"),
        ("x: {a: 1, a: 2}\n", 1, "twice"),
        ("x: &x {a: 1}\ny:\n  <<: *x\n  <<: *x\n", 4, "twice"),
        ("? [a]\n: 1\n", 1, "no text"),
        ("~: 1\n", 1, "no text"),
        ("a: *b\n", 1, "alias"),
        ("a: &a [*a]\n", 1, "alias"),
        ("a: &a\n  b: *a\n", 2, "alias"),
        ("a: &a b\n---\nc: *a\n", 3, "alias"),
        ("a: &a b\nc: {<<: *a}\n", 2, "merges"),
        ('a: "\\ud800"\n', 1, None),
        ('a: "x\\0y"\n', 1, "U+0000"),
        ("a: b\x00c\n", 1, None),
        ("a: \x1b[31m\n", 1, None),
        ("a:\n\t- b\n", 2, None),
        ("a: [1\nb: 2\n", 2, None),
        ("a: 'b\n", 2, None),
        ("%YAML 9.9\n---\na: 1\n", 1, None),
        ("a: 1\n- b\n", 2, None),
    ],
)
def test_what_is_dangerous_or_broken_is_refused_with_its_line(text: str, line: int, says: str | None) -> None:
    error = refused(text)
    assert error.line == line, error
    assert says is None or says in error.message


def test_nine_lines_do_not_become_a_billion_values() -> None:
    lines = ['a0: &a0 ["x","x","x","x","x","x","x","x","x","x"]']
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    began = time.monotonic()
    error = refused("\n".join(lines))
    assert f"more than {MAX_NODES} values" in error.message
    assert error.line == 6
    assert time.monotonic() - began < 5


def test_merges_are_counted_like_what_they_name() -> None:
    keys = ", ".join(f"k{n}: 1" for n in range(1000))
    lines = [f"base: &base {{{keys}}}", "all:", *["  - {<<: *base}"] * 600]
    assert "values" in refused("\n".join(lines)).message


@pytest.mark.parametrize("opening", ["[", "{a: "])
def test_nesting_is_bounded(opening: str) -> None:
    assert "nest" in refused(opening * 5_000).message
    closing = "]" if opening == "[" else "}"
    assert read(opening * MAX_DEPTH + "x" + closing * MAX_DEPTH)
    assert "nested" in refused(opening * (MAX_DEPTH + 1) + "x" + closing * (MAX_DEPTH + 1)).message


def test_nesting_by_aliases_is_bounded_too() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 40))]
    error = refused("\n".join(lines))
    assert "nested" in error.message
    assert error.line == MAX_DEPTH


@given(st.text(alphabet=st.sampled_from("ab01:-[]{}&*!<>|#'\"\\, \n\t~?%@`é\x00\u2028"), max_size=60))
def test_any_text_is_read_or_refused_and_nothing_else_is_raised(text: str) -> None:
    try:
        list(documents(text))
    except StrictYamlError as error:
        assert 1 <= error.line <= text.count("\n") + text.count("\u2028") + 2  # noqa: PT017


@given(
    st.recursive(
        st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner),
        max_leaves=10,
    )
)
def test_what_yaml_writes_in_quotes_is_read_back(value: Any) -> None:
    assert read(yaml.safe_dump({"value": value}, default_style='"')) == {"value": value}
