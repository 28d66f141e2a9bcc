"""What each form of record says of an incident. Pure: a record in, a draft of its request out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from ledger.events import ID_PATTERN
from runner.leak_names import label_name
from runner.prepare_fields import FACETS, IDS_AND_TEXTS, find, is_within, look_up, without
from runner.prepare_sources import Record
from runner.strict_json import StrictJsonError, loads

_ID: Final = re.compile(ID_PATTERN)
_NOT_ID: Final = re.compile(r"[^A-Za-z0-9._:@-]+")
_NOT_SLUG: Final = re.compile(r"[^a-z0-9]+")
_TEMPLATE: Final = re.compile(r"\s*\{[{%#]")
"""How templates begin (Prometheus, Jinja, Handlebars). No JSON does, nor does a broken document by accident."""

_NEVER: Final = "0001-01-01T00:00:00Z"
"""How Alertmanager writes a time that has not come."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A record understood, before its ids are made unique and its prompts chosen.

    ``id_is_given``: the id is the source's own, so that it must not come twice. ``incident`` tells one
    incident from another where the source repeats itself: two notifications of one have the same.
    ``others``: members of the request that the record gives, by name.
    """

    incident_id: Any
    context: Mapping[str, Any]
    source: Mapping[str, Any]
    facets: Mapping[str, Any]
    incident: str | None = None
    id_is_given: bool = False
    others: Mapping[str, str] = field(default_factory=dict)


class Missing(Exception):
    """A record lacks what it must have."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field, self.message = field, message


def draft_of(
    record: Record, members: Mapping[str, Any], mapping: Mapping[str, str], constants: Mapping[str, str]
) -> Draft:
    """What a record, its labels taken out (``members``), says of an incident. Raises ``Missing``.

    ``mapping`` says where a field comes from, ``constants`` what it is where the record does not say it.
    """
    if record.format == "prometheus":
        draft = _rule(members)
    elif record.format == "alertmanager":
        draft = _alert(members, split_labels(record.around, ())[0])
    else:
        draft = _generic(members, mapping)
    return _overlaid(draft, members, mapping, constants)


def split_labels(members: Mapping[str, Any], label_fields: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``(the rest, labels by name)``: members in ``label_fields`` or named like a label, at any depth.

    A label's name is the one in ``label_fields`` (a dotted path or a JSON Pointer), else its dotted path.
    """
    labels: dict[str, Any] = {}
    rest = _without_labels(members, frozenset(label_fields), "", "", labels)
    return rest, labels


def _without_labels(value: Any, named: frozenset[str], path: str, pointer: str, labels: dict[str, Any]) -> Any:
    if isinstance(value, Mapping):
        rest = {}
        for key, member in value.items():
            dotted = f"{path}.{key}" if path else key
            pointed = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if pointed in named or dotted in named or label_name(key) is not None:
                labels[pointed if pointed in named else dotted] = member
            else:
                rest[key] = _without_labels(member, named, dotted, pointed, labels)
        return rest
    if isinstance(value, list):
        return [_without_labels(one, named, f"{path}[{n}]", f"{pointer}/{n}", labels) for n, one in enumerate(value)]
    return value


# --- ids -----------------------------------------------------------------------------------


def as_id(text: str) -> str:
    """``text`` where it is an id; else a readable one made of it, with a digest that keeps it apart."""
    if _ID.match(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    words = _NOT_ID.sub("-", text).strip("-._:@")[:100].rstrip("-._:@")
    return f"{words}-{digest}" if words else f"incident-{digest}"


def as_facet(value: str | int) -> str:
    """A facet's name or value as an id: ``-`` for other characters; empty where nothing is left."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _NOT_ID.sub("-", str(value)).strip("-._:@")[:128]


def _slug(*words: Any) -> str:
    return "-".join(filter(None, (_NOT_SLUG.sub("-", str(word).lower()).strip("-")[:60] for word in words if word)))


def _digest(*parts: Any) -> str:
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:10]


# --- the forms -----------------------------------------------------------------------------


def _rule(rule: Mapping[str, Any]) -> Draft:
    """An alert rule (Prometheus): what fires, and why."""
    name = rule.get("alertname") or rule.get("alert")
    if not isinstance(name, str):
        raise Missing("alertname", "is missing, or no text")
    labels = _labels(rule)
    service = rule.get("service") or labels.get("service")
    return Draft(
        incident_id=_slug(service, name) or f"rule-{_digest(name)}",
        context={**rule, "status": "firing"},
        source={},
        facets={facet: rule.get(facet) or labels.get(facet) for facet in FACETS},
    )


