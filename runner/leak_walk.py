"""The leak guard's walk: every member, value, text and encoding of a request, with its path.

Pure; see ``leakage`` for what it is part of. Time is linear in what is walked and in what that
unfolds to, and the latter is bounded: what lies beyond a bound is a finding, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from ledger.events import Finding
from runner.leak_decode import (
    SHORTEST_RUN,
    Members,
    json_in,
    letters_put_together,
    reveal,
    runs_in,
    unescaped,
    wrapped_runs,
)
from runner.leak_names import (
    ANSWER_PHRASE,
    LABEL_TEXT,
    MAX_NAME_CHARS,
    canonical,
    contract_field,
    contract_fields_in,
    fold,
    holds_examples,
    label_name,
    may_hold_answer,
    may_hold_label,
    skeleton,
)
from runner.leak_rules import (
    EXAMPLE_ANSWERS,
    IDS,
    MAX_BLOB_BYTES,
    MAX_DECODED_CHARS,
    MAX_DEPTH,
    MAX_FINDINGS,
    MAX_LAYERS,
    MAY_SPEAK_OF_CONTRACT,
    NAME_LISTS,
    PAIR_NAMES,
    PAIR_VALUES,
)

_SHOWN_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_NO_VALUE_NAME: Final = re.compile(r"""[{}\[\]":=<>%&\\\n]""")
"""In a text with one of these there is more to read than a name."""
_SHORTEST_ID_IN_TEXT: Final = 4
_SHORTEST_TEXT: Final = 6
"""Characters of the shortest text that can be a finding: ``gold:x``."""
_LONGEST_READ_RUN: Final = 1024
"""Runs of fewer characters do not count as read when a long piece of text is judged."""


class Place(NamedTuple):
    """Where the walk is, and what holds there."""

    path: str
    depth: int = 0
    layer: int = 0
    answers_leak: bool = True
    """The rule ``answer_object`` holds here."""
    in_examples: bool = False
    key: str = ""
    """The member that the value, or the list that it stands in, belongs to."""
    is_root: bool = False
    """The value is the request itself."""


Found = list[tuple[Any, Place]]


class Ids:
    """The incident's own ids, as they are sought in examples."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids: Final = ids

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(fold(i) for i in self._ids if i)

    @cached_property
    def _inside(self) -> re.Pattern[str] | None:
        # Made only where a request holds an example: most hold none.
        parts = [re.escape(i) for i in sorted(self._whole) if len(i) >= _SHORTEST_ID_IN_TEXT]
        before, after = r"(?<![a-z0-9])(?<![a-z0-9][._@-])", r"(?![a-z0-9])(?![._@-][a-z0-9])"
        return re.compile(f"{before}(?:{'|'.join(parts)}){after}") if parts else None

    def is_in_example(self, key: str, folded: str) -> bool:
        """Whether a value in an example is or holds one of the ids. A short id counts under an id's key."""
        if folded in self._whole and (len(folded) >= _SHORTEST_ID_IN_TEXT or _is_id_key(key)):
            return True
        return self._inside is not None and self._inside.search(folded) is not None

    def is_in_example_text(self, folded: str) -> bool:
        """Whether running text holds an example with one of the ids and an answer to it."""
        if "example" not in folded or self._inside is None:
            return False
        for found in self._inside.finditer(folded):
            before = folded[max(0, found.start() - 200) : found.start()]
            if "example" in before and _EXAMPLE_ANSWER.search(folded, found.end(), found.end() + 400):
                return True
        return False


_EXAMPLE_ANSWER: Final = re.compile(rf"(?<![a-z])(?:{'|'.join(EXAMPLE_ANSWERS)})s?[\"'*`]{{0,3}}\s?[:=>]|[-=]>")
NO_IDS: Final = Ids(())


@lru_cache(maxsize=4096)
def _is_id_key(key: str) -> bool:
    return canonical(key).rpartition("_")[2] in {"id", "incident", "request", "case", "ticket", "key"}


