"""Version 1 of a report as a page: plain. See ``report_html``: what was issued in it keeps its bytes.

It has its words to itself and shares none with other renderings, which may change.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

from ledger.render.safe import terminal

Report = Mapping[str, Any]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881 }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
h1, dd, td, th, li { overflow-wrap: anywhere }
.usable { border: 1px solid var(--line); border-left-width: .5rem; padding: .5rem 1rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0 }
dt { font-weight: 600 } dd { margin: 0 }
table { border-collapse: collapse } caption { text-align: left; padding: .25rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top }
td { font-variant-numeric: tabular-nums; text-align: right } thead th + th { text-align: right }
tfoot { font-weight: 600 } code { background: var(--soft); padding: 0 .25rem }
@media print { body { max-width: none } }
"""
_POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'"
)
_OUTCOMES: Final = (
    ("accepted_first", "accepted at first"),
    ("accepted_after_retry", "accepted after a retry"),
    ("fallback_records", "fallback (failed closed)"),
    ("leak_rejected", "refused: holds its own labels"),
    ("rejected", "refused: no valid request"),
    ("not_started", "not started"),
    ("incomplete", "begun, without a result"),
)
_ENDS: Final = {
    "blocked": "the run was blocked before any call",
    "abandoned": "the run was abandoned",
    "auth_error": "the endpoint refused the key",
    "incomplete": "the run has not ended",
}
_WHY: Final = (
    ("fallback_records", "without an answer that could be accepted"),
    ("leak_rejected", "refused for holding the labels they are judged by"),
    ("rejected", "refused as no valid request"),
    ("not_started", "never put to the model"),
    ("incomplete", "begun, without a result"),
)


def render(report: Report) -> bytes:
    """The page as UTF-8."""
    sections = (_usable, _run, _requests, _decisions, _errors, _calls, _facets, _failures, _voucher)
    name = _shown(report["run_id"])
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Report of run {name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>Report of run {name}</h1>\n"
    )
    body = "".join(line + "\n" for section in sections for line in section(report))
    return f"{head}{body}</main>\n</body>\n</html>\n".encode()


def _shown(value: object) -> str:
    """Whatever it is, as text that neither acts nor hides; what is unknown is said to be."""
    return "unknown" if value is None else escape(terminal(str(value)))


def _usable(report: Report) -> Iterator[str]:
    if report["valid"]:
        requests = report["requests"]
        every = "the only request has" if requests == 1 else f"all {requests} requests have"
        why = f"<strong>Usable as evaluation: yes</strong>, because {every} an accepted answer and none was refused."
        yield f'<div class="usable"><p>{why}</p></div>'
        return
    yield '<div class="usable"><p><strong>Usable as evaluation: no</strong>, because</p>'
    yield f"<ul>{''.join(f'<li>{_shown(reason)}</li>' for reason in _reasons(report))}</ul></div>"


def _reasons(report: Report) -> Iterator[str]:
    if report["outcome"] != "completed":
        yield _ENDS.get(report["outcome"], "the run did not complete")
    if not report["requests"]:
        yield "there is no request in it"
    for member, what in _WHY:
        if report[member]:
            yield f"requests {what}: {report[member]}"
    if report["unreadable"]:
        yield f"events that cannot be read: {report['unreadable']}"


def _run(report: Report) -> Iterator[str]:
    variant = report["candidate_variant_id"] or "baseline"
    yield _heading("The run")
    yield _pairs(
        ("Candidate", report["candidate_id"]),
        ("Variant", variant),
        ("Model", report["model"]),
        ("Endpoint", report["endpoint"]),
        ("Outcome", report["outcome"]),
        *([("Policies", ", ".join(report["policy_ids"]))] if report["policy_ids"] else []),
    )


def _requests(report: Report) -> Iterator[str]:
    yield _heading("Requests")
    rows = [(name, report[member]) for member, name in _OUTCOMES]
    yield _table("What became of each request", ("outcome", "requests"), rows, ("requests", report["requests"]))


