"""``ping``: will this endpoint do?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.program import Program
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
MODEL = ("--model", "mock-1")


def test_an_endpoint_that_does_ends_with_0(program: Program, against: Against) -> None:
    against(content='{"ready": true}')
    ended = program("ping", *MODEL)
    assert (ended.code, ended.err) == (0, "")
    assert "A run may begin." in ended.text
    assert program("ping", *MODEL, "--json").json["ok"] is True


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 1), (400, 1)])
def test_an_endpoint_that_refuses_is_told_apart_from_one_that_cannot(
    program: Program, against: Against, status: int, code: int
) -> None:
    against({"status": status, "repeat": 10})
    ended = program("ping", *MODEL)
    assert ended.code == code
    assert str(status) in ended.text
    assert "key-of-the-tests" not in ended.text


def test_an_unreachable_endpoint_ends_with_4(program: Program) -> None:
    ended = program("ping", "--base-url", "http://127.0.0.1:9", "--no-api-key")
    assert ended.code == 4
    assert "transport_connect" in ended.text


def test_without_a_key_nothing_is_asked(program: Program, against: Against) -> None:
    endpoint = against()
    del program.variables["REPLAY_LEDGER_API_KEY"]
    ended = program("ping", *MODEL)
    assert (ended.code, ended.out) == (2, b"")
    assert "REPLAY_LEDGER_API_KEY" in ended.err
    assert endpoint.stats()["calls"] == 0


def test_what_an_endpoint_says_does_not_act_on_the_terminal(program: Program, against: Against) -> None:
    against({"status": 500, "body": "\x1b[2Jboom", "repeat": 10})
    ended = program("ping", *MODEL)
    assert ended.code == 1
    assert b"\x1b" not in ended.out


def test_a_model_that_the_endpoint_does_not_list_is_asked_about_at_the_end(program: Program, against: Against) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": '{"ready": true}'}}
    against({"status": 200, "body": {"id": "c-1", "model": "mock-1", "choices": [choice]}, "repeat": 10})
    ended = program("ping", "--model", "another")
    assert ended.code == 0
    assert "is this the model that you mean?" in ended.text.splitlines()[-1]
