"""A process that signs, or rotates the key, and is killed just before a given durable step.

``python -m tests.chaos.dying_signer`` has its imports done and forks for each line it reads;
`DyingSigner` talks to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ledger import open_ledger
from ledger.integrity.signer import Signer
from ledger.integrity.signer_store import SignerStore
from ledger.store import Store, copy, migrate  # noqa: F401 - imported before the fork
from tests.ledger.integrity.signing import ORIGIN, rotated

WORK: dict[str, Callable[[Signer, Store], object]] = {
    "sign": lambda signer, store: signer.sign(store),
    "rotate": lambda signer, store: signer.rotate(store, rotated),
}


class DyingSigner:
    """The waiting process, for one test module."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.dying_signer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[2],
            text=True,
        )

    def __call__(self, url: str, base: Path, work: str, step: int) -> bool:
        """Do the work but die before its ``step``-th durable step (from 0); False where it had fewer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([url, str(base), work, step]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, -signal.SIGKILL)
        return code != 0

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def serve() -> None:
    for line in sys.stdin:
        number = os.fork()
        if number == 0:
            _work(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)


def _work(url: str, base: str, work: str, step: int) -> NoReturn:
    try:
        left = step

        def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return function(*args, **options)

            return call

        for owner, name in ((os, "fsync"), (Path, "replace"), (Store, "append"), (Store, "save_checkpoint")):
            setattr(owner, name, deadly(getattr(owner, name)))
        with open_ledger(url, "write") as store:
            WORK[work](Signer(SignerStore(Path(base), ORIGIN)), store)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(70)


if __name__ == "__main__":
    serve()
