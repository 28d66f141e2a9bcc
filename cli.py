"""The entry point of ``replay-ledger``: the verbs under their headings, and how the program ends."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from commands._click import Group
from commands._failures import OK, guarded, occupy_standard_streams, silence_standard_streams
from commands._options import common_options
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


@click.group(
    cls=Group,
    sections=SECTIONS,
    params=common_options(ledger=True),
    epilog="Each option may be given as REPLAY_LEDGER_<OPTION> in the environment, or in --env-file.",
)
@click.version_option(package_name=PROGRAM)
def cli() -> None:
    """Replay past incidents through a candidate agent, and keep a record that can be checked again.

    New here? `replay-ledger demo` shows it all without a key or a network.
    """


def main() -> int:
    """Run the program; the value is its exit code."""
    occupy_standard_streams()
    state = Session()
    code = guarded(state, lambda: _run(state))
    silence_standard_streams()
    return code


def _run(state: Session) -> object:
    try:
        return cli.main(prog_name=PROGRAM, obj=state, standalone_mode=False)
    except SystemExit as end:
        # Click itself ends the program in two cases: a shell's question about completion was answered,
        # or whoever read the help went away, which is no failure.
        return end.code if COMPLETION_VARIABLE in os.environ else OK


if __name__ == "__main__":
    sys.exit(main())
