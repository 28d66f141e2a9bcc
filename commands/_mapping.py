"""What ``prepare`` is told of a record's fields: by options, and by a TOML file of many."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from commands._failures import Refused
from commands._in_files import toml_in
from commands._types import is_utf8

_TABLES: Final = ("map", "facets", "set")


@dataclass
class Fields:
    """Where fields come from, their constants, which columns are labels, the files that said so."""

    mapping: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def fields_from(
    mapping: Sequence[str],
    constants: Sequence[str],
    facets: Sequence[str],
    labels: Sequence[str],
    policy_id: str | None,
) -> Fields:
    """The fields that the options give; an option comes before a file. Raises ``Refused`` naming the option."""
    fields = Fields(
        _once("--map", [_pair("--map", text, "FIELD=COLUMN") for text in mapping if "=" in text]),
        _once("--set", [_pair("--set", text, "FIELD=TEXT") for text in constants]),
        list(labels),
    )
    given = [_pair("--facet", text, "NAME=COLUMN") for text in facets]
    _add(fields.mapping, [(f"facets.{name}", column) for name, column in given], "--facet")
    if policy_id is not None:
        _add(fields.constants, [("policy_id", policy_id)], "--policy-id")
    for name in mapping:
        if "=" not in name:
            _take_file(fields, name)
    return fields


def _take_file(fields: Fields, name: str) -> None:
    document = _read(name)
    unknown = sorted(document.keys() - {*_TABLES, "labels"})
    if unknown:
        raise Refused(f"{name}: nothing is called {unknown[0]!r} there; there are map, facets, set and labels")
    tables = {table: document.get(table, {}) for table in _TABLES}
    for table, members in tables.items():
        if not isinstance(members, dict):
            raise Refused(f"{name}: {table} is no table")
    labels = document.get("labels", [])
    if not isinstance(labels, list) or not all(isinstance(one, str) and one for one in labels):
        raise Refused(f"{name}: labels is no list of columns")
    facets = {f"facets.{facet}": column for facet, column in _leaves(name, "facets", tables["facets"])}
    for said, text in [*_leaves(name, "map", tables["map"]), *facets.items()]:
        fields.mapping.setdefault(said, text)
    for said, text in _leaves(name, "set", tables["set"]):
        fields.constants.setdefault(said, text)
    fields.labels += [one for one in labels if one not in fields.labels]
    fields.files.append(name)


def _read(name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(toml_in(name))
    except FileNotFoundError:
        raise Refused(f"--map: expected FIELD=COLUMN or a TOML file; there is no file {name!r}") from None
    except UnicodeDecodeError:
        raise Refused(f"{name}: not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Refused(f"{name}: not TOML: {error}") from None


def _leaves(file: str, where: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """``name -> text`` of a table; ``context.title = "x"`` is a table in a table, and the same as in quotes."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in _leaves(file, f"{where}.{name}", value))
        elif isinstance(value, str) and value:
            yield name, value
        else:
            raise Refused(f"{file}: {where}.{name} is not a text in quotes")


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value or not is_utf8(text):
        raise Refused(f"{option}: expected {form}, not {text!r}")
    return name, value


def _once(option: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    _add(found, pairs, option)
    return found


def _add(found: dict[str, str], pairs: Iterable[tuple[str, str]], option: str) -> None:
    for name, value in pairs:
        if name in found:
            raise Refused(f"{option}: {name} is given twice")
        found[name] = value
