"""What vouches for a ledger: PASS by an anchor and a trusted key alone, and what else is said of anchors."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.events import LEDGER_RUN_ID, KeyRotated, LedgerCreated, NewEvent, new_event
from ledger.integrity.anchors import SIGNERS_STORE, Anchor
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import NoteError, SigningKey, VerifierKey, sign_note
from ledger.integrity.verdict import Verdict
from ledger.integrity.verify import verify
from ledger.projections.tables import fold
from ledger.store import Store, open_store
from ledger.store.records import Checkpoint as StoredCheckpoint
from tests import stories
from tests.ledger.integrity.judging import KEY, judged, places, rehash
from tests.ledger.integrity.small import ACCEPTED, ORIGIN, clean_run, opened, redaction
from tests.ledger.integrity.tampering import tamper

VKEY = KEY.verifier_key
SECOND, THIRD, STRANGER = (SigningKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in (2, 3, 9))


def note(store: Store, size: int | None = None, *keys: SigningKey, root: bytes | None = None) -> str:
    size = store.head().size if size is None else size
    tree = Checkpoint(ORIGIN, size, store.root_at(size) if root is None else root)
    return sign_note(format_checkpoint(tree), keys or (KEY,))


def anchor(text: str, source: str = "the file kept.txt") -> Anchor:
    return Anchor(text, source)


@pytest.fixture
def whole(tmp_path: Path) -> str:
    """A ledger in which every run has its end."""
    url = f"sqlite:///{tmp_path / 'whole.db'}"
    with opened(url, "create") as store:
        store.append(clean_run("run-1", 70))
    return url


def anchored_at(url: str, size: int | None = None, *keys: SigningKey) -> Anchor:
    with opened(url, "read") as store:
        return anchor(note(store, size, *keys))


def text(verdict: Verdict) -> str:
    return "\n".join(verdict.lines())


# --- PASS and what it takes ----------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_anchor_over_the_end_by_a_trusted_key_passes(whole: str, jobs: int) -> None:
    verdict = judged(whole, keys=[VKEY], anchors=[anchored_at(whole)], jobs=jobs)
    assert (verdict.result, verdict.exit_code, verdict.unproven) == ("PASS", 0, ())
    assert verdict.anchored is not None
    assert verdict.anchored.keys == (str(VKEY),)
    assert (verdict.anchored.window.first, verdict.anchored.window.last) == (1, verdict.size)
    assert (verdict.signed, verdict.unsigned) == (None, None)
    assert "by the file kept.txt" in text(verdict)
    assert "weaker" not in text(verdict)
    assert "does not prove" in text(verdict)
    said = verdict.as_dict()
    assert said["anchored"]["source"] == "the file kept.txt"
    assert said["anchored"]["events"] == verdict.size


def test_an_anchor_of_the_signers_store_passes_and_says_that_it_is_weaker(whole: str) -> None:
    kept = anchored_at(whole)._replace(source=SIGNERS_STORE)
    verdict = judged(whole, keys=[VKEY], anchors=[kept])
    assert verdict.result == "PASS"
    assert "signer's store on this machine" in text(verdict)
    assert "weaker than a checkpoint that you kept elsewhere" in text(verdict)


def test_of_two_anchors_over_the_same_events_the_file_is_the_one_told(whole: str) -> None:
    kept = anchored_at(whole)
    for anchors in ([kept, kept._replace(source=SIGNERS_STORE)], [kept._replace(source=SIGNERS_STORE), kept]):
        verdict = judged(whole, keys=[VKEY], anchors=anchors)
        assert verdict.anchored is not None
        assert verdict.anchored.source == "the file kept.txt"


def test_an_anchor_by_a_key_that_nobody_named_proves_nothing(whole: str) -> None:
    for keys in ([], [STRANGER.verifier_key]):
        verdict = judged(whole, keys=keys, anchors=[anchored_at(whole)])
        assert (verdict.result, verdict.anchored) == ("INCOMPLETE", None)
        assert any("signed by no key that somebody named" in sentence for sentence in verdict.unproven)


def test_a_key_and_no_anchor_is_incomplete_even_with_a_stored_checkpoint_over_the_end(whole: str) -> None:
    with opened(whole, "write") as store:
        size = store.head().size
        store.save_checkpoint(StoredCheckpoint(size, store.root_at(size), note(store)))
    verdict = judged(whole, keys=[VKEY])
    assert verdict.result == "INCOMPLETE"
    assert verdict.signed is not None
    assert (verdict.signed.first, verdict.signed.last, verdict.unsigned) == (1, size, None)


def test_the_window_beyond_the_anchor_is_told_and_passes_only_where_it_is_allowed(whole: str) -> None:
    size = judged(whole).size
    assert size is not None
    kept = anchored_at(whole, size - 10)
    for allowed, result in ((0, "INCOMPLETE"), (9, "INCOMPLETE"), (10, "PASS"), (11, "PASS")):
        verdict = judged(whole, keys=[VKEY], anchors=[kept], max_window=allowed)
        assert verdict.result == result
        assert verdict.unsigned is not None
        assert (verdict.unsigned.first, verdict.unsigned.last, verdict.unsigned.events) == (size - 9, size, 10)
    assert f"positions {size - 9} to {size}, 10 events over" in judged(whole, keys=[VKEY], anchors=[kept]).unproven[0]


def test_the_events_beyond_the_anchor_are_split_into_signed_and_unsigned(whole: str) -> None:
    with opened(whole, "write") as store:
        size = store.head().size
        store.save_checkpoint(StoredCheckpoint(size - 5, store.root_at(size - 5), note(store, size - 5)))
    verdict = judged(whole, keys=[VKEY], anchors=[anchored_at(whole, size - 20)])
    assert verdict.result == "INCOMPLETE"
    assert verdict.signed is not None
    assert verdict.unsigned is not None
    assert (verdict.signed.first, verdict.signed.last) == (size - 19, size - 5)
    assert (verdict.unsigned.first, verdict.unsigned.last) == (size - 4, size)


def test_projections_that_were_left_out_leave_it_incomplete_and_saying_so(whole: str) -> None:
    tamper(whole, "UPDATE runs SET state = 'odd'")
    verdict = judged(whole, keys=[VKEY], anchors=[anchored_at(whole)], projections=False)
    assert verdict.result == "INCOMPLETE"
    assert any("left out as asked" in sentence for sentence in verdict.unproven)


def test_what_is_no_checkpoint_is_refused_before_anything_is_read(whole: str) -> None:
    with opened(whole, "read") as store, pytest.raises(NoteError):
        verify(store, anchors=[anchor("no note")])


# --- FAIL ----------------------------------------------------------------------------------


def test_a_ledger_shorter_than_its_anchor_was_rolled_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.db'}"
    with opened(url, "create") as store:
        store.append(clean_run("run-1", 70))
        size = store.head().size
        store.append([new_event(stories.report_issued(), run_id="run-1")])
        kept = anchor(note(store))
    assert rehash(url, f"DELETE FROM events WHERE position > {size}", "DELETE FROM reports") == []
    verdict = judged(url, keys=[VKEY], anchors=[kept])
    assert verdict.exit_code == 1
    (finding,) = verdict.findings
    assert finding[:4] == (size + 1, size + 1, "anchor", "rolled back")


def test_a_history_written_anew_is_forked_and_narrowed_down_by_what_is_signed(whole: str) -> None:
    with opened(whole, "write") as store:
        size = store.head().size
        store.save_checkpoint(StoredCheckpoint(100, store.root_at(100), note(store, 100)))
    kept = anchored_at(whole)
    found = rehash(whole, "UPDATE events SET event_id = '0197a3c0-0000-7000-8000-000000000000' WHERE position = 150")
    assert found == []
    verdict = judged(whole, keys=[VKEY], anchors=[kept])
    (finding,) = verdict.findings
    assert finding[:4] == (101, size, "anchor", "forked")
    assert "up to position 100 a signed checkpoint agrees" in finding.text


def test_an_earlier_anchor_narrows_a_fork_down_too(whole: str) -> None:
    early, late = anchored_at(whole, 120), anchored_at(whole)
    rehash(whole, "UPDATE events SET event_id = '0197a3c0-0000-7000-8000-000000000000' WHERE position = 150")
    verdict = judged(whole, keys=[VKEY], anchors=[late, early])
    assert places(list(verdict.findings)) == {(121, "anchor", "forked")}


def test_a_bad_signature_by_a_trusted_key_fails_and_by_another_is_not_looked_at(whole: str) -> None:
    good = anchored_at(whole)
    head, _, line = str(good.note).rpartition(" ")
    raw = bytearray(base64.b64decode(line))
    raw[-1] ^= 1
    bent = good._replace(note=f"{head} {base64.b64encode(raw).decode()}\n")
    verdict = judged(whole, keys=[VKEY], anchors=[bent])
    assert places(list(verdict.findings)) == {(verdict.size, "anchor", "signature bad")}
    assert judged(whole, keys=[STRANGER.verifier_key], anchors=[bent]).result == "INCOMPLETE"


def test_an_anchor_of_another_ledger_fails(whole: str) -> None:
    other = SigningKey("other.example/x", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    text = sign_note(format_checkpoint(Checkpoint(other.name, 10, b"r" * 32)), [other])
    verdict = judged(whole, keys=[VKEY, other.verifier_key], anchors=[anchor(text), anchored_at(whole)])
    assert places(list(verdict.findings)) == {(None, "anchor", "forked")}
    assert "other.example/x" in verdict.findings[0].text


def test_an_anchor_that_contradicts_fails_whoever_signed_it(whole: str) -> None:
    with opened(whole, "read") as store:
        text = note(store, 100, STRANGER, root=b"r" * 32)
    assert judged(whole, keys=[VKEY], anchors=[anchor(text)]).result == "FAIL"


def test_a_stored_checkpoint_with_a_bad_signature_fails_only_where_the_key_is_trusted(whole: str) -> None:
    with opened(whole, "write") as store:
        forged = note(store, 100, STRANGER)
        # The stranger's signature, under the name and id of the key that is trusted.
        raw = base64.b64decode(forged.rpartition(" ")[2])
        line = base64.b64encode(VKEY.key_id + raw[4:]).decode()
        forged = f"{forged.rpartition(' ')[0]} {line}\n"
        store.save_checkpoint(StoredCheckpoint(100, store.root_at(100), forged))
    assert places(list(judged(whole, keys=[VKEY]).findings)) == {(100, "checkpoints", "signature bad")}
    assert judged(whole).findings == ()


def test_a_stored_checkpoint_by_a_key_nobody_named_keeps_a_ledger_from_passing(whole: str) -> None:
    kept = anchored_at(whole)
    with opened(whole, "write") as store:
        store.save_checkpoint(StoredCheckpoint(100, store.root_at(100), note(store, 100, STRANGER)))
    verdict = judged(whole, keys=[VKEY], anchors=[kept])
    assert (verdict.result, len(verdict.unproven)) == ("INCOMPLETE", 1)
    assert "keys that nobody named: 1" in verdict.unproven[0]


# --- keys that rotations lead to -----------------------------------------------------------


def rotation(key: SigningKey) -> NewEvent:
    return new_event(KeyRotated(vkey=str(key.verifier_key)), run_id=LEDGER_RUN_ID)


def keep(store: Store, *keys: SigningKey) -> None:
    size = store.head().size
    store.save_checkpoint(StoredCheckpoint(size, store.root_at(size), note(store, size, *keys)))


@pytest.fixture(params=["dual", "new alone", "old alone"])
def rotated(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A ledger whose key became SECOND, then THIRD; how the checkpoint over the first rotation was signed."""
    url = f"sqlite:///{tmp_path / 'r.db'}"
    created = new_event(LedgerCreated(format=1, software_version="0", vkey=str(VKEY)), run_id=LEDGER_RUN_ID)
    both = {"dual": (KEY, SECOND), "new alone": (SECOND,), "old alone": (KEY,)}[request.param]
    with open_store(url, "create", fold=fold, origin=ORIGIN, created=created) as store:
        store.append(clean_run("run-1", 3))
        keep(store, KEY)
        store.append([rotation(SECOND)])
        keep(store, *both)
        store.append(clean_run("run-2", 3))
        keep(store, SECOND)
        store.append([rotation(THIRD)])
        keep(store, SECOND, THIRD)
        store.append(clean_run("run-3", 3))
        keep(store, THIRD)
    return url, request.param


