"""The entry point of ``replay-ledger``: the verbs under their headings, and how the program ends."""

# ruff: noqa: PLC0415
# Next to nothing is imported before `main`, which first of all hears Ctrl-C: the rest takes half a second.
from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Final

    import click

    from commands._session import Session

PROGRAM: Final = "replay-ledger"
COMPLETION_VARIABLE: Final = "_REPLAY_LEDGER_COMPLETE"
# heading -> verb -> where it is, and the first sentence of its help: to list the verbs, none of them is loaded.
SECTIONS: Final = {
    "Run": {
        "demo": ("commands.demo:demo", "Show the whole thing, without a key and without a network."),
        "prepare": ("commands.prepare:prepare", "Make replay requests from alerts and incidents."),
        "ping": ("commands.ping:ping", "Ask an endpoint, before a long run, whether it will do."),
        "run": ("commands.run:run", "Put each incident of FILE to a model, and record every step."),
        "resume": ("commands.resume:resume", "Go on with a run that was stopped."),
        "abandon": ("commands.abandon:abandon", "End a run for good."),
    },
    "Read": {
        "runs": ("commands.runs:runs", "List the runs of the ledger, newest first."),
        "show": ("commands.show:show", "Show a run's settings and state, or a request's timeline."),
        "results": ("commands.results:results", "Print the results of a run."),
        "report": ("commands.report:report", "Print the report of a run."),
        "report-check": (
            "commands.report_check:report_check",
            "Check that a report is one that was issued, byte for byte, and make it again.",
        ),
        "compare": ("commands.compare:compare", "Hold two runs over the same incidents against each other."),
        "grade": (
            "commands.grade:grade",
            "Hold a run's answers against labels from a file of their own, and print how they stand.",
        ),
    },
    "Prove": {
        "verify": (
            "commands.verify:verify",
            "Check that the record is whole and unaltered, and say what vouches for it.",
        ),
        "checkpoint": (
            "commands.checkpoint:checkpoint",
            "Sign the ledger as it stands, and print the signed note and nothing else.",
        ),
        "keys": ("commands.keys:keys", "Show the key that signs the ledger's checkpoints, or give the ledger another."),
        "prove": ("commands.prove:prove", "Prove that one event is in the ledger that was signed."),
        "bundle": ("commands.bundle:bundle", "Write a zip with which others can check a run without this ledger."),
        "bundle-check": ("commands.bundle_check:bundle_check", "Check an audit bundle, or a proof for one event."),
        "verifier": ("commands.verifier:verifier", "Write verify.py, which checks audit bundles on any machine."),
        "reproduce": (
            "commands.reproduce:reproduce",
            "Decide a run again from its recorded replies, offline, and list each decision that would differ.",
        ),
        "rebuild": ("commands.rebuild:rebuild", "Make the tables that come from the log anew."),
    },
    "Ask": {
        "sql": ("commands.sql:sql", "Ask the ledger in SQL; nothing that is asked can change it."),
    },
    "Operate": {
        "redact": ("commands.redact:redact", "Erase the content of a run, or of one request of it."),
        "hold": ("commands.hold:hold", "Forbid that content is erased, for as long as a court or an audit needs it."),
        "retention": (
            "commands.retention:retention",
            "Say for how many days content must be kept before it may be erased.",
        ),
        "db": ("commands.db:db", "Make a ledger, upgrade its schema, see its state, grant roles, copy it."),
    },
}
_STOPPED: Final = 130


def cli() -> click.Group:
    """The program: every verb under its heading."""
    import click

    from commands._click import Group
    from commands._options import common_options

    @click.group(
        cls=Group,
        sections=SECTIONS,
        params=common_options(ledger=True),
        epilog="Each option may be given as REPLAY_LEDGER_<OPTION> in the environment or in --env-file, or in a "
        "file of options (--config).",
    )
    @click.version_option(package_name=PROGRAM)
    def program() -> None:
        """Replay past incidents through a candidate agent, and keep a record that can be checked again.

        New here? `replay-ledger demo` shows it all without a key or a network.
        """

    return program


def main() -> int:
    """Run the program; the value is its exit code. Ctrl-C ends it with 130 from here to the last byte."""
    _hear(_end_at_once)
    from commands._failures import guarded, occupy_standard_streams, silence_standard_streams
    from commands._session import Session

    program, state = cli(), Session()
    occupy_standard_streams()
    try:
        _hear(signal.default_int_handler)
        code = guarded(state, lambda: _run(program, state))
        _hear(signal.SIG_IGN)  # what was asked for is done: what is left is an instant, and the code is known
    except KeyboardInterrupt:
        _hear(signal.SIG_IGN)
        code = _STOPPED
    silence_standard_streams()
    return code


def _hear(handler: signal.Handlers | Callable[[int, FrameType | None], object]) -> None:
    """Take Ctrl-C so from now on, unless whoever started us wanted it ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    """Nothing is begun yet. An exception would come up in the middle of some import, and not all let it through."""
    try:
        os.write(2, b"Stopped.\n")
    finally:
        os._exit(_STOPPED)


def _run(program: click.Group, state: Session) -> object:
    try:
        return program.main(prog_name=PROGRAM, obj=state, standalone_mode=False)
    except SystemExit as end:
        # Click itself ends the program in two cases: a shell's question about completion was answered,
        # or whoever read the help went away, which is no failure.
        return end.code if COMPLETION_VARIABLE in os.environ else 0


if __name__ == "__main__":
    sys.exit(main())
