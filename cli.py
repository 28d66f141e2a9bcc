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
SECTIONS: Final = {
    "Run": {
        "demo": "commands.demo:demo",
        "prepare": "commands.prepare:prepare",
        "ping": "commands.ping:ping",
        "run": "commands.run:run",
        "resume": "commands.resume:resume",
        "abandon": "commands.abandon:abandon",
    },
    "Read": {
        "runs": "commands.runs:runs",
        "show": "commands.show:show",
        "results": "commands.results:results",
        "report": "commands.report:report",
        "report-check": "commands.report_check:report_check",
        "compare": "commands.compare:compare",
        "grade": "commands.grade:grade",
    },
    "Prove": {
        "verify": "commands.verify:verify",
        "checkpoint": "commands.checkpoint:checkpoint",
        "keys": "commands.keys:keys",
        "prove": "commands.prove:prove",
        "bundle": "commands.bundle:bundle",
        "bundle-check": "commands.bundle_check:bundle_check",
        "verifier": "commands.verifier:verifier",
        "reproduce": "commands.reproduce:reproduce",
        "rebuild": "commands.rebuild:rebuild",
    },
    "Ask": {
        "sql": "commands.sql:sql",
    },
    "Operate": {
        "redact": "commands.redact:redact",
        "hold": "commands.hold:hold",
        "retention": "commands.retention:retention",
        "db": "commands.db:db",
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
