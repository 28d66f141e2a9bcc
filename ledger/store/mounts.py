"""File systems on which SQLite's write-ahead log is not safe.

WAL keeps its index in memory shared between processes (https://www.sqlite.org/wal.html, "all
processes using a database must be on the same host computer"). Network and most virtual file
systems cannot promise that, and lose or garble writes without a word.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_UNSAFE: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "virtiofs"),
        *("vboxsf", "vmhgfs", "prl_fs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs", "davfs"),
    }
)
MOUNTS: Final = Path("/proc/mounts")


def read_mounts() -> str:
    """The kernel's table of mounts; empty where there is none (not Linux)."""
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def unsafe_filesystem(folder: Path, mounts: str) -> str | None:
    """The type of the file system that ``folder`` (absolute) lies on, where WAL is unsafe there.

    ``mounts`` is text as in ``/proc/mounts``: device, mount point, type ... The longest mount
    point wins, and of equal ones the last, which hides the others.
    """
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(_unescape(fields[1]))
        depth = len(point.parts)
        if depth >= best and folder.is_relative_to(point):
            best, kind = depth, fields[2]
    return kind if kind in _UNSAFE or kind.startswith("fuse.") else None


def _unescape(text: str) -> str:
    # The kernel writes space, tab, newline and backslash as octal.
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
