"""Where output goes: data to standard output or to a file, whole or not at all; text to standard error."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast

import click
import orjson

from commands._out_files import OutputRefused, refuse_databases, refuse_signers_files
from ledger.render.safe import terminal

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT: Final = "-"
REPORT_EXTENSIONS: Final = {
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".txt": "text",
    ".md": "md",
    ".xml": "junit",
}
"""What a file of a report, or of grades, is by its extension."""
JSON_LINES_EXTENSIONS: Final = (".jsonl", ".ndjson")
"""What a file that can be nothing but JSON lines may be called, if its name has an extension."""
_DEVICES: Final = ("/dev/fd/", "/dev/std", "/proc/")
_NAMES_OF_STDOUT: Final = frozenset({STDOUT, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})


class ReaderGone(Exception):
    """Who read our standard output has seen enough: `report | head`. Not an error."""


class StandardOutputClosed(Exception):
    """There is nowhere to write the data to."""

    exit_code = 2


def say(*lines: str, **style: Any) -> None:
    """Lines for a person, to standard error: escaped, so that nothing in them acts on the terminal.

    A line break within a line is escaped too: it came with a name or a value, and what follows it would
    pass for words of ours. ``style`` is ``click.style``'s. That nobody reads it is no failure.
    """
    shown = "\n".join(map(terminal, lines))
    if style and wants_colour(sys.stderr, os.environ):
        shown = click.style(shown, **style)
    with contextlib.suppress(OSError, ValueError):
        click.echo(shown, err=True, color=True)


def counted(number: int, one: str, many: str | None = None) -> str:
    """So many of what, in words. ``many``: what more than one are called, where that is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def wants_colour(stream: TextIO | None, environment: Mapping[str, str]) -> bool:
    """No colour where ``NO_COLOR`` is set and not empty (no-color.org), and none outside a terminal."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def json_line(value: object) -> bytes:
    """One line of JSON for a machine. Not canonical: what is hashed is never made here."""
    return orjson.dumps(value) + b"\n"


def format_for(
    out: str | None, extensions: Mapping[str, str], *, terminal: str, otherwise: str, stream: TextIO | None
) -> str:
    """The format that nobody named: by the file's extension, else by who reads standard output.

    A device or a pipe has no extension to go by. Raises ``OutputRefused`` for a file whose extension says nothing:
    what is in it would be told by nobody.
    """
    if out is None or out == STDOUT:
        return terminal if is_terminal(stream) else otherwise
    if (form := extensions.get(Path(out).suffix.lower())) is not None:
        return form
    if not _may_be_a_file(Path(out)):
        return otherwise
    refuse_databases(out)
    refuse_signers_files(out)
    raise OutputRefused(
        f"--out: {out} does not say by its extension what it is to be: {', '.join(extensions)}; "
        "or name the form with --format"
    )


def refuse_other_forms(option: str, out: str | None) -> None:
    """Raise ``OutputRefused`` where a file that gets JSON lines is by its extension something else.

    A name without an extension says nothing, and is taken.
    """
    if out is None or out == STDOUT:
        return
    suffix = Path(out).suffix
    if suffix == "" or suffix.lower() in JSON_LINES_EXTENSIONS or not _may_be_a_file(Path(out)):
        return
    raise OutputRefused(
        f"{option}: {out} would be JSON lines, and its extension says something else: "
        f"give it {' or '.join(JSON_LINES_EXTENSIONS)}, or none"
    )


def _may_be_a_file(out: Path) -> bool:
    """Whether it is named as a file, there already or not; an open file by its number is not, wherever it leads."""
    named = os.path.abspath(out)  # noqa: PTH100 - no links followed
    return not named.startswith(_DEVICES) and (out.is_file() or not out.exists())


def write_data(chunks: Iterable[bytes], out: str | None = None) -> None:
    """Write data to standard output, or to the file ``out``: a whole file takes its place or none."""
    with opened_out(out) as file:
        for chunk in chunks:
            file.write(chunk)


@contextlib.contextmanager
def opened_out(out: str | None) -> Iterator[BinaryIO]:
    """Where data goes: standard output for None and ``-``, else a file that replaces ``out`` at the end.

    A file and a pipe get the bytes as they are; on a terminal nothing in them acts. Raises
    ``ReaderGone`` where nobody reads any more, ``OutputRefused`` where ``out`` belongs to a ledger,
    ``OSError`` bearing a name where it cannot be written.
    """
    with _stdout() if out is None or out in _NAMES_OF_STDOUT else replacing(Path(out)) as file:
        yield file


@contextlib.contextmanager
def _stdout() -> Iterator[BinaryIO]:
    if sys.stdout is None:
        raise StandardOutputClosed("standard output is closed; write to a file with --out")
    try:
        if is_terminal(sys.stdout):
            with _Shown(sys.stdout.buffer) as shown:
                yield cast(BinaryIO, shown)
        else:
            yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, "standard output") from None


class _Shown(io.BufferedIOBase):
    """Lines of UTF-8 on their way to a terminal: whatever in a line would act on it or hide is escaped.

    Nothing is cut. A line goes out once it is whole, the last one at the end.
    """

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._begun: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        data = bytes(data)
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._show(line, b"\n")
        if rest:
            self._begun.append(rest)
        return len(data)

    def close(self) -> None:
        if self._begun and not self.closed:
            self._show(b"", b"")
        super().close()

    def _show(self, end_of_line: bytes, newline: bytes) -> None:
        line = b"".join((*self._begun, end_of_line)).removesuffix(b"\r")
        self._begun.clear()
        self._target.write(terminal(line.decode("utf-8", "replace")).encode("utf-8") + newline)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` once all of it is on the disk; until then nothing changes.

    A device or a pipe is written to as it is. Raises ``OSError`` bearing the name that was given,
    ``OutputRefused`` where it is a database or belongs to one, or is a signer's, ``ReaderGone`` where
    nobody reads the pipe any more.
    """
    target = Path(os.path.realpath(path))
    try:
        refuse_databases(path)
        refuse_signers_files(path)
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            # By the name that was given: the real one of a pipe among /dev/fd is no place in the file system.
            with path.open("wb") as direct:
                yield direct
            return
        with _beside(target) as file:
            yield file
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        if error.filename in (None, str(target)) or str(error.filename).startswith(str(target.parent)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[BinaryIO]:
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
