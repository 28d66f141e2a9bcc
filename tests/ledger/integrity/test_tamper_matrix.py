"""Every attack of the tamper matrix, on both databases: told with its place, or named as unproven, as the page says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ledger.integrity.attack import Passes
from tests.ledger.integrity.matrix import ANCHORS, SECTIONS, Case, cases, happened, telling
from tests.ledger.integrity.scene import Scene
from tests.ledger.integrity.tamper_table import HEADINGS, PAGE, row, what, with_table
from tests.ledger.integrity.tampering import drop_triggers, owner, put_back

ALL = [case for attacks in SECTIONS.values() for attack in attacks for case in cases(attack)]

MAY_PASS = {
    # Who holds the key and the signer's store, or puts the whole machine back, has the store vouch for anything.
    ("roll-back-machine", "store"),
    ("rewrite-key-and-store", "store"),
    ("fork-key-and-store", "store"),
    # The ledger is as it was: what was touched are copies, or what vouches elsewhere.
    ("checkpoint-delete", "store"),
    ("checkpoint-delete", "kept"),
    ("store-lost", "kept"),
    ("store-older", "kept"),
    ("store-other-key", "kept"),
    ("store-broken", "kept"),
    # What was never signed is gone, and all that was signed is there.
    ("end-cut-whole", "store"),
    ("end-cut-whole", "kept"),
}


@pytest.fixture(scope="module")
def on_files(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"))


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def scene(request: pytest.FixtureRequest, on_files: Scene) -> Iterator[Scene]:
    if request.param == "sqlite":
        yield on_files
        return
    made = on_files.on(request.getfixturevalue("postgres_server"))
    yield made
    made.close()


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_an_attack_gets_the_verdicts_that_the_page_says(scene: Scene, case: Case) -> None:
    came = happened(scene, case, unguarded=not scene.on_postgres, sparing=scene.on_postgres)
    if case.expected is None:
        assert came.verdicts == [], "all should be as it was"
    else:
        for anchor, verdict, outcome in zip(ANCHORS, came.verdicts, case.expected, strict=True):
            assert telling(verdict, outcome) is not None, f"by {anchor}, {outcome} and not\n" + "\n".join(
                verdict.lines()
            )
    assert row(case, came) in PAGE.read_text(encoding="utf-8").splitlines(), "write the page anew"
    if came.unguarded is not None:
        assert came.unguarded.result != "PASS"
        assert any("own guards" in said for said in came.unguarded.unproven)


def test_the_page_has_a_line_for_every_attack_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ") and line + "\n" not in HEADINGS]
    named = [tuple(line.removeprefix("| ").split(" | ")[:2]) for line in lines if not line.startswith("| ---")]
    assert named == [what(case) for case in ALL]
    by_section = iter(lines)
    rows = {title: [next(by_section) for a in attacks for _ in cases(a)] for title, attacks in SECTIONS.items()}
    assert with_table(page, rows) == page, "write it anew: python -m tests.ledger.integrity.tamper_table"


def test_no_attack_passes_but_those_that_nothing_can_tell() -> None:
    passing = {
        (case.attack.name, anchor)
        for case in ALL
        if case.expected is not None
        for anchor, outcome in zip(ANCHORS, case.expected, strict=True)
        if isinstance(outcome, Passes)
    }
    assert passing == MAY_PASS


def test_attacks_have_names_and_words_of_their_own() -> None:
    assert len({case.name for case in ALL}) == len(ALL)
    for attacks in SECTIONS.values():
        assert len({attack.said for attack in attacks}) == len(attacks)


def test_untouched_the_ledger_passes_by_either_anchor_and_is_incomplete_without(scene: Scene) -> None:
    with scene.target("covered") as target:
        verdicts = target.judged(*ANCHORS)
    assert [verdict.result for verdict in verdicts] == ["INCOMPLETE", "PASS", "PASS"]


def test_each_guard_that_is_dropped_alone_is_named(scene: Scene) -> None:
    with scene.target("covered") as target:
        with owner(target.url) as connection:
            triggers = drop_triggers(connection)
        # On Postgres a trigger is two statements: it is made, and then set to fire always.
        made = (
            [triggers[at : at + 2] for at in range(0, len(triggers), 2)]
            if scene.on_postgres
            else [[t] for t in triggers]
        )
        for one in made:
            with owner(target.url) as connection:
                put_back(connection, [statement for other in made if other is not one for statement in other])
            (verdict,) = target.judged("store")
            with owner(target.url) as connection:
                drop_triggers(connection)
            assert verdict.result == "INCOMPLETE", one
            assert verdict.findings == ()
            (said,) = verdict.unproven
            assert said.count("is missing") == 1
