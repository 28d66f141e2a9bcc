"""Whatever is changed in a bundle, the verifier does not say PASS."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ledger.integrity.canonical import encode
from ledger.integrity.note import sign_note
from ledger.integrity.proof import prove_consistency
from tests.ledger.bundle import bundles
from tests.ledger.bundle.bundles import (
    KEY,
    OTHER_KEY,
    entries,
    event_line,
    example_zip,
    forge,
    judge,
    judge_example,
    pack,
    pinned,
    repack,
    vkey,
    with_manifest,
)
from tests.ledger.bundle.ledgers import (
    bundle_of,
    bundled,
    example_ledger,
    issue_all,
    make_reports,
    sign,
    story_ledger,
    told,
)

EXAMPLE = example_zip()
PARTS = entries(EXAMPLE)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A bundle of some hundred events, and its checkpoint."""
    events = told(0, run_id="large", lines=60, at_least=250)
    with story_ledger(tmp_path_factory.mktemp("large"), events, told(5, run_id="other", lines=5)) as store:
        data, note = bundle_of(store, "large")
    assert judge(data, str(KEY.verifier_key), note.encode())[0] == 0
    return data, note.encode()


# --- verdicts ------------------------------------------------------------------------------


def test_the_example_passes_under_the_checkpoint_of_all_its_events() -> None:
    code, said = judge(EXAMPLE, vkey(), pinned("all"))
    assert code == 0
    assert said.startswith("PASS  run example-run of ledger.example/audit\n")
    assert "Not proven" not in said


def test_under_a_smaller_checkpoint_the_window_is_named_and_incomplete_unless_allowed() -> None:
    code, said = judge(EXAMPLE, vkey(), pinned(10))
    assert code == 3
    assert "events 11 to 14" in said
    assert judge(EXAMPLE, vkey(), pinned(10), max_window=3)[0] == 3
    assert judge(EXAMPLE, vkey(), pinned(10), max_window=4)[0] == 0


def test_without_a_checkpoint_of_ones_own_it_is_incomplete() -> None:
    code, said = judge(EXAMPLE, vkey())
    assert code == 3
    assert said.startswith("INCOMPLETE")
    assert "--checkpoint" in said


def test_a_larger_checkpoint_needs_a_proof_that_leads_to_it(tmp_path: Path) -> None:
    proof = tmp_path / "proof.txt"
    with story_ledger(tmp_path, told(0, run_id="mine", lines=3)) as store:
        data, note = bundle_of(store, "mine")
        size = store.head().size
        store.append(told(7, run_id="later", lines=3))
        kept, key = sign(store).encode(), str(KEY.verifier_key)
        assert judge(data, key, note.encode())[0] == 0
        assert judge(data, key, kept)[0] == 3
        good = prove_consistency(store, size, store.head().size)
        proof.write_bytes(good)
        assert judge(data, key, kept, consistency=proof)[0] == 0
        for bad in (b"", good[45:], good + good[:45], prove_consistency(store, size - 1, store.head().size), b"x\n"):
            proof.write_bytes(bad)
            assert judge(data, key, kept, consistency=proof)[0] == 1


def test_a_checkpoint_of_another_history_fails_whatever_its_size(tmp_path: Path) -> None:
    key = str(KEY.verifier_key)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        story_ledger(tmp_path / "a", told(0, run_id="mine", lines=12, at_least=40)) as one,
        story_ledger(tmp_path / "b", told(1, run_id="mine", lines=3)) as two,
    ):
        data, _ = bundle_of(one, "mine")
        smaller = sign(two).encode()
        assert two.head().size < one.head().size
        code, said = judge(data, key, smaller, max_window=1000)
        assert code == 1
        assert "forked" in said
        while two.head().size < one.head().size:
            two.append(told(2, run_id=f"r{two.head().size}", lines=1)[:1])
        assert judge(data, key, sign(two).encode())[0] == 1
        proof = tmp_path / "proof.txt"
        two.append(told(2, run_id="more", lines=1))
        proof.write_bytes(prove_consistency(two, one.head().size, two.head().size))
        assert judge(data, key, sign(two).encode(), consistency=proof)[0] == 1


