"""What an append costs: ours, the raw driver with the same rows, and the eventsourcing library.

    python benchmarks/append.py [--events 20000] [--postgres postgresql://user@host:port/database] [--profile]

Ours is everything between the facts and their being durable: events made from them, ids looked up,
versions checked, salts, digests, commitments, leaf hashes, the Merkle tree, the triggers, the projection
tables folded, the head moved, 100 events a transaction. The raw driver gets the rows that came of it
ready-made and writes them, one transaction for each of ours, into tables with the same indexes and no
triggers (on Postgres by COPY, its fastest way). The eventsourcing library's Application makes, from the
same facts, aggregates with as many events and as much data and saves them through its own SQLite and
Postgres modules. "append alone" leaves out, for ours, the making of the events, and for the library that
of the aggregates.

On SQLite "our CPU" is all there is; on Postgres the server's comes on top. With few cores free, and a
disk that takes milliseconds to flush, the rate is mostly waiting, and the CPU tells more.

The three take turns of ten groups, so that whatever else the machine does falls on all alike:
figures of different runs do not compare, the ratios of one run do. In the Postgres database the
benchmark works in schemas of its own, which it drops.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import psycopg
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from ledger.events import (
    ModelCalled,
    ModelCallStarted,
    NewEvent,
    OutputAccepted,
    Payload,
    RequestAccepted,
    RunStarted,
    new_event,
)
from ledger.projections.tables import fold
from ledger.store import Batch, Head, Store, open_store
from ledger.store.backend import RECORD_COLUMNS, insert_sql
from ledger.store.changes import columns_of, in_bulk, statement
from ledger.store.plan import Planner
from ledger.store.records import Rows

GROUP = 100
TURN = 10
RUN = "benchmark"
SHA = "0" * 64

LINE = json.dumps({"user_prompt": "What should be done? " * 20, "incident_context": {"alert": "x" * 500}}).encode()
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "y" * 900}], "stream": False}).encode()
REPLY = json.dumps({"id": "chatcmpl-1", "choices": [{"message": {"content": "z" * 850}}], "usage": {}}).encode()
OUTPUT = json.dumps({"proposed_action": "restart it", "action_plan": ["drain", "restart"] * 6}).encode()


def request_payloads(number: int) -> list[tuple[Payload, bytes]]:
    """The four events of a request that goes well."""
    accepted = RequestAccepted(
        line=number + 1,
        incident_id=f"INC-{number:07}",
        policy_id=None,
        facets={"severity": "critical", "service": f"service-{number % 20}"},
        system_prompt_sha256=SHA,
        contract_sha256=SHA,
    )
    started = ModelCallStarted(attempt=1, turn=1, body_bytes=len(BODY), quote_withheld=False)
    called = ModelCalled(
        attempt=1,
        turn=1,
        http_status=200,
        response_id=f"chatcmpl-{number}",
        model="nvidia/llama-3.3-nemotron-super-49b-v1.5",
        finish_reason="stop",
        system_fingerprint=None,
        odd_metadata=False,
        prompt_tokens=812,
        completion_tokens=120,
        total_tokens=932,
        cached_tokens=None,
        reasoning_tokens=None,
        body_bytes=len(REPLY),
        body_truncated=False,
        scrubbed=0,
        duration_us=1_234_567 + number,
    )
    output = OutputAccepted(
        turn=1, risk_level="low", requires_human_approval=False, blocked_by_policy=False, allowances=[]
    )
    return [(accepted, LINE), (started, BODY), (called, REPLY), (output, OUTPUT)]


Fact = tuple[str, Payload, bytes]
"""Request, what happened to it, content."""


def batches(events: int) -> list[list[Fact]]:
    """Groups of 100 facts as a run records them: a request's call begins, and ends, in later groups than its line."""
    each = GROUP // 4
    requests = [
        [(f"INC-{number:07}", payload, content) for payload, content in request_payloads(number)]
        for number in range(events // 4)
    ]
    groups = []
    for first in range(0, len(requests) + 2 * each, each):
        accepted = requests[first : first + each]
        calling = requests[max(0, first - each) : first] if first >= each else []
        ending = requests[max(0, first - 2 * each) : first - each] if first >= 2 * each else []
        group = [r[0] for r in accepted] + [r[1] for r in calling]
        groups.append(group + [e for r in ending for e in r[2:]])
    return [group for group in groups if group]


def made(facts: list[Fact]) -> list[NewEvent]:
    return [new_event(payload, run_id=RUN, request_id=request, content=content) for request, payload, content in facts]


def start() -> NewEvent:
    payload = RunStarted(
        candidate_id="nemo_nemotron_fabric",
        candidate_variant_id=None,
        prompt_profile=None,
        template_version=1,
        template_sha256=SHA,
        model="nvidia/llama-3.3-nemotron-super-49b-v1.5",
        endpoint="https://models.example/v1/chat/completions",
        settings={},
        leak_rules_version=1,
        software_version="0.1.0",
        actor="benchmark",
        tags={},
    )
    return new_event(payload, run_id=RUN)


# --- the three, each a function that writes the next group ----------------------------------

Step = Callable[[int], None]


def ours(store: Store, groups: list[list[Fact]], *, whole: bool) -> Step:
    store.append([start()])
    if whole:
        return lambda number: void(store.append(made(groups[number])))
    ready = [made(group) for group in groups]
    return lambda number: void(store.append(ready[number]))


def void(_: object) -> None:
    return None


def planned(groups: list[list[Fact]], head: Head) -> list[tuple[Rows, Head]]:
    """The rows that our append writes, worked out beforehand."""
    versions: dict[Any, int] = {(RUN, None): 1}
    done = []
    for facts in groups:
        group = made(facts)
        streams = {(RUN, request_id): 0 for request_id in {event.request_id for event in group}}
        planner = Planner(
            head,
            "2026-11-30T20:42:00.000000Z",
            versions=streams | versions,
            known={},
            erasable=set(),
            fold=fold,
            entropy=os.urandom,
        )
        (outcome,) = planner.add([Batch(group)])
        assert isinstance(outcome, list), outcome
        rows, head = planner.finish()
        versions = planner.versions
        done.append((rows, head))
    return done


def raw_sqlite(connection: sqlite3.Connection, rows: list[tuple[Rows, Head]]) -> Step:
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA synchronous = FULL")

    def write(number: int) -> None:
        group, head = rows[number]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert_sql("events", "?"), group.events)
        connection.executemany(insert_sql("contents", "?"), group.contents)
        connection.executemany(insert_sql("tree_nodes", "?"), group.nodes)
        for change, values in in_bulk(group.changes):
            connection.executemany(statement(change, "?"), values)
        connection.execute("UPDATE ledger_head SET size = ?, root = ? WHERE id = 1", (head.size, head.root))
        connection.execute("COMMIT")

    return write


