"""Reading and checking replay requests: a stream of bytes in, requests and bad lines out. Pure.

JSONL, one object a line, UTF-8. Lines are numbered from 1, blank ones (JSON white space alone) too,
which are then skipped. One ``\\n`` or ``\\r\\n`` at the end and a byte order mark before the first line are
no part of a line. A line is parsed as strictly as a model's answer. One over ``MAX_LINE_BYTES`` is a bad
line of which only the head is kept, so memory stays bounded whatever the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, Protocol

import orjson

from ledger.events import ID_PATTERN
from runner import sent_json
from runner.contract import Contract, ContractError
from runner.contract_schema import FIELD_NAME
from runner.strict_json import StrictJsonError, loads
from runner.variants import BASELINE, UnknownVariant, Variant, variant_for, variant_named

SCHEMA_VERSION: Final = "agent_nemotron_replay_request_v1"
INVALID: Final = "request_invalid"
MAX_LINE_BYTES: Final = 8 * 2**20
KEPT_OF_LONG_LINE: Final = 64 * 2**10
MAX_CONTRACT_BYTES: Final = 128 * 2**10
MAX_FACETS: Final = 8

_ID: Final = re.compile(ID_PATTERN)
_ID_WORDS: Final = "must be an id: 1 to 128 of A-Z a-z 0-9 . _ : @ -, beginning with a letter or digit"
_WHITE_SPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ReplayRequest:
    """One incident put to one candidate. ``raw`` is the line, ``document`` what it says, whole.

    ``candidate_variant_id`` and ``prompt_profile`` are those in force, an override applied.
    ``contract_sha256`` is the digest of the canonical ``response_contract``, of ``{}`` where absent.
    """

    line: int
    raw: bytes
    document: dict[str, Any]
    run_id: str | None
    request_id: str
    incident_id: str
    candidate_id: str
    candidate_variant_id: str | None
    prompt_profile: str | None
    policy_id: str | None
    facets: dict[str, str]
    system_prompt: str
    user_prompt: str
    incident_context: dict[str, Any]
    response_contract: dict[str, Any] | None
    contract: Contract = field(compare=False)
    contract_sha256: str

    @cached_property
    def system_prompt_sha256(self) -> str:
        return hashlib.sha256(self.system_prompt.encode("utf-8")).hexdigest()

    @cached_property
    def incident_context_json(self) -> str:
        """The context as it is sent: canonical, integers with all their digits."""
        return sent_json.encode(self.incident_context).decode("utf-8")


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no replay request of this run. ``field`` is a dotted path; ``message`` says what
    is wrong with it and never quotes a value. ``request_id`` is null where it is no valid id."""

    line: int
    raw: bytes
    request_id: str | None
    code: str
    field: str | None
    message: str
    first_line: int | None = None


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What all lines of a run share. A ``given_run_id`` overrides what the lines say."""

    run_id: str | None
    candidate_id: str
    candidate_variant_id: str | None
    given_run_id: str | None = None


class _Wrong(Exception):
    """A field is not what it must be."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field, self.message = field, message


class LineReader(Protocol):
    """The little of a binary file that is used: at most ``size`` bytes, up to and with a line's end."""

    def readline(self, size: int, /) -> bytes: ...


class Head(bytes):
    """The first ``KEPT_OF_LONG_LINE`` bytes of a line that is too long; the rest is not kept."""


