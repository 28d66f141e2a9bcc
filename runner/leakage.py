"""The leak guard: does a replay request carry its own evaluation labels?

Pure: values in, findings out; no clock, network or state but caches of pure functions. It never
raises and never shows a value: a finding is a rule's name and a path. What counts as a label is
data (``leak_rules``), how it may be spelled is ``leak_names``, where it may hide ``leak_decode``.

Two passes. The first asks, over all strings at once, whether anything in them could matter at all;
it errs on the side of yes, and most requests end there. The second (``leak_walk``) walks the
request and knows where it is. Time is linear in the request and in what it unfolds to, which is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from ledger.events import Finding
from runner.leak_decode import LONGEST_CACHED_RUN, SHORTEST_RUN, is_escaped, reveal, runs_in, wrapped_runs
from runner.leak_names import fold, may_hold_answer, may_hold_example, may_hold_label, skeleton
from runner.leak_rules import (
    LEAK_RULES_VERSION,
    MAX_BLOB_BYTES,
    MAX_DEPTH,
    MAY_SPEAK_OF_CONTRACT,
    PROMPTS,
    SENT,
)
from runner.leak_walk import NO_IDS, Ids, Place, Scan

__all__ = ["LEAK_RULES_VERSION", "Finding", "scan_body", "scan_request"]

_LONGEST_CACHED: Final = 65_536
_SHORTEST_STRONG_NAME: Final = 7
"""Letters of the shortest label's name that counts within other bytes."""


def scan_request(
    document: Mapping[str, Any], *, request_id: str, incident_id: str, messages: Sequence[Mapping[str, str]] = ()
) -> tuple[Finding, ...]:
    """Every finding in a replay request as given and, where those find nothing sent, as it would be sent.

    ``document`` is the whole parsed line; ``messages`` those made from it. In the order of the
    document; the same hit counts once. A finding under a member that is refused whole is not
    listed apart, and after ``MAX_FINDINGS`` the request is not looked at further.
    """
    ids = Ids((request_id, incident_id))
    scan = Scan(ids)
    if request_id not in (document.get("request_id"), document.get("incident_id")):
        scan.identifier("request_id", request_id)
    rest = {key: value for key, value in document.items() if key not in PROMPTS or not isinstance(value, str)}
    if _request_stirs(rest):
        scan.walk(document, Place("", is_root=True))
    else:
        for key in PROMPTS:
            text = document.get(key)
            if isinstance(text, str):
                scan.add_all(_prompt_findings(text, key, ids))
    if not any(_member(finding.path) in SENT for finding in scan.findings):
        scan.add_all(_message_findings(document, messages))
    return tuple(scan.findings)


def scan_body(body: bytes) -> tuple[Finding, ...]:
    """Every finding in the messages of a request body, such as a corrective turn with its quoted answer.

    ``body`` is JSON as it would be sent, made by us. Prompts, template and quote may speak of the
    contract. Paths begin ``messages[n].content``.
    """
    findings: dict[Finding, None] = {}
    for index, message in enumerate(json.loads(body)["messages"]):
        findings.update(dict.fromkeys(_sent(index, message["content"])))
    return tuple(findings)


def _sent(index: int, content: str) -> Iterable[Finding]:
    scan = Scan(NO_IDS)
    scan.walk(content, Place(f"messages[{index}].content", answers_leak=False))
    return scan.findings


