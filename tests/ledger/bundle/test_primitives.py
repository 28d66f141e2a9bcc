"""The verifier's own cryptography, JSON and trees, against other people's vectors and against ours."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.integrity import merkle
from ledger.integrity.canonical import encode
from tests.ledger.bundle.bundles import EXAMPLE, event_line, load_verifier
from tests.ledger.integrity import vectors

v = load_verifier()
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493


# --- Ed25519 -------------------------------------------------------------------------------


def test_rfc_8032_signatures_are_valid_and_no_others() -> None:
    for case in vectors.load("ed25519/rfc8032.json")["vectors"]:
        key, message, signature = (bytes.fromhex(case[name]) for name in ("public_key", "message", "signature"))
        assert v.signature_valid(key, message, signature)
        for byte in range(0, 64, 5):
            bent = bytearray(signature)
            bent[byte] ^= 1 << byte % 8
            assert not v.signature_valid(key, message, bytes(bent))
        assert not v.signature_valid(key, message + b"x", signature)


@settings(max_examples=15)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_what_another_implementation_signs_is_valid(secret: bytes, message: bytes) -> None:
    private = Ed25519PrivateKey.from_private_bytes(secret)
    key, signature = private.public_key().public_bytes_raw(), private.sign(message)
    assert v.signature_valid(key, message, signature)
    assert not v.signature_valid(key, message, signature[:63])
    assert not v.signature_valid(key, message, signature + b"\0")
    assert not v.signature_valid(key[:31], message, signature)


def test_an_s_that_is_not_reduced_is_refused() -> None:
    """Adding the group's order to S gives a second signature that lenient verifiers take."""
    private = Ed25519PrivateKey.from_private_bytes(bytes(32))
    key, signature = private.public_key().public_bytes_raw(), private.sign(b"m")
    s = int.from_bytes(signature[32:], "little")
    for other in (s + ORDER, s + 2 * ORDER, s | 1 << 255):
        assert not v.signature_valid(key, b"m", signature[:32] + other.to_bytes(32, "little"))


def _small_ys() -> set[int]:
    """The y of every point of small order: what is left of any point once it is multiplied by the group's order."""
    ys = set()
    for y in range(2, 60):
        point = v.decode_point(y.to_bytes(32, "little"))
        if point is not None:
            left = v.multiply_point(ORDER, point)
            ys.add(left[1] * pow(left[2], -1, P) % P)
    return ys


# Every encoding, canonical or not, of a point of small order.
_SMALL_Y = [*sorted(_small_ys()), P, P + 1]
SMALL = [(y | sign << 255).to_bytes(32, "little") for y in _SMALL_Y for sign in (0, 1)]


@pytest.mark.parametrize("small", SMALL, ids=bytes.hex)
def test_a_key_of_small_order_signs_nothing(small: bytes) -> None:
    """Under such a key R and S of zero would verify any message, or one in eight."""
    point = v.decode_point(small)
    if point is not None:
        assert v.encode_point(v.multiply_point(8, point)) == v.encode_point(v.NEUTRAL)
    for message in (b"", b"a", b"b", b"c", b"d", b"e", b"f", b"g"):
        assert not v.signature_valid(small, message, small + bytes(32))
        assert not v.signature_valid(small, message, (1).to_bytes(32, "little") + bytes(32))


@pytest.mark.parametrize("small", SMALL, ids=bytes.hex)
def test_an_r_of_small_order_is_refused(small: bytes) -> None:
    """Whoever holds the key can make such an R fit: S = k * a."""
    secret = bytes(range(32))
    private = Ed25519PrivateKey.from_private_bytes(secret)
    key = private.public_key().public_bytes_raw()
    import hashlib

    scalar = int.from_bytes(hashlib.sha512(secret).digest()[:32], "little")
    scalar = (scalar & ((1 << 254) - 8)) | 1 << 254
    k = int.from_bytes(hashlib.sha512(small + key + b"m").digest(), "little") % ORDER
    assert not v.signature_valid(key, b"m", small + (k * scalar % ORDER).to_bytes(32, "little"))


@pytest.mark.parametrize("y", [P, P + 1, P + 18, 2**255 - 1])
def test_a_point_that_is_not_canonically_encoded_is_none(y: int) -> None:
    for sign in (0, 1):
        assert v.decode_point((y | sign << 255).to_bytes(32, "little")) is None


