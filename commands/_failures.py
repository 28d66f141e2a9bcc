"""The one place where what went wrong becomes a message and an exit code.

0 fine; 1 the answer is no; 2 wrong use or bad input; 3 incomplete; 4 the endpoint or the database
could not be reached, refused us, is full, read-only or newer; 130 and 143 stopped by a signal.
A failure that nobody foresaw ends with 4 as well: nothing was judged, so it must not read as a no.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Final

import click

from commands._output import ReaderGone, say
from commands._session import Session

OK: Final = 0
NO: Final = 1
WRONG_USE: Final = 2
INCOMPLETE: Final = 3
UNAVAILABLE: Final = 4
STOPPED: Final = {"SIGINT": 130, "SIGTERM": 143}

_STORAGE_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})


class Refused(click.ClickException):
    """Wrong use or bad input; the message names the place. ``lines`` are those it is shown in."""

    exit_code = WRONG_USE

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def guarded(state: Session, work: Callable[[], object]) -> int:
    """Do the work and give the program's exit code; whatever it raises is told in one line."""
    try:
        result = work()
    except ReaderGone:
        return OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("Stopped.")
        return STOPPED["SIGINT"]
    except click.UsageError as error:
        _tell_usage(state, error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - nothing is swallowed: each is told, with a code
        return _tell(state, error)
    return result if isinstance(result, int) else OK


def _tell_usage(state: Session, error: click.UsageError) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(*error.format_message().split("\n"))
        return
    if error.ctx is not None:
        say(*error.ctx.get_usage().split("\n"))
        say(f"Try '{error.ctx.command_path} --help' for help.")
    message = f"Error: {error.format_message()}"
    # What is missing is told in lines of click's own, and with no value in them.
    say(*map(state.scrub, message.split("\n") if isinstance(error, click.MissingParameter) else [message]))


def _tell(state: Session, error: Exception) -> int:
    message, code = explain(error)
    if state.debug:
        say(*map(state.scrub, "".join(traceback.format_exception(error)).rstrip().split("\n")))
    if message is None:
        lines = [f"Unexpected error: {type(error).__name__}: {error}"]
        if not state.debug:
            lines.append("This is a fault of replay-ledger's own; with --debug it prints the traceback.")
    else:
        first, *more = getattr(error, "lines", (message,))
        lines = [f"Error: {first}", *more]
    say(*map(state.scrub, lines))
    return code


def explain(error: BaseException) -> tuple[str | None, int]:
    """(message, exit code) of an exception; the message is None where nobody foresaw it."""
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, BaseExceptionGroup) and error.exceptions:
        return explain(error.exceptions[0])
    own_code = getattr(error, "exit_code", None)
    if isinstance(own_code, int):
        return str(error), own_code
    if isinstance(error, OSError) and error.errno is not None:
        return _explain_os_error(error)
    if isinstance(error, MemoryError):
        return "out of memory", UNAVAILABLE
    return None, UNAVAILABLE


def _explain_os_error(error: OSError) -> tuple[str, int]:
    number = error.errno or 0
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    reason = os.strerror(number).lower()
    code = UNAVAILABLE if name is None or number in _STORAGE_ERRNOS else WRONG_USE
    return (f"{name}: {reason}" if name else reason), code


def occupy_standard_streams() -> None:
    """Open the null device where a standard stream is closed.

    Otherwise a database's socket or file would get that number, and a stray print would go into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def silence_standard_streams() -> None:
    """Keep the interpreter's last flush from complaining about a reader that went away."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
