"""A recorded line through today's check and leak guard: would it be accepted, rejected, refused so again? Pure.

Whether a line repeats another's id is not asked: the record says which line was first.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.decide_again import Member, Recorded, refused_members
from runner.leakage import Finding, scan_request
from runner.prompts import messages
from runner.requests import KEPT_OF_LONG_LINE, BadLine, Head, ReplayRequest, RunIdentity, differs, parse_line
from runner.variants import Variant

_ID_PATHS = ("request_id", "incident_id")


@dataclass(frozen=True)
class LineTerms:
    """What the lines of a run were held to. ``variant_override``: what their own variant was overridden with."""

    identity: RunIdentity
    variant: Variant
    variant_override: str | None


def line_again(line: Recorded, request_id: str | None, terms: LineTerms) -> tuple[Member, ...]:
    """How today's intake would record a line otherwise; nothing where it would do the same."""
    judged = _parsed(line, request_id, terms)
    if line.type == "RequestRejected":
        return _rejected(line, request_id, judged, terms)
    if isinstance(judged, BadLine):
        return refused_members(line.type, judged)
    if line.type == "RequestAccepted":
        other = differs(judged, terms.identity)
        if other is not None:
            return refused_members(line.type, other)
    return _guarded(line, judged, terms)


def _parsed(line: Recorded, request_id: str | None, terms: LineTerms) -> ReplayRequest | BadLine:
    raw = line.content or b""
    if len(raw) == KEPT_OF_LONG_LINE and request_id is None and line.payload.get("field") is None:
        raw = Head(raw)  # of a line that was too long only this was kept
    return parse_line(line.payload["line"], raw, variant_override=terms.variant_override)


def _rejected(
    line: Recorded, request_id: str | None, judged: ReplayRequest | BadLine, terms: LineTerms
) -> tuple[Member, ...]:
    bad = judged if isinstance(judged, BadLine) else differs(judged, terms.identity)
    if line.payload["first_line"] is not None:
        if bad is None and isinstance(judged, ReplayRequest):
            same = judged.request_id == request_id
            members = () if same else (Member("request_id", request_id, judged.request_id),)
            return members or _guarded(line, judged, terms)
        return (Member("first_line", line.payload["first_line"], None),)
    if bad is None:
        return (Member("type", line.type, "RequestAccepted"),)
    told = {"request_id": bad.request_id, "code": bad.code, "field": bad.field}
    return tuple(Member(name, line.payload[name], today) for name, today in told.items() if today != line.payload[name])


def _guarded(line: Recorded, request: ReplayRequest, terms: LineTerms) -> tuple[Member, ...]:
    findings = scan_request(
        request.document,
        request_id=request.request_id,
        incident_id=request.incident_id,
        messages=messages(request, terms.variant),
    )
    if line.type != "LeakRejected":
        return (Member("type", line.type, "LeakRejected"), Member("findings", [], _told(findings))) if findings else ()
    if not findings:
        return (Member("type", line.type, "RequestAccepted"),)
    recorded = [f"{finding['path']} ({finding['rule']})" for finding in line.payload["findings"]]
    members = [] if recorded == _told(findings) else [Member("findings", recorded, _told(findings))]
    id_leaks = any(finding.path in _ID_PATHS for finding in findings)
    request_id = None if id_leaks else request.request_id
    if request_id != line.payload["request_id"]:
        was, now = ("given", "left out") if id_leaks else ("left out", "given")
        members.append(Member("request_id", was, now))  # without it: one that is left out leaks
    return tuple(members)


def _told(findings: tuple[Finding, ...]) -> list[str]:
    return [f"{finding.path} ({finding.rule})" for finding in findings]