def _member(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _prompt_findings(text: str, path: str, ids: Ids) -> Iterable[Finding]:
    """A prompt is the same in most requests of a file: what is found in it is remembered."""
    found, needs_ids = _known_prompt(text) if len(text) <= _LONGEST_CACHED else ((), True)
    if needs_ids:
        scan = Scan(ids)
        scan.walk(text, Place(path, answers_leak=False))
        return scan.findings
    return [Finding(rule=finding.rule, path=path + finding.path) for finding in found]


@lru_cache(maxsize=128)
def _known_prompt(text: str) -> tuple[tuple[Finding, ...], bool]:
    """(findings with paths from the prompt on, whether the incident's own ids could matter)."""
    scan = Scan(NO_IDS)
    scan.walk(text, Place("", answers_leak=False))
    return tuple(scan.findings), scan.unfolded > 0 or may_hold_example(skeleton(fold(text)))


def _message_findings(document: Mapping[str, Any], messages: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    """What the messages hold beyond the members that they were made from."""
    prompts = [text for text in map(document.get, PROMPTS) if isinstance(text, str) and text]
    for index, message in enumerate(messages):
        content = message["content"]
        if content not in prompts and _adds_to(document, content, prompts):
            yield from _sent(index, content)


def _adds_to(document: Mapping[str, Any], content: str, prompts: Sequence[str]) -> bool:
    """Whether a message could hold what neither its prompt nor the incident's context does."""
    prompt = max((p for p in prompts if content.startswith(p)), key=len, default="")
    # The last line of the prompt stays: what it leads up to may stand in the next.
    lines = content[prompt.rfind("\n") + 1 :].split("\n")
    objects = [line for line in lines if line.startswith("{")]
    if any(
        not _says(line, document.get("incident_context")) and _stirs(line, skeleton(fold(line))) for line in objects
    ):
        return True
    text = "\n".join(line for line in lines if not line.startswith("{"))
    return len(text) > _LONGEST_CACHED or bool(_known_prompt(text)[0])


def _says(line: str, value: Any) -> bool:
    try:
        return bool(orjson.loads(line) == value)
    except (orjson.JSONDecodeError, RecursionError):
        return False


def _request_stirs(members: Mapping[str, Any]) -> bool:
    """The first pass over all but the prompts. False is certain: the walk would find nothing."""
    free: list[str] = []
    bound: list[str] = []
    for key, value in members.items():
        bound.append(key)
        if not _collect(value, free if key in MAY_SPEAK_OF_CONTRACT else bound):
            return True
    long = [text for text in bound + free if len(text) >= SHORTEST_RUN]
    if any(_run_stirs(run) for text in long for run in wrapped_runs(text)):
        return True
    text = "\n".join(bound)
    bones = skeleton(fold(text))
    if may_hold_answer(bones) or may_hold_example(bones) or _stirs(text, bones):
        return True
    other = "\n".join(free)
    other_bones = skeleton(fold(other))
    return bool(free) and (may_hold_example(other_bones) or _stirs(other, other_bones))


def _collect(value: Any, strings: list[str]) -> bool:
    """Put every key and string of ``value`` into ``strings``; False where it is too deep for that."""
    level = [value]
    for _ in range(MAX_DEPTH // 2):
        below: list[Any] = []
        for one in level:
            if isinstance(one, str):
                strings.append(one)
            elif isinstance(one, Mapping):
                strings.extend(map(str, one))
                below.extend(one.values())
            elif isinstance(one, (list, tuple)):
                below.extend(one)
        if not below:
            return True
        level = below
    return False


_BACKSLASHES: Final = re.compile(r"""\\+[nrtbf/"]?""")


def _stirs(text: str, bones: bytes) -> bool:
    """Whether text could hold a label's name, an escape or an encoding. False is certain."""
    if len(text) > MAX_BLOB_BYTES or text.count("[") + text.count("{") > MAX_DEPTH:
        return True
    if may_hold_label(bones) or is_escaped(text):
        return True
    if "\\" in text and may_hold_label(skeleton(fold(_BACKSLASHES.sub("", text)))):
        return True
    return any(map(_run_stirs, runs_in(text)))


def _run_stirs(run: str) -> bool:
    return _short_run_stirs(run) if len(run) <= LONGEST_CACHED_RUN else _reveals(run)


def _reveals(run: str) -> bool:
    hidden = reveal(run)
    if hidden.text is not None or hidden.opaque or hidden.cut:
        return True
    return len(hidden.names) >= _SHORTEST_STRONG_NAME and may_hold_label(skeleton(hidden.names))


_short_run_stirs: Final = lru_cache(maxsize=16384)(_reveals)