def read_lines(stream: LineReader) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers. Of one that is too long its ``Head`` comes."""
    number = 0
    # Room for a whole line of the greatest length, the mark before it and the two bytes after it: what
    # fills this without an end is too long.
    while line := stream.readline(MAX_LINE_BYTES + len(_BOM) + 2):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.endswith(b"\n"):
            line = line[:-1].removesuffix(b"\r")
        else:
            _skip_line(stream)
        if len(line) > MAX_LINE_BYTES:
            yield number, Head(line[:KEPT_OF_LONG_LINE])
        elif line.strip(_WHITE_SPACE):
            yield number, line


def _skip_line(stream: LineReader) -> None:
    while (rest := stream.readline(KEPT_OF_LONG_LINE)) and not rest.endswith(b"\n"):
        pass


def parse_line(number: int, raw: bytes, *, variant_override: str | None = None) -> ReplayRequest | BadLine:
    """Check one line. ``variant_override``: a variant's id or profile, or ``baseline``, for every line.

    Raises ``UnknownVariant`` for an override that names none.
    """
    override = None if variant_override is None else variant_named(variant_override)
    if isinstance(raw, Head) or len(raw) > MAX_LINE_BYTES:
        message = f"the line is longer than {MAX_LINE_BYTES} bytes"
        return BadLine(number, raw[:KEPT_OF_LONG_LINE], None, INVALID, None, message)
    try:
        document = loads(raw)
    except StrictJsonError as error:
        key = f" ({error.key})" if error.key and FIELD_NAME.match(error.key) else ""
        return BadLine(number, raw, None, INVALID, None, f"not JSON that we accept: {error.message}{key}")
    if not isinstance(document, dict):
        return BadLine(number, raw, None, INVALID, None, "not a JSON object")
    try:
        return _request(number, raw, document, override)
    except _Wrong as wrong:
        named = document.get("request_id")
        named = document.get("incident_id") if named is None else named
        request_id = named if _is_id(named) else None
        return BadLine(number, raw, request_id, INVALID, wrong.field, wrong.message)


def identity(request: ReplayRequest) -> RunIdentity:
    """Run, candidate and variant as the first valid line names them."""
    return RunIdentity(request.run_id, request.candidate_id, request.candidate_variant_id)


def differs(request: ReplayRequest, run: RunIdentity) -> BadLine | None:
    """The line as a bad one where it belongs to another run, candidate or variant.

    A line without a ``run_id`` belongs to whatever run it is put to.
    """
    if run.given_run_id is None and request.run_id not in (None, run.run_id):
        return _of_another(request, "run_id", "names another run than the first line")
    if request.candidate_id != run.candidate_id:
        return _of_another(request, "candidate_id", "names another candidate than the first line")
    if request.candidate_variant_id != run.candidate_variant_id:
        place = "metadata.candidate_variant_id"
        return _of_another(request, place, "names another variant than the first line")
    return None


def _of_another(request: ReplayRequest, place: str, message: str) -> BadLine:
    return BadLine(request.line, request.raw, request.request_id, INVALID, place, message)


# --- one line ------------------------------------------------------------------------------


def _request(number: int, raw: bytes, document: dict[str, Any], override: Variant | None) -> ReplayRequest:
    if document.get("schema_version") != SCHEMA_VERSION:
        raise _Wrong("schema_version", f"must be {SCHEMA_VERSION}")
    incident_id = _required_id(document, "incident_id")
    request_id = _optional_id(document, "request_id") or incident_id
    metadata = _object(document, "metadata")
    for flag in ("request_only", "not_replacement_evidence"):
        if metadata.get(flag) is not True:
            raise _Wrong(f"metadata.{flag}", "must be true")
    variant = _variant(metadata, override)
    if document.get("source_metadata") is not None:
        _object(document, "source_metadata")
    response_contract = None if document.get("response_contract") is None else _object(document, "response_contract")
    contract, contract_sha256 = _contract(response_contract)
    return ReplayRequest(
        line=number,
        raw=raw,
        document=document,
        run_id=_optional_id(document, "run_id"),
        request_id=request_id,
        incident_id=incident_id,
        candidate_id=_required_id(document, "candidate_id"),
        candidate_variant_id=variant.id,
        prompt_profile=variant.prompt_profile,
        policy_id=_optional_id(document, "policy_id"),
        facets=_facets(metadata),
        system_prompt=_text(document, "system_prompt"),
        user_prompt=_text(document, "user_prompt"),
        incident_context=_object(document, "incident_context"),
        response_contract=response_contract,
        contract=contract,
        contract_sha256=contract_sha256,
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and _ID.match(value) is not None


def _required_id(members: Mapping[str, Any], name: str, prefix: str = "") -> str:
    if name not in members:
        raise _Wrong(prefix + name, "is missing")
    value = members[name]
    if not _is_id(value):
        raise _Wrong(prefix + name, _ID_WORDS)
    return str(value)


def _optional_id(members: Mapping[str, Any], name: str, prefix: str = "") -> str | None:
    return None if members.get(name) is None else _required_id(members, name, prefix)


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise _Wrong(name, "must be text" if name in document else "is missing")
    return value


def _object(members: Mapping[str, Any], name: str, prefix: str = "") -> dict[str, Any]:
    value = members.get(name)
    if not isinstance(value, dict):
        raise _Wrong(prefix + name, "must be an object" if name in members else "is missing")
    return value


def _facets(metadata: Mapping[str, Any]) -> dict[str, str]:
    if metadata.get("facets") is None:
        return {}
    facets = _object(metadata, "facets", "metadata.")
    if len(facets) > MAX_FACETS:
        raise _Wrong("metadata.facets", f"holds more than {MAX_FACETS} pairs")
    for name, value in facets.items():
        if not _is_id(name):
            raise _Wrong("metadata.facets", f"a facet's name {_ID_WORDS}")
        if not _is_id(value):
            raise _Wrong(f"metadata.facets.{name}", _ID_WORDS)
    return facets


def _variant(metadata: Mapping[str, Any], override: Variant | None) -> Variant:
    variant_id = _optional_id(metadata, "candidate_variant_id", "metadata.")
    profile = _optional_id(metadata, "prompt_profile", "metadata.")
    if override is not None:
        return override
    if variant_id is None and profile is None:
        return BASELINE
    try:
        by_id = None if variant_id is None else variant_for(variant_id)
    except UnknownVariant:
        raise _Wrong("metadata.candidate_variant_id", "names no variant that there is") from None
    try:
        by_profile = None if profile is None else variant_named(profile)
    except UnknownVariant:
        by_profile = None
    if profile is not None and (by_profile is None or by_profile.prompt_profile != profile):
        raise _Wrong("metadata.prompt_profile", "names no profile that there is")
    if by_id is not None and by_profile is not None and by_id is not by_profile:
        raise _Wrong("metadata.prompt_profile", "is another variant's profile than candidate_variant_id's")
    found = by_id or by_profile
    assert found is not None
    return found


def _contract(schema: dict[str, Any] | None) -> tuple[Contract, str]:
    try:
        return _compiled(b"{}" if schema is None else orjson.dumps(schema))
    except ContractError as error:
        place = f"response_contract.{error.field}" if error.field else "response_contract"
        raise _Wrong(place, error.message) from None


@lru_cache(maxsize=64)
def _compiled(schema_json: bytes) -> tuple[Contract, str]:
    """A contract and its digest. Most files repeat one contract on every line."""
    if len(schema_json) > MAX_CONTRACT_BYTES:
        raise ContractError("", f"is longer than {MAX_CONTRACT_BYTES} bytes")
    schema = loads(schema_json)
    return Contract(schema or None), hashlib.sha256(sent_json.encode(schema)).hexdigest()
