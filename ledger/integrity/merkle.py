"""The Merkle tree over a ledger's events (RFC 6962, section 2.1; proofs as in RFC 9162).

The tree of n leaves splits at the largest power of two below n; a lone node is promoted, never
doubled. Leaves and nodes are hashed with different prefixes, so that neither passes for the other.

Hashes are 32 bytes. Nothing here owns storage: functions that need stored hashes take two readers.

    read_leaves(first, count)         leaf hashes first, first+1 ...
    read_nodes(level, first, count)   roots of complete subtrees of 256**level leaves

Whoever appends stores the nodes that ``Frontier.append`` returns; a root or a proof then reads
at most some hundred hashes, whatever the size of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

HASH_BYTES: Final = 32
FANOUT_BITS: Final = 8
FANOUT: Final = 1 << FANOUT_BITS
"""Each stored level holds one node for 256 of the level below."""

EMPTY_ROOT: Final = sha256(b"").digest()

ReadLeaves = Callable[[int, int], Sequence[bytes]]
ReadNodes = Callable[[int, int, int], Sequence[bytes]]


class ProofError(ValueError):
    """A proof does not prove what it is said to."""


class TreeNode(NamedTuple):
    """The root of a complete subtree of 256**level leaves; ``node_index`` counts within its level."""

    level: int
    node_index: int
    hash: bytes


def leaf_hash(data: bytes) -> bytes:
    """The hash of one entry."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees side by side."""
    return sha256(b"\x01" + left + right).digest()


def root(leaf_hashes: Iterable[bytes]) -> bytes:
    """The root over leaf hashes in order; ``EMPTY_ROOT`` where there are none."""
    frontier = Frontier()
    for leaf in leaf_hashes:
        frontier.append(leaf)
    return frontier.root()


_NODE: Final = sha256(b"\x01")


def level_above(row: Sequence[bytes]) -> list[bytes]:
    """The hash of each two subtrees side by side; of an even number."""
    hashes, begin = [], _NODE.copy
    for left, right in zip(row[::2], row[1::2], strict=True):
        node = begin()
        node.update(left + right)
        hashes.append(node.digest())
    return hashes


