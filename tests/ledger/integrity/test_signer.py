"""The signer signs what extends the last checkpoint and nothing else, whatever happened to ledger, store or key."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from ledger import copy_ledger, open_ledger
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.key_file import new_key
from ledger.integrity.merkle import ProofError, leaf_hash, root
from ledger.integrity.note import NoteError, open_note, sign_note
from ledger.integrity.signer import Signer, check_extends, key_for_new_ledger
from ledger.integrity.signer_store import COMING_KEY, KEY, LAST, VKEYS, SignerStore
from ledger.integrity.signing_errors import (
    ForkRefused,
    KeyNotAtHand,
    KeyRefused,
    NoteRefused,
    RotatedUnsigned,
    SignerError,
    SignerUnreachable,
    StoreLost,
)
from ledger.store import Store
from ledger.store.records import Checkpoint as StoredCheckpoint
from tests.ledger.integrity.signing import ORIGIN, begin, grow, opened, rotated
from tests.ledger.integrity.tampering import tamper


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "signers"


@pytest.fixture
def ledger(ledger_url: str, base: Path) -> Iterator[tuple[Store, Signer]]:
    store, signer = begin(ledger_url, base)
    with store:
        yield store, signer


@pytest.fixture
def on_file(tmp_path: Path, base: Path) -> Iterator[tuple[Store, Signer]]:
    """Where only files are at stake, one database will do."""
    store, signer = begin(f"sqlite:///{tmp_path / 'on-file.db'}", base)
    with store:
        yield store, signer


@contextmanager
def backup_of(ledger_url: str, folder: Path) -> Iterator[Store]:
    """The ledger as it is now, as a copy that may be put back."""
    url = f"sqlite:///{folder / 'backup.db'}"
    copy_ledger(ledger_url, url)
    with open_ledger(url, "write") as copy:
        yield copy


# --- what is signed ------------------------------------------------------------------------


def test_a_checkpoint_says_what_the_ledger_is_and_is_kept_in_both_places(ledger: tuple[Store, Signer]) -> None:
    store, signer = ledger
    grow(store, 6)
    checkpoint = signer.sign(store)
    (vkey,) = signer.vkeys()
    assert opened(checkpoint.note, vkey) == (Checkpoint(ORIGIN, 7, store.head().root), 1)
    assert store.checkpoints() == [checkpoint]
    assert signer.anchor() == checkpoint.note
    assert signer.vkey(store) == vkey


def test_the_same_tree_is_signed_once(ledger: tuple[Store, Signer]) -> None:
    store, signer = ledger
    first = signer.sign(store)
    assert signer.sign(store) == first
    assert store.checkpoints() == [first]


def test_a_ledger_that_grew_is_signed_again(ledger: tuple[Store, Signer]) -> None:
    store, signer = ledger
    sizes = []
    for count in (1, 254, 1, 300):
        grow(store, count)
        sizes.append(signer.sign(store).size)
    assert sizes == [2, 256, 257, 557]
    assert [checkpoint.size for checkpoint in store.checkpoints()] == sizes
    (vkey,) = signer.vkeys()
    for checkpoint in store.checkpoints():
        assert opened(checkpoint.note, vkey)[0] == Checkpoint(ORIGIN, checkpoint.size, store.root_at(checkpoint.size))


def test_what_a_crash_kept_from_the_database_is_written_there_by_the_next_signature(
    ledger: tuple[Store, Signer],
) -> None:
    store, signer = ledger
    key = signer.kept.coming_key()
    assert key is not None
    missing = sign_note(format_checkpoint(Checkpoint(ORIGIN, 1, store.head().root)), [key])
    signer.kept.replace_last(missing)
    grow(store, 1)
    later = signer.sign(store)
    assert [(row.size, row.note) for row in store.checkpoints()] == [(1, missing), (2, later.note)]


LEAVES = [leaf_hash(str(number).encode()) for number in range(300)]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 299))
def test_a_tree_extends_its_beginnings_and_no_other(earlier: int, later: int, changed: int) -> None:
    old = Checkpoint(ORIGIN, earlier, root(LEAVES[:earlier]))

    def check(leaves: list[bytes]) -> None:
        def read_leaves(first: int, count: int) -> list[bytes]:
            return leaves[first : first + count]

        def read_nodes(level: int, first: int, count: int) -> list[bytes]:
            width = 256**level
            return [root(leaves[at * width : (at + 1) * width]) for at in range(first, first + count)]

        check_extends(old, Checkpoint(ORIGIN, later, root(leaves[:later])), read_nodes, read_leaves)

    if earlier > later:
        with pytest.raises(ProofError):
            check(LEAVES)
        return
    check(LEAVES)
    other = [*LEAVES[:changed], leaf_hash(b"other"), *LEAVES[changed + 1 :]]
    if changed < earlier:
        with pytest.raises(ProofError):
            check(other)
    else:
        check(other)


# --- what is refused -----------------------------------------------------------------------


def test_an_older_copy_put_back_is_not_signed_and_what_to_do_is_said(
    ledger: tuple[Store, Signer], ledger_url: str, tmp_path: Path
) -> None:
    store, signer = ledger
    grow(store, 3)
    signer.sign(store)
    with backup_of(ledger_url, tmp_path) as copy:
        grow(store, 2)
        signed = signer.sign(store)
        with pytest.raises(ForkRefused, match="4 events, but a checkpoint over 6 was signed") as refusal:
            signer.sign(copy)
        assert "Put back a copy" in str(refusal.value)
        assert [row.size for row in copy.checkpoints()] == [4]
    assert signer.anchor() == signed.note


def test_an_older_copy_on_any_database_that_went_its_own_way_is_not_signed(
    ledger_url: str, on_file: tuple[Store, Signer]
) -> None:
    store, signer = on_file
    grow(store, 3)
    signer.sign(store)
    copy_ledger(store.shown, ledger_url)
    grow(store, 2)
    signed = signer.sign(store)
    with open_ledger(ledger_url, "write") as copy:
        for count in (2, 300):  # as long as the one signed, and longer
            grow(copy, count, run_id="another")
            with pytest.raises(ForkRefused, match="another one"):
                signer.sign(copy)
        assert [row.size for row in copy.checkpoints()] == [4]
    assert signer.anchor() == signed.note


def test_a_copy_that_is_put_in_the_ledgers_place_is_signed_on(ledger_url: str, on_file: tuple[Store, Signer]) -> None:
    store, signer = on_file
    grow(store, 3)
    signer.sign(store)
    copy_ledger(store.shown, ledger_url)
    with open_ledger(ledger_url, "write") as copy:
        grow(copy, 2)
        assert signer.sign(copy).size == 6
    with pytest.raises(ForkRefused, match="older copy"):
        signer.sign(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_head SET root = (SELECT leaf_hash FROM events WHERE position = 1)",
        "DELETE FROM events WHERE position = 5",
        "UPDATE events SET leaf_hash = (SELECT root FROM ledger_head) WHERE position = 2",
    ],
)
def test_a_ledger_whose_head_does_not_follow_from_its_events_is_not_signed(
    ledger: tuple[Store, Signer], ledger_url: str, statement: str
) -> None:
    store, signer = ledger
    grow(store, 3)
    before = signer.sign(store).note
    grow(store, 1)
    tamper(ledger_url, statement)
    with pytest.raises(ForkRefused, match="verify"):
        signer.sign(store)
    assert signer.anchor() == before


def test_a_history_that_was_rewritten_consistently_is_not_signed(ledger_url: str, base: Path, tmp_path: Path) -> None:
    """Everything made anew from the first event, under the same name, by somebody who may write the database."""
    genuine, signer = begin(f"sqlite:///{tmp_path / 'genuine.db'}", base)
    with genuine:
        grow(genuine, 4)
        signer.sign(genuine)
    rewritten, _ = begin(ledger_url, tmp_path / "elsewhere", vkey=signer.vkeys()[0])
    with rewritten:
        grow(rewritten, 9)
        with pytest.raises(ForkRefused, match="does not extend"):
            signer.sign(rewritten)
        assert rewritten.checkpoints() == []


def test_a_stored_checkpoint_that_contradicts_the_one_signed_is_told(
    ledger: tuple[Store, Signer], ledger_url: str
) -> None:
    store, signer = ledger
    signer.sign(store)
    tamper(ledger_url, "UPDATE checkpoints SET note = 'another'")
    assert signer.sign(store).size == 1  # the root is the one signed; a note that was edited is for verify to tell
    grow(store, 1)
    tamper(ledger_url, "UPDATE checkpoints SET root = (SELECT root FROM ledger_head)")
    with pytest.raises(ForkRefused, match="another root"):
        signer.sign(store)


# --- a lost store --------------------------------------------------------------------------


@pytest.fixture
def lost(ledger: tuple[Store, Signer]) -> tuple[Store, Signer, str]:
    """A ledger of 4 events, signed at 3 and 4, whose signer's store was lost; the checkpoint at 3 was kept."""
    store, signer = ledger
    grow(store, 2)
    kept_elsewhere = signer.sign(store).note
    grow(store, 1)
    signer.sign(store)
    (signer.kept.folder / LAST).unlink()
    return store, signer, kept_elsewhere


