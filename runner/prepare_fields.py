"""Which field of a request comes from where: what ``--map``, ``--set`` and a file of both may say. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

IDS_AND_TEXTS: Final = ("incident_id", "request_id", "policy_id", "system_prompt", "user_prompt")
"""Members of a request that a column may give, as they are."""

FACETS: Final = ("severity", "service", "team")
"""Facets taken from members, labels or columns of these names."""

GROUPS: Final = ("context", "facets", "source", "labels")
"""A field may be ``GROUP.NAME`` of one of these."""

_FIELDS: Final = (*IDS_AND_TEXTS, "context", *FACETS)
_NOT_A_POINTER: Final = re.compile(r"~(?![01])")
_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")

Way = tuple[str | int, ...]
"""Keys and indexes from a record to a value in it."""


def is_field(name: str) -> bool:
    """Whether there is such a field to map to."""
    group, dot, rest = name.partition(".")
    return name in _FIELDS or (group in GROUPS and dot == "." and rest != "")


def known_fields() -> str:
    """The fields that there are, for a message."""
    return ", ".join([*_FIELDS, *(f"{group}.NAME" for group in GROUPS)])


def is_within(group: str, name: str) -> bool:
    """Whether a field is one of ``group.NAME``."""
    return name.startswith(f"{group}.")


def is_pointer(column: str) -> bool:
    """Whether a column that begins like a JSON Pointer (RFC 6901) is one; True for every other column."""
    return not column.startswith("/") or _NOT_A_POINTER.search(column) is None


def find(members: Mapping[str, Any], column: str) -> Way | None:
    """The way to the member of this name, at this JSON Pointer or at this dotted path; None where there is none."""
    if column in members:
        return (column,)
    if column.startswith("/"):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in column[1:].split("/")]
    else:
        parts = column.split(".")
    way: list[str | int] = []
    value: Any = members
    for part in parts:
        step = _step(value, part)
        if step is None:
            return None
        way.append(step)
        value = value[step]
    return tuple(way)


def _step(value: Any, part: str) -> str | int | None:
    if isinstance(value, Mapping):
        return part if part in value else None
    if isinstance(value, list) and _INDEX.match(part) and int(part) < len(value):
        return int(part)
    return None


def look_up(members: Mapping[str, Any], column: str) -> Any:
    """What ``find`` finds; None where it finds nothing."""
    way = find(members, column)
    value: Any = members
    for step in way or ():
        value = value[step]
    return None if way is None else value


def without(members: Mapping[str, Any], ways: Sequence[Way | None]) -> dict[str, Any]:
    """The members without what these ways lead to. A list's element becomes null: the others keep their index."""
    rest: Any = members
    for way in ways:
        if way:
            rest = _without(rest, way)
    return dict(rest)


def _without(value: Any, way: Way) -> Any:
    step, further = way[0], way[1:]
    if isinstance(value, list):
        return [_at(one, further) if index == step else one for index, one in enumerate(value)]
    if not isinstance(value, Mapping):  # a way before this one led to what held it
        return value
    return dict(_members_without(value, step, further))


def _at(one: Any, further: Way) -> Any:
    return _without(one, further) if further else None


def _members_without(value: Mapping[str, Any], step: str | int, further: Way) -> Iterator[tuple[str, Any]]:
    for key, member in value.items():
        if key != step:
            yield key, member
        elif further:
            yield key, _without(member, further)
