"""Prometheus rule files (YAML): the alerts that they define.

A file holds ``groups`` of ``rules``, alone or as the ``spec`` of a ``PrometheusRule`` (or a ``List`` of those) as
Kubernetes has them. Recording rules are no incidents and are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from runner.prepare_sources import Fault, Found, PrepareError, Record, Skipped
from runner.strict_yaml import StrictYamlError, documents

MAX_RULE_FILE_BYTES: Final = 16 * 2**20
"""A rule file is decoded as a whole, up to this; far more than Prometheus itself would take kindly."""

_KINDS: Final = ("PrometheusRule", "PrometheusRuleList", "List")
_NO_RULE_FILE: Final = "no rule file: no list of groups"


def read_rules(stream: BinaryIO, file: str) -> Iterator[Found]:
    """The alerting rules of a YAML file, in order. Raises ``PrepareError``."""
    data = stream.read(MAX_RULE_FILE_BYTES + 1)
    if len(data) > MAX_RULE_FILE_BYTES:
        raise PrepareError(Fault(f"the file is longer than {MAX_RULE_FILE_BYTES} bytes", file))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PrepareError(Fault("not UTF-8", file, f"line {line}")) from None
    empty = True
    try:
        for document in documents(text):
            if document is None:
                continue
            empty = False
            if isinstance(document, Mapping):
                yield from rules_of(document, _line_of(document, "line 1"), file)
            else:
                yield Fault(_NO_RULE_FILE, file)
    except StrictYamlError as error:
        raise PrepareError(Fault(f"not YAML that we accept: {error.message}", file, f"line {error.line}")) from None
    if empty:
        raise PrepareError(Fault("the file is empty", file))


def holds_rules(document: Mapping[str, Any]) -> bool:
    """Whether a document is a rule file by the look of it."""
    if isinstance(document.get("groups"), list):
        return True
    return "apiVersion" in document and document.get("kind") in _KINDS


def rules_of(document: Mapping[str, Any], place: str, file: str) -> Iterator[Found]:
    """The alerting rules of one document, each with its place."""
    if "apiVersion" in document and document.get("kind") not in _KINDS:
        yield Skipped(1, "objects of other kinds")
        return
    items = document.get("items")
    if "groups" not in document and isinstance(items, list):
        for index, item in enumerate(items):
            at = _line_of(item, f"{place}, items[{index}]")
            if isinstance(item, Mapping) and "items" not in item:
                yield from rules_of(item, at, file)
            else:
                yield Fault(_NO_RULE_FILE, file, at)
        return
    spec = document.get("spec", document)
    groups = spec.get("groups") if isinstance(spec, Mapping) else None
    if not isinstance(groups, list):
        yield Fault(_NO_RULE_FILE, file, place, "groups")
        return
    for index, group in enumerate(groups):
        yield from _group(group, f"{place}, groups[{index}]", file)


def _group(group: Any, place: str, file: str) -> Iterator[Found]:
    at = _line_of(group, place)
    if not isinstance(group, Mapping) or not isinstance(group.get("rules"), list):
        yield Fault("is missing, or no list", file, at, "rules")
        return
    for index, rule in enumerate(group["rules"]):
        yield _rule(group, rule, _line_of(rule, f"{place}.rules[{index}]"), file)


def _rule(group: Mapping[str, Any], rule: Any, place: str, file: str) -> Found:
    if not isinstance(rule, Mapping):
        return Fault("not a rule", file, place)
    if "record" in rule and "alert" not in rule:
        return Skipped(1, "recording rules")
    for name in ("alert", "expr"):
        if not isinstance(rule.get(name), str) or not rule[name]:
            return Fault("is missing, or no text", file, place, name)
    for name in ("labels", "annotations"):
        if not isinstance(rule.get(name) or {}, Mapping):
            return Fault("is no mapping", file, place, name)
    of_group = group.get("labels")  # Prometheus 3 gives these to each rule of the group, whose own come first
    labels = {**(of_group if isinstance(of_group, Mapping) else {}), **(rule.get("labels") or {})}
    rest = {name: value for name, value in rule.items() if name not in {"alert", "labels"}}
    members = {"alertname": rule["alert"], "group": group.get("name"), **rest, "labels": labels or None}
    return Record("prometheus", place, members, {})


def _line_of(value: Any, otherwise: str) -> str:
    """Where a value stands: by its line where it came from YAML, else by the way there."""
    line = getattr(value, "line", None)
    return otherwise if line is None else f"line {line}"
