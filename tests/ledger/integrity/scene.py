"""The scene of the tamper matrix: one ledger at three moments, its signer's store, and what an auditor keeps elsewhere.

    older     run-1 has ended and was signed                                            264 events
    covered   a second run, a report, an erasure; signed, and the auditor took a copy    281 events
    grown     a third run, appended from a host without the key, so unsigned            292 events

and a second ledger, of another name. Each is a SQLite file; on Postgres it is a copy of that file's ledger, so
what is found must be the same, place by place.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sqlalchemy.engine import make_url

from ledger import copy_ledger
from ledger.events import LEDGER_RUN_ID, Counts, IntakeCompleted, LedgerCreated, NewEvent, RunCompleted, new_event
from ledger.integrity.anchors import SIGNERS_STORE, Anchor
from ledger.integrity.note import VerifierKey, parse_vkey
from ledger.integrity.signer import Signer, key_for_new_ledger
from ledger.integrity.signer_store import SignerStore
from ledger.integrity.verdict import Verdict
from ledger.integrity.verify import verify
from ledger.projections.tables import fold
from ledger.store import Store, open_store
from tests import stories
from tests.harness import postgres
from tests.ledger.integrity.small import ORIGIN, clean_run, redaction
from tests.ledger.integrity.tampering import drop_triggers, owner, restore, save
from tests.ledger.store.making import Clock

Moment = Literal["older", "covered", "grown", "other", "bare"]
By = Literal["none", "store", "kept"]
"""The anchor: none, the signer's store, a checkpoint kept elsewhere since before."""

OTHER_ORIGIN = "ledger.example/other"
KEPT_ELSEWHERE = "the file kept-elsewhere.txt"

# Positions. Run-1 has 65 requests, so that a node over 256 leaves is there.
REQUESTS = 65
ACCEPTED = 2  # + n: RequestAccepted of INC-n
CALLS = 65 + 3  # + 3n-2, 3n-1, 3n: ModelCallStarted, ModelCalled, OutputAccepted of INC-n
RUN_1_END = CALLS + 3 * REQUESTS + 1
OLDER = RUN_1_END
RETRIED, FALLBACK = OLDER + 8, OLDER + 14
REPORT, REDACTION = OLDER + 16, OLDER + 17
COVERED = REDACTION
GROWN = COVERED + 11
ERASED = ACCEPTED + 2  # INC-2's line


def outputs_of(request: int) -> int:
    """The position of OutputAccepted of run-1's request INC-n."""
    return CALLS + 3 * request


class Target(NamedTuple):
    """One copy of the ledger, to be tampered with, and what vouches for it."""

    url: str
    signers: Path
    kept: str
    vkey: str
    sides: Path

    @property
    def key(self) -> VerifierKey:
        return parse_vkey(self.vkey)

    @property
    def signer(self) -> SignerStore:
        """The signer's store of this copy."""
        return SignerStore(self.signers, ORIGIN)

    def side(self, moment: Moment) -> str:
        """The URL of the ledger as it was at another moment, or of the other one; a file, only to be read."""
        return f"sqlite:///{self.sides / f'{moment}.db'}"

    def open(self, mode: Literal["read", "write"], clock: Clock | None = None) -> Store:
        return open_store(self.url, mode, fold=fold, clock=clock, even_damaged=mode == "read")

    def judged(self, *by: By) -> list[Verdict]:
        """The verdicts by somebody who knows the ledger's key, and has each of these anchors in turn."""
        with self.open("read") as store:
            return [verify(store, keys=[self.key], anchors=self._anchors(anchor)) for anchor in by]

    def _anchors(self, by: By) -> list[Anchor]:
        if by == "kept":
            return [Anchor(self.kept, KEPT_ELSEWHERE)]
        last = self.signer.last() if by == "store" else None
        return [] if last is None else [Anchor(last, SIGNERS_STORE)]