class Scan:
    """One walk and what it found. One stack; the one recursion is into keys, a layer deeper each."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.findings: dict[Finding, None] = {}
        self.unfolded = 0
        """Characters that encodings unfolded to so far."""

    def add(self, rule: str, path: str) -> None:
        self.findings[Finding(rule=rule, path=path)] = None

    def add_all(self, findings: Iterable[Finding]) -> None:
        self.findings.update(dict.fromkeys(findings))

    def identifier(self, path: str, text: str) -> bool:
        """Judge an id of the request: a label's name anywhere in it."""
        hit = label_name(text)
        if hit is None or not hit.strong:
            return False
        self.add("label_id", path)
        return True

    def walk(self, value: Any, place: Place) -> None:
        """Visit ``value`` and all within it, in order."""
        stack: Found = [(value, place)]
        while stack and len(self.findings) < MAX_FINDINGS:
            value, place = stack.pop()
            if place.depth > MAX_DEPTH or place.layer > MAX_LAYERS:
                self.add("nested_too_deep", place.path)
            else:
                stack.extend(reversed(self._visit(value, place)))

    def _visit(self, value: Any, place: Place) -> Found:
        if isinstance(value, str):
            return self._string(value, place)
        if isinstance(value, Mapping):
            return self._object([(str(key), member) for key, member in value.items()], place)
        if isinstance(value, Members):
            return self._object(value, place)
        if isinstance(value, (list, tuple)):
            return self._list(value, place)
        if place.in_examples and type(value) is int and self.ids.is_in_example(place.key, str(value)):
            self.add("own_example", place.path)
        return []

    def _object(self, members: Sequence[tuple[str, Any]], place: Place) -> Found:
        names = _pair_names(members)
        within: Found = []
        fields: dict[str, str] = {}
        for key, value in members:
            path = f"{place.path}.{key}" if place.path else key
            if not _SHOWN_KEY.match(key):
                path = _hidden(place.path)
            field = contract_field(key) if place.answers_leak and len(key) <= MAX_NAME_CHARS else None
            if field is not None:
                fields.setdefault(field, path)
            if self._key(key, path, place):
                continue
            if key in names and self._is_named(value, path):
                continue
            shown = _hidden(place.path) if self._key_holds_data(key, place) else path
            within.append((value, _below(place, shown, key)))
        if len(fields) > 1:
            self.add("answer_object", place.path or next(reversed(fields.values())))
        return within

    def _key(self, key: str, path: str, place: Place) -> bool:
        """Whether the member's name is a label's: alone, or together with the member that it stands in."""
        hit = label_name(key)
        if hit is None and place.key and 0 < len(place.key) + len(key) < MAX_NAME_CHARS:
            hit = label_name(f"{place.key}_{key}") if label_name(place.key) is None else None
            if hit is not None and (not hit.strong or hit.joined_only):
                return False
            hit = hit and hit._replace(plain=True)
        if hit is None:
            return False
        self.add("label_key", path if hit.plain else _hidden(place.path))
        return True

    def _is_named(self, value: Any, path: str) -> bool:
        """Whether the name in a name/value pair is a label's."""
        if not isinstance(value, str) or label_name(value) is None:
            return False
        self.add("label_pair", path)
        return True

    def _key_holds_data(self, key: str, place: Place) -> bool:
        """Judge a key as the text that it may be. Its path shows nothing of it."""
        if len(key) < SHORTEST_RUN and _SHOWN_KEY.match(key) and not place.in_examples:
            return False
        before = len(self.findings)
        self.walk(key, place._replace(path=_hidden(place.path), layer=place.layer + 1, key=""))
        return len(self.findings) > before

    def _list(self, values: Sequence[Any], place: Place) -> Found:
        if place.answers_leak and len(_fields_of_pairs(values)) > 1:
            self.add("answer_object", place.path)
        are_names = canonical(place.key) in NAME_LISTS
        within: Found = []
        for index, value in enumerate(values):
            path = f"{place.path}[{index}]"
            if not (are_names and self._is_named(value, path)):
                within.append((value, place._replace(path=path, depth=place.depth + 1, is_root=False)))
        return within

    def _string(self, text: str, place: Place) -> Found:
        folded = fold(text)
        if place.in_examples and self.ids.is_in_example(place.key, folded):
            self.add("own_example", place.path)
        if place.key in IDS and place.depth == 1 and self.identifier(place.path, text):
            return []
        if len(text) < _SHORTEST_TEXT:
            return []
        bones = skeleton(folded)
        if len(text) <= MAX_NAME_CHARS and may_hold_label(bones) and self._is_label(text, place):
            return []
        found = json_in(text)
        if found.too_deep:
            self.add("nested_too_deep", place.path)
        within = self._unfold(found.values, len(text), place)
        if found.values and not found.whole:
            folded = fold(found.rest)
            bones = skeleton(folded)
        if not found.whole:
            self._text(folded, bones, place)
            within += self._readings(found.rest, place)
        return within

    def _is_label(self, text: str, place: Place) -> bool:
        hit = None if _NO_VALUE_NAME.search(text) else label_name(text)
        if hit is None or not (hit.strong and hit.plain) or (hit.joined_only and " " in text.strip()):
            return False
        self.add("label_value", place.path)
        return True

    def _text(self, folded: str, bones: bytes, place: Place) -> None:
        """Judge running text, folded, and its skeleton."""
        if may_hold_label(bones):
            together = letters_put_together(folded)
            if LABEL_TEXT.search(folded) or (together != folded and LABEL_TEXT.search(together)):
                self.add("label_text", place.path)
            if ANSWER_PHRASE.search(folded):
                self.add("answer_phrase", place.path)
        if self.ids.is_in_example_text(folded):
            self.add("own_example", place.path)
        if place.answers_leak and may_hold_answer(bones) and len(contract_fields_in(folded)) > 1:
            self.add("answer_object", place.path)

    def _readings(self, text: str, place: Place) -> Found:
        """What is encoded or escaped in running text; judges what cannot be read."""
        within: Found = []
        read = 0
        for run in runs_in(text) + wrapped_runs(text):
            hidden = reveal(run)
            if hidden.text is not None:
                within += self._unfold((hidden.text,), len(hidden.text), place)
            elif hidden.names and may_hold_label(skeleton(hidden.names)) and _is_strong(hidden.names):
                self.add("label_value", place.path)
            if hidden.opaque:
                self.add("opaque_blob", place.path)
            if hidden.cut:
                self.add("too_much_to_decode", place.path)
            read += len(run) if len(run) >= _LONGEST_READ_RUN else 0
        if len(text) - read > MAX_BLOB_BYTES and max(map(len, text.split()), default=0) - read > MAX_BLOB_BYTES:
            self.add("opaque_blob", place.path)
        for reading in unescaped(text):
            within += self._unfold((reading,), len(reading), place)
        return within

    def _unfold(self, values: Sequence[Any], size: int, place: Place) -> Found:
        """The values, one layer deeper, while the bound on all that unfolds allows."""
        if not values:
            return []
        self.unfolded += size
        if self.unfolded > MAX_DECODED_CHARS:
            self.add("too_much_to_decode", place.path)
            return []
        inner = place._replace(depth=place.depth + 1, layer=place.layer + 1, is_root=False)
        return [(value, inner) for value in values]


