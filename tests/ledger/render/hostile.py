"""Text that means something to somebody, and reports in which every text is such a one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ledger.projections.identity import Identity, Place
from ledger.projections.incidents import Incident
from tests.stories import digest

ORIGIN = "ledger.example/audit"
NASTY = (
    *("`", "``", "```", "|", "\\|", "\\", "\\`", "<script>alert(1)</script>", "</code>", "<!--", "<?x", "<![CDATA["),
    *("]]>", "&lt;", "&#96;", "&", "[a](javascript:x)", "![x](//x.example)", "https://x.example", "www.x.example"),
    *("a@b.example", "@user", "#1", "*", "**", "_", "~~", "$", "{: onclick=x}", "{{ x }}", "\n", "\r\n", "\n\n"),
    *("    ", "---", "===", "- ", "1. ", "> ", "# ", "\u202e", "\u2066", "\u200b", "\x00", "\x1b[2J", "\x0b", "\t"),
    *(" ", "\u0085", "\u2028", "\ud800", "\ufffe", "\uffff", "\x02", "é", "日本", "[^1]", ":smile:", "'", '"', "=1+1"),
)
TEXTS = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=4)), max_size=8).map("".join)


def incident(line: int, **changes: Any) -> Incident:
    """An accepted answer of low risk that lets through; any member may be changed."""
    members: dict[str, Any] = {
        "line": line,
        "request_id": f"INC-{line}",
        "incident_id": f"INC-{line}",
        "outcome": "accepted_first",
        "risk_level": "low",
        "blocked_by_policy": False,
        "requires_human_approval": False,
        "allowances": (),
        "error": None,
        "first_error": None,
        "where": None,
        "attempts": 1,
        "retried": False,
        "replies_us": (20_000,),
        "failed_us": 0,
        "waited_ms": 0,
        "facets": {},
        "policy_id": None,
        "position": 10 + line,
        "decided": 20 + line,
    }
    return Incident(**{**members, **changes})


def fallback(line: int, code: str = "http_503", **changes: Any) -> Incident:
    """A request without an answer that could be accepted."""
    flags = dict.fromkeys(("risk_level", "blocked_by_policy", "requires_human_approval"))
    return incident(line, **{"outcome": "fallback_records", "error": code, "first_error": code, **flags, **changes})


def refused(line: int, outcome: str = "rejected", **changes: Any) -> Incident:
    """A line that was never put to the model."""
    nothing = {"incident_id": None, "attempts": 0, "replies_us": (), "decided": None}
    return fallback(line, "request_invalid", **{"outcome": outcome, **nothing, **changes})


def identity(text: str | None = None) -> Identity:
    """Which run it is; every text of it is ``text``, where that is given."""

    def said(usual: str) -> str:
        return usual if text is None else text

    return Identity(
        run_id=said("run-1"),
        candidate_id=said("nemo_nemotron_fabric"),
        candidate_variant_id=said("nemo_nemotron_fabric__contract_tuned_v1"),
        prompt_profile=said("contract_tuned_v1"),
        template_version=1,
        template_sha256=digest("template"),
        model=said("example/model-1"),
        endpoint=said("https://models.example/v1/chat/completions"),
        settings={said("temperature"): said("0.2"), "json_mode": True, "prices_sha256": digest("prices")},
        leak_rules_version=1,
        software_version=said("0.1.0"),
        actor=said("ops-7"),
        tags={said("team"): said("payments")},
        lines=1155,
        taken=50,
        input_sha256=digest("input"),
        selection={"sample": 50, "sample_seed": 7, said("limit"): said("1-1155")},
        resumed_by=[said("ops-8"), said("ops-8"), said("ops-9")],
        abandoned_by=said("ops-9"),
        abandoned_for=said("superseded"),
        first=Place(2, "2026-11-30T20:41:03.000001Z"),
        last=Place(39, "2026-11-30T20:42:05.250001Z"),
    )


def poisoned(report: dict[str, Any], text: str) -> dict[str, Any]:
    """The report, with ``text`` wherever a text of others may stand: but lone surrogates, which JSON cannot hold."""
    text = text.encode("utf-8", "replace").decode("utf-8")

    def poison(value: Any) -> Any:
        if isinstance(value, str):
            return text
        if isinstance(value, list):
            return [poison(item) for item in value]
        if isinstance(value, dict):
            return {name: poison(item) for name, item in value.items()}
        return value

    counted = {name: {text: 1, "other": 2} for name in ("errors", "first_errors", "allowances", "models_answered")}
    facets = {text: {text: {"requests": 1, "accepted": 1, "fallback": 0}}}
    kept = {"outcome": report["outcome"], "policy_ids": [text, text], "failures": [text]}
    cost = {"currency": text, "known": "1.5", "total": None, "prices": {}, "prices_sha256": text}
    cost |= dict.fromkeys(("calls_priced", "calls_not_billed", "calls_without_cost"), 1)
    whole: dict[str, Any] = poison(report)
    return {**whole, **counted, "facets": facets, "cost": cost, **kept}
