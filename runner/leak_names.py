"""Spelling for the leak guard: folding look-alike text, and telling a label's name from an honest one.

Pure, total and linear: patterns are built from ``leak_rules`` once, repeat nothing without a bound
that could match in two ways, and take any string.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from runner.leak_rules import (
    AFFIXES,
    ALLOWED_NAMES,
    CONTRACT_FIELDS,
    EXAMPLE_WORDS,
    LABEL_NAMES,
    LOOK_ALIKE_DIGITS,
    LOOK_ALIKE_LETTERS,
    NOT_INSIDE_AFTER,
    PHRASE_STEMS,
    PHRASES,
    WHOLE_NAME_AFFIXES,
    WHOLE_NAMES,
    WHOLE_NAMES_IN_TEXT,
    Names,
)

MAX_NAME_CHARS: Final = 128
"""Longer text is no name on its own; what it holds is still looked for."""
_SHORTEST_INSIDE: Final = 9
"""A label's name of fewer letters counts only as words of their own, never inside a longer word."""


class NameHit(NamedTuple):
    """How a name is a label's. ``plain``: it is nothing but that, so it may be shown.

    ``strong``: a label's name in any company; else an everyday word that is one on its own.
    ``joined_only``: in words with spaces between, it is ordinary prose.
    """

    plain: bool
    strong: bool
    joined_only: bool


class LazyPattern:
    """A pattern compiled when it is first used: these are large, and most requests never come to them."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def search(self, text: str) -> re.Match[str] | None:
        return self.compiled.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        return self.compiled.match(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self.compiled.finditer(text)


class _Fold(dict[int, "str | None"]):
    """Code point -> ASCII look-alike, None to leave it out, or itself. Filled as characters come."""

    def __missing__(self, code: int) -> str | None:
        self[code] = folded = _fold_character(chr(code))
        return folded


_LATIN: Final = re.compile(
    r"(?:LATIN|FULLWIDTH LATIN|(?:NEGATIVE |CROSSED NEGATIVE )?(?:CIRCLED|SQUARED) LATIN|REGIONAL INDICATOR SYMBOL)"
    r" (?:SMALL |CAPITAL )?LETTER (?:SMALL CAPITAL |TURNED |REVERSED |SCRIPT |DOTLESS |SIDEWAYS )?"
    r"([A-Z])(?: WITH .*)?\Z"
)
_INVISIBLE: Final = frozenset("\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800")
"""Letters without a glyph, beside the characters that Unicode calls format or combining."""
_LETTERS: Final = {ord(odd): plain for plain, odds in LOOK_ALIKE_LETTERS.items() for odd in odds}


def _fold_character(character: str) -> str | None:
    if character.isascii():
        return character
    known = _LETTERS.get(ord(character))
    if known is not None:
        return known.upper() if character.isupper() else known
    category = unicodedata.category(character)
    if category in {"Cf", "Mn", "Me"} or character in _INVISIBLE:
        return None
    if category == "Nd":
        return str(unicodedata.digit(character))
    latin = _LATIN.match(unicodedata.name(character, ""))
    if latin is None:
        return character
    return latin[1].upper() if character.isupper() else latin[1].lower()


_FOLD: Final = _Fold()


def fold_keeping_case(text: str) -> str:
    """``text`` with each character as the ASCII one that it looks like; invisible ones are gone."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKD", text.translate(_FOLD)).translate(_FOLD)


def fold(text: str) -> str:
    """As ``fold_keeping_case``, in lower case. Not the same length as ``text``."""
    return fold_keeping_case(text).lower()


def _letters(word: str, gap: str) -> str:
    return gap.join(f"[{LOOK_ALIKE_DIGITS[c]}]" if c in LOOK_ALIKE_DIGITS else re.escape(c) for c in word)


