"""The leak guard's rules, as data. ``runner/leakage.py`` applies them; ``docs/leak-guard.md`` prints them.

A change of what is refused or let pass raises ``LEAK_RULES_VERSION``: each run records it. Words
are written in lower case and in the singular; spelling (case, separators, plurals, look-alike
letters, invisible characters) is the guard's business.
"""

# ruff: noqa: RUF001 - look-alike letters are what a table of look-alike letters holds

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LEAK_RULES_VERSION: Final = 1

RULES: Final[dict[str, str]] = {
    "label_key": "a member is named like an evaluation label",
    "label_pair": "a name/value pair, or a list of column names, names an evaluation label",
    "label_value": "a label's name stands as a whole value",
    "label_text": "in text, a label's name is followed by `=`, `:` or `is`, is a heading, a column or a tag",
    "answer_phrase": "text holds one of the phrases below",
    "label_id": "an id of the request holds a label's name",
    "own_example": "an example bears this incident's own id",
    "answer_object": "one object holds two or more of the response contract's fields",
    "opaque_blob": "a blob over 64 KiB that cannot be decoded",
    "nested_too_deep": "encodings or objects are nested beyond what is looked through",
    "too_much_to_decode": "encoded parts unfold to more than is looked through",
}
"""Every rule that a finding can name, and what it means."""

InText = Literal["any", "joined"]


@dataclass(frozen=True, slots=True)
class Names:
    """Label names made of a first word and a second: each of ``first`` with each of ``second``.

    ``in_text``: in running text ``any`` spelling counts, or only a ``joined`` one (``expected_output``
    but not "Expected output:", which honest prompts say). ``also_after``: second words that make a
    label name before the first word too (``labels_gold``). ``unless``: a name goes free where one
    of these words follows (``expected_resolution_time``). ``stem``: what makes a text worth a closer
    look: the ``first`` word, or, where that is an everyday word, nothing less than the ``whole`` name.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    in_text: InText = "any"
    also_after: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    stem: Literal["first", "whole"] = "first"


_PLANNING: Final = ("time", "date", "eta", "at", "by", "window", "minute", "hour", "second", "day", "duration", "sla")
_MEASURES: Final = (
    *_PLANNING,
    *("ms", "latency", "code", "status", "size", "byte", "rate", "count", "throughput", "format", "header", "type"),
)
_ANSWERS: Final = (
    *("answer", "action", "label", "decision", "verdict", "solution", "diagnosis", "root cause", "plan"),
    *("risk level", "proposed action", "human approval", "requires human approval", "blocked by policy"),
)
_REMEDIES: Final = ("resolution", "remediation", "fix", "repair", "mitigation")
_RESULTS: Final = ("outcome", "output", "result", "response", "completion")

LABEL_NAMES: Final[tuple[Names, ...]] = (
    Names(("gold", "golden"), (*_ANSWERS, *_REMEDIES, *_RESULTS, "truth", "reference"), also_after=("label", "answer")),
    Names(("gold", "golden"), ("standard", "target", "set"), in_text="joined"),
    Names(("expected",), (*_ANSWERS, "risk", "grade", "outcome"), also_after=("label", "answer")),
    Names(("expected",), _REMEDIES, in_text="joined", unless=_PLANNING),
    Names(("expected",), ("output", "result", "response", "completion"), in_text="joined", unless=_MEASURES),
    Names(("correct",), (*_ANSWERS, *_REMEDIES, "risk", "option", "choice"), also_after=("label", "answer")),
    Names(("correct",), ("outcome", "response")),
    Names(("correct",), ("output", "result", "completion"), in_text="joined"),
    Names(("right",), ("answer", "action", "decision", "solution", "remediation", "fix"), stem="whole"),
    Names(("ideal", "optimal"), ("answer", "action", "solution")),
    Names(("ideal", "optimal"), ("plan", *_RESULTS), in_text="joined"),
    Names(("reference",), (*_ANSWERS, *_REMEDIES), also_after=("label", "answer")),
    Names(("reference",), _RESULTS, in_text="joined", unless=_MEASURES),
    Names(("ground",), ("truth",), stem="whole"),
    Names(("true",), ("label", "answer", "action", "class", "root cause"), stem="whole"),
    Names(("actual",), ("label", "answer", "root cause", *_REMEDIES), in_text="joined", unless=_PLANNING),
    Names(
        ("evaluation", "evaluator", "eval", "grading", "grader"),
        ("label", "answer", "key", "truth", "gold", "grade", "score", "rubric", "verdict", "solution", "note"),
        also_after=("label", "answer"),
        stem="whole",
    ),
    Names(("scoring", "marking"), ("key", "rubric", "scheme", "label")),
    Names(("judge",), ("label", "score", "verdict", "grade", "note", "rubric")),
    Names(("benchmark",), ("label", "answer", "solution", "truth")),
    Names(("correctness",), ("label", "score", "grade")),
    Names(("oracle", "expert", "teacher"), ("answer", "solution", "action", "label"), stem="whole"),
    Names(("gt",), ("answer", "solution", "action", "label"), stem="whole"),
    Names(("target",), ("answer", "solution"), stem="whole"),
    Names(("human", "hidden", "holdout", "heldout", "annotator", "annotated"), ("label", "answer"), stem="whole"),
    Names(("answer", "solution"), ("key",), stem="whole"),
    Names(("repair", "remediation", "mitigation"), ("success", "succeeded", "successful"), stem="whole"),
)
"""A member so named, whatever stands before or after it in the name, is a label."""

WHOLE_NAMES: Final = ("gold", "golden", "truth", "ideal", "rubric", "correct", "grading", "y true")
"""Everyday words that are labels only as a whole name, affixes aside: ``gold``, not ``gold_tier``."""

WHOLE_NAMES_IN_TEXT: Final = ("gold", "y true")
"""Those of them that count in text too, before ``=`` or ``:``."""

AFFIXES: Final = (
    *("my", "our", "the", "is", "test", "dev", "sample", "case", "incident", "request", "hidden", "secret"),
    *("private", "internal", "final", "raw", "new", "old", "tmp", "backup", "copy", "x", "meta", "metadata"),
    *("data", "dict", "map", "list", "json", "str", "text", "value", "field", "info", "item", "id", "file", "path"),
    *("version", "ver", "v", "col", "column", "name", "object", "obj", "array"),
)
"""What may stand round a label's name and still be nothing but that name."""

