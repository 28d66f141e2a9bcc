"""Old payloads read as new ones: (type, schema) -> the payload of the next schema.

Pure functions, applied at the one place where events are read. ``CHAIN`` is empty while every
type is at its first schema; a step added here is a function from the old payload to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.events import EVENT_TYPES

Upcaster = Callable[[Mapping[str, Any]], Mapping[str, Any]]

CHAIN: dict[tuple[str, int], Upcaster] = {}


def upcast(event_type: str, schema: int, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bring a payload to its type's present schema.

    Raises ``LookupError`` for a type or a schema that this version does not know.
    """
    current = EVENT_TYPES[event_type].SCHEMA
    if schema > current or schema < 1:
        raise LookupError(f"{event_type} schema {schema} is not known (present: {current})")
    for step in range(schema, current):
        payload = CHAIN[event_type, step](payload)
    return payload


def check_chain() -> None:
    """Raise ``LookupError`` unless each type has a step from every older schema."""
    for name, cls in EVENT_TYPES.items():
        for step in range(1, cls.SCHEMA):
            if (name, step) not in CHAIN:
                raise LookupError(f"no upcaster for {name} from schema {step}")
