"""Which key goes where, and which goes nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands._failures import Refused
from commands._keys import find_key, header_values, read_headers
from commands._session import Session
from runner.endpoint import Endpoint
from runner.scrub import MARKER

NVIDIA = Endpoint.parse("https://integrate.api.nvidia.com/v1")
NVIDIA_OTHER = Endpoint.parse("https://ai.api.nvidia.com/v1")
OPENAI = Endpoint.parse("https://api.openai.com/v1")
STRANGERS = [
    "https://models.example/v1",
    "https://integrate.api.nvidia.com.evil.example/v1",
    "https://evil-api.nvidia.com/v1",
    "https://nvidia.com/v1",
    "https://xapi.openai.com/v1",
    "https://api.openai.com.evil.example/v1",
    "http://127.0.0.1:8000/v1",
]
EVERYBODYS = {"NVIDIA_API_KEY": "nvidia-key-0123456789", "OPENAI_API_KEY": "openai-key-0123456789"}


def state(**variables: str) -> Session:
    return Session(process_environment=variables)


@pytest.mark.parametrize("base_url", STRANGERS)
def test_a_providers_key_never_travels_to_another_host(base_url: str) -> None:
    assert find_key(state(**EVERYBODYS), Endpoint.parse(base_url)).value is None


@pytest.mark.parametrize(
    ("endpoint", "name"), [(NVIDIA, "NVIDIA_API_KEY"), (NVIDIA_OTHER, "NVIDIA_API_KEY"), (OPENAI, "OPENAI_API_KEY")]
)
def test_a_providers_key_is_used_towards_its_own_host(endpoint: Endpoint, name: str) -> None:
    found = find_key(state(**EVERYBODYS), endpoint)
    assert (found.value, found.source) == (EVERYBODYS[name], f"the variable {name}")


def test_the_key_of_openai_goes_to_the_base_url_that_its_own_variable_names() -> None:
    endpoint = Endpoint.parse("https://gateway.example/v1")
    assert find_key(state(**EVERYBODYS), endpoint, base_url_from_openai=True).value == EVERYBODYS["OPENAI_API_KEY"]


def test_our_own_variable_comes_before_a_providers() -> None:
    found = find_key(state(REPLAY_LEDGER_API_KEY="own-key-0123456789", **EVERYBODYS), NVIDIA)
    assert found.value == "own-key-0123456789"


def test_a_named_variable_is_the_only_one_looked_at() -> None:
    found = find_key(state(REPLAY_LEDGER_API_KEY="own-key-0123456789", **EVERYBODYS), NVIDIA, key_variable="MINE")
    assert (found.value, found.source) == (None, "MINE")


def test_a_key_may_stand_in_the_env_file() -> None:
    session = Session(process_environment={}, file_environment={"REPLAY_LEDGER_API_KEY": "from-file-0123"})
    assert find_key(session, NVIDIA).value == "from-file-0123"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_key_file_may_end_its_line(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"key-in-a-file-0123" + ending.encode())
    path.chmod(0o600)
    assert find_key(state(), NVIDIA, key_file=str(path)).value == "key-in-a-file-0123"


def test_a_key_file_that_others_can_read_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key"
    path.write_text("key-in-a-file-0123\n")
    path.chmod(0o644)
    find_key(state(), NVIDIA, key_file=str(path))
    assert "can be read by other users" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("two lines\nof-key-0123", "line break"),
        ("a key with blanks", "white space"),
        ("schlüssel-0123456", "printable ASCII"),
        ("bell\x07-0123456789", "printable ASCII"),
    ],
)
def test_what_no_header_can_carry_is_refused_without_showing_it(key: str, says: str) -> None:
    with pytest.raises(Refused, match=says) as refused:
        find_key(state(REPLAY_LEDGER_API_KEY=key), NVIDIA)
    assert key not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_short_key_is_used_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_key(state(REPLAY_LEDGER_API_KEY="short"), NVIDIA).value == "short"
    assert "cannot be searched for" in capsys.readouterr().err


def test_two_ways_to_give_a_key_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="one of"):
        find_key(state(), NVIDIA, key_variable="A", no_key=True)


def test_a_header_takes_its_value_from_a_variable_and_the_session_keeps_it_secret() -> None:
    session = state(TEAM="value-of-the-team")
    variables = read_headers(["X-Team=env:TEAM"])
    assert variables == {"X-Team": "TEAM"}
    assert header_values(session, variables) == {"X-Team": "value-of-the-team"}
    assert session.scrub("it said value-of-the-team.") == f"it said {MARKER.decode()}."


@pytest.mark.parametrize("given", [["X-Team=plain"], ["X-Team"], ["X-Team=env:"], ["=env:A"], ["A=env:B", "a=env:C"]])
def test_a_header_is_given_by_a_variable_and_once(given: list[str]) -> None:
    with pytest.raises(Refused, match="--header"):
        read_headers(given)


def test_a_header_whose_variable_is_not_set_is_refused() -> None:
    with pytest.raises(Refused, match="TEAM is not set"):
        header_values(state(), {"X-Team": "TEAM"})


def test_a_failure_is_told_without_any_secret_of_the_invocation() -> None:
    session = Session(process_environment={}, ledger="postgresql://ann:p%40ssword@host/db")
    assert session.place.shown == "postgresql://ann@host/db"
    find_key(Session(process_environment={"REPLAY_LEDGER_API_KEY": "sesame-0123456789"}), NVIDIA)
    session.keep_secret(["sesame-0123456789"])
    text = session.scrub("login p@ssword failed, p%40ssword; key sesame-0123456789; Bearer abcdefghijklmnopqrstuvwx")
    for secret in ("p@ssword", "p%40ssword", "sesame", "abcdefghijklmnop"):
        assert secret not in text
