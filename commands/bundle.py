"""``bundle RUN``: one run with all that shows it to be whole, in a zip for an auditor."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import click

from commands._click import Command
from commands._failures import OK, Refused
from commands._ledger import find_run, open_for
from commands._options import accept_clock_option, actor_option, option, run_argument
from commands._out_files import refuse_databases, refuse_signers_files
from commands._output import STDOUT, replacing, say
from commands._signing import code_after, open_to_append, signed, signer_for
from commands._who import who_runs
from ledger.bundle.build import write_bundle
from ledger.integrity.proof import covering_checkpoint
from ledger.integrity.signer import Signer
from ledger.render.issue import Rendering, issue, issued, last_consumed, rendering
from ledger.store import Store
from ledger.store.errors import LedgerBusy

_REPORTS: Final = {
    "report.json": ("report", "json"),
    "results.jsonl": ("results", "jsonl"),
    "report.html": ("report", "html"),
}
_ATTEMPTS: Final = 5
_CHUNK: Final = 2**20


@click.command(
    cls=Command,
    examples=[
        "replay-ledger bundle latest",
        "replay-ledger bundle replay-20261130-204200-1f3c --out /evidence/2026-11-30.zip",
    ],
)
@run_argument
@option(
    "--out",
    metavar="FILE",
    help="Write to FILE; it is replaced only once all is written. [default: audit-RUN.zip in the working "
    "directory, where another bundle is never replaced]",
)
@actor_option
@accept_clock_option
@click.pass_context
def bundle(ctx: click.Context, /, run: str, out: str | None, actor: str | None, accept_clock: bool) -> int:
    """Write a zip with which others can check a run without this ledger.

    It holds every event of the run with the evidence that has not been erased, the events about the
    ledger itself, the hashes of all others, a signed checkpoint, and the reports as json, jsonl and
    html. The reports are issued first, then the ledger is signed, so this appends; with the same
    ledger it gives the same bytes. Where the key is not at hand, nothing is appended: a stored
    checkpoint that covers it all is used, or it is refused.
    """
    signer = signer_for(ctx, open_for(ctx, "read"))
    store = open_for(ctx, "read") if signer is None else open_to_append(ctx, "write", accept_clock=accept_clock)
    run_id = find_run(store, run)
    target = _target(out, run_id)
    with contextlib.ExitStack() as files:
        if signer is None:
            made, note = _as_it_was_signed(store, run_id, files)
        else:
            made, note = _issued_and_signed(ctx, store, run_id, signer, who_runs(actor).actor, files)
        reports = {name: report.chunks() for name, report in made.items()}
        _write(target, lambda file: write_bundle(store, run_id, note, reports, file), replace=out is not None)
    with target.open("rb") as file:
        say(f"{target}: run {run_id} under the checkpoint of {_size(note)} events.")
        say(f"SHA-256 {file_digest(file, 'sha256').hexdigest()}")
    return OK


class _Made(NamedTuple):
    """A report in a file of its own, ready to be issued and bundled."""

    of: Rendering
    as_of_position: int
    sha256: str
    file: BinaryIO

    def chunks(self) -> Iterator[bytes]:
        self.file.seek(0)
        while chunk := self.file.read(_CHUNK):
            yield chunk


def _make(store: Store, run_id: str, files: contextlib.ExitStack) -> dict[str, _Made]:
    """The three reports, all as of the run's last event."""
    position, made = last_consumed(store, run_id), {}
    for name, (kind, form) in _REPORTS.items():
        file = cast(BinaryIO, files.enter_context(tempfile.TemporaryFile()))  # noqa: SIM115 - closed by the stack
        of, digest = rendering(kind, form), sha256()
        for chunk in of.render(store, run_id, position):
            file.write(chunk)
            digest.update(chunk)
        made[name] = _Made(of, position, digest.hexdigest(), file)
    return made


# --- with the key --------------------------------------------------------------------------

_WENT_ON_SQL: Final = """
SELECT count(*) FROM events WHERE position > :before AND position <= :size
  AND (type = 'ContentRedacted' OR (run_id = :run_id AND type NOT IN ('ReportIssued', 'GradesRecorded')))
"""


def _issued_and_signed(
    ctx: click.Context, store: Store, run_id: str, signer: Signer, actor: str, files: contextlib.ExitStack
) -> tuple[dict[str, _Made], str]:
    """The reports, issued, and a checkpoint over them; once more where the run goes on meanwhile, or text is erased."""
    for _ in range(_ATTEMPTS):
        before = store.head().size
        made = _make(store, run_id, files)
        _, unsigned = signed(ctx, store, partial(_issue, store, run_id, made, actor))
        code_after(OK, unsigned)
        checkpoint = signer.sign(store)
        bounds = {"before": before, "size": checkpoint.size, "run_id": run_id}
        if next(iter(store.rows(_WENT_ON_SQL, bounds))) == (0,):
            return made, checkpoint.note
    raise LedgerBusy(f"run {run_id} goes on faster than its reports can be made; try again once it has ended")


def _issue(store: Store, run_id: str, made: dict[str, _Made], actor: str) -> None:
    for report in made.values():
        issue(store, run_id, report.of, as_of_position=report.as_of_position, sha256=report.sha256, actor=actor)


# --- without it ----------------------------------------------------------------------------


def _as_it_was_signed(store: Store, run_id: str, files: contextlib.ExitStack) -> tuple[dict[str, _Made], str]:
    """The reports, which must have been issued, and the newest stored checkpoint, which must cover them."""
    made = _make(store, run_id, files)
    last = 0
    for name, report in made.items():
        before = [item.position for item in issued(store, report.sha256) if item.run_id == run_id]
        if not before:
            raise _needs_key(f"{name} as it is now was never issued")
        last = max(last, before[0], report.as_of_position)
    checkpoint = covering_checkpoint(store, last)
    if checkpoint is None:
        raise _needs_key("no stored checkpoint covers the run and its issued reports")
    return made, checkpoint.note


def _needs_key(why: str) -> Refused:
    return Refused(f"the ledger's key is not at hand here, and {why}: run `replay-ledger bundle` where the key is")


# --- the file ------------------------------------------------------------------------------


def _target(out: str | None, run_id: str) -> Path:
    target = Path(f"audit-{run_id}.zip" if out is None else out)
    if out == STDOUT or (target.exists() and not target.is_file()):
        raise Refused(f"{target}: a bundle is written to a file")
    if not target.parent.is_dir():
        raise Refused(f"{target.parent}: there is no such folder")
    refuse_databases(target)
    refuse_signers_files(target)
    return target


def _write(target: Path, write: Callable[[BinaryIO], None], *, replace: bool) -> None:
    """Write the bundle, whole or not at all. One that is there already is kept unless ``replace``."""
    if replace or not target.exists():
        with replacing(target) as file:
            write(file)
        return
    with tempfile.TemporaryFile() as other:
        write(cast(BinaryIO, other))
        other.seek(0)
        with target.open("rb") as file:
            if file_digest(file, "sha256").digest() != file_digest(other, "sha256").digest():
                raise Refused(f"{target} is another bundle; move it away, or name this one with --out")


def _size(note: str) -> str:
    return note.split("\n")[1]
