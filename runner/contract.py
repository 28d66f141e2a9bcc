"""The response contract, and the verdict on a reply: kept or broken. Pure.

Five fields are always required and strictly typed; nothing is coerced and nothing has a default. A
contract may add fields and narrow values by a JSON Schema; both must hold. The order of the checks is
that in which a reply loses its worth: finish reason, refusal and size, then the text, then the form,
then the fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jsonschema_rs

from runner.answer import AnswerError, read_answer
from runner.contract_schema import (
    FIELD_NAME,
    MAX_FIELDS,
    ContractError,
    check_schema,
    closed,
    dotted,
    listed_values,
    named_fields,
    resolved,
    type_words,
)
from runner.reply import Reply

__all__ = ["FIVE_FIELDS", "RISK_LEVELS", "WHOLE", "Accepted", "Broken", "Contract", "ContractError", "judge"]

RISK_LEVELS: Final = ("low", "medium", "high", "critical")
FIVE_FIELDS: Final = {
    "proposed_action": "non-empty string",
    "action_plan": "list of strings",
    "risk_level": "string",
    "requires_human_approval": "true or false",
    "blocked_by_policy": "true or false",
}
"""The contract that every answer must keep, in its order, in words."""

WHOLE: Final = "*"
"""Stands among the fields at fault for a rule about the object as a whole."""

_FIVE_TYPES: Final = {
    "proposed_action": "string",
    "action_plan": "array",
    "risk_level": "string",
    "requires_human_approval": "boolean",
    "blocked_by_policy": "boolean",
}
_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=1 << 20)
"""The engine without back-tracking: time is linear in the text."""

_MAX_INDEXES: Final = 10


@dataclass(frozen=True, slots=True)
class Accepted:
    """The contract is kept. ``output`` holds the contract's fields alone."""

    output: dict[str, Any]
    allowances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The contract is broken.

    ``code`` is the whole stable string. ``problems`` are sentences for the corrective prompt: they name
    fields, indexes and allowed values, and never quote the model.
    """

    code: str
    fields: tuple[str, ...]
    problems: tuple[str, ...]


class Contract:
    """The five fields and what a JSON Schema adds to them.

    ``fields``: the five in order, then those that the schema names, in its order. Raises
    ``ContractError`` where the schema is invalid, refers outside itself, names a field oddly, or
    leaves no value for one of the five.
    """

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        check_schema({} if schema is None else schema)
        self._root: dict[str, Any] = _with_the_five(schema or {})
        self._schemas, required = named_fields(self._root)
        _check_names(self._schemas)
        self.fields: tuple[str, ...] = (*FIVE_FIELDS, *(name for name in self._schemas if name not in FIVE_FIELDS))
        self._required = tuple(name for name in self.fields if name in required or name in FIVE_FIELDS)
        self._compiled = _compiled(self._root) if schema else None
        self._allowed = {name: self._listed(name) for name in self.fields}
        self._check_satisfiable()

    def allowed(self, field: str) -> tuple[Any, ...] | None:
        """The values that a field may have, where they can be listed."""
        return self._allowed[field]

    def type_of(self, field: str) -> str:
        """A field's type in words."""
        if field in FIVE_FIELDS:
            return FIVE_FIELDS[field]
        return type_words(self._root, self._schema(field))

    def is_required(self, field: str) -> bool:
        return field in self._required

    def described(self, field: str) -> str:
        """What a field must be, in words: its type, or the values it may have."""
        values = self._allowed[field]
        if values is None:
            return self.type_of(field)
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        return texts[0] if len(texts) == 1 else "one of " + ", ".join(texts)

    def missing(self, answer: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(name for name in self._required if name not in answer)

    def invalid(self, answer: Mapping[str, Any]) -> dict[str, str]:
        """Field -> what is wrong with it, in the contract's order; ``*`` where it is the whole.

        Asked of an answer without missing fields. Only yes or no is asked of the schema: an error that
        holds pieces of a hostile answer could be larger than the answer.
        """
        wrong: dict[str, str] = {}
        for name in self.fields:
            if name in answer:
                problem = self._problem(name, answer[name])
                if problem is not None:
                    wrong[name] = problem
        if not wrong and self._compiled is not None and not self._compiled[0].is_valid(answer):
            wrong[WHOLE] = "The object as a whole breaks a rule of the contract (which fields may stand together)."
        return wrong

    @cached_property
    def strict_schema(self) -> dict[str, Any]:
        """A schema for servers that enforce one: every field required, no others, at every level."""
        properties = {}
        for name in self.fields:
            held = self._schema(name)
            own: dict[str, Any] = {"type": _FIVE_TYPES[name]} if name in FIVE_FIELDS else {}
            if name == "action_plan":
                own["items"] = {"type": "string"}
            if isinstance(held, dict):
                own |= closed(held)
            if name == "risk_level":
                own["enum"] = list(self._allowed[name] or ())
            properties[name] = own
        strict: dict[str, Any] = {"type": "object", "properties": properties}
        strict |= {"required": list(self.fields), "additionalProperties": False}
        for keyword in ("$defs", "definitions"):
            if isinstance(self._root.get(keyword), dict):
                strict[keyword] = {name: closed(held) for name, held in self._root[keyword].items()}
        return strict

    def _schema(self, field: str) -> Any:
        """The first schema given for a field that says something."""
        return next((held for held in self._schemas.get(field, ()) if held is not True), True)

    def _problem(self, name: str, value: Any) -> str | None:
        check = _CHECKS.get(name)
        where = check(value) if check else None
        if where is None and self._keeps_schema(name, value):
            return None
        return f"`{name}` must be: {self.described(name)}{where or ''}."

    def _keeps_schema(self, name: str, value: Any) -> bool:
        part = None if self._compiled is None else self._compiled[1].get(f"#/properties/{name}")
        return part is None or part.is_valid(value)

    def _listed(self, name: str) -> tuple[Any, ...] | None:
        if name == "risk_level":
            values: list[Any] | None = list(RISK_LEVELS)
        else:
            values = listed_values(self._root, self._schema(name))
            if values is None and _FIVE_TYPES.get(name) == "boolean":
                values = [True, False]
        if values is None:
            return None
        check = _CHECKS.get(name)
        kept = [one for one in values if (check is None or check(one) is None) and self._keeps_schema(name, one)]
        if _FIVE_TYPES.get(name) == "boolean" and len(kept) == 2:
            return None
        return tuple(kept)

    def _check_satisfiable(self) -> None:
        for name, kind in _FIVE_TYPES.items():
            held = self._schema(name)
            if held is False or self._allowed[name] == () or kind not in _types(resolved(self._root, held), kind):
                raise ContractError(f"properties.{name}", f"leaves no {FIVE_FIELDS[name]} that `{name}` may have")
        if "object" not in _types(self._root, "object"):
            raise ContractError("type", "an answer is an object")


def _types(schema: Mapping[str, Any], default: str) -> list[Any]:
    types = schema.get("type", default)
    return types if isinstance(types, list) else [types]


def _with_the_five(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The five are always named, so that ``additionalProperties`` does not turn against them."""
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise ContractError("properties", "must be an object")
    return {**schema, "properties": {**dict.fromkeys(FIVE_FIELDS, True), **properties}}


def _check_names(names: Mapping[str, Any]) -> None:
    if not all(FIELD_NAME.match(name) for name in names):
        raise ContractError("properties", "a field's name must match [A-Za-z0-9_.-]{1,64}")
    if len(names) > MAX_FIELDS:
        raise ContractError("properties", f"more than {MAX_FIELDS} fields")


def _compiled(root: dict[str, Any]) -> tuple[jsonschema_rs.Validator, jsonschema_rs.ValidatorMap]:
    """A validator of the whole, and one of each subschema by its JSON Pointer."""
    try:
        whole = jsonschema_rs.Draft202012Validator(root, pattern_options=_PATTERNS, offline=True)
        return whole, jsonschema_rs.validator_map_for(root, pattern_options=_PATTERNS, offline=True)
    except jsonschema_rs.ValidationError as error:
        place = dotted(tuple(error.instance_path))
        pattern = error.kind.name == "format"
        reason = "is no regular expression that runs in linear time" if pattern else "is not valid in a JSON Schema"
        raise ContractError(place, reason) from None
    except ValueError:
        raise ContractError("", "is not a valid JSON Schema") from None


# --- the five fields -----------------------------------------------------------------------
# Each check gives None where the value is right, else what to add to the sentence about it.


def _is_text(value: Any) -> str | None:
    """White space alone is no action."""
    return None if isinstance(value, str) and value.strip() else ""


def _is_list_of_strings(value: Any) -> str | None:
    if not isinstance(value, list):
        return ""
    wrong = [str(index) for index, item in enumerate(value) if not isinstance(item, str)]
    if not wrong:
        return None
    more = f" and {len(wrong) - _MAX_INDEXES} more" if len(wrong) > _MAX_INDEXES else ""
    return f"; not a string at index {', '.join(wrong[:_MAX_INDEXES])}{more}"


def _is_risk_level(value: Any) -> str | None:
    return None if isinstance(value, str) and value in RISK_LEVELS else ""


def _is_bool(value: Any) -> str | None:
    return None if isinstance(value, bool) else ""


_CHECKS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "proposed_action": _is_text,
    "action_plan": _is_list_of_strings,
    "risk_level": _is_risk_level,
    "requires_human_approval": _is_bool,
    "blocked_by_policy": _is_bool,
}


# --- the verdict ---------------------------------------------------------------------------


def judge(reply: Reply, contract: Contract) -> Accepted | Broken:
    """Does the reply keep the contract? Total: any reply gives one or the other."""
    lost = _disqualified(reply)
    if lost is not None:
        return lost
    try:
        answer, allowances = read_answer(reply.content or "")
    except AnswerError as error:
        problem = error.problem
        if error.key in contract.fields:
            problem += f" (`{error.key}`)"
        return _broken(error.code, problem)
    if not isinstance(answer, dict):
        return _broken("not_object", "The answer was JSON, but not one JSON object.")
    missing = contract.missing(answer)
    if missing:
        problems = [f"`{name}` is missing; it must be: {contract.described(name)}." for name in missing]
        return _broken("missing_fields", *problems, fields=missing)
    invalid = contract.invalid(answer)
    if invalid:
        return _broken("invalid_fields", *invalid.values(), fields=tuple(invalid))
    output = {name: answer[name] for name in contract.fields if name in answer}
    return Accepted(output, ("text_parts", *allowances) if reply.parts_joined else allowances)


def _disqualified(reply: Reply) -> Broken | None:
    """Finish reason, refusal and size, before a word of the answer is read."""
    if reply.stop_reason == "length":
        return _broken("truncated", "The answer was cut off before its end; a shorter one is needed.")
    if reply.stop_reason == "content_filter" or reply.refused:
        return _broken("refused", "The answer was a refusal.")
    if reply.oversized:
        return _broken("too_large", "The answer was far too long.")
    if reply.stop_reason in ("tool_calls", "function_call"):
        return _broken("empty", "The answer was a tool call; it must be the message's text.")
    if not (reply.content or "").strip():
        called = " but for a tool call" if reply.tool_call else ""
        return _broken("empty", f"The answer was empty{called}.")
    if reply.choices > 1:
        return _broken("ambiguous", "More than one answer was given.")
    return None


def _broken(code: str, *problems: str, fields: tuple[str, ...] = ()) -> Broken:
    named = f":{','.join(fields)}" if fields else ""
    return Broken(f"model_output_{code}{named}", fields, tuple(problems))
