"""``verifier``: the program that checks a bundle without us, to be given to whoever checks."""

from __future__ import annotations

from hashlib import sha256

import click

from commands._click import Command
from commands._options import out_option
from commands._output import STDOUT, say, write_data
from ledger.bundle.build import verifier as read_verifier


@click.command(
    cls=Command,
    ledger=False,
    examples=["replay-ledger verifier --out verify.py", "replay-ledger verifier > verify.py"],
)
@out_option
def verifier(out: str | None) -> None:
    """Write verify.py, which checks audit bundles on any machine.

    One file that needs Python 3.11 and nothing else, short enough to be read. Its SHA-256 is
    printed: compare it with the one that the release published. It is not in the bundles, since
    nobody should run a program that came with what is being checked.
    """
    program = read_verifier()
    write_data([program], out)
    digest = sha256(program).hexdigest()
    if out is None or out == STDOUT:
        say(f"SHA-256 {digest}")
    else:
        write_data([f"{digest}  {out}\n".encode("utf-8", "backslashreplace")])
