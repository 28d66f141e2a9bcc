"""``bundle-check FILE``: what the standalone verifier says, run by us."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import as_file, files

import click

from commands._anchors import given_keys
from commands._click import Command
from commands._options import option


@click.command(
    "bundle-check",
    cls=Command,
    ledger=False,
    examples=[
        "replay-ledger bundle-check audit-r1.zip --key ledger.vkey --checkpoint checkpoint-2026-11-30.txt",
        "replay-ledger bundle-check 17.tlog-proof --key ledger.vkey --checkpoint checkpoint-2026-11-30.txt",
    ],
)
@click.argument("file", metavar="FILE", type=click.Path())
@option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="VKEY|FILE",
    help="The ledger's public key, or a file that holds it, from where you kept it. Repeatable.",
)
@option("--checkpoint", metavar="FILE", help="A signed checkpoint that you kept, or were given by another way.")
@option(
    "--consistency",
    metavar="FILE",
    help="Where your checkpoint is larger than FILE's: the proof between them, made by `prove --consistency`.",
)
@option(
    "--max-window",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Events at the end that your checkpoint may leave uncovered.",
)
def bundle_check(
    file: str, keys: tuple[str, ...], checkpoint: str | None, consistency: str | None, max_window: int
) -> int:
    """Check an audit bundle, or a proof for one event.

    No ledger is needed. This runs verify.py, the file that `verifier` writes; whoever trusts
    neither this machine nor this program runs that one elsewhere.

    \b
    Exit: 0 PASS; 1 FAIL, something does not match; 2 wrong use; 3 INCOMPLETE, nothing is
    wrong but something is unproven.
    """
    words = [f"--key={key}" for key in given_keys(keys)]
    words += [f"--checkpoint={checkpoint}"] if checkpoint is not None else []
    words += [f"--consistency={consistency}"] if consistency is not None else []
    with as_file(files("ledger.bundle").joinpath("verifier.py")) as program:
        command = [sys.executable, "-I", "-S", str(program), *words, f"--max-window={max_window}", "--", file]
        code = subprocess.run(command, check=False).returncode  # noqa: S603 - our own program, options after `=`, no shell
    return code if code >= 0 else 128 - code
