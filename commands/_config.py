"""``--config FILE``: options kept in TOML, below those typed, the environment and ``--env-file``.

At the top stand the options that every command has, ``ledger``, ``signer-dir`` and ``actor``. The options of a command
stand in a table of its name (``[run]``, ``[db.upgrade]``). A name that a command does not know is refused: a setting
that is silently not in force is worse than none. No key can stand there, as no option takes one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import click

from commands._failures import Refused
from commands._in_files import toml_in

SHARED: Final = ("ledger", "signer-dir", "actor")
_NEVER: Final = frozenset({"config", "env-file", "debug", "help", "version"})
"""Where options come from, and what is asked of one invocation alone."""


@dataclass(frozen=True)
class Config:
    """A file of options. ``document``: what it holds, the names at its top as they are typed."""

    file: str
    document: Mapping[str, Any]

    def given(self, command: Sequence[str], option: click.Option) -> Any:
        """What the file says for this option of this command, as if it had been typed; None where nothing.

        ``command`` is its path, ``("db", "upgrade")``. Raises ``Refused`` for a value of another kind.
        """
        name = option_name(option)
        if name in _NEVER or _typed_only(option):
            return None
        table, where = self._table(command), ".".join([*command, name])
        if name in table:
            return self._value(where, table[name], option)
        if name in SHARED and name in self.document:
            return self._value(name, self.document[name], option)
        return None

    def check(self, command: Sequence[str], options: Iterable[click.Option], verbs: Iterable[str]) -> None:
        """Raise ``Refused`` for a name that this command does not know. ``verbs``: all commands that there are.

        Other commands' tables are checked when those commands run.
        """
        self._refuse_unknown("", self.document.keys() - {*SHARED, *verbs}, [*SHARED, "a table for each command"])
        names = sorted({option_name(option) for option in options if not _typed_only(option)} - _NEVER)
        self._refuse_unknown(".".join([*command, ""]), self._table(command).keys() - set(names), names)

    def _refuse_unknown(self, where: str, unknown: set[str], known: Iterable[str]) -> None:
        for name in sorted(unknown):
            raise Refused(f"{self.file}: nothing can be set by {(where + name)!r}; there are {', '.join(known)}")

    def _table(self, command: Sequence[str]) -> Mapping[str, Any]:
        table: Mapping[str, Any] = self.document
        for depth, name in enumerate(command, start=1):
            inner = table.get(name, {})
            if not isinstance(inner, dict):
                raise Refused(f"{self.file}: {'.'.join(command[:depth])} is no table")
            table = _level(self.file, inner)
        return table if command else {}

    def _value(self, where: str, value: Any, option: click.Option) -> Any:
        if option.is_flag:
            if not isinstance(value, bool):
                raise Refused(f"{self.file}: {where} is neither true nor false")
            if option.is_bool_flag:
                return value
            return option.flag_value if value else None
        if option.multiple:
            return self._values(where, value)
        if isinstance(value, dict):
            return _plain(value)
        return self._text(where, value)

    def _values(self, where: str, value: Any) -> tuple[str, ...]:
        """One after another, or ``NAME = VALUE`` in a table."""
        if isinstance(value, dict):
            return tuple(f"{name}={self._text(f'{where}.{name}', text)}" for name, text in value.items())
        return tuple(self._text(where, one) for one in (value if isinstance(value, list) else [value]))

    def _text(self, where: str, value: Any) -> str:
        """A value as it would be typed; a number with the digits that it has in the file."""
        if isinstance(value, str):
            return value
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return str(value)
        raise Refused(f"{self.file}: {where} is neither text nor a number")


def read_config(file: str) -> Config:
    """The file's options. Raises ``Refused`` where it is not TOML; ``OSError`` bearing its name."""
    try:
        document = tomllib.loads(toml_in(file), parse_float=Decimal)
    except UnicodeDecodeError:
        raise Refused(f"{file}: not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Refused(f"{file}: not TOML: {error}") from None
    return Config(file, _level(file, document))


def _typed_only(option: click.Option) -> bool:
    """Is it one that confirms or sets a safeguard aside, and so has to be typed?"""
    return getattr(option, "typed_only", False)


def option_name(option: click.Option) -> str:
    """An option's name in a file: its longest one, without the hyphens before it."""
    return max(option.opts, key=len).lstrip("-")


def path_of(ctx: click.Context) -> tuple[str, ...]:
    """The command's names after the program's: ``("db", "upgrade")``."""
    names: list[str] = []
    while ctx.parent is not None:
        names.append(ctx.command.name or "")
        ctx = ctx.parent
    return tuple(reversed(names))


def _level(file: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """One table by its names as they are typed: ``base_url`` is ``base-url``."""
    made = {name.replace("_", "-"): value for name, value in table.items()}
    if len(made) < len(table):
        twice = next(name for name in table if "_" in name and name.replace("_", "-") in table)
        raise Refused(f"{file}: {twice!r} stands twice, with - and with _")
    return made


def _plain(value: Any) -> Any:
    """A table as the JSON that it would be typed as."""
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return float(value) if isinstance(value, Decimal) else value
