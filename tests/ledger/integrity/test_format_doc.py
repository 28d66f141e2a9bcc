"""docs/ledger-format.md is what outsiders write verifiers from, so what it says is checked here."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
import zlib
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from ledger.bundle.build import NAMES, readme
from ledger.events import EVENT_TYPES, Counts
from ledger.integrity import merkle, signer_store
from ledger.integrity.canonical import encode
from ledger.integrity.checkpoint import parse_checkpoint
from ledger.integrity.note import open_note, parse_note, parse_vkey
from ledger.integrity.rows import envelope_of
from ledger.integrity.verdict import Kind
from ledger.store.records import Record
from ledger.tables import RECORD_TABLES

PROJECT = Path(__file__).parents[3]
DOC = (PROJECT / "docs" / "ledger-format.md").read_text(encoding="utf-8")
EXAMPLE = PROJECT / "tests" / "data" / "ledger_example"
EVENTS = [json.loads(line) for line in (EXAMPLE / "events.jsonl").read_text(encoding="utf-8").splitlines()]
LEAVES = [merkle.leaf_hash(encode(event["envelope"])) for event in EVENTS]
VKEY = parse_vkey((EXAMPLE / "vkey.txt").read_text(encoding="utf-8").strip())


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"^#+ ", DOC.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def hashes(text: str) -> list[bytes]:
    """The indented lines that are a hash in hexadecimal."""
    return [bytes.fromhex(found) for found in re.findall(r"^    ([0-9a-f]{64})$", text, re.MULTILINE)]


def base64_blocks(text: str) -> list[list[bytes]]:
    """The blocks that are hashes in base64, one a line."""
    blocks = re.findall(r"^```text\n((?:[A-Za-z0-9+/]{43}=\n)+)```$", text, re.MULTILINE)
    return [[base64.b64decode(line) for line in block.split()] for block in blocks]


# --- section 1 -----------------------------------------------------------------------------


def test_the_worked_example_hashes_to_what_the_page_says() -> None:
    example = section("An example")
    objects = [line.strip().encode() for line in example.splitlines() if line.startswith("    {")]
    leaves = []
    for payload, envelope in zip(objects[::2], objects[1::2], strict=True):
        members = json.loads(envelope)
        assert encode(json.loads(payload)) == payload
        assert encode(members) == envelope
        assert sha256(payload).hexdigest() == members["payload_sha256"]
        EVENT_TYPES[members["type"]].model_validate_json(payload)
        leaves.append(merkle.leaf_hash(envelope))
    assert leaves == LEAVES[:2]
    assert hashes(example) == [*leaves, merkle.root(leaves)]


def test_the_worked_examples_content_has_the_commitment_that_the_page_says() -> None:
    example = " ".join(section("An example").split())
    content = re.search(r"with the content `([^`]+)` \((\d+) bytes\)", example)
    salt = re.search(r"the salt `([0-9a-f]{64})`", example)
    assert content is not None
    assert salt is not None
    data = content[1].encode()
    assert len(data) == int(content[2])
    commitment = sha256(b"\x02" + bytes.fromhex(salt[1]) + data).hexdigest()
    assert f'"content_commitment":"{commitment}"' in example


def test_the_page_lists_exactly_the_envelopes_members() -> None:
    named = re.findall(r"^\| `(\w+)` \|", section("Envelope"), re.MULTILINE)
    blank = dict.fromkeys(Record._fields)
    assert named == list(envelope_of(Record(**blank), "x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_the_page_lists_each_types_payload_as_it_is(name: str) -> None:
    rows = [line for line in section("Types").splitlines() if line.startswith("| `")]
    (row,) = (line for line in rows if f"`{name}`" in line.split("|")[1])
    stated = re.sub(r"\([^)]*\)", "", row.split("|")[2])
    known = EVENT_TYPES[name]
    members = [(member, optional == "?") for member, optional in re.findall(r"`(\w+)`(\??)", stated)]
    assert members == [(m, type(None) in get_args(f.annotation)) for m, f in known.model_fields.items()]


def test_the_page_names_every_count_table_and_kind_of_finding() -> None:
    for name in (*Counts.model_fields, *RECORD_TABLES):
        assert f"`{name}`" in DOC
    for kind in get_args(Kind):
        assert f"| {kind} |" in DOC


# --- section 4 -----------------------------------------------------------------------------


def test_the_vkey_on_the_page_is_the_examples_and_has_the_key_id_that_the_page_derives() -> None:
    text = section("Keys")
    assert f"    {VKEY}\n" in text
    derived = sha256(VKEY.name.encode() + b"\x0a\x01" + VKEY.public_key).digest()[:4]
    assert derived == VKEY.key_id


def test_the_checkpoint_on_the_page_is_the_examples_and_its_signature_covers_what_the_page_says() -> None:
    text = section("Checkpoints")
    note = re.search(r"^```text\n(.*?)```$", text, re.MULTILINE | re.DOTALL)
    assert note is not None
    assert note[1] == (EXAMPLE / "pinned-checkpoint-all.txt").read_text(encoding="utf-8")
    flat = " ".join(text.split())
    covered = re.search(r"its first (\d+) bytes, whose SHA-256 is `([0-9a-f]{64})`", flat)
    assert covered is not None
    signed = note[1].encode()[: int(covered[1])]
    assert signed.decode() == open_note(note[1], [VKEY]).text
    assert sha256(signed).hexdigest() == covered[2]
    (line,) = parse_note(note[1]).signatures
    assert f"the key id `{line.key_id.hex()}`" in flat
    assert f"    {line.signature.hex()}\n" in text
    tree = parse_checkpoint(note[1].split("\n\n")[0] + "\n")
    assert (tree.size, tree.root) == (len(LEAVES), merkle.root(LEAVES))


def test_the_page_lists_the_files_of_the_signers_store() -> None:
    listed = re.findall(r"^\| `([a-z.-]+)` \|", section("The signer's store"), re.MULTILINE)
    names = (signer_store.KEY, signer_store.COMING_KEY, signer_store.LAST, signer_store.VKEYS, signer_store.LOCK)
    assert listed == list(names)


# --- section 5 -----------------------------------------------------------------------------


def page_root(index: int, size: int, leaf: bytes, proof: list[bytes]) -> bytes:
    """The page's rule, as it is written there."""
    if size == 1:
        return leaf
    split = 1 << ((size - 1).bit_length() - 1)
    last = proof.pop()
    if index < split:
        return merkle.node_hash(page_root(index, split, leaf, proof), last)
    return merkle.node_hash(last, page_root(index - split, size - split, leaf, proof))


