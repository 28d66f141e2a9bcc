"""Take keys out of text that others sent. Pure.

What comes back from an endpoint is stored for years, and an endpoint (or a gateway before it) may echo
what it was sent. Two things are removed: the secrets of this very run, in the forms in which they could be
echoed, and anything that has the shape of a key, whoever's it is. Time is linear in the text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

MARKER: Final = b"[scrubbed]"
"""What stands in a removed key's place. Safe inside a JSON string, so a scrubbed reply still parses."""

MIN_SECRET_CHARS: Final = 8
"""A shorter secret is not searched for: it would be found in ordinary words."""

_TOKEN: Final = rb"(?:[A-Za-z0-9._~+/-]|\\/){16,}=*"
_KEY_LIKE: Final = re.compile(
    rb"(?:[Bb]earer|BEARER)(?:[\s:]|%20|\\+u0020|\\+[nrt]){1,4}"
    + _TOKEN
    # "disk-pressure-on-node" is no key: a prefix counts only where a word begins. In JSON and in a URL the
    # character before it may be the end of an escape.
    + rb"|(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=\\u00[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2}))(?:sk|nvapi)-"
    + _TOKEN
)
_KEY_LIKE_SIGNS: Final = (b"sk-", b"earer", b"EARER", b"nvapi-")
_PERCENT_ESCAPE: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
_JSON_ESCAPE: Final = re.compile(rb"\\u00[0-9A-Fa-f]{2}")


def looks_like_key(text: str) -> bool:
    """True where `text` holds something of a key's shape: ``Bearer`` or ``sk-`` and 16 token characters."""
    return _KEY_LIKE.search(text.encode("utf-8", "backslashreplace")) is not None


class Scrubber:
    """Removes `secrets` and key-like text. A secret of fewer than `MIN_SECRET_CHARS` characters is not sought."""

    __slots__ = ("_escaped", "_literals")

    def __init__(self, secrets: Sequence[str]) -> None:
        sought = {part for secret in secrets for part in _parts(secret) if len(part) >= MIN_SECRET_CHARS}
        literals = {form for secret in sought for form in _literal_forms(secret)}
        self._literals = sorted(literals, key=lambda form: (-len(form), form))
        patterns = [_escaped_pattern(secret) for secret in sorted(sought, key=lambda secret: (-len(secret), secret))]
        self._escaped = re.compile(b"|".join(patterns)) if patterns else None

    def scrub(self, data: bytes) -> tuple[bytes, int]:
        """(`data` with each find replaced by `MARKER`, number of finds)."""
        found = 0
        for literal in self._literals:
            if literal in data:
                found += data.count(literal)
                data = data.replace(literal, MARKER)
        if self._escaped is not None and _has_escapes(data):
            data, count = self._escaped.subn(MARKER, data)
            found += count
        if any(sign in data for sign in _KEY_LIKE_SIGNS):
            data, count = _KEY_LIKE.subn(MARKER, data)
            found += count
        return data, found

    def scrub_text(self, text: str) -> tuple[str, int]:
        """The same for text. Lone surrogates come back as escapes."""
        data, found = self.scrub(text.encode("utf-8", "backslashreplace"))
        return data.decode("utf-8", "replace"), found


def _parts(secret: str) -> Iterator[str]:
    """A header's whole value and, of ``Bearer <token>`` and the like, the token."""
    secret = secret.strip()
    yield secret
    _, space, token = secret.rpartition(" ")
    if space:
        yield token


def _literal_forms(secret: str) -> Iterator[bytes]:
    raw = secret.encode("utf-8", "surrogatepass")
    yield raw
    escaped = json.dumps(secret)[1:-1]
    yield escaped.encode("ascii")
    yield escaped.replace("/", "\\/").encode("ascii")
    yield quote(raw, safe="").encode("ascii")
    yield from _base64_forms(raw)


def _base64_forms(raw: bytes) -> Iterable[bytes]:
    """`raw` as base64 shows it (RFC 4648, both alphabets), by itself and inside a longer text.

    Inside a longer text it begins at one of three places within a group of four characters; those
    characters that also depend on its neighbours are left out.
    """
    for lead in range(3):
        encoded = base64.b64encode(b"\0" * lead + raw)
        start = (0, 2, 3)[lead]
        tail = (lead + len(raw)) % 3
        core = encoded[start : len(encoded) - (0, 3, 2)[tail]]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


def _escaped_pattern(secret: str) -> bytes:
    """`secret` with any of its characters percent-encoded or written as a JSON escape, at any nesting."""
    return b"".join(
        rb"(?:%s|%%(?i:%02x)|\\{1,8}u00(?i:%02x)%s)" % (re.escape(bytes([byte])), byte, byte, _short_escape(byte))
        for byte in secret.encode("utf-8", "surrogatepass")
    )


def _short_escape(byte: int) -> bytes:
    return rb"|\\{1,8}" + re.escape(bytes([byte])) if byte in b'"/\\' else b""


def _has_escapes(data: bytes) -> bool:
    return (b"%" in data and _PERCENT_ESCAPE.search(data) is not None) or (
        b"\\u00" in data and _JSON_ESCAPE.search(data) is not None
    )
