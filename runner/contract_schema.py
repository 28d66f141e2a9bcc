"""What a response contract's JSON Schema (draft 2020-12) may be, checked before it is compiled. Pure.

A contract is judged against hostile answers, so what it costs to judge is bounded here: references
stay in the document and form no loop, and with each of them written out the schema has at most
``MAX_SUBSCHEMAS`` subschemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
MAX_SUBSCHEMAS: Final = 2000
MAX_FIELDS: Final = 128
FIELD_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")

Schema = Mapping[str, Any]

_ONE: Final = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LIST: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAP: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_MAX_CHAIN: Final = 200
"""Subschemas and references that may follow one inside the other."""


class ContractError(ValueError):
    """No contract. ``field`` is the dotted path inside the schema (``""`` for all of it)."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field, self.message = field, message


def dotted(path: tuple[str | int, ...]) -> str:
    """A path for people: members joined by dots, indexes as ``[n]``, odd names as ``*``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            # A keyword such as $ref is ours to name; any other name is shown only where it is plain.
            shown = step if FIELD_NAME.match(step.removeprefix("$")) else "*"
            text += f".{shown}" if text else shown
    return text


def check_schema(schema: Any) -> None:
    """Raise ``ContractError`` unless the schema keeps to the rules above. Keywords' values are left
    to the compiler."""
    if not isinstance(schema, dict):
        raise ContractError("", "must be an object (a JSON Schema)")
    draft = schema.get("$schema", DRAFT)
    if not isinstance(draft, str) or draft.rstrip("#") != DRAFT:
        raise ContractError("$schema", "only JSON Schema draft 2020-12 is understood")
    _Unfolding(schema).size(schema, (), 0)


def subschemas(schema: Schema) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The schemas that stand in a schema, with their paths. Not those that it refers to."""
    for keyword in _ONE:
        if keyword in schema:
            yield (keyword,), schema[keyword]
    for keyword in _LIST:
        held = schema.get(keyword)
        if isinstance(held, list):
            yield from (((keyword, index), item) for index, item in enumerate(held))
    for keyword in _MAP:
        held = schema.get(keyword)
        if isinstance(held, dict):
            yield from (((keyword, name), item) for name, item in held.items())


def resolve(root: Schema, reference: Any) -> Any:
    """What a reference into the same document points to: ``#``, a JSON Pointer (RFC 6901) or an anchor.

    Raises ``LookupError``.
    """
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise LookupError("a reference must stay inside the contract (begin with #)")
    fragment = unquote(reference[1:])
    if fragment and not fragment.startswith("/"):
        return _anchors(root)[fragment]
    target: Any = root
    for token in fragment.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and name.isascii() and name.isdigit():
            target = target[int(name)] if len(name) < 6 else target[len(target)]
        elif isinstance(target, dict):
            target = target[name]
        else:
            raise LookupError("the reference points at nothing")
    return target


def _anchors(root: Schema) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    todo: list[Any] = [root]
    while todo:
        schema = todo.pop()
        if isinstance(schema, dict):
            name = schema.get("$anchor")
            if isinstance(name, str):
                found[name] = schema
            todo.extend(held for _, held in subschemas(schema))
    return found