def page_roots(m: int, n: int, known: bytes | None, proof: list[bytes]) -> tuple[bytes, bytes]:
    """The page's rule for two roots at once; ``known`` is R1 while k is true."""
    if m == n:
        both = proof.pop() if known is None else known
        return both, both
    split = 1 << ((n - 1).bit_length() - 1)
    last = proof.pop()
    if m <= split:
        a, b = page_roots(m, split, known, proof)
        return a, merkle.node_hash(b, last)
    a, b = page_roots(m - split, n - split, None, proof)
    return merkle.node_hash(last, a), merkle.node_hash(last, b)


def test_the_proofs_on_the_page_prove_what_it_says() -> None:
    text = section("Proofs")
    inclusion, consistency = base64_blocks(text)
    root10, root14 = hashes(text)
    assert [root10, root14] == [merkle.root(LEAVES[:10]), merkle.root(LEAVES)]
    merkle.verify_inclusion(8, 14, LEAVES[8], inclusion, root14)
    merkle.verify_consistency(10, 14, consistency, root10, root14)


def test_the_pages_rules_for_proofs_accept_what_is_made_for_every_size() -> None:
    def read_leaves(first: int, count: int) -> list[bytes]:
        return LEAVES[first : first + count]

    def read_nodes(level: int, first: int, count: int) -> list[bytes]:
        raise AssertionError((level, first, count))  # so small a tree has none

    for size in range(1, len(LEAVES) + 1):
        root = merkle.root(LEAVES[:size])
        for index in range(size):
            proof = merkle.inclusion_proof(index, size, read_nodes, read_leaves)
            assert page_root(index, size, LEAVES[index], proof) == root
            assert proof == []
        for smaller in range(1, size + 1):
            before = merkle.root(LEAVES[:smaller])
            proof = merkle.consistency_proof(smaller, size, read_nodes, read_leaves)
            assert page_roots(smaller, size, before, proof) == (before, root)
            assert proof == []


