"""The file of ``--prices``: what a million tokens of each model cost. Bytes in, prices out; strict.

TOML, so that a line can say where a price was read and when. Prices are decimal strings in quotes: TOML's own
numbers are binary floats to most readers, and a price that is nearly right is wrong. docs/prices.md describes it.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from ledger.events import FOREIGN_TEXT_PATTERN
from ledger.projections.cost import PRICE_KINDS, Prices, is_price
from runner.scrub import looks_like_key

MAX_MODELS: Final = 64
"""Models of one list: all of them are recorded with the run, and told in its report."""

MAX_BYTES: Final = 256 * 1024

_NEEDED: Final = ("prompt", "completion")
_MEMBERS: Final = ("currency", "models")
_MODEL_MEMBERS: Final = ("name", *PRICE_KINDS)
_CURRENCY: Final = re.compile(r"[A-Za-z]{1,16}\Z")
_NAME: Final = re.compile(FOREIGN_TEXT_PATTERN)
_LONGEST_SHOWN: Final = 40


class PricesError(ValueError):
    """No list of prices. The text names the line or the member at fault."""


def parse_prices(data: bytes) -> Prices:
    """The prices in the bytes of a file. Raises ``PricesError``."""
    document = _document(data)
    _only(document, _MEMBERS, "")
    currency = document.get("currency")
    if not isinstance(currency, str) or not _CURRENCY.match(currency):
        raise PricesError('currency: must be its name in letters, 16 at most, such as "USD"')
    listed = document.get("models")
    if not isinstance(listed, list) or not listed:
        raise PricesError("models: there must be a table [[models]] for each model")
    if len(listed) > MAX_MODELS:
        raise PricesError(f"models: more than {MAX_MODELS} of them")
    models: dict[str, Mapping[str, str]] = {}
    for number, entry in enumerate(listed, start=1):
        where = f"models[{number}]"
        name = _name(entry, where)
        if name in models:
            raise PricesError(f"{where}.name: {name} stands twice, first as models[{list(models).index(name) + 1}]")
        models[name] = _prices(entry, where)
    return Prices(currency, hashlib.sha256(data).hexdigest(), models)


def check_prices(prices: Prices) -> Prices:
    """The same prices, whoever made them. Raises ``ValueError`` unless a file could hold them."""
    if not _CURRENCY.match(prices.currency):
        raise ValueError("must be in a currency that is named by 1 to 16 letters")
    if not re.fullmatch(r"[0-9a-f]{64}", prices.sha256):
        raise ValueError("must have the SHA-256 of their file, in hex")
    if not 1 <= len(prices.models) <= MAX_MODELS:
        raise ValueError(f"must be of 1 to {MAX_MODELS} models")
    for name, of in prices.models.items():
        if not _NAME.match(name) or looks_like_key(name):
            raise ValueError("must be of models by their names")
        if not of.keys() >= set(_NEEDED) or not of.keys() <= set(PRICE_KINDS) or not all(map(is_price, of.values())):
            raise ValueError(f"of {name} must be decimal strings, for prompt and completion at least")
    return prices


def _document(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise PricesError(f"longer than {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PricesError(f"line {line}: not UTF-8 text") from None
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:  # ValueError too: of a number with thousands of digits
        raise PricesError(f"not TOML: {error}") from None


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:
            raise PricesError(f"{where}{_shown(name)}: there is no such member; there are {', '.join(known)}")


def _name(entry: Any, where: str) -> str:
    if not isinstance(entry, dict):
        raise PricesError(f"{where}: must be a table, under [[models]]")
    _only(entry, _MODEL_MEMBERS, f"{where}.")
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise PricesError(f"{where}.name: must be a model's name, 1 to 200 printable ASCII characters without blanks")
    if looks_like_key(name):
        raise PricesError(f"{where}.name: holds a key, and would be recorded with the run")
    return name


def _prices(entry: Mapping[str, Any], where: str) -> dict[str, str]:
    prices = {}
    for kind in PRICE_KINDS:
        if kind in entry:
            prices[kind] = _price(entry[kind], f"{where}.{kind}")
        elif kind in _NEEDED:
            raise PricesError(f"{where}.{kind}: is missing")
    return prices


def _price(value: Any, where: str) -> str:
    if isinstance(value, str) and is_price(value):
        return value
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        raise PricesError(f'{where}: {_shown(value)} is a number; a price is a decimal string in quotes, as "0.15"')
    told = f"{_shown(value)} is no price" if isinstance(value, str) else "no price"
    raise PricesError(
        f"{where}: {told}: a decimal string of a million tokens' price, at most 7 digits and 6 decimals, "
        "without sign, exponent or leading zeros"
    )


def _shown(value: object) -> str:
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
