"""Which API key goes where. A key is never the value of an option, and never travels to a stranger.

``NVIDIA_API_KEY`` is used only towards NVIDIA's own hosts and ``OPENAI_API_KEY`` only towards
OpenAI's, or towards a base URL that was itself taken from ``OPENAI_BASE_URL``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from commands._failures import Refused
from commands._output import say
from commands._session import Session, readable_by_others
from runner.endpoint import Endpoint
from runner.scrub import MIN_SECRET_CHARS

_NVIDIA_HOST: Final = "integrate.api.nvidia.com"
_NVIDIA_DOMAIN: Final = ".api.nvidia.com"
_OPENAI_HOST: Final = "api.openai.com"
_LARGEST_KEY_FILE: Final = 64 * 1024


@dataclass(frozen=True)
class ApiKey:
    """The key, or None, and in words where it came from or where it was looked for."""

    value: str | None = field(repr=False)
    source: str


def find_key(
    state: Session,
    endpoint: Endpoint,
    *,
    base_url_from_openai: bool = False,
    key_variable: str | None = None,
    key_file: str | None = None,
    no_key: bool = False,
) -> ApiKey:
    """The key for this endpoint; the session will keep it out of what is printed.

    Raises ``Refused`` where two ways are asked for at once, or what was found cannot be a key.
    """
    if sum((key_variable is not None, key_file is not None, no_key)) > 1:
        raise Refused("give one of --api-key-env, --api-key-file and --no-api-key")
    if no_key:
        return ApiKey(None, "no place, as none is wanted")
    if key_file is not None:
        found = ApiKey(_read_key_file(Path(key_file)), f"the file {key_file}")
    else:
        names = [key_variable] if key_variable else _variables_for(endpoint.host, base_url_from_openai)
        found = _first_of(state, names)
    if found.value is not None:
        state.keep_secret([found.value])
        check_secret(found.value, f"the API key in {found.source}")
    return found


def _variables_for(host: str, from_openai: bool) -> list[str]:
    names = ["REPLAY_LEDGER_API_KEY"]
    if host == _NVIDIA_HOST or host.endswith(_NVIDIA_DOMAIN):
        names.append("NVIDIA_API_KEY")
    if host == _OPENAI_HOST or from_openai:
        names.append("OPENAI_API_KEY")
    return names


def _first_of(state: Session, names: Iterable[str]) -> ApiKey:
    looked = []
    for name in names:
        value = state.variable(name)
        if value:
            return ApiKey(value, f"the variable {name}")
        looked.append(name)
    return ApiKey(None, " or ".join(looked))


def _read_key_file(path: Path) -> str | None:
    with path.open("rb") as file:
        raw = file.read(_LARGEST_KEY_FILE + 1)
    if len(raw) > _LARGEST_KEY_FILE:
        raise Refused(f"{path}: too large to hold an API key")
    if readable_by_others(path):
        say(f"Note: {path} can be read by other users of this machine.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{path}: not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r") or None


def check_secret(value: str, name: str) -> None:
    """Raise ``Refused`` where the value cannot stand in a header; say so where it is too short to be searched for."""
    if any(char in "\r\n" for char in value):
        raise Refused(f"{name} holds a line break; a key is one line")
    if any(char.isspace() for char in value):
        raise Refused(f"{name} holds white space; a key has none")
    if not value.isascii() or not value.isprintable():
        raise Refused(f"{name} holds a character outside printable ASCII, which no header can carry")
    if len(value) < MIN_SECRET_CHARS:
        say(
            f"Warning: {name} is shorter than {MIN_SECRET_CHARS} characters: "
            "it cannot be searched for in what the endpoint sends back."
        )


def read_headers(given: Iterable[str]) -> dict[str, str]:
    """``NAME=env:VARIABLE`` options as name -> variable. Raises ``Refused`` for anything else."""
    variables: dict[str, str] = {}
    for text in given:
        name, _, source = text.partition("=")
        variable = source.removeprefix("env:")
        if not name or not source.startswith("env:") or not variable:
            raise Refused("--header: expected NAME=env:VARIABLE; a header's value is given by a variable only")
        if name.lower() in {known.lower() for known in variables}:
            raise Refused(f"--header: {name} is given twice")
        variables[name] = variable
    return variables


def header_values(state: Session, variables: dict[str, str]) -> dict[str, str]:
    """The values that the named variables hold. Raises ``Refused`` naming a header without one."""
    values: dict[str, str] = {}
    for name, variable in variables.items():
        value = state.variable(variable)
        if value is None:
            raise Refused(f"--header {name}: the variable {variable} is not set")
        state.keep_secret([value])
        values[name] = value
    return values