def raw_postgres(connection: psycopg.Connection[Any], rows: list[tuple[Rows, Head]]) -> Step:
    cursor = connection.cursor()
    for table in RECORD_COLUMNS:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    cursor.execute("SET enable_seqscan = off; SET jit = off")

    def write(number: int) -> None:
        group, head = rows[number]
        cursor.execute("BEGIN")
        copy(cursor, "events", RECORD_COLUMNS["events"], group.events)
        copy(cursor, "contents", RECORD_COLUMNS["contents"], group.contents)
        cursor.executemany(insert_sql("tree_nodes", "%s"), group.nodes)
        for change, values in in_bulk(group.changes):
            if change.kind == "insert":
                copy(cursor, change.table, columns_of(change), values)
            else:
                cursor.executemany(statement(change, "%s"), values)
        cursor.execute("UPDATE ledger_head SET size = %s, root = %s WHERE id = 1", (head.size, head.root))
        cursor.execute("COMMIT")

    return write


def copy(cursor: Any, table: str, columns: Any, rows: Any) -> None:
    with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as target:
        for row in rows:
            target.write_row(row)


class Request(Aggregate):
    """The same story in the eventsourcing library's words."""

    @event("Accepted")
    def __init__(self, number: int, facts: dict[str, Any], content: str) -> None:
        self.number, self.facts, self.content = number, facts, content

    @staticmethod
    def create_id(number: int) -> UUID:
        return uuid5(UUID(int=0), str(number))

    @event("Started")
    def start(self, facts: dict[str, Any], content: str) -> None:
        self.facts = facts

    @event("Called")
    def called(self, facts: dict[str, Any], content: str) -> None:
        self.facts = facts

    @event("Decided")
    def decide(self, facts: dict[str, Any], content: str) -> None:
        self.facts = facts