def _words(words: Iterable[str], gap: str, separator: str, *, plural: bool = True) -> str:
    """A pattern for any of ``words`` (each of one word or more), singular or plural."""
    ending = f"(?:{gap}(?:[e3]{gap})?[s5])?" if plural else ""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    return "(?:" + "|".join(separator.join(_letters(w, gap) for w in word.split()) + ending for word in ordered) + ")"


def _names(names: Names, gap: str, separator: str, link: str) -> str:
    first, second = _words(names.first, gap, separator), _words(names.second, gap, separator)
    unless = f"(?!{separator}{_words(names.unless, gap, separator)}(?![a-z]))" if names.unless else ""
    forward = f"{first}{separator}{second}{unless}"
    if not names.also_after:
        return forward
    return f"(?:{forward}|{_words(names.also_after, gap, separator)}{link}{first})"


def _any_names(gap: str, separator: str, link: str, *, in_text: str | None = None) -> str:
    chosen = [n for n in LABEL_NAMES if in_text in (None, n.in_text)]
    return "(?:" + "|".join(_names(n, gap, separator, link) for n in chosen) + ")"


def _alternatives(patterns: Iterable[str]) -> str:
    return "(?:" + "|".join(patterns) + ")"


_LINK: Final = r"_?(?:(?:for|of)_?)?(?:the_?)?"


def _affix(words: Iterable[str]) -> str:
    return rf"(?:{_alternatives(sorted(words, key=len, reverse=True))}s?|[0-9]{{1,8}})"


_AFFIX: Final = _affix(AFFIXES)
_WHOLE_AFFIX: Final = _affix(WHOLE_NAME_AFFIXES)
_SEPARATED: Final = LazyPattern(rf"(?<![a-z]){_any_names('_?', '_?', _LINK)}(?![a-z])")
_INSIDE: Final = LazyPattern(
    "".join(f"(?<!{stop})" for stop in NOT_INSIDE_AFTER) + rf"{_any_names('', '', '')}(?:{_AFFIX}){{0,3}}(?![a-z])"
)
_ROUND: Final = LazyPattern(rf"_?(?:{_AFFIX}(?:_|\Z)?)*+_?\Z")
_WHOLE: Final = LazyPattern(
    rf"_?(?:{_WHOLE_AFFIX}_)*+{_words(WHOLE_NAMES, '_?', '_?')}(?:_?{_WHOLE_AFFIX}(?![a-z]))*+_?\Z",
)
_SOFT: Final = LazyPattern(rf"(?<![a-z]){_any_names('_?', '_?', _LINK, in_text='joined')}(?![a-z])")
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_NAME: Final = re.compile(r"[^a-z0-9]+")


def canonical(name: str) -> str:
    """``name`` in lower-case ASCII words with one ``_`` between, split at separators and at humps."""
    return _NOT_NAME.sub("_", _HUMPS.sub("_", fold_keeping_case(name)).lower()).strip("_")


def _spellings(name: str) -> tuple[str, ...]:
    folded = fold_keeping_case(name)
    flat = _NOT_NAME.sub("_", folded.lower())
    humped = _NOT_NAME.sub("_", _HUMPS.sub("_", folded).lower())
    return (humped,) if humped == flat else (humped, flat)


_ALLOWED: Final = frozenset(canonical(name) for name in ALLOWED_NAMES)


def label_name(name: str) -> NameHit | None:
    """How ``name`` is a label's name, in any spelling; None where it is not."""
    if len(name) <= MAX_NAME_CHARS:
        return _short_label_name(name)
    return _label_name(name)


def _label_name(name: str) -> NameHit | None:
    if not may_hold_label(skeleton(fold(name))):
        return None
    spellings = _spellings(name)
    for spelling in spellings:
        hit = _SEPARATED.search(spelling) or (_INSIDE.search(spelling) if len(spelling) >= _SHORTEST_INSIDE else None)
        if hit is None or (hit.re is _INSIDE.compiled and len(hit[0]) < _SHORTEST_INSIDE):
            continue
        short = len(spelling) <= MAX_NAME_CHARS
        plain = short and bool(_ROUND.match(spelling[: hit.start()]) and _ROUND.match(spelling[hit.end() :]))
        return NameHit(plain, strong=True, joined_only=_SOFT.search(spelling) is not None)
    if len(name) <= MAX_NAME_CHARS and any(_WHOLE.match(spelling) for spelling in spellings):
        return NameHit(plain=True, strong=False, joined_only=False)
    return None


