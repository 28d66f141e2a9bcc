"""What the simulated model can be made to answer: one table of replies. Pure.

A `Script` is what one incident's calls get, in order: names from `REPLIES`, the last of them for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SIMULATED_MODEL: Final = "simulated-incident-model"
OTHER_MODEL: Final = "simulated-other-model"
SIMULATED_FINGERPRINT: Final = "simulated"
CREATED: Final = 1_767_225_600
"""When each completion says it was made; a constant, so that a demo's replies are the same each time."""

Answer = Mapping[str, Any]
Content = str | list[dict[str, str]] | None

GENERIC_ANSWER: Final[Answer] = {
    "proposed_action": "Page the owning team and hold every change to the affected service.",
    "action_plan": ["Confirm the alert against the service's own metrics", "Page the owning team", "Hold deployments"],
    "risk_level": "medium",
    "requires_human_approval": True,
    "blocked_by_policy": False,
}


@dataclass(frozen=True, slots=True)
class Script:
    """What the calls about one incident get: `replies` name what comes, `answer` is what is said."""

    answer: Answer = field(default_factory=lambda: GENERIC_ANSWER)
    replies: tuple[str, ...] = ("well",)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.replies) - REPLIES.keys())
        if unknown or not self.replies:
            raise ValueError(f"a script names one or more of {', '.join(REPLIES)}; not {', '.join(unknown) or 'none'}")

    def reply(self, call: int) -> SimulatedReply:
        """The reply to the incident's `call`-th call, from 1."""
        return REPLIES[self.replies[min(call, len(self.replies)) - 1]]


def _plain(answer: Answer) -> str:
    return json.dumps(answer)


def _fenced(answer: Answer) -> str:
    return f"```json\n{json.dumps(answer, indent=2)}\n```"


def _thinking(answer: Answer) -> str:
    return f"<think>\nThe alert names one service. What is the blast radius?\n</think>\n\n{json.dumps(answer)}"


def _parts(answer: Answer) -> list[dict[str, str]]:
    text = json.dumps(answer)
    middle = len(text) // 2
    return [{"type": "text", "text": text[:middle]}, {"type": "text", "text": text[middle:]}]


def _prose(answer: Answer) -> str:
    return f"Here is what I would do:\n\n{json.dumps(answer)}\n\nTell me if you would like another option."


def _missing_fields(answer: Answer) -> str:
    return json.dumps({name: answer[name] for name in answer if name not in ("risk_level", "requires_human_approval")})


def _wrong_types(answer: Answer) -> str:
    return json.dumps({**answer, "action_plan": "; ".join(answer["action_plan"]), "requires_human_approval": "yes"})


def _overstated_risk(answer: Answer) -> str:
    return json.dumps({**answer, "risk_level": "critical"})


def _duplicate_key(answer: Answer) -> str:
    return f'{json.dumps(answer)[:-1]}, "blocked_by_policy": {json.dumps(not answer["blocked_by_policy"])}}}'


def _half(answer: Answer) -> str:
    text = json.dumps(answer)
    return text[: len(text) // 2]


def _nothing(answer: Answer) -> None:
    return None


@dataclass(frozen=True, slots=True)
class SimulatedReply:
    """One reply. ``way``: how it goes over the wire; ``body``: instead of a completion; ``delay_s`` before it."""

    content: Callable[[Answer], Content] = _plain
    finish_reason: str = "stop"
    refusal: str | None = None
    model: str = SIMULATED_MODEL
    prompt_tokens: int | None = None
    usage: bool = True
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    content_type: str = "application/json"
    delay_s: float = 0.0
    way: Literal["whole", "cut", "dropped", "hangs"] = "whole"


def _error(message: str) -> str:
    return json.dumps({"error": {"message": f"simulated: {message}", "type": "simulated", "code": None}})


REPLIES: Final[Mapping[str, SimulatedReply]] = {
    "well": SimulatedReply(),
    "fenced": SimulatedReply(_fenced),
    "thinking": SimulatedReply(_thinking),
    "parts": SimulatedReply(_parts),
    "slow": SimulatedReply(delay_s=0.8),
    "other_model": SimulatedReply(model=OTHER_MODEL),
    "prompt_cut": SimulatedReply(prompt_tokens=31),
    "no_usage": SimulatedReply(usage=False),
    "prose": SimulatedReply(_prose),
    "missing_fields": SimulatedReply(_missing_fields),
    "wrong_types": SimulatedReply(_wrong_types),
    "overstated_risk": SimulatedReply(_overstated_risk),
    "duplicate_key": SimulatedReply(_duplicate_key),
    "truncated": SimulatedReply(_half, finish_reason="length"),
    "refusal": SimulatedReply(_nothing, refusal="I cannot help with credentials."),
    "filtered": SimulatedReply(_half, finish_reason="content_filter"),
    "empty": SimulatedReply(_nothing),
    "rate_limited": SimulatedReply(status=429, headers={"Retry-After": "1"}, body=_error("slow down")),
    "unavailable": SimulatedReply(status=503, body=_error("overloaded")),
    "bad_request": SimulatedReply(status=400, body=_error("the context is too long")),
    "unauthorized": SimulatedReply(status=401, body=_error("incorrect API key")),
    "error_in_200": SimulatedReply(
        body='{"choices": null, "error": {"message": "simulated: upstream busy", "code": 429}}'
    ),
    "html": SimulatedReply(body="<html><h1>Sign in</h1></html>", content_type="text/html"),
    "cut": SimulatedReply(way="cut"),
    "dropped": SimulatedReply(way="dropped"),
    "hangs": SimulatedReply(way="hangs"),
}


def completion(reply: SimulatedReply, answer: Answer, served_id: str, prompt_chars: int) -> str:
    """The body of a chat completion. It says that it is simulated: in its id, its model and its fingerprint."""
    content = reply.content(answer)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reply.refusal is not None:
        message["refusal"] = reply.refusal
    document: dict[str, Any] = {
        "id": served_id,
        "object": "chat.completion",
        "created": CREATED,
        "model": reply.model,
        "system_fingerprint": SIMULATED_FINGERPRINT,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
    }
    if reply.usage:
        prompt = max(1, prompt_chars // 4) if reply.prompt_tokens is None else reply.prompt_tokens
        spoken = len(json.dumps(content)) // 4
        document["usage"] = {"prompt_tokens": prompt, "completion_tokens": spoken, "total_tokens": prompt + spoken}
    return json.dumps(document)
