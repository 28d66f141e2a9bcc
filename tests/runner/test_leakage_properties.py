from __future__ import annotations

import base64
import gzip
import json
import random
import time
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runner import leakage
from runner.leak_names import (
    ANSWER_PHRASE,
    LABEL_TEXT,
    contract_fields_in,
    fold,
    label_name,
    may_hold_label,
    skeleton,
)
from runner.leak_rules import (
    LABEL_NAMES,
    LOOK_ALIKE_LETTERS,
    MAX_DEPTH,
    MAX_LAYERS,
    PHRASE_STEMS,
    PHRASES,
    PROMPTS,
    RULES,
)
from runner.leak_walk import NO_IDS, Place, Scan
from tests.runner.leaks import document, scan

STRONG = sorted({f"{a} {b}" for names in LABEL_NAMES for a, b in product(names.first, names.second)})
PREFIXES, SUFFIXES = ("", "my", "the", "x", "incident"), ("", "v2", "list", "data", "7")
INVISIBLE = ("\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u180e", "\u202e")


@st.composite
def spelled(draw: st.DrawFn) -> str:
    """A label's name in some spelling: case, separators, plural, affixes, look-alike and invisible letters."""
    words = draw(st.sampled_from(STRONG)).split()
    if draw(st.booleans()) and words[-1][-1] not in "sx":
        words[-1] += "s"
    words = [w for w in (draw(st.sampled_from(PREFIXES)), *words, draw(st.sampled_from(SUFFIXES))) if w]
    style = draw(st.sampled_from(["_", "-", ".", " ", "__", "camel", "Camel", "UPPER", "/"]))
    if style in ("camel", "Camel"):
        name = "".join(w[0].upper() + w[1:] for w in words)
        name = name[0].lower() + name[1:] if style == "camel" else name
    else:
        name = "_".join(words).upper() if style == "UPPER" else style.join(words)
    rng = random.Random(draw(st.integers(0, 2**32)))
    letters = list(name)
    for index in draw(st.sets(st.integers(0, len(letters) - 1), max_size=4)):
        alike = LOOK_ALIKE_LETTERS.get(letters[index].lower())
        if alike:
            letters[index] = rng.choice(alike)
    for index in draw(st.lists(st.integers(0, len(letters) - 1), max_size=3)):
        letters[index] += rng.choice(INVISIBLE)
    return "".join(letters)


def buried(value: Any, path: list[int]) -> Any:
    for step in path:
        value = [{"a": value}, {"b": [1, value]}, [[value]], {"c": {"d": value}}][step % 4]
    return value


@given(
    spelled(), st.lists(st.integers(0, 3), max_size=6), st.sampled_from(["incident_context", "source_metadata", "x"])
)
def test_a_labels_name_in_any_spelling_at_any_depth_is_found(name: str, path: list[int], member: str) -> None:
    findings = scan(document(**{member: {"z": buried({name: "restart pod 7"}, path)}}))
    assert [finding.rule for finding in findings] == ["label_key"]
    assert "restart" not in findings[0].path


@given(spelled())
def test_the_quick_look_never_passes_over_a_labels_name(name: str) -> None:
    assert may_hold_label(skeleton(fold(name)))


def test_the_quick_look_never_passes_over_a_phrase() -> None:
    assert all(may_hold_label(skeleton(phrase)) for phrase in PHRASES)
    assert all(any(stem in phrase for phrase in PHRASES) for stem in PHRASE_STEMS)


LAYERS = {
    "json": lambda text: json.dumps({"w": text}),
    "string": json.dumps,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "urlsafe": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "gzip": lambda text: base64.b64encode(gzip.compress(text.encode())).decode(),
    "utf-16": lambda text: base64.b64encode(text.encode("utf-16")).decode(),
    "hex": lambda text: text.encode().hex(),
    "prose": lambda text: f"attached: {text} (end)",
}
LEAKS = (
    {"expected_action": "restart pod 7"},
    {"a": [{"name": "gold", "value": "restart pod 7"}]},
    {"x": "gold: restart pod 7"},
)


@given(st.sampled_from(LEAKS), st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6))
def test_a_leak_under_layers_of_encodings_is_found(leak: dict[str, Any], layers: list[str]) -> None:
    text = json.dumps(leak)
    for layer in layers:
        text = LAYERS[layer](text)
    assume(len(text) < 60_000)
    findings = scan(document({"note": text}))
    assert findings
    assert all("restart" not in finding.path and finding.rule in RULES for finding in findings)


@pytest.mark.parametrize("layer", ["base64", "urlsafe", "gzip"])
def test_layers_are_undone_to_the_bound_and_beyond_it_refused(layer: str) -> None:
    text = json.dumps({"gold": "restart"})
    for _ in range(MAX_LAYERS - 1):
        text = LAYERS[layer](text)
    assert [finding.rule for finding in scan(document({"note": text}))] == ["label_key"]
    harmless = json.dumps({"pod": "restart"})
    for _ in range(MAX_LAYERS + 1):
        harmless = LAYERS[layer](harmless)
    assert [finding.rule for finding in scan(document({"note": harmless}))] == ["nested_too_deep"]


