"""A bundle is written byte for byte as the format has it, or not at all."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from ledger.bundle import build
from ledger.bundle.build import BundleRefused, readme, write_bundle
from ledger.events import LEDGER_RUN_ID
from ledger.projections.tables import fold
from ledger.store import open_store
from ledger.store.copy import copy_ledger
from ledger.store.errors import LedgerMalformed
from tests.ledger.bundle.bundles import KEY, entries, example_zip, judge, pack, pinned
from tests.ledger.bundle.ledgers import (
    bundle_of,
    bundled,
    example_ledger,
    issue_all,
    make_reports,
    sign,
    story_ledger,
    told,
)
from tests.ledger.store.making import plain_sql, redaction

REPORTS = ("report.json", "results.jsonl", "report.html")


def example_reports() -> dict[str, bytes]:
    return {name: data for name, data in entries(example_zip()).items() if name in REPORTS}


def test_the_examples_events_give_the_examples_bundle_byte_for_byte(ledger_url: str) -> None:
    with example_ledger(ledger_url) as store:
        made = bundled(store, "example-run", pinned("all").decode(), example_reports())
    assert made == example_zip()


def test_the_standard_librarys_own_zips_of_the_entries_are_the_same() -> None:
    assert pack(entries(example_zip())) == example_zip()
    with zipfile.ZipFile(io.BytesIO(example_zip())) as bundle:
        assert bundle.testzip() is None
    assert readme() == entries(example_zip())["README.txt"]


@pytest.mark.parametrize("seed", range(6))
def test_a_run_of_our_own_passes_and_holds_nothing_of_other_runs(tmp_path: Path, seed: int) -> None:
    mine = told(seed * 100, run_id="mine", lines=8)
    other = told(seed * 100 + 50, run_id="other", lines=8)
    with story_ledger(tmp_path, other[:3], mine, other[3:]) as store:
        data, note = bundle_of(store, "mine")
        code, said = judge(data, str(KEY.verifier_key), note.encode())
        assert code == 0, said
        runs = {json.loads(line)["envelope"]["run_id"] for line in entries(data)["events.jsonl"].splitlines()}
        assert runs == {"mine", LEDGER_RUN_ID}
        again, _ = bundle_of(store, "mine")
        assert again == data


def test_a_run_without_an_end_is_incomplete(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=8, ended=False)) as store:
        data, note = bundle_of(store, "mine")
    code, said = judge(data, str(KEY.verifier_key), note.encode())
    assert code == 3
    assert "no terminal event" in said


def test_erased_content_is_left_out_and_the_bundle_still_passes(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=8)) as store:
        store.append([redaction(2, 3)])
        data, note = bundle_of(store, "mine")
    code, said = judge(data, str(KEY.verifier_key), note.encode())
    assert code == 0, said
    assert "erased by order of an event: 2" in said


def test_an_erasure_that_the_checkpoint_does_not_cover_is_refused(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=8)) as store:
        reports = make_reports(store, "mine")
        issue_all(store, "mine", reports)
        note = sign(store)
        store.append([redaction(2)])
        with pytest.raises(BundleRefused, match="position 2 is gone"):
            bundled(store, "mine", note, reports)


def test_a_copy_on_the_other_database_gives_the_same_bundle(tmp_path: Path, postgres_url: str) -> None:
    with story_ledger(tmp_path, told(3, run_id="mine", lines=12), told(9, run_id="other", lines=5)) as store:
        data, note = bundle_of(store, "mine")
        reports = make_reports(store, "mine")
    copy_ledger(f"sqlite:///{tmp_path / 'stories.db'}", postgres_url, fold=fold)
    with open_store(postgres_url, "read") as copy:
        assert make_reports(copy, "mine") == reports
        assert bundled(copy, "mine", note, reports) == data


def test_a_checkpoint_of_another_ledger_or_of_more_events_is_refused(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=3)) as store:
        reports = make_reports(store, "mine")
        with pytest.raises(BundleRefused):
            bundled(store, "mine", pinned("all").decode(), reports)
        with pytest.raises(LedgerMalformed):
            bundled(store, "mine", "no note", reports)
        note = sign(store)
        grown = note.replace(f"\n{store.head().size}\n", "\n999999\n")
        with pytest.raises(BundleRefused):
            bundled(store, "mine", grown, reports)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE events SET payload = replace(payload, ':', ': ') WHERE position = 2", "position 2 does not match"),
        ("UPDATE events SET run_version = 1000 WHERE position = 2", "position 2 does not match"),
        ("UPDATE events SET type = 'Nothing' WHERE position = 2", "position 2 does not match"),
        ("UPDATE contents SET body = body || ' ' WHERE position = 2", "position 2 does not match"),
        ("UPDATE contents SET encoding = 'none' WHERE position = 2", "position 2"),
        ("UPDATE events SET leaf_hash = zeroblob(32) WHERE position = 3", "signed root"),
        ("DELETE FROM events WHERE position = 3", "signed root"),
    ],
)
def test_nothing_that_was_altered_gets_into_a_bundle(tmp_path: Path, change: str, said: str) -> None:
    url = f"sqlite:///{tmp_path / 'stories.db'}"
    with story_ledger(tmp_path, told(0, run_id="mine", lines=3)) as store:
        reports, note = make_reports(store, "mine"), sign(store)
    with plain_sql(url) as sql:
        for (name,) in sql("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            sql(f'DROP TRIGGER "{name}"')
        sql(change)
    with open_store(url, "read") as store, pytest.raises(LedgerMalformed, match=said):
        bundled(store, "mine", note, reports)


def test_a_bundle_that_would_pass_4_gib_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=3)) as store:
        data, note = bundle_of(store, "mine")
        reports = make_reports(store, "mine")
        monkeypatch.setattr(build, "MAX_BYTES", len(data))
        assert bundled(store, "mine", note, reports) == data
        monkeypatch.setattr(build, "MAX_BYTES", len(data) - 1)
        with pytest.raises(BundleRefused, match="4 GiB"):
            bundled(store, "mine", note, reports)


def test_memory_does_not_grow_with_the_contents(tmp_path: Path) -> None:
    from tests.ledger.store.making import accepted, started

    body = b"x" * 2**20
    with story_ledger(tmp_path, [started("mine")]) as store:
        for number in range(40):
            store.append([accepted(f"q{number}", run_id="mine", line=number + 1, content=body + b"%d" % number)])
        note = sign(store)
        with (tmp_path / "out.zip").open("w+b") as out:
            tracemalloc.start()
            write_bundle(store, "mine", note, {name: [b""] for name in REPORTS}, out)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert out.seek(0, 2) > 40 * 2**20
    assert peak < 24 * 2**20
