"""Where a ledger is: what a URL names, and how to speak of it without its password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote

from ledger.store.errors import BadLedgerUrl

Dialect = Literal["sqlite", "postgresql"]

ACCEPTED: Final = "sqlite:///PATH, sqlite:// (in memory) or postgresql://USER@HOST:PORT/DATABASE"
_POSTGRES: Final = re.compile(r"(?:postgresql|postgres|postgresql\+psycopg)://(.*)\Z", re.DOTALL)
_PASSWORD_OPTION: Final = re.compile(r"((?:^|&)(?:ssl)?password=)([^&]*)")
_HIDDEN: Final = r"\1***"


@dataclass(frozen=True, slots=True)
class Place:
    """A parsed ledger URL.

    ``path`` is the SQLite file (None: in memory, or Postgres). ``url`` is for the driver and may
    hold a password; ``shown`` is for people and never does.
    """

    dialect: Dialect
    url: str
    path: Path | None
    shown: str
    secrets: tuple[str, ...] = ()

    def scrub(self, text: str) -> str:
        """Take the password, in any spelling it was given in, and line breaks out of a message."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())

    def __repr__(self) -> str:
        return f"Place({self.shown})"


def parse(url: str) -> Place:
    """Read a ledger URL. Raises ``BadLedgerUrl``, naming what is accepted, for anything else."""
    if url == "sqlite://":
        return Place("sqlite", url, None, "sqlite:// (in memory)")
    if url.startswith("sqlite:///"):
        return _sqlite(url)
    found = _POSTGRES.match(url)
    if found is None:
        # The text may be a mistyped URL with a password in it, so it is not repeated.
        scheme = url.split("://", maxsplit=1)[0] if "://" in url else ""
        named = f" (it begins with {scheme}://)" if re.fullmatch(r"[a-z0-9+]{1,30}", scheme) else ""
        raise BadLedgerUrl(f"not a ledger's URL{named}: give {ACCEPTED}")
    return _postgres(found[1])


def _sqlite(url: str) -> Place:
    name = url.removeprefix("sqlite:///")
    if name in {"", ":memory:"}:
        raise BadLedgerUrl(f"the URL {url} names no file: give {ACCEPTED}")
    if "\0" in name or "?" in name:
        char = "'?'" if "?" in name else "a null character"
        raise BadLedgerUrl(f"a ledger's URL takes no options, and its file's name may not hold {char}: give {ACCEPTED}")
    return Place("sqlite", url, Path(name), url)


def _postgres(rest: str) -> Place:
    base, mark, options = rest.partition("?")
    login, at, server = base.rpartition("@")
    if "@" in login or "/" in login:
        raise BadLedgerUrl("in a URL's user and password, write @ as %40 and / as %2F")
    user, colon, password = login.partition(":")
    secrets = {password} if colon else set()
    secrets |= {found[2] for found in _PASSWORD_OPTION.finditer(options)}
    secrets |= {unquote(secret) for secret in secrets}
    return Place(
        "postgresql",
        f"postgresql+psycopg://{rest}",
        None,
        f"postgresql://{user}{at}{server}{mark}{_PASSWORD_OPTION.sub(_HIDDEN, options)}",
        tuple(sorted((secret for secret in secrets if len(secret) > 3), key=len, reverse=True)),
    )
