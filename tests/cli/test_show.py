"""``show`` gives out no text in silence that is not the one that was recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.program import Program, write_requests
from tests.harness.mock_endpoint import MockEndpoint
from tests.ledger.integrity.tampering import tamper
from tests.ledger.store.making import plain_sql

Against = Callable[..., MockEndpoint]
MATCHES_NOT = "does not match the record: it is not what its event committed to"


@pytest.fixture
def recorded(program: Program, against: Against, ledger_url: str) -> Program:
    """A ledger with one run of two requests, on each database."""
    against()
    program.variables["REPLAY_LEDGER_LEDGER"] = ledger_url
    file = write_requests(program.folder / "in.jsonl", 2)
    assert program("run", file, "--run-id", "r1", "--description", "nightly", "-j", "1").code == 0
    return program


def position_of(url: str, type_: str, request_id: str | None = None) -> int:
    with plain_sql(url) as run:
        where = "" if request_id is None else f" AND request_id = '{request_id}'"
        ((position,),) = run(f"SELECT min(position) FROM events WHERE type = '{type_}'{where}")
    return int(position)


def test_another_text_in_the_place_of_an_answer_is_named_where_it_stands_and_at_the_end(
    recorded: Program, ledger_url: str
) -> None:
    assert recorded("show", "r1", "INC-2").code == 0
    at = position_of(ledger_url, "OutputAccepted", "INC-2")
    tamper(ledger_url, f"UPDATE contents SET body = replace(body, 'high', 'low') WHERE position = {at}")
    for more in ((), ("--content",)):
        shown = recorded("show", "r1", "INC-2", *more)
        assert shown.code == 1
        assert f"The content of position {at} {MATCHES_NOT}." in shown.err
        assert "`replay-ledger verify` says what else does not match." in shown.err
        before, after = shown.text.split("content that DOES NOT MATCH THE RECORD")
        assert "OutputAccepted" in before
        assert '"low"' in after
    told = recorded("show", "r1", "INC-2", "--json")
    assert told.code == 1
    assert [event["position"] for event in told.json["events"] if event.get("content_altered")] == [at]
    assert (recorded("show", "r1", "INC-1").code, recorded("show", "r1").code) == (0, 0)


def test_a_text_that_is_gone_is_missing_and_one_that_was_erased_is_not(recorded: Program, ledger_url: str) -> None:
    assert recorded("redact", "--run", "r1", "--request", "INC-1", "--reason", "asked", "--yes").code == 0
    erased = recorded("show", "r1", "INC-1")
    assert (erased.code, erased.err) == (0, "")
    assert "content redacted, by event" in erased.text
    at = position_of(ledger_url, "ModelCalled", "INC-2")
    tamper(ledger_url, f"DELETE FROM contents WHERE position = {at}")
    shown = recorded("show", "r1", "INC-2")
    assert shown.code == 1
    assert f"The content of position {at} is missing and no redaction says why." in shown.err
    assert "content that is MISSING" in shown.text


def test_another_text_in_the_place_of_what_was_said_of_a_run_is_named(recorded: Program, ledger_url: str) -> None:
    at = position_of(ledger_url, "RunStarted")
    for body, said in (("""{"description": "weekly"}""", {"description": "weekly"}), ("[7]", None)):
        tamper(ledger_url, f"UPDATE contents SET encoding = 'utf-8', body = '{body}' WHERE position = {at}")
        shown, told = recorded("show", "r1"), recorded("show", "r1", "--json")
        assert (shown.code, told.code) == (1, 1)
        assert f"The content of position {at} {MATCHES_NOT}." in shown.err
        assert "what was said of it at its start DOES NOT MATCH THE RECORD" in shown.text
        assert (told.json["said_altered"], told.json["said"]) == (True, said)
