"""Every way to tamper with a ledger that we could think of, by plain SQL: none of them passes."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from random import Random

import pytest

from ledger.events import new_event
from ledger.integrity.canonical import encode_payload
from ledger.integrity.verdict import MAX_SCOPES
from ledger.integrity.verify import verify
from tests import stories
from tests.ledger.integrity.judging import findings, judged, places, rehash, saved
from tests.ledger.integrity.small import (
    ACCEPTED,
    CALLED,
    END,
    ORIGIN,
    OUTPUT,
    REQUESTS,
    clean_run,
    opened,
    redaction,
)
from tests.ledger.integrity.tampering import Copies, Statement, tamper

# --- nothing is wrong ----------------------------------------------------------------------


def test_a_whole_ledger_without_a_signature_is_incomplete_and_says_why(url: str) -> None:
    verdict = judged(url)
    assert verdict.findings == ()
    assert (verdict.result, verdict.exit_code) == ("INCOMPLETE", 3)
    assert verdict.unsigned is not None
    assert (verdict.unsigned.first, verdict.unsigned.events) == (1, verdict.size)
    assert "no signed checkpoint vouches" in verdict.unproven[0]
    text = "\n".join(verdict.lines())
    for words in (
        "INCOMPLETE",
        ORIGIN,
        str(verdict.root),
        "everything that was read matches",
        "does not prove",
        "gdpr",
    ):
        assert words in text


def test_it_lists_what_was_erased_and_does_not_fail_for_it(file_url: str) -> None:
    (erased,) = judged(file_url).redactions
    assert (erased.contents, erased.reason, erased.actor) == (1, "gdpr", "dpo-1")


def test_what_was_erased_is_listed_with_run_and_request(url: str) -> None:
    verdict = judged(url)
    (erased,) = verdict.redactions
    (scope,) = erased.scopes
    assert (scope.run_id, scope.request_id, scope.contents) == ("run-1", "INC-2", 1)
    line = f"  - position {erased.position}: 1 content of request INC-2 of run run-1, reason gdpr, by dpo-1"
    assert line in list(verdict.lines())
    (said,) = verdict.as_dict()["redactions"]
    assert said["scopes"] == [{"run_id": "run-1", "request_id": "INC-2", "contents": 1}]


def test_of_an_erasure_over_many_requests_the_first_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'l.db'}", "create") as store:
        store.append(clean_run("run-1", 8))
        store.append([redaction(*(ACCEPTED + n for n in range(8)))])
        (erased,) = verify(store).redactions
    assert (len(erased.scopes), erased.scopes_left_out) == (MAX_SCOPES, 8 - MAX_SCOPES)
    assert "request INC-5 of run run-1; and 3 more, reason" in str(erased)


@pytest.mark.parametrize("seed", range(8))
def test_any_story_a_run_can_tell_verifies(seed: int, tmp_path: Path) -> None:
    story = stories.story(Random(seed), run_id="run-1")
    with opened(f"sqlite:///{tmp_path / 'l.db'}", "create") as store:
        store.append(story)
        verdict = verify(store)
    assert verdict.findings == ()
    ended = any(event.type in ("RunCompleted", "RunAbandoned", "RunBlocked") for event in story)
    assert verdict.open_runs == (() if ended else ("run-1",))


def test_a_run_without_an_end_is_named(url: str) -> None:
    with opened(url, "write") as store:
        store.append([new_event(stories.started(), run_id="run-open")])
    verdict = judged(url)
    assert "run-open" in verdict.open_runs
    assert verdict.result == "INCOMPLETE"


def test_progress_reaches_the_end(file_url: str) -> None:
    seen: list[tuple[int, int]] = []
    with opened(file_url, "read") as store:
        verify(store, progress=lambda done, total: seen.append((done, total)))
        assert seen[-1] == (store.head().size, store.head().size)


def test_a_ledger_that_others_append_to_and_redact_meanwhile_does_not_fail(url: str) -> None:
    done = threading.Event()

    def write() -> None:
        with opened(url, "write") as store:
            for number in range(200):
                if done.is_set():
                    return
                store.append(clean_run(f"run-{number + 10}", 5))
                store.append([redaction(ACCEPTED + 2 + number % 60)] if number < 60 else [redaction()])
                store.save_checkpoint(saved(store, store.head().size))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            with opened(url, "read") as store:
                assert verify(store).findings == ()
    finally:
        done.set()
        writer.join()
    assert judged(url).findings == ()


# --- edited --------------------------------------------------------------------------------

TOLD_BY_THE_LEAF = {
    "type": "'ModelCallFailed'",
    "run_version": "run_version + 1000",
    "request_version": "request_version + 100",
    "payload_sha256": f"'{'0' * 64}'",
    "content_commitment": f"'{'0' * 64}'",
}
UNTOLD = {
    "event_id": "'0197a3c0-0000-7000-8000-000000000000'",
    "run_id": "'run-9'",
    "request_id": "'INC-9999'",
    "schema": "2",
}


@pytest.mark.parametrize("member", [*TOLD_BY_THE_LEAF, *UNTOLD])
def test_an_edited_member_of_the_envelope_is_found_at_its_position(file_url: str, member: str) -> None:
    value = {**TOLD_BY_THE_LEAF, **UNTOLD}[member]
    found = places(findings(file_url, f"UPDATE events SET {member} = {value} WHERE position = {CALLED}"))
    near = member in ("type", "payload_sha256", "content_commitment", "request_version", "schema")
    assert (CALLED, member if near else "envelope", "edited") in found


@pytest.mark.parametrize("time", ["'2001-01-01T00:00:00.000000Z'", "'2091-01-01T00:00:00.000000Z'"])
def test_an_edited_time_is_found(url: str, time: str) -> None:
    found = places(findings(url, f"UPDATE events SET recorded_at = {time} WHERE position = {CALLED}"))
    assert (CALLED, "envelope", "edited") in found
    assert any(member == "recorded_at" for _, member, _ in found)


def test_a_commitment_taken_away_is_found(url: str) -> None:
    found = places(findings(url, f"UPDATE events SET content_commitment = NULL WHERE position = {CALLED}"))
    assert (CALLED, "content_commitment", "edited") in found


@pytest.mark.parametrize("with_digest", [False, True])
def test_an_edited_payload_is_found_with_and_without_its_digest_mended(url: str, with_digest: bool) -> None:
    payload = encode_payload(stories.output_accepted(risk_level="low").model_dump()).decode()
    digest = hashlib.sha256(payload.encode()).hexdigest()
    statements: list[Statement] = [
        (f"UPDATE events SET payload = :payload WHERE position = {OUTPUT}", {"payload": payload})
    ]
    if with_digest:
        statements.append(f"UPDATE events SET payload_sha256 = '{digest}' WHERE position = {OUTPUT}")
    found = places(findings(url, *statements))
    assert (OUTPUT, "envelope" if with_digest else "payload", "edited") in found


def test_a_payload_in_another_form_of_the_same_json_is_found(file_url: str) -> None:
    found = places(
        findings(file_url, f"UPDATE events SET payload = replace(payload, ':', ': ') WHERE position = {OUTPUT}")
    )
    assert (OUTPUT, "payload", "edited") in found


@pytest.mark.parametrize("payload", ["", "[]", "{}", "not json", '{"a":1.5}', "null", '{"turn":1,"turn":1}'])
def test_a_payload_that_cannot_be_understood_fails_even_with_all_hashes_mended(file_url: str, payload: str) -> None:
    found = rehash(file_url, (f"UPDATE events SET payload = :payload WHERE position = {OUTPUT}", {"payload": payload}))
    assert (OUTPUT, "payload", "edited") in places(found)


def test_an_edited_leaf_hash_is_found(url: str) -> None:
    found = places(findings(url, (f"UPDATE events SET leaf_hash = :h WHERE position = {CALLED}", {"h": b"h" * 32})))
    assert (CALLED, "envelope", "edited") in found
    assert (1, "tree_nodes", "edited") in found


def test_a_leaf_hash_of_another_length_is_found(file_url: str) -> None:
    found = places(findings(file_url, (f"UPDATE events SET leaf_hash = :h WHERE position = {CALLED}", {"h": b"short"})))
    assert (CALLED, "leaf_hash", "edited") in found


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ("body = 'another answer'", "content"),
        ("body = body || ' '", "content"),
        ("salt = :salt", "content"),
        ("salt = :short", "salt"),
        ("encoding = 'base64'", "content"),
        ("encoding = 'latin-1'", "content"),
        ("encoding = 'base64', body = :same", "encoding"),
    ],
)
def test_edited_content_is_found(file_url: str, change: str, member: str) -> None:
    params = {"salt": b"s" * 32, "short": b"s", "same": "eyJtZXNzYWdlcyI6W119"}
    used = {name: value for name, value in params.items() if f":{name}" in change}
    found = places(findings(file_url, (f"UPDATE contents SET {change} WHERE position = {CALLED - 1}", used)))
    assert found == {(CALLED - 1, member, "edited")}


def test_base64_in_another_form_of_the_same_bytes_is_found(file_url: str) -> None:
    found = places(findings(file_url, f"UPDATE contents SET body = body || '=' WHERE position = {CALLED}"))
    assert {(position, kind) for position, _, kind in found} == {(CALLED, "edited")}


# --- removed, inserted, reordered ----------------------------------------------------------


def test_a_removed_event_is_found(url: str) -> None:
    found = places(findings(url, f"DELETE FROM events WHERE position = {CALLED}"))
    assert (CALLED, "events", "removed") in found


def test_many_removed_events_are_one_finding(file_url: str) -> None:
    found = findings(file_url, "DELETE FROM events WHERE position BETWEEN 20 AND 40")
    assert [(item.position, item.last) for item in found if item.member == "events"] == [(20, 40)]


def test_a_removed_first_event_is_found(file_url: str) -> None:
    assert (1, "events", "removed") in places(findings(file_url, "DELETE FROM events WHERE position = 1"))


def test_an_event_removed_and_the_rest_renumbered_is_found(url: str) -> None:
    found = places(findings(url, f"DELETE FROM events WHERE position = {CALLED}", *renumber(CALLED, -1)))
    assert (CALLED, "position", "reordered") in found
    assert any(kind == "truncated" for _, _, kind in found)


def renumber(after: int, by: int) -> list[Statement]:
    return [
        f"UPDATE events SET position = position + 1000000 WHERE position > {after}",
        f"UPDATE events SET position = position - 1000000 + {by} WHERE position > 1000000",
    ]


def test_removed_content_is_found(url: str) -> None:
    found = places(findings(url, f"DELETE FROM contents WHERE position = {CALLED}"))
    assert found == {(CALLED, "content", "removed")}


@pytest.mark.parametrize("at_end", [False, True])
def test_an_inserted_event_is_found(url: str, at_end: bool) -> None:
    with opened(url, "read") as store:
        size = store.head().size
    after = size if at_end else 100
    statements = [] if at_end else renumber(after, 1)
    columns = "schema, recorded_at, payload, payload_sha256, content_commitment, leaf_hash"
    statements.append(
        f"INSERT INTO events (position, event_id, type, run_id, run_version, {columns})"
        f" SELECT {after + 1}, '0197a3c0-0000-7000-8000-000000000000', type, 'run-9', 1, {columns}"
        " FROM events WHERE position = 2"
    )
    found = findings(url, *statements)
    assert (after + 1, "events" if at_end else "envelope", "inserted" if at_end else "edited") in places(found)


def test_swapped_events_are_found_at_both_places(url: str) -> None:
    swap = [
        "UPDATE events SET position = 1000000 WHERE position = 10",
        "UPDATE events SET position = 10 WHERE position = 12",
        "UPDATE events SET position = 12 WHERE position = 1000000",
    ]
    found = places(findings(url, *swap))
    assert {(10, "position", "reordered"), (12, "position", "reordered")} <= found


def test_content_where_none_was_is_found(url: str) -> None:
    with opened(url, "read") as store:
        bare = next(record.position for record in store.records() if record.content_commitment is None)
    insert = "INSERT INTO contents (position, salt, encoding, body) VALUES (:p, :s, 'utf-8', '')"
    found = places(findings(url, (insert, {"p": bare, "s": b"s" * 32})))
    assert found == {(bare, "content", "inserted")}


def test_content_of_no_event_is_found(file_url: str) -> None:
    insert = "INSERT INTO contents (position, salt, encoding, body) VALUES (100000, :s, 'utf-8', '')"
    assert places(findings(file_url, (insert, {"s": b"s" * 32}))) == {(100_000, "contents", "inserted")}


# --- the tree and the head -----------------------------------------------------------------


def test_an_edited_a_removed_and_an_extra_node_are_found(copies: Copies) -> None:
    for statement, place in (
        (("UPDATE tree_nodes SET hash = :h", {"h": b"h" * 32}), (1, "tree_nodes", "edited")),
        ("DELETE FROM tree_nodes", (1, "tree_nodes", "removed")),
        (("INSERT INTO tree_nodes VALUES (1, 1, :h)", {"h": b"h" * 32}), (None, "tree_nodes", "inserted")),
        (("INSERT INTO tree_nodes VALUES (2, 0, :h)", {"h": b"h" * 32}), (None, "tree_nodes", "inserted")),
        (("INSERT INTO tree_nodes VALUES (0, 0, :h)", {"h": b"h" * 32}), (None, "tree_nodes", "inserted")),
    ):
        for url in copies.copy():
            assert place in places(findings(url, statement))


@pytest.mark.parametrize("member", ["root", "frontier", "recorded_at", "origin", "format"])
def test_an_edited_head_is_found(url: str, member: str) -> None:
    value = {"root": ":h", "frontier": ":h", "format": "2"}
    value |= {"recorded_at": "'2091-01-01T00:00:00.000000Z'", "origin": "'other/name'"}
    params = {"h": b"h" * 32} if value[member] == ":h" else {}
    found = findings(url, (f"UPDATE ledger_head SET {member} = {value[member]}", params))
    if member == "origin":
        assert {(1, "envelope", "edited")} <= places(found)
    else:
        assert any(item.member == "ledger_head" and member in item.text for item in found)


def test_a_cut_tail_under_the_old_head_is_truncated(url: str) -> None:
    with opened(url, "read") as store:
        size = store.head().size
    found = findings(url, f"DELETE FROM events WHERE position > {size - 2}")
    assert (size - 1, "events", "truncated") in places(found)


def test_an_empty_ledger_fails(url: str) -> None:
    statements = ["DELETE FROM events", "DELETE FROM contents", "DELETE FROM tree_nodes", "DELETE FROM redactions"]
    found = findings(url, *statements)
    assert (1, "events", "truncated") in places(found)


# --- what cannot be seen without a signature -----------------------------------------------


def test_a_tail_cut_and_all_hashes_mended_is_incomplete_and_never_passes(url: str) -> None:
    with opened(url, "read") as store:
        size = store.head().size
    cut = ["events", "contents"]
    statements: list[Statement] = [f"DELETE FROM {table} WHERE position >= {size}" for table in cut]
    found = rehash(url, *statements, f"DELETE FROM redactions WHERE event_position >= {size}")
    # The content that the cut event had erased is gone still, and that tells.
    assert places(found) == {(ACCEPTED + 1, "content", "removed")}


def test_a_tail_cut_with_nothing_left_to_tell_is_incomplete_and_never_passes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.db'}"
    with opened(url, "create") as store:
        store.append(clean_run("run-1", REQUESTS))
        size = store.head().size
        store.append([new_event(stories.report_issued(), run_id="run-1")])
    assert rehash(url, f"DELETE FROM events WHERE position > {size}", "DELETE FROM reports") == []
    assert judged(url).result == "INCOMPLETE"


def test_versions_tell_of_an_event_taken_out_even_with_all_hashes_mended(url: str) -> None:
    drop: list[Statement] = [f"DELETE FROM {table} WHERE position = {CALLED}" for table in ("events", "contents")]
    move = [statement for table in ("events", "contents", "redactions") for statement in moved(table)]
    found = places(rehash(url, *drop, *move, "UPDATE redactions SET event_position = event_position - 1"))
    assert (CALLED, "run_version", "removed") in found
    assert (CALLED, "request_version", "removed") in found


def moved(table: str) -> list[Statement]:
    above = {"redactions": 0}.get(table, CALLED)
    if table == "redactions":
        return []
    return [
        f"UPDATE {table} SET position = position + 1000000 WHERE position > {above}",
        f"UPDATE {table} SET position = position - 1000001 WHERE position > 1000000",
    ]


def test_versions_that_run_backwards_are_found_even_with_all_hashes_mended(url: str) -> None:
    swap: list[Statement] = [
        "UPDATE events SET run_version = 1000000 WHERE position = 10",
        "UPDATE events SET run_version = 9 WHERE position = 12",
        "UPDATE events SET run_version = 11 WHERE position = 10",
    ]
    kinds = {(member, kind) for _, member, kind in places(rehash(url, *swap))}
    assert ("run_version", "reordered") in kinds


def test_counts_that_do_not_add_up_are_found_even_with_all_hashes_mended(url: str) -> None:
    end = f"UPDATE events SET payload = replace(payload, :was, :becomes) WHERE position = {END}"
    params = {"was": '"requests":70', "becomes": '"requests":71'}
    assert places(rehash(url, (end, params))) == {(END, "payload", "edited")}


# --- redactions ----------------------------------------------------------------------------


def test_erased_content_put_back_is_found(url: str) -> None:
    with opened(url, "read") as store:
        (original,) = [r for r in store.records() if r.position == ACCEPTED]
    insert = "INSERT INTO contents (position, salt, encoding, body) VALUES (:p, :s, 'utf-8', :b)"
    found = findings(url, (insert, {"p": ACCEPTED + 1, "s": original.salt, "b": original.body}))
    assert places(found) == {(ACCEPTED + 1, "content", "inserted")}


def test_content_erased_without_an_event_is_found(url: str) -> None:
    with opened(url, "read") as store:
        by = store.head().size
    for event_position in (by, 10, 100_000):
        found = findings(
            url,
            f"DELETE FROM contents WHERE position = {CALLED}",
            f"INSERT INTO redactions (position, event_position) VALUES ({CALLED}, {event_position})",
        )
        assert (CALLED, "redactions", "redacted without authority") in places(found)
        restore = "INSERT INTO contents (position, salt, encoding, body) VALUES (:p, :s, 'utf-8', '')"
        tamper(url, f"DELETE FROM redactions WHERE position = {CALLED}", (restore, {"p": CALLED, "s": b"s" * 32}))


def test_a_redaction_row_taken_away_is_found(url: str) -> None:
    found = places(findings(url, "DELETE FROM redactions"))
    assert found == {(ACCEPTED + 1, "redactions", "removed"), (ACCEPTED + 1, "content", "removed")}


def test_a_redaction_of_what_never_had_content_is_found(url: str) -> None:
    with opened(url, "read") as store:
        bare = next(record.position for record in store.records() if record.content_commitment is None)
        by = store.head().size
    found = places(findings(url, f"INSERT INTO redactions (position, event_position) VALUES ({bare}, {by})"))
    assert found == {(bare, "redactions", "inserted"), (bare, "redactions", "redacted without authority")}


@pytest.mark.parametrize("value", ["'x'", "X'05'", "1.5"])
def test_a_redaction_that_names_no_event_ended_the_walk_before_what_else_was_wrong(file_url: str, value: str) -> None:
    with opened(file_url, "write") as store:
        store.append([redaction(CALLED)])
        late = store.head().size
    found = places(
        findings(
            file_url,
            f"UPDATE redactions SET event_position = {value} WHERE position = {ACCEPTED + 1}",
            f"UPDATE events SET payload = '{{}}' WHERE position = {late}",
            f"DELETE FROM contents WHERE position = {OUTPUT}",
        )
    )
    assert (ACCEPTED + 1, "redactions", "edited") in found
    assert {(OUTPUT, "content", "removed"), (late, "payload", "edited")} <= found
    assert not [place for place in found if place[1] == "database"]


def test_a_redaction_of_no_position_is_named_without_one(file_url: str) -> None:
    found = findings(
        file_url,
        "DROP TABLE redactions",
        "CREATE TABLE redactions (position, event_position)",
        "INSERT INTO redactions VALUES ('x', 5), (NULL, 'y')",
    )
    assert "the position of a row is no whole number" in {finding.text for finding in found if finding.position is None}


# --- checkpoints ---------------------------------------------------------------------------


def test_a_stored_checkpoint_that_matches_is_mentioned_and_proves_nothing_yet(url: str) -> None:
    with opened(url, "write") as store:
        store.save_checkpoint(saved(store, 100))
        store.save_checkpoint(saved(store, store.head().size))
    verdict = judged(url)
    assert verdict.findings == ()
    assert verdict.result == "INCOMPLETE"
    assert any("stored checkpoints" in reason and reason.endswith(": 2") for reason in verdict.unproven)


def test_a_checkpoint_of_another_history_is_forked(file_url: str) -> None:
    with opened(file_url, "write") as store:
        store.save_checkpoint(saved(store, 100, b"r" * 32))
    verdict = judged(file_url)
    assert places(list(verdict.findings)) == {(100, "checkpoints", "forked")}


def test_a_ledger_shorter_than_its_checkpoint_was_rolled_back(file_url: str) -> None:
    with opened(file_url, "write") as store:
        checkpoint = saved(store, 5000, b"r" * 32)
    insert = "INSERT INTO checkpoints (size, root, note) VALUES (:size, :root, :note)"
    assert places(findings(file_url, (insert, checkpoint._asdict()))) == {(5000, "checkpoints", "rolled back")}


@pytest.mark.parametrize("note", ["", "not a note", "other size", "other origin"])
def test_a_note_that_says_something_else_than_its_row_is_found(file_url: str, note: str) -> None:
    with opened(file_url, "write") as store:
        good = saved(store, 100)
        notes = {"other size": saved(store, 101).note, "other origin": saved(store, 100, origin="x/y").note}
    insert = "INSERT INTO checkpoints (size, root, note) VALUES (:size, :root, :note)"
    found = findings(file_url, (insert, {**good._asdict(), "note": notes.get(note, note)}))
    assert places(found) == {(100, "checkpoints", "edited")}


# --- projections ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("runs", "UPDATE runs SET state = 'abandoned' WHERE run_id = 'run-1'"),
        ("requests", "UPDATE requests SET blocked_by_policy = NOT blocked_by_policy WHERE request_id = 'INC-9'"),
        ("requests", "DELETE FROM requests WHERE run_id = 'run-1' AND request_id = 'INC-9'"),
        ("model_calls", "UPDATE model_calls SET prompt_tokens = NULL WHERE request_id = 'INC-9'"),
    ],
)
def test_an_altered_projection_is_found(url: str, table: str, statement: str) -> None:
    found = findings(url, statement)
    assert {(item.member, item.kind) for item in found} == {(table, "projection altered")}


# --- hostile rows --------------------------------------------------------------------------


def test_what_a_tampered_row_holds_is_never_printed_raw(url: str) -> None:
    bad = "\x1b[2J\u202eevil"
    tamper(
        url,
        ("UPDATE events SET run_id = :bad WHERE position = 2", {"bad": bad}),
        ("UPDATE ledger_head SET origin = :bad", {"bad": bad}),
    )
    assert judged(url).result == "FAIL"  # judged() looks at every line


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE events SET payload = CAST(X'FF00FE' AS TEXT) WHERE position = {CALLED}",
        f"UPDATE events SET payload = X'FF00FE' WHERE position = {CALLED}",
        f"UPDATE events SET run_id = X'FF' WHERE position = {CALLED}",
        f"UPDATE events SET recorded_at = 5 WHERE position = {CALLED}",
        f"UPDATE events SET leaf_hash = 'text that has thirty-two letters' WHERE position = {CALLED}",
        f"UPDATE events SET run_version = 'x' WHERE position = {CALLED}",
        f"UPDATE events SET request_version = 1.5 WHERE position = {CALLED}",
        f"UPDATE contents SET salt = 'text that has thirty-two letters' WHERE position = {CALLED}",
        f"UPDATE contents SET body = X'FF' WHERE position = {CALLED}",
        f"UPDATE contents SET encoding = 7 WHERE position = {CALLED}",
        "UPDATE redactions SET event_position = 'x'",
        "UPDATE tree_nodes SET hash = 'x'",
    ],
)
def test_values_of_a_wrong_type_fail_and_do_not_crash(file_url: str, statement: str) -> None:
    assert findings(file_url, statement)
