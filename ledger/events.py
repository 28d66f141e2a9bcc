"""The vocabulary: every event type, in the order a run tells its story.

A payload holds facts only: codes, enums, flags, counts, durations, ids, digests. No floats, no
free text, no personal data; a report is computed from payloads alone and keeps its bytes after
all content has been erased (docs/ledger-format.md, section 1). Adding a type is one class here.

Changing a payload: raise ``SCHEMA`` and add the step from the old one in ``upcast.py``. Stored
bytes never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from ledger.event_ids import new_event_id
from ledger.integrity.canonical import encode_payload, encode_scalars

LEDGER_RUN_ID: Final = "$ledger"
"""The run id of events about the ledger itself; no run may bear it."""
LATEST: Final = "latest"
"""The newest run, wherever a run is looked up: no run can be given it as its own id."""

# Python's ``$`` also matches before a last newline; ``\Z`` does not. pydantic's own engine
# (Rust) has no such quirk, so the annotations below may use ``$``.
ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}\Z"
FOREIGN_TEXT_PATTERN: Final = r"[!-~]{1,200}\Z"
"""What text that others sent (a model's name, a response id) must match to enter a payload."""

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
Sha256Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ForeignText = Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Attempt = Annotated[int, Field(ge=1)]
Turn = Literal[1, 2]
RiskLevel = Literal["low", "medium", "high", "critical"]


class Payload(BaseModel):
    """The facts of one event. Frozen, strict: nothing is coerced and nothing unknown is kept."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", protected_namespaces=())

    TYPE: ClassVar[str]
    SCHEMA: ClassVar[int] = 1
    TERMINAL: ClassVar[bool] = False
    """True where a run's story ends with this event (reports and grades may follow)."""
    FLAT: ClassVar[bool] = False
    """True where no member is a model itself, so that the members are the payload as they stand."""
    NESTED: ClassVar[tuple[str, ...]] = ()
    """The members that may hold others: lists, objects, models."""

    def facts(self) -> dict[str, Any]:
        """The members as JSON types. ``model_dump`` gives the same, in four times the time."""
        return self.__dict__.copy() if self.FLAT else self.model_dump()

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """Refused: what is not validated is no payload."""
        raise TypeError(f"{cls.__name__} is made by its constructor, which validates it")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Refused: pydantic does not validate an update, and without one a frozen payload needs no copy."""
        raise TypeError(f"{type(self).__name__} is made by its constructor, which validates it")


EVENT_TYPES: dict[str, type[Payload]] = {}

_P = TypeVar("_P", bound=type[Payload])


def _event(cls: _P) -> _P:
    cls.TYPE = cls.__name__
    annotations = {name: field.annotation for name, field in cls.__pydantic_fields__.items()}
    cls.FLAT = not any(_holds(annotation, (BaseModel,)) for annotation in annotations.values())
    cls.NESTED = tuple(name for name, annotation in annotations.items() if _holds(annotation, (BaseModel, list, dict)))
    EVENT_TYPES[cls.__name__] = cls
    return cls


def _holds(annotation: Any, kinds: tuple[type, ...]) -> bool:
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, kinds):
        return True
    return any(_holds(part, kinds) for part in get_args(annotation))


@_event
class LedgerCreated(Payload):
    """Position 1 of every ledger, in ``$ledger``."""

    format: Count
    software_version: str
    vkey: str | None


@_event
class RunStarted(Payload):
    """One pass of requests over one candidate variant and one model begins.

    ``settings`` holds the options that were given and no others; text and objects among them
    enter as their SHA-256, the text itself is content.
    """

    candidate_id: Id
    candidate_variant_id: Id | None
    prompt_profile: Id | None
    template_version: Count
    template_sha256: Sha256Hex
    model: ForeignText
    endpoint: str
    settings: dict[str, str | int | bool]
    leak_rules_version: Count
    software_version: str
    actor: Id
    tags: dict[Id, Id]


@_event
class RequestAccepted(Payload):
    """A request passed intake and the leak guard. Content: its line, exactly as given."""

    line: Count
    incident_id: Id
    policy_id: Id | None
    facets: dict[Id, Id]
    system_prompt_sha256: Sha256Hex
    contract_sha256: Sha256Hex


@_event
class RequestRejected(Payload):
    """A line that is no replay request, or repeats one. Run-level. Content: the line."""

    line: Count
    request_id: Id | None
    code: str
    field: str | None
    first_line: Count | None


class Finding(BaseModel):
    """One hit of the leak guard: which rule and where, never the value."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    rule: str
    path: str


@_event
class LeakRejected(Payload):
    """A request that holds its own evaluation labels. Run-level. Content: the line."""

    line: Count
    request_id: Id | None
    findings: list[Finding]


@_event
class IntakeCompleted(Payload):
    """The whole file was read. ``lines`` counts the lines that are not blank."""

    lines: Count
    accepted: Count
    rejected: Count
    leaking: Count
    input_sha256: Sha256Hex
    selection: dict[str, str | int] | None


@_event
class RunBlocked(Payload):
    """The run ends before any call. ``failures``: run-level codes."""

    TERMINAL: ClassVar[bool] = True

    failures: list[str]


@_event
class ModelCallStarted(Payload):
    """Intent, durable before the first byte goes out. Content: the body sent."""

    attempt: Attempt
    turn: Turn
    body_bytes: Count
    quote_withheld: bool


@_event
class ModelCalled(Payload):
    """A whole reply came. Token counts the reply did not give are null. Content: the raw body."""

    attempt: Attempt
    turn: Turn
    http_status: Count | None
    response_id: ForeignText | None
    model: ForeignText | None
    finish_reason: ForeignText | None
    system_fingerprint: ForeignText | None
    odd_metadata: bool
    prompt_tokens: Count | None
    completion_tokens: Count | None
    total_tokens: Count | None
    cached_tokens: Count | None
    reasoning_tokens: Count | None
    body_bytes: Count
    body_truncated: bool
    scrubbed: Count
    duration_us: Count


@_event
class ModelCallFailed(Payload):
    """An attempt that gave no reply to decide on. Content: error text and body.

    ``outcome_unknown``: the request may have been sent and no whole reply came.
    ``duration_us`` is null where the process that made the call did not live to tell.
    """

    attempt: Attempt
    turn: Turn
    code: str
    http_status: Count | None
    retry_after_ms: Count | None
    wait_ms: Count | None
    will_retry: bool
    outcome_unknown: bool
    duration_us: Count | None


@_event
class ParseFailed(Payload):
    """The reply broke the contract."""

    turn: Turn
    code: str
    fields: list[str]


@_event
class Retried(Payload):
    """The corrective turn begins; ``turn`` is the next one."""

    turn: Turn
    code: str


@_event
class OutputAccepted(Payload):
    """The answer keeps the contract. Content: the output, canonical JSON."""

    turn: Turn
    risk_level: RiskLevel
    requires_human_approval: bool
    blocked_by_policy: bool
    allowances: list[str]


@_event
class FallbackApplied(Payload):
    """The fail-closed result. ``turn`` is null where the request was never sent or sent no more."""

    code: str
    turn: Turn | None


@_event
class RunResumed(Payload):
    """A driver took the run up again and closed ``outcomes_unknown`` open calls."""

    actor: Id
    outcomes_unknown: Count


class Counts(BaseModel):
    """Requests and the seven outcomes that add up to them."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    requests: Count
    accepted_first: Count
    accepted_after_retry: Count
    fallback_records: Count
    leak_rejected: Count
    rejected: Count
    not_started: Count
    incomplete: Count


@_event
class RunCompleted(Payload):
    """Every request has its result."""

    TERMINAL: ClassVar[bool] = True

    outcome: Literal["completed", "auth_error"]
    counts: Counts


@_event
class RunAbandoned(Payload):
    """Ended for good by a person, results or not. Content: a note."""

    TERMINAL: ClassVar[bool] = True

    actor: Id
    reason: Id
    counts: Counts


@_event
class ReportIssued(Payload):
    """A report with these bytes was given out."""

    kind: str
    format: str
    projection: str
    renderer_version: Count
    as_of_position: Count
    sha256: Sha256Hex
    actor: Id


class Grade(BaseModel):
    """One request's label beside what became of the request. A label's field that was not given is null.

    ``outcome`` is ``accepted``, ``fallback``, ``not_started`` or ``incomplete``; the answer's fields are
    null where no answer was accepted, as a fallback is not the model's decision. ``dangerous``: what
    the label says or implies. ``correct``: each field that the label gives is the answer's.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    request_id: Id
    incident_id: Id
    label_risk_level: RiskLevel | None
    label_requires_human_approval: bool | None
    label_blocked_by_policy: bool | None
    dangerous: bool | None
    outcome: Literal["accepted", "fallback", "not_started", "incomplete"]
    risk_level: RiskLevel | None
    requires_human_approval: bool | None
    blocked_by_policy: bool | None
    correct: bool


class GradeCounts(BaseModel):
    """``requests`` accepted by the run = ``graded`` + ``unlabelled``; ``unknown`` labels are for none of them."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    requests: Count
    labels: Count
    graded: Count
    unlabelled: Count
    unknown: Count


MAX_GRADES: Final = 1000
"""Grades in one event; more of them are several parts, appended as one."""


@_event
class GradesRecorded(Payload):
    """Labels, kept apart from the run, were joined to its results. Content: the labels, a line each.

    ``part`` 1 .. ``parts`` of one grading, whose other members they share. ``labels_sha256`` is over the
    contents of all parts, joined; ``file_sha256`` over the file as it was given. ``unlabelled`` and
    ``unknown`` name the first hundred ids that ``counts`` counts, in part 1.
    """

    labels_sha256: Sha256Hex
    file_sha256: Sha256Hex
    label_schema: str
    as_of_position: Count
    part: Annotated[int, Field(ge=1)]
    parts: Annotated[int, Field(ge=1)]
    counts: GradeCounts
    grades: Annotated[list[Grade], Field(max_length=MAX_GRADES)]
    unlabelled: Annotated[list[Id], Field(max_length=100)]
    unknown: Annotated[list[Id], Field(max_length=100)]
    actor: Id


@_event
class ContentRedacted(Payload):
    """The content of these positions was erased. In ``$ledger``. Content: who, legal basis."""

    positions: Annotated[list[Count], Field(max_length=1000)]
    reason: Id
    actor: Id


@_event
class RetentionSet(Payload):
    """Content is kept for at least ``days``."""

    days: Count


@_event
class LegalHoldSet(Payload):
    """Nothing of the run (of the ledger, where null) may be erased."""

    hold_id: Id
    run_id: Id | None


@_event
class LegalHoldLifted(Payload):
    """The hold is over."""

    hold_id: Id
    run_id: Id | None


@_event
class KeyRotated(Payload):
    """Checkpoints from here on are signed by this key."""

    vkey: str


TERMINAL_TYPES: Final = frozenset(n for n, t in EVENT_TYPES.items() if t.TERMINAL)
AFTER_TERMINAL_TYPES: Final = frozenset({"ReportIssued", "GradesRecorded"})
"""What may follow a run's terminal event. Reports never count these."""


class NewEvent(NamedTuple):
    """An event before its append: what the writer knows of it.

    ``payload`` is the decoded form of ``payload_json`` (JCS bytes); folds read the former, the
    hash covers the latter. ``salt`` is given only when a ledger is made again from a record of it;
    None lets the store draw 32 fresh bytes where there is content.
    """

    event_id: str
    type: str
    schema: int
    run_id: str
    request_id: str | None
    payload: Mapping[str, Any]
    payload_json: bytes
    content: bytes | None = None
    salt: bytes | None = None


class Event(NamedTuple):
    """An event as folds see it: envelope and payload, never content."""

    position: int
    event_id: str
    type: str
    schema: int
    run_id: str
    run_version: int
    request_id: str | None
    request_version: int | None
    recorded_at: str
    payload: Mapping[str, Any]


def new_event(
    payload: Payload,
    *,
    run_id: str,
    request_id: str | None = None,
    content: bytes | str | None = None,
    event_id: str | None = None,
    salt: bytes | None = None,
) -> NewEvent:
    """Make an event ready to append. Text content becomes its UTF-8 bytes."""
    facts = payload.facts()
    # A payload has been validated strictly, so its scalars are; what is within lists and objects, frozen is not.
    encode: Callable[[dict[str, Any]], bytes] = encode_scalars
    for name in payload.NESTED:
        if facts[name]:
            encode = encode_payload
    encoded = encode(facts)
    if isinstance(content, str):
        content = content.encode("utf-8")
    event_id = event_id or new_event_id()
    return _new_event((event_id, payload.TYPE, payload.SCHEMA, run_id, request_id, facts, encoded, content, salt))


# What a named tuple's own constructor ends in; three of them an event were a fortieth of what an append costs.
_new_event: Final = cast("Callable[[tuple[Any, ...]], NewEvent]", partial(tuple.__new__, NewEvent))
placed_event: Final = cast("Callable[[tuple[Any, ...]], Event]", partial(tuple.__new__, Event))
"""An event from the tuple of its members; for where there are many."""
