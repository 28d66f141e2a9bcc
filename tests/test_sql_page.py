"""docs/sql.md: its tables are the code's, its questions have the answers that are known, its commands run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ledger.events import new_event
from ledger.projections.grades import grades
from ledger.projections.grading import Label, record_grades
from ledger.projections.tables import fold
from ledger.query import Question, ask
from ledger.store import open_store
from tests.harness.postgres import libpq_url
from tests.ledger.projections.two_runs import LOW, a_run, asked
from tests.ledger.query.conftest import Asks, asked_url, asks  # noqa: F401 - fixtures
from tests.ledger.query.scene import HOSTILE, make
from tests.sql_reference import PAGE, with_tables
from tests.stories import call_failed, call_started, digest, started

TEXT = PAGE.read_text(encoding="utf-8")
QUESTIONS, REST = TEXT.split("\n## Eleven questions\n")[1].split("\n## The same ledger in other programs\n")
OTHER_PROGRAMS = REST.split("\n## Tables and columns\n")[0]
RUNS = [("first", "completed", "example/model-1"), ("second", "completed", "example/model-3")]
RUNS_CSV = ["run_id,state,model", *map(",".join, RUNS)]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def question(number: int, url: str) -> str:
    """The text of a question for the database: the only one, or the first of two for SQLite."""
    part = QUESTIONS.split(f"\n### {number}. ")[1].split("\n### ")[0]
    texts = blocks("sql", part)
    if len(texts) == 1:
        return texts[0]
    sqlite, postgres = texts
    return sqlite if url.startswith("sqlite") else postgres


def test_the_tables_in_the_page_are_those_of_the_code() -> None:
    assert with_tables(TEXT) == TEXT, "write it anew: python -m tests.sql_reference"


def test_there_are_eleven_questions_and_two_texts_only_where_the_databases_differ() -> None:
    assert [int(number) for number in re.findall(r"\n### (\d+)\. ", QUESTIONS)] == list(range(1, 12))
    for part in QUESTIONS.split("\n### ")[1:]:
        texts = blocks("sql", part)
        assert len(texts) == (2 if "On SQLite:" in part else 1), part
        assert len(set(texts)) == len(texts)


PROMPT = (digest("Return JSON."), "Return JSON.")
ANSWERS: Mapping[int, tuple[dict[str, str], list[tuple[Any, ...]]]] = {
    1: (
        {"run": "first"},
        [
            ("INC-1", "policy-a", "critical", 0, None, None),  # its text was redacted
            ("INC-3", "policy-a", "critical", 1, "model_output_invalid_json", ""),
        ],
    ),
    2: (
        {"run": "second"},
        [(f"INC-{line}", "policy-b", "contract_tuned_v1", 1, *PROMPT) for line in (1, 2, 3)],
    ),
    3: (
        {},
        [
            ("first", "USD", None, "0.000627", 5, 1, 1, 200, 40),
            ("second", None, None, None, 4, 4, 0, 350, 65),
        ],
    ),
    4: (
        {},
        [
            ("first", "INC-1", 1, "answered", None, 200, 61_000),
            ("second", "INC-3", 2, "answered", None, 200, 9_000),
            ("first", "INC-3", 1, "answered", None, 200, 3_000),
            ("first", "INC-2", 3, "answered", None, 200, 20),
            ("second", "INC-1", 1, "answered", None, 200, 20),
        ],
    ),
    5: (
        {},
        [
            ("2026-11-30T21", 1, 0, 0),
            ("2026-11-30T22", 2, 2, 0),
            ("2026-11-30T23", 2, 0, 0),
            ("2026-12-01T01", 2, 0, 0),
            ("2026-12-01T02", 1, 0, 0),
            ("2026-12-01T03", 1, 0, 1),
        ],
    ),
    6: (
        {"a": "first", "b": "second"},
        [
            ("INC-2", "first", "accepted_first", "low", 0, 0),
            ("INC-2", "second", "accepted_first", "high", 0, 1),
            ("INC-3", "first", "fallback", "critical", 1, 1),
            ("INC-3", "second", "accepted_after_retry", "medium", 0, 1),
        ],
    ),
    7: (
        {"incident": "INC-2"},
        [
            (4, "2026-11-30T21:12:00.000000Z", "first", "RequestAccepted"),
            (11, "2026-11-30T22:22:00.000000Z", "first", "ModelCallStarted"),
            (12, "2026-11-30T22:32:00.000000Z", "first", "ModelCallFailed"),
            (13, "2026-11-30T22:42:00.000000Z", "first", "ModelCallStarted"),
            (14, "2026-11-30T22:52:00.000000Z", "first", "ModelCallFailed"),
            (15, "2026-11-30T23:02:00.000000Z", "first", "ModelCallStarted"),
            (16, "2026-11-30T23:12:00.000000Z", "first", "ModelCalled"),
            (17, "2026-11-30T23:22:00.000000Z", "first", "OutputAccepted"),
        ],
    ),
    8: (
        {},
        [
            (10, "first", "INC-1", "OutputAccepted", "dpo-1", "subject_request"),
        ],
    ),
    9: ({}, [("first", "INC-1", 1, "example/model-1", "example/model-2")]),
    10: (
        {"position": "12"},
        [
            ("first", "INC-1", "OutputAccepted", 10),
            ("first", "INC-2", "ModelCallFailed", 12),
            ("first", "INC-3", "RequestAccepted", 5),
        ],
    ),
}


@pytest.mark.parametrize("number", ANSWERS)
def test_a_worked_question_has_the_answer_that_is_known(number: int, asks: Asks, asked_url: str) -> None:  # noqa: F811
    params, expected = ANSWERS[number]
    found = asks(question(number, asked_url), params)
    if number == 7:
        assert [row for row in found if row[2] == "first"] == expected
        assert [row[3] for row in found if row[2] == "second"] == [
            *("RequestAccepted", "ModelCallStarted", "ModelCalled", "OutputAccepted")
        ]
    elif number == 8:
        assert [row[:6] for row in found] == expected
        assert [json.loads(row[7])["operator"] for row in found] == ["Petra Doe"]
    else:
        assert found == expected


def test_what_is_counted_is_counted_once_whatever_else_there_is(ledger_url: str) -> None:
    """What the ledger of the questions has not: a run without a call, a second turn of two attempts, like fallbacks."""
    fell_back, blocked = "transport_timeout", {"risk_level": "critical", "requires_human_approval": True}
    with open_store(ledger_url, "create", fold=fold) as store:
        store.append(a_run("one", asked(("INC-1", fell_back))))
        store.append(
            a_run("other", asked(("INC-1", blocked | {"blocked_by_policy": True}), ("INC-2", None)), ended=False)
        )
        store.append([new_event(started(), run_id="blocked")])
        for attempt in (2, 3):
            store.append([new_event(call_started(attempt, 2), run_id="other", request_id="INC-2", content="{}")])
            failed = call_failed(attempt, "http_503", turn=2, will_retry=attempt == 2)
            store.append([new_event(failed, run_id="other", request_id="INC-2")])

    def answers(number: int, **params: str) -> list[tuple[Any, ...]]:
        with ask(ledger_url, Question(question(number, ledger_url), params)) as answer:
            return list(answer.rows)

    assert [(row[0], row[4], row[6]) for row in answers(3)] == [("blocked", 0, 0), ("one", 1, 0), ("other", 4, 0)]
    assert sum(row[3] for row in answers(5)) == 1
    assert [row[:3] for row in answers(6, a="one", b="other")] == [
        ("INC-1", "one", "fallback"),
        ("INC-1", "other", "accepted_first"),
    ]


def test_requests_without_a_label_beyond_the_first_hundred_were_named_nowhere(ledger_url: str) -> None:
    with open_store(ledger_url, "create", fold=fold) as store:
        store.append(a_run("one", asked(*((f"INC-{line}", LOW) for line in range(1, 1_206)))))
        store.append(a_run("other", asked(("INC-1", LOW))))

        def unlabelled(run_id: str) -> list[str]:
            with ask(ledger_url, Question(question(11, ledger_url), {"run": run_id})) as answer:
                return [request_id for request_id, _, _ in answer.rows]

        def grade(*lines: int) -> None:
            labels = [Label(f"INC-{line}", None, "low", None, None, None, line) for line in lines]
            record_grades(store, "one", labels, file_sha256=digest("labels"), actor="tester")

        assert len(unlabelled("one")) == 1_205
        grade(*range(1, 1_001), 1_205)  # in two parts
        assert unlabelled("one") == [f"INC-{line}" for line in range(1_001, 1_205)]
        assert grades(store, "one")["unlabelled"] == 204
        grade(2)
        assert unlabelled("one") == [f"INC-{line}" for line in range(1, 1_206) if line != 2]
        assert unlabelled("other") == ["INC-1"]


# Other programs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a ledger under its usual name."""
    make(f"sqlite:///{tmp_path / 'replay-ledger.db'}")
    return tmp_path


