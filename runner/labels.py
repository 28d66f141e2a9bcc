"""Labels: what incidents should have been answered, from a file of their own, read strictly.

JSON lines, or CSV with the same names. The published form is ``SCHEMA`` (docs/label-schema.json); this
reader accepts exactly what it describes, and beside it the lines that ``prepare --labels-out`` writes,
in which labels that are no field stand for good reason: there, and only there, they are left alone.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ledger.events import ID_PATTERN
from ledger.projections.decisions import RISK_LEVELS
from ledger.projections.grading import LABEL_SCHEMA, Label
from runner.not_utf8 import way_out
from runner.strict_json import StrictJsonError, loads

MAX_LINE_BYTES: Final = 64 * 1024
FIELDS: Final = ("risk_level", "requires_human_approval", "blocked_by_policy", "dangerous")
IDS: Final = ("request_id", "incident_id")
_FLAGS: Final = FIELDS[1:]
_ID: Final = re.compile(ID_PATTERN)
_ID_SCHEMA: Final = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"}

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": LABEL_SCHEMA,
    "description": "One label, a line of a labels file: what a request, or every request of an incident, "
    "should have been answered. CSV has the same names in its first row; an empty cell gives nothing.",
    "type": "object",
    "properties": {
        "schema_version": {"const": LABEL_SCHEMA},
        "request_id": {**_ID_SCHEMA, "description": "The request that is labelled"},
        "incident_id": {**_ID_SCHEMA, "description": "In place of request_id: every request of this incident"},
        "risk_level": {"enum": list(RISK_LEVELS), "description": "The risk that was really there"},
        "requires_human_approval": {"type": "boolean", "description": "A person should have been asked"},
        "blocked_by_policy": {"type": "boolean", "description": "The action should have been blocked"},
        "dangerous": {
            "type": "boolean",
            "description": "To let it through would have done harm. Not given: true where risk_level is high or "
            "critical or a flag is true, false for another risk_level",
        },
    },
    "oneOf": [{"required": ["request_id"]}, {"required": ["incident_id"]}],
    "anyOf": [{"required": [field]} for field in FIELDS],
    "additionalProperties": False,
}


class LabelError(ValueError):
    """A labels file that is not one: ``line`` (0 where there is none) and ``field`` at fault."""

    def __init__(self, message: str, *, line: int = 0, field: str | None = None) -> None:
        super().__init__(message)
        self.message, self.line, self.field = message, line, field

    def at(self, file: str) -> str:
        """File, line, field, and what is wrong there."""
        place = f"{file}: line {self.line}" if self.line else file
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


def read_labels(
    lines: Iterable[bytes],
    *,
    form: str,
    mapping: Mapping[str, str] | None = None,
    on_ungraded: Callable[[str], None] | None = None,
) -> list[Label]:
    """The labels of a file. ``form``: ``jsonl`` or ``csv``. Raises ``LabelError``.

    ``mapping`` gives a field its name in the file, ``{"risk_level": "severity"}``; with it, members that
    are neither mapped nor a label's own are passed over, as a file made for something else has them.
    ``on_ungraded`` gets the name of each label of a line of ``prepare`` that is no field, and not mapped.
    """
    labels: list[Label] = []
    seen: dict[tuple[str | None, str | None], int] = {}
    for number, members in (_json_lines if form == "jsonl" else _csv_rows)(lines):
        given = _mapped(members, mapping, number) if mapping else _graded(members, number, on_ungraded)
        label = _label(_flags_read(given) if form == "csv" else given, number)
        first = seen.setdefault((label.request_id, label.incident_id), number)
        if first != number:
            field = "request_id" if label.request_id is not None else "incident_id"
            raise LabelError(f"{label.named} is labelled already, on line {first}", line=number, field=field)
        labels.append(label)
    if not labels:
        raise LabelError("there is no label in it")
    return labels


# --- forms ----------------------------------------------------------------------------------


def _json_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        _check_length(line, number)
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.strip():
            continue
        try:
            members = loads(text)
        except StrictJsonError as error:
            key = f": {error.key!a}" if error.key is not None else ""
            raise LabelError(f"{error.message}{key}", line=number) from None
        if not isinstance(members, dict):
            raise LabelError("not a JSON object", line=number)
        yield number, members


def _split_off(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """The labels of a line of ``prepare --labels-out``, which has them in an object of their own; None of another."""
    inner = members.get("labels")
    return inner if isinstance(inner, dict) and set(members) <= {"labels", *IDS} else None


def _flat(members: Mapping[str, Any], inner: Mapping[str, Any], number: int) -> dict[str, Any]:
    outer = {name: value for name, value in members.items() if name != "labels"}
    for name in outer:
        if name in inner:
            raise LabelError("stands beside labels and in it", line=number, field=name)
    return {**outer, **inner}


def _csv_rows(lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = csv.reader(_texts(lines), strict=True)
    names: list[str] | None = None
    while True:
        begun = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise LabelError(f"not CSV: {error}", line=begun) from None
        if row is None:
            return
        if names is None:
            names = _header(row, begun)
        elif row:
            if len(row) != len(names):
                raise LabelError(f"{_counted(len(row), 'cell')} under {_counted(len(names), 'name')}", line=begun)
            yield begun, {name: text for name, text in zip(names, row, strict=True) if text != ""}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _header(row: Sequence[str], number: int) -> list[str]:
    for name in row:
        if row.count(name) > 1:
            raise LabelError("names two columns", line=number, field=ascii(name))
    return list(row)


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        _check_length(line, number)
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            out = way_out(line if number == 1 else b"")
            raise LabelError(f"not UTF-8 at byte {error.start + 1}; {out}", line=number) from None


def _check_length(line: bytes, number: int) -> None:
    if len(line) > MAX_LINE_BYTES:
        raise LabelError(f"longer than {MAX_LINE_BYTES} bytes", line=number)


# --- one label ------------------------------------------------------------------------------


def _graded(members: Mapping[str, Any], number: int, on_ungraded: Callable[[str], None] | None) -> dict[str, Any]:
    """What is held against answers. ``prepare`` splits off whatever is a label: what is no field there is no typo."""
    inner = _split_off(members)
    if inner is None:
        return dict(members)
    others = [name for name in inner if name not in FIELDS and name not in members]
    if len(others) == len(inner):
        raise LabelError(
            f"none of its labels can be graded, which are {', '.join(FIELDS)}; say which one is which "
            "(--map risk_level=NAME here, or --map labels.risk_level=COLUMN for prepare), or take the line out",
            line=number,
            field="labels",
        )
    for name in others:
        if on_ungraded is not None:
            on_ungraded(name)
    return {name: value for name, value in _flat(members, inner, number).items() if name not in others}


def _mapped(members: Mapping[str, Any], mapping: Mapping[str, str], number: int) -> dict[str, Any]:
    inner = _split_off(members)
    if inner is not None:
        members = _flat(members, inner, number)
    own = {name: members[name] for name in ("schema_version", *IDS, *FIELDS) if name in members and name not in mapping}
    for field, column in mapping.items():
        if column in members:
            own[field] = members[column]
    if not any(name in own for name in IDS):
        raise LabelError("is missing", line=number, field=mapping.get("request_id", "request_id"))
    return own


def _flags_read(members: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's flag, ``true`` or ``false`` as JSON writes them; whatever else is left to be refused."""
    flags = {"true": True, "false": False}
    return {name: flags.get(value, value) if name in _FLAGS else value for name, value in members.items()}


