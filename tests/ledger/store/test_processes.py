"""Several processes on one ledger, and processes that are killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

from ledger.integrity.merkle import Frontier
from ledger.store import Store, open_store
from ledger.store.envelope import Envelopes

ROOT = Path(__file__).parents[3]
APPEND = """
import sys
from ledger.store import Expected, open_store
from tests.ledger.store.making import accepted
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open_store(url, "write", accept_clock=True) as store:
    print("ready", flush=True)
    sys.stdin.read(1)
    for number in range(count):
        event = accepted(f"q{number}", run_id=name, line=number, content=b"x" * 700)
        (receipt,) = store.append([event], [Expected(name, None, number)])
        print(receipt.position, event.event_id, flush=True)
"""


def start(url: str, name: str, count: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", APPEND, url, name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def check_whole(store: Store) -> dict[int, str]:
    """Hash everything again; give event ids by position."""
    head = store.head()
    encode = Envelopes(head.origin).encode
    frontier = Frontier()
    versions: dict[tuple[str, str | None], int] = {}
    ids = {}
    for record in store.records():
        assert record.position == frontier.size + 1
        for stream, version in (
            ((record.run_id, None), record.run_version),
            ((record.run_id, record.request_id), record.request_version),
        ):
            if version is not None:
                assert version == versions.get(stream, 0) + 1
                versions[stream] = version
        assert json.loads(record.payload)
        assert sha256(record.payload.encode()).hexdigest() == record.payload_sha256
        assert (record.body is None) == (record.content_commitment is None)
        envelope = encode(*record[:9], record.payload_sha256, record.content_commitment)
        assert sha256(b"\0" + envelope).digest() == record.leaf_hash
        for node in frontier.append(record.leaf_hash):
            assert store.read_nodes(node.level, node.node_index, 1) == [node.hash]
        ids[record.position] = record.event_id
    assert (frontier.size, frontier.root(), frontier.to_bytes()) == (head.size, head.root, head.frontier)
    return ids


def test_two_processes_that_append_at_once_make_one_chain(begun_url: str) -> None:
    processes = [start(begun_url, name, 200) for name in ("one", "two")]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("g")
        process.stdin.flush()
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    with open_store(begun_url, "read") as store:
        ids = check_whole(store)
        assert (store.version("one"), store.version("two")) == (200, 200)
    acknowledged = dict(line.split() for out in outputs for line in out.splitlines())
    assert {int(position): event_id for position, event_id in acknowledged.items()} == {
        position: event_id for position, event_id in ids.items() if position > 1
    }


def test_a_killed_writer_leaves_a_whole_ledger_with_all_it_acknowledged(begun_url: str) -> None:
    seed = random.Random(11)
    acknowledged: dict[int, str] = {}
    for number in range(6):
        process = start(begun_url, f"run{number}", 100_000)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("g")
        process.stdin.flush()
        time.sleep(seed.uniform(0.01, 0.25))
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=30)
        complete = [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]
        acknowledged |= {int(position): event_id for position, event_id in complete}
        with open_store(begun_url, "write", accept_clock=True) as store:
            store.append([])  # opening and locking settles what was under way
            ids = check_whole(store)
        assert acknowledged.items() <= ids.items()
    assert len(acknowledged) > 6
