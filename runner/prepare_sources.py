"""What comes of a file that ``prepare`` reads: records, one a thing that may become a replay request.

A record that cannot be understood is a ``Fault`` among the records, so that every one can be named; what
makes the rest of a file unreadable is a ``PrepareError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Format = Literal["alertmanager", "prometheus", "jsonl", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("alertmanager", "prometheus", "jsonl", "csv")

MAX_DOCUMENT_BYTES: Final = 64 * 2**20
"""A JSON document that spreads over lines is read as a whole, up to this."""

SKIPPABLE: Final = {
    "alerts that Alertmanager left out of its notifications": "alert that Alertmanager left out of its notifications",
    "objects of other kinds": "object of another kind",
    "recording rules": "recording rule",
}
"""What is no incident and may be passed over: what many of it are called, and what one is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A record that cannot become a request: ``invalid``, or it would leak (``leak``).

    ``place`` is ``line 3`` or ``line 3, alerts[0]``; None where the file as a whole is meant. The text
    names file, record and field, never a value.
    """

    message: str
    file: str
    place: str | None = None
    field: str | None = None
    kind: Literal["invalid", "leak"] = "invalid"

    def __str__(self) -> str:
        where = [self.file]
        where += [self.place] if self.place else []
        where += [f"field {self.field}"] if self.field else []
        return f"{', '.join(where)}: {self.message}"


class PrepareError(Exception):
    """Nothing is made of this file. ``leaks``: because a request of it would leak."""

    def __init__(self, fault: Fault, *, leaks: bool = False) -> None:
        super().__init__(str(fault))
        self.fault, self.leaks = fault, leaks
        self.message, self.file, self.place, self.field = fault.message, fault.file, fault.place, fault.field


@dataclass(frozen=True, slots=True)
class Record:
    """One alert, rule or row. ``around`` is what is said once for a whole notification."""

    format: Format
    place: str
    members: Mapping[str, Any]
    around: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in the file that is no incident, and is told as a number: so many, of what (of ``SKIPPABLE``)."""

    count: int
    what: str


Found = Record | Fault | Skipped


def counted(number: int, one: str, many: str | None = None) -> str:
    """So many of what, in words. ``many``: what more than one are called, where that is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