def test_without_the_last_checkpoint_nothing_is_signed_until_one_is_adopted(lost: tuple[Store, Signer, str]) -> None:
    store, signer, kept_elsewhere = lost
    with pytest.raises(StoreLost, match="--adopt FILE"):
        signer.sign(store)
    signer.adopt(store, kept_elsewhere)
    assert signer.anchor() == kept_elsewhere
    grow(store, 1)
    assert signer.sign(store).size == 5


def test_without_the_last_checkpoint_and_with_those_in_the_database_gone_too_nothing_is_signed(
    lost: tuple[Store, Signer, str], ledger_url: str
) -> None:
    store, signer, _ = lost
    tamper(ledger_url, "DELETE FROM checkpoints")
    with pytest.raises(StoreLost):
        signer.sign(store)


def test_with_the_list_of_public_keys_lost_as_well_the_key_itself_vouches(lost: tuple[Store, Signer, str]) -> None:
    store, signer, kept_elsewhere = lost
    (signer.kept.folder / VKEYS).unlink()
    signer.adopt(store, kept_elsewhere)
    signer.sign(store)
    assert len(signer.vkeys()) == 1


@pytest.mark.parametrize("text", ["", "no note\n", "\n\n", "\u2014 x AAAA\n"])
def test_what_is_no_note_is_not_adopted(lost: tuple[Store, Signer, str], text: str) -> None:
    store, signer, _ = lost
    with pytest.raises(NoteRefused):
        signer.adopt(store, text)
    assert signer.anchor() is None