# --- section 6 -----------------------------------------------------------------------------


def test_the_page_lists_a_bundles_entries_in_order_and_gives_the_readme_whole() -> None:
    listed = re.findall(r"^\| `([A-Za-z.]+)` \|", section("The zip"), re.MULTILINE)
    assert tuple(listed) == NAMES
    text = section("README.txt")
    assert sha256(readme()).hexdigest() in text
    assert f"```text\n{readme().decode()}```" in text


def zip_of(names_and_data: list[tuple[str, bytes]]) -> bytes:
    """A zip as the page's tables have it, field by field."""
    fields = re.findall(r"^\| ((?:\d, )*\d)? ?\| (.+) \|$", section("The zip"), re.MULTILINE)
    bodies, records = b"", b""
    for name, data in names_and_data:
        begins = len(bodies)
        in_header = True
        for widths, value in fields:
            if value == "`50 4b 01 02`":
                in_header = False
            made = _made(widths, value, name, data, begins)
            if in_header:
                bodies += made
            else:
                records += made
        bodies += data
    start, count = len(bodies).to_bytes(4, "little"), len(names_and_data).to_bytes(2, "little")
    end = b"PK\x05\x06" + bytes(4) + 2 * count + len(records).to_bytes(4, "little") + start + bytes(2)
    return bodies + records + end


def _made(widths: str, value: str, name: str, data: bytes, begins: int) -> bytes:
    if value == "the name":
        return name.encode()
    if value.startswith("`"):
        return bytes.fromhex(value.strip("`"))
    known = {
        "CRC-32": zlib.crc32(data),
        "size": len(data),
        "length of the name": len(name),
        "where the entry's header begins": begins,
    }
    known |= {"CRC-32 of the data": known["CRC-32"], "its size": len(data), "its size again": len(data)}
    words = [re.sub(r" \([^)]*\)", "", word) for word in re.split(r", (?![^(]*\))", value)]
    numbers = [known[word] if word in known else int(word, 0) for word in words]
    sizes = [int(width) for width in widths.split(", ")]
    return b"".join(number.to_bytes(size, "little") for number, size in zip(numbers, sizes, strict=True))


def test_a_zip_made_field_by_field_from_the_pages_tables_is_the_examples() -> None:
    example = (EXAMPLE / "audit-example-run.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(example)) as opened:
        entries = [(name, opened.read(name)) for name in opened.namelist()]
    assert zip_of(entries) == example
    begins = re.search(r"^    (504b[0-9a-f]+)$", section("The zip"), re.MULTILINE)
    assert begins is not None
    assert example.startswith(bytes.fromhex(begins[1]))


def test_the_sections_are_numbered_as_the_code_cites_them() -> None:
    numbers = [int(n) for n in re.findall(r"^## (\d+)\. ", DOC, re.MULTILINE)]
    assert numbers[0] == 1
    assert all(b == a + 1 for a, b in pairwise(numbers))
    titles = dict(re.findall(r"^## (\d+)\. (.+)$", DOC, re.MULTILINE))
    assert (titles["6"], titles["7"], titles["8"]) == ("Audit bundles", "Erasing content", "What this does not prove")
