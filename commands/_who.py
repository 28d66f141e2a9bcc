"""Who runs this, and where: the actor's id is a fact, the operator's name and host are content."""

from __future__ import annotations

import getpass
import re
import socket
import subprocess
from dataclasses import dataclass

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._:@-]")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")


@dataclass(frozen=True)
class Who:
    """``actor`` fits an id. ``operator`` and ``host`` are None where the system does not tell."""

    actor: str
    operator: str | None
    host: str | None


def who_runs(actor: str | None) -> Who:
    """The given actor, else one made of the operating system's user."""
    operator = _operator()
    return Who(actor or id_from(operator or ""), _as_utf8(operator), _as_utf8(socket.gethostname()))


def id_from(name: str) -> str:
    """The name made fit for an id: ``-`` for other characters, and nothing but a letter or digit first."""
    text = _NOT_IN_IDS.sub("-", name).lstrip("._:@-")[:128]
    return text or "unknown"


def _operator() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def _as_utf8(text: str | None) -> str | None:
    return text.encode("utf-8", "backslashreplace").decode() if text else None


def git_commit() -> str | None:
    """The commit checked out in the working directory; None outside a repository or without git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    commit = done.stdout.strip()
    return commit if done.returncode == 0 and _COMMIT.match(commit) else None
