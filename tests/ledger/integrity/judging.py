"""Verdicts on a ledger that was tampered with, and how somebody who knows the format would mend its hashes."""

from __future__ import annotations

import hashlib
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.integrity import merkle
from ledger.integrity.canonical import encode_payload
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import SigningKey, sign_note
from ledger.integrity.rows import envelope_of
from ledger.integrity.verdict import Finding, Verdict
from ledger.integrity.verify import verify
from ledger.store import Store
from ledger.store.records import Checkpoint as StoredCheckpoint
from tests.ledger.integrity.small import ORIGIN, opened
from tests.ledger.integrity.tampering import Statement, tamper

KEY = SigningKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes(32)))


def judged(url: str, **asked: Any) -> Verdict:
    """The verdict, of which it is made sure that it does not depend on the way it was come to."""
    with opened(url, "read") as store:
        verdict = verify(store, **asked)
        slowly = verify(store, row_by_row=True, **asked)
    assert verdict == slowly
    assert verdict.as_dict()["verdict"] == verdict.result
    assert all(line.isprintable() for line in verdict.lines())
    return verdict


def findings(url: str, *statements: Statement) -> list[Finding]:
    """What verify finds once the statements were run; there must be something."""
    tamper(url, *statements)
    verdict = judged(url)
    assert verdict.result == "FAIL"
    assert verdict.exit_code == 1
    return list(verdict.findings)


def places(found: list[Finding]) -> set[tuple[int | None, str, str]]:
    return {(item.position, item.member, item.kind) for item in found}


def rehash(url: str, *statements: Statement) -> list[Finding]:
    """Tamper, then mend every hash, node and the head, as somebody who read the format would."""
    tamper(url, *statements)
    mended: list[Statement] = []
    with opened(url, "read") as store:
        frontier, last = merkle.Frontier(), ""
        nodes: list[merkle.TreeNode] = []
        for record in store.records():
            fixed = record._replace(payload_sha256=hashlib.sha256(record.payload.encode()).hexdigest())
            leaf = merkle.leaf_hash(encode_payload(envelope_of(fixed, ORIGIN)))
            nodes += frontier.append(leaf)
            last = record.recorded_at
            sql = "UPDATE events SET payload_sha256 = :d, leaf_hash = :h WHERE position = :p"
            mended.append((sql, {"d": fixed.payload_sha256, "h": leaf, "p": record.position}))
    mended.append("DELETE FROM tree_nodes")
    sql = "INSERT INTO tree_nodes (level, node_index, hash) VALUES (:level, :index, :hash)"
    mended += [(sql, {"level": node.level, "index": node.node_index, "hash": node.hash}) for node in nodes]
    sql = "UPDATE ledger_head SET size = :size, root = :root, frontier = :frontier, recorded_at = :last"
    head = {"size": frontier.size, "root": frontier.root(), "frontier": frontier.to_bytes(), "last": last}
    tamper(url, *mended, (sql, head))
    return list(judged(url).findings)


def saved(store: Store, size: int, root: bytes | None = None, origin: str = ORIGIN) -> StoredCheckpoint:
    root = store.root_at(size) if root is None else root
    return StoredCheckpoint(size, root, sign_note(format_checkpoint(Checkpoint(origin, size, root)), [KEY]))
