"""The file of prices: strict, and at fault by line or member."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from ledger.projections.cost import Prices
from runner.prices import MAX_BYTES, MAX_MODELS, PricesError, parse_prices
from runner.settings import RunSettings

PAGE = Path(__file__).parents[2] / "docs" / "prices.md"
MODEL = '[[models]]\nname = "m"\nprompt = "0.15"\ncompletion = "0.6"\n'
GOOD = f'currency = "USD"\n{MODEL}'
RULE = (
    "a decimal string of a million tokens' price, at most 7 digits and 6 decimals, without sign, exponent or "
    "leading zeros"
)


def test_the_file_of_the_page_is_one() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    prices = parse_prices(text.encode())
    assert prices.currency == "USD"
    assert prices.models == {
        "nvidia/llama-3.3-nemotron-super-49b-v1.5": {"prompt": "0.13", "completion": "0.40"},
        "example/model-2026-05-01": {"prompt": "2.50", "completion": "10", "cached": "1.25", "reasoning": "10"},
    }


def test_the_digest_is_that_of_the_bytes_as_they_are_in_the_file() -> None:
    for data in (GOOD.encode(), GOOD.replace("\n", "\r\n").encode(), f"# read today: €\n{GOOD}".encode()):
        prices = parse_prices(data)
        assert prices == Prices("USD", hashlib.sha256(data).hexdigest(), {"m": {"prompt": "0.15", "completion": "0.6"}})


@pytest.mark.parametrize("price", ["0", "12", "0.000001", "9999999.999999", "1.50"])
def test_a_decimal_string_is_kept_as_it_was_written(price: str) -> None:
    assert parse_prices(GOOD.replace("0.15", price).encode()).models["m"]["prompt"] == price


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("0.15", '0.15 is a number; a price is a decimal string in quotes, as "0.15"'),
        ("1e-7", '1E-7 is a number; a price is a decimal string in quotes, as "0.15"'),
        ("3", '3 is a number; a price is a decimal string in quotes, as "0.15"'),
        ("nan", 'NaN is a number; a price is a decimal string in quotes, as "0.15"'),
        ('"-1"', f"'-1' is no price: {RULE}"),
        ('"+1"', f"'+1' is no price: {RULE}"),
        ('"NaN"', f"'NaN' is no price: {RULE}"),
        ('"Infinity"', f"'Infinity' is no price: {RULE}"),
        ('"1e3"', f"'1e3' is no price: {RULE}"),
        ('"01"', f"'01' is no price: {RULE}"),
        ('".5"', f"'.5' is no price: {RULE}"),
        ('"5."', f"'5.' is no price: {RULE}"),
        ('"1_000"', f"'1_000' is no price: {RULE}"),
        ('"1,5"', f"'1,5' is no price: {RULE}"),
        ('""', f"'' is no price: {RULE}"),
        ('"0.1 "', f"'0.1 ' is no price: {RULE}"),
        ('"1\\n"', f"'1\\n' is no price: {RULE}"),
        ('"\u0661"', f"'\\u0661' is no price: {RULE}"),
        ('"0.1234567"', f"'0.1234567' is no price: {RULE}"),
        ('"12345678"', f"'12345678' is no price: {RULE}"),
        (f'"{"9" * 5000}"', f"'{'9' * 39}... is no price: {RULE}"),
        ("true", f"no price: {RULE}"),
        ("2026-11-30", f"no price: {RULE}"),
        ('["1"]', f"no price: {RULE}"),
    ],
)
def test_what_is_no_price_is_refused_by_its_member(written: str, said: str) -> None:
    with pytest.raises(PricesError) as refused:
        parse_prices(GOOD.replace('prompt = "0.15"', f"prompt = {written}").encode())
    assert str(refused.value) == f"models[1].prompt: {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'currency: must be its name in letters, 16 at most, such as "USD"'),
        (MODEL, "currency: must be its name"),
        (GOOD.replace("USD", "$"), "currency: must be its name"),
        (GOOD.replace("USD", "\\u001b[2J"), "currency: must be its name"),
        ('currency = "USD"', "models: there must be a table [[models]] for each model"),
        ('currency = "USD"\n[models."m"]\nprompt = "1"', "models: there must be a table [[models]] for each model"),
        ('currency = "USD"\nmodels = ["m"]', "models[1]: must be a table, under [[models]]"),
        (GOOD + "promt = '1'", "models[1].'promt': there is no such member; there are name, prompt, completion"),
        ('unit = "1k"\n' + GOOD, "'unit': there is no such member; there are currency, models"),
        (GOOD.replace('name = "m"\n', ""), "models[1].name: must be a model's name"),
        (GOOD.replace('"m"', '"a b"'), "models[1].name: must be a model's name"),
        (GOOD.replace('"m"', '"sk-0123456789abcdefghij"'), "models[1].name: holds a key"),
        (GOOD.replace('completion = "0.6"\n', ""), "models[1].completion: is missing"),
        (GOOD + MODEL, "models[2].name: m stands twice, first as models[1]"),
        (GOOD + 'prompt = "2"\n', "not TOML: Cannot overwrite a value (at line 6, column 13)"),
        (GOOD + 'currency = "EUR"', "models[1].'currency': there is no such member"),
        ("currency = USD", "not TOML: Invalid value (at line 1, column 12)"),
        (GOOD + f"cached = {'9' * 5000}", "not TOML: "),
        ("models = " + "[" * 5000, "not TOML: "),
        ("".join(["currency = 'USD'\n", *(MODEL.replace('"m"', f'"m{n}"') for n in range(65))]), "models: more than"),
        ("#" * (MAX_BYTES + 1), f"longer than {MAX_BYTES} bytes"),
    ],
)
def test_what_is_no_list_of_prices_is_refused_by_its_line_or_member(text: str, said: str) -> None:
    with pytest.raises(PricesError) as refused:
        parse_prices(text.encode())
    assert str(refused.value).startswith(said)


def test_bytes_that_are_no_text_are_refused_by_their_line() -> None:
    with pytest.raises(PricesError, match="line 3: not UTF-8 text"):
        parse_prices(b"# a\n# b\n# \xff\n")


def test_as_many_models_as_may_be_are_taken() -> None:
    models = "".join(MODEL.replace('"m"', f'"m{number}"') for number in range(MAX_MODELS))
    assert len(parse_prices(f"currency = 'USD'\n{models}".encode()).models) == MAX_MODELS


# --- as settings ----------------------------------------------------------------------------


def test_prices_are_recorded_among_the_settings_and_read_back() -> None:
    settings = RunSettings(seed=7, prices=parse_prices(GOOD.encode()))
    facts, texts = settings.recorded()
    assert facts == {
        "seed": 7,
        "prices_sha256": hashlib.sha256(GOOD.encode()).hexdigest(),
        "prices_currency": "USD",
        "prompt_price:m": "0.15",
        "completion_price:m": "0.6",
    }
    assert texts == {}
    assert RunSettings.from_recorded(facts, {}) == settings


@pytest.mark.parametrize(
    "prices",
    [
        Prices("US$", "0" * 64, {"m": {"prompt": "1", "completion": "1"}}),
        Prices("USD", "none", {"m": {"prompt": "1", "completion": "1"}}),
        Prices("USD", "0" * 64, {}),
        Prices("USD", "0" * 64, {"caf\u00e9": {"prompt": "1", "completion": "1"}}),
        Prices("USD", "0" * 64, {"m": {"prompt": "1"}}),
        Prices("USD", "0" * 64, {"m": {"prompt": "1", "completion": "1e3"}}),
        Prices("USD", "0" * 64, {"m": {"prompt": "1", "completion": "1", "image": "1"}}),
    ],
)
def test_prices_made_by_hand_are_held_to_the_rules_of_the_file(prices: Prices) -> None:
    with pytest.raises(ValidationError, match="prices"):
        RunSettings(prices=prices)