# --- bytes ---------------------------------------------------------------------------------


def test_every_single_flipped_byte_of_the_example_fails() -> None:
    data = bytearray(EXAMPLE)
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        assert judge_example(bytes(data))[0] == 1, at
        data[at] ^= 1 << at % 8
    assert judge_example(bytes(data))[0] == 0


def test_every_flipped_byte_of_an_entry_fails_also_where_zip_and_manifest_are_made_to_match() -> None:
    random = Random(1)
    for name in bundles.NAMES:
        size = len(PARTS[name])
        for at in random.sample(range(size), min(size, 300)):
            bent = bytearray(PARTS[name])
            bent[at] ^= 1 << random.randrange(8)
            parts = {**PARTS, name: bytes(bent)}
            data = pack(parts) if name == "manifest.json" else pack(with_manifest(parts))
            assert judge_example(data)[0] == 1, (name, at)


def test_five_thousand_random_flips_of_a_larger_bundle_fail(large: tuple[bytes, bytes]) -> None:
    data, note = large
    random, bent = Random(2), bytearray(data)
    for _ in range(5000):
        at, bit = random.randrange(len(data)), 1 << random.randrange(8)
        bent[at] ^= bit
        assert judge(bytes(bent), str(KEY.verifier_key), note)[0] == 1, (at, bit)
        bent[at] ^= bit


@pytest.mark.parametrize("cut", [0, 1, 29, 30, 100, 5000, -1, -22, -100])
def test_a_bundle_that_was_cut_fails(cut: int) -> None:
    assert judge_example(EXAMPLE[:cut])[0] == 1


def test_a_bundle_with_anything_before_or_behind_it_fails() -> None:
    for data in (EXAMPLE + b"\0", b"\0" + EXAMPLE, EXAMPLE + EXAMPLE, EXAMPLE[:-2] + b"\x01\0c"):
        assert judge_example(data)[0] == 1


# --- lines ---------------------------------------------------------------------------------


def lines_changed(data: bytes, random: Random | None = None) -> list[bytes]:
    """The text with each line dropped, each doubled, each swapped with the next; a sample where it is long."""
    lines = data.splitlines(keepends=True)
    at = range(len(lines)) if random is None or len(lines) < 40 else random.sample(range(len(lines)), 40)
    changed = []
    for i in at:
        changed.append(b"".join(lines[:i] + lines[i + 1 :]))
        changed.append(b"".join(lines[: i + 1] + lines[i:]))
        if i + 1 < len(lines):
            changed.append(b"".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]))
    return [text for text in changed if text != data]


@pytest.mark.parametrize("name", bundles.NAMES)
def test_each_dropped_doubled_and_swapped_line_fails_although_zip_and_manifest_match(name: str) -> None:
    changed = lines_changed(PARTS[name])
    assert changed
    for text in changed:
        parts = {**PARTS, name: text}
        assert judge_example(pack(parts) if name == "manifest.json" else repack(parts))[0] == 1, text


@pytest.mark.parametrize("name", ["leaves.txt", "events.jsonl", "results.jsonl", "report.html"])
def test_so_it_does_in_a_larger_bundle(large: tuple[bytes, bytes], name: str) -> None:
    data, note = large
    parts = entries(data)
    manifest = json.loads(parts["manifest.json"])
    for text in lines_changed(parts[name], Random(3)):
        changed = repack({**parts, name: text}, **{k: manifest[k] for k in ("ledger", "run_id", "size")})
        assert judge(changed, str(KEY.verifier_key), note)[0] == 1


# --- meaning -------------------------------------------------------------------------------


def test_a_false_report_fails_although_the_manifest_matches() -> None:
    report = json.loads(PARTS["report.json"])
    for change in ({"accepted_first": 2}, {"valid": False}, {"outcome": "abandoned"}, {"extra": 1}):
        code, said = judge_example(repack({**PARTS, "report.json": encode({**report, **change}) + b"\n"}))
        assert code == 1
        assert "ReportIssued" in said
    for name in ("results.jsonl", "report.html"):
        assert judge_example(repack({**PARTS, name: b"<p>all is well</p>\n"}))[0] == 1
        assert judge_example(repack({**PARTS, name: b""}))[0] == 1