def test_all_points_of_small_order_are_known_here() -> None:
    assert len([y for y in _SMALL_Y if y < P]) == 5  # 0, 1, -1 and two of order 8; with both signs, eight points


def test_zero_has_no_negative() -> None:
    assert v.decode_point((1).to_bytes(32, "little")) == v.NEUTRAL
    assert v.decode_point((1 | 1 << 255).to_bytes(32, "little")) is None


# --- JSON ----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_its_canonical_form_is_ours(value: Any) -> None:
    text = encode(value).decode()
    assert v.canonical(value) == text
    assert v.parse_json(text.encode(), "it") == value


FLAT = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5)
OBJECTS = st.dictionaries(st.text(max_size=3), FLAT | st.lists(FLAT, max_size=2), min_size=1, max_size=4)


@settings(max_examples=300)
@given(OBJECTS, OBJECTS, st.data())
def test_the_quick_look_at_a_payload_takes_what_the_thorough_one_takes_and_nothing_else(
    first: dict[str, Any], other: dict[str, Any], data: st.DataObject
) -> None:
    """Held to the form of another payload, also where values are exchanged, and where any character is."""
    v._fits.clear()
    assert v.parse_payload("Told", encode(first).decode()) == first
    values = st.sampled_from([*first.values(), *other.values()])
    text = encode({name: data.draw(values) for name in first}).decode()
    at = data.draw(st.integers(0, len(text) - 1))
    bent = (
        text[:at]
        + data.draw(st.sampled_from(['"', "\\", "0", "-", " ", ",", ":", "{", "}", "a", "\x00", "é"]))
        + text[at:]
    )
    for tried in (text, bent, text[:at] + text[at + 1 :], encode(other).decode()):
        try:
            expected = v.parse_json(tried.encode(), "payload")
        except v.Fault:
            with pytest.raises(v.Fault):
                v.parse_payload("Told", tried)
        else:
            assert v.parse_payload("Told", tried) == expected


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        *(
            (f'"{text}"', True)
            for text in ("\\n", "\\\\u0041", "\\u0001", "\\u001f", "\x7f", "\u2028", "/", "\\\\/", "€")
        ),
        *(
            (f'"{text}"', False)
            for text in ("\\/", "\\u0041", "\\u001F", "\\u000a", "\\u20ac", "\\ud800", "\\x", "\n", "\t")
        ),
        *((text, False) for text in ("0", "true", "[]", "{}", ' ""', '"" ')),
    ],
)
def test_a_content_has_one_form(value: str, canonical: bool) -> None:
    envelope = json.loads((EXAMPLE / "events.jsonl").read_text().splitlines()[1])["envelope"]
    body = json.loads(value) if canonical else "x"
    line = event_line(envelope, b'{"a":1}', body).decode()
    made = line.replace('{"content":' + encode(body).decode(), '{"content":' + value, 1)
    if canonical:
        assert v.Event(made.encode()).payload == {"a": 1}
    else:
        with pytest.raises((v.Fault, TypeError, ValueError)):
            v.Event(made.encode())


def test_other_peoples_canonical_forms_come_out_and_what_the_format_has_not_is_refused() -> None:
    folder = vectors.folder("jcs") / "testdata"
    refused = []
    for path in sorted((folder / "input").iterdir()):
        expected = (folder / "output" / path.name).read_text(encoding="utf-8")
        try:
            value, _ = v._decode(path.read_text(encoding="utf-8"))
        except ValueError:
            refused.append(path.name)
            continue
        assert v.canonical(value) == expected
        assert v.parse_json(expected.encode(), path.name) == value
    assert refused == ["structures.json", "values.json"]  # they hold floats


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":1,"a":1}', '{"b":1,"a":2}', '{"a": 1}', ' {"a":1}', '{"a":1} ', '{"a":1}x', "", "[1,]"),
        *("1.0", "1e2", "-0", "01", "NaN", "Infinity", "-Infinity", "9007199254740992", "-9007199254740992"),
        *("9" * 5000, '"\\u0041"', '"\\/"', '"\x01"', '"\\ud800"', "\ufeff{}", "[" * 100_000),
        '{"\ufb33":1,"\U0001f600":2}',
    ],
    ids=lambda text: repr(text[:30]),
)
def test_json_in_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(v.Fault):
        v.parse_json(text.encode(), "it")


# --- notes ---------------------------------------------------------------------------------


