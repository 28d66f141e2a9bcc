"""Does every Python of this machine make the same bytes of a ledger? ``make pythons`` tells.

Each gets an environment with what replay-ledger needs to run, as the lock file has it, under ``build/pythons``.
That takes a minute the first time, so the test suite does it only where ``REPLAY_LEDGER_OTHER_PYTHONS`` is set.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ASKED_FOR = "REPLAY_LEDGER_OTHER_PYTHONS"
PROJECT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
Version = tuple[int, int, int]


def interpreters() -> dict[Version, Path]:
    """The newest of each version (3.11, 3.12 ...) but the one that runs this: from PATH, and from pyenv's folder."""
    newest: dict[tuple[int, int], tuple[Version, Path]] = {}
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None and OLDEST <= version[:2] != sys.version_info[:2]:
            newest[version[:2]] = max(newest.get(version[:2], (version, candidate)), (version, candidate))
    return dict(sorted(newest.values()))


def _candidates() -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [*map(Path, os.get_exec_path()), *sorted(pyenv.glob("versions/*/bin"))]
    for folder in folders:
        yield from (path for path in sorted(folder.glob("python3.*")) if re.fullmatch(r"python3\.\d+", path.name))


def _version(python: Path) -> Version | None:
    """None for one that cannot be run, or that can make no environment."""
    code = "import ensurepip, sys, venv; print(*sys.version_info[:3])"
    try:
        said = subprocess.run([python, "-c", code], capture_output=True, check=True, text=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor, micro = map(int, said.split())
    return major, minor, micro


def environment(version: Version, python: Path) -> Path:
    """The interpreter of an environment with all that is in constraints.txt, each file's hash checked."""
    folder = PROJECT / "build" / "pythons" / ".".join(map(str, version))
    lock = PROJECT / "constraints.txt"
    stamp, due = folder / "installed", hashlib.sha256(lock.read_bytes()).hexdigest()
    inside = folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != due:
        _run([python, "-m", "venv", "--clear", folder])
        _run([inside, "-m", "pip", "install", "-q", "--require-hashes", "-r", lock])
        stamp.write_text(due)
    return inside


def _run(words: list[str | Path]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


def digests_by(python: Path, url: str) -> bytes:
    """What ``tests.digests`` prints there, with warnings as errors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-W", "error", "-m", "tests.digests", url],
        cwd=python.parent,
        env=kept | {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def main() -> int:
    """Make a ledger, and compare. 0 where all agree, 1 where one does not, 2 where there is no other Python."""
    from tests.ledger.render.everything import make

    found = interpreters()
    if not found:
        print("no other Python from 3.11 on, on PATH or in pyenv's folder", file=sys.stderr)
        return 2
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.db"
        make(url)
        expected = digests_by(Path(sys.executable), url)
        print(f"{len(expected.splitlines())} digests by Python {sys.version.split()[0]}")
        for version, python in found.items():
            got = digests_by(environment(version, python), url)
            print(f"Python {'.'.join(map(str, version))}: {'the same' if got == expected else 'OTHERS'}")
            if got != expected:
                code = 1
                print("".join(f"  {line}\n" for line in got.decode().splitlines() if line not in expected.decode()))
    return code


if __name__ == "__main__":
    sys.exit(main())
