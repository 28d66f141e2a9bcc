"""The incidents of version 2 of a report's page: a row each, and what all of them come to together.

Rows are made as the incidents are read, once; what is kept of each is its bytes, and little beside.
Reports were issued with these bytes: they never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ledger.projections.incidents import Incident
from ledger.render.report_html_2_parts import BUCKETS, breaking, bucket, milliseconds, number, shown

OUTCOMES: Final = (
    ("accepted_first", "a", "accepted at first"),
    ("accepted_after_retry", "b", "accepted after a retry"),
    ("fallback_records", "c", "fallback (failed closed)"),
    ("leak_rejected", "d", "refused: holds its own labels"),
    ("rejected", "e", "refused: no valid request"),
    ("not_started", "f", "not started"),
    ("incomplete", "g", "begun, without a result"),
)
"""The seven that add up to the requests: the member of the report, its letter, its words."""

_LETTERS: Final = {name: (letter, words) for name, letter, words in OUTCOMES}
_AT_ONCE: Final = 100
"""Rows in one table: a browser lays out those in view and leaves the others."""

_HEADS: Final = (
    *(
        "Line",
        "Request",
        "Outcome",
        "Risk",
        "Answer",
        "Codes",
        "Tries",
        "Calls took",
        "Waited",
        "Facets",
        "Events",
    ),
)
_THEAD: Final = "<thead><tr>" + "".join(f'<th scope="col">{head}</th>' for head in _HEADS) + "</tr></thead>"


class Incidents:
    """All incidents of a run, taken once."""

    def __init__(self, incidents: Iterable[Incident]) -> None:
        self.number = 0
        self.let_through: list[str] = []
        """Answers of low risk, neither blocked nor put to a person: each a link to its row."""
        self.replies = [0] * BUCKETS
        self.waits = [0] * BUCKETS
        self.waited = 0
        self.longest_wait_ms = 0
        self.failed_us = 0
        self.unmeasured = 0
        """Requests of which it is not known how long an attempt without a reply took."""
        self.tables: list[bytes] = []
        self._rows: list[str] = []
        self._lines: list[int] = []
        for incident in incidents:
            self._take(incident)
        self._close()

    def _take(self, of: Incident) -> None:
        self.number += 1
        self._lines.append(of.line)
        self._rows.append(_row(of))
        if of.low_and_neither:
            self.let_through.append(f'<li><a href="#l{of.line}">{shown(of.name)}</a></li>')
        for took in of.replies_us:
            self.replies[bucket(took)] += 1
        if of.waited_ms:
            self.waited += 1
            self.waits[bucket(of.waited_ms * 1000)] += 1
            self.longest_wait_ms = max(self.longest_wait_ms, of.waited_ms)
        if of.failed_us is None:
            self.unmeasured += 1
        else:
            self.failed_us += of.failed_us
        if len(self._rows) == _AT_ONCE:
            self._close()

    def _close(self) -> None:
        if not self._rows:
            return
        first, last = self._lines[0], self._lines[-1]
        caption = f"Line {first}" if first == last else f"Lines {first} to {last}"
        rows = "\n".join(self._rows)
        table = f"<table><caption>{caption}</caption>{_THEAD}<tbody>\n{rows}\n</tbody></table>"
        self.tables.append(f'<div class="rows">{table}</div>\n'.encode())
        self._rows.clear()
        self._lines.clear()


def _row(of: Incident) -> str:
    letter, words = _LETTERS[of.outcome]
    cells = "</td><td>".join(
        (
            words,
            of.risk_level or "",
            _says(of),
            "; ".join(_codes(of)),
            str(of.attempts),
            milliseconds(of.call_us) if of.sent else "",
            f"{number(of.waited_ms)} ms" if of.waited_ms else "",
            ", ".join(_facets(of)),
            str(of.position) if of.decided is None else f"{of.position}\N{EN DASH}{of.decided}",
        )
    )
    incident = "" if of.incident_id in (None, of.request_id) else f" <small>incident {shown(of.incident_id)}</small>"
    return (
        f'<tr id="l{of.line}" class="{letter}"><td>{of.line}</td><th scope="row">{shown(of.name)}{incident}</th>'
        f"<td>{cells}</td></tr>"
    )


def _says(of: Incident) -> str:
    if not of.accepted:
        return ""
    said = (("blocked", of.blocked_by_policy), ("approval", of.requires_human_approval))
    return ", ".join(word for word, holds in said if holds) or "neither"


def _codes(of: Incident) -> Iterator[str]:
    if of.first_error is not None and of.first_error != of.error:
        yield f"first {breaking(of.first_error)}"
    if of.error is not None:
        yield breaking(of.error)
    if of.where is not None:
        yield f"at {breaking(of.where)}"
    if of.allowances:
        yield f"tolerated {shown(', '.join(of.allowances))}"


def _facets(of: Incident) -> Iterator[str]:
    for name, value in sorted(of.facets.items()):
        yield f"{shown(name)} {shown(value)}"
    if of.policy_id is not None:
        yield f"policy {shown(of.policy_id)}"
