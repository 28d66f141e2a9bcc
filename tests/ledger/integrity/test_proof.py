"""Proofs that leave the ledger: whoever has the signed checkpoint can check them."""

from __future__ import annotations

import argparse
import base64
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.integrity import merkle
from ledger.integrity.proof import (
    NotProvable,
    covering_checkpoint,
    position_of,
    prove_consistency,
    prove_event,
)
from ledger.projections.tables import fold
from ledger.store import Store, open_store
from ledger.store.errors import LedgerMalformed
from ledger.store.records import Checkpoint
from tests.ledger.bundle.bundles import KEY, load_verifier, pinned, run_main, vkey
from tests.ledger.bundle.ledgers import example_ledger, sign
from tests.ledger.store.making import plain_sql, some

v = load_verifier()
MANY = 700  # past two stored nodes


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('proofs') / 'ledger.db'}"
    with open_store(url, "create", fold=fold, origin=KEY.name) as store:
        store.append(some(MANY - 1))
    return url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url, "read") as opened:
        yield opened


def check(proof: bytes) -> int:
    """The position that the standalone verifier finds proven."""
    verdict = v.check_proof(proof, [v.parse_vkey(str(KEY.verifier_key))], None, argparse.Namespace())
    return int(verdict.about.split()[1])


@pytest.mark.parametrize("position", [1, 2, 255, 256, 257, 512, 513, 699, 700])
def test_each_event_can_be_proven_and_no_bent_proof_passes(store: Store, position: int) -> None:
    proof = prove_event(store, position, sign(store))
    assert check(proof) == position
    lines = proof.split(b"\n")
    assert lines[0] == b"c2sp.org/tlog-proof@v1"
    assert lines[2] == b"index %d" % (position - 1)
    blank = lines.index(b"")
    for at in range(blank):
        with pytest.raises(v.Fault):
            check(b"\n".join(lines[:at] + lines[at + 1 :]))
        bent = bytearray(lines[at])
        bent[-3] ^= 1
        with pytest.raises(v.Fault):
            check(b"\n".join([*lines[:at], bytes(bent), *lines[at + 1 :]]))
    with pytest.raises(v.Fault):
        check(b"\n".join([*lines[:blank], base64.b64encode(bytes(32)), *lines[blank:]]))


def test_a_proof_for_one_event_does_not_serve_for_another(store: Store) -> None:
    note = sign(store)
    one, two = (prove_event(store, position, note).split(b"\n") for position in (10, 11))
    for mixed in ([one[0], two[1], *one[2:]], [*one[:2], two[2], *one[3:]], [*one[:3], *two[3:]]):
        with pytest.raises(v.Fault):
            check(b"\n".join(mixed))


def test_the_example_ledgers_events_are_proven_under_the_examples_own_checkpoints(tmp_path: Path) -> None:
    path, kept = tmp_path / "9.tlog-proof", tmp_path / "kept.txt"
    with example_ledger(f"sqlite:///{tmp_path}/example.db") as store:
        for size, code in ((10, 0), ("all", 0)):
            path.write_bytes(prove_event(store, 9, pinned(size).decode()))
            kept.write_bytes(pinned(size))
            assert run_main(path, "--key", vkey(), "--checkpoint", kept)[0] == code
            assert run_main(path, "--key", vkey())[0] == 3
        with pytest.raises(NotProvable, match="covers positions 1 to 10"):
            prove_event(store, 11, pinned(10).decode())
        # the proof is under all 14: a kept checkpoint of 10 cannot tell whether that is the same history
        kept.write_bytes(pinned(10))
        assert run_main(path, "--key", vkey(), "--checkpoint", kept)[0] == 2
        path.write_bytes(prove_event(store, 9, pinned(10).decode()))
        kept.write_bytes(pinned("all"))
        code, said = run_main(path, "--key", vkey(), "--checkpoint", kept)
        assert code == 3
        assert "prove --consistency 10 14" in said
        between = tmp_path / "between.txt"
        between.write_bytes(prove_consistency(store, 10, 14))
        words = (path, "--key", vkey(), "--checkpoint", kept, "--consistency", between)
        assert run_main(*words)[0] == 0
        between.write_bytes(prove_consistency(store, 9, 14))
        assert run_main(*words)[0] == 1


