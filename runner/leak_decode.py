"""What a text hides: encoded runs, compressed bytes, escapes, invisible characters.

Everything here answers with the hidden text, or says that a blob cannot be read; what a hidden text
means is for ``leakage``. Nothing raises. Inflating is bounded in bytes.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import html
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from runner.leak_rules import MAX_BLOB_BYTES, MAX_INFLATED_BYTES

SHORTEST_RUN: Final = 14
"""Characters of the shortest encoded run: ``{"gold":1}`` in base64, without its padding."""
LONGEST_CACHED_RUN: Final = 512
_MAX_ZIP_ENTRIES: Final = 64
_MAX_FALSE_STARTS: Final = 8

_RUN_BYTES: Final = bytes(c if (chr(c).isalnum() and c < 128) or chr(c) in "+/_-" else 32 for c in range(256))
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){7,}\Z")
_BASE32: Final = re.compile(r"[A-Z2-7]{14,}\Z")
_MEDIA: Final = (
    b"\x89PNG\r\n",
    b"\xff\xd8\xff",
    b"GIF8",
    b"RIFF",
    b"BM",
    b"II*\x00",
    b"MM\x00*",
    b"%PDF-",
    b"\x00\x00\x01\x00",
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_NO_CONTROL_BYTES: Final = bytes([*range(9, 14), *range(32, 127), *range(128, 256)])
_PRINTABLE_RUNS: Final = re.compile(r"[ -~]{4,}")


class Hidden(NamedTuple):
    """What one encoded run holds. ``text`` is None where the bytes are no text.

    ``names`` are the printable pieces of bytes that are no text. ``opaque``: too large to be let
    pass unread. ``cut``: more unfolds than is looked through.
    """

    text: str | None
    names: str = ""
    opaque: bool = False
    cut: bool = False


_NOTHING: Final = Hidden(None)


def runs_in(text: str) -> list[str]:
    """Runs of ``text`` that may be encoded, one piece each."""
    pieces = text.encode("ascii", "replace").translate(_RUN_BYTES).split()
    return [piece.decode() for piece in pieces if len(piece) >= SHORTEST_RUN]


def wrapped_runs(text: str) -> list[str]:
    """Three pieces or more of one length (the last may be shorter), put together, as wrapped base64 has them."""
    pieces = text.split()
    if len(pieces) < 3:
        return []
    found, start = [], 0
    lengths = [*map(len, pieces), 0]
    length = lengths[0]
    for end, other in enumerate(lengths):  # in every text, so the lengths are compared and nothing else
        if other == length:
            continue
        if end - start >= 2 and length >= 3:
            rest = pieces[end : end + 1] if other < length else []
            joined = "".join(pieces[start:end] + rest).rstrip("=")
            if end - start + len(rest) >= 3 and len(joined) >= SHORTEST_RUN and _is_run(joined):
                found.append(joined)
        start, length = end, other
    return found


def _is_run(text: str) -> bool:
    return text.isascii() and b" " not in text.encode().translate(_RUN_BYTES)


def reveal(run: str) -> Hidden:
    """What an encoded run holds: base64 (also URL-safe, and begun at any letter), base32 or hex."""
    return _reveal_short(run) if len(run) <= LONGEST_CACHED_RUN else _reveal(run)


def _reveal(run: str) -> Hidden:
    best = _NOTHING
    for data in _readings(run):
        hidden = _interpret(data)
        if hidden.text is not None or hidden.cut:
            return hidden
        if best is _NOTHING:
            best = hidden._replace(opaque=_too_large(run, data))
    return best


_reveal_short: Final = lru_cache(maxsize=16384)(_reveal)


def _too_large(run: str, data: bytes) -> bool:
    size = len(data) if data.startswith(_MEDIA) else len(run)
    return size > MAX_BLOB_BYTES


def _readings(run: str) -> Iterator[bytes]:
    if _HEX.match(run):
        yield binascii.unhexlify(run)
    for offset in range(4):
        piece = run[offset:].encode().translate(_URL_SAFE)
        piece = piece[:-1] if len(piece) % 4 == 1 else piece
        yield binascii.a2b_base64(piece + b"=" * (-len(piece) % 4))
    if _BASE32.match(run) and len(run) % 8 in {0, 2, 4, 5, 7}:
        yield base64.b32decode(run + "=" * (-len(run) % 8))


def _interpret(data: bytes) -> Hidden:
    """Bytes as text: UTF-8, UTF-16, or compressed text; else their printable pieces."""
    text = _as_text(data)
    if text is not None:
        return Hidden(text)
    inflated, cut = _inflate(data)
    if inflated is None:
        return Hidden(None, names=" ".join(_PRINTABLE_RUNS.findall(data.decode("latin-1"))))
    text = _as_text(inflated)
    if text is not None:
        return Hidden(text, cut=cut)
    if inflated.startswith(_COMPRESSED):  # compressed twice: as an encoded run, it is the next layer
        return Hidden(base64.b64encode(inflated).decode(), cut=cut)
    return Hidden(None, names=" ".join(_PRINTABLE_RUNS.findall(inflated.decode("latin-1"))), cut=cut)


def _as_text(data: bytes) -> str | None:
    for encoding in _encodings(data):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if text and _is_readable(text, encoding):
            return text
    return None


def _encodings(data: bytes) -> tuple[str, ...]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ("utf-16",)
    if b"\x00" not in data[:64]:
        # Most runs are no encoding: their bytes have control characters, and need no closer look.
        return () if data.translate(None, _NO_CONTROL_BYTES) else ("utf-8-sig",)
    return ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


def _is_readable(text: str, encoding: str) -> bool:
    if _CONTROL.search(text):
        return False
    # Two random bytes make a CJK character in UTF-16 more often than not: those are no text.
    return encoding == "utf-8-sig" or 2 * len(text.encode("ascii", "ignore")) >= len(text)


_GZIP: Final = b"\x1f\x8b"
_BZ2: Final = b"BZh"
_XZ: Final = b"\xfd7zXZ\x00"
_ZIP: Final = b"PK\x03\x04"
_ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_COMPRESSED: Final = (_GZIP, _BZ2, _XZ, _ZIP, *_ZLIB)


def _inflate(data: bytes) -> tuple[bytes | None, bool]:
    """(what compressed bytes unfold to, whether there is more than that); None where they do not."""
    if not data.startswith(_COMPRESSED):
        return None, False
    try:
        if data.startswith(_ZIP):
            return _unzip(data)
        out = _decompressor(data).decompress(data, MAX_INFLATED_BYTES + 1)
    except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError):
        return None, False
    except (zipfile.BadZipFile, zipfile.LargeZipFile, KeyError, MemoryError):
        return None, False
    return out[:MAX_INFLATED_BYTES] or None, len(out) > MAX_INFLATED_BYTES


def _decompressor(data: bytes) -> Any:
    if data.startswith(_BZ2):
        return bz2.BZ2Decompressor()
    if data.startswith(_XZ):
        return lzma.LZMADecompressor(memlimit=128 * 1024 * 1024)
    return zlib.decompressobj(wbits=47)  # 32 + 15: a gzip or a zlib header, whichever stands there


def _unzip(data: bytes) -> tuple[bytes | None, bool]:
    parts: list[bytes] = []
    left = MAX_INFLATED_BYTES
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        for entry in entries[:_MAX_ZIP_ENTRIES]:
            with archive.open(entry) as file:
                body = file.read(left + 1)
            left -= len(body)
            if left < 0:
                return b"\n".join(parts), True
            parts += [entry.filename.encode("utf-8", "replace"), body]
    return b"\n".join(parts) or None, len(entries) > _MAX_ZIP_ENTRIES


class Members(list[tuple[str, Any]]):
    """A decoded object with every member, also one whose key stands twice."""


_DECODER: Final = json.JSONDecoder(object_pairs_hook=Members, parse_int=str, parse_float=float)


class Json(NamedTuple):
    """JSON found in a text. ``whole``: the text is that and nothing else. ``too_deep``: it cannot be read."""

    values: tuple[Any, ...] = ()
    rest: str = ""
    whole: bool = False
    too_deep: bool = False


def json_in(text: str) -> Json:
    """The objects and lists (and, as the whole text, the string) written as JSON in ``text``."""
    stripped = text.strip(" \t\r\n\ufeff")
    if stripped[:1] in {"{", "[", '"'}:
        try:
            return Json((_DECODER.decode(stripped),), whole=True)
        except RecursionError:
            return Json(rest=text, too_deep=True)
        except ValueError:
            pass
    return _embedded(text)


def _embedded(text: str) -> Json:
    values: list[Any] = []
    rest: list[str] = []
    at = kept = false_starts = 0
    while false_starts < _MAX_FALSE_STARTS and (found := _JSON_START.search(text, at)):
        at = found.start()
        try:
            value, end = _DECODER.raw_decode(text, at)
        except RecursionError:
            return Json(rest=text, too_deep=True)
        except ValueError:
            false_starts += 1
            at += 1
            continue
        values.append(value)
        rest.append(text[kept:at])
        at = kept = end
    return Json(tuple(values), " ; ".join([*rest, text[kept:]]) if values else text)


_JSON_START: Final = re.compile(r"""\{\s{0,64}"|\[\s{0,64}[\[{"]""")
_SPACED_OUT: Final = re.compile(r"(?<![^\W_])(?:[a-z0-9][ \t._\-*|]{1,3}){5,}[a-z0-9](?![^\W_])")
_SPACER: Final = re.compile(r"[ \t._\-*|]{1,3}")
_PERCENT: Final = re.compile(r"%[0-9a-fA-F]{2}")
_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,24});")
_ESCAPE: Final = re.compile(r"(?<!\\)\\++(?:u\{?([0-9a-fA-F]{4,6})\}?|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8}))")
_TAGS: Final = re.compile("[\U000e0020-\U000e007e]+")
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")


def is_escaped(text: str) -> bool:
    """Whether ``unescaped`` has anything to say."""
    if not text.isascii() and (_TAGS.search(text) or _SELECTORS.search(text)):
        return True
    return bool(
        ("%" in text and _PERCENT.search(text))
        or ("&" in text and _ENTITY.search(text))
        or ("\\" in text and _ESCAPE.search(text))
    )


def unescaped(text: str) -> Iterator[str]:
    """Other readings of ``text``: escapes undone, and text in characters that are not seen."""
    # One reading for all kinds of escapes: one each would branch at every layer.
    plain = unquote(text, errors="replace") if "%" in text and _PERCENT.search(text) else text
    plain = html.unescape(plain) if "&" in plain and _ENTITY.search(plain) else plain
    if "\\" in plain:
        plain = _ESCAPE.sub(_escaped_character, plain)
        plain = plain.replace('\\"', '"').replace("\\\\", "\\")  # JSON quoted once more than the text tells
    if plain != text:
        yield plain
    if not text.isascii():
        for found in _TAGS.finditer(text):
            yield "".join(chr(ord(c) - 0xE0000) for c in found[0])
        for found in _SELECTORS.finditer(text):
            yield bytes(_selector_byte(ord(c)) for c in found[0]).decode("utf-8", "replace")


def letters_put_together(folded: str) -> str:
    """Folded text with words whose letters were written apart (``g o l d``) as words."""
    return _SPACED_OUT.sub(lambda found: _SPACER.sub("", found[0]), folded)


def _escaped_character(found: re.Match[str]) -> str:
    code = int(found[1] or found[2] or found[3], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else " "


def _selector_byte(code: int) -> int:
    return code - 0xFE00 if code <= 0xFE0F else code - 0xE0100 + 16
