"""JSON as ``prepare`` reads it: a record a line, or documents that spread over lines, one after another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

from runner.prepare_rules import holds_rules, rules_of
from runner.prepare_sources import FORMATS, MAX_DOCUMENT_BYTES, Fault, Format, Found, PrepareError, Record, Skipped
from runner.requests import Head, LineReader, read_lines
from runner.strict_json import StrictJsonError, loads

# A string runs to its closing quote or, left open, to the line's end: JSON has no newline inside a string.
_BRACKETS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_OPENING: Final = b"[{"

Numbered = tuple[int, bytes]


def read_json(stream: LineReader, file: str, wanted: Literal["auto"] | Format) -> Iterator[Found]:
    """The records of a JSON file: its form is told by its first object. Raises ``PrepareError``."""
    form: Format | None = None if wanted == "auto" else wanted
    empty = True
    for document in _documents(stream, file):
        empty = False
        if isinstance(document, Fault):
            yield document
            continue
        place, members = document
        form = form or _told_by(members, file)
        if form == "alertmanager":
            yield from _alerts(place, members, file)
        elif form == "prometheus" and holds_rules(members):
            yield from rules_of(members, place, file)
        else:
            yield Record(form, place, members, {})
    if empty:
        raise PrepareError(Fault("the file is empty", file))


def _told_by(members: Mapping[str, Any], file: str) -> Format:
    if isinstance(members.get("alerts"), list):
        return "alertmanager"
    if holds_rules(members) or ("expr" in members and ("alertname" in members or "alert" in members)):
        return "prometheus"
    if Path(file).suffix.lower() in {".jsonl", ".ndjson"}:
        return "jsonl"
    raise PrepareError(Fault(f"its form cannot be told; name one of {', '.join(FORMATS)} with --format", file))


def _documents(stream: LineReader, file: str) -> Iterator[tuple[str, Mapping[str, Any]] | Fault]:
    """JSON objects with their places: one a line, or documents that spread over lines."""
    lines = read_lines(stream)
    first = next(lines, None)
    if first is None:
        return
    second = next(lines, None)
    lines = chain([first], [] if second is None else [second], lines)
    for number, raw in _spread(lines, file) if _goes_on(first, second) else lines:
        yield _object(number, raw, file)


def _goes_on(first: Numbered, second: Numbered | None) -> bool:
    """Whether the first line is only the beginning of a document, or holds more than one.

    A second line that begins an object of its own tells a broken first line from a document that goes on.
    """
    if isinstance(first[1], Head) or not first[1].lstrip().startswith(b"{"):
        return False
    try:
        loads(first[1])
    except StrictJsonError as error:
        if error.reason == "trailing":
            return _after_first(first[1]).lstrip().startswith(b"{")
        return error.reason == "syntax" and not (second is not None and second[1].lstrip().startswith(b"{"))
    return False


def _after_first(line: bytes) -> bytes:
    """What follows the first document of a line that holds a whole one."""
    depth = 0
    for found in _BRACKETS.finditer(line):
        char = line[found.start() : found.start() + 1]
        if char != b'"':
            depth += 1 if char in _OPENING else -1
            if depth == 0:
                return line[found.end() :]
    return b""


def _spread(lines: Iterable[Numbered], file: str) -> Iterator[Numbered]:
    """Each document, by its brackets, with the number of the line that it begins on.

    What stands between documents counts to the next one, which is then no JSON.
    """
    begun = _Begun(file)
    for number, raw in lines:
        begun.starts_line(number, raw)
        after = 0
        for found in _BRACKETS.finditer(raw):
            char = raw[found.start() : found.start() + 1]
            if char == b'"':
                continue
            begun.depth += 1 if char in _OPENING else -1
            if begun.depth <= 0:
                yield begun.ended(raw[after : found.end()])
                after = found.end()
        begun.goes_on(raw[after:])
    if begun.parts:
        yield begun.ended(b"")


class _Begun:
    """A document that has not ended yet."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.parts: list[bytes] = []
        self.depth = self.first = self.line = self.size = 0

    def starts_line(self, number: int, raw: bytes) -> None:
        if self.parts:  # blank lines were left out on the way, and count in what an error says
            self.parts.append(b"\n" * (number - self.line))
        self.line = number
        self.size += len(raw) + 1
        if isinstance(raw, Head) or self.size > MAX_DOCUMENT_BYTES:
            message = f"the document is longer than {MAX_DOCUMENT_BYTES} bytes, or a line of it is too long"
            raise PrepareError(Fault(message, self.file, f"line {number}"))

    def goes_on(self, piece: bytes) -> None:
        if piece.strip() or self.parts:
            self.first = self.first or self.line
            self.parts.append(piece)

    def ended(self, piece: bytes) -> Numbered:
        self.goes_on(piece)
        whole = self.first, b"".join(self.parts)
        self.parts.clear()
        self.depth = self.first = 0
        self.size = len(piece)
        return whole


def _object(number: int, raw: bytes, file: str) -> tuple[str, Mapping[str, Any]] | Fault:
    place = f"line {number}"
    if isinstance(raw, Head):
        return Fault("the line is too long", file, place)
    try:
        value = loads(raw)
    except StrictJsonError as error:
        return Fault(f"not JSON that we accept: {_message(number, raw, error)}", file, place)
    if not isinstance(value, dict):
        return Fault("not a JSON object", file, place)
    return place, value


def _message(number: int, raw: bytes, error: StrictJsonError) -> str:
    """What is wrong, with line and column as they are in the file."""
    try:
        loads(b"\n" * (number - 1) + raw)
    except StrictJsonError as placed:
        return placed.message
    return error.message


def _alerts(place: str, notification: Mapping[str, Any], file: str) -> Iterator[Found]:
    """The alerts of one notification (Alertmanager webhook, version 4)."""
    alerts = notification.get("alerts")
    if not isinstance(alerts, list):
        yield Fault("not an Alertmanager notification: no list of alerts", file, place, "alerts")
        return
    left_out = notification.get("truncatedAlerts")
    if isinstance(left_out, int) and left_out > 0:
        yield Skipped(left_out, "alerts that Alertmanager left out of its notifications")
    around = {key: value for key, value in notification.items() if key != "alerts"}
    for index, alert in enumerate(alerts):
        one = f"{place}, alerts[{index}]"
        if isinstance(alert, dict):
            yield Record("alertmanager", one, alert, around)
        else:
            yield Fault("not a JSON object", file, one)
