"""What the calls of a run cost: exact, never guessed, and the same in the report and in SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.events import NewEvent, Payload, RunCompleted, new_event
from ledger.projections.cost import PICOS, CostTotals, Prices, decimal_text
from ledger.projections.counts import Outcomes
from ledger.projections.decisions import Decisions
from ledger.projections.projection import fold_all
from ledger.projections.report import ReportFold, report
from ledger.store import Store
from ledger.store.records import Unreadable
from tests.stories import (
    MODEL,
    accepted,
    as_events,
    call_failed,
    call_started,
    called,
    digest,
    output_accepted,
    started,
    stories,
    story,
)

ODD_NAME = "a\"b\\c:prompt_price:{d}'%s"
PRICES = Prices(
    "USD",
    digest("prices.toml"),
    {
        MODEL: {"prompt": "0.15", "completion": "0.6"},
        "example/parts": {"prompt": "2.5", "completion": "10", "cached": "1.25", "reasoning": "0"},
        ODD_NAME: {"prompt": "0.000001", "completion": "9999999.999999"},
    },
)


def cost_of(*payloads: Payload, prices: Prices | None = PRICES, unreadable: bool = False) -> dict[str, Any]:
    """The report's ``cost`` over one request's calls."""
    told = [(started(settings={} if prices is None else prices.settings()), None), (accepted(1, "INC-1"), "INC-1")]
    told += [(payload, "INC-1") for payload in payloads]
    fold = ReportFold("run-1")
    events = as_events(new_event(payload, run_id="run-1", request_id=request_id) for payload, request_id in told)
    for event in events:
        fold.fold(event)
    if unreadable:
        fold.fold(Unreadable(99, "run-1", "INC-1", "Retried", "altered"))
    cost: dict[str, Any] = fold.finish(bytes(32))["cost"]
    return cost


def answer(**changes: Any) -> tuple[Payload, Payload]:
    return call_started(1), called(1, **changes)


def test_a_run_without_prices_has_no_cost_whatever_it_used() -> None:
    assert cost_of(*answer(), prices=None) is None


def test_the_report_tells_the_sum_the_currency_the_prices_and_the_digest_of_their_file() -> None:
    assert cost_of(*answer()) == {
        "currency": "USD",
        "known": "0.000027",  # (100 x 0.15 + 20 x 0.6) / 1,000,000
        "total": "0.000027",
        "calls_priced": 1,
        "calls_not_billed": 0,
        "calls_without_cost": 0,
        "prices": PRICES.models,
        "prices_sha256": digest("prices.toml"),
    }


def test_a_run_that_called_nobody_cost_nothing_and_that_is_known() -> None:
    cost = cost_of()
    assert (cost["known"], cost["total"], cost["calls_without_cost"]) == ("0", "0", 0)


def test_each_attempt_that_was_answered_costs() -> None:
    cost = cost_of(*answer(), call_started(2, turn=2), called(2, turn=2))
    assert (cost["total"], cost["calls_priced"]) == ("0.000054", 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt_tokens": None, "total_tokens": None},
        {"completion_tokens": None, "total_tokens": None},
        {"model": None},
        {"model": "example/model-1-2026"},
        {"total_tokens": 119},
        {"cached_tokens": 101},
        {"reasoning_tokens": 21},
        {"model": "example/parts", "reasoning_tokens": 0},
        {"model": "example/parts", "cached_tokens": 0},
        {"model": ODD_NAME, "completion_tokens": 2**53 - 1, "total_tokens": None},
    ],
    ids=[
        *("no prompt tokens", "no completion tokens", "no name", "a name without a price", "a total of more than both"),
        *("more cached than prompted", "more reasoning than completed", "a cached price and no cached count"),
        *("a reasoning price and no reasoning count", "a cost beyond a million"),
    ],
)
def test_a_cost_that_the_reply_does_not_tell_is_unknown_and_so_is_the_total(changes: dict[str, Any]) -> None:
    cost = cost_of(*answer(), call_started(2), called(2, **changes))
    assert (cost["known"], cost["total"]) == ("0.000027", None)
    assert (cost["calls_priced"], cost["calls_without_cost"]) == (1, 1)


def test_an_answer_is_priced_by_the_name_in_it_and_not_by_the_model_that_was_asked() -> None:
    cost = cost_of(*answer(model="example/parts", cached_tokens=40, reasoning_tokens=5))
    assert cost["total"] == "0.00035"  # 60 x 2.5 + 40 x 1.25 + 15 x 10 + 5 x 0, over a million


def test_a_part_without_a_price_of_its_own_has_that_of_the_whole() -> None:
    assert cost_of(*answer(cached_tokens=100, reasoning_tokens=20))["total"] == "0.000027"


@pytest.mark.parametrize("failed", [("rate_limited", 429), ("http_503", 503), ("transport_connect", None)])
def test_a_refused_call_and_one_that_never_connected_cost_nothing(failed: tuple[str, int | None]) -> None:
    code, status = failed
    cost = cost_of(call_started(1), call_failed(1, code, http_status=status))
    assert (cost["total"], cost["calls_not_billed"], cost["calls_without_cost"]) == ("0", 1, 0)


@pytest.mark.parametrize(
    "failed",
    [
        *(("transport_timeout", None), ("transport_cut", 200), ("outcome_unknown", None)),
        *(("no_choices", 200), ("bad_envelope", None), ("http_503", None)),
    ],
)
def test_a_call_that_may_have_been_billed_has_an_unknown_cost(failed: tuple[str, int | None]) -> None:
    code, status = failed
    cost = cost_of(call_started(1), call_failed(1, code, http_status=status))
    assert (cost["known"], cost["total"], cost["calls_without_cost"]) == ("0", None, 1)


def test_a_call_without_an_end_has_an_unknown_cost() -> None:
    assert cost_of(call_started(1))["calls_without_cost"] == 1
    assert cost_of(call_started(1))["total"] is None


def test_an_event_that_cannot_be_read_makes_the_total_unknown() -> None:
    cost = cost_of(*answer(), unreadable=True)
    assert (cost["known"], cost["total"]) == ("0.000027", None)


def test_settings_that_are_no_prices_are_no_prices() -> None:
    settings = {
        "prices_sha256": "0" * 64,
        "prices_currency": "USD",
        "prompt_price:m": "1e3",
        "completion_price:m": "1",
        "other_price:n": "1",
        "prompt_price": "1",
    }
    found = Prices.from_settings(settings)
    assert found is not None
    assert found.models == {"m": {"completion": "1"}}
    assert found.by_model() == {}
    assert Prices.from_settings({**settings, "prices_currency": 1}) is None


def test_prices_are_read_back_from_settings_as_they_were_recorded() -> None:
    assert Prices.from_settings({"seed": 7, **PRICES.settings()}) == PRICES


# --- against folds made another way ---------------------------------------------------------

PRICE_TEXTS = ("0", "0.15", "3", "0.000001", "12.5", "9999999.999999")
COUNTS = (None, 0, 7, 100, 131_072, 2**53 - 1)


def drawn_prices(random: Random) -> Prices:
    models = {}
    for name in (MODEL, "example/model-2", ODD_NAME):
        kinds = ["prompt", "completion", *random.sample(("cached", "reasoning"), random.randint(0, 2))]
        models[name] = {kind: random.choice(PRICE_TEXTS) for kind in kinds}
    return Prices("EUR", digest("drawn"), dict(random.sample(sorted(models.items()), random.randint(1, 3))))


def priced(events: Iterable[NewEvent], random: Random) -> list[NewEvent]:
    """The story at prices, with usage of every kind."""
    made = []
    for event in events:
        facts = dict(event.payload)
        if event.type == "RunStarted":
            payload: Payload = started(**{**facts, "settings": drawn_prices(random).settings()})
        elif event.type == "ModelCalled":
            prompt, completion = random.choice(COUNTS), random.choice(COUNTS)
            both = None if prompt is None or completion is None else min(prompt + completion, 2**53 - 1)
            facts |= {
                "model": random.choice((None, MODEL, "example/model-2", ODD_NAME)),
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": random.choice((None, both, both, 5)),
                "cached_tokens": random.choice((None, 0, 7, prompt)),
                "reasoning_tokens": random.choice((None, 0, 7, completion)),
            }
            payload = called(**facts)
        elif event.type == "ModelCallFailed":
            facts["http_status"] = random.choice((None, 200, 429, 503))
            payload = call_failed(**facts)
        else:
            made.append(event)
            continue
        made.append(new_event(payload, run_id=event.run_id, request_id=event.request_id, content=event.content))
    return made


def in_fractions(events: Iterable[NewEvent]) -> tuple[Fraction, int, int, int]:
    """(known, priced, not billed, without cost) of the last pass, told by fractions over lists of calls."""
    pass_: list[NewEvent] = []
    for event in events:
        pass_ = [] if event.type == "RunStarted" else pass_
        pass_.append(event)
    settings = pass_[0].payload["settings"]
    prices = {tuple(name.split("_price:", 1)): Fraction(value) for name, value in settings.items() if "_price:" in name}
    costs = [_fraction(event.payload, prices) for event in pass_ if event.type == "ModelCalled"]
    free = [
        event
        for event in pass_
        if event.type == "ModelCallFailed"
        and not event.payload["outcome_unknown"]
        and (event.payload["http_status"] in (429, 503) or event.payload["http_status"] is None)
        and (event.payload["http_status"] is not None or event.payload["code"] == "transport_connect")
    ]
    known = [cost for cost in costs if cost is not None]
    begun = sum(event.type == "ModelCallStarted" for event in pass_)
    return sum(known, Fraction(0)), len(known), len(free), begun - len(known) - len(free)


def _fraction(reply: Mapping[str, Any], prices: Mapping[tuple[str, ...], Fraction]) -> Fraction | None:
    name, amounts = reply["model"], []
    for whole, part in (("prompt", "cached"), ("completion", "reasoning")):
        tokens, within = reply[f"{whole}_tokens"], reply[f"{part}_tokens"]
        if tokens is None or (whole, name) not in prices or (within or 0) > tokens:
            return None
        if (part, name) not in prices:
            amounts.append(tokens * prices[whole, name])
        elif within is None:
            return None
        else:
            amounts += [(tokens - within) * prices[whole, name], within * prices[part, name]]
    if reply["total_tokens"] not in (None, reply["prompt_tokens"] + reply["completion_tokens"]):
        return None
    amounts = [amount / 1_000_000 for amount in amounts]
    return None if max(amounts) > 1_000_000 else sum(amounts, Fraction(0))


@given(stories(), st.integers(min_value=0, max_value=2**32))
def test_the_sum_of_a_report_and_of_a_comparison_is_that_of_fractions(events: list[NewEvent], seed: int) -> None:
    told = priced(events, Random(seed))
    made = fold_all(ReportFold("run-1"), as_events(told)).finish(bytes(32))
    assert fold_all(Decisions("run-1"), as_events(told)).cost() == made["cost"]
    cost, calls = made["cost"], made["calls"]
    known, *counted = in_fractions(told)
    assert Fraction(cost["known"]) == known
    assert [cost["calls_priced"], cost["calls_not_billed"], cost["calls_without_cost"]] == counted
    assert sum(counted) == calls["started"]
    assert cost["total"] == (None if counted[2] else cost["known"])


@given(st.integers(min_value=0, max_value=10**30))
def test_a_sum_is_written_whole_and_without_needless_zeros(picos: int) -> None:
    text = decimal_text(picos)
    assert Fraction(text) * PICOS == picos
    assert not ("." in text and text.endswith(("0", ".")))


def test_cost_in_sql_is_cost_in_the_report(either: Store) -> None:
    random = Random(20261130)
    for number in range(60):
        run_id = f"run-{number}"
        either.append(priced(story(random, run_id=run_id), random))
    either.append([new_event(started(), run_id="unpriced")])
    seen = set()
    columns = ("currency", "known", "total", "calls_priced", "calls_not_billed", "calls_without_cost", "prices_sha256")
    rows = either.rows(f"SELECT run_id, calls, {', '.join(columns)} FROM run_costs", {})
    for run_id, calls, *values in rows:
        made = report(either, run_id)
        assert calls == made["calls"]["started"]
        if run_id == "unpriced":
            assert made["cost"] is None
            assert values == [None, None, None, 0, 0, 0, None]
            continue
        assert values == [made["cost"][name] for name in columns], run_id
        seen.add((made["cost"]["total"] is None, made["cost"]["known"] == "0"))
    assert seen == {(True, True), (True, False), (False, True), (False, False)}
    assert list(either.rows("SELECT count(*) FROM run_costs", {})) == [(61,)]


def test_the_cost_of_each_call_adds_up_to_that_of_its_run(either: Store) -> None:
    random = Random(7)
    for number in range(10):
        either.append(priced(story(random, run_id=f"run-{number}"), random))
    for run_id, known in list(either.rows("SELECT run_id, known FROM run_costs", {})):
        rows = either.rows(
            "SELECT cost_state, cost_picos, currency FROM call_costs WHERE run_id = :run_id", {"run_id": run_id}
        )
        calls = list(rows)
        assert decimal_text(sum(picos or 0 for _, picos, _ in calls)) == known
        for state, picos, currency in calls:
            assert (picos is None) == (state == "without_cost")
            assert picos == 0 or state != "not_billed"
            assert currency == "EUR"


def test_millions_of_a_small_currency_do_not_overflow_a_sum(either: Store) -> None:
    dear = Prices("VND", digest("dear"), {MODEL: {"prompt": "1000000", "completion": "9999999.999999"}})
    told = [new_event(started(settings=dear.settings()), run_id="dear")]
    for number in range(20):
        request_id = f"INC-{number}"
        usage = {"prompt_tokens": 1_000_000, "completion_tokens": 99_999, "total_tokens": 1_099_999}
        payloads = accepted(number + 1, request_id), call_started(1), called(1, **usage), output_accepted()
        told += [new_event(payload, run_id="dear", request_id=request_id) for payload in payloads]
    either.append(told)
    ((known, total),) = either.rows("SELECT known, total FROM run_costs", {})
    assert known == total == report(either, "dear")["cost"]["total"]
    assert Fraction(known) == 20 * (1_000_000 + 99_999 * Fraction("9.999999999999"))


def test_a_run_started_again_after_it_was_blocked_goes_by_its_last_prices() -> None:
    other = Prices("EUR", digest("other"), {MODEL: {"prompt": "1", "completion": "1"}})
    again = [started(settings=PRICES.settings()), started(settings=other.settings())]
    fold = ReportFold("run-1")
    for event in as_events(new_event(payload, run_id="run-1") for payload in again):
        fold.fold(event)
    assert fold.finish(bytes(32))["cost"]["prices_sha256"] == digest("other")


def test_what_follows_the_end_of_a_run_costs_nothing_more() -> None:
    counts = CostTotals(PRICES).member(unreadable=False)
    assert counts is not None
    ended = RunCompleted(outcome="completed", counts=Outcomes().counts())
    told = [(started(settings=PRICES.settings()), None), (ended, None), *((one, "INC-1") for one in answer())]
    fold = ReportFold("run-1")
    for event in as_events(new_event(payload, run_id="run-1", request_id=request) for payload, request in told):
        fold.fold(event)
    assert json.loads(json.dumps(fold.finish(bytes(32))["cost"])) == counts
