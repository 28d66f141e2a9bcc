"""``--out FILE`` of a run: its report and results in files, each by its extension, once it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from commands._failures import STOPPED, UNAVAILABLE, Refused, explain
from commands._ledger import typed_again
from commands._options import STDIN, F, option
from commands._out_files import OutputRefused, refuse_databases, refuse_shared, refuse_signers_files, refuse_unwritable
from commands._output import REPORT_EXTENSIONS, STDOUT, ReaderGone, say, write_data
from commands._session import Session
from ledger.render.issue import Rendering, rendering
from ledger.store import Store

_BY_EXTENSION: Final = {
    **{extension: ("report", form) for extension, form in REPORT_EXTENSIONS.items()},
    ".jsonl": ("results", "jsonl"),
    ".csv": ("results", "csv"),
}


def out_files_option(command: F) -> F:
    """``--out``, as often as wanted."""
    return option(
        "--out",
        "outs",
        multiple=True,
        metavar="FILE",
        help=f"After the run, however it ends, write its report or results to FILE, by its extension: "
        f"{', '.join(_known())}. May be repeated.",
    )(command)


def check_out_files(outs: Sequence[str], *, file: str | None) -> None:
    """Raise ``Refused`` for an extension that says nothing, ``OutputRefused`` for a file that must stay.

    Before anything is called: it would be a pity afterwards. ``file``: the input.
    """
    for out in outs:
        if out == STDOUT:
            raise Refused("--out: names a file; --format prints the report on standard output")
        _rendering(out)
        if not Path(out).absolute().parent.is_dir():
            raise Refused(f"--out: there is no folder for {out}")
        refuse_databases(out)
        refuse_signers_files(out)
        refuse_unwritable(out)
    inputs = {"the input": None if file == STDIN else file}
    refuse_shared(inputs, {f"--out (the {place}. one)": out for place, out in enumerate(outs, start=1)})


def write_out_files(state: Session, store: Store, run_id: str, outs: Iterable[str]) -> bool:
    """Write each file, whole or not at all; give whether all could be.

    The run is recorded by now: one that cannot be written is told with what writes it later, and the others follow.
    """
    written = True
    for out in outs:
        of = _rendering(out)
        try:
            write_data(of.render(store, run_id, None), out)
        except ReaderGone:  # a pipe: who reads it has seen enough
            continue
        except (OSError, OutputRefused) as error:
            written = False
            say(state.scrub(f"Error: {explain(error)[0]}"))
            say(f"The run is recorded. To write it: {typed_again(state, of.kind, run_id, '--out', out)}")
        else:
            say(f"Wrote:  {out} ({of.kind})")
    return written


def code_where_unwritten(code: int) -> int:
    """The exit code of a run of which a file is missing: that a signal stopped it still comes first."""
    return code if code in STOPPED.values() else UNAVAILABLE


def _known() -> Iterator[str]:
    """The extensions of formats that there are, each with what it is."""
    for extension, (kind, form) in _BY_EXTENSION.items():
        try:
            rendering(kind, form)
        except KeyError:
            continue
        yield f"{extension} ({kind})"


def _rendering(out: str) -> Rendering:
    try:
        return rendering(*_BY_EXTENSION[Path(out).suffix.lower()])
    except KeyError:
        raise Refused(f"--out: {out} does not say by its extension what it is to be: {', '.join(_known())}") from None
