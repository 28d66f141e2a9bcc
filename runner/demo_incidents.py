"""The incidents of the demo: what is asked, what the simulated model does, what must come of it.

All of it lies in ``demo_incidents.jsonl``, an incident a line: ``request`` (a replay request), ``answer`` and
``replies`` (the simulated model's script, see `simulated_replies`), ``expected`` (``outcome``:
``accepted_first``, ``accepted_after_retry`` or ``fallback``; ``error``: the result's error code or null).
What is expected holds for the contract-tuned variant and three attempts a turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from runner.simulated_replies import Script

_LINES: Final[tuple[Mapping[str, Any], ...]] = tuple(
    json.loads(line)
    for line in files("runner").joinpath("demo_incidents.jsonl").read_text(encoding="utf-8").splitlines()
)

DEMO_EXPECTED: Final[Mapping[str, Mapping[str, str | None]]] = {
    line["request"]["incident_id"]: line["expected"] for line in _LINES
}
"""Incident id -> ``{"outcome": ..., "error": ...}``."""

DEMO_SCRIPTS: Final[Mapping[str, Script]] = {
    line["request"]["incident_id"]: Script(line["answer"], tuple(line["replies"])) for line in _LINES
}
"""Incident id -> what the simulated model does when asked about it."""

LEAKING_REQUESTS: Final = 3
"""Requests in the leaking file; the second of them holds its own evaluation labels."""


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """Where the two files were written, and what must come of the first."""

    incidents_path: Path
    leaking_path: Path
    expected: Mapping[str, Mapping[str, str | None]]


def demo_files(folder: Path) -> DemoFiles:
    """Write the incidents, and a few of which one leaks, to `folder` as replay requests."""
    requests = [line["request"] for line in _LINES]
    incidents, leaking = folder / "incidents.jsonl", folder / "leaking.jsonl"
    incidents.write_text(_jsonl(requests), encoding="utf-8")
    leaking.write_text(_jsonl(_one_leaking(requests[:LEAKING_REQUESTS])), encoding="utf-8")
    return DemoFiles(incidents, leaking, DEMO_EXPECTED)


def _one_leaking(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same requests, the second with the labels that it is to be graded by where the model could read them."""
    first, second, *rest = requests
    labels = {"expected_action": "cancel the reporting query", "risk_level": "medium"}
    context = {**second["incident_context"], "evaluation_labels": labels}
    return [first, {**second, "incident_context": context}, *rest]


def _jsonl(requests: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n" for request in requests)
