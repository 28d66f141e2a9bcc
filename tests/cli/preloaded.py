"""The program with everything imported, waiting to be forked: a process a call without a second of imports a call.

Each line on standard input is a call (see `Call`); its process's number and, later, its exit code are
printed. ``python -m tests.cli.preloaded`` runs it; `Preloaded` talks to it.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import cli


@dataclass(frozen=True)
class Call:
    """``stdin``, ``stdout`` and ``stderr`` are paths of files."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    stdin: str
    stdout: str
    stderr: str


class Preloaded:
    """The waiting process, for one test session."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.preloaded"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[2],
            text=True,
        )

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[Path, Path, Path],
        timeout: float,
    ) -> int:
        """Make a call and wait for its exit code; a call that takes longer than ``timeout`` seconds is killed."""
        number = self.start(words, folder, environment, streams)
        killer = threading.Timer(timeout, os.kill, (number, signal.SIGKILL))
        killer.start()
        try:
            return self.wait()
        finally:
            killer.cancel()

    def start(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], streams: tuple[Path, Path, Path]
    ) -> int:
        """Begin a call and give its process's number. One at a time: ``wait`` before the next."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        call = Call(list(words), str(folder), dict(environment), *map(str, streams))
        self._process.stdin.write(json.dumps(asdict(call)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait(self) -> int:
        """The exit code of the call that was begun: negative where a signal ended it."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def serve() -> None:
    """Import every verb, then fork once for each line that comes in."""
    for verbs in cli.SECTIONS.values():
        for place, _ in verbs.values():
            importlib.import_module(place.partition(":")[0])
    for line in sys.stdin:
        call = Call(**json.loads(line))
        number = os.fork()
        if number == 0:
            _be(call)
        print(number, flush=True)
        _, status = os.waitpid(number, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be(call: Call) -> NoReturn:
    """Become the program: its folder, its environment, its standard streams; and end as it ends."""
    code = 70
    try:
        os.chdir(call.folder)
        os.environ.clear()
        os.environ.update(call.environment)
        for number, (path, flags) in enumerate(
            [(call.stdin, os.O_RDONLY), (call.stdout, os.O_WRONLY), (call.stderr, os.O_WRONLY)]
        ):
            opened = os.open(path, flags)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(2, "w", closefd=False)), encoding="utf-8", errors="backslashreplace"
        )
        sys.argv = [cli.PROGRAM, *call.words]
        code = cli.main()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
