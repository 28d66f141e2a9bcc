"""From the options of ``run`` to the plan of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from commands._failures import Refused
from commands._keys import find_key, header_values, read_headers
from commands._run_options import DEFAULT_MODEL, NVIDIA_BASE_URL, settings_from
from commands._session import Session
from commands._who import git_commit, who_runs
from runner.endpoint import Endpoint, EndpointError
from runner.model_client import ClientConfigError, ModelClient
from runner.plan import RunPlan
from runner.scrub import MIN_SECRET_CHARS, looks_like_key


def find_base_url(state: Session, given: str | None) -> tuple[str, bool]:
    """(the base URL, whether it was taken from ``OPENAI_BASE_URL``)."""
    if given is not None:
        return given, False
    from_openai = state.variable("OPENAI_BASE_URL")
    return (from_openai, True) if from_openai else (NVIDIA_BASE_URL, False)


def parse_endpoint(base_url: str) -> Endpoint:
    """Raises ``Refused`` for a base URL that does not name one endpoint."""
    try:
        return Endpoint.parse(base_url)
    except EndpointError as error:
        raise Refused(f"--base-url: {error}") from None


def make_plan(state: Session, given: dict[str, Any], *, needs_key: bool) -> tuple[RunPlan, str]:
    """The plan, and where its key came from or was looked for.

    Without ``needs_key`` neither key nor header values are looked for. Raises ``Refused``.
    """
    base_url, from_openai = find_base_url(state, given["base_url"])
    no_key = bool(given["no_api_key"])
    check_proxy(given["proxy"])
    endpoint = parse_endpoint(base_url)
    variables = read_headers(given["header"])
    values = header_values(state, variables) if needs_key else {}
    settings = settings_from(given, variables, no_api_key=no_key)
    key = find_key(
        state,
        endpoint,
        base_url_from_openai=from_openai,
        key_variable=given["api_key_env"],
        key_file=given["api_key_file"],
        no_key=no_key or not needs_key,
    )
    # Before anything is recorded: what the client would refuse later would leave a run behind.
    checked_client(endpoint, key.value, values, ca_file=settings.ca_file, proxy=settings.proxy)
    _refuse_secrets(given, [key.value, *values.values()])
    who = who_runs(given["actor"])
    plan = RunPlan(
        settings=settings,
        model=given["model"] or DEFAULT_MODEL,
        base_url=base_url,
        actor=who.actor,
        api_key=key.value,
        header_values=values,
        operator=who.operator,
        host=who.host,
        run_id=given["run_id"],
        variant=given["variant"],
        tags=tags_from(given["tags"]),
        description=given["description"],
        git_commit=git_commit() if needs_key else None,
    )
    return plan, key.source


def tags_from(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The tags by name. Raises ``Refused`` for a name that is given twice."""
    tags: dict[str, str] = {}
    for name, value in pairs:
        if name in tags:
            raise Refused(f"--tag: {name} is given twice")
        tags[name] = value
    return tags


def _refuse_secrets(given: Mapping[str, Any], secrets: Iterable[str | None]) -> None:
    """Raise ``Refused`` where a text that would be recorded holds a secret of this invocation, or one by its look."""
    sought = [secret for secret in secrets if secret and len(secret) >= MIN_SECRET_CHARS]
    for name in ("description", "extra_body", "stop", "tags", "model", "prices"):
        text = json.dumps(given[name], ensure_ascii=False)
        if looks_like_key(text) or any(secret in text for secret in sought):
            raise Refused(f"--{name.replace('_', '-')} holds a key, and would be recorded with the run")


def checked_client(
    endpoint: Endpoint, api_key: str | None, headers: Mapping[str, str], *, ca_file: str | None, proxy: str | None
) -> ModelClient:
    """A client for the endpoint, not connected. Raises ``Refused`` for a key, header, file or proxy unfit for use."""
    try:
        return ModelClient(endpoint, api_key=api_key, headers=headers, ca_file=ca_file, proxy=proxy)
    except ClientConfigError as error:
        raise Refused(str(error)) from None


def check_proxy(url: str | None) -> None:
    """Raise ``Refused`` for a proxy with a user name or a password: the settings of a run are recorded."""
    if url is not None and "@" in url:
        raise Refused("--proxy: a user name or password in it would be recorded with the run")
