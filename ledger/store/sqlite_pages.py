"""What SQLite leaves in a file behind its own back: old rows in the unused parts of pages.

``secure_delete`` overwrites rows as they are deleted, and pages as they become free. But where
SQLite moves rows from a page to its neighbours, to keep the tree in balance, it leaves the old
page's unused part as it is (``rebuildPage`` in its btree.c; seen with 3.40). A row that is deleted
later is overwritten where it stands now, and its earlier copy stays. No SQL shows those bytes, so
they are read from the file, by SQLite's file format (sqlite.org/fileformat2.html, section 1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from struct import unpack_from
from typing import Final

_HEADER_BYTES: Final = 100
_INTERIOR: Final = 5
_LEAF: Final = 13

# Of itself SQLite leaves the pairs of bytes that say where a cell or a free block was and how long it
# is, two at most in a row. A row is longer: a part of one that it wrote over is seen from five bytes on.
_REMAINS: Final = re.compile(rb"[^\0]{5}")

Page = Callable[[int], bytes]

_kept_open: dict[tuple[int, int], int] = {}


def holds_old_rows(path: Path, root: int) -> bool:
    """Is anything of a row in the unused parts of the table whose root page this is, or in free pages?

    The file must not change meanwhile, and no part of it may still be in the write-ahead log. Raises
    ``ValueError`` where the file is not as SQLite writes it.
    """
    descriptor = _descriptor(path)
    header = os.pread(descriptor, _HEADER_BYTES, 0)
    if len(header) != _HEADER_BYTES:
        raise ValueError("no SQLite file")
    (size,) = unpack_from(">H", header, 16)
    size = 65536 if size == 1 else size
    usable = size - header[20]

    def page(number: int) -> bytes:
        found = os.pread(descriptor, usable, (number - 1) * size) if number > 0 else b""
        if len(found) != usable:
            raise ValueError(f"page {number} is not in the file")
        return found

    first_trunk, free = unpack_from(">II", header, 32)
    unused = chain(_unused_in_table(page, root), _unused_in_free(page, first_trunk, free))
    # Nearly all of it is zeros, which are stripped quicker than searched.
    return any(_REMAINS.search(part) for piece in unused if (part := piece.strip(b"\0")))


def _descriptor(path: Path) -> int:
    """The file, open for reading, and never closed.

    Closing any descriptor of a file ends all locks that this process has on it (POSIX), SQLite's too.
    """
    status = path.stat()
    identity = (status.st_dev, status.st_ino)
    if identity not in _kept_open:
        _kept_open[identity] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return _kept_open[identity]


def _unused_in_table(page: Page, root: int) -> Iterator[bytes]:
    """Of each leaf: the gap between the cells' pointers and the cells, and the blocks that are free."""
    waiting = [root]
    while waiting:
        data = page(waiting.pop())
        kind, block, cells, start = unpack_from(">BHHH", data)
        if kind == _INTERIOR:
            pointers = unpack_from(f">{cells}H", data, 12)
            waiting.extend(unpack_from(">I", data, at)[0] for at in (8, *pointers))
            continue
        if kind != _LEAF:
            raise ValueError(f"a page of type {kind} in a table")
        yield _without_pointers(data[8 + 2 * cells : start or len(data)], len(data))
        while block:
            following, length = unpack_from(">HH", data, block)
            yield data[block + 4 : block + length]
            if 0 < following <= block:
                raise ValueError("free blocks out of order")
            block = following


def _without_pointers(gap: bytes, usable: int) -> bytes:
    """The gap without the pointers to cells that are gone, with which it begins."""
    if _REMAINS.search(gap) is None:
        return b""
    at = 0
    while at + 2 <= len(gap) and int.from_bytes(gap[at : at + 2], "big") <= usable:
        at += 2
    return gap[at:]


def _unused_in_free(page: Page, trunk: int, free: int) -> Iterator[bytes]:
    """Of each free page: all that is not the list of free pages itself."""
    while trunk and free > 0:
        data = page(trunk)
        trunk, count = unpack_from(">II", data)
        if 8 + 4 * count > len(data):
            raise ValueError("a list of free pages that is longer than its page")
        yield data[8 + 4 * count :]
        yield from map(page, unpack_from(f">{count}I", data, 8))
        free -= 1 + count