@lru_cache(maxsize=8192)
def _short_label_name(name: str) -> NameHit | None:
    return None if canonical(name) in _ALLOWED else _label_name(name)


_SPACE: Final = r"[\s_.\-/]{0,3}"
_JOIN: Final = r"[_.\-]?"
_STOPS: Final = "".join(f"(?<!{stop})" for stop in NOT_INSIDE_AFTER)
_TEXT_NAME: Final = (
    f"{_STOPS}(?:{_any_names('', _SPACE, _SPACE, in_text='any')}|{_any_names('', _JOIN, _JOIN, in_text='joined')})"
)
_JOINED_NAME: Final = f"{_STOPS}{_any_names('', _JOIN, _JOIN)}"
_TAIL: Final = r"(?:[_.\-]?[0-9]{1,6}|[_.\-][a-z0-9]{1,24}){0,4}+"
_CLOSE: Final = r"""["'`*\\\])]{0,8}"""
_ALONE: Final = r"[^\w\n]{0,16}"
LABEL_TEXT: Final = LazyPattern(
    rf"{_TEXT_NAME}{_TAIL}{_CLOSE}(?:\s{{0,4}}(?:[:=]|[-~]>)|\s{{1,4}}(?:is|was|should\s{{1,2}}be|would\s{{1,2}}be)\b)"
    rf"|{_JOINED_NAME}{_TAIL}[^<>\n]{{0,64}}>"
    rf"|(?:\A|(?<=\n)){_ALONE}{_TEXT_NAME}{_TAIL}{_ALONE}\n"
    rf"|(?:\A|(?<=[\n,;|\t])){_ALONE}{_JOINED_NAME}{_TAIL}[\"' ]{{0,3}}(?:[,;|\t][^\n]{{0,2000}})?\n"
    rf"|(?<![a-z])(?:name|key|field|label|column)[\"'\\]{{0,4}}\s{{0,2}}[:=]\s{{0,2}}[\"'\\]{{0,4}}{_TEXT_NAME}"
    rf"|(?<![a-z0-9_.\-]){_words(WHOLE_NAMES_IN_TEXT, '', _JOIN)}{_CLOSE}\s?[:=]"
)
"""In folded text: a label's name that is followed by what it says, or heads it."""

ANSWER_PHRASE: Final = LazyPattern(_alternatives(r"\s{1,4}".join(map(re.escape, p.split())) for p in PHRASES))

CONTRACT_FIELD_IN_TEXT: Final = LazyPattern(
    rf"(?<![a-z])({_alternatives(f.replace('_', _SPACE) for f in CONTRACT_FIELDS)}){_CLOSE}\s{{0,2}}[:=]"
)
_CONTRACT: Final = {field.replace("_", ""): field for field in CONTRACT_FIELDS}
_CONTRACT_NAME: Final = LazyPattern(rf"(?:{_AFFIX}_)*+({_alternatives(f.replace('_', '_?') for f in CONTRACT_FIELDS)})")
_EXAMPLES: Final = LazyPattern(rf"(?<![a-z]){_words(EXAMPLE_WORDS, '_?', '_?')}(?![a-z])")


@lru_cache(maxsize=8192)
def contract_field(name: str) -> str | None:
    """The field of the response contract that ``name`` (at most ``MAX_NAME_CHARS``) spells."""
    spelling = canonical(name)
    squashed = spelling.replace("_", "")
    if squashed in _CONTRACT:
        return _CONTRACT[squashed]
    found = _CONTRACT_NAME.match(spelling)
    return _CONTRACT[found[1].replace("_", "")] if found and _ROUND.match(spelling[found.end() :]) else None