def _alert(alert: Mapping[str, Any], around: Mapping[str, Any]) -> Draft:
    """One alert of a notification. That it ended, and when, is known only later: it stays out of the context."""
    labels = _labels(alert)
    if not labels:
        raise Missing("labels", "is missing, or no object with members")
    name = labels.get("alertname") or "alert"
    started = alert.get("startsAt")
    which = _digest(labels, started)
    ended = alert.get("endsAt")
    return Draft(
        incident_id=f"{_slug(name) or 'alert'}-{which}",
        context={
            "alertname": labels.get("alertname"),
            "status": "firing",
            "labels": labels,
            "annotations": alert.get("annotations") or None,
            "startsAt": started,
            "groupLabels": around.get("groupLabels") or None,
        },
        source={
            "status": alert.get("status"),
            "endsAt": None if ended == _NEVER else ended,
            "fingerprint": alert.get("fingerprint"),
            "generatorURL": alert.get("generatorURL") or None,
            **{key: around.get(key) or None for key in ("receiver", "externalURL", "groupKey")},
        },
        facets={facet: labels.get(facet) for facet in FACETS},
        incident=which,
    )


def _generic(members: Mapping[str, Any], mapping: Mapping[str, str]) -> Draft:
    """A record of any form: all of it is context but ids, prompts and where it came from, unless some is mapped."""
    elsewhere = ["incident_id"]
    elsewhere += [column for name, column in mapping.items() if name in IDS_AND_TEXTS or name.startswith("source.")]
    mapped = any(is_within("context", name) for name in mapping)
    return Draft(
        incident_id=members.get("incident_id"),
        context={} if mapped else without(members, [find(members, column) for column in elsewhere]),
        source={},
        facets={facet: members.get(facet) for facet in FACETS},
        id_is_given=True,
    )


def _overlaid(
    draft: Draft, members: Mapping[str, Any], mapping: Mapping[str, str], constants: Mapping[str, str]
) -> Draft:
    """The draft with what the caller maps, or sets, in the place of what the form says."""
    found = {name: look_up(members, column) for name, column in mapping.items()}
    values = {**found, **{name: text for name, text in constants.items() if found.get(name) is None}}
    context = (
        _as_context(mapping.get("context", "context"), values["context"]) if "context" in values else draft.context
    )
    incident_id = values.get("incident_id", draft.incident_id)
    if not _is_text(incident_id):
        column = mapping.get("incident_id")
        missing = "is missing, or neither text nor a whole number"
        raise Missing(column or "incident_id", missing if column else f"{missing}; map one: incident_id=COLUMN")
    for name in IDS_AND_TEXTS:
        if values.get(name) is not None and not _is_text(values[name]):
            raise Missing(mapping.get(name, name), "is neither text nor a whole number")
    given = {name: str(values[name]) for name in IDS_AND_TEXTS[1:] if values.get(name) is not None}
    facets = _named(values, "facets") | {name: values[name] for name in FACETS if name in values}
    return replace(
        draft,
        incident_id=str(incident_id),
        context={**context, **_named(values, "context")},
        source={**draft.source, **_named(values, "source")},
        # What was asked for comes first: a request holds only so many.
        facets=facets | {name: value for name, value in draft.facets.items() if name not in facets},
        incident=None if "incident_id" in mapping else draft.incident,
        id_is_given=draft.id_is_given or "incident_id" in mapping,
        others=given,
    )


def _named(values: Mapping[str, Any], group: str) -> dict[str, Any]:
    """The values of ``group.NAME``, by name."""
    return {name[len(group) + 1 :]: value for name, value in values.items() if name.startswith(f"{group}.")}


def _is_text(value: Any) -> bool:
    return (isinstance(value, str) and value != "") or type(value) is int


def _as_context(column: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, str) and value.lstrip().startswith("{") and not _TEMPLATE.match(value):
        try:
            value = loads(value)
        except StrictJsonError as error:
            as_text = "where it is text, --map context.NAME=COLUMN takes it as it is"
            raise Missing(column, f"begins like JSON and is none that we accept: {error.message}; {as_text}") from None
    if value is None:
        raise Missing(column, "is missing")
    return value if isinstance(value, dict) else {column.rpartition(".")[2]: value}


def _labels(record: Mapping[str, Any]) -> Mapping[str, Any]:
    labels = record.get("labels")
    return labels if isinstance(labels, dict) else {}


def present(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are there: what is unknown is left out, never written as null."""
    return {key: value for key, value in members.items() if value is not None}
