"""The program as people start it: a process of its own, in a folder of its own, with a clean environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.preloaded import Preloaded

PROGRAM = Path(sys.executable).with_name("replay-ledger")
OWN_VARIABLES = ("REPLAY_LEDGER_", "NVIDIA_", "OPENAI_", "NO_COLOR", "_REPLAY_LEDGER")


@dataclass(frozen=True)
class Ended:
    """How it ended. ``out`` is what a pipe would get, ``err`` what a person would read."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    return kept | {"TERM": "xterm-256color"} | dict(extra or {})


@dataclass
class Program:
    """Starts ``replay-ledger`` in ``folder``, each time in a process of its own."""

    folder: Path
    preloaded: Preloaded
    streams: Path
    """A folder beside, for what goes in and comes out."""
    variables: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, *words: object, stdin: bytes = b"", env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> Ended:
        """Run to the end; nothing it prints may be a traceback."""
        files = (self.streams / "in", self.streams / "out", self.streams / "err")
        for file, content in zip(files, (stdin, b"", b""), strict=True):
            file.write_bytes(content)
        code = self.preloaded.run(list(map(str, words)), self.folder, self._environment(env), files, timeout)
        ended = Ended(code, files[1].read_bytes(), files[2].read_text("utf-8", "replace"))
        assert "Traceback" not in ended.err, ended.err
        assert code >= 0, f"{words}: killed by signal {-code}: {ended.err}"
        return ended

    def unprivileged(self, *words: object) -> Ended:
        """Run from the entry point, bound by the modes of files even where the tests run as root."""
        done = subprocess.run(
            [*_as_anybody(), PROGRAM, *map(str, words)],
            cwd=self.folder,
            env=self._environment(None),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    def start(self, *words: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start it as a shell would, from its entry point; the caller waits for it."""
        return subprocess.Popen(
            [PROGRAM, *map(str, words)],
            cwd=self.folder,
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _environment(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        return clean_environment({"XDG_STATE_HOME": str(self.state)} | self.variables | dict(extra or {}))

    @property
    def state(self) -> Path:
        """Where this user's programs keep their state, and this one its signing keys."""
        return self.streams / "state"


def _as_anybody() -> list[str]:
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root may read and write every file, and there is no setpriv")
    dropped = "-dac_override,-dac_read_search"
    return [setpriv, "--bounding-set", dropped, "--inh-caps", dropped]


def request_line(number: int, **changes: Any) -> str:
    """A replay request as its line, without the newline."""
    document: dict[str, Any] = {
        "schema_version": "agent_nemotron_replay_request_v1",
        "incident_id": f"INC-{number}",
        "candidate_id": "nemo_nemotron_fabric",
        "system_prompt": "You handle incidents.",
        "user_prompt": f"Decide on incident {number}.",
        "incident_context": {"service": "checkout", "p99_ms": 100 + number},
        "source_metadata": {"source": "pager"},
        "metadata": {"request_only": True, "not_replacement_evidence": True},
    }
    document |= changes
    return json.dumps({name: value for name, value in document.items() if value is not None})


def write_requests(path: Path, count: int, *, bad: Mapping[int, str] | None = None) -> Path:
    """A file of requests; ``bad`` puts other text on a line (from 1)."""
    lines = [(bad or {}).get(number, request_line(number)) for number in range(1, count + 1)]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path