def _changes(report: dict[str, Any]) -> list[dict[str, Any]]:
    changes = [{name: value + 1} for name, value in report.items() if type(value) is int and name in CHECKED]
    changes += [{"valid": not report["valid"]}, {"outcome": "unheard"}, {"run_id": "other"}, {"model": "m"}]
    changes += [{"errors": {"made_up": 1}}, {"calls": {**report["calls"], "failed": 99}}, {"calls": None}]
    changes += [{"as_of": {**report["as_of"], "root": "0" * 64}}, {"as_of": None}, {"as_of": {"position": True}}]
    changes += [{"as_of": {**report["as_of"], "more": 1}}]
    changes += [{"accepted_first": "1"}, {"accepted_first": True}, {"decisions": {}}, {"candidate_id": None}]
    return changes


CHECKED = {
    *("requests", "accepted_first", "accepted_after_retry", "fallback_records", "leak_rejected", "rejected"),
    *("not_started", "incomplete", "results", "external_error_records", "retry_used_records", "unreadable"),
}


def test_a_false_report_fails_although_the_ledgers_own_keeper_issued_and_signed_it(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=8)) as store:
        reports = make_reports(store, "mine")
        true = json.loads(reports["report.json"])
        changes = _changes(true)
        assert len(changes) == len(CHECKED) + 15
        for change in changes:
            false = {**reports, "report.json": encode({**true, **change}) + b"\n"}
            issue_all(store, "mine", false)
            note = sign(store)
            code, said = judge(bundled(store, "mine", note, false), str(KEY.verifier_key), note.encode())
            assert code == 1, change
            assert "report.json" in said


def test_results_that_leave_one_out_fail_although_they_were_issued_and_signed(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="mine", lines=8)) as store:
        reports = make_reports(store, "mine")
        for results in (b"", reports["results.jsonl"] + b"{}\n", reports["results.jsonl"].split(b"\n", 1)[1]):
            false = {**reports, "results.jsonl": results}
            issue_all(store, "mine", false)
            note = sign(store)
            code, said = judge(bundled(store, "mine", note, false), str(KEY.verifier_key), note.encode())
            assert code == 1
            assert "not as many results" in said


def test_a_checkpoint_of_another_ledger_is_no_anchor() -> None:
    other = sign_note(f"{KEY.name}\n99\n{'A' * 43}=\n", [KEY]).encode()
    code, said = judge(EXAMPLE, [vkey(), str(KEY.verifier_key)], other)
    assert code == 1
    assert "another ledger" in said


def test_a_report_as_of_the_middle_of_the_run_is_not_taken_for_the_runs(tmp_path: Path) -> None:
    from ledger.render.issue import issue, rendering
    from tests.ledger.bundle.ledgers import RENDERINGS, sha256

    with story_ledger(tmp_path, told(0, run_id="mine", lines=8)) as store:
        early = {}
        for name, of in RENDERINGS.items():
            early[name] = b"".join(rendering(*of).render(store, "mine", 6))
            digest = sha256(early[name]).hexdigest()
            issue(store, "mine", rendering(*of), as_of_position=6, sha256=digest, actor="tester")
        note = sign(store)
        code, said = judge(bundled(store, "mine", note, early), str(KEY.verifier_key), note.encode())
    assert code == 1
    assert "as of its last event" in said


def test_a_bundle_signed_anew_with_another_key_fails() -> None:
    text = PARTS["checkpoint.txt"].decode().split("\n\n")[0] + "\n"
    for note in (sign_note(text, [OTHER_KEY]), sign_note(text, [KEY])):
        code, said = judge_example(repack({**PARTS, "checkpoint.txt": note.encode()}))
        assert code == 1
        assert "signature" in said
    # both keys' signatures are a rotation; then the one that was named must be good
    both = PARTS["checkpoint.txt"].decode() + sign_note(text, [OTHER_KEY]).split("\n\n")[1]
    assert judge_example(repack({**PARTS, "checkpoint.txt": both.encode()}))[0] == 0
    assert judge(repack({**PARTS, "checkpoint.txt": both.encode()}), str(OTHER_KEY.verifier_key), both.encode())[0] == 0


