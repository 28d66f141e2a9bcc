"""Files that are read because a command line names them: nothing that never ends, and nothing that is waited for."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from typing import Final

from commands._failures import Refused

_CHUNK_BYTES: Final = 1024 * 1024
_LONGEST_TOML: Final = 1024 * 1024


def chunks_in(name: str) -> Generator[bytes, None, None]:
    """The bytes of a file, or of a pipe that somebody writes to (``<(command)``), in pieces.

    A pipe that nobody writes to is empty, instead of waited for. Raises ``Refused`` for a device, and
    ``OSError`` bearing the name as it was given.
    """
    number = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise Refused(f"{name}: neither a file nor a pipe")
        while True:
            try:
                chunk = os.read(number, _CHUNK_BYTES)
            except BlockingIOError:  # somebody has it open to write, so something, or its end, will come
                os.set_blocking(number, True)
                continue
            if not chunk:
                return
            yield chunk
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None
    finally:
        os.close(number)


def read_in(name: str, most: int) -> bytes:
    """The same as a whole, but no more than ``most`` bytes of it: ask for one more than may be there."""
    found = bytearray()
    chunks = chunks_in(name)
    for chunk in chunks:
        found += chunk
        if len(found) >= most:
            break
    chunks.close()
    return bytes(found[:most])


def toml_in(name: str) -> str:
    """The text of a TOML file. Raises ``UnicodeDecodeError``; else as above, and ``Refused`` where it is too long."""
    data = read_in(name, _LONGEST_TOML + 1)
    if len(data) > _LONGEST_TOML:
        raise Refused(f"{name}: longer than {_LONGEST_TOML} bytes")
    return data.decode("utf-8").replace("\r\n", "\n")
