"""Every error code, once: what it means, whether the call is tried again, what a person can do.

Codes are stable strings. ``docs/errors.md`` is made from this table (``python -m runner.codes``)
and a test compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Group = Literal["model output", "transport", "run"]

MODEL_OUTPUT_PREFIX: Final = "model_output_"


@dataclass(frozen=True, slots=True)
class Code:
    """One row. ``code`` may end in ``<status>`` or ``:a,b``, which stand for what varies.

    ``retried``: of a transport code, whether the attempt is made again. A model output code is
    never tried again as it is; the contract-tuned variant asks once more with a correction.
    """

    code: str
    group: Group
    meaning: str
    retried: bool
    advice: str


def _output(code: str, meaning: str, advice: str) -> Code:
    return Code(f"{MODEL_OUTPUT_PREFIX}{code}", "model output", meaning, False, advice)


def _transport(code: str, retried: bool, meaning: str, advice: str) -> Code:
    return Code(code, "transport", meaning, retried, advice)


_MODEL_OUTPUT: Final = (
    _output(
        "invalid_json",
        "The answer is not JSON: a syntax error, a key twice, NaN or Infinity, a number beyond its limits.",
        "Read the raw reply with `show RUN REQUEST`. Nothing is ever repaired; try `--response-format json_object`.",
    ),
    _output(
        "ambiguous",
        "An object stands beside something else: prose, another object, a second fence, an open think tag, "
        "or more answers than were asked for.",
        "Ask for JSON alone in the prompt, or use the contract-tuned variant.",
    ),
    _output(
        "not_object",
        "The answer is JSON, but a list, a text, a number or null.",
        "Ask for one object in the prompt, or use the contract-tuned variant.",
    ),
    _output(
        "missing_fields:a,b",
        "The named fields of the contract are absent. No field has a default.",
        "Name the fields in the prompt, or use the contract-tuned variant.",
    ),
    _output(
        "invalid_fields:a,b",
        "The named fields have the wrong type or a value that the contract does not allow; "
        "`*` stands for a rule about the object as a whole. Nothing is coerced.",
        "Name types and allowed values in the prompt, or use the contract-tuned variant.",
    ),
    _output(
        "invalid_unicode",
        "The answer holds U+0000 or half of a surrogate pair, raw or escaped.",
        "A fault of the model or of its server's decoding; the raw reply is kept.",
    ),
    _output("too_deep", "The answer is nested deeper than 64 levels.", "A runaway generation; look at the raw reply."),
    _output(
        "too_large",
        "The reply is larger than 1 MiB. Its first 64 KiB are kept.",
        "Set `--max-tokens`.",
    ),
    _output(
        "truncated",
        "The server says that it cut the answer off (finish reason `length`).",
        "Raise `--max-tokens` or the server's context length.",
    ),
    _output(
        "empty",
        "There is no text to judge: null or blank content, only reasoning, or a tool call.",
        "Look at the raw reply: a reasoning parser on the server may have swallowed the answer.",
    ),
    _output("refused", "The model or its provider declined to answer.", "Look at the raw reply and at the prompt."),
)

_TRANSPORT: Final = (
    _transport("transport_connect", True, "No connection was made.", "Check the base URL, name, port and proxy."),
    _transport(
        "transport_timeout",
        True,
        "No whole reply within the attempt's deadline, or the request's budget was spent.",
        "Raise `--attempt-timeout` or `--request-timeout`, or lower `--concurrency`.",
    ),
    _transport("transport_cut", True, "The connection broke in the middle.", "The server's log says why."),
    _transport(
        "bad_envelope",
        True,
        "A reply with status 200 that is not a chat completion in UTF-8 JSON.",
        "Check that the base URL is that of an OpenAI-compatible server.",
    ),
    _transport(
        "not_json_response",
        False,
        "HTML or an event stream in a reply with status 200.",
        "The base URL leads to a web page, or a gateway insists on streaming.",
    ),
    _transport("no_choices", True, "`choices` is absent, null or empty.", "The provider's log or quota page says why."),
    _transport(
        "provider_error",
        True,
        "An error object inside a reply with status 200.",
        "The stored body holds the provider's own words.",
    ),
    _transport(
        "unexpected_redirect",
        False,
        "The server redirects; a key and a prompt are never sent to where it points.",
        "Give the address that it points to as the base URL, if you trust it.",
    ),
    _transport("rate_limited", True, "Status 429.", "Set `--rpm`, lower `--concurrency`."),
    _transport(
        "http_<status>",
        False,
        "Any other HTTP status. 408, 409 and 5xx are tried again, the rest are not.",
        "The stored body holds the server's own words. 404 is most often a wrong model name or base URL.",
    ),
    _transport(
        "auth_error",
        False,
        "Status 401 or 403. The run stops: no unsent request is sent.",
        "Check the key and what it may use, then run the file again.",
    ),
    _transport(
        "outcome_unknown",
        True,
        "The process ended while the call was open: it may have been answered, and billed.",
        "Nothing: `resume` counts it as one attempt and goes on.",
    ),
    _transport(
        "not_sent",
        False,
        "Not sent, or not sent again, because the run stopped for `auth_error`.",
        "See `auth_error`.",
    ),
)

_RUN: Final = (
    Code(
        "api_key_missing",
        "run",
        "No key was found. Nothing was recorded but that, and nothing was sent.",
        False,
        "Set the variable named by `--api-key-env`, or say `--no-api-key`.",
    ),
    Code(
        "request_self_grading_leak",
        "run",
        "A request holds its own evaluation labels, where the model could read them.",
        False,
        "Take the labels out at the path that is named (`prepare` splits them off), and run the file again.",
    ),
    Code(
        "request_invalid",
        "run",
        "A line is not a replay request, repeats a request id, or belongs to another run.",
        False,
        "Mend the line and field that are named, or leave such lines out with `--on-invalid reject`.",
    ),
)

CODES: Final[tuple[Code, ...]] = _MODEL_OUTPUT + _TRANSPORT + _RUN

EXIT_CODES: Final[tuple[tuple[str, str], ...]] = (
    ("0", "Fine."),
    ("1", "The answer is no: a run past its gate, a leak, a failed verification, a difference, an unreadable event."),
    ("2", "Wrong use or bad input; file, line and field are named."),
    ("3", "Incomplete: nothing is wrong, but something is unproven."),
    ("4", "The endpoint or the database could not be reached, refused us, is full, read-only or newer."),
    ("130", "Stopped by Ctrl-C."),
    ("143", "Stopped by SIGTERM."),
)

_BY_CODE: Final = {row.code.partition(":")[0]: row for row in CODES}
_HTTP_STATUS: Final = re.compile(r"http_([0-9]{1,6})\Z")
_RETRIED_STATUSES: Final = frozenset({408, 409})


def lookup(code: str) -> Code:
    """The row of a code as it stands in an event, such as ``http_503``. Raises ``LookupError``."""
    if _HTTP_STATUS.match(code):
        return _BY_CODE["http_<status>"]
    try:
        return _BY_CODE[code.partition(":")[0]]
    except KeyError:
        raise LookupError(f"{code!r} is no known error code") from None


def is_retried(code: str) -> bool:
    """Is an attempt that ended so made again, its budgets allowing? Raises ``LookupError``."""
    found = _HTTP_STATUS.match(code)
    if found:
        status = int(found[1])
        return status in _RETRIED_STATUSES or 500 <= status <= 599
    return lookup(code).retried


def errors_markdown() -> str:
    """The text of ``docs/errors.md``."""
    parts = [
        "# Errors\n",
        "Made from `runner/codes.py` by `python -m runner.codes`; a test keeps the two alike.\n",
        "A code is a stable string: it stands in events, results, reports, SQL and the command line's output.",
        "Reports count a code with its fields (`model_output_missing_fields:risk_level`) as it stands.\n",
        "## Model output\n",
        "The reply came, and its answer could not be accepted. The contract-tuned variant asks once more with a",
        "correction; after that, and under the baseline at once, the fail-closed result is recorded.\n",
        *_table(("code", "meaning", "what to do"), [(c.code, c.meaning, c.advice) for c in _MODEL_OUTPUT]),
        "## Transport\n",
        "No reply came to decide on. Those marked yes are tried again, up to `--max-attempts` a turn and within",
        "`--request-timeout`; the last one becomes the result's `error`.\n",
        *_table(
            ("code", "tried again", "meaning", "what to do"),
            [(c.code, _retried_text(c), c.meaning, c.advice) for c in _TRANSPORT],
        ),
        "## Run\n",
        "The run was stopped before any call, or a line was left out of it.\n",
        *_table(("code", "meaning", "what to do"), [(c.code, c.meaning, c.advice) for c in _RUN]),
        "## Exit codes\n",
        *_table(("exit code", "meaning"), list(EXIT_CODES)),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _retried_text(row: Code) -> str:
    if row.code == "http_<status>":
        return "408, 409, 5xx"
    return "yes" if row.retried else "no"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join((f"`{first}`", *rest)) + " |" for first, *rest in rows]
    return [*lines, ""]


if __name__ == "__main__":
    print(errors_markdown(), end="")
