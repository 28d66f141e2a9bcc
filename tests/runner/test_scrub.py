"""Keys are taken out of what others sent, in every form in which they could be echoed."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.scrub import MARKER, MIN_SECRET_CHARS, Scrubber, looks_like_key

KEY = "nv-test_A/9+bq.Zk-31337~xyz"
KEYS = st.text("abcdefghijkABCDEFG0123456789-_.~+/=", min_size=MIN_SECRET_CHARS, max_size=60)


def forms(key: str) -> dict[str, str]:
    return {
        "as it is": key,
        "JSON": json.dumps(key)[1:-1],
        "JSON with escaped slashes": json.dumps(key)[1:-1].replace("/", "\\/"),
        "URL": quote(key, safe=""),
        "form": quote_plus(key),
        "URL, lower-case hex": quote(key, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
        "URL, every character": "".join(f"%{ord(char):02X}" for char in key),
        "JSON, every character": "".join(f"\\u{ord(char):04x}" for char in key),
        "JSON within JSON": json.dumps("".join(f"\\u{ord(char):04X}" for char in key))[1:-1],
        "mixed": "".join(f"\\u{ord(char):04x}" if n % 2 else char for n, char in enumerate(key)),
        "base64": base64.b64encode(key.encode()).decode().rstrip("="),
        "base64 for URLs": base64.urlsafe_b64encode(key.encode()).decode().rstrip("="),
    }


@pytest.mark.parametrize("form", forms(KEY))
def test_the_key_is_removed_in_every_form(form: str) -> None:
    text = forms(KEY)[form]
    scrubbed, found = Scrubber([KEY]).scrub(f'{{"echo": "<{text}>"}}'.encode())
    assert found == 1
    assert MARKER in scrubbed
    assert text[4:-4].encode() not in scrubbed


@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
@pytest.mark.parametrize("after", ["", "z", "zz", ":rest"])
def test_base64_of_a_longer_text_does_not_hide_the_key(before: str, after: str) -> None:
    encoded = base64.b64encode(f"{before}{KEY}{after}".encode())
    scrubbed, found = Scrubber([KEY]).scrub(b"Basic " + encoded)
    assert found == 1
    decoded = base64.b64decode(scrubbed.removeprefix(b"Basic ").split(MARKER)[0] + b"==")
    assert KEY.encode()[:4] not in decoded


@given(KEYS, st.text(max_size=40), st.text(max_size=40))
def test_no_key_survives_in_any_text(key: str, before: str, after: str) -> None:
    scrubber = Scrubber([key])
    for form in forms(key).values():
        scrubbed, found = scrubber.scrub_text(before + form + after)
        assert found >= 1
        assert form not in scrubbed


@given(st.binary(max_size=300))
def test_what_holds_no_key_is_left_as_it_is(data: bytes) -> None:
    if not looks_like_key(data.decode("latin-1")):
        assert Scrubber(["never-in-this-data-0123456789"]).scrub(data) == (data, 0)


@given(st.binary(max_size=300))
def test_scrubbing_again_finds_nothing(data: bytes) -> None:
    scrubber = Scrubber([KEY])
    once, _ = scrubber.scrub(data + KEY.encode() + b" Bearer " + b"t" * 20)
    assert scrubber.scrub(once) == (once, 0)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefghij0123456789",
        "authorization: bearer abcdefghij0123456789==",
        '{"h":"Bearer\\u0020abcdefghij0123456789"}',
        "Bearer%20abcdefghij0123456789",
        "sk-proj-abcdefghij0123456789",
        '"line\\nsk-abcdefghij0123456789"',
        "key=sk-abcdefghij0123456789&x=1",
        "%0Ask-abcdefghij0123456789",
        "nvapi-abcdefghij0123456789",
    ],
)
def test_key_like_text_is_removed_whoever_it_belongs_to(text: str) -> None:
    assert looks_like_key(text)
    scrubbed, found = Scrubber([]).scrub_text(text)
    assert found == 1
    assert "0123456789" not in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "disk-pressure-on-node-12-and-on-node-13",
        "risk-assessment-required-before-failover",
        "task-0123456789abcdef0123456789",
        "Bearer of bad news: the token was short",
        "sk-short",
        "sk- 0123456789abcdef0123456789",
    ],
)
def test_words_that_only_resemble_a_key_stay(text: str) -> None:
    assert not looks_like_key(text)
    assert Scrubber([]).scrub_text(text) == (text, 0)


def test_a_short_secret_is_not_searched_for() -> None:
    assert Scrubber(["x" * (MIN_SECRET_CHARS - 1)]).scrub(b"x" * 50) == (b"x" * 50, 0)
    assert Scrubber(["x" * MIN_SECRET_CHARS]).scrub(b"x" * 8) == (MARKER, 1)


def test_the_token_of_a_header_value_is_a_secret_too() -> None:
    scrubbed, found = Scrubber(["Token 0a1b2c3d4e5f"]).scrub(b'{"you sent": "0a1b2c3d4e5f"}')
    assert (scrubbed, found) == (b'{"you sent": "[scrubbed]"}', 1)


def test_a_scrubbed_reply_is_still_json() -> None:
    body = json.dumps({"echo": KEY, "note": f"Bearer {'t' * 30}", "n": 1})
    scrubbed, found = Scrubber([KEY]).scrub_text(body)
    assert json.loads(scrubbed) == {"echo": "[scrubbed]", "note": "[scrubbed]", "n": 1}
    assert found == 2


@pytest.mark.parametrize("piece", ["sk-", "Bearer ", "Bearer\\", "%73", "\\u0073", "\\\\\\\\", KEY[:-1], "nvapi-a"])
def test_a_hostile_megabyte_takes_no_longer_than_a_plain_one(piece: str) -> None:
    data = (piece * (1 + (1 << 20) // len(piece))).encode()[: 1 << 20]
    scrubber = Scrubber([KEY])
    began = time.process_time()
    scrubber.scrub(data)
    assert time.process_time() - began < 3.0