def test_other_peoples_notes_open_and_their_bad_ones_do_not() -> None:
    cases = vectors.load("notes/signed_notes.json")
    for case in cases["accept"]:
        _, signers = v.open_note(case["note"].encode(), [v.parse_vkey(text) for text in case["vkeys"]])
        assert len(signers) == case["verified"], case["name"]
    for case in cases["reject"]:
        keys = [v.parse_vkey(text) for text in case["vkeys"]]
        with pytest.raises(v.Fault):
            v.open_note(base64.b64decode(case["note_b64"]), keys)
    for text in cases["bad_vkeys"]:
        with pytest.raises(v.Fault):
            v.parse_vkey(text)
    name, _, encoded = cases["sign"]["skey"].removeprefix("PRIVATE+KEY+").split("+", 2)
    private = Ed25519PrivateKey.from_private_bytes(base64.b64decode(encoded)[1:])
    from ledger.integrity.note import SigningKey

    text, signers = v.open_note(
        cases["sign"]["expect"].encode(), [v.parse_vkey(str(SigningKey(name, private).verifier_key))]
    )
    assert (text, len(signers)) == (cases["sign"]["text"], 1)


@pytest.mark.parametrize(("size", "opens"), [(1_000_000, True), (1_000_001, False)])
def test_a_note_has_a_million_bytes_at_most_here_as_in_the_ledgers_own_reader(size: int, opens: bool) -> None:
    from ledger.integrity.note import NoteError, SigningKey, open_note, sign_note

    key = SigningKey("somebody.example", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    note = sign_note("x" * (size - len(sign_note("\n", [key]).encode())) + "\n", [key]).encode()
    assert len(note) == size
    if opens:
        assert v.open_note(note, [v.parse_vkey(str(key.verifier_key))])[0] == open_note(note, [key.verifier_key]).text
        return
    with pytest.raises(v.Fault, match="more than 1000000 bytes"):
        v.open_note(note, [v.parse_vkey(str(key.verifier_key))])
    with pytest.raises(NoteError):
        open_note(note, [key.verifier_key])


def test_checkpoint_bodies_of_others_are_read_or_refused() -> None:
    from ledger.integrity.note import SigningKey, sign_note

    bodies = vectors.load("notes/signed_notes.json")["checkpoint_body"]
    for body in [*bodies["bad"], *(good["body"] for good in bodies["good"])]:  # these have roots of other lengths
        name = body.split("\n")[0] or "Log"
        key = SigningKey(name, Ed25519PrivateKey.from_private_bytes(bytes(32)))
        if not body.endswith("\n"):
            continue  # no note's text at all
        with pytest.raises(v.Fault):
            v.open_checkpoint(sign_note(body, [key]).encode(), [v.parse_vkey(str(key.verifier_key))])


def test_a_checkpoint_signed_under_another_name_than_its_origin_is_refused() -> None:
    from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
    from ledger.integrity.note import SigningKey, sign_note

    key = SigningKey("somebody.example", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    note = sign_note(format_checkpoint(Checkpoint("ledger.example/audit", 3, bytes(32))), [key]).encode()
    with pytest.raises(v.Fault, match="not the name"):
        v.open_checkpoint(note, [v.parse_vkey(str(key.verifier_key))])


# --- trees ---------------------------------------------------------------------------------


def test_the_reference_trees_hashes_and_roots_come_out() -> None:
    tree = vectors.load("rfc6962/reference_tree.json")
    for case in tree["leaf_hash"]:
        assert v.leaf_hash(bytes.fromhex(case["leaf_hex"])).hex() == case["hash"]
    for case in tree["node_hash"]:
        assert v.node_hash(bytes.fromhex(case["left_hex"]), bytes.fromhex(case["right_hex"])).hex() == case["hash"]
    leaves = [v.leaf_hash(bytes.fromhex(text)) for text in tree["leaf_inputs"]]
    assert [v.root_over(leaves[:size]).hex() for size in range(1, 9)] == tree["root_by_size"][1:]


def test_roots_over_blocks_of_leaves_are_those_over_all_of_them() -> None:
    leaves = [merkle.leaf_hash(b"%d" % number) for number in range(2500)]
    text = b"".join(leaf.hex().encode() + b"\n" for leaf in leaves)

    def bundle(data: bytes) -> Any:
        places = {"leaves.txt": (7, len(data))}
        return SimpleNamespace(places=places, read_at=lambda at, count: data[at - 7 : at - 7 + count])

    for size in (1, 2, 1023, 1024, 1025, 2047, 2048, 2049, 2500):
        root = merkle.root(leaves[:size])
        held = v.Leaves(bundle(text[: 65 * size]), v.Checkpoint("it", size, root, ""))
        for smaller in {1, 2, 1000, 1024, 1025, 2048, 2050, size} & set(range(size + 1)):
            assert held.root(smaller) == merkle.root(leaves[:smaller])
        assert [held.at(position) for position in range(1, size + 1)] == leaves[:size]
        for bent in (text[: 65 * size - 65], text[: 65 * size].upper(), text[: 65 * size - 1] + b" "):
            with pytest.raises(v.Fault):
                v.Leaves(bundle(bent), v.Checkpoint("it", size, root, ""))


def test_other_peoples_inclusion_proofs_verify_exactly_where_they_should() -> None:
    paths = sorted((vectors.folder("merkle") / "testdata" / "inclusion").rglob("*.json"))
    assert len(paths) == 98
    for path in paths:
        case = json.loads(path.read_bytes())
        leaf, root = (base64.b64decode(case[name] or "") for name in ("leafHash", "root"))
        proof = [base64.b64decode(item) for item in case["proof"] or []]
        try:
            v.verify_inclusion(case["leafIdx"], case["treeSize"], leaf, proof, root)
            failed = False
        except v.Fault:
            failed = True
        assert failed == case["wantErr"], path


LEAVES = [merkle.leaf_hash(bytes([number])) for number in range(70)]


def stored(size: int) -> tuple[Any, Any]:
    def read_leaves(first: int, count: int) -> list[bytes]:
        return LEAVES[first : first + count]

    def read_nodes(level: int, first: int, count: int) -> list[bytes]:
        raise AssertionError("so small a tree has no stored nodes")

    return read_nodes, read_leaves


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 31, 64, 70])
def test_our_proofs_verify_and_each_bent_one_fails(size: int) -> None:
    root = merkle.root(LEAVES[:size])
    for index in range(size):
        proof = merkle.inclusion_proof(index, size, *stored(size))
        v.verify_inclusion(index, size, LEAVES[index], proof, root)
        for bent in (proof[1:], [*proof, root], proof[:-1], [root, *proof]):
            if bent != proof:
                with pytest.raises(v.Fault):
                    v.verify_inclusion(index, size, LEAVES[index], bent, root)
        smaller, before = index + 1, merkle.root(LEAVES[: index + 1])
        proof = merkle.consistency_proof(smaller, size, *stored(size))
        v.verify_consistency(smaller, size, proof, before, root)
        for bent in ([*proof, root], proof[:-1], proof[1:], [bytes(32), *proof[1:]]):
            if bent != proof:
                with pytest.raises(v.Fault):
                    v.verify_consistency(smaller, size, bent, before, root)
        if smaller != size:
            with pytest.raises(v.Fault):
                v.verify_consistency(smaller, size, proof, root, root)