def test_a_note_by_a_stranger_is_adopted_only_where_the_caller_names_the_key(lost: tuple[Store, Signer, str]) -> None:
    store, signer, _ = lost
    stranger = new_key(ORIGIN)
    note = sign_note(format_checkpoint(Checkpoint(ORIGIN, 2, store.root_at(2))), [stranger])
    with pytest.raises(NoteRefused, match="known key"):
        signer.adopt(store, note)
    signer.adopt(store, note, [stranger.verifier_key])
    assert signer.anchor() == note
    assert stranger.verifier_key in signer.vkeys()
    signer.sign(store)


def test_a_note_of_another_ledger_is_not_adopted(lost: tuple[Store, Signer, str]) -> None:
    store, signer, _ = lost
    key = signer.kept.key()
    assert key is not None
    note = sign_note(format_checkpoint(Checkpoint("other.example/log", 2, store.root_at(2))), [key])
    with pytest.raises(NoteRefused, match=r"other\.example"):
        signer.adopt(store, note)


def test_a_note_that_the_ledger_does_not_extend_is_not_adopted(lost: tuple[Store, Signer, str]) -> None:
    store, signer, _ = lost
    key = signer.kept.key()
    assert key is not None
    for size, tree_root in ((2, bytes(32)), (4, bytes(32)), (5, store.head().root)):
        note = sign_note(format_checkpoint(Checkpoint(ORIGIN, size, tree_root)), [key])
        with pytest.raises(ForkRefused):
            signer.adopt(store, note)
    assert signer.anchor() is None


def test_an_old_note_does_not_take_the_store_back(
    ledger: tuple[Store, Signer], ledger_url: str, tmp_path: Path
) -> None:
    store, signer = ledger
    grow(store, 2)
    old = signer.sign(store).note
    with backup_of(ledger_url, tmp_path) as backup:
        grow(store, 2)
        last = signer.sign(store).note
        signer.adopt(store, old)
        assert signer.anchor() == last
        with pytest.raises(ForkRefused, match="older copy"):
            signer.adopt(backup, old)
        assert signer.anchor() == last


