"""Which run it is, what it cost and how to check it: names and values that the renderings in words share.

Values are given as they stand in the ledger: who shows them makes them safe. As issued reports rest on this,
it is never changed: a rendering that wants other words brings its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from ledger.projections.cost import is_price_setting
from ledger.projections.identity import Identity, Place
from ledger.render import report_json

Fact = tuple[str, Sequence[str]]
"""A name of ours, and its values; none where it is not known."""

_NAMED: Final = 20
"""Models and policies that are named; the others are counted."""


def facts(report: Mapping[str, Any], who: Identity) -> Iterator[Fact]:
    """The identity card: what was asked, of whom, under which settings, by whom, of which lines, from when to when."""
    yield "candidate", _known(who.candidate_id)
    yield "variant", _known(who.candidate_variant_id or (who.candidate_id and "baseline"))
    if who.prompt_profile is not None:
        yield "prompt profile", [who.prompt_profile]
    yield "model asked", _known(who.model)
    yield "models that answered", _named(sorted(report["models_answered"]))
    yield "endpoint", _known(who.endpoint)
    if report["policy_ids"]:
        yield "policies", _named(report["policy_ids"])
    yield "settings", _settings(who)
    if who.tags:
        yield "tags", [f"{name}={value}" for name, value in sorted(who.tags.items())]
    yield "started by", _known(who.actor)
    if who.resumed_by:
        yield "resumed by", [_times(actor, times) for actor, times in sorted(Counter(who.resumed_by).items())]
    if who.abandoned_by is not None:
        yield "abandoned by", [f"{who.abandoned_by}, {who.abandoned_for}"]
    yield "selection", _selection(who)
    yield "input SHA-256", _known(who.input_sha256)
    yield "first event", _place(who.first)
    yield "last event", _place(who.last)
    yield "software", _software(who)
    yield "outcome", [report["outcome"]]


def _known(value: str | None) -> list[str]:
    return [] if value is None else [value]


def _named(names: Sequence[str]) -> list[str]:
    more = len(names) - _NAMED
    return [*names[:_NAMED], *([f"... and {more} more"] if more > 0 else [])]


def _settings(who: Identity) -> list[str]:
    if who.settings is None:
        return []
    given = [f"{name}={_plain(value)}" for name, value in sorted(who.settings.items()) if not is_price_setting(name)]
    return given or ["none given"]


def _plain(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _times(actor: str, times: int) -> str:
    return actor if times == 1 else f"{actor} ({times} times)"


def _selection(who: Identity) -> list[str]:
    if who.lines is None or who.taken is None:
        return []
    if who.selection is None:
        return ["the only line" if who.lines == 1 else f"all {who.lines:,} lines"]
    how = ", ".join(f"{name}={value}" for name, value in sorted(who.selection.items()))
    return [f"{who.taken:,} of {who.lines:,} lines ({how})"]


def _place(of: Place | None) -> list[str]:
    return [] if of is None else [f"position {of.position}, {of.recorded_at}"]


def _software(who: Identity) -> list[str]:
    if who.software_version is None:
        return []
    versions = f"prompt template {who.template_version}, leak rules {who.leak_rules_version}"
    return [f"replay-ledger {who.software_version}, {versions}"]


def cost(of: Mapping[str, Any] | None) -> str:
    """What the calls cost: what is not known is said to be, and never a part of a sum as the whole."""
    if of is None:
        return "not priced"
    calls = f"calls: {of['calls_priced']} priced, {of['calls_not_billed']} not billed"
    if of["total"] is not None:
        return f"{of['total']} {of['currency']} ({calls})"
    return f"unknown; {of['known']} {of['currency']} is known of ({calls}, {of['calls_without_cost']} of unknown cost)"


def evidence(report: Mapping[str, Any], origin: str) -> Iterator[tuple[str, str]]:
    """What the report stands on."""
    as_of, projection = report["as_of"], report["projection"]
    yield "ledger", origin
    yield "as of position", str(as_of["position"])
    yield "root at that size", as_of["root"]
    yield "projection", f"{projection['name']}/{projection['version']}"
    yield "SHA-256 of this report as JSON", json_sha256(report)


def json_sha256(report: Mapping[str, Any]) -> str:
    """The digest of the bytes that ``report --format json`` gives."""
    return sha256(report_json.render(report)).hexdigest()


def checks(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Commands that check it, and what each of them shows."""
    again = f"replay-ledger report {report['run_id']} --as-of {report['as_of']['position']} --out report.json"
    yield again, "gives the report again as JSON: its SHA-256 is the one above"
    yield "replay-ledger verify", "says whether the record is whole and unaltered, which no report can say of itself"
    yield "replay-ledger report-check FILE", "says whether these bytes were issued, where they were"
