"""What one invocation of the program knows: its environment, its secrets, where its ledger is.

Options come before the environment, the environment before ``--env-file``, that before ``--config``.
Nothing here changes ``os.environ``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ledger.store.place import Place, parse

if TYPE_CHECKING:
    from commands._config import Config

DEFAULT_LEDGER: Final = "sqlite:///replay-ledger.db"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SHORTEST_REMOVED: Final = 4
_LONGEST_ENV_FILE: Final = 1024 * 1024


@dataclass
class Session:
    """One invocation. ``secrets`` are removed from everything that is printed about a failure."""

    process_environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    file_environment: Mapping[str, str] = field(default_factory=dict)
    config: Config | None = None
    """The file of options that was named, if one was."""
    ledger: str | None = None
    ledger_typed: bool = False
    """The ledger stood on the command line, so a command that is offered must name it too."""
    signer_dir: str | None = None
    """Where ledgers' keys and their signers' stores are; None: in the user's state directory."""
    debug: bool = False
    secrets: list[str] = field(default_factory=list, repr=False)

    def variable(self, name: str) -> str | None:
        """The environment's value, else that of ``--env-file``; None where absent or empty."""
        return self.process_environment.get(name) or self.file_environment.get(name) or None

    @property
    def ledger_url(self) -> str:
        return self.ledger or DEFAULT_LEDGER

    @property
    def place(self) -> Place:
        """The place of the ledger in use. Raises ``NotALedger``."""
        return self.read_place(self.ledger_url)

    def read_place(self, url: str) -> Place:
        """A ledger's URL, read; its password is kept out of what is printed. Raises ``NotALedger``."""
        found = parse(url)
        self.keep_secret(found.secrets)
        return found

    def keep_secret(self, values: Iterable[str]) -> None:
        self.secrets.extend(value for value in values if value and value not in self.secrets)

    def scrub(self, text: str) -> str:
        """The text without the secrets of this invocation and without what looks like one."""
        from runner.scrub import MARKER, Scrubber  # noqa: PLC0415 - the runner takes a second to import

        text, _ = Scrubber(self.secrets).scrub_text(text)
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_REMOVED:
                text = text.replace(secret, MARKER.decode())
        return text


def session(ctx: click.Context) -> Session:
    """This invocation's session; a fresh one where a command is used without the program's entry."""
    found = ctx.find_object(Session)
    if found is None:
        found = ctx.find_root().obj = Session()
    return found


def read_env_file(path: Path) -> dict[str, str]:
    """``NAME=value`` lines: comments, ``export`` and one pair of quotes round a value are understood.

    Nothing is expanded. Raises ``ValueError`` naming the line.
    """
    values: dict[str, str] = {}
    with path.open("rb") as file:
        data = file.read(_LONGEST_ENV_FILE + 1)
    if len(data) > _LONGEST_ENV_FILE:
        raise ValueError(f"longer than {_LONGEST_ENV_FILE} bytes")
    for number, line in enumerate(data.decode("utf-8-sig").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.removeprefix("export ").partition("=")
        name = name.strip()
        if not equals or not _NAME.match(name):
            raise ValueError(f"line {number}: expected NAME=value")
        values[name] = _unquoted(value.strip())
    return values


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value.split(" #", 1)[0].rstrip()


def readable_by_others(path: Path) -> bool:
    """May anyone but the owner read the file? False where the system has no such notion."""
    return os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