def test_a_note_older_than_what_the_database_shows_was_signed_does_not_hide_a_fork(
    lost: tuple[Store, Signer, str], ledger_url: str, tmp_path: Path
) -> None:
    store, signer, kept_elsewhere = lost
    with backup_of(ledger_url, tmp_path) as backup:
        signer.adopt(store, kept_elsewhere)
        grow(store, 2)
        beyond = signer.sign(store)
        (signer.kept.folder / LAST).unlink()
        backup.save_checkpoint(beyond)
        with pytest.raises(ForkRefused, match="6 was signed"):
            signer.adopt(backup, kept_elsewhere)


def test_a_damaged_last_checkpoint_signs_nothing_and_says_what_to_do(on_file: tuple[Store, Signer]) -> None:
    store, signer = on_file
    note = signer.sign(store).note
    for damage in ("", note[:-5], note.replace("\n1\n", "\n2\n"), "\0" * len(note)):
        (signer.kept.folder / LAST).write_text(damage)
        with pytest.raises(StoreLost, match=r"Take it away.*--adopt FILE"):
            signer.sign(store)
    (signer.kept.folder / LAST).unlink()
    signer.adopt(store, note)
    assert signer.sign(store).note == note


# --- keys ----------------------------------------------------------------------------------


def test_key_folder_and_files_are_the_owners_alone(on_file: tuple[Store, Signer], base: Path) -> None:
    store, signer = on_file
    signer.sign(store)
    assert [path.stat().st_mode & 0o777 for path in (base, signer.kept.folder)] == [0o700, 0o700]
    files = {path.name: path.stat().st_mode & 0o777 for path in signer.kept.folder.iterdir()}
    assert files == dict.fromkeys([KEY, LAST, VKEYS, "lock"], 0o600)
    assert (signer.kept.folder / KEY).read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_key_that_others_may_read_is_refused(on_file: tuple[Store, Signer], mode: int) -> None:
    store, signer = on_file
    signer.sign(store)
    (signer.kept.folder / KEY).chmod(mode)
    for refused in (lambda: signer.sign(store), lambda: signer.check(store), lambda: signer.vkey(store)):
        with pytest.raises(KeyRefused, match="chmod 600"):
            refused()
    (signer.kept.folder / KEY).chmod(0o400)
    signer.sign(store)


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777, 0o720])
def test_a_folder_in_which_others_could_change_what_was_signed_is_refused(
    on_file: tuple[Store, Signer], mode: int
) -> None:
    store, signer = on_file
    signer.sign(store)
    signer.kept.folder.chmod(mode)
    for refused in (lambda: signer.sign(store), signer.anchor, signer.vkeys):
        with pytest.raises(KeyRefused, match="chmod 700"):
            refused()


def pem(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n",
        b"seed-of-somebody" * 2,
        b"\xff" * 100_000,
        pem(ec.generate_private_key(ec.SECP256R1())),
        pem(ed25519.Ed25519PrivateKey.generate(), b"password"),
    ],
    ids=["empty", "cut", "raw", "huge", "another kind", "with a password"],
)
def test_what_is_no_ed25519_key_is_refused_and_none_of_it_shown(on_file: tuple[Store, Signer], content: bytes) -> None:
    store, signer = on_file
    signer.sign(store)
    (signer.kept.folder / KEY).write_bytes(content)
    with pytest.raises(KeyRefused, match="no Ed25519 key") as refusal:
        signer.sign(store)
    assert b"seed" not in str(refusal.value).encode()
    assert refusal.value.__cause__ is None


def test_another_ledgers_folder_or_key_does_not_sign_this_ledger(
    on_file: tuple[Store, Signer], base: Path, tmp_path: Path
) -> None:
    store, signer = on_file
    signer.sign(store)
    other_store, other = begin(f"sqlite:///{tmp_path / 'other.db'}", base, "other.example/log")
    with other_store:
        other.sign(other_store)
    mine = signer.kept.folder
    shutil.copy(other.kept.folder / KEY, mine / KEY)
    with pytest.raises(KeyRefused, match="is not the ledger's"):
        signer.sign(store)
    shutil.rmtree(mine)
    shutil.copytree(other.kept.folder, mine)
    with pytest.raises(KeyRefused, match=r"keys of the ledger other\.example/log"):
        signer.sign(store)