HASHES = st.sampled_from([*LEAVES[:6], merkle.root(LEAVES[:2]), merkle.root(LEAVES[:3]), merkle.root(LEAVES[:4])])


@settings(max_examples=500)
@given(st.integers(-1, 8), st.integers(-1, 8), st.lists(HASHES, max_size=4), HASHES, HASHES)
def test_it_accepts_what_our_own_verifier_accepts_and_nothing_else(
    first: int, second: int, proof: list[bytes], one: bytes, two: bytes
) -> None:
    for theirs, ours in (
        (v.verify_inclusion, merkle.verify_inclusion),
        (v.verify_consistency, merkle.verify_consistency),
    ):
        try:
            ours(first, second, *((one, proof, two) if ours is merkle.verify_inclusion else (proof, one, two)))
            accepted = True
        except merkle.ProofError:
            accepted = False
        try:
            theirs(first, second, *((one, proof, two) if ours is merkle.verify_inclusion else (proof, one, two)))
            assert accepted
        except v.Fault:
            assert not accepted


@pytest.mark.parametrize("size", [0, 1, 2, 70])
def test_consistency_from_size_0_is_always_refused(size: int) -> None:
    root = merkle.root(LEAVES[:size])
    for proof in ([], [root], [merkle.EMPTY_ROOT]):
        with pytest.raises(v.Fault):
            v.verify_consistency(0, size, proof, merkle.EMPTY_ROOT, root)
