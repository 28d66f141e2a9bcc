"""The options of ``run``, and the settings that they make.

An option that is not given stays None: it is not sent, and not recorded as if it had been given.
Its default is the one of ``RunSettings``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import click
from pydantic import ValidationError

from commands._failures import Refused
from commands._in_files import read_in
from commands._options import F, option
from commands._types import (
    LARGEST,
    DecimalNumber,
    Identifier,
    IdPair,
    LineRange,
    ModelName,
    PlainText,
    RunId,
    is_utf8,
)
from ledger.projections.cost import Prices
from runner.prices import MAX_BYTES, PricesError, parse_prices
from runner.settings import RunSettings
from runner.strict_json import StrictJsonError, loads
from runner.variants import UnknownVariant, variant_named

NVIDIA_BASE_URL: Final = "https://integrate.api.nvidia.com/v1"
DEFAULT_MODEL: Final = "nvidia/llama-3.3-nemotron-super-49b-v1.5"
NOT_IN_EXTRA_BODY: Final = frozenset({"messages", "model", "stream", "n", "tools"})

_SECONDS = DecimalNumber(above=0, at_most=86_400)
_RATE = DecimalNumber(at_least=0, at_most=1)


def _default(name: str) -> str:
    return f"[default: {RunSettings.model_fields[name].default}]"


MODEL_OPTIONS: Final = (
    option("--model", type=ModelName(), metavar="NAME", help=f"The model asked for. [default: {DEFAULT_MODEL}]"),
    option(
        "--base-url",
        metavar="URL",
        help=f"The endpoint, with or without /v1. [default: OPENAI_BASE_URL, else {NVIDIA_BASE_URL}]",
    ),
)
HEADER_OPTION: Final = option(
    "--header",
    "header",
    multiple=True,
    metavar="NAME=env:VARIABLE",
    help="Send a header whose value the variable holds; the value is never recorded. May be repeated.",
)
CONNECTION_OPTIONS: Final = (
    HEADER_OPTION,
    option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Certificates (PEM) to trust."),
    option(
        "--proxy",
        type=PlainText(),
        metavar="URL",
        help="Proxy to go through. Proxy variables of the environment are not followed.",
    ),
)
PACE_OPTIONS: Final = (
    option(
        "-j", "--concurrency", type=click.IntRange(1, 1024), help=f"Calls in flight at most. {_default('concurrency')}"
    ),
    option("--rpm", type=click.IntRange(1, LARGEST), help="Calls a minute at most."),
)


class VariantName(click.ParamType[str]):
    """A variant's id or profile, or ``baseline``; given on by the name that a run takes."""

    name = "variant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return variant_named(str(value)).override
        except UnknownVariant as error:
            self.fail(str(error), param, ctx)


