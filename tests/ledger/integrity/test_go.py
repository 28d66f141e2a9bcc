"""Go's own libraries for signed notes and transparency logs agree with our notes, roots and proofs.

They are those that Go's checksum database and the transparency logs of the web are read with, so a
ledger's checkpoints and proofs can be checked by tools that know nothing of it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ledger.integrity.canonical import encode_payload
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.merkle import consistency_proof, inclusion_proof, leaf_hash, root, root_at
from ledger.integrity.note import parse_note, sign_note
from tests.ledger.integrity.test_note import KEY
from tests.ledger.integrity.tiles import Tiles

GO = shutil.which("go")
SOURCES = Path("/usr/share/gocode/src/golang.org/x/mod/sumdb")
PROGRAM = Path(__file__).parents[2] / "data" / "go" / "check_log.go"
EXAMPLE = Path(__file__).parents[2] / "data" / "ledger_example"

pytestmark = pytest.mark.skipif(
    GO is None or not SOURCES.is_dir(), reason="needs Go and golang.org/x/mod (Debian: golang-golang-x-mod-dev)"
)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def of_tree(envelopes: list[bytes], sizes: list[int], seed: int) -> dict[str, Any]:
    """Roots of the sizes, and proofs of some events and of each size in each later one."""
    tree, random = Tiles(list(map(leaf_hash, envelopes))), Random(seed)
    reads = tree.read_nodes, tree.read_leaves
    events = [(random.randrange(size), size) for size in sizes for _ in range(4)]
    events += [(size - 1, size) for size in sizes]
    return {
        "envelopes": [data.decode() for data in envelopes],
        "roots": {str(size): text(root_at(size, *reads)) for size in sizes},
        "inclusions": [
            {"index": index, "size": size, "proof": list(map(text, inclusion_proof(index, size, *reads)))}
            for index, size in events
        ],
        "consistencies": [
            {"old": old, "new": new, "proof": list(map(text, consistency_proof(old, new, *reads)))}
            for new in sizes
            for old in sizes
            if old < new
        ],
    }


def go_says(folder: Path, asked: dict[str, Any]) -> tuple[int, str]:
    assert GO is not None
    environment = {"GO111MODULE": "off", "GOPATH": str(SOURCES.parents[4]), "GOCACHE": str(folder / "cache")}
    done = subprocess.run(
        [GO, "run", str(PROGRAM)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    return done.returncode, done.stdout + done.stderr


def test_go_reads_the_examples_note_and_finds_every_root_and_proof_of_it_right(tmp_path: Path) -> None:
    lines = (EXAMPLE / "events.jsonl").read_bytes().splitlines()
    envelopes = [encode_payload(json.loads(line)["envelope"]) for line in lines]
    note = (EXAMPLE / "pinned-checkpoint-all.txt").read_text("utf-8")
    key = (EXAMPLE / "vkey.txt").read_text("utf-8").strip()
    asked = of_tree(envelopes, [*range(1, len(envelopes) + 1)], 1)
    asked |= {"vkey": key, "note": note, "text": parse_note(note).text}
    code, said = go_says(tmp_path, asked)
    assert (code, said) == (0, "14 events, 14 roots, 70 inclusions, 91 consistencies\n")


def test_go_agrees_over_a_tree_with_stored_nodes_and_refuses_what_was_bent(tmp_path: Path) -> None:
    envelopes = [f'{{"position":{number}}}'.encode() for number in range(1, 901)]
    checkpoint = Checkpoint(KEY.name, 900, root(map(leaf_hash, envelopes)))
    note = sign_note(format_checkpoint(checkpoint), [KEY])
    asked = of_tree(envelopes, [1, 2, 255, 256, 257, 511, 512, 513, 768, 899, 900], 2)
    asked |= {"vkey": str(KEY.verifier_key), "note": note, "text": format_checkpoint(checkpoint)}
    code, said = go_says(tmp_path, asked)
    assert (code, said) == (0, "900 events, 11 roots, 55 inclusions, 55 consistencies\n")
    asked["envelopes"][300] = asked["envelopes"][300].replace("301", "310")
    code, said = go_says(tmp_path, asked)
    assert code == 1
    assert "root of" in said or "event 300" in said