class Frontier:
    """All of a tree that its growth needs: the roots of its perfect subtrees, largest first.

    A tree of n leaves has one perfect subtree for each bit set in n.
    """

    __slots__ = ("_hashes", "_size")

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        """Take a tree up again. Raises ``ValueError`` where hashes and size do not fit."""
        self._size = size
        self._hashes = list(hashes)
        if size < 0 or len(self._hashes) != size.bit_count() or any(len(h) != HASH_BYTES for h in self._hashes):
            raise ValueError(f"{len(self._hashes)} hashes are no frontier of a tree of {size}")

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self._size

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """Roots of the perfect subtrees, largest first."""
        return tuple(self._hashes)

    def append(self, leaf: bytes) -> tuple[TreeNode, ...]:
        """Add one leaf hash; give the nodes of 256, 65,536 ... leaves that it completes."""
        if len(leaf) != HASH_BYTES:
            raise ValueError("a leaf hash has 32 bytes")
        carry = self._size
        self._size += 1
        if not self._size % FANOUT:
            return self._append_completing(leaf)
        hashes = self._hashes
        while carry & 1:  # adding one to a binary number: each carry joins two equal subtrees
            leaf = sha256(b"\x01" + hashes.pop() + leaf).digest()
            carry >>= 1
        hashes.append(leaf)
        return ()

    def extend(self, leaves: Sequence[bytes]) -> list[TreeNode]:
        """Add many leaf hashes, as ``append`` would one by one, but level by level; the nodes lowest first."""
        row, first, height = list(leaves), self._size, 0
        if any(len(leaf) != HASH_BYTES for leaf in row):
            raise ValueError("a leaf hash has 32 bytes")
        self._size += len(row)
        alone: list[bytes] = []  # roots that found no neighbour, lowest first
        completed = []
        while row:
            if first & 1:  # the neighbour of the row's first is there
                first -= 1
                row.insert(0, self._hashes.pop())
            if len(row) & 1:
                alone.append(row.pop())
            row = level_above(row)
            first >>= 1
            height += 1
            if height % FANOUT_BITS == 0:
                level = height // FANOUT_BITS
                completed += [TreeNode(level, index, node) for index, node in enumerate(row, first)]
        self._hashes += reversed(alone)
        return completed

    def _append_completing(self, leaf: bytes) -> tuple[TreeNode, ...]:
        completed = []
        carry, height = self._size - 1, 0
        while carry & 1:
            leaf = node_hash(self._hashes.pop(), leaf)
            carry >>= 1
            height += 1
            if height % FANOUT_BITS == 0:
                completed.append(TreeNode(height // FANOUT_BITS, (self._size >> height) - 1, leaf))
        self._hashes.append(leaf)
        return tuple(completed)

    def append_block(self, node: bytes) -> tuple[TreeNode, ...]:
        """Add 256 leaves at once, ``node`` being their root, to a tree of whole blocks; nodes as for ``append``."""
        if self._size % FANOUT or len(node) != HASH_BYTES:
            raise ValueError("a block is one node of 32 bytes, added to a tree of whole blocks")
        carry, height = self._size >> FANOUT_BITS, FANOUT_BITS
        self._size += FANOUT
        completed = [TreeNode(1, carry, node)]
        while carry & 1:
            node = node_hash(self._hashes.pop(), node)
            carry >>= 1
            height += 1
            if height % FANOUT_BITS == 0:
                completed.append(TreeNode(height // FANOUT_BITS, (self._size >> height) - 1, node))
        self._hashes.append(node)
        return tuple(completed)

    def root(self) -> bytes:
        """The root of the whole tree; ``EMPTY_ROOT`` where it has no leaf."""
        if not self._hashes:
            return EMPTY_ROOT
        result = self._hashes[-1]
        for left in self._hashes[-2::-1]:
            result = node_hash(left, result)
        return result

    def to_bytes(self) -> bytes:
        """The hashes joined, largest subtree first."""
        return b"".join(self._hashes)

    @classmethod
    def from_bytes(cls, size: int, data: bytes) -> Frontier:
        """The inverse of ``to_bytes``. Raises ``ValueError`` where length and size do not fit."""
        return cls(size, (data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)))


# --- from storage --------------------------------------------------------------------------


def root_at(size: int, read_nodes: ReadNodes, read_leaves: ReadLeaves) -> bytes:
    """The root over the first ``size`` leaves of a stored tree."""
    if size < 0:
        raise ValueError("a tree has no negative size")
    return _range_root(0, size, read_nodes, read_leaves) if size else EMPTY_ROOT


def frontier_at(size: int, read_nodes: ReadNodes, read_leaves: ReadLeaves) -> Frontier:
    """The frontier of the first ``size`` leaves of a stored tree."""
    return Frontier(size, _perfect_roots(0, size, read_nodes, read_leaves))


def inclusion_proof(index: int, size: int, read_nodes: ReadNodes, read_leaves: ReadLeaves) -> list[bytes]:
    """Siblings from leaf ``index`` up to the root of ``size`` leaves (RFC 9162, section 2.1.3.1).

    Raises ``ProofError`` unless 0 <= index < size.
    """
    if not 0 <= index < size:
        raise ProofError(f"leaf {index} is not in a tree of {size}")
    proof: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            sibling, end = (middle, end), middle
        else:
            sibling, start = (start, middle), middle
        proof.append(_range_root(*sibling, read_nodes, read_leaves))
    proof.reverse()
    return proof


def consistency_proof(size1: int, size2: int, read_nodes: ReadNodes, read_leaves: ReadLeaves) -> list[bytes]:
    """That the first ``size1`` leaves begin the tree of ``size2`` (RFC 9162, section 2.1.4.1).

    Empty for equal sizes. Raises ``ProofError`` unless 0 < size1 <= size2: everything extends the
    empty tree, so a proof of that would prove nothing.
    """
    if not 0 < size1 <= size2:
        raise ProofError(f"a tree of {size2} cannot be shown to extend one of {size1}")
    proof: list[bytes] = []
    start, end = 0, size2
    while end != size1:
        middle = start + _split(end - start)
        if size1 <= middle:
            sibling, end = (middle, end), middle
        else:
            sibling, start = (start, middle), middle
        proof.append(_range_root(*sibling, read_nodes, read_leaves))
    if start > 0:  # what is left is not the whole old tree, so the verifier does not have its hash
        proof.append(_range_root(start, end, read_nodes, read_leaves))
    proof.reverse()
    return proof


def _split(count: int) -> int:
    """The largest power of two smaller than ``count`` (2 or more)."""
    return 1 << ((count - 1).bit_length() - 1)


def _range_root(start: int, end: int, read_nodes: ReadNodes, read_leaves: ReadLeaves) -> bytes:
    """The hash of leaves start..end-1, a node of some tree: ``start`` is aligned to its split."""
    roots = _perfect_roots(start, end, read_nodes, read_leaves)
    result = roots.pop()
    while roots:
        result = node_hash(roots.pop(), result)
    return result


def _perfect_roots(start: int, end: int, read_nodes: ReadNodes, read_leaves: ReadLeaves) -> list[bytes]:
    """Roots of the perfect subtrees that leaves start..end-1 fall into, largest first.

    Each is folded from the highest stored level that resolves it: at most 128 hashes.
    """
    roots: list[bytes] = []
    while start < end:
        height = (end - start).bit_length() - 1
        level, remainder = divmod(height, FANOUT_BITS)
        first, count = start >> (level * FANOUT_BITS), 1 << remainder
        hashes = read_nodes(level, first, count) if level else read_leaves(first, count)
        roots.append(_fold(hashes, count))
        start += 1 << height
    return roots


def _fold(hashes: Sequence[bytes], count: int) -> bytes:
    if len(hashes) != count or any(len(item) != HASH_BYTES for item in hashes):
        raise ValueError(f"storage gave {len(hashes)} hashes where {count} of 32 bytes were asked for")
    row = list(hashes)
    while len(row) > 1:
        row = [node_hash(row[at], row[at + 1]) for at in range(0, len(row), 2)]
    return row[0]


# --- proofs --------------------------------------------------------------------------------


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Check that ``leaf`` is leaf ``index`` of the tree of ``size`` (RFC 9162, section 2.1.3.2).

    ``size`` and ``root`` must come from what is trusted, never from the prover. Raises ``ProofError``.
    """
    _check_hashes(leaf, root, *proof)
    if not 0 <= index < size:
        raise ProofError(f"leaf {index} is not in a tree of {size}")
    node, last = index, size - 1
    computed = leaf
    for sibling in proof:
        if last == 0:
            raise ProofError("the proof is too long")
        if node & 1 or node == last:
            computed = node_hash(sibling, computed)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            computed = node_hash(computed, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise ProofError("the proof is too short")
    if computed != root:
        raise ProofError("the proof leads to another root")


def verify_consistency(size1: int, size2: int, proof: Sequence[bytes], root1: bytes, root2: bytes) -> None:
    """Check that the tree of ``size1`` begins the tree of ``size2`` (RFC 9162, section 2.1.4.2).

    Sizes and roots must come from what is trusted, never from the prover. Size 0 is always refused;
    equal sizes need equal roots and an empty proof. Raises ``ProofError``.
    """
    _check_hashes(root1, root2, *proof)
    if not 0 < size1 <= size2:
        raise ProofError(f"a tree of {size2} cannot be shown to extend one of {size1}")
    if size1 == size2:
        if proof:
            raise ProofError("a proof between equal sizes is empty")
        if root1 != root2:
            raise ProofError("equal sizes have different roots")
        return
    if not proof:
        raise ProofError("the proof is too short")
    _walk_consistency(size1, size2, list(proof), root1, root2)


def _walk_consistency(size1: int, size2: int, path: list[bytes], root1: bytes, root2: bytes) -> None:
    if size1 & (size1 - 1) == 0:  # a perfect old tree is a node of the new one
        path.insert(0, root1)
    node, last = size1 - 1, size2 - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    computed1 = computed2 = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofError("the proof is too long")
        if node & 1 or node == last:
            computed1 = node_hash(sibling, computed1)
            computed2 = node_hash(sibling, computed2)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            computed2 = node_hash(computed2, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise ProofError("the proof is too short")
    if computed1 != root1:
        raise ProofError("the proof leads to another old root")
    if computed2 != root2:
        raise ProofError("the proof leads to another new root")


def _check_hashes(*hashes: bytes) -> None:
    if any(len(item) != HASH_BYTES for item in hashes):
        raise ProofError("a hash has 32 bytes")