def test_a_key_is_trusted_where_checkpoints_with_both_signatures_lead_to_it(rotated: tuple[str, str]) -> None:
    url, signed = rotated
    for named, anchored_by, expected in (
        (VKEY, THIRD, "PASS" if signed == "dual" else "INCOMPLETE"),
        (THIRD.verifier_key, THIRD, "PASS" if signed == "dual" else "INCOMPLETE"),
        (SECOND.verifier_key, THIRD, "PASS" if signed == "dual" else "INCOMPLETE"),
        (STRANGER.verifier_key, THIRD, "INCOMPLETE"),
    ):
        verdict = judged(url, keys=[named], anchors=[anchored_at(url, None, anchored_by)])
        assert verdict.result == expected, (named, verdict.unproven)
    verdict = judged(url, keys=[VKEY, SECOND.verifier_key], anchors=[anchored_at(url, None, THIRD)])
    assert verdict.result == "PASS"


def test_a_key_that_was_replaced_vouches_for_nothing_later(rotated: tuple[str, str]) -> None:
    url, signed = rotated
    if signed != "dual":
        return
    late = judged(url, keys=[THIRD.verifier_key], anchors=[anchored_at(url, None, KEY)])
    assert (late.result, late.anchored) == ("INCOMPLETE", None)
    with opened(url, "write") as store:
        store.append(clean_run("run-4", 3))
        keep(store, KEY)
    assert judged(url, keys=[THIRD.verifier_key], anchors=[anchored_at(url, None, THIRD)]).result == "INCOMPLETE"


