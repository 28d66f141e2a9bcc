"""What evidence costs: a bundle written, the same bundle checked by verify.py, a proof for one event.

    python -m benchmarks.bundle --events 200000 [--keep FILE]

Makes a ledger of that many events on SQLite (or takes FILE, where it is there already: `benchmarks.verify
--keep` makes one too; three events are appended to it), issues the reports of its first run, signs, and
bundles that run. `verify.py` then runs as an auditor runs it, in a process of its own with the standard
library alone. Proofs are for events drawn at random.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import ledger
from benchmarks.verify import KEY, make
from ledger.bundle.build import write_bundle
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import sign_note
from ledger.integrity.proof import prove_consistency, prove_event
from ledger.projections.tables import fold
from ledger.render.issue import issue, last_consumed, rendering
from ledger.store import Store, open_store

REPORTS = {"report.json": ("report", "json"), "results.jsonl": ("results", "jsonl"), "report.html": ("report", "html")}
PROOFS = 50
MEGABYTE = 2**20


def bundle(store: Store, run_id: str, path: Path) -> str:
    """Issue, sign and write; the note is given."""
    position, reports = last_consumed(store, run_id), {}
    began = time.perf_counter()
    for name, (kind, form) in REPORTS.items():
        of = rendering(kind, form)
        reports[name] = b"".join(of.render(store, run_id, position))
        digest = sha256(reports[name]).hexdigest()
        issue(store, run_id, of, as_of_position=position, sha256=digest, actor="benchmark")
    print(f"reports   {time.perf_counter() - began:8.2f} s to make and issue the three")
    head = store.head()
    note = sign_note(format_checkpoint(Checkpoint(head.origin, head.size, head.root)), [KEY])
    began, cpu = time.perf_counter(), time.process_time()
    with path.open("w+b") as out:
        write_bundle(store, run_id, note, {name: [data] for name, data in reports.items()}, out)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"bundle    {wall:8.2f} s, CPU {cpu:.2f} s, {path.stat().st_size / MEGABYTE:.0f} MiB of {head.size:,} events")
    return note


def check(path: Path, note: str) -> None:
    """Run verify.py on the bundle."""
    kept = path.with_suffix(".note")
    kept.write_text(note, encoding="utf-8")
    program = Path(ledger.__file__).parent / "bundle" / "verifier.py"
    command = [sys.executable, "-I", "-S", program, path, f"--key={KEY.verifier_key}", f"--checkpoint={kept}"]
    began = time.perf_counter()
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wall, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert said.startswith("PASS"), said
    with path.open("rb") as file:
        events = sum(chunk.count(b'"envelope":{') for chunk in file)
    cpu = used.ru_utime + used.ru_stime
    print(f"verify.py {wall:8.2f} s, CPU {cpu:.2f} s, {events:,} events: {events / cpu:,.0f} a CPU second")


def prove(store: Store, note: str) -> None:
    """Proofs for events, and between sizes, drawn at random."""
    size, draw = store.head().size, random.Random(1)
    for name, once in (
        ("prove", lambda: prove_event(store, draw.randint(1, size), note)),
        ("consist.", lambda: prove_consistency(store, *sorted(draw.sample(range(1, size + 1), 2)))),
    ):
        took = []
        for _ in range(PROOFS):
            began = time.perf_counter()
            once()
            took.append((time.perf_counter() - began) * 1000)
        print(f"{name:9} {statistics.median(took):8.2f} ms in the middle, {max(took):.2f} at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.keep or Path(folder) / "ledger.db"
        if not path.exists():
            make(path, asked.events)
        with open_store(f"sqlite:///{path}", "write", fold=fold) as store:
            ((run_id,), *_) = store.rows("SELECT run_id FROM runs ORDER BY started_position", {})
            note = bundle(store, run_id, Path(folder) / "audit.zip")
            check(Path(folder) / "audit.zip", note)
            prove(store, note)


if __name__ == "__main__":
    main()