class _Unfolding:
    """Counts a schema's subschemas as if each reference were written out."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def size(self, schema: Any, path: tuple[str | int, ...], chain: int) -> int:
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        if key in self._open:
            raise ContractError(dotted(path), "references must not form a loop")
        if chain > _MAX_CHAIN:
            raise ContractError(dotted(path), "too deep")
        if key not in self._sizes:
            self._open.add(key)
            self._sizes[key] = self._sum(schema, path, chain)
            self._open.discard(key)
        return self._sizes[key]

    def _sum(self, schema: Schema, path: tuple[str | int, ...], chain: int) -> int:
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                raise ContractError(dotted((*path, keyword)), f"{keyword} is not supported, $ref is")
        if path and "$id" in schema:
            raise ContractError(dotted((*path, "$id")), "only the contract as a whole may have an $id")
        total = 1
        if "$ref" in schema:
            place = (*path, "$ref")
            total += self.size(self._target(schema["$ref"], place), place, chain + 1)
        for step, held in subschemas(schema):
            total += self.size(held, (*path, *step), chain + 1)
        if total > MAX_SUBSCHEMAS:
            raise ContractError(dotted(path), f"more than {MAX_SUBSCHEMAS} subschemas with references written out")
        return total

    def _target(self, reference: Any, place: tuple[str | int, ...]) -> Any:
        try:
            return resolve(self._root, reference)
        except (LookupError, ValueError) as error:
            known = error.args[0] if type(error) is LookupError else "the reference points at nothing"
            raise ContractError(dotted(place), str(known)) from None


# --- the fields that a contract names ------------------------------------------------------


def named_fields(root: Schema) -> tuple[dict[str, list[Any]], frozenset[str]]:
    """``(fields, required)``: each member that the contract names, with the schemas given for it,
    in the order in which they stand; and those that are required whatever the rest."""
    fields: dict[str, list[Any]] = {}
    required: set[str] = set()
    for schema, certain in _in_place(root, root, certain=True):
        names = _names(schema.get("required"))
        properties = schema.get("properties")
        if isinstance(properties, dict):
            for name, held in properties.items():
                fields.setdefault(name, []).append(held)
        for name in names:
            fields.setdefault(name, [])
        for dependent in _values(schema.get("dependentRequired")):
            for name in _names(dependent):
                fields.setdefault(name, [])
        if certain:
            required.update(names)
    return fields, frozenset(required)


def _in_place(root: Schema, schema: Any, *, certain: bool) -> Iterator[tuple[Schema, bool]]:
    """The schemas that apply to the answer itself; the flag is False where only under a condition."""
    if not isinstance(schema, dict):
        return
    yield schema, certain
    if "$ref" in schema:
        yield from _in_place(root, resolve(root, schema["$ref"]), certain=certain)
    for item in _items(schema.get("allOf")):
        yield from _in_place(root, item, certain=certain)
    for item in (*_items(schema.get("anyOf")), *_items(schema.get("oneOf"))):
        yield from _in_place(root, item, certain=False)
    for keyword in ("if", "then", "else"):
        yield from _in_place(root, schema.get(keyword), certain=False)
    for item in _values(schema.get("dependentSchemas")):
        yield from _in_place(root, item, certain=False)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _names(value: Any) -> list[str]:
    return [name for name in _items(value) if isinstance(name, str)]


def closed(schema: Any) -> Any:
    """The schema narrowed for servers that enforce one strictly: an object with named members holds
    them all and no others. Whatever keeps the narrowed schema keeps the given one."""
    if not isinstance(schema, dict):
        return schema
    narrowed = dict(schema)
    if "items" in schema:
        narrowed["items"] = closed(schema["items"])
    for keyword in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(schema.get(keyword), list):
            narrowed[keyword] = [closed(item) for item in schema[keyword]]
    for keyword in ("properties", "$defs", "definitions"):
        if isinstance(schema.get(keyword), dict):
            narrowed[keyword] = {name: closed(held) for name, held in schema[keyword].items()}
    if "properties" in narrowed:
        narrowed |= {"required": list(narrowed["properties"]), "additionalProperties": False}
    return narrowed


# --- in words, for prompts -----------------------------------------------------------------

_TYPES: Final = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "array": "list",
    "object": "object",
}
_LIMITS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


def resolved(root: Schema, schema: Any) -> Schema:
    """The schema behind a chain of references; ``{}`` where it is no object."""
    while isinstance(schema, dict) and "$ref" in schema:
        schema = resolve(root, schema["$ref"])
    return schema if isinstance(schema, dict) else {}


def listed_values(root: Schema, schema: Any) -> list[Any] | None:
    """The values that ``enum`` or ``const`` gives; None where neither does."""
    plain = resolved(root, schema)
    if "const" in plain:
        return [plain["const"]]
    values = plain.get("enum")
    return values if isinstance(values, list) else None


def type_words(root: Schema, schema: Any) -> str:
    """A schema's type and limits in a few words."""
    plain = resolved(root, schema)
    types = plain.get("type")
    names = types if isinstance(types, list) else [types]
    words = " or ".join(_TYPES[name] for name in names if name in _TYPES) or "any JSON value"
    if names == ["array"] and "items" in plain:
        words = f"list, each item: {type_words(root, plain['items'])}"
    limits = [text.format(plain[name]) for name, text in _LIMITS.items() if isinstance(plain.get(name), (int, float))]
    if isinstance(plain.get("pattern"), str):
        limits.append(f"matching the pattern {plain['pattern']}")
    return ", ".join([words, *limits])
