"""What came of the tamper matrix as a page: ``python -m tests.ledger.integrity.tamper_table`` writes it anew.

What stands above the marker is written by hand; all below it is made from what was found.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ledger.integrity.verdict import SIGNERS_STORE, Finding, Verdict
from tests.ledger.integrity.attack import Outcome, Passes, Unproven, Window
from tests.ledger.integrity.matrix import SECTIONS, Came, Case, cases, happened, telling
from tests.ledger.integrity.scene import KEPT_ELSEWHERE, Scene

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "tamper-matrix.md"
MARKER: Final = "<!-- Below: made by `python -m tests.ledger.integrity.tamper_table`, from what was found. -->\n"
HEADINGS: Final = (
    "| what is done | hashes | no anchor | the signer's store | kept elsewhere | what is said |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)
_HASHES: Final = {"alone": "left", "mended": "made to fit"}
_HEX: Final = re.compile(r"\b[0-9a-f]{8,}\b")
_WINDOW: Final = re.compile(r"([0-9]+ events?) over ([0-9]+ min)")
_IN_THE_WINDOW: Final = "nothing tells: no anchor covers the place"
_RESTORED: Final = "all is again as it was before the attack"


def row(case: Case, came: Came) -> str:
    """The case's line in the table."""
    cells = list(_row_cells(case, came))
    return f"| {' | '.join([*what(case), *cells])} |"


def what(case: Case) -> tuple[str, str]:
    """The cells that name the case."""
    return case.attack.said, "-" if case.attack.mended is None else _HASHES[case.effort]


def _row_cells(case: Case, came: Came) -> Iterator[str]:
    if case.expected is None:
        yield from ("-", "-", "-", _RESTORED)
        return
    said: dict[str, None] = {}
    for verdict, outcome in zip(came.verdicts, case.expected, strict=True):
        told = telling(verdict, outcome)
        yield _cell(verdict, outcome, told)
        if isinstance(told, Finding):
            said[told.text] = None
        elif isinstance(outcome, Passes):
            said[outcome.why] = None
        elif isinstance(outcome, Unproven):
            said[str(told).partition(":")[0]] = None
    yield "; ".join(dict.fromkeys(map(_plain, said))) or _IN_THE_WINDOW


def _cell(verdict: Verdict, outcome: Outcome, told: Finding | str | None) -> str:
    if isinstance(told, Finding):
        return f"**FAIL**<br>{_place(told)}: {told.kind}"
    if isinstance(outcome, Window):
        found = _WINDOW.search(str(told))
        return f"INCOMPLETE<br>{found[1]}, {found[2]}" if found else "?"
    return verdict.result


def _place(found: Finding) -> str:
    if found.position is None:
        return found.member
    if found.last not in (None, found.position):
        return f"{found.position} to {found.last}, {found.member}"
    return f"{found.position}, {found.member}"


def _plain(text: str) -> str:
    """Without what differs from one making of the ledger, or one anchor, to the next; safe in a table."""
    for anchor in (SIGNERS_STORE, KEPT_ELSEWHERE):
        text = text.replace(anchor, "the anchor")
    return _HEX.sub("...", text).replace("|", "\\|")


def with_table(page: str, rows: dict[str, list[str]]) -> str:
    """The page with its lower part made anew. Raises ``ValueError`` where the marker is missing."""
    upper, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError(f"no line {MARKER.strip()!r}")
    return upper + marker + "".join(f"\n## {title}\n\n{HEADINGS}" + "\n".join(rows[title]) + "\n" for title in SECTIONS)


def _found() -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        return {
            title: [row(case, happened(scene, case)) for attack in attacks for case in cases(attack)]
            for title, attacks in SECTIONS.items()
        }


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), _found()), encoding="utf-8")
