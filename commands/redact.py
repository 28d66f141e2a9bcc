"""``redact``: erase the content of a run, or of one request, for good."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from commands._click import Command
from commands._failures import INCOMPLETE, NO, OK, Refused
from commands._ledger import find_run, open_for
from commands._options import accept_clock_option, actor_option, json_option, option, typed_option
from commands._output import counted, is_terminal, json_line, say, write_data
from commands._progress import TerminalLine
from commands._signing import code_after, open_to_append, signed
from commands._types import Identifier, PlainText
from commands._who import who_runs
from ledger.integrity.holds import By
from ledger.integrity.redact import Redacted, Survey, Target, survey
from ledger.integrity.redact import redact as erase
from ledger.store import LedgerError, Store

_COPIES_ELSEWHERE: Final = "Backups, copies, bundles and result files made earlier keep what is in them."
_ON_POSTGRES: Final = (
    "On Postgres the rows that were deleted stay on the server's disk until VACUUM has been over `contents`, "
    "and its WAL archives and replicas keep copies: that is the administrator's to do."
)


@click.command(
    cls=Command,
    examples=[
        "replay-ledger redact --run replay-20261130-204200-1f3c --dry-run",
        "replay-ledger redact --run replay-20261130-204200-1f3c --request INC-1042 --reason gdpr-17 --basis art.17",
        "replay-ledger redact --run replay-20261130-204200-1f3c --reason expired --yes --json",
    ],
)
@option("--run", required=True, metavar="RUN", help="The run whose content goes.")
@option(
    "--request", "request_id", type=Identifier(), metavar="REQUEST", help="Only what belongs to this request of it."
)
@option("--reason", type=Identifier(), metavar="CODE", help="Why, as a code: an id of your own choice. Stays for ever.")
@option(
    "--basis", type=PlainText(), metavar="TEXT", help="The legal basis. Kept with who did it, and not erased itself."
)
@option("--note", type=PlainText(), metavar="TEXT", help="More about it, kept likewise.")
@option("--dry-run", is_flag=True, help="Only say what would go, and whether it may.")
@typed_option("--yes", is_flag=True, help="Erase without asking; the run must then be named by its whole id.")
@json_option
@actor_option
@accept_clock_option
@click.pass_context
def redact(
    ctx: click.Context,
    /,
    run: str,
    request_id: str | None,
    reason: str | None,
    basis: str | None,
    note: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    actor: str | None,
    accept_clock: bool,
) -> int:
    """Erase the content of a run, or of one request of it. This cannot be undone.

    All text goes: the request's line, the bodies sent, the replies, the answer. What is left is what
    a report is made of, so reports keep their bytes and `verify` still passes; it lists the erasure.

    Refused for a run that has not ended, under a legal hold (`hold`), below the retention floor
    (`retention`), and where a trigger that is not ours could keep a copy. A run interrupted half-way
    is finished by the same command again.

    \b
    Exit: 0 erased, or nothing was left to erase; 1 it may not be erased, or you said no; 2 wrong use;
    3 erased, but the file that is named may still hold copies: run it again.
    """
    if dry_run:
        store = open_for(ctx, "read")
        target = Target(find_run(store, run), request_id)
        _tell_survey(survey(store, target), target, as_json=as_json)
        return OK
    reason = _reason(ctx, reason, yes=yes)
    store = open_to_append(ctx, "write", accept_clock=accept_clock)
    target = Target(find_run(store, run), request_id)
    if yes and target.run_id != run:
        raise Refused(f"with --yes the run must be named whole: --run {target.run_id}")
    if not yes and not _confirmed(survey(store, target), target):
        say("Nothing was erased.")
        return NO
    who = who_runs(actor)
    by = By(who.actor, who.operator, who.host, note, basis)
    (done, left), unsigned = signed(ctx, store, lambda: _erase(store, target, reason, by))
    if as_json:
        members = {**target._asdict(), "reason": reason, "actor": by.actor, **done._asdict(), "may_hold_copies": left}
        write_data([json_line(members)])
    _tell_done(store, target, done, left)
    return code_after(OK if left is None else INCOMPLETE, unsigned)


def _reason(ctx: click.Context, reason: str | None, *, yes: bool) -> str:
    """The reason that must be given. Raises where it is not, or where nobody can be asked to confirm."""
    if reason is None:
        raise click.UsageError("Missing option '--reason'.", ctx)
    if not yes and not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise Refused("an erasure cannot be undone: where nobody can be asked, confirm it with --yes")
    return reason


def _erase(store: Store, target: Target, reason: str, by: By) -> tuple[Redacted, str | None]:
    """What was erased, and the file that may still hold copies."""
    so_far = 0

    with TerminalLine(sys.stderr) as line:

        def progress(done: int, total: int) -> None:
            nonlocal so_far
            so_far = done
            line.events(done, total)

        try:
            done = erase(store, target, reason=reason, by=by, progress=progress)
        except LedgerError:
            if so_far:
                contents = counted(so_far, "content was", "contents were")
                say(f"{contents} erased before it stopped; the same command again erases the rest.")
            raise
    # Also where nothing was left to erase: an earlier attempt may have ended before this.
    left = store.erase_traces()
    return done, None if left is None else str(left)


# --- what is said --------------------------------------------------------------------------


def _scope(target: Target) -> str:
    return (
        f"run {target.run_id}" if target.request_id is None else f"request {target.request_id} of run {target.run_id}"
    )


def _lines(found: Survey) -> Iterator[str]:
    for kind, contents, size in found.erasable:
        yield f"  {kind:<20}{contents:>10,} contents{size:>16,} bytes"


def _amount(found: Survey) -> str:
    return f"{counted(found.contents, 'content')}, {counted(found.bytes, 'byte')}"


def _tell_survey(found: Survey, target: Target, *, as_json: bool) -> None:
    if as_json:
        members: dict[str, Any] = {**target._asdict(), "contents": found.contents, "bytes": found.bytes}
        members["erasable"] = [item._asdict() for item in found.erasable]
        write_data([json_line(members)])
        return
    if not found.contents:
        say(f"Nothing is left to erase of {_scope(target)}.")
        return
    say(f"This would be erased of {_scope(target)}: {_amount(found)}.")
    for line in _lines(found):
        say(line)


def _confirmed(found: Survey, target: Target) -> bool:
    if not found.contents:
        return True
    say(f"To be erased of {_scope(target)}, for good: {_amount(found)}.")
    for line in _lines(found):
        say(line)
    return click.confirm("Erase them?", err=True)


def _tell_done(store: Store, target: Target, done: Redacted, left: str | None) -> None:
    if done.contents:
        are = "is" if done.contents == 1 else "are"
        say(f"{counted(done.contents, 'content')} of {_scope(target)} {are} erased.")
        for text in (_ON_POSTGRES, _COPIES_ELSEWHERE) if store.dialect == "postgresql" else (_COPIES_ELSEWHERE,):
            say(text)
    else:
        say(f"Nothing was left to erase of {_scope(target)}.")
    if left is not None:
        say(f"{left} may still hold copies of what was erased: another program reads the ledger, or there is no room.")
        say("End those programs, or make room for the file twice, and run the same command again.")