def test_a_key_that_only_the_log_names_is_not_trusted(whole: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'evil.db'}"
    vkey = str(STRANGER.verifier_key)
    created = new_event(LedgerCreated(format=1, software_version="0", vkey=vkey), run_id=LEDGER_RUN_ID)
    with open_store(url, "create", fold=fold, origin=ORIGIN, created=created) as store:
        store.append(clean_run("run-1", 3))
        keep(store, STRANGER)
    assert judged(url, keys=[VKEY], anchors=[anchored_at(url, None, STRANGER)]).anchored is None


@pytest.mark.parametrize("vkey", ["nonsense", "", str(VerifierKey("other.example/x", bytes(32)))])
def test_an_event_that_names_no_key_of_this_ledger_leads_nowhere(whole: str, vkey: str) -> None:
    with opened(whole, "write") as store:
        store.append([new_event(KeyRotated(vkey=vkey), run_id=LEDGER_RUN_ID)])
        keep(store, KEY)
    assert judged(whole, keys=[VKEY], anchors=[anchored_at(whole)]).result == "PASS"


# --- judged by one checkpoint alone --------------------------------------------------------


def test_a_checkpoint_judges_the_events_it_covers_whatever_happened_to_those_after(whole: str) -> None:
    with opened(whole, "write") as store:
        at = anchor(note(store))
        size = store.head().size
        store.append(clean_run("run-2", 5))
    tamper(whole, f"UPDATE contents SET body = 'x' WHERE position = {size + 3}", "UPDATE runs SET state = 'odd'")
    verdict = judged(whole, keys=[VKEY], at=at)
    assert (verdict.findings, verdict.at, verdict.events) == ((), size, size)
    (unproven,) = verdict.unproven  # that the guards were dropped, which everything else rests on too
    assert "guards" in unproven
    assert f"judging positions 1 to {size} alone" in text(verdict)
    assert judged(whole, keys=[VKEY], anchors=[at]).result == "FAIL"


