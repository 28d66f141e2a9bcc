"""A verifier in another language, written from the format's page alone, agrees with ours.

``examples/verify_bundle.mjs`` is that verifier. Where it and ``verifier.py`` differ, the page leaves
something unsaid, or one of them is wrong.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.ledger.bundle.bundles import KEY, NAMES, entries, example_zip, forge, judge, pinned, repack, vkey
from tests.ledger.bundle.ledgers import bundle_of, sign, story_ledger, told

NODE = shutil.which("node")
PROGRAM = Path(__file__).parents[3] / "examples" / "verify_bundle.mjs"
EXAMPLE = example_zip()
PARTS = entries(EXAMPLE)

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js, which this machine does not have")


def second_opinion(folder: Path, data: bytes, key: str, checkpoint: bytes | None = None) -> tuple[int, str]:
    """Exit code and output of the other verifier."""
    assert NODE is not None
    bundle, kept = folder / "bundle.zip", folder / "kept.txt"
    bundle.write_bytes(data)
    words = [NODE, str(PROGRAM), str(bundle), key]
    if checkpoint is not None:
        kept.write_bytes(checkpoint)
        words.append(str(kept))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def agreed(folder: Path, data: bytes, key: str, checkpoint: bytes | None) -> int:
    """The exit code of both; they must be the same."""
    ours, said = judge(data, key, checkpoint)
    theirs, said_there = second_opinion(folder, data, key, checkpoint)
    assert ours == theirs, f"ours: {said}\ntheirs: {said_there}"
    return ours


def test_both_give_the_example_its_three_verdicts(tmp_path: Path) -> None:
    assert agreed(tmp_path, EXAMPLE, vkey(), pinned("all")) == 0
    assert agreed(tmp_path, EXAMPLE, vkey(), pinned(10)) == 3
    assert agreed(tmp_path, EXAMPLE, vkey(), None) == 3
    other = EXAMPLE.replace(b"rollout restart", b"rollout RESTART")
    assert other != EXAMPLE
    assert agreed(tmp_path, other, vkey(), pinned("all")) == 1


@pytest.mark.parametrize("seed", range(4))
def test_both_pass_runs_of_every_course_and_count_the_same(tmp_path: Path, seed: int) -> None:
    mine, other = told(seed * 31, run_id="mine", lines=9), told(seed * 31 + 7, run_id="other", lines=5)
    with story_ledger(tmp_path, other[:4], mine, other[4:]) as store:
        data, note = bundle_of(store, "mine")
    assert agreed(tmp_path, data, str(KEY.verifier_key), note.encode()) == 0
    assert agreed(tmp_path, data, str(KEY.verifier_key), None) == 3


def test_both_fail_flipped_bytes_with_and_without_a_manifest_that_matches(tmp_path: Path) -> None:
    draw = Random(17)
    for _ in range(6):
        at, bit = draw.randrange(len(EXAMPLE)), 1 << draw.randrange(4)
        bent = bytes([*EXAMPLE[:at], EXAMPLE[at] ^ bit, *EXAMPLE[at + 1 :]])
        assert agreed(tmp_path, bent, vkey(), pinned("all")) == 1
    for name in NAMES:
        data = PARTS[name]
        at, bit = draw.randrange(len(data)), 1 << draw.randrange(4)
        parts = {**PARTS, name: bytes([*data[:at], data[at] ^ bit, *data[at + 1 :]])}
        if name != "manifest.json":
            assert agreed(tmp_path, repack(parts), vkey(), pinned("all")) == 1


def test_both_fail_lines_that_are_dropped_doubled_or_swapped_in_a_bundle_signed_anew(tmp_path: Path) -> None:
    lines = PARTS["events.jsonl"].splitlines()
    key = str(KEY.verifier_key)
    for at in (0, 4, 13):
        assert agreed(tmp_path, forge([*lines[:at], *lines[at + 1 :]]), key, None) == 1
        assert agreed(tmp_path, forge([*lines[: at + 1], *lines[at:]]), key, None) == 1
    assert agreed(tmp_path, forge([*lines[:5], lines[6], lines[5], *lines[7:]]), key, None) == 1


def test_options_and_files_that_it_cannot_use_were_called_a_fail(tmp_path: Path) -> None:
    assert NODE is not None
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(EXAMPLE)
    for words in (
        (bundle, vkey(), "--max-window", "3"),
        (bundle, "--key", vkey()),
        (bundle, vkey(), "--checkpoint"),
        (bundle,),
        (bundle, "nonsense"),
        (bundle, vkey(), tmp_path / "none.txt"),
        (tmp_path / "none.zip", vkey()),
    ):
        done = subprocess.run([NODE, PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "usage: " in done.stderr


def test_both_fail_under_another_key_and_a_checkpoint_of_another_history(tmp_path: Path) -> None:
    assert agreed(tmp_path, EXAMPLE, str(KEY.verifier_key), pinned("all")) == 1
    with story_ledger(tmp_path, told(3, run_id="mine", lines=3)) as store:
        data, _ = bundle_of(store, "mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with story_ledger(elsewhere) as store:
        note = sign(store)
    assert agreed(tmp_path, data, str(KEY.verifier_key), note.encode()) == 1