WHOLE_NAME_AFFIXES: Final = (
    *("my", "our", "the", "is", "test", "dev", "hidden", "secret", "private", "final", "raw", "x", "v", "data", "item"),
)
"""What may stand round one of ``WHOLE_NAMES``."""

ALLOWED_NAMES: Final = (
    *("label", "labels", "label_selector", "matchLabels", "source_labels", "target_label", "commonLabels"),
    *("groupLabels", "anomaly_score", "health_score", "score", "status", "target", "expected_replicas"),
    *("expected_value", "expected_status", "expected_response_time", "expected_resolution_time", "goldfish_cluster"),
    *(
        "gold_tier",
        "golden_signals",
        "golden_path",
        "correct_version",
        "evaluation_interval",
        "unexpected_action",
        "ground_floor",
        "is_labelled",
    ),
    *("target_cluster", "resolution", "root_cause", "remediation", "runbook_url", "outcome", "verdict", "reference"),
)
"""Names of ordinary incident data that were thought of and pass."""

NOT_INSIDE_AFTER: Final = ("un", "in", "mari", "back")
"""A label's name inside a longer word is none after these: unexpected, incorrect, marigold."""

PHRASES: Final = (
    *("would be graded as correct", "graded correct if", "counts as correct", "marked correct if", "scored correct if"),
    *("is scored as correct", "the grader expects", "the grader is looking for", "the evaluator expects"),
    *("the judge expects", "the evaluation expects", "the rubric requires", "the rubric expects"),
    *("to get full marks", "for full marks", "for full credit", "to pass the evaluation", "to pass this evaluation"),
    *("the solution to this incident is", "the fix for this incident is", "the answer to this incident is"),
    *("the answer for this incident is", "the action that was expected is"),
)
"""Text that gives the answer away, beside every label's name followed by ``is``."""

PHRASE_STEMS: Final = (
    "correct",
    "grader",
    "evaluat",
    "judge",
    "rubric",
    "full marks",
    "full credit",
    "this incident is",
)
"""One of these is in each phrase that holds no label's name; ``stem`` above says what for."""

PAIR_NAMES: Final = (
    "name",
    "key",
    "field",
    "label",
    "column",
    "property",
    "attribute",
    "param",
    "parameter",
    "tag",
    "k",
)
PAIR_VALUES: Final = ("value", "val", "v", "content", "data", "text", "default", "answer")
"""An object with a member of the first kind and one of the second is a name/value pair. A member
whose name ends in ``value`` is of the second kind as well."""

