"""Many payloads of one type against its form at once: column by column, in a fraction of the time. Pure.

The form is the vocabulary's (``ledger/events.py``); pydantic holds one payload against it in some
microseconds, and an encoder writes one in another, which for millions of events would be most of what
reading and verifying them costs. ``in_form`` and ``conform`` may say no to payloads that are, and whoever
asks then looks at them one by one; they never say yes wrongly, and property tests hold them against pydantic
and the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from ledger import events as vocabulary
from ledger.events import EVENT_TYPES, Attempt, Count, ForeignText, Id, RiskLevel, Sha256Hex, Turn
from ledger.integrity.canonical import MAX_INTEGER, CanonicalError, encode_payload

Column = Sequence[Any]
Check = Callable[[Column], bool]

_NONE: Final = type(None)
_ID: Final = re.compile(vocabulary.ID_PATTERN).match
_FOREIGN: Final = re.compile(vocabulary.FOREIGN_TEXT_PATTERN).match
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z").match

# What JSON can write in more than one way, beside names out of order: with white space, with escapes, and
# zero with a sign, which among members of these forms follows a colon. (A string may hold the same signs;
# then the encoder is asked.)
_OTHER_WAYS: Final = (b" ", b"\\", b"\n", b"\t", b"\r", b":-")


def in_form(type_: str, payloads: Sequence[Any]) -> bool:
    """Are these values payloads of the present form of their type, each with its members sorted?"""
    return _columns_in_form(type_, payloads) is not None


def conform(type_: str, payloads: Sequence[Any], raws: Sequence[bytes]) -> bool:
    """Are they in form, and ``raws``, the JSON that each was read from, all canonical?"""
    columns = _columns_in_form(type_, payloads)
    return columns is not None and _canonical(_FORMS[type_], payloads, raws, columns)


def _columns_in_form(type_: str, payloads: Sequence[Any]) -> list[Column] | None:
    """The values of each member in turn; None where something is not in form."""
    form = _FORMS.get(type_)
    if form is None or not _of_dict(payloads) or set(map(tuple, payloads)) != {form.members}:
        return None
    columns: list[Column] = list(zip(*map(dict.values, payloads), strict=True))
    if not all(check(column) for check, column in zip(form.checks, columns, strict=True)):
        return None
    if form.validate is not None:
        try:
            for payload in payloads:
                form.validate(payload)
        except ValidationError:
            return None
    return columns


def _canonical(
    form: Form, payloads: Sequence[dict[str, Any]], raws: Sequence[bytes], columns: Sequence[Column]
) -> bool:
    """Is each the canonical form of its payload, whose names, as read, are sorted and whose values conform?

    Without the other ways to write a value, the only thing left is a name that is there twice: of two
    the last is read, so there are more names in the text than members.
    """
    whole = b"".join(raws)
    if form.validate is not None or any(map(whole.__contains__, _OTHER_WAYS)):
        try:
            return list(map(encode_payload, payloads)) == list(raws)
        except CanonicalError:
            return False
    names = len(form.members) * len(raws) + sum(len(pairs) for at in form.nested for pairs in columns[at])
    return whole.count(b'":') == names


# --- columns -------------------------------------------------------------------------------


def _of_type(kind: type) -> Check:
    allowed = frozenset({kind})
    return lambda column: allowed.issuperset(map(type, column))


def _whole(least: int) -> Check:
    of_type = _of_type(int)
    return lambda column: of_type(column) and min(column) >= least and max(column) <= MAX_INTEGER


def _text(matches: Callable[[str], object]) -> Check:
    of_type = _of_type(str)
    # A page of events repeats most of its names, so the pattern sees each but once.
    return lambda column: of_type(column) and all(map(matches, set(column)))


def _any_text(column: Column) -> bool:
    return _of_str(column) and not any("\0" in text for text in set(column))


def _one_of(values: Iterable[Any]) -> Check:
    allowed = frozenset(values)
    of_type = _of_type(type(next(iter(allowed))))  # 1 equals True and 1.0: the type is asked for as well
    return lambda column: of_type(column) and allowed.issuperset(column)


def _or_null(check: Check) -> Check:
    def checks(column: Column) -> bool:
        if None not in column:
            return check(column)
        there = [value for value in column if value is not None]
        return not there or check(there)

    return checks


def _ids_to_ids(column: Column) -> bool:
    if not _of_dict(column):
        return False
    names = set(map(tuple, column))
    texts = {text for pairs in column for text in pairs.values()}.union(*names)
    return all(list(each) == sorted(each) for each in names) and (not texts or _text(_ID)(list(texts)))


def _texts(column: Column) -> bool:
    return _of_list(column) and _any_text([item for items in column for item in items])


_of_str, _of_dict, _of_list = _of_type(str), _of_type(dict), _of_type(list)
_CHECKS: Final[list[tuple[Any, Check]]] = [
    (Count, _whole(0)),
    (Attempt, _whole(1)),
    (Id, _text(_ID)),
    (ForeignText, _text(_FOREIGN)),
    (Sha256Hex, _text(_SHA256)),
    (Turn, _one_of(get_args(Turn))),
    (RiskLevel, _one_of(get_args(RiskLevel))),
    (str, _any_text),
    (bool, _of_type(bool)),
    (list[str], _texts),
    (dict[Id, Id], _ids_to_ids),
]


# --- forms ---------------------------------------------------------------------------------


class Form(NamedTuple):
    """``members``: sorted, as canonical JSON has them, and a check of the column of each.

    ``nested``: where, among them, objects stand. ``validate``: pydantic's own, where a member has no check.
    """

    members: tuple[str, ...]
    checks: tuple[Check, ...]
    nested: tuple[int, ...]
    validate: Callable[[Any], object] | None


def _check_of(hint: Any) -> Check | None:
    for known, check in _CHECKS:
        if hint == known:
            return check
    parts = get_args(hint)
    if len(parts) == 2 and parts[1] is _NONE and get_origin(hint) in {Union, type(int | None)}:
        inner = _check_of(parts[0])
        return None if inner is None else _or_null(inner)
    return None


def _always(_: Column) -> bool:
    return True


def _form_of(name: str) -> Form:
    cls = EVENT_TYPES[name]
    hints = get_type_hints(cls, include_extras=True)
    members = tuple(sorted(cls.model_fields))
    checks = [_check_of(hints[member]) for member in members]
    nested = tuple(at for at, check in enumerate(checks) if check is _ids_to_ids)
    validate = cls.__pydantic_validator__.validate_python if None in checks else None
    return Form(members, tuple(check or _always for check in checks), nested, validate)


_FORMS: Final = {name: _form_of(name) for name in EVENT_TYPES}
