"""Does the endpoint take the key, know the model and keep to JSON? Asked before a long run.

Three calls: the list of models, one tiny completion, and the same with JSON mode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from runner.model_client import ModelClient
from runner.reply import CallFailure, Exchange, Reply, TransportFault, classify
from runner.strict_json import StrictJsonError, loads

CheckName = Literal["reachable", "key", "model", "answers", "json_without_mode", "json_mode"]
Verdict = Literal["yes", "no", "unknown"]

_MAX_TOLD_CHARS: Final = 200
_PROMPT: Final = 'Reply with this JSON object and nothing else: {"ready": true}'


@dataclass(frozen=True, slots=True)
class Check:
    """One question, its answer and why. ``detail`` may quote the endpoint: scrubbed, but others' text."""

    name: CheckName
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True)
class PingResult:
    """What was found out, in the order of `CheckName`.

    ``ok``: a run may begin. JSON mode is not needed for one, and a list of models that leaves the model out
    is not held against an endpoint that answers all the same.
    """

    endpoint: str
    model: str
    checks: tuple[Check, ...]
    ok: bool = field(init=False)

    def __post_init__(self) -> None:
        verdicts = {check.name: check.verdict for check in self.checks}
        object.__setattr__(self, "ok", verdicts.get("answers") == "yes")

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        checks = {check.name: {"verdict": check.verdict, "detail": check.detail} for check in self.checks}
        return {"endpoint": self.endpoint, "model": self.model, "ok": self.ok, "checks": checks}


async def ping(
    client: ModelClient, model: str, *, timeout: float = 60.0, extra: Mapping[str, Any] | None = None
) -> PingResult:
    """Ask `client`'s endpoint. `timeout` is in seconds, for each call; `extra` joins the body of each completion.

    Raises nothing that an endpoint can cause.
    """
    listed = await client.models(timeout)
    plain = await client.post(_body(model, extra, json_mode=False), timeout)
    outcome = classify(plain)
    checks = [_reachable(plain), _key(plain), _model(model, listed, outcome), _answers(model, outcome)]
    if isinstance(outcome, Reply):
        checks.append(_keeps_to_json("json_without_mode", outcome))
        with_mode = classify(await client.post(_body(model, extra, json_mode=True), timeout))
        checks.append(_keeps_to_json("json_mode", with_mode))
    return PingResult(client.endpoint.recorded, model, tuple(checks))


def _body(model: str, extra: Mapping[str, Any] | None, *, json_mode: bool) -> bytes:
    messages = [{"role": "system", "content": "You answer in JSON."}, {"role": "user", "content": _PROMPT}]
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": False, **(extra or {})}
    if json_mode:
        body["response_format"] = {"type": "json_object"}
    return json.dumps(body).encode("utf-8")


def _reachable(outcome: Exchange | TransportFault) -> Check:
    if isinstance(outcome, Exchange):
        return Check("reachable", "yes", f"answered in {outcome.duration_us // 1000} ms")
    return Check("reachable", "no", f"{outcome.code}: {outcome.detail}")


def _key(outcome: Exchange | TransportFault) -> Check:
    if isinstance(outcome, TransportFault):
        return Check("key", "unknown", "the endpoint was not reached")
    if outcome.http_status in (401, 403):
        return Check("key", "no", f"refused with HTTP status {outcome.http_status}")
    if outcome.http_status == 200:
        return Check("key", "yes", "accepted, or not asked for")
    return Check("key", "unknown", f"the call failed with HTTP status {outcome.http_status}")


def _model(model: str, listed: Exchange | TransportFault, outcome: Reply | CallFailure) -> Check:
    names = _listed_names(listed)
    if names is None:
        told = listed.http_status if isinstance(listed, Exchange) else listed.code
        return Check("model", "unknown", f"the endpoint gives no list of models ({told})")
    if model in names:
        return Check("model", "yes", "in the endpoint's list")
    others = _short(", ".join(sorted(names)))
    if isinstance(outcome, Reply) and outcome.model == model:
        return Check("model", "yes", f"not in the endpoint's list ({others}), but it answers by that name")
    return Check("model", "no", f"not in the endpoint's list: {others}")


def _listed_names(listed: Exchange | TransportFault) -> set[str] | None:
    """The ids in a list of models; None where there is no such list."""
    if not isinstance(listed, Exchange) or listed.http_status != 200 or listed.truncated:
        return None
    try:
        document = loads(listed.body, any_text=True)
    except StrictJsonError:
        return None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list):
        return None
    return {entry["id"] for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)}


def _answers(model: str, outcome: Reply | CallFailure) -> Check:
    if isinstance(outcome, CallFailure):
        said = _short(outcome.body.decode("utf-8", "replace"))
        return Check("answers", "no", f"{outcome.detail}: {said}" if said else outcome.detail)
    if outcome.model not in (None, model):
        return Check("answers", "yes", f"but as another model: {outcome.model}")
    return Check("answers", "yes", f"finish reason {outcome.finish_reason or 'not told'}")


def _keeps_to_json(name: Literal["json_without_mode", "json_mode"], outcome: Reply | CallFailure) -> Check:
    if isinstance(outcome, CallFailure):
        return Check(name, "no", outcome.detail)
    try:
        document = loads((outcome.content or "").strip())
    except StrictJsonError:
        return Check(name, "no", f"not JSON alone: {_short(outcome.content or 'nothing at all')}")
    if isinstance(document, dict):
        return Check(name, "yes", "one JSON object and nothing else")
    return Check(name, "no", "JSON, but not an object")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TOLD_CHARS else f"{text[:_MAX_TOLD_CHARS]}..."
