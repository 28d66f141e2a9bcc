"""The Merkle tree against the RFCs' definitions, other people's vectors, and every kind of bad proof."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.integrity import merkle
from ledger.integrity.merkle import EMPTY_ROOT, Frontier, ProofError, TreeNode, leaf_hash, node_hash
from tests.ledger.integrity import vectors
from tests.ledger.integrity.tiles import Tiles


def leaves(count: int) -> list[bytes]:
    return [leaf_hash(str(n).encode()) for n in range(count)]


def defined_root(hashes: Sequence[bytes]) -> bytes:
    """RFC 6962, section 2.1, word for word."""
    if not hashes:
        return EMPTY_ROOT
    if len(hashes) == 1:
        return hashes[0]
    split = 1
    while split * 2 < len(hashes):
        split *= 2
    return node_hash(defined_root(hashes[:split]), defined_root(hashes[split:]))


MANY = 70_000  # past 65,536, so that level 2 has a node
BIG = Tiles(leaves(MANY))


def root_of(size: int) -> bytes:
    return merkle.root_at(size, BIG.read_nodes, BIG.read_leaves)


def inclusion(index: int, size: int) -> list[bytes]:
    return merkle.inclusion_proof(index, size, BIG.read_nodes, BIG.read_leaves)


def consistency(size1: int, size2: int) -> list[bytes]:
    return merkle.consistency_proof(size1, size2, BIG.read_nodes, BIG.read_leaves)


# --- hashes and roots ----------------------------------------------------------------------


def test_the_reference_trees_hashes_and_roots_come_out() -> None:
    tree = vectors.load("rfc6962/reference_tree.json")
    assert tree["empty_root"] == EMPTY_ROOT.hex()
    for case in tree["leaf_hash"]:
        assert leaf_hash(bytes.fromhex(case["leaf_hex"])).hex() == case["hash"]
    for case in tree["node_hash"]:
        assert node_hash(bytes.fromhex(case["left_hex"]), bytes.fromhex(case["right_hex"])).hex() == case["hash"]
    hashes = [leaf_hash(bytes.fromhex(text)) for text in tree["leaf_inputs"]]
    assert [item.hex() for item in hashes] == tree["leaf_hashes"]
    assert [merkle.root(hashes[:size]).hex() for size in range(9)] == tree["root_by_size"]


def test_the_frontiers_root_is_the_defined_root_at_every_size() -> None:
    hashes = leaves(2000)
    frontier = Frontier()
    for size in range(2001):
        assert frontier.size == size
        if size % 7 == 0 or size < 600:
            assert frontier.root() == defined_root(hashes[:size])
        if size < 2000:
            frontier.append(hashes[size])


def test_a_lone_node_is_promoted_and_not_doubled() -> None:
    a, b, c = leaves(3)
    assert merkle.root([a, b, c]) == node_hash(node_hash(a, b), c)
    assert merkle.root([a, b, c]) != merkle.root([a, b, c, c])


@given(st.integers(0, 600), st.integers(0, 60))
def test_a_frontier_taken_up_again_goes_on_as_if_it_had_never_been_put_down(size: int, more: int) -> None:
    hashes = leaves(size + more)
    before = Frontier()
    for item in hashes[:size]:
        before.append(item)
    again = Frontier.from_bytes(size, before.to_bytes())
    assert again.hashes == before.hashes
    for item in hashes[size:]:
        again.append(item)
    assert again.root() == merkle.root(hashes)


@pytest.mark.parametrize(("size", "data"), [(1, b""), (0, b"x" * 32), (3, b"x" * 32), (1, b"x" * 31), (-1, b"x" * 32)])
def test_a_frontier_that_does_not_fit_its_size_is_refused(size: int, data: bytes) -> None:
    with pytest.raises(ValueError, match="frontier"):
        Frontier.from_bytes(size, data)


@given(before=st.integers(0, 700), added=st.lists(st.integers(0, 700), max_size=4))
def test_leaves_added_by_the_row_are_as_those_added_one_by_one(before: int, added: list[int]) -> None:
    many = leaves(before + sum(added))
    one_by_one, by_the_row = Frontier(), Frontier()
    for leaf in many[:before]:
        one_by_one.append(leaf)
        by_the_row.append(leaf)
    at = before
    for count in added:
        row, at = many[at : at + count], at + count
        nodes = [node for leaf in row for node in one_by_one.append(leaf)]
        assert sorted(by_the_row.extend(row)) == sorted(nodes)
        assert (by_the_row.size, by_the_row.hashes) == (one_by_one.size, one_by_one.hashes)


def test_a_row_of_leaves_past_two_levels_gives_the_nodes_of_both() -> None:
    frontier = Frontier()
    nodes = frontier.extend(leaves(MANY))
    assert frontier.root() == root_of(MANY)
    assert [(node.level, node.node_index) for node in nodes] == [(1, n) for n in range(MANY >> 8)] + [(2, 0)]


def test_a_row_with_a_leaf_hash_of_another_length_adds_nothing() -> None:
    frontier = Frontier()
    with pytest.raises(ValueError, match="32 bytes"):
        frontier.extend([bytes(32), b"short"])
    assert (frontier.size, frontier.hashes) == (0, ())


def test_a_leaf_hash_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Frontier().append(b"short")


def test_nodes_are_given_out_exactly_when_they_are_complete() -> None:
    hashes = leaves(65_536)
    frontier = Frontier()
    given_out = {number: nodes for number, leaf in enumerate(hashes, 1) if (nodes := frontier.append(leaf))}
    assert sorted(given_out) == list(range(256, 65_537, 256))
    assert given_out[512] == (TreeNode(1, 1, defined_root(hashes[256:512])),)
    assert given_out[65_536][1] == TreeNode(2, 0, frontier.root())
    assert [len(nodes) for nodes in given_out.values()] == [1] * 255 + [2]


# --- from storage --------------------------------------------------------------------------


@given(st.integers(0, MANY))
@settings(max_examples=30, deadline=None)
def test_the_root_from_storage_is_the_root_over_the_leaves(size: int) -> None:
    assert root_of(size) == merkle.root(BIG.leaves[:size])
    frontier = merkle.frontier_at(size, BIG.read_nodes, BIG.read_leaves)
    assert (frontier.size, frontier.root()) == (size, root_of(size))


@given(st.data())
def test_every_inclusion_proof_from_storage_verifies_and_reads_little(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, MANY))
    index = data.draw(st.integers(0, size - 1))
    BIG.reads = 0
    proof = inclusion(index, size)
    assert BIG.reads <= 2 * 256 * 3
    merkle.verify_inclusion(index, size, BIG.leaves[index], proof, root_of(size))


@given(st.data())
def test_every_consistency_proof_from_storage_verifies_and_reads_little(data: st.DataObject) -> None:
    size2 = data.draw(st.integers(1, MANY))
    size1 = data.draw(st.integers(1, size2))
    BIG.reads = 0
    proof = consistency(size1, size2)
    assert BIG.reads <= 2 * 256 * 3
    merkle.verify_consistency(size1, size2, proof, root_of(size1), root_of(size2))


def test_all_proofs_of_all_small_trees_verify() -> None:
    for size in range(1, 34):
        for index in range(size):
            merkle.verify_inclusion(index, size, BIG.leaves[index], inclusion(index, size), root_of(size))
        for old in range(1, size + 1):
            merkle.verify_consistency(old, size, consistency(old, size), root_of(old), root_of(size))


def test_storage_that_gives_too_little_is_an_error_and_not_a_wrong_root() -> None:
    with pytest.raises(ValueError, match="storage"):
        merkle.root_at(2, BIG.read_nodes, lambda first, count: BIG.leaves[first : first + count - 1])
    with pytest.raises(ValueError, match="storage"):
        merkle.root_at(2, BIG.read_nodes, lambda first, count: [b"short"] * count)
    with pytest.raises(ValueError, match="negative"):
        root_of(-1)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 5), (5, 5)])
def test_no_inclusion_proof_is_made_for_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(ProofError):
        inclusion(index, size)


@pytest.mark.parametrize(("size1", "size2"), [(0, 0), (0, 5), (6, 5), (-1, 5)])
def test_no_consistency_proof_is_made_from_nothing_or_backwards(size1: int, size2: int) -> None:
    with pytest.raises(ProofError):
        consistency(size1, size2)


# --- bad proofs ----------------------------------------------------------------------------


def test_other_peoples_inclusion_proofs_fail_exactly_where_they_should() -> None:
    paths = sorted((vectors.folder("merkle") / "testdata" / "inclusion").rglob("*.json"))
    assert len(paths) == 98
    for path in paths:
        case = json.loads(path.read_bytes())
        leaf, root = base64.b64decode(case["leafHash"] or ""), base64.b64decode(case["root"] or "")
        proof = [base64.b64decode(item) for item in case["proof"] or []]
        try:
            merkle.verify_inclusion(case["leafIdx"], case["treeSize"], leaf, proof, root)
        except ProofError:
            assert case["wantErr"], path
        else:
            assert not case["wantErr"], path


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


@given(st.data())
def test_any_flipped_bit_of_an_inclusion_proof_makes_it_fail(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 3000))
    index = data.draw(st.integers(0, size - 1))
    hashes = [BIG.leaves[index], root_of(size), *inclusion(index, size)]
    at, bit = data.draw(st.integers(0, len(hashes) - 1)), data.draw(st.integers(0, 255))
    hashes[at] = flipped(hashes[at], bit)
    with pytest.raises(ProofError):
        merkle.verify_inclusion(index, size, hashes[0], hashes[2:], hashes[1])


@given(st.data())
def test_any_flipped_bit_of_a_consistency_proof_makes_it_fail(data: st.DataObject) -> None:
    size2 = data.draw(st.integers(1, 3000))
    size1 = data.draw(st.integers(1, size2))
    hashes = [root_of(size1), root_of(size2), *consistency(size1, size2)]
    at, bit = data.draw(st.integers(0, len(hashes) - 1)), data.draw(st.integers(0, 255))
    hashes[at] = flipped(hashes[at], bit)
    with pytest.raises(ProofError):
        merkle.verify_consistency(size1, size2, hashes[2:], hashes[0], hashes[1])


@given(st.data())
def test_a_proof_with_a_hash_more_or_less_fails(data: st.DataObject) -> None:
    size2 = data.draw(st.integers(2, 3000))
    size1 = data.draw(st.integers(1, size2 - 1))
    index = data.draw(st.integers(0, size2 - 1))
    for longer in (True, False):
        path = inclusion(index, size2)
        steps = consistency(size1, size2)
        for proof in (path, steps):
            at = data.draw(st.integers(0, len(proof) - 1))
            proof[at : at + 1] = [proof[at]] * (2 if longer else 0)
        with pytest.raises(ProofError):
            merkle.verify_inclusion(index, size2, BIG.leaves[index], path, root_of(size2))
        with pytest.raises(ProofError):
            merkle.verify_consistency(size1, size2, steps, root_of(size1), root_of(size2))


@given(st.data())
def test_an_inclusion_proof_holds_for_no_other_index(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 3000))
    index, other = data.draw(st.lists(st.integers(-1, size), min_size=2, max_size=2, unique=True))
    index = min(max(index, 0), size - 1)
    if index == other:
        return
    with pytest.raises(ProofError):
        merkle.verify_inclusion(other, size, BIG.leaves[index], inclusion(index, size), root_of(size))


def test_consistency_from_nothing_is_refused_whatever_the_proof() -> None:
    for proof in ([], [EMPTY_ROOT], [root_of(4)]):
        with pytest.raises(ProofError):
            merkle.verify_consistency(0, 4, proof, EMPTY_ROOT, root_of(4))
        with pytest.raises(ProofError):
            merkle.verify_consistency(0, 0, proof, EMPTY_ROOT, EMPTY_ROOT)


def test_equal_sizes_need_equal_roots_and_an_empty_proof() -> None:
    merkle.verify_consistency(4, 4, [], root_of(4), root_of(4))
    with pytest.raises(ProofError):
        merkle.verify_consistency(4, 4, [root_of(4)], root_of(4), root_of(4))
    with pytest.raises(ProofError):
        merkle.verify_consistency(4, 4, [], root_of(4), root_of(5))


def test_a_shrinking_tree_and_a_missing_proof_are_refused() -> None:
    with pytest.raises(ProofError):
        merkle.verify_consistency(5, 4, [], root_of(5), root_of(4))
    with pytest.raises(ProofError):
        merkle.verify_consistency(4, 5, [], root_of(4), root_of(5))


def test_hashes_of_another_length_are_refused_even_where_nothing_is_computed_from_them() -> None:
    with pytest.raises(ProofError):
        merkle.verify_inclusion(0, 1, b"short", [], b"short")
    with pytest.raises(ProofError):
        merkle.verify_consistency(4, 4, [], b"", b"")
    proof = inclusion(3, 8)
    with pytest.raises(ProofError):
        merkle.verify_inclusion(3, 8, BIG.leaves[3], [*proof[:-1], proof[-1] + b"\0"], root_of(8))
