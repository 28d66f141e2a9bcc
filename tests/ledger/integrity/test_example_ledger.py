"""An independent program made this ledger from the format's description; every byte must agree."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

from ledger.integrity import merkle
from ledger.integrity.canonical import encode, encode_payload
from tests.ledger.integrity import vectors


def lines() -> list[tuple[bytes, dict[str, Any]]]:
    data = (vectors.folder("ledger_example") / "events.jsonl").read_bytes()
    return [(line, json.loads(line)) for line in data.splitlines()]


def test_its_lines_and_payloads_are_canonical() -> None:
    for line, record in lines():
        assert encode(record) == line
        assert encode_payload(record) == line
        digest = sha256(encode_payload(record["payload"])).hexdigest()
        assert digest == record["envelope"]["payload_sha256"]


def test_its_contents_keep_their_commitments() -> None:
    for _, record in lines():
        if record["content"] is None:
            continue
        content = record["content"]
        data = base64.b64decode(content) if record["encoding"] == "base64" else content.encode()
        commitment = sha256(b"\x02" + bytes.fromhex(record["salt"]) + data).hexdigest()
        assert commitment == record["envelope"]["content_commitment"]


def test_its_root_agrees_at_every_size() -> None:
    roots = vectors.load("ledger_example/roots.json")
    frontier = merkle.Frontier()
    assert frontier.root().hex() == roots["0"]
    for size, (_, record) in enumerate(lines(), 1):
        frontier.append(merkle.leaf_hash(encode_payload(record["envelope"])))
        assert frontier.root().hex() == roots[str(size)]
    assert frontier.size == 14
