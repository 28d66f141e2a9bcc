"""One driver a run: who holds a run, and how a second one is told.

A lock of the operating system, or of Postgres, ends with the process that holds it, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from ledger.store.errors import LedgerReadOnly, RunLocked

_HOLDER_CHARACTERS: Final = 1000


def lock_key(text: str) -> int:
    """A signed 64-bit number for a Postgres advisory lock."""
    return int.from_bytes(sha256(text.encode("utf-8")).digest()[:8], "big", signed=True)


@contextmanager
def file_lock(ledger: Path, run_id: str, holder: str) -> Iterator[None]:
    """Hold a run of a SQLite ledger through a file in ``<ledger>-locks/``.

    The file stays when the lock is let go: removing it would let two processes hold one name.
    Raises ``RunLocked``, naming the holder.
    """
    folder = ledger.with_name(f"{ledger.name}-locks")
    # Run ids differ in case and may be no file names; their digests do and are.
    path = folder / f"{sha256(run_id.encode('utf-8')).hexdigest()[:32]}.lock"
    try:
        folder.mkdir(exist_ok=True)
        lock = FileLock(path, timeout=0)
        lock.acquire()
    except Timeout:
        raise RunLocked(run_id, _read_holder(path)) from None
    except OSError as error:
        raise LedgerReadOnly(f"{path}: the run cannot be locked ({error.strerror})") from None
    try:
        path.write_text(holder[:_HOLDER_CHARACTERS], encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            path.write_text("", encoding="utf-8")
        lock.release()


def _read_holder(path: Path) -> str:
    # The holder writes its name just after it got the lock, so the file may still be empty.
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:_HOLDER_CHARACTERS]
    except OSError:
        text = ""
    return text or "another process"


@contextmanager
def local_lock(driven: dict[str, list[str]], run_id: str, holder: str) -> Iterator[None]:
    """Hold a run of a ledger that lives in this process. ``driven``: run id -> its holder, alone in a list."""
    mine = [holder]
    if driven.setdefault(run_id, mine) is not mine:
        raise RunLocked(run_id, driven[run_id][0])
    try:
        yield
    finally:
        del driven[run_id]
