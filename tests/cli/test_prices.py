"""``run --prices``: what a run cost, from the file to the report and to SQL."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Program
from tests.cli.test_resume import end_of, wait_for_calls
from tests.harness.mock_endpoint import MockEndpoint

Against = Callable[..., MockEndpoint]
PRICES = 'currency = "USD"\n[[models]]\nname = "m"\nprompt = "0.15"\ncompletion = "0.6"\n'
ANSWER = {"proposed_action": "wait", "action_plan": ["wait"], "risk_level": "low"} | dict.fromkeys(
    ("requires_human_approval", "blocked_by_policy"), False
)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.toml"
    file.write_text(PRICES, encoding="utf-8")
    return file


def reply(model: str | None = "m", usage: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """A scripted 200 with a sound answer."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": json.dumps(ANSWER)}, "finish_reason": "stop"}
        ],
    }
    body |= {} if model is None else {"model": model}
    body |= {} if usage is None else {"usage": usage}
    return {"status": 200, "body": body, **more}


USED = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


def test_a_run_tells_what_it_cost_in_its_report_in_sql_and_in_words(
    program: Program, against: Against, three: Path, prices: Path, ledger_url: str
) -> None:
    refused = {"status": 429, "body": {"error": {"message": "slow down"}}, "headers": {"Retry-After": "0"}}
    against(refused, reply(usage=USED), reply(usage=USED), reply(usage=USED))
    ended = program("run", three, "--model", "m", "--prices", prices, "--json", "-j", "1", "--ledger", ledger_url)
    assert ended.code == 0, ended.err
    cost = ended.json["cost"]
    assert cost == {
        "currency": "USD",
        "known": "0.00063",
        "total": "0.00063",  # 3 x (1,000 x 0.15 + 100 x 0.6) / 1,000,000
        "calls_priced": 3,
        "calls_not_billed": 1,
        "calls_without_cost": 0,
        "prices": {"m": {"completion": "0.6", "prompt": "0.15"}},
        "prices_sha256": hashlib.sha256(PRICES.encode()).hexdigest(),
    }
    assert "  cost: 0.00063 USD\n" in ended.err
    asked = "SELECT known, total, calls_priced, calls_not_billed, calls_without_cost FROM run_costs"
    answered = program("sql", asked, "--format", "json", "--ledger", ledger_url)
    assert answered.json == [{name: cost[name] for name in answered.json[0]}]
    assert program("rebuild", "--check", "--ledger", ledger_url).code == 0
    assert program("verify", "--ledger", ledger_url).code == 0


def test_an_answer_under_another_name_and_one_without_usage_have_an_unknown_cost(
    program: Program, against: Against, three: Path, prices: Path
) -> None:
    long_name = "example/a-model-with-a-long-name"
    prices.write_text(PRICES + PRICES.partition("\n")[2].replace('"m"', f'"{long_name}"'), encoding="utf-8")
    against(reply(usage=USED), reply(model="m-2026-05-01", usage=USED), reply())
    ended = program("run", three, "--model", "m", "--prices", prices, "--json", "-j", "1")
    cost = ended.json["cost"]
    assert (cost["known"], cost["total"], cost["calls_without_cost"]) == ("0.00021", None, 2)
    assert "cost: unknown for 2 of 3 calls; 0.00021 USD else" in ended.err
    assert f"    prompt_price:{long_name} 0.15\n" in program("show", "latest").text


