"""The options of a run, with their defaults, and what of them is recorded.

``model_fields_set`` holds what was given; only that is recorded, and only that is sent. Text and
objects are recorded as their SHA-256 with the text itself in the event's content. A resume reads
both back.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf

from ledger.projections.cost import Prices, is_price_setting
from runner.prices import check_prices

TEXT_SETTINGS: Final = frozenset({"stop", "extra_body", "headers", "ca_file", "proxy", "request_ids"})
RESUME_MAY_CHANGE: Final = frozenset({"concurrency", "rpm", "proxy"})
_LARGEST: Final = 2**53 - 1  # the largest integer that an event may hold


def _decimal_in(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a decimal number")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _decimal_text(value: str) -> str:
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError("must be a decimal number") from None
    if not number.is_finite():
        raise ValueError("must be a finite number")
    return format(number, "f")


DecimalText = Annotated[str, BeforeValidator(_decimal_in), AfterValidator(_decimal_text)]
"""A number kept as plain decimal text, since payloads hold no floats."""


class RunSettings(BaseModel):
    """Every option of a run but its target and its key. Times are in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrency: int = Field(default=16, ge=1, le=1024)
    rpm: int | None = Field(default=None, ge=1, le=_LARGEST)
    attempt_timeout: DecimalText = "60"
    request_timeout: DecimalText = "300"
    max_attempts: int = Field(default=3, ge=1, le=100)
    temperature: DecimalText | None = None
    top_p: DecimalText | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=_LARGEST)
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    seed: int | None = Field(default=None, ge=-_LARGEST, le=_LARGEST)
    stop: tuple[str, ...] | None = None
    reasoning_effort: Annotated[str, Field(pattern=r"^[a-z]{1,16}$")] | None = None
    response_format: Literal["none", "json_object", "json_schema"] = "none"
    extra_body: dict[str, Any] | None = None
    headers: dict[str, str] | None = None
    """Header name -> environment variable that holds its value. The value is never recorded."""
    ca_file: str | None = None
    proxy: str | None = None
    no_api_key: bool = False
    on_leak: Literal["abort", "reject"] = "abort"
    on_invalid: Literal["abort", "reject"] = "abort"
    max_fallback_rate: DecimalText | None = None
    max_error_rate: DecimalText | None = None
    limit: Annotated[str, Field(pattern=r"^[1-9][0-9]*-[1-9][0-9]*$")] | None = None
    request_ids: tuple[str, ...] | None = None
    sample: int | None = Field(default=None, ge=1, le=_LARGEST)
    sample_seed: int | None = Field(default=None, ge=0, le=_LARGEST)
    prices: Annotated[InstanceOf[Prices], AfterValidator(check_prices)] | None = None
    """From ``runner.prices.parse_prices``. Recorded price by price, so that a report needs no file."""

    @property
    def attempt_seconds(self) -> float:
        return float(self.attempt_timeout)

    @property
    def request_seconds(self) -> float:
        return float(self.request_timeout)

    def recorded(self) -> tuple[dict[str, str | int | bool], dict[str, Any]]:
        """What was given, as (facts for the payload, text for the content)."""
        facts: dict[str, str | int | bool] = {}
        texts: dict[str, Any] = {}
        for name in sorted(self.model_fields_set):
            value = getattr(self, name)
            if value is None:
                continue
            if name == "prices":
                facts |= value.settings()
            elif name in TEXT_SETTINGS:
                texts[name] = value
                facts[name] = hashlib.sha256(_text_bytes(value)).hexdigest()
            else:
                facts[name] = value
        return facts, texts

    @classmethod
    def from_recorded(cls, facts: dict[str, Any], texts: dict[str, Any]) -> RunSettings:
        """The settings of a recorded run.

        Raises ``ValueError`` where a text setting is missing (redacted) or differs from its digest.
        """
        values = {name: value for name, value in facts.items() if not is_price_setting(name)}
        prices = Prices.from_settings(facts)
        if prices is not None:
            values["prices"] = prices
        for name in TEXT_SETTINGS & facts.keys():
            if name not in texts:
                raise ValueError(f"the text of setting {name} is no longer there")
            if hashlib.sha256(_text_bytes(texts[name])).hexdigest() != facts[name]:
                raise ValueError(f"setting {name} does not match its recorded digest")
            values[name] = texts[name]
        return cls(**values)


def _text_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
