"""docs/ledger-format.md is what outsiders write verifiers from, so what it says is checked here."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import get_args

import pytest

from ledger.events import EVENT_TYPES, Counts
from ledger.integrity import merkle
from ledger.integrity.canonical import encode
from ledger.integrity.rows import envelope_of
from ledger.integrity.verdict import Kind
from ledger.store.records import Record
from ledger.tables import RECORD_TABLES

DOC = (Path(__file__).parents[3] / "docs" / "ledger-format.md").read_text(encoding="utf-8")


def test_the_worked_example_hashes_to_what_the_page_says() -> None:
    objects = [line.strip().encode() for line in DOC.splitlines() if line.startswith("    {")]
    leaf1, leaf2, root2 = (bytes.fromhex(text) for text in re.findall(r"^    ([0-9a-f]{64})$", DOC, re.MULTILINE))
    leaves = []
    for payload, envelope in zip(objects[::2], objects[1::2], strict=True):
        members = json.loads(envelope)
        assert encode(json.loads(payload)) == payload
        assert encode(members) == envelope
        assert sha256(payload).hexdigest() == members["payload_sha256"]
        EVENT_TYPES[members["type"]].model_validate_json(payload)
        leaves.append(merkle.leaf_hash(envelope))
    assert leaves == [leaf1, leaf2]
    assert merkle.root(leaves) == root2


def test_the_worked_examples_content_has_the_commitment_that_the_page_says() -> None:
    content = re.search(r"with the content `([^`]+)` \((\d+) bytes", DOC)
    salt = re.search(r"the salt\n`([0-9a-f]{64})`", DOC)
    assert content is not None
    assert salt is not None
    data = content[1].encode()
    assert len(data) == int(content[2])
    commitment = sha256(b"\x02" + bytes.fromhex(salt[1]) + data).hexdigest()
    assert f'"content_commitment":"{commitment}"' in DOC


def test_the_page_lists_exactly_the_envelopes_members() -> None:
    table = DOC.split("### Envelope")[1].split("### Payload")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    blank = dict.fromkeys(Record._fields)
    assert named == list(envelope_of(Record(**blank), "x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_the_page_lists_each_types_payload_as_it_is(name: str) -> None:
    (row,) = (line for line in DOC.splitlines() if line.startswith("| `") and f"`{name}`" in line.split("|")[1])
    stated = re.sub(r"\([^)]*\)", "", row.split("|")[2])
    known = EVENT_TYPES[name]
    members = [(member, optional == "?") for member, optional in re.findall(r"`(\w+)`(\??)", stated)]
    assert members == [(m, type(None) in get_args(f.annotation)) for m, f in known.model_fields.items()]


def test_the_page_names_every_count_table_and_kind_of_finding() -> None:
    for name in (*Counts.model_fields, *RECORD_TABLES):
        assert f"`{name}`" in DOC
    for kind in get_args(Kind):
        assert f"| {kind} |" in DOC
