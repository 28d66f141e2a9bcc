"""What ``prepare`` reads: files in, records out, one a thing that may become a replay request.

Alert rules and generic records are read as streams; an Alertmanager notification is one JSON document
or one a line. Text that cannot be read is a ``PrepareError`` that names file and place.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TextIO

from runner.requests import Head, read_lines
from runner.strict_json import StrictJsonError, loads

Format = Literal["alertmanager", "prometheus", "jsonl", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("alertmanager", "prometheus", "jsonl", "csv")

MAX_DOCUMENT_BYTES: Final = 64 * 2**20
"""An Alertmanager notification that spreads over lines is read as a whole, up to this."""


class PrepareError(Exception):
    """Something cannot become a replay request. The text names file, record and field, never a value.

    ``place`` is ``line 3`` or ``line 3, alerts[0]``; None where the file as a whole is meant.
    """

    def __init__(self, message: str, *, file: str, place: str | None = None, field: str | None = None) -> None:
        where = [file, *([place] if place else []), *([f"field {field}"] if field else [])]
        super().__init__(f"{', '.join(where)}: {message}")
        self.message, self.file, self.place, self.field = message, file, place, field


@dataclass(frozen=True, slots=True)
class Record:
    """One alert, rule or row. ``around`` is what is said once for a whole notification."""

    format: Format
    place: str
    members: Mapping[str, Any]
    around: Mapping[str, Any]


def read_records(stream: BinaryIO, file: str, wanted: Literal["auto"] | Format) -> Iterator[Record]:
    """The records of a file. ``auto`` goes by the file's name for CSV and by its first record else."""
    if wanted == "csv" or (wanted == "auto" and Path(file).suffix.lower() == ".csv"):
        raise TypeError("CSV is read as text: see read_csv")
    documents = _documents(stream, file)
    first = next(documents, None)
    if first is None:
        raise PrepareError("the file is empty", file=file)
    form = _told_by(first[1], file) if wanted == "auto" else wanted
    for place, members in chain([first], documents):
        if form == "alertmanager":
            yield from _alerts(place, members, file)
        else:
            yield Record(form, place, members, {})


def _told_by(members: Mapping[str, Any], file: str) -> Format:
    if isinstance(members.get("alerts"), list):
        return "alertmanager"
    if "expr" in members and ("alertname" in members or "alert" in members):
        return "prometheus"
    if Path(file).suffix.lower() in {".jsonl", ".ndjson"}:
        return "jsonl"
    raise PrepareError(f"its form cannot be told; name one of {', '.join(FORMATS)}", file=file)


def _documents(stream: BinaryIO, file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """JSON objects with their places: one a line, or one that spreads over all lines."""
    lines = read_lines(stream)
    first = next(lines, None)
    if first is None:
        return
    if not isinstance(first[1], Head) and _opens_only(first[1]):
        yield "line 1", _object(b"\n".join(_all_of(chain([first], lines), file)), "line 1", file)
        return
    for number, raw in chain([first], lines):
        place = f"line {number}"
        if isinstance(raw, Head):
            raise PrepareError("the line is too long", file=file, place=place)
        yield place, _object(raw, place, file)


def _opens_only(line: bytes) -> bool:
    """Whether a first line is the beginning of a document that goes on in the next."""
    try:
        loads(line)
    except StrictJsonError as error:
        return error.reason == "syntax" and line.lstrip().startswith(b"{")
    return False


def _all_of(lines: Iterable[tuple[int, bytes]], file: str) -> Iterator[bytes]:
    size = 0
    for number, raw in lines:
        size += len(raw) + 1
        if isinstance(raw, Head) or size > MAX_DOCUMENT_BYTES:
            raise PrepareError(
                f"the document is longer than {MAX_DOCUMENT_BYTES} bytes", file=file, place=f"line {number}"
            )
        yield raw


def _object(raw: bytes, place: str, file: str) -> Mapping[str, Any]:
    try:
        value = loads(raw)
    except StrictJsonError as error:
        raise PrepareError(f"not JSON that we accept: {error.message}", file=file, place=place) from None
    if not isinstance(value, dict):
        raise PrepareError("not a JSON object", file=file, place=place)
    return value


def _alerts(place: str, notification: Mapping[str, Any], file: str) -> Iterator[Record]:
    """The alerts of one notification (Alertmanager webhook, version 4)."""
    alerts = notification.get("alerts")
    if not isinstance(alerts, list):
        raise PrepareError(
            "not an Alertmanager notification: no list of alerts", file=file, place=place, field="alerts"
        )
    around = {key: value for key, value in notification.items() if key != "alerts"}
    for index, alert in enumerate(alerts):
        one = f"{place}, alerts[{index}]"
        if not isinstance(alert, dict):
            raise PrepareError("not a JSON object", file=file, place=one)
        yield Record("alertmanager", one, alert, around)


def read_csv(stream: TextIO, file: str) -> Iterator[Record]:
    """The rows of a CSV file with a header (RFC 4180). An empty cell is a member that is not there.

    ``stream`` is opened with ``newline=""`` and without a byte order mark.
    """
    reader = csv.reader(stream, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise PrepareError("the file has no header", file=file)
        if "" in header or len(set(header)) < len(header):
            raise PrepareError("the header names a column twice, or one without a name", file=file, place="line 1")
        for cells in reader:
            if not cells:
                continue
            place = f"line {reader.line_num}"
            if len(cells) != len(header):
                raise PrepareError(f"{len(cells)} cells under {len(header)} columns", file=file, place=place)
            yield Record("csv", place, {name: cell for name, cell in zip(header, cells, strict=True) if cell}, {})
    except csv.Error as error:
        raise PrepareError(f"not CSV: {error}", file=file, place=f"line {reader.line_num}") from None
    except UnicodeDecodeError:
        raise PrepareError("not UTF-8", file=file, place=f"after line {reader.line_num}") from None
