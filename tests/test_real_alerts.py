"""1,155 real alert rules, prepared, run and copied between the databases. The rules lie beside the clone."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import open_ledger
from ledger.projections import rebuild
from ledger.projections.report import report
from ledger.projections.results import results
from ledger.projections.tables import fold
from ledger.render import report_json, results_jsonl
from ledger.store.copy import copy_ledger
from runner.prepare import PrepareOptions, prepare_stream
from runner.replay import start_run
from tests.harness.mock_endpoint import MockEndpoint
from tests.runner.playing import a_plan

ALERTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "prometheus_alerts.jsonl"

pytestmark = pytest.mark.skipif(not ALERTS.exists(), reason="the alert rules are not beside this clone")


@pytest.mark.timeout(300)
async def test_every_alert_gets_its_result_and_a_copy_in_the_other_database_gives_the_same_bytes(
    ledger_url: str,
    mock_endpoint: Callable[..., MockEndpoint],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    prepared = io.BytesIO()
    with ALERTS.open("rb") as stream:
        options = PrepareOptions(run_id="alerts", variant="contract_tuned_v1")
        summary = prepare_stream(stream, ALERTS.name, prepared, options=options)
    assert (summary.records, summary.written) == (1155, 1155)
    endpoint = mock_endpoint([{"content": "```json\n{}\n```"}, {"status": 503}, {"content": "no"}], delay_ms=20)
    other = (
        f"sqlite:///{tmp_path / 'copy.db'}"
        if ledger_url.startswith("postgresql")
        else str(request.getfixturevalue("postgres_url"))
    )
    with open_ledger(ledger_url, "create") as store:
        plan = a_plan(endpoint.base_url, concurrency=64, attempt_timeout="30", request_timeout="120")
        outcome = await start_run(store, io.BytesIO(prepared.getvalue()), plan)
    assert outcome.state == "completed"
    assert copy_ledger(ledger_url, other, fold=fold).size > 4 * 1155
    heads, told, lines = [], [], []
    for url in (ledger_url, other):
        with open_ledger(url, "read") as store:
            heads.append(store.head())
            assert rebuild.check(store) == []
            told.append(report_json.render(report(store, "alerts")))
            lines.append(b"".join(results_jsonl.render(results(store, "alerts"))))
    assert heads[0] == heads[1]
    assert told[0] == told[1]
    assert lines[0] == lines[1]
    assert lines[0].count(b"\n") == 1155
    assert endpoint.stats()["calls"] == outcome.calls == 1155 + 3