def _hidden(path: str) -> str:
    return f"{path}.*" if path else "*"


def _below(place: Place, path: str, key: str) -> Place:
    """The place of a member's value."""
    return Place(
        path=path,
        depth=place.depth + 1,
        layer=place.layer,
        answers_leak=place.answers_leak and not (place.is_root and key in MAY_SPEAK_OF_CONTRACT),
        in_examples=place.in_examples or holds_examples(key),
        key=key,
    )


def _is_strong(text: str) -> bool:
    hit = label_name(text)
    return hit is not None and hit.strong


def _pair_names(members: Sequence[tuple[str, Any]]) -> set[str]:
    """Keys of an object whose values are names of other values in it."""
    if not 2 <= len(members) <= 16:
        return set()
    words = {key: canonical(key) for key, _ in members if len(key) <= MAX_NAME_CHARS}
    if not any(word in PAIR_VALUES or word.endswith("value") for word in words.values()):
        return set()
    return {key for key, word in words.items() if word in PAIR_NAMES or word.endswith("name")}


def _fields_of_pairs(values: Sequence[Any]) -> set[str]:
    """The contract's fields that a list of name/value pairs gives values to."""
    fields: set[str] = set()
    for value in values:
        members = list(value.items()) if isinstance(value, Mapping) else value if isinstance(value, Members) else []
        names = _pair_names(members) if members else set()
        for key, name in members:
            if key in names and isinstance(name, str) and len(name) <= MAX_NAME_CHARS:
                field = contract_field(name)
                fields |= {field} if field else set()
    return fields