def _label(members: Mapping[str, Any], number: int) -> Label:
    for name, value in members.items():
        check = _CHECKS.get(name)
        if check is None:
            known = ", ".join((*IDS, *FIELDS))
            raise LabelError(
                f"no field of a label; they are {known} (--map gives others a meaning)", line=number, field=ascii(name)
            )
        wrong = check(value)
        if wrong:
            raise LabelError(wrong, line=number, field=name)
    if ("request_id" in members) == ("incident_id" in members):
        raise LabelError(
            "one of the two, and not both, says what is labelled", line=number, field="request_id, incident_id"
        )
    if not any(field in members for field in FIELDS):
        raise LabelError("at least one of them makes a label", line=number, field=", ".join(FIELDS))
    return Label(**{name: members.get(name) for name in (*IDS, *FIELDS)}, line=number)


def _wrong_id(value: Any) -> str | None:
    fine = isinstance(value, str) and _ID.match(value)
    return None if fine else "no id: letters, digits and . _ : @ - only, 128 at most"


def _wrong_risk(value: Any) -> str | None:
    return None if isinstance(value, str) and value in RISK_LEVELS else f"not one of {', '.join(RISK_LEVELS)}"


def _wrong_flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "neither true nor false"


def _wrong_version(value: Any) -> str | None:
    return None if value == LABEL_SCHEMA else f"not {LABEL_SCHEMA}"


_CHECKS: Final[dict[str, Callable[[Any], str | None]]] = {
    "schema_version": _wrong_version,
    **dict.fromkeys(IDS, _wrong_id),
    "risk_level": _wrong_risk,
    **dict.fromkeys(_FLAGS, _wrong_flag),
}