class PricesFile(click.ParamType[Prices]):
    """A file of prices, read and parsed."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Prices:
        if isinstance(value, Prices):
            return value
        try:
            return parse_prices(read_in(str(value), MAX_BYTES + 1))
        except OSError as error:
            self.fail(f"{value}: {error.strerror}", param, ctx)
        except PricesError as error:
            self.fail(f"{value}: {error}", param, ctx)
        except ValueError:  # a name with U+0000 in it
            self.fail("no file can have this name", param, ctx)


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object, parsed strictly: a key given twice is refused at any depth."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            parsed = loads(str(value))
        except StrictJsonError as error:
            self.fail(f"not JSON: {error.message}", param, ctx)
        if not isinstance(parsed, dict):
            self.fail("not a JSON object", param, ctx)
        if not is_utf8(str(value)):
            self.fail("not UTF-8 text", param, ctx)
        return parsed


EXTRA_BODY_OPTION: Final = option(
    "--extra-body",
    type=JsonObject(),
    metavar="JSON",
    help="Further members of the body (not messages, model, stream, n, tools).",
)
SAMPLING_OPTIONS: Final = (
    option(
        "--attempt-timeout",
        type=_SECONDS,
        metavar="SECONDS",
        help=f"Whole time of one HTTP exchange. {_default('attempt_timeout')}",
    ),
    option(
        "--request-timeout",
        type=_SECONDS,
        metavar="SECONDS",
        help=f"Whole time of one request, waits and retries with it. {_default('request_timeout')}",
    ),
    option(
        "--max-attempts", type=click.IntRange(1, 100), help=f"HTTP exchanges a turn at most. {_default('max_attempts')}"
    ),
    option("--temperature", type=DecimalNumber(at_least=0), help="Sampling temperature."),
    option("--top-p", type=DecimalNumber(), help="Nucleus sampling."),
    option("--max-tokens", type=click.IntRange(1, LARGEST), help="Tokens of an answer at most."),
    option(
        "--max-tokens-field",
        type=click.Choice(["max_tokens", "max_completion_tokens"]),
        help=f"The body's member that carries --max-tokens. {_default('max_tokens_field')}",
    ),
    option("--seed", type=click.IntRange(-LARGEST, LARGEST), help="Sampling seed."),
    option("--stop", type=PlainText(), multiple=True, metavar="TEXT", help="Stop sequence. May be repeated."),
    option("--reasoning-effort", metavar="WORD", help="low, medium, high, or what the endpoint takes."),
    option(
        "--response-format",
        type=click.Choice(["none", "json_object", "json_schema"]),
        help=f"Ask the endpoint for JSON. {_default('response_format')}",
    ),
    EXTRA_BODY_OPTION,
)
SELECTION_OPTIONS: Final = (
    option(
        "--limit",
        type=LineRange(),
        metavar="N|A-B",
        help="Take the first N requests, or the A-th to the B-th. "
        "Where a selection takes no line of a file, nothing is recorded.",
    ),
    option("--request-id", "request_ids", type=Identifier(), multiple=True, help="Take this request. May be repeated."),
    option("--sample", type=click.IntRange(1, LARGEST), help="Take N requests drawn by --sample-seed."),
    option(
        "--sample-seed", type=click.IntRange(0, LARGEST), help="The same seed draws the same requests. [default: 0]"
    ),
)
POLICY_OPTIONS: Final = (
    option(
        "--on-leak",
        type=click.Choice(["abort", "reject"]),
        help=f"A request that holds its own evaluation labels stops the run, or is left out. {_default('on_leak')}",
    ),
    option(
        "--on-invalid",
        type=click.Choice(["abort", "reject"]),
        help=f"A line that is no request stops the run, or is left out. {_default('on_invalid')}",
    ),
    option(
        "--max-fallback-rate", type=_RATE, metavar="RATE", help="Exit 1 where fallbacks / requests is above (0 to 1)."
    ),
    option(
        "--max-error-rate",
        type=_RATE,
        metavar="RATE",
        help="Exit 1 where fallbacks by a transport code / requests is above (0 to 1).",
    ),
)
PRICES_OPTION: Final = option(
    "--prices",
    type=PricesFile(),
    metavar="FILE",
    help="What a million tokens of each model cost, in TOML (docs/prices.md): recorded, and the report tells the cost.",
)
NAMING_OPTIONS: Final = (
    option(
        "--variant",
        type=VariantName(),
        help="How the candidate is prompted, over what the file says: baseline, or "
        "nemo_nemotron_fabric__contract_tuned_v1, which has a corrective second turn.",
    ),
    option("--run-id", type=RunId(), help="The run's name, over what the file says."),
    option("--tag", "tags", type=IdPair(), multiple=True, metavar="NAME=VALUE", help="Recorded. May be repeated."),
    option("--description", type=PlainText(), metavar="TEXT", help="What this run is for; kept as content."),
)
SETTING_NAMES: Final = frozenset(RunSettings.model_fields) - {"headers", "no_api_key"}


def run_options(command: F) -> F:
    """Every option of a run but its key, in the order of the help."""
    groups = (MODEL_OPTIONS, NAMING_OPTIONS, PACE_OPTIONS, SAMPLING_OPTIONS, CONNECTION_OPTIONS)
    options = [one for group in (*groups, SELECTION_OPTIONS, POLICY_OPTIONS) for one in group]
    for decorate in reversed([*options, PRICES_OPTION]):
        command = decorate(command)
    return command


def settings_from(given: dict[str, Any], headers: dict[str, str], *, no_api_key: bool) -> RunSettings:
    """The settings that were given, and no others. Raises ``Refused`` naming the option at fault."""
    values = {name: value for name, value in given.items() if name in SETTING_NAMES and value not in (None, ())}
    if headers:
        values["headers"] = headers
    if no_api_key:
        values["no_api_key"] = True
    _check_together(values)
    try:
        return RunSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else "options"
        raise Refused(f"{name}: {first['msg']}") from None


def _check_together(values: dict[str, Any]) -> None:
    check_extra_body(values.get("extra_body"))
    if "sample_seed" in values and "sample" not in values:
        raise Refused("--sample-seed goes with --sample")
    if "max_tokens_field" in values and "max_tokens" not in values:
        raise Refused("--max-tokens-field goes with --max-tokens")


def check_extra_body(members: dict[str, Any] | None) -> None:
    """Raise ``Refused`` for members of the body that are the program's own, and for secrets: bodies are recorded."""
    clash = sorted(NOT_IN_EXTRA_BODY & (members or {}).keys())
    if clash:
        raise Refused(f"--extra-body: {', '.join(clash)} may not be given there")
    secret = next(_secret_names(members), None)
    if secret is not None:
        raise Refused(
            f"--extra-body: what is sent is recorded, and {secret!a} is the name of a secret; "
            "secrets go by --header NAME=env:VARIABLE"
        )


_SECRET_NAMES: Final = frozenset(
    {"apikey", "xapikey", "authorization", "accesstoken", "authtoken", "token", "secret", "clientsecret", "password"}
)


def _secret_names(value: object) -> Iterator[str]:
    """The names of members, at any depth, that hold a secret by what they are called."""
    if isinstance(value, dict):
        yield from (name for name in value if re.sub("[-_ ]", "", name).lower() in _SECRET_NAMES)
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _secret_names(item)
