"""A signer killed between any two steps, and several at once: no fork, nothing lost, every rotation finished."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.events import LEDGER_RUN_ID, Event
from ledger.integrity.checkpoint import parse_checkpoint
from ledger.integrity.note import open_note, parse_vkey
from ledger.integrity.signer import Signer
from ledger.integrity.signer_store import COMING_KEY, SignerStore
from ledger.store import Store
from tests.chaos.dying_signer import DyingSigner
from tests.ledger.integrity.signing import ORIGIN, begin, grow, rotated

PROJECT = Path(__file__).resolve().parents[2]
MOST_STEPS = 40


@pytest.fixture(scope="module")
def dying() -> Iterator[DyingSigner]:
    process = DyingSigner()
    yield process
    process.close()


def check_checkpoints(store: Store, signer: Signer) -> None:
    """Every note kept anywhere is by our keys and says what the ledger is; the store's is among the rows."""
    rows = store.checkpoints()
    for row in rows:
        tree = parse_checkpoint(open_note(row.note, signer.vkeys()).text)
        assert (tree.size, tree.root) == (row.size, row.root) == (row.size, store.root_at(row.size))
    assert signer.anchor() in [row.note for row in rows]


def check_rotations(store: Store) -> None:
    """The first checkpoint over each rotation bears the signatures of the keys before and after it, others one."""
    named = [
        (event.position, parse_vkey(event.payload["vkey"]))
        for event in store.events(LEDGER_RUN_ID)
        if isinstance(event, Event) and event.type in ("LedgerCreated", "KeyRotated")
    ]
    before = 0
    for row in store.checkpoints():
        over = [key for position, key in named if before < position <= row.size]
        at_start = [key for position, key in named if position <= before][-1:]
        assert list(open_note(row.note, [key for _, key in named]).verified) == [*at_start, *over][-1 - len(over) :]
        assert len(over) <= 1 or before == 0
        before = row.size


def test_a_signer_killed_before_any_step_is_made_good_by_the_next(
    ledger_url: str, tmp_path: Path, dying: DyingSigner
) -> None:
    base = tmp_path / "signers"
    store, signer = begin(ledger_url, base)
    with store:
        signer.sign(store)
        for step in range(MOST_STEPS):
            before = store.checkpoints()
            grow(store, 1)
            died = dying(ledger_url, base, "sign", step)
            between = signer.anchor()
            assert between is not None
            grow(store, 1)
            signer.sign(store)
            check_checkpoints(store, signer)
            assert store.checkpoints()[: len(before)] == before
            assert between in [row.note for row in store.checkpoints()], "what was signed is published"
            if not died:
                break
        else:
            pytest.fail("it never came to its end")
        assert step >= 4
        assert not list(signer.kept.folder.glob(".*"))


def test_the_first_signature_of_a_ledger_may_be_cut_anywhere(
    tmp_path: Path, ledger_url: str, dying: DyingSigner
) -> None:
    for step in range(MOST_STEPS):
        base = tmp_path / f"signers-{step}"
        url = ledger_url if step == 0 else f"sqlite:///{tmp_path}/ledger-{step}.db"
        store, signer = begin(url, base)
        with store:
            grow(store, 3)
            died = dying(url, base, "sign", step)
            grow(store, 3)
            assert signer.sign(store).size == 7
            check_checkpoints(store, signer)
        if not died:
            return
    pytest.fail("it never came to its end")


def test_a_rotation_killed_before_any_step_is_finished_by_the_next_signature_and_never_doubled(
    ledger_url: str, tmp_path: Path, dying: DyingSigner
) -> None:
    base = tmp_path / "signers"
    store, signer = begin(ledger_url, base)
    with store:
        signer.sign(store)
        for step in range(MOST_STEPS):
            rotations = len(rotations_of(store))
            grow(store, 1)
            died = dying(ledger_url, base, "rotate", step)
            begun = len(rotations_of(store)) - rotations
            grow(store, 1)
            if step % 2:
                signer.sign(store)  # as any command that appends
            finished = begun and not (signer.kept.folder / COMING_KEY).exists()
            signer.rotate(store, rotated)  # as whoever asked for it does once more
            check_checkpoints(store, signer)
            check_rotations(store)
            assert finished or not step % 2 or not begun
            assert len(rotations_of(store)) - rotations == (2 if finished else 1)
            assert [path.name for path in signer.kept.folder.glob("*.pem")] == ["key.pem"]
            if not died:
                break
        else:
            pytest.fail("it never came to its end")
        assert step >= 12


def rotations_of(store: Store) -> list[Event]:
    found = store.events(LEDGER_RUN_ID)
    return [event for event in found if isinstance(event, Event) and event.type == "KeyRotated"]


SIGN_OFTEN = """
import sys
from pathlib import Path
from ledger import open_ledger
from ledger.integrity.signer import Signer
from ledger.integrity.signer_store import SignerStore
from tests.ledger.integrity.signing import ORIGIN, grow, rotated

url, base, run_id, times, rotations = sys.argv[1:]
with open_ledger(url, "write") as store:
    signer = Signer(SignerStore(Path(base), ORIGIN))
    for number in range(int(times)):
        signer.check(store)
        grow(store, 1, run_id)
        signer.sign(store)
        signer.vkey(store)
        if number < int(rotations):
            signer.rotate(store, rotated)
"""


def test_processes_that_append_sign_and_rotate_at_once_never_contradict_each_other(
    ledger_url: str, tmp_path: Path
) -> None:
    base = tmp_path / "signers"
    store, signer = begin(ledger_url, base)
    with store:
        signers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    SIGN_OFTEN,
                    ledger_url,
                    base,
                    f"run-{number}",
                    "10",
                    "4" if number == 0 else "0",
                ],
                cwd=PROJECT,
                stderr=subprocess.PIPE,
            )
            for number in range(3)
        ]
        for process in signers:
            _, err = process.communicate(timeout=100)
            assert process.returncode == 0, err.decode()
        assert store.head().size == 35
        check_checkpoints(store, Signer(SignerStore(base, ORIGIN)))
        check_rotations(store)
        assert store.checkpoints()[-1].size == 35
        assert signer.sign(store) == store.checkpoints()[-1]
