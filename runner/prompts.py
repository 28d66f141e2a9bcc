"""What is sent: messages and request bodies of each variant. Pure.

A body is canonical JSON of ``model``, ``messages``, ``stream: false`` and the options that were given,
nothing else. Turn 2 sends the same two messages, the user's with a correction at its end.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from runner import sent_json
from runner.answer import answer_text
from runner.contract import Broken, Contract
from runner.requests import ReplayRequest
from runner.settings import RunSettings
from runner.variants import (
    BASELINE,
    CONTRACT_TUNED,
    NEMOTRON_CONTRACT_TUNED_VARIANT_ID,
    VARIANTS,
    UnknownVariant,
    Variant,
    variant_for,
    variant_named,
)

__all__ = [
    "BASELINE",
    "CONTRACT_TUNED",
    "NEMOTRON_CONTRACT_TUNED_VARIANT_ID",
    "RESERVED_MEMBERS",
    "VARIANTS",
    "Messages",
    "UnknownVariant",
    "Variant",
    "check_options",
    "first_body",
    "messages",
    "retry_body",
    "variant_for",
    "variant_named",
]

RESERVED_MEMBERS: Final = frozenset({"messages", "model", "stream", "n", "tools"})
"""What ``extra_body`` may not hold: they decide what is asked and how many answers come."""

Messages = list[dict[str, str]]

MAX_QUOTE_BYTES: Final = 2000

_NOT_TEXT: Final = re.compile("[\x00\ud800-\udfff]")


def messages(request: ReplayRequest, variant: Variant) -> Messages:
    """The two messages of turn 1."""
    return _messages(request, _user_text(request, variant))


def first_body(request: ReplayRequest, variant: Variant, model: str, settings: RunSettings) -> bytes:
    """The body of turn 1. Raises ``ValueError`` where ``check_options`` would."""
    return _body(request, messages(request, variant), model, settings)


def retry_body(
    request: ReplayRequest, variant: Variant, model: str, settings: RunSettings, broken: Broken, quote: str | None
) -> bytes:
    """The body of turn 2: the fields at fault, the allowed values, and the head of the bad answer.

    ``quote`` is the answer's text as it came; None leaves it out. Raises as ``first_body``.
    """
    text = "" if quote is None else _cut(answer_text(quote))
    correction = variant.correction_template.format(
        code=broken.code,
        fields=", ".join(broken.fields) or "the answer as a whole",
        problems="\n".join(broken.problems),
        allowed=_allowed_values(request.contract),
        quote=variant.quote_template.format(text=text) if text else "",
    )
    return _body(request, _messages(request, _user_text(request, variant) + correction), model, settings)


def check_options(settings: RunSettings) -> None:
    """Raise ``ValueError`` for options that no body can be made of."""
    _options(settings, Contract())


def _messages(request: ReplayRequest, user_text: str) -> Messages:
    return [{"role": "system", "content": request.system_prompt}, {"role": "user", "content": user_text}]


def _user_text(request: ReplayRequest, variant: Variant) -> str:
    return variant.user_template.format(
        user_prompt=request.user_prompt,
        incident_context=request.incident_context_json,
        contract=_contract_lines(request.contract),
    )


@lru_cache(maxsize=64)
def _contract_lines(contract: Contract) -> str:
    lines = []
    for name in contract.fields:
        optional = "" if contract.is_required(name) else " (optional)"
        words = contract.type_of(name)
        if contract.allowed(name) is not None:
            words = contract.described(name)
        lines.append(f"- {name}{optional}: {words}")
    return "\n".join(lines)


@lru_cache(maxsize=64)
def _allowed_values(contract: Contract) -> str:
    listed = [name for name in contract.fields if contract.allowed(name) is not None]
    return "\n".join(f"- {name}: {contract.described(name)}" for name in listed)


def _cut(text: str) -> str:
    """The head of a text, at most ``MAX_QUOTE_BYTES`` of UTF-8, cut between characters. What no
    encoder can write is shown as U+FFFD."""
    safe = _NOT_TEXT.sub("\ufffd", text[:MAX_QUOTE_BYTES])
    return safe.encode("utf-8")[:MAX_QUOTE_BYTES].decode("utf-8", "ignore")


# --- bodies --------------------------------------------------------------------------------


def _body(request: ReplayRequest, sent: Messages, model: str, settings: RunSettings) -> bytes:
    options = _options(settings, request.contract)
    return sent_json.encode({"model": model, "messages": sent, "stream": False, **options})


def _options(settings: RunSettings, contract: Contract) -> dict[str, Any]:
    """The options that were given, by their names in a body."""
    given = {
        "temperature": _number(settings.temperature),
        "top_p": _number(settings.top_p),
        settings.max_tokens_field: settings.max_tokens,
        "seed": settings.seed,
        "stop": None if settings.stop is None else list(settings.stop),
        "reasoning_effort": settings.reasoning_effort,
        "response_format": _response_format(settings, contract),
    }
    options = {name: value for name, value in given.items() if value is not None}
    extra = settings.extra_body or {}
    taken = sorted(extra.keys() & (RESERVED_MEMBERS | options.keys()))
    if taken:
        raise ValueError(f"the extra body must not hold {', '.join(taken)}")
    return options | extra


def _number(text: str | None) -> int | float | None:
    """Decimal text as a JSON number. Raises ``ValueError`` beyond the range of a double."""
    if text is None:
        return None
    value = float(Decimal(text))
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number too large for JSON")
    return value


def _response_format(settings: RunSettings, contract: Contract) -> dict[str, Any] | None:
    if settings.response_format == "json_object":
        return {"type": "json_object"}
    if settings.response_format == "json_schema":
        schema = {"name": "response_contract", "strict": True, "schema": contract.strict_schema}
        return {"type": "json_schema", "json_schema": schema}
    return None