@lru_cache(maxsize=8192)
def holds_examples(name: str) -> bool:
    """Whether a member of this name holds examples."""
    return any(_EXAMPLES.search(spelling) for spelling in _spellings(name))


def contract_fields_in(text: str) -> set[str]:
    """The contract's fields that folded ``text`` gives a value to."""
    return {_CONTRACT[_NOT_NAME.sub("", found[1]).replace("_", "")] for found in CONTRACT_FIELD_IN_TEXT.finditer(text)}


_DIGITS: Final = {digit: letter for letter, alike in LOOK_ALIKE_DIGITS.items() for digit in alike if digit.isdigit()}
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"
_TO_SKELETON: Final = bytes.maketrans(
    (_ALPHABET + _ALPHABET.upper() + "".join(_DIGITS)).encode(),
    (2 * _ALPHABET + "".join(_DIGITS.values())).replace("i", "l").encode(),
)
_NO_LETTER: Final = bytes(c for c in range(256) if not (c < 128 and chr(c).isalnum()))


def skeleton(folded: str) -> bytes:
    """Letters and digits alone, those that look alike made one: for asking quickly what cannot be there."""
    return folded.encode("ascii", "ignore").translate(_TO_SKELETON, _NO_LETTER)


def _stems() -> tuple[list[bytes], list[tuple[bytes, tuple[bytes, ...]]]]:
    """(stems, (stem, whole names that hold it)): one is in every text with a label's name or a phrase."""
    stems = {skeleton(word) for names in LABEL_NAMES if names.stem == "first" for word in names.first}
    stems |= set(map(skeleton, (*WHOLE_NAMES, *PHRASE_STEMS)))
    words = {skeleton(word) for names in LABEL_NAMES if names.stem == "whole" for word in names.first}
    whole: dict[bytes, set[bytes]] = {}
    for names in LABEL_NAMES:
        for word in names.first if names.stem == "whole" else ():
            shortest = min((other for other in words if other in skeleton(word)), key=len)
            whole.setdefault(shortest, set()).update(map(skeleton, _whole_stems(names, word)))
    least = sorted(stem for stem in stems if not any(other in stem for other in stems - {stem}))
    return least, [(word, tuple(sorted(names))) for word, names in sorted(whole.items())]


def _whole_stems(names: Names, first: str) -> Iterator[str]:
    plurals, links = ("", "s", "es"), ("", "the", "for", "of", "forthe", "ofthe")
    yield from (first + plural + second for second in names.second for plural in plurals)
    yield from (second + plural + link + first for second in names.also_after for plural in plurals for link in links)


_STEMS, _WHOLE_STEMS = _stems()
_FIELD_STEMS: Final = tuple(skeleton(field) for field in CONTRACT_FIELDS)
_EXAMPLE_STEMS: Final = tuple(skeleton(word) for word in EXAMPLE_WORDS)


def may_hold_label(bones: bytes) -> bool:
    """Whether text of this skeleton can hold a label's name or a phrase. False is certain."""
    # Loops below, not ``any``: this runs over all of every request, and a generator costs twice the look.
    return _short_may_hold_label(bones) if len(bones) <= MAX_NAME_CHARS else _may_hold_label(bones)


def _may_hold_label(bones: bytes) -> bool:
    for stem in _STEMS:
        if stem in bones:
            return True
    for first, names in _WHOLE_STEMS:
        if first in bones:
            for name in names:
                if name in bones:
                    return True
    return False


_short_may_hold_label: Final = lru_cache(maxsize=8192)(_may_hold_label)


def may_hold_answer(bones: bytes) -> bool:
    """Whether text of this skeleton can hold two of the contract's fields. False is certain."""
    return sum(field in bones for field in _FIELD_STEMS) > 1


def may_hold_example(bones: bytes) -> bool:
    """Whether text of this skeleton can hold an example. False is certain."""
    return any(word in bones for word in _EXAMPLE_STEMS)