def test_consistency_is_proven_between_any_two_sizes(store: Store) -> None:
    for first, second in ((1, 1), (1, 700), (255, 256), (256, 700), (300, 699), (700, 700)):
        proof = [base64.b64decode(line) for line in prove_consistency(store, first, second).splitlines()]
        roots = store.root_at(first), store.root_at(second)
        merkle.verify_consistency(first, second, proof, *roots)
        v.verify_consistency(first, second, proof, *roots)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 5), (-1, 5), (6, 5), (5, 701)])
def test_there_is_no_proof_from_size_0_nor_backwards_nor_beyond_the_end(store: Store, first: int, second: int) -> None:
    with pytest.raises(NotProvable):
        prove_consistency(store, first, second)


def test_events_are_found_by_their_ids(store: Store) -> None:
    events = [event for event in store.events() if event.position in (1, 300, 700)]
    assert [position_of(store, event.event_id) for event in events] == [1, 300, 700]
    assert position_of(store, "0197a3c0-0000-7000-8000-000000000009") is None


def test_notes_that_are_none_or_of_another_ledger_prove_nothing(store: Store) -> None:
    for note in ("", "nonsense", pinned("all").decode(), sign(store).replace("\n700\n", "\n701\n")):
        with pytest.raises(NotProvable):
            prove_event(store, 1, note)


def test_the_newest_stored_checkpoint_is_taken_where_it_covers_the_event(ledger_url: str) -> None:
    with open_store(ledger_url, "create", fold=fold, origin=KEY.name) as store:
        assert covering_checkpoint(store, 1) is None
        stored = []
        for _ in range(2):
            store.append(some(3, first=store.head().size))
            head = store.head()
            stored.append(Checkpoint(head.size, head.root, sign(store)))
            store.save_checkpoint(stored[-1])
        store.append(some(1, first=50))
        assert [covering_checkpoint(store, at) for at in (1, 4, 5, 7)] == [stored[1]] * 4
        assert covering_checkpoint(store, 8) is None


def test_altered_hashes_give_no_proof(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with open_store(url, "create", fold=fold, origin=KEY.name) as store:
        store.append(some(10))
        note = sign(store)
    with plain_sql(url) as sql:
        for (name,) in sql("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            sql(f'DROP TRIGGER "{name}"')
        sql("UPDATE events SET leaf_hash = zeroblob(32) WHERE position = 4")
        sql("UPDATE events SET run_id = 'else' WHERE position = 9")
        sql("UPDATE events SET type = 'a\"b' WHERE position = 10")
        sql("DELETE FROM events WHERE position = 11")
    with open_store(url, "read") as store:
        for position in (3, 4, 9, 10, 11):
            with pytest.raises(LedgerMalformed):
                prove_event(store, position, note)
        with pytest.raises(LedgerMalformed):
            prove_consistency(store, 5, 11)


def test_a_proof_reads_some_hundred_hashes_whatever_the_ledgers_size(store: Store) -> None:
    """The tree of a million has two levels more; what is counted here is what is read, not how long it takes."""
    reads = 0

    def read_leaves(first: int, count: int) -> list[bytes]:
        nonlocal reads
        reads += count
        return store.read_leaves(first, count)

    def read_nodes(level: int, first: int, count: int) -> list[bytes]:
        nonlocal reads
        reads += count
        return store.read_nodes(level, first, count)

    merkle.inclusion_proof(300, 700, read_nodes, read_leaves)
    assert reads < 600
    began = time.perf_counter()
    prove_event(store, 300, sign(store))
    assert time.perf_counter() - began < 2


def test_what_is_no_proof_is_not_taken_for_one() -> None:
    keys = [v.parse_vkey(str(KEY.verifier_key))]
    for data in (b"", b"c2sp.org/tlog-proof@v1\n", b"c2sp.org/tlog-proof@v1\nextra \nindex 0\n\nx\n"):
        with pytest.raises(v.Fault):
            v.check_proof(data, keys, None, argparse.Namespace())
    with pytest.raises(v.Fault):
        v.Bundle(io.BytesIO(b"c2sp.org/tlog-proof@v1\n"))