def command(beginning: str) -> str:
    (found,) = [block for block in blocks("sh", OTHER_PROGRAMS) if block.split(" ")[0].endswith(beginning)]
    return found


def run(script: str, folder: Path, **more: str) -> str:
    """What the commands print; they must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=os.environ | {"PATH": path} | more,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python(needs: str, folder: Path) -> str:
    (script,) = [block for block in blocks("python", OTHER_PROGRAMS) if f"import {needs}" in block]
    return run(f"{sys.executable} - <<'END'\n{script}\nEND", folder)


def needs_program(name: str) -> Any:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}")


def needs_module(name: str) -> Any:
    reason = f"needs {name}: pip install 'replay-ledger[sql-tools]'"
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=reason)


def test_each_command_for_another_program_is_one_that_is_run_here() -> None:
    assert len(blocks("sh", OTHER_PROGRAMS)) == 4
    assert len(blocks("python", OTHER_PROGRAMS)) == 2


@needs_program("sqlite3")
def test_the_sqlite3_shell_reads_the_ledger_as_the_page_says(folder: Path) -> None:
    assert run(command("sqlite3"), folder).splitlines() == RUNS_CSV


@needs_program("psql")
def test_psql_reads_the_ledger_as_the_page_says(postgres_url: str, tmp_path: Path) -> None:
    from sqlalchemy import make_url

    make(postgres_url)
    script = next(block for block in blocks("sh", OTHER_PROGRAMS) if "psql" in block)
    assert run(script, tmp_path, LEDGER=libpq_url(make_url(postgres_url))).splitlines() == RUNS_CSV


def test_an_answer_goes_to_a_file_as_the_page_says(folder: Path) -> None:
    run(command("replay-ledger"), folder)
    lines = [json.loads(line) for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 9
    assert HOSTILE not in str(lines)


@needs_module("duckdb")
def test_duckdb_reads_an_answer_as_the_page_says(folder: Path) -> None:
    run(command("replay-ledger"), folder)
    assert python("duckdb", folder).strip() == "[('first', 61000000), ('second', 9000000)]"


@needs_module("pandas")
def test_pandas_reads_the_ledger_as_the_page_says(folder: Path) -> None:
    assert python("pandas", folder).split() == [
        "run_id,critical,high,low,medium",
        "first,2,0,1,0",
        "second,1,1,0,1",
    ]


@needs_module("datasette")
def test_datasette_reads_the_ledger_as_the_page_says(folder: Path) -> None:
    script = command("datasette").replace("datasette", f"{sys.executable} -m datasette", 1)
    assert [tuple(row.values()) for row in json.loads(run(script, folder))] == RUNS