def test_a_checkpoint_passes_the_events_it_covers(whole: str) -> None:
    with opened(whole, "write") as store:
        at = anchor(note(store))
        store.append([new_event(stories.started(), run_id="run-open")])
    assert judged(whole, keys=[VKEY], at=at).result == "PASS"


def test_a_checkpoint_judges_its_own_events(whole: str) -> None:
    with opened(whole, "write") as store:
        at = anchor(note(store))
        store.append(clean_run("run-2", 5))
    tamper(whole, "UPDATE contents SET body = 'x' WHERE position = 3")
    assert places(list(judged(whole, keys=[VKEY], at=at).findings)) == {(3, "content", "edited")}
    other = at._replace(note=anchored_at(whole, None, STRANGER).note)
    assert judged(whole, keys=[VKEY], at=other).anchored is None


def test_a_checkpoint_over_more_than_there_is_fails(whole: str) -> None:
    with opened(whole, "read") as store:
        size = store.head().size
        at = anchor(note(store, size + 5, root=b"r" * 32))
    assert places(list(judged(whole, keys=[VKEY], at=at).findings)) == {(size + 1, "anchor", "rolled back")}


def test_an_erasure_ordered_after_the_checkpoint_is_told_and_one_ordered_by_nothing_fails(whole: str) -> None:
    with opened(whole, "write") as store:
        at = anchor(note(store))
        store.append([redaction(ACCEPTED)])
        by = store.head().size
    verdict = judged(whole, keys=[VKEY], at=at)
    assert verdict.result == "INCOMPLETE"
    assert "erasures that events after the checkpoint order" in verdict.unproven[0]
    tamper(
        whole,
        f"DELETE FROM contents WHERE position = {ACCEPTED + 1}",
        f"INSERT INTO redactions (position, event_position) VALUES ({ACCEPTED + 1}, {by})",
    )
    found = places(list(judged(whole, keys=[VKEY], at=at).findings))
    assert found == {(ACCEPTED + 1, "redactions", "redacted without authority")}


def test_counts_of_runs_that_ended_are_compared_when_a_checkpoint_judges(whole: str) -> None:
    with opened(whole, "read") as store:
        (end,) = [record.position for record in store.records() if record.type == "RunCompleted"]
    params: dict[str, Any] = {"was": '"requests":70', "becomes": '"requests":71'}
    rehash(whole, (f"UPDATE events SET payload = replace(payload, :was, :becomes) WHERE position = {end}", params))
    verdict = judged(whole, keys=[VKEY], at=anchored_at(whole))
    assert places(list(verdict.findings)) == {(end, "payload", "edited")}
