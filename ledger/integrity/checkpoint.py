"""The text of a checkpoint (C2SP tlog-checkpoint): which log, how many entries, which root.

    <origin>\\n<size>\\n<base64 root>\\n

Signed, it is a note (``note.py``). No extension lines are written, and none are taken.
"""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

from ledger.integrity.merkle import HASH_BYTES
from ledger.integrity.note import NoteError, strict_base64

_SIZE: Final = re.compile(r"[1-9][0-9]{0,18}")


class Checkpoint(NamedTuple):
    """A tree's size and root, and the ledger it belongs to. Size 0 is never signed."""

    origin: str
    size: int
    root: bytes


def format_checkpoint(checkpoint: Checkpoint) -> str:
    """The text that is signed."""
    return f"{checkpoint.origin}\n{checkpoint.size}\n{base64.b64encode(checkpoint.root).decode()}\n"


def parse_checkpoint(text: str) -> Checkpoint:
    """Read a checkpoint's text, the only one that ``format_checkpoint`` makes of its values.

    Raises ``NoteError``.
    """
    lines = text.split("\n")
    if len(lines) != 4 or lines[3]:
        raise NoteError("a checkpoint has three lines")
    origin, size, encoded = lines[:3]
    if not origin:
        raise NoteError("a checkpoint names its log")
    if not _SIZE.fullmatch(size):
        raise NoteError("a checkpoint's size is a positive decimal number")
    root = strict_base64(encoded)
    if len(root) != HASH_BYTES:
        raise NoteError("a checkpoint's root has 32 bytes")
    return Checkpoint(origin, int(size), root)