def test_with_another_key_on_the_command_line_it_fails() -> None:
    assert judge(EXAMPLE, str(OTHER_KEY.verifier_key))[0] == 1
    assert judge(EXAMPLE, str(OTHER_KEY.verifier_key), pinned("all"))[0] == 1
    assert judge(EXAMPLE, [str(OTHER_KEY.verifier_key), vkey()], pinned("all"))[0] == 0


def test_an_old_bundle_under_the_new_key_alone_was_said_to_need_the_new_one() -> None:
    code, said = judge(EXAMPLE, str(OTHER_KEY.verifier_key))
    assert code == 1
    assert "no signature by the key named; name the one in force when it was made (an earlier or a later one)" in said


def example_lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PARTS["events.jsonl"].splitlines()]


def with_lines(lines: list[dict[str, Any]]) -> bytes:
    return repack({**PARTS, "events.jsonl": b"".join(encode(line) + b"\n" for line in lines)})


def test_content_that_is_missing_fails_unless_an_event_ordered_its_erasure() -> None:
    for index, line in enumerate(example_lines()):
        if line["content"] is None:
            continue
        lines = example_lines()
        lines[index] |= {"content": None, "encoding": None, "salt": None}
        code, said = judge_example(with_lines(lines))
        assert code == 1
        assert "redacted without authority" in said


def test_erased_content_that_is_there_again_fails() -> None:
    lines = example_lines()
    salt = "3d547e341ed3c35631819bd9bfe33d6f900dda1d053a014194af6b7444bb9fba"
    lines[5] |= {"content": "//4gbm90IFVURi04", "encoding": "base64", "salt": salt}
    code, said = judge_example(with_lines(lines))
    assert code == 1
    assert "although it was redacted" in said


def test_an_edited_content_or_salt_fails() -> None:
    for index, line in enumerate(example_lines()):
        if line["content"] is None:
            continue
        for change in (
            {"content": line["content"] + " "},
            {"salt": "0" * 64},
            {"encoding": "base64"},
            {"content": 7},
            {"salt": None},
        ):
            lines = example_lines()
            lines[index] |= change
            assert judge_example(with_lines(lines))[0] == 1


def test_the_events_of_another_run_cannot_be_passed_off_as_this_ones(tmp_path: Path) -> None:
    with story_ledger(tmp_path, told(0, run_id="one", lines=3), told(1, run_id="two", lines=3)) as store:
        one, note = bundle_of(store, "one")
        two, _ = bundle_of(store, "two")
    assert judge(one, str(KEY.verifier_key), note.encode())[0] == 0
    parts = entries(one)
    size = json.loads(parts["manifest.json"])["size"]
    renamed = repack(parts, ledger=KEY.name, run_id="two", size=size)
    assert judge(renamed, str(KEY.verifier_key), note.encode())[0] == 1
    mixed = {**parts, "events.jsonl": entries(two)["events.jsonl"]}
    assert judge(repack(mixed, ledger=KEY.name, run_id="one", size=size), str(KEY.verifier_key))[0] == 1


def test_a_forged_bundle_passes_before_it_is_bent() -> None:
    """Else the tests that bend forged bundles would show nothing."""
    lines = [json.loads(line) for line in PARTS["events.jsonl"].splitlines()]
    for line in lines:
        line["envelope"]["ledger"] = KEY.name
    made = forge([encode(line) for line in lines])
    code, said = judge(made, str(KEY.verifier_key))
    assert "as_of" in said  # all but the root that the report quotes is as it must be
    assert code == 1
    assert event_line(lines[0]["envelope"], encode(lines[0]["payload"])) == encode(lines[0])


def test_the_example_ledger_is_the_one_that_was_bundled(tmp_path: Path) -> None:
    with example_ledger(f"sqlite:///{tmp_path}/ledger.db") as store:
        assert store.head().root.hex() == json.loads((bundles.EXAMPLE / "roots.json").read_text())["14"]