def test_a_resume_goes_by_the_prices_that_were_recorded_whatever_became_of_the_file(
    program: Program, against: Against, three: Path, prices: Path
) -> None:
    endpoint = against({"hang": True, "match": "incident 1."})
    process = program.start("run", three, "--model", "m", "--prices", prices, "--run-id", "r1", "-j", "1")
    wait_for_calls(endpoint, 1)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert end_of(process)[0] == 130
    prices.write_text(PRICES.replace("0.15", "99"), encoding="utf-8")
    asked = program("resume", "r1", "--prices", prices)
    assert (asked.code, "No such option" in asked.err) == (2, True)
    resumed = program("resume", "r1", "--json", env={"REPLAY_LEDGER_PRICES": str(prices)})
    assert resumed.code == 0, resumed.err
    cost, tokens = resumed.json["cost"], resumed.json["tokens"]
    assert cost["prices"]["m"]["prompt"] == "0.15"
    assert cost["prices_sha256"] == hashlib.sha256(PRICES.encode()).hexdigest()
    spent = tokens["prompt"] * Fraction("0.15") + tokens["completion"] * Fraction("0.6")
    assert Fraction(cost["known"]) == spent / 1_000_000
    # Of the call that was cut off nobody knows.
    assert (cost["total"], cost["calls_priced"], cost["calls_without_cost"]) == (None, 3, 1)


def test_a_dry_run_reads_the_prices_and_says_where_one_is_missing(program: Program, three: Path, prices: Path) -> None:
    ended = program("run", three, "--dry-run", "--model", "other", "--prices", prices, "--json")
    assert ended.code == 0, ended.err
    digest = hashlib.sha256(PRICES.encode()).hexdigest()
    assert ended.json["prices"] == {
        "currency": "USD",
        "models": {"m": {"prompt": "0.15", "completion": "0.6"}},
        "prices_sha256": digest,
    }
    assert f"Prices in USD of 1 model; SHA-256 of the file {digest}\n" in ended.err
    assert "Warning: there is no price of other: " in ended.err
    assert "Warning" not in program("run", three, "--dry-run", "--model", "m", "--prices", prices).err
    assert program("run", three, "--dry-run", "--json").json["prices"] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PRICES.replace('"0.15"', "0.15"), "models[1].prompt: 0.15 is a number; a price is a decimal string in quotes"),
        (PRICES.replace("0.15", "-1"), "models[1].prompt: '-1' is no price: a decimal string of"),
        ("currency = ", "not TOML: Invalid value (at end of document)"),
        (PRICES.replace('"m"', '"sk-0123456789abcdefghij"'), "models[1].name: holds a key"),
    ],
)
def test_a_bad_file_is_refused_by_its_name_and_member_before_anything_is_made(
    program: Program, three: Path, prices: Path, text: str, said: str
) -> None:
    prices.write_text(text, encoding="utf-8")
    ended = program("run", three, "--prices", prices, "--no-api-key")
    assert ended.code == 2
    assert f"{prices}: {said}" in ended.err
    assert "sk-0123" not in ended.err
    assert sorted(path.name for path in program.folder.iterdir()) == [three.name, prices.name]


def test_a_file_that_cannot_be_read_is_named(program: Program, three: Path, tmp_path: Path) -> None:
    for name, why in (
        ("none.toml", "No such file"),
        (".", "Is a directory"),
        (os.devnull, "neither a file nor a pipe"),
    ):
        ended = program("run", three, "--prices", name, "--dry-run")
        assert ended.code == 2, ended.err
        assert why in ended.err
        assert name in ended.err


def test_the_prices_may_be_named_in_a_file_of_options(
    program: Program, three: Path, prices: Path, tmp_path: Path
) -> None:
    (tmp_path / "nightly.toml").write_text('[run]\nprices = "prices.toml"\n', encoding="utf-8")
    tried = program("run", three, "--dry-run", "--json", "--config", "nightly.toml")
    assert tried.json["prices"]["currency"] == "USD"
    (tmp_path / "nightly.toml").write_text('[run]\nprices = "a\\u0000b"\n', encoding="utf-8")
    assert program("run", three, "--dry-run", "--config", "nightly.toml").code == 2


def test_a_key_of_this_invocation_among_the_names_is_refused(program: Program, three: Path, prices: Path) -> None:
    prices.write_text(PRICES.replace('"m"', '"key-of-the-tests-0123"'), encoding="utf-8")
    ended = program("run", three, "--prices", prices, env={"REPLAY_LEDGER_API_KEY": "key-of-the-tests-0123"})
    assert ended.code == 2
    assert "--prices holds a key" in ended.err
