"""What the model calls of a run cost, at the prices that were recorded when it began. Exact: whole numbers only.

A price is a decimal string for a million tokens, with six decimals at most, so a token costs a whole number
of 10^-12 of the currency ("picos"), and so does every sum. Unknown is null, never 0. A call's cost is known where

- it was answered: by a model whose price was given (the name in the reply, never the one asked for, as another
  model has another price), with both token counts, and with counts that do not contradict one another;
- it cannot have been billed: no connection came about, or the endpoint refused it with an error status.

Of every other call, one without an end and one whose reply was lost or not understood among them, nobody knows.
The same rules stand in SQL, in the view ``call_costs``; a test holds the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

PRICE_KINDS: Final = ("prompt", "completion", "cached", "reasoning")
"""What a price may be for. ``cached`` and ``reasoning`` are parts of the first two, and may be left out."""

PICOS: Final = 10**12
MAX_PART_PICOS: Final = 10**18
"""A million of the currency. A count of tokens that comes to more is an odd number, and the cost unknown; so
the four parts of a call's cost fit into 64 bits together, in SQL too."""

_SHA256: Final = "prices_sha256"
_CURRENCY: Final = "prices_currency"
_PRICE: Final = re.compile(r"(0|[1-9][0-9]{0,6})(?:\.([0-9]{1,6}))?\Z")


class ModelPrices(NamedTuple):
    """Picos a token; ``cached`` and ``reasoning`` are None where they have no price of their own."""

    prompt: int
    completion: int
    cached: int | None
    reasoning: int | None

    def cost(self, reply: Mapping[str, Any]) -> int | None:
        """What a ``ModelCalled`` cost in picos, None where its token counts do not tell."""
        prompt, completion = reply["prompt_tokens"], reply["completion_tokens"]
        cached, reasoning, total = reply["cached_tokens"], reply["reasoning_tokens"], reply["total_tokens"]
        if prompt is None or completion is None or (total is not None and total != prompt + completion):
            return None
        parts = _split(prompt, cached, self.prompt, self.cached)
        parts += _split(completion, reasoning, self.completion, self.reasoning)
        whole = 0
        for part in parts:
            if part is None or part > MAX_PART_PICOS:
                return None
            whole += part
        return whole


def _split(tokens: int, within: int | None, price: int, price_within: int | None) -> tuple[int | None, ...]:
    """The cost of tokens of which ``within`` may have a price of their own; None where it cannot be told."""
    if within is not None and within > tokens:
        return (None,)
    if price_within is None:
        return (tokens * price,)
    return (None,) if within is None else ((tokens - within) * price, within * price_within)


class Prices(NamedTuple):
    """A list of prices as a ``RunStarted`` records it, under three kinds of names among its settings.

    ``prices_sha256`` is of the file's bytes, ``prices_currency`` a name, and ``prompt_price:MODEL`` and its
    like (``PRICE_KINDS``) are the prices, as they were written. ``models``: model -> kind -> decimal string.
    """

    currency: str
    sha256: str
    models: Mapping[str, Mapping[str, str]]

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Prices | None:
        """The prices among a run's settings, None where there were none. What is no price is left out."""
        currency, sha256 = settings.get(_CURRENCY), settings.get(_SHA256)
        if not isinstance(currency, str) or not isinstance(sha256, str):
            return None
        models: dict[str, dict[str, str]] = {}
        for name, value in settings.items():
            setting, colon, model = name.partition(":")
            kind = setting.removesuffix("_price")
            if colon and kind != setting and kind in PRICE_KINDS and is_price(value):
                models.setdefault(model, {})[kind] = value
        return cls(currency, sha256, models)

    def settings(self) -> dict[str, str]:
        """The same as settings."""
        priced = {f"{kind}_price:{m}": price for m, prices in self.models.items() for kind, price in prices.items()}
        return {_SHA256: self.sha256, _CURRENCY: self.currency} | priced

    def by_model(self) -> dict[str, ModelPrices]:
        """What each model costs; a model without a price for prompt and completion is left out."""
        return {
            model: ModelPrices(
                *(_picos(of["prompt"]), _picos(of["completion"])),
                _picos(of["cached"]) if "cached" in of else None,
                _picos(of["reasoning"]) if "reasoning" in of else None,
            )
            for model, of in self.models.items()
            if "prompt" in of and "completion" in of
        }


def is_price_setting(name: str) -> bool:
    """Is the setting of that name one of those that ``Prices`` records?"""
    return name in (_SHA256, _CURRENCY) or ":" in name


def is_price(value: object) -> bool:
    """Is it a decimal string as prices are written: no sign, no exponent, 7 digits and 6 decimals at most?"""
    return isinstance(value, str) and _PRICE.match(value) is not None


def _picos(price: str) -> int:
    """Picos a token, of a price for a million tokens."""
    whole, _, decimals = price.partition(".")
    return int(whole + decimals.ljust(6, "0"))


def decimal_text(picos: int) -> str:
    """A sum of picos in the currency, as plain digits without needless zeros: ``0.00042``, ``12``, ``0``."""
    whole, rest = divmod(picos, PICOS)
    return f"{whole}.{rest:012d}".rstrip("0").rstrip(".")


class CostTotals:
    """The cost of the calls of one pass; memory is constant."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices
        self._by_model = {} if prices is None else prices.by_model()
        self._picos = 0
        self._priced = self._not_billed = self._started = self._ended = 0

    def add_start(self) -> None:
        """Count a ``ModelCallStarted``: until it has an end, its cost is unknown."""
        self._started += 1

    def add_reply(self, reply: Mapping[str, Any]) -> None:
        """Count a ``ModelCalled``."""
        self._ended += 1
        prices = self._by_model.get(reply["model"])
        cost = None if prices is None else prices.cost(reply)
        if cost is not None:
            self._picos += cost
            self._priced += 1

    def add_failure(self, failure: Mapping[str, Any]) -> None:
        """Count a ``ModelCallFailed``."""
        self._ended += 1
        self._not_billed += cannot_be_billed(failure)

    def member(self, *, unreadable: bool) -> dict[str, Any] | None:
        """The report's ``cost``, None where the run had no prices.

        ``known``: the sum over the calls that are priced. ``total``: the same, where it is the cost of all
        calls, else None; ``unreadable``: there are events that cannot be read, so it is not.
        """
        if self._prices is None:
            return None
        calls = max(self._started, self._ended)
        without = calls - self._priced - self._not_billed
        known = decimal_text(self._picos)
        return {
            "currency": self._prices.currency,
            "known": known,
            "total": None if without or unreadable else known,
            "calls_priced": self._priced,
            "calls_not_billed": self._not_billed,
            "calls_without_cost": without,
            "prices": {model: dict(prices) for model, prices in self._prices.models.items()},
            "prices_sha256": self._prices.sha256,
        }


def cannot_be_billed(failure: Mapping[str, Any]) -> bool:
    """Did the request never reach the endpoint, or did that refuse it with an error status?"""
    status = failure["http_status"]
    if failure["outcome_unknown"]:
        return False
    return failure["code"] == "transport_connect" if status is None else not 200 <= status <= 299