class Scene:
    """The ledgers, made once; ``target`` gives a copy of one."""

    def __init__(self, folder: Path, requests: int = REQUESTS) -> None:
        self._folder = folder
        self.sides = folder / "sides"
        self.sides.mkdir()
        self._build(requests)
        self._server: postgres.Server | None = None
        self._databases: dict[Moment, str] = {}

    def on(self, server: postgres.Server) -> Scene:
        """The same ledgers, copied to a server."""
        moved = copy(self)
        moved._server, moved._databases = server, {}
        moved._folder = self._folder / "on-server"
        shutil.copytree(self._folder / "signers", moved._folder / "signers")
        return moved

    @contextmanager
    def target(self, moment: Moment) -> Iterator[Target]:
        """The ledger as it was, to be tampered with, and a signer's store beside it; one at a time."""
        signers = self._folder / "copied-signers"
        shutil.rmtree(signers, ignore_errors=True)
        shutil.copytree(self._folder / "signers", signers)
        url = self._on_file(moment) if self._server is None else self._on_postgres(self._server, moment)
        yield Target(url, signers, self.kept, self.vkey, self.sides)

    def bare(self) -> Target:
        """The covered ledger without triggers, and the one signer's store: to be changed a thousand times."""
        if self._server is not None:
            url = self._on_postgres(self._server, "covered", guarded=False)
        else:
            without = self._path("bare")
            if not without.exists():
                shutil.copyfile(self._path("covered"), without)
                with owner(f"sqlite:///{without}") as connection:
                    drop_triggers(connection)
            url = self._on_file("bare")
        return Target(url, self._folder / "signers", self.kept, self.vkey, self.sides)

    @property
    def on_postgres(self) -> bool:
        return self._server is not None

    def close(self) -> None:
        """Drop what a server would keep."""
        for url in self._databases.values():
            assert self._server is not None
            self._server.drop_database(make_url(url))

    def _on_file(self, moment: Moment) -> str:
        path = self._folder / "copy.db"
        for part in ("-wal", "-shm", ""):
            path.with_name(path.name + part).unlink(missing_ok=True)
        shutil.copyfile(self._path(moment), path)
        return f"sqlite:///{path}"

    def _on_postgres(self, server: postgres.Server, moment: Moment, *, guarded: bool = True) -> str:
        """The one database of this moment, as it was: to copy one for each attack would take half a second."""
        if moment not in self._databases:
            url: str = server.create_database().render_as_string(hide_password=False)
            copy_ledger(f"sqlite:///{self._path(moment)}", url)
            save(url)
            self._databases[moment] = url
        restore(self._databases[moment], guarded=guarded)
        return self._databases[moment]

    def _build(self, requests: int) -> None:
        clock, kept = Clock(), SignerStore(self._folder / "signers", ORIGIN)
        self.vkey = str(key_for_new_ledger(kept))
        with _begun(self._path("older"), ORIGIN, clock, self.vkey) as store:
            slowly(store, clean_run("run-1", requests), clock)
            Signer(kept).sign(store)
        with self._after("older", "covered", clock) as store:
            slowly(store, tuned_run("run-2"), clock)
            store.append([new_event(stories.report_issued(as_of=store.version("run-1") + 1), run_id="run-1")])
            store.append([redaction(ERASED)])
            self.kept = Signer(kept).sign(store).note
            self.size = store.head().size
        with self._after("covered", "grown", clock) as store:
            slowly(store, clean_run("run-3", 2), clock)
        with _begun(self._path("other"), OTHER_ORIGIN, clock, None) as store:
            slowly(store, clean_run("run-1", requests), clock)

    def _path(self, moment: Moment) -> Path:
        return self.sides / f"{moment}.db"

    @contextmanager
    def _after(self, before: Moment, moment: Moment, clock: Clock) -> Iterator[Store]:
        shutil.copyfile(self._path(before), self._path(moment))
        with open_store(f"sqlite:///{self._path(moment)}", "write", fold=fold, clock=clock) as store:
            yield store


def _begun(path: Path, origin: str, clock: Clock, vkey: str | None) -> Store:
    created = new_event(LedgerCreated(format=1, software_version="0", vkey=vkey), run_id=LEDGER_RUN_ID)
    return open_store(f"sqlite:///{path}", "create", fold=fold, clock=clock, origin=origin, created=created)


def slowly(store: Store, events: list[NewEvent], clock: Clock) -> None:
    """Append a few at a time, half a minute between."""
    for at in range(0, len(events), 4):
        clock.pass_(seconds=30)
        store.append(events[at : at + 4])


def tuned_run(run_id: str) -> list[NewEvent]:
    """Two requests: one answered well when it was asked again, one refused and given the fallback."""
    events: list[NewEvent] = []

    def say(payload: Any, request_id: str | None = None, content: str | None = None) -> None:
        events.append(new_event(payload, run_id=run_id, request_id=request_id, content=content))

    say(stories.started(variant="nemo_nemotron_fabric__contract_tuned_v1"), content='{"host":"h1"}')
    for line, name in enumerate(("INC-1", "INC-2"), 1):
        say(stories.accepted(line, name), name, f'{{"incident_id":"{name}"}}')
    intake = {"lines": 2, "accepted": 2, "rejected": 0, "leaking": 0}
    say(IntakeCompleted(**intake, input_sha256=stories.digest("input"), selection=None))
    broken = "model_output_invalid_json"
    say(stories.call_started(1), "INC-1", '{"messages":[]}')
    say(stories.called(1), "INC-1", '{"choices":[]}')
    say(stories.ParseFailed(turn=1, code=broken, fields=[]), "INC-1")
    say(stories.Retried(turn=2, code=broken), "INC-1")
    say(stories.call_started(2, turn=2), "INC-1", '{"messages":[]}')
    say(stories.called(2, turn=2), "INC-1", '{"choices":[]}')
    say(stories.output_accepted(turn=2), "INC-1", stories.output_text(stories.output_accepted(turn=2)))
    say(stories.call_started(1), "INC-2", '{"messages":[]}')
    say(stories.call_failed(1, "http_400", http_status=400), "INC-2", "bad request")
    say(stories.FallbackApplied(code="http_400", turn=1), "INC-2")
    counts = dict.fromkeys(Counts.model_fields, 0)
    counts |= {"requests": 2, "accepted_after_retry": 1, "fallback_records": 1}
    say(RunCompleted(outcome="completed", counts=Counts(**counts)))
    return events