def test_without_its_key_the_store_signs_nothing(on_file: tuple[Store, Signer]) -> None:
    store, signer = on_file
    signer.sign(store)
    (signer.kept.folder / KEY).unlink()
    grow(store, 1)
    with pytest.raises(KeyNotAtHand):
        signer.sign(store)
    assert not signer.kept.holds_key()


def test_a_second_ledger_of_a_name_that_was_signed_gets_no_key(on_file: tuple[Store, Signer], base: Path) -> None:
    store, signer = on_file
    again = key_for_new_ledger(SignerStore(base, ORIGIN))
    assert again == signer.vkey(store), "a ledger that was not made after all may be tried again"
    signer.sign(store)
    with pytest.raises(KeyRefused, match="a fork of it"):
        key_for_new_ledger(SignerStore(base, ORIGIN))


def test_a_signer_that_has_signed_is_not_discarded(on_file: tuple[Store, Signer], base: Path) -> None:
    store, signer = on_file
    signer.sign(store)
    signer.kept.discard()
    assert signer.kept.holds_key()
    unused = SignerStore(base, "unused.example/log")
    key_for_new_ledger(unused)
    unused.discard()
    assert not unused.folder.exists()


def test_a_folder_that_cannot_be_made_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SignerUnreachable, match="file"):
        key_for_new_ledger(SignerStore(tmp_path / "file", ORIGIN))


def test_half_written_files_of_a_process_that_died_are_taken_away(on_file: tuple[Store, Signer]) -> None:
    store, signer = on_file
    half = signer.kept.folder / ".coming-key.pem.abc.part"
    half.write_text("-----BEGIN")
    signer.sign(store)
    assert not half.exists()


# --- rotation ------------------------------------------------------------------------------


def test_the_first_checkpoint_over_a_rotation_bears_both_signatures_and_later_ones_the_new(
    ledger: tuple[Store, Signer],
) -> None:
    store, signer = ledger
    grow(store, 2)
    old = signer.vkey(store)
    before = (signer.kept.folder / COMING_KEY).read_bytes()
    over = signer.rotate(store, rotated)
    new = signer.vkey(store)
    assert new != old
    assert signer.vkeys() == (old, new)
    assert opened(over.note, old) == opened(over.note, new) == (Checkpoint(ORIGIN, 4, store.head().root), 1)
    assert opened(over.note, old, new)[1] == 2
    grow(store, 1)
    later = signer.sign(store)
    assert opened(later.note, new)[1] == 1
    with pytest.raises(NoteError, match="known key"):
        open_note(later.note, [old])
    # The tree before the rotation was signed by the old key alone, so that what the new one vouches for begins there.
    assert [row.size for row in store.checkpoints()] == [3, 4, 5]
    pems = [path.read_bytes() for path in signer.kept.folder.glob("*.pem")]
    assert len(pems) == 1
    assert before not in pems, "the old private key is destroyed"


def test_keys_can_be_rotated_again_and_again(on_file: tuple[Store, Signer]) -> None:
    store, signer = on_file
    for _ in range(3):
        signer.rotate(store, rotated)
    assert len(signer.vkeys()) == 4
    assert [len(open_note(row.note, signer.vkeys()).verified) for row in store.checkpoints()] == [1, 2, 2, 2]


def test_a_ledger_without_a_key_gets_its_first_one(ledger_url: str, base: Path) -> None:
    with open_ledger(ledger_url, "create", origin=ORIGIN) as store:
        grow(store, 5)
        signer = Signer(SignerStore(base, ORIGIN))
        checkpoint = signer.rotate(store, rotated)
        (vkey,) = signer.vkeys()
        assert opened(checkpoint.note, vkey) == (Checkpoint(ORIGIN, 7, store.head().root), 1)
        grow(store, 1)
        assert signer.sign(store).size == 8


