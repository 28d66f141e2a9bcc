"""A reply's body, read up to a ceiling. Owns no socket: it is fed what came.

No compression is asked for. A server that compresses all the same is read, within the same ceiling on what
comes out, so a few bytes that unfold into gigabytes cost a megabyte. What cannot be unfolded is kept as it
came; it is no JSON then, and is dealt with as such.
"""

from __future__ import annotations

import zlib
from typing import Final

BODY_CEILING: Final = 1 << 20
"""The longest body that is read whole, in bytes after decoding."""

KEPT_OF_LARGE_BODY: Final = 64 << 10
"""What is kept of a longer one."""

_DECODED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class BodyReader:
    """Feed it chunks while `wants_more`. `declared` is the Content-Length, where there was a sane one."""

    __slots__ = ("_declared", "_decoded", "_decoder", "_raw")

    def __init__(self, content_encoding: str | None = None, declared: int | None = None) -> None:
        self._raw = bytearray()
        self._decoded = bytearray()
        encoding = (content_encoding or "").strip().lower()
        self._decoder = zlib.decompressobj(_GZIP_OR_ZLIB) if encoding in _DECODED else None
        self._declared = declared if declared is not None and 0 <= declared < 2**53 else None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes off the wire."""
        self._raw += chunk
        if self._decoder is None:
            return
        try:
            self._decoded += self._decoder.decompress(chunk, BODY_CEILING + 1 - len(self._decoded))
        except zlib.error:
            self._as_it_came()
        else:
            if self._decoder.unused_data:
                self._as_it_came()

    def end(self) -> None:
        """The whole body has come."""
        if self._decoder is not None and not self._decoder.eof and not self.too_large:
            self._as_it_came()

    @property
    def too_large(self) -> bool:
        """The body passed the ceiling: reading may stop."""
        return len(self._raw) > BODY_CEILING or len(self._decoded) > BODY_CEILING

    @property
    def body(self) -> bytes:
        """What has come so far, decoded; more than the ceiling by a chunk at most."""
        return bytes(self._raw if self._decoder is None else self._decoded)

    @property
    def body_bytes(self) -> int:
        """The body's length: what has come so far or, where that is more, what the server declared."""
        if self._decoder is not None:
            return len(self._decoded)
        return max(len(self._raw), self._declared or 0)

    def _as_it_came(self) -> None:
        self._decoder = None
        self._decoded.clear()
