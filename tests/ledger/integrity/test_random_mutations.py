"""Two thousand random changes to a ledger's rows: none passes, unless the rows are what they were.

Where a row of the log was changed and nothing was made to fit, a finding names its position.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, get_args

import pytest

from ledger.integrity.verdict import Finding, Verdict
from tests.ledger.integrity.forging import Part, dump, mend
from tests.ledger.integrity.mutations import ALL, LOG, mutate
from tests.ledger.integrity.scene import Scene
from tests.ledger.integrity.tampering import owner

AT_ONCE = 50
SMALL = range(0, 1900, AT_ONCE)
LARGE = range(1900, 1950, AT_ONCE)
ON_POSTGRES = range(1950, 2000, AT_ONCE)

Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Some forty events: most of what can go wrong needs no more."""
    return Scene(tmp_path_factory.mktemp("small"), requests=3)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """So many that there are nodes of the tree."""
    return Scene(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def on_postgres(small: Scene, request: pytest.FixtureRequest) -> Iterator[Scene]:
    made = small.on(request.getfixturevalue("postgres_server"))
    yield made
    made.close()


@pytest.mark.parametrize("first", SMALL)
def test_no_random_change_passes(small: Scene, first: int) -> None:
    check(small, range(first, first + AT_ONCE))


@pytest.mark.parametrize("first", LARGE)
def test_no_random_change_passes_where_there_are_nodes(large: Scene, first: int) -> None:
    check(large, range(first, first + AT_ONCE))


@pytest.mark.postgresql
@pytest.mark.parametrize("first", ON_POSTGRES)
def test_no_random_change_passes_on_postgres(on_postgres: Scene, first: int) -> None:
    check(on_postgres, range(first, first + AT_ONCE))


def check(scene: Scene, seeds: range) -> None:
    before = dump(scene.bare().url)
    for seed in seeds:
        change(scene, seed, before)


def change(scene: Scene, seed: int, before: Rows) -> None:
    """Every second one has everything made to fit, as far as a forger can; the triggers stay dropped."""
    random, target = Random(seed), scene.bare()
    with owner(target.url) as connection:
        said, position = mutate(connection, random, LOG if seed % 2 else ALL)
    if seed % 2:
        said += ", and made to fit" if made_to_fit(target.url, random) else ", and past mending"
    (verdict,) = target.judged("store")
    assert any("own guards" in reason for reason in verdict.unproven)
    if verdict.result == "FAIL":
        placed = seed % 2 or position is None or any(covers(found, position) for found in verdict.findings)
        assert placed, f"seed {seed}, {said}: nothing is found there\n" + "\n".join(verdict.lines())
        return
    problem = judge(verdict, before, dump(target.url))
    assert problem is None, f"seed {seed}, {said}: {problem}\n" + "\n".join(verdict.lines())


def covers(found: Finding, position: int) -> bool:
    """Is the place named? Of a redaction whose key is no number, which cannot be put beside an event, the table is."""
    if found.position is None or found.member == "database":
        return "redactions" in found.text
    return found.position <= position <= (found.last or found.position)


def made_to_fit(url: str, random: Random) -> bool:
    """Now and then one part is left as it is: that may hide what the rest of the mending would show."""
    keep = random.sample(get_args(Part), random.choice((0, 0, 0, 1)))
    try:
        mend(url, keep)
    except Exception:  # noqa: BLE001 - rows of which nothing can be made; then they stay as they are
        return False
    return True


def judge(verdict: Verdict, before: Rows, after: Rows) -> str | None:
    """What is wrong with a verdict that is no FAIL, given the rows as they were and as they are."""
    changed = {name for name in before if before[name] != after[name]}
    if not changed:
        return None if len(verdict.unproven) == 1 else "nothing was changed, and something else is unproven"
    if changed == {"checkpoints"}:
        # Copies that are gone prove nothing; a note by a key that nobody named is told as such.
        gone = set(after["checkpoints"]) < set(before["checkpoints"])
        return None if gone or len(verdict.unproven) > 1 else "a stored checkpoint was changed, and nothing tells"
    # All that was signed is there, and more: that is told as a window.
    if set(before["events"]) <= set(after["events"]) and any("the anchor ends before" in r for r in verdict.unproven):
        return None
    return f"{', '.join(sorted(changed))} changed, and it is {verdict.result}"