def test_a_ledger_that_was_put_back_is_not_given_a_new_key(
    ledger: tuple[Store, Signer], ledger_url: str, tmp_path: Path
) -> None:
    store, signer = ledger
    signer.sign(store)
    with backup_of(ledger_url, tmp_path) as backup:
        signer.rotate(store, rotated)
        with pytest.raises(ForkRefused, match="older copy"):
            signer.rotate(backup, rotated)
        assert backup.head().size == 1, "nothing was appended"


def test_a_host_whose_key_was_rotated_elsewhere_signs_nothing(on_file: tuple[Store, Signer], tmp_path: Path) -> None:
    store, signer = on_file
    signer.sign(store)
    shutil.copytree(signer.kept.folder, SignerStore(tmp_path / "stale", ORIGIN).folder)
    signer.rotate(store, rotated)
    stale = Signer(SignerStore(tmp_path / "stale", ORIGIN))
    for refused in (lambda: stale.sign(store), lambda: stale.rotate(store, rotated)):
        with pytest.raises(KeyRefused, match="rotated elsewhere"):
            refused()


def test_after_a_lost_key_the_new_one_goes_on_from_the_last_checkpoint(ledger: tuple[Store, Signer]) -> None:
    store, signer = ledger
    signer.sign(store)
    old = signer.vkey(store)
    with pytest.raises(KeyRefused, match="holds a key already"):
        signer.rotate(store, rotated, key_lost=True)
    (signer.kept.folder / KEY).unlink()
    with pytest.raises(KeyNotAtHand):
        signer.rotate(store, rotated)
    over = signer.rotate(store, rotated, key_lost=True)
    new = signer.vkey(store)
    assert opened(over.note, new)[1] == 1
    with pytest.raises(NoteError):
        open_note(over.note, [old])


def test_after_a_lost_key_and_store_a_checkpoint_by_the_old_key_is_adopted(
    ledger: tuple[Store, Signer], tmp_path: Path
) -> None:
    store, signer = ledger
    kept_elsewhere, old = signer.sign(store).note, signer.vkey(store)
    fresh = Signer(SignerStore(tmp_path / "fresh", ORIGIN))
    for _ in range(2):  # the second time there is nothing more to be done
        with pytest.raises(RotatedUnsigned, match=r"made and recorded.*--adopt FILE.*--key OLD\.vkey"):
            fresh.rotate(store, rotated, key_lost=True)
        assert store.head().size == 2
    with pytest.raises(NoteRefused, match=r"--key OLD\.vkey"):
        fresh.adopt(store, kept_elsewhere)
    fresh.adopt(store, kept_elsewhere, [old])
    assert opened(fresh.sign(store).note, fresh.vkey(store))[0].size == 2


def test_a_ledger_that_was_put_back_is_given_no_new_key_for_a_lost_one_either(
    ledger: tuple[Store, Signer], ledger_url: str, tmp_path: Path
) -> None:
    store, signer = ledger
    signer.sign(store)
    with backup_of(ledger_url, tmp_path) as backup:
        grow(store, 1)
        signer.sign(store)
        (signer.kept.folder / KEY).unlink()
        with pytest.raises(ForkRefused, match="older copy"):
            signer.rotate(backup, rotated, key_lost=True)
        assert backup.head().size == 1, "nothing was appended"
        assert signer.kept.coming_key() is None


def test_every_refusal_leaves_what_was_signed_as_it_was(on_file: tuple[Store, Signer]) -> None:
    """Whatever is refused is refused before the first durable step."""
    store, signer = on_file
    grow(store, 2)
    signer.sign(store)
    folder = signer.kept.folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    rows = store.checkpoints()
    tamper(store.shown, "UPDATE ledger_head SET root = (SELECT leaf_hash FROM events WHERE position = 1)")
    for refused in (
        lambda: signer.sign(store),
        lambda: signer.rotate(store, rotated),
        lambda: signer.adopt(store, rows[0].note),
    ):
        with pytest.raises(SignerError):
            refused()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert store.checkpoints() == rows
    assert store.head().size == 3


def test_a_checkpoint_by_hand_is_what_the_signer_signs(on_file: tuple[Store, Signer]) -> None:
    store, signer = on_file
    key = signer.kept.coming_key()
    assert key is not None
    expected = sign_note(format_checkpoint(Checkpoint(ORIGIN, 1, store.head().root)), [key])
    assert signer.sign(store) == StoredCheckpoint(1, store.head().root, expected)
