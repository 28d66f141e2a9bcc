"""Which files ``--out`` may not name: a ledger, a signer's file, an input, another output, an unwritable one."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

# The first bytes of every SQLite database (https://sqlite.org/fileformat.html, section 1.3.1).
_SQLITE_HEADER: Final = b"SQLite format 3\x00"
# What SQLite keeps beside a database, and the folder of a ledger's run locks.
_KEPT_BESIDE: Final = re.compile(r"(.+)-(?:wal|shm|journal|locks)\Z", re.DOTALL)


class OutputRefused(Exception):
    """An output would take the place of a file that must stay."""

    exit_code = 2


def refuse_databases(out: str | Path) -> None:
    """Raise ``OutputRefused`` where ``out`` is a database, or is or lies in what is kept beside one.

    Any SQLite database, not only the ledger in use: by its content, so its name and the way there
    do not matter. Links are followed, and the name as it was given counts too. Raises ``OSError``
    where a file may not be read: what nobody can tell is not replaced.
    """
    for database in _may_belong_to(out):
        if _is_database(database):
            raise OutputRefused(f"{out} belongs to the database {database}; give --out another file")


def refuse_signers_files(out: str | Path) -> None:
    """Raise ``OutputRefused`` where ``out`` lies in a signer's folder, of whatever ledger.

    What it took the place of would be the key, or what was signed last. Links are followed.
    """
    from ledger.integrity.signer_store import COMING_KEY, KEY, VKEYS  # noqa: PLC0415 - cryptography takes a while

    for place in Path(os.path.realpath(out)).parents:
        if any((place / name).is_file() for name in (KEY, COMING_KEY, VKEYS)):
            raise OutputRefused(f"{out} lies in the signer's folder {place}; give --out another file")


def _may_belong_to(out: str | Path) -> Iterator[Path]:
    for path in (Path(os.path.abspath(out)), Path(os.path.realpath(out))):  # noqa: PTH100 - no links followed
        yield path
        for place in (path, *path.parents):
            if beside := _KEPT_BESIDE.match(place.name):
                yield place.with_name(beside[1])


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER


def refuse_unwritable(out: str | Path) -> None:
    """Raise ``OutputRefused`` where ``out`` could not be written, or its folder takes no new file. Links are followed.

    By trying it with a file of no name: a folder may refuse one for other reasons than its mode.
    """
    target = Path(os.path.realpath(out))
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if target.is_file() or not target.exists():
            tempfile.TemporaryFile(dir=target.parent).close()  # what is written takes its place from beside it
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputRefused(f"{out} cannot be written: {reason}; give --out another file") from None


def refuse_shared(inputs: Mapping[str, str | None], outputs: Mapping[str, str | None]) -> None:
    """Raise ``OutputRefused`` where an output is an input, or two outputs are one file.

    Both map what is said to the name that was given, None where none was. A device may be named twice.
    """
    taken = {said: name for said, name in inputs.items() if name is not None}
    for said, name in outputs.items():
        if name is None:
            continue
        for other, other_name in taken.items():
            if _same(name, other_name):
                raise OutputRefused(f"{said}: {name} is also {other}; give it a file of its own")
        taken[said] = name


def _same(one: str, other: str) -> bool:
    paths = (Path(os.path.realpath(one)), Path(os.path.realpath(other)))
    if all(path.exists() for path in paths):
        return paths[0].is_file() and paths[0].samefile(paths[1])
    return paths[0] == paths[1]
