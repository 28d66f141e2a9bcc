"""``ping``: ask an endpoint, before a long run, whether it will do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import click

from commands._click import Command
from commands._failures import NO, OK, UNAVAILABLE, Refused
from commands._keys import find_key, header_values, read_headers
from commands._options import json_option, key_options, option
from commands._output import json_line, write_data
from commands._plan import checked_client, find_base_url, parse_endpoint
from commands._run_options import CONNECTION_OPTIONS, DEFAULT_MODEL, EXTRA_BODY_OPTION, MODEL_OPTIONS, check_extra_body
from commands._session import Session, session
from commands._types import DecimalNumber
from ledger.render.safe import terminal
from runner.model_client import ModelClient
from runner.ping import PingResult
from runner.ping import ping as ask

_QUESTIONS: Final = {
    "reachable": "answers at all",
    "key": "takes the key",
    "model": "knows the model",
    "answers": "answers in full",
    "json_without_mode": "keeps to JSON unasked",
    "json_mode": "keeps to JSON in JSON mode",
}


@click.command(
    cls=Command,
    ledger=False,
    examples=[
        "replay-ledger ping",
        "replay-ledger ping --base-url http://localhost:8000/v1 --model my-model --no-api-key",
        "replay-ledger ping --json | jq .checks.json_mode",
    ],
)
@MODEL_OPTIONS[0]
@MODEL_OPTIONS[1]
@key_options
@CONNECTION_OPTIONS[0]
@CONNECTION_OPTIONS[1]
@CONNECTION_OPTIONS[2]
@EXTRA_BODY_OPTION
@option("--timeout", type=DecimalNumber(above=0, at_most=3600), metavar="SECONDS", help="For each call. [default: 60]")
@json_option
@click.pass_context
def ping(ctx: click.Context, /, timeout: str | None, as_json: bool, **given: Any) -> int:
    """Ask an endpoint, before a long run, whether it will do.

    Does it take the key, know the model, keep to JSON? Three small calls, nothing is recorded.
    Without JSON mode a run works as well.

    \b
    Exit: 0 a run may begin, even if the list of models lacks yours; 1 it answers, but gives no
    completion; 2 no key; 4 it cannot be reached or refuses the key.
    """
    model = given["model"] or DEFAULT_MODEL
    check_extra_body(given["extra_body"])
    client = _client(session(ctx), given)
    result = asyncio.run(_ask(client, model, float(timeout or 60), given["extra_body"]))
    if as_json:
        write_data([json_line(result.as_dict())])
    else:
        write_data(line.encode("utf-8") + b"\n" for line in _lines(result))
    return _exit_code(result)


def _client(state: Session, given: dict[str, Any]) -> ModelClient:
    base_url, from_openai = find_base_url(state, given["base_url"])
    endpoint = parse_endpoint(base_url)
    key = find_key(
        state,
        endpoint,
        base_url_from_openai=from_openai,
        key_variable=given["api_key_env"],
        key_file=given["api_key_file"],
        no_key=given["no_api_key"],
    )
    if key.value is None and not given["no_api_key"]:
        raise Refused(f"no API key: none in {key.source}. For an endpoint that needs none there is --no-api-key.")
    headers = header_values(state, read_headers(given["header"]))
    return checked_client(endpoint, key.value, headers, ca_file=given["ca_file"], proxy=given["proxy"])


async def _ask(client: ModelClient, model: str, timeout: float, extra: dict[str, Any] | None) -> PingResult:
    async with client:
        return await ask(client, model, timeout=timeout, extra=extra)


def _lines(result: PingResult) -> Iterator[str]:
    yield f"{terminal(result.endpoint)}, model {terminal(result.model)}"
    for check in result.checks:
        yield f"  {_QUESTIONS[check.name]:<28}{check.verdict:<9}{terminal(check.detail)}"
    yield _conclusion(result)


def _conclusion(result: PingResult) -> str:
    if not result.ok:
        return "A run would not succeed."
    unlisted = any(check.name == "model" and check.verdict == "no" for check in result.checks)
    return "A run may begin, but is this the model that you mean? See above." if unlisted else "A run may begin."


def _exit_code(result: PingResult) -> int:
    if result.ok:
        return OK
    verdicts = {check.name: check.verdict for check in result.checks}
    return UNAVAILABLE if "no" in (verdicts["reachable"], verdicts["key"]) else NO
