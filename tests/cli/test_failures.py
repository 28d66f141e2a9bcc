"""One place maps what went wrong to a message and an exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from commands._failures import Refused, guarded
from commands._output import ReaderGone
from commands._session import Session
from ledger.store.errors import LedgerFull, LedgerNotFound, RunLocked
from runner.plan import KeyMissing, RunExists
from tests.cli.program import Program


def raising(error: BaseException) -> Callable[[], object]:
    def work() -> object:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Refused("no such run"), 2, "Error: no such run\n"),
        (click.UsageError("no such option"), 2, "Error: no such option\n"),
        (LedgerNotFound("no ledger there"), 4, "Error: no ledger there\n"),
        (LedgerFull("the disk is full"), 4, "Error: the disk is full\n"),
        (RunLocked("r", "ann on desk"), 2, "Error: run r is being driven by ann on desk\n"),
        (RunExists("run r exists"), 2, "Error: run r exists\n"),
        (KeyMissing("needs a key"), 2, "Error: needs a key\n"),
        (FileNotFoundError(errno.ENOENT, "", "in.jsonl"), 2, "Error: in.jsonl: no such file or directory\n"),
        (IsADirectoryError(errno.EISDIR, "", "folder"), 2, "Error: folder: is a directory\n"),
        (PermissionError(errno.EACCES, "", "in.jsonl"), 2, "Error: in.jsonl: permission denied\n"),
        (OSError(errno.ENOSPC, "", "out.json"), 4, "Error: out.json: no space left on device\n"),
        (OSError(errno.EROFS, "", "out.json"), 4, "Error: out.json: read-only file system\n"),
        (FileNotFoundError(errno.ENOENT, "", "a\x1b[2J"), 2, "Error: a\\x1b[2J: no such file or directory\n"),
        (ExceptionGroup("tasks", [LedgerFull("the disk is full")]), 4, "Error: the disk is full\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (ReaderGone(), 0, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_failure_has_its_message_and_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    assert guarded(Session(), raising(error)) == code
    assert capsys.readouterr().err == message


def test_an_unforeseen_failure_is_no_verdict_and_says_how_to_get_the_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert guarded(Session(), raising(ZeroDivisionError("by zero"))) == 4
    told = capsys.readouterr().err
    assert "Unexpected error: ZeroDivisionError: by zero" in told
    assert "--debug" in told
    assert "Traceback" not in told


def test_a_traceback_holds_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    state = Session(debug=True)
    state.keep_secret(["sesame-0123456789"])
    try:
        raise ValueError("header sesame-0123456789 is odd")
    except ValueError as cause:
        error = RuntimeError("sesame-0123456789 again")
        error.__cause__ = cause
    assert guarded(state, raising(error)) == 4
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "RuntimeError" in told
    assert "ValueError" in told
    assert "sesame" not in told


def test_the_value_of_a_command_is_its_exit_code() -> None:
    assert guarded(Session(), lambda: 3) == 3
    assert guarded(Session(), lambda: None) == 0


def test_a_closed_standard_stream_lends_its_number_to_nothing_else() -> None:
    program = (
        "import os\n"
        "from commands._failures import occupy_standard_streams\n"
        "occupy_standard_streams()\n"
        "print(os.open('/dev/null', os.O_RDONLY), file=__import__('sys').stderr)\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&-', sys.executable, program],
        stderr=subprocess.PIPE,
        check=True,
        env=dict(os.environ),
    )
    assert int(done.stderr) > 2


def test_the_postgres_drivers_own_warnings_went_to_the_terminal() -> None:
    program = (
        "import cli, logging, commands.run, ledger.store.postgres_session\n"
        "logging.getLogger('psycopg').warning('error ignored terminating %r', 'a connection')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.15, 0.25, 0.4])
def test_ctrl_c_while_the_program_was_still_being_imported_printed_a_traceback(
    program: Program, seconds: float
) -> None:
    """From the moment on at which our own code runs; what Python does before that is Python's."""
    entry = f"""
import cli, os, signal, threading
whole = cli._hear
def hear(handler):
    whole(handler)
    if handler is cli._end_at_once:
        threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGINT)).start()
cli._hear = hear
raise SystemExit(cli.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", entry, "verify", "--ledger", "sqlite:///absent.db"],
        cwd=program.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (130, 4) if seconds else done.returncode == 130
    assert done.stdout == ""


def test_ctrl_c_after_the_last_output_ended_the_program_by_signal(program: Program) -> None:
    entry = """
import atexit, cli, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)
code = cli.main()
os.kill(os.getpid(), signal.SIGINT)
raise SystemExit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", entry, "--version"],
        cwd=program.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_who_is_started_with_ctrl_c_ignored_goes_on_ignoring_it(program: Program) -> None:
    entry = """
import cli, os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
cli._hear(cli._end_at_once)
os.kill(os.getpid(), signal.SIGINT)
print(signal.getsignal(signal.SIGINT).name)
"""
    done = subprocess.run(
        [sys.executable, "-c", entry], cwd=program.folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "SIG_IGN\n", "")