def eventsourced(application: Application[UUID], events: int, *, whole: bool) -> Step:
    """Saves 25 requests of four events at a time, with the same facts and content."""
    each = GROUP // 4
    facts = [
        [(payload, content.decode()) for payload, content in request_payloads(number)] for number in range(events // 4)
    ]

    def aggregate(number: int) -> Request:
        told = [(payload.model_dump(), content) for payload, content in facts[number]]
        request = Request(number, *told[0])
        request.start(*told[1])
        request.called(*told[2])
        request.decide(*told[3])
        return request

    if whole:
        return lambda number: void(application.save(*map(aggregate, range(number * each, (number + 1) * each))))
    ready = [aggregate(number) for number in range(events // 4)]
    return lambda number: void(application.save(*ready[number * each : (number + 1) * each]))


# --- the comparison ------------------------------------------------------------------------


def compare(name: str, events: int, steps: dict[str, Step]) -> None:
    """Let each write its next ten groups in turn, so that whatever else the machine does falls on all alike."""
    wall, cpu = dict.fromkeys(steps, 0.0), dict.fromkeys(steps, 0.0)
    gc.collect()
    gc.disable()
    for first in range(0, events // GROUP, TURN):
        for who, step in steps.items():
            began, worked = time.perf_counter(), time.process_time()
            for number in range(first, min(first + TURN, events // GROUP)):
                step(number)
            wall[who] += time.perf_counter() - began
            cpu[who] += time.process_time() - worked
    gc.enable()
    print(f"{name}: {events} events, {GROUP} a transaction")
    for who in steps:
        line = f"  {who:14} {events / wall[who]:9,.0f} events/s {cpu[who] / events * 1e6:7.1f} us of our CPU an event"
        if who != "ours":
            line += f"   ours is {wall[who] / wall['ours']:.2f} times as fast, by CPU {cpu[who] / cpu['ours']:.2f}"
        print(line)


def scope(whole: bool) -> str:
    return "from facts to durable" if whole else "append alone"


def read_back(store: Store) -> None:
    began = time.perf_counter()
    count = sum(1 for _ in store.events())
    print(f"  read back      {count / (time.perf_counter() - began):10,.0f} events/s")


def on_sqlite(events: int, profile: bool, *, whole: bool) -> None:
    groups = batches(events)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder)
        store = stack.enter_context(open_store(f"sqlite:///{path / 'ours.db'}", "create", fold=fold))
        with open_store(f"sqlite:///{path / 'raw.db'}", "create", fold=fold) as other:
            other.append([start()])
            rows = planned(groups, other.head())
        raw = stack.enter_context(closing(sqlite3.connect(path / "raw.db", isolation_level=None)))
        environment = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path / "library.db")}
        library = stack.enter_context(closing(Application(env=environment)))
        mine = ours(store, groups, whole=whole)
        with profiled(profile) as wrap:
            steps = {
                "ours": wrap(mine),
                "raw driver": raw_sqlite(raw, rows),
                "eventsourcing": eventsourced(library, events, whole=whole),
            }
            compare(f"SQLite, {scope(whole)}", events, steps)
        read_back(store)


def on_postgres(url: str, events: int, profile: bool, *, whole: bool) -> None:
    groups = batches(events)
    with ExitStack() as stack:
        urls = {who: stack.enter_context(schema(url, who)) for who in ("ours", "raw", "library")}
        store = stack.enter_context(open_store(urls["ours"], "create", fold=fold))
        with open_store(urls["raw"], "create", fold=fold) as other:
            other.append([start()])
            rows = planned(groups, other.head())
        raw = stack.enter_context(psycopg.connect(urls["raw"], autocommit=True))
        parts = psycopg.conninfo.conninfo_to_dict(url)
        environment = {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": str(parts["dbname"]),
            "POSTGRES_HOST": str(parts.get("host", "127.0.0.1")),
            "POSTGRES_PORT": str(parts.get("port", 5432)),
            "POSTGRES_USER": str(parts.get("user", "postgres")),
            "POSTGRES_PASSWORD": str(parts.get("password", "none")),
            "POSTGRES_SCHEMA": "library",
        }
        library = stack.enter_context(closing(Application(env=environment)))
        mine = ours(store, groups, whole=whole)
        with profiled(profile) as wrap:
            steps = {
                "ours": wrap(mine),
                "raw driver": raw_postgres(raw, rows),
                "eventsourcing": eventsourced(library, events, whole=whole),
            }
            compare(f"Postgres, {scope(whole)}", events, steps)
        read_back(store)


@contextmanager
def schema(url: str, name: str) -> Iterator[str]:
    """A URL that leads into a schema of its own, dropped afterwards."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")
        yield f"{url}?options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@contextmanager
def profiled(wanted: bool) -> Iterator[Callable[[Step], Step]]:
    """Wrap a step so that its time is told apart by function."""
    profiler = cProfile.Profile()
    yield lambda step: (lambda number: profiler.runcall(step, number)) if wanted else step
    if wanted:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    for whole in (True, False):
        on_sqlite(arguments.events, arguments.profile, whole=whole)
        if arguments.postgres:
            on_postgres(arguments.postgres, arguments.events, arguments.profile, whole=whole)


if __name__ == "__main__":
    main()
