"""Prints the SHA-256 of everything that can be made of a ledger: to be run anywhere, and compared.

``python -m tests.digests URL``. It needs what replay-ledger needs to run and no more, so that it can be run by
a Python that has nothing else.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from ledger.projections.compare import Comparison
from ledger.projections.decisions import read_decisions
from ledger.projections.results import results
from ledger.render import compare_html, compare_json, compare_text, results_table
from ledger.render.issue import RENDERINGS
from ledger.store import Store, open_store


class Digest(NamedTuple):
    """What it is of, and the SHA-256 of its bytes. ``version`` is that of the rendering."""

    run: str
    kind: str
    format: str
    version: int
    sha256: str


def digests(store: Store) -> Iterator[Digest]:
    """Of every run: in every rendering that can be issued, and in those that cannot; of every two runs: compared."""
    runs = [run for (run,) in store.rows("SELECT DISTINCT run_id FROM events WHERE type = 'RunStarted' ORDER BY 1", {})]
    for run in runs:
        for of in RENDERINGS:
            yield Digest(run, of.kind, of.format, of.version, _sha256(of.render(store, run, None)))
        table = (line.encode("utf-8") for line in results_table.render(results(store, run)))
        yield Digest(run, "results", "text", results_table.RENDERER_VERSION, _sha256(table))
    for one, other in combinations(runs, 2):
        made = Comparison(store, read_decisions(store, one, None), read_decisions(store, other, None))
        for form, by in (("text", compare_text), ("json", compare_json), ("html", compare_html)):
            yield Digest(f"{one}..{other}", "compare", form, by.RENDERER_VERSION, _sha256(by.render(made)))


def _sha256(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def main(url: str) -> None:
    """One line a digest."""
    with open_store(url, "read") as store:
        for digest in digests(store):
            print(*digest)


if __name__ == "__main__":
    main(sys.argv[1])