NAME_LISTS: Final = ("columns", "column_names", "headers", "header", "fields", "field_names", "keys", "names")
"""Members whose list elements are names."""

EXAMPLE_WORDS: Final = ("example", "exemplar", "demonstration", "few shot", "shots", "demos")
"""A member with one of these in its name holds examples."""

EXAMPLE_ANSWERS: Final = ("answer", "action", "output", "response", "resolution", "assistant", "decision", "label")
"""In text an example is one where this follows the incident's id."""

CONTRACT_FIELDS: Final = (
    *("proposed_action", "action_plan", "risk_level", "requires_human_approval", "blocked_by_policy"),
)
MAY_SPEAK_OF_CONTRACT: Final = frozenset({"system_prompt", "user_prompt", "response_contract"})
"""Members of a request in which ``answer_object`` does not hold."""

PROMPTS: Final = ("system_prompt", "user_prompt")
SENT: Final = frozenset({"system_prompt", "user_prompt", "incident_context", "response_contract"})
"""Members from which the messages are made."""
IDS: Final = frozenset({"request_id", "incident_id", "run_id", "candidate_id", "policy_id"})

MAX_BLOB_BYTES: Final = 65_536
MAX_LAYERS: Final = 16
"""Encodings within encodings that are looked through."""
MAX_DEPTH: Final = 256
"""Objects and lists within each other, counted through all encodings."""
MAX_DECODED_CHARS: Final = 16 * 1024 * 1024
MAX_INFLATED_BYTES: Final = 1024 * 1024
MAX_FINDINGS: Final = 100
"""A request with so many is not looked at further."""

LOOK_ALIKE_DIGITS: Final = {"o": "o0", "i": "i1l", "l": "l1i", "e": "e3", "a": "a4", "s": "s5", "t": "t7"}
"""Letter -> what stands for it in an ASCII name."""

LOOK_ALIKE_LETTERS: Final = {
    "a": "аАαΑɑᴀᎪ", "b": "вВьЬβΒʙƅᏴ", "c": "сСϲϹᴄᏟ", "d": "ԁԀᴅᎠɗ", "e": "еЕεΕєЄҽᴇɛᎬ℮ə", "f": "ƒғҒϝϜꜰ",
    "g": "ɡցԍԌɢᏀ", "h": "һҺнНΗհʜᎻ", "i": "іІιΙıɩɪᎥ", "j": "јЈϳȷᴊᎫ", "k": "кКκΚᴋᏦĸқҚ", "l": "ӏӀʟᏞǀɭ",
    "m": "мМΜᴍᎷ", "n": "пηΝոռɴ", "o": "оОοΟσօՕᴏѳ", "p": "рРρΡᴘᏢ", "q": "ԛԚգզ", "r": "гʀᏒɼᴦ", "s": "ѕЅꜱʂᏚ",
    "t": "тТτΤᴛᎢ", "u": "иυμսՍᴜʋ", "v": "νѵѴᴠᏙ", "w": "шԝԜѡωաᴡᎳ", "x": "хХχΧҳҲ", "y": "уУүҮγΥʏყᎩ", "z": "ΖᴢᏃʐᶎ",
    "-": "‐‑‒–—―−", ":": "∶ː꞉：", "=": "꞊＝", "_": "＿‿",
}  # fmt: skip
"""ASCII character -> characters of other alphabets that look like it. Accents, full-width, circled
and mathematical forms need no entry: Unicode decomposes them (UAX 15)."""


def rule_table() -> str:
    """The rules as Markdown, for the docs. Made from this module alone."""
    lines = [f"Rules version {LEAK_RULES_VERSION}.", "", "| rule | refuses |", "|---|---|"]
    lines += [f"| `{rule}` | {meaning} |" for rule, meaning in RULES.items()]
    lines += ["", "| first word | second word | in text | goes free before |", "|---|---|---|---|"]
    for names in LABEL_NAMES:
        cells = (names.first, names.second, (names.in_text,), names.unless)
        lines.append("| " + " | ".join(", ".join(cell) or "-" for cell in cells) + " |")
    for title, words in (
        ("Phrases", PHRASES),
        ("Labels only as a whole name", WHOLE_NAMES),
        ("May stand round those", WHOLE_NAME_AFFIXES),
        ("May stand round a label's name in a path that is shown", AFFIXES),
        ("Thought of, and pass", ALLOWED_NAMES),
    ):
        lines += ["", f"{title}: " + ", ".join(f"`{word}`" for word in words) + "."]
    return "\n".join(lines) + "\n"