def _decisions(report: Report) -> Iterator[str]:
    levels = report["decisions"]["by_risk_level"]
    columns = ("total", "blocked_by_policy", "requires_human_approval", "neither")
    rows = [(level, *(levels[level][column] for column in columns)) for level in ("low", "medium", "high", "critical")]
    yield _heading("Decisions")
    yield _table(
        "Accepted answers only, by the risk level that the model gave",
        ("risk level", "total", "blocked by policy", "needs approval", "neither"),
        rows,
    )
    yield "<p>“Blocked by policy” is what the model said of its own answer; no policy engine was asked.</p>"


def _errors(report: Report) -> Iterator[str]:
    counted = (
        ("errors", "Last error of a result"),
        ("first_errors", "First error of a result, overcome or not"),
        ("allowances", "Tolerances that the parser used"),
    )
    if any(report[member] for member, _ in counted) or report["refusals"]:
        yield _heading("Errors")
    for member, caption in counted:
        if report[member]:
            yield _table(caption, ("code", "results"), _by_frequency(report[member]))
    if report["refusals"]:
        yield f"<p>The model refused to answer: {_shown(report['refusals'])}.</p>"


def _by_frequency(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _calls(report: Report) -> Iterator[str]:
    calls, latency, tokens = report["calls"], report["latency_us"], report["tokens"]
    yield _heading("Model calls")
    yield _pairs(
        *((name.replace("_", " ").capitalize(), calls[name]) for name in ("started", "answered", "failed")),
        ("Outcome unknown", calls["outcome_unknown"]),
        ("Waited between attempts", _milliseconds(calls["waited_ms"] * 1000)),
        *((f"Latency {name}", _milliseconds(latency[name])) for name in ("p50", "p90", "p99", "max")),
        *((f"Tokens, {kind}", tokens[kind]) for kind in ("prompt", "completion", "total", "cached", "reasoning")),
        ("Answers without usage", tokens["calls_without_usage"]),
        ("Prompts that the server seems to have cut", report["suspected_prompt_truncation"]),
        ("Answers by another model than was asked for", report["model_mismatch"]),
    )
    if report["models_answered"]:
        rows = _by_frequency(report["models_answered"])
        yield _table("Models that answered, by their own word", ("model", "answers"), rows)


def _milliseconds(microseconds: int | None) -> str | None:
    return None if microseconds is None else f"{microseconds // 1000}.{microseconds % 1000:03d} ms"


def _facets(report: Report) -> Iterator[str]:
    if report["facets"]:
        yield _heading("Facets")
    for name, values in sorted(report["facets"].items()):
        members = ("requests", "accepted", "fallback")
        rows = [(value, *(of[member] for member in members)) for value, of in sorted(values.items())]
        yield _table(f"By {name}", (name, *members), rows)


def _failures(report: Report) -> Iterator[str]:
    if report["failures"]:
        yield _heading("Failures")
        yield f"<ul>{''.join(f'<li><code>{_shown(failure)}</code></li>' for failure in report['failures'])}</ul>"


def _voucher(report: Report) -> Iterator[str]:
    as_of = report["as_of"]
    yield _heading("What vouches for this")
    yield _pairs(("Position of the ledger", as_of["position"]), ("Root at that size", as_of["root"]))
    yield (
        "<p>This report says nothing of whether the record is whole. <code>replay-ledger verify</code> does,"
        " and an audit bundle shows it to others.</p>"
    )


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _pairs(*pairs: tuple[str, object]) -> str:
    return f"<dl>{''.join(f'<dt>{_shown(name)}</dt><dd>{_shown(value)}</dd>' for name, value in pairs)}</dl>"


def _table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], total: Sequence[object] | None = None
) -> str:
    columns = "".join(f'<th scope="col">{_shown(head)}</th>' for head in heads)
    foot = "" if total is None else f"<tfoot>{_row(total)}</tfoot>"
    body = "".join(map(_row, rows))
    return (
        f"<table><caption>{_shown(caption)}</caption><thead><tr>{columns}</tr></thead>"
        f"<tbody>{body}</tbody>{foot}</table>"
    )


def _row(cells: Sequence[object]) -> str:
    first, *others = map(_shown, cells)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
