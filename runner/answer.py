"""The text of a model's answer: what may stand round its one JSON object, and nothing more. Pure.

Taken away, each at most once and recorded by name: a byte order mark, white space at either end, one
complete leading ``<think>`` block, one fence (bare or ``json``) round all the rest. What is left must
be exactly one JSON value. Nothing is searched for, cut out or repaired.

What is left and is no JSON is *ambiguous* where an object stands beside something else, else it is
invalid. An object's opening is ``{`` followed by ``"`` or ``}``, white space aside. Text that begins with one is
ambiguous where a whole object ends before the text does; other text where it holds one at all.
So it takes one pass to tell, whatever the text.
"""

from __future__ import annotations

import re
from typing import Any, Final

from runner.strict_json import StrictJsonError, loads

WHITE_SPACE: Final = " \t\r\n"
_BOM: Final = "\ufeff"
_FENCE: Final = "```"
_THINK_OPEN: Final = re.compile(r"<think>", re.IGNORECASE)
_THINK_CLOSE: Final = re.compile(r"</think>", re.IGNORECASE)
_OBJECT_OPENING: Final = re.compile(r'\{[ \t\r\n]*+["}]')


class AnswerError(ValueError):
    """No one JSON value. ``code`` lacks the ``model_output_`` prefix; ``problem`` is a sentence for
    the corrective prompt without a word of the model's; ``key`` as in ``StrictJsonError``."""

    def __init__(self, code: str, problem: str, key: str | None = None) -> None:
        super().__init__(problem)
        self.code, self.problem, self.key = code, problem, key


def read_answer(content: str) -> tuple[Any, tuple[str, ...]]:
    """``(value, allowances)`` of an answer's text. Raises ``AnswerError``."""
    text, allowances = _without_thinking(content)
    if text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) >= 2 * len(_FENCE):
        text = text[len(_FENCE) : -len(_FENCE)]
        if text[:4].lower() == "json":
            text = text[4:]
        text = text.strip(WHITE_SPACE)
        allowances.append("fence")
    if not text.strip():
        raise AnswerError("empty", "The answer was empty.")
    try:
        return loads(text), tuple(allowances)
    except StrictJsonError as error:
        raise _answer_error(text, error) from None


def answer_text(content: str) -> str:
    """The part of an answer worth quoting: without a complete leading think block."""
    try:
        return _without_thinking(content)[0]
    except AnswerError:
        return content.strip(WHITE_SPACE)


def _without_thinking(content: str) -> tuple[str, list[str]]:
    allowances = []
    text = content
    if text.startswith(_BOM):
        text = text[1:]
        allowances.append("bom")
    bare = text.strip(WHITE_SPACE)
    if len(bare) != len(text):
        allowances.append("white_space")
    opened = _THINK_OPEN.match(bare)
    if opened is None:
        return bare, allowances
    closed = _THINK_CLOSE.search(bare, opened.end())
    if closed is None or _THINK_OPEN.search(bare, opened.end(), closed.start()):
        raise AnswerError("ambiguous", "A <think> tag was left open, so no answer could be told from the thinking.")
    allowances.append("think")
    return bare[closed.end() :].strip(WHITE_SPACE), allowances


def _answer_error(text: str, error: StrictJsonError) -> AnswerError:
    if error.code == "too_deep":
        return AnswerError("too_deep", "The answer was nested too deeply.")
    if error.code == "invalid_unicode":
        return AnswerError("invalid_unicode", "The answer held U+0000 or half of a surrogate pair.")
    if _is_ambiguous(text, error):
        return AnswerError("ambiguous", "More than one JSON object stood in the answer, or text beside it.")
    return AnswerError("invalid_json", f"The answer was not valid JSON: {error.message}.", error.key)


def _is_ambiguous(text: str, error: StrictJsonError) -> bool:
    if error.reason not in ("syntax", "trailing"):
        return False
    if _OBJECT_OPENING.match(text):
        return error.reason == "trailing"
    return _OBJECT_OPENING.search(text) is not None
