"""The programming interface: replay requests from Python, with a ledger or only in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ledger import open_ledger
from ledger.events import LATEST, Id
from ledger.projections.report import report as fold_report
from ledger.projections.results import results as fold_results
from ledger.store import Store
from runner.caller_client import AdaptedClient, CallerClient
from runner.endpoint import Endpoint
from runner.plan import RunPlan
from runner.replay import start_run
from runner.scrub import Scrubber
from runner.settings import RunSettings

IN_MEMORY = "sqlite://"


def _not_reserved(run_id: str) -> str:
    if run_id == LATEST:
        raise ValueError(f"{LATEST!r} always means the newest run: no run can have it as its id")
    return run_id


class NemotronExternalRunnerConfig(RunSettings):
    """Where to, with which key, and every option of a run with its default."""

    api_key: str = Field(repr=False)
    base_url: str = "https://integrate.api.nvidia.com/v1"
    model: str = "nvidia/llama-3.3-nemotron-super-49b-v1.5"
    actor: Id = "python-api"
    run_id: Annotated[Id, AfterValidator(_not_reserved)] | None = None
    variant: str | None = None
    tags: dict[Id, Id] = Field(default_factory=dict)
    description: str | None = None

    def settings(self) -> RunSettings:
        """The run's options alone: those that were given."""
        names = self.model_fields_set & RunSettings.model_fields.keys()
        return RunSettings(**{name: getattr(self, name) for name in names})


class ReplayReport(Mapping[str, Any]):
    """A report: its members as attributes, and as a mapping."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(members)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._members:
            raise AttributeError(f"a report has no member {name!r}")
        return self._members[name]

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"ReplayReport(run_id={self.run_id!r}, outcome={self.outcome!r}, valid={self.valid!r})"


async def run_nemotron_external_replay(
    *,
    requests: Sequence[Mapping[str, Any]],
    config: NemotronExternalRunnerConfig,
    client: CallerClient | None = None,
    ledger: str | None = None,
) -> tuple[list[dict[str, Any]], ReplayReport]:
    """Put the requests to the model and give ``(results, report)``.

    ``client``: anything with an async ``post(url, json=..., headers=...)`` whose response has
    ``raise_for_status()`` and ``json()``; ours where None. ``ledger``: a URL, made where absent;
    None records in memory. An empty key, or a leak under ``on_leak="abort"``, gives no results, a
    report that is not valid with the code in ``failures``, and makes no call.

    Nothing is signed from here, and a ledger made here has no key: a library writes no private key
    into a home folder unasked. ``replay-ledger keys rotate`` gives the ledger one, and
    ``replay-ledger checkpoint`` signs it.

    Raises ``RunExists`` for a run id that the ledger has, ``NoValidLine`` where no request is one,
    ``LedgerError`` where the ledger fails, ``ValueError`` for a request that JSON cannot hold.
    """
    lines = io.BytesIO(b"".join(_line(number, request) for number, request in enumerate(requests, start=1)))
    plan = RunPlan(
        settings=config.settings(),
        model=config.model,
        base_url=config.base_url,
        actor=config.actor,
        api_key=config.api_key,
        run_id=config.run_id,
        variant=config.variant,
        tags=config.tags,
        description=config.description,
    )
    with open_ledger(ledger or IN_MEMORY, "create") as store:
        adapted = None if client is None else _adapted(client, config)
        outcome = await start_run(store, lines, plan, client=adapted)
        return _read(store, outcome.run_id)


def _read(store: Store, run_id: str) -> tuple[list[dict[str, Any]], ReplayReport]:
    return list(fold_results(store, run_id)), ReplayReport(fold_report(store, run_id))


def _line(number: int, request: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"request {number} cannot be written as JSON: {error}") from None
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair: the intake refuses the line by name, which is better than a crash here.
        return json.dumps(request, separators=(",", ":")).encode("ascii") + b"\n"


def _adapted(client: CallerClient, config: NemotronExternalRunnerConfig) -> AdaptedClient:
    headers = {"Content-Type": "application/json"}
    if config.api_key:
        headers["Authorization"] = f"Bearer {config.api_key}"
    url = Endpoint.parse(config.base_url).url
    return AdaptedClient(client, url, headers, Scrubber([config.api_key] if config.api_key else []))