WORDS = (
    *(
        "gold",
        "label",
        "expected",
        "action",
        "is",
        ":",
        "=",
        "example",
        "INC-4711",
        "proposed_action",
        "risk_level",
        "name",
    ),
    *(
        "value",
        '"',
        "{",
        "}",
        "[",
        "]",
        "\\",
        "\n",
        " ",
        "evaluation",
        "eyJnb2xkIjoxfQ",
        "%67",
        "&#103;",
        "\\u0067old",
        "true",
    ),
    *(
        "the correct answer",
        "answer",
        "key",
        "g",
        "o",
        "l",
        "d",
        "\u200b",
        "\u043e",
        "pod",
        "restart",
        ",",
        "|",
        "0x41",
        "-",
    ),
)
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map("".join) | st.text(max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def walked(whole: dict[str, Any]) -> list[Any]:
    direct = Scan(leakage.Ids((whole["incident_id"],)))
    direct.walk(whole, Place("", is_root=True))
    return list(direct.findings)


@given(st.dictionaries(TEXTS, VALUES, max_size=4), TEXTS, TEXTS)
def test_the_scan_never_raises_and_the_quick_look_changes_nothing(
    context: dict[str, Any], prompt: str, other: str
) -> None:
    whole = document(context, user_prompt=prompt, **{f"_{other}": other})
    quick = leakage.scan_request(whole, request_id="INC-4711", incident_id="INC-4711")
    assert set(quick) == set(walked(whole))


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_passes_as_a_document_passes_as_the_messages_made_from_it(context: dict[str, Any]) -> None:
    whole = document(context)
    assume(not leakage.scan_request(whole, request_id="INC-4711", incident_id="INC-4711"))
    as_json = json.dumps(whole["incident_context"], ensure_ascii=False)
    text = f"{whole['user_prompt']}\n\nINCIDENT CONTEXT (JSON):\n{as_json}"
    sent = [{"role": "system", "content": whole["system_prompt"]}, {"role": "user", "content": text}]
    assert leakage.scan_request(whole, request_id="INC-4711", incident_id="INC-4711", messages=sent) == ()


@given(st.binary(max_size=200))
def test_any_bytes_in_base64_are_looked_through_without_an_error(data: bytes) -> None:
    Scan(NO_IDS).walk(base64.b64encode(data).decode(), Place("x"))


@pytest.mark.parametrize("magic", [b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00", b"PK\x03\x04", b"\x78\x9c", b"\xff\xfe"])
def test_broken_archives_are_looked_through_without_an_error(magic: bytes) -> None:
    for seed in range(50):
        data = magic + random.Random(seed).randbytes(seed)
        Scan(NO_IDS).walk(base64.b64encode(data).decode(), Place("x"))


def test_a_document_of_any_depth_is_refused_not_a_crash() -> None:
    value: Any = "x"
    for _ in range(50_000):
        value = [value]
    findings = leakage.scan_request(document({"a": value}), request_id="INC-4711", incident_id="INC-4711")
    assert [finding.rule for finding in findings] == ["nested_too_deep"]
    text = "[" * 100_000
    assert "nested_too_deep" in [finding.rule for finding in scan(document({"a": text}))]
    assert [f.rule for f in scan(document({"a": "[" * (MAX_DEPTH + 50) + "1" + "]" * (MAX_DEPTH + 50)}))] == [
        "nested_too_deep"
    ]


def test_a_decompression_bomb_is_refused() -> None:
    bomb = base64.b64encode(gzip.compress(b"a " * 10_000_000)).decode()
    assert len(bomb) < 40_000
    assert ("too_much_to_decode", "incident_context.a") in [(f.rule, f.path) for f in scan(document({"a": bomb}))]


PIECES = (
    *("a", "_", "my_", "\n", " ", "gold ", "gold", "expected_", "expected action ", "expected_action", "name: "),
    *("true ", "1", "iiii1111", "l", ",expected", "risk level", "label for the ", "testdata", "=", "'", '"', "{"),
    *('{"', "[[", "\\u00", "%4", "&amp", "g o l d ", "abcd ", "\\", '\\"', "\u00e9", "\u200b", "\U000e0067", "AAAA "),
    *("example INC-4711 ", "eyJ", "H4sI", "<expected_action", "a,gold\n", "-", "\u0435", "\ufe01", "1 "),
)


@pytest.mark.parametrize("piece", PIECES)
def test_time_is_linear_whatever_the_text(piece: str) -> None:
    """What takes quadratic time takes minutes here."""
    text = (piece * (100_000 // len(piece) + 1))[:100_000]
    start = time.process_time()
    label_name(text)
    LABEL_TEXT.search(fold(text))
    ANSWER_PHRASE.search(fold(text))
    contract_fields_in(fold(text))
    leakage.scan_request(document({"a": text, text: 1}), request_id="INC-4711", incident_id="INC-4711")
    assert time.process_time() - start < 20


def test_every_prompt_member_is_one_that_is_sent() -> None:
    assert set(PROMPTS) <= leakage.SENT
