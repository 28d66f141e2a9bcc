"""The signer's store: a folder outside the database, one a ledger, that holds its key and what was signed last.

    key.pem          the private key that signs
    coming-key.pem   a key that has signed nothing yet: a new ledger's, or the next one of a rotation
    checkpoint.txt   the last checkpoint signed, as its note
    vkeys.txt        the public half of every key made or used here, one a line, oldest first
    lock             held by whoever signs

Each file is replaced whole: written beside, synced, renamed, the folder synced. A process that dies
leaves the old or the new one. Nothing here knows what may be signed; ``signer.py`` does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from ledger.integrity.key_file import FILE_MODE, FOLDER_MODE, new_key, read_key, refuse_shared, to_pem
from ledger.integrity.note import MAX_NOTE_BYTES, NoteError, SigningKey, VerifierKey, parse_vkey
from ledger.integrity.signing_errors import KeyRefused, SignerBusy, SignerUnreachable

KEY: Final = "key.pem"
COMING_KEY: Final = "coming-key.pem"
LAST: Final = "checkpoint.txt"
VKEYS: Final = "vkeys.txt"
LOCK: Final = "lock"
LOCK_SECONDS: Final = 60
"""How long a signer waits for another; signing takes milliseconds."""

_PART: Final = ".part"


def folder_of(base: Path, origin: str) -> Path:
    """The folder of one ledger; an origin holds slashes, its digest does not."""
    return base / sha256(origin.encode("utf-8")).hexdigest()


class SignerStore:
    """The key and the last checkpoint of the ledger ``origin``, in the folder of its own below ``base``.

    Every method raises ``SignerUnreachable`` where the folder cannot be read or written, and
    ``KeyRefused`` where it, or a key in it, is open to others or another ledger's.
    """

    def __init__(self, base: Path, origin: str) -> None:
        self.origin = origin
        self.folder = folder_of(base, origin)

    # --- read ------------------------------------------------------------------------------

    def holds_key(self) -> bool:
        """Is there a private key, whatever its state?"""
        with self._translated():
            return any((self.folder / name).exists() for name in (KEY, COMING_KEY))

    def key(self) -> SigningKey | None:
        """The key that signs."""
        return self._read_key(KEY)

    def coming_key(self) -> SigningKey | None:
        """The key that has signed nothing yet."""
        return self._read_key(COMING_KEY)

    def last(self) -> str | None:
        """The last checkpoint signed, a note; None where none is kept."""
        return self._read(LAST)

    def vkeys(self) -> tuple[VerifierKey, ...]:
        """Public keys that were made or used here, oldest first."""
        text = self._read(VKEYS) or ""
        try:
            keys = tuple(parse_vkey(line) for line in text.splitlines())
        except NoteError as error:
            raise KeyRefused(f"{self.folder / VKEYS}: {error}") from None
        for key in keys:
            if key.name != self.origin:
                raise KeyRefused(f"{self.folder} holds keys of the ledger {key.name}, this one is {self.origin}")
        return keys

    # --- write, under the lock -------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one who signs, within the ``with``; the folder is made where absent. Raises ``SignerBusy``."""
        with self._translated():
            self._make_folder()
            lock = FileLock(self.folder / LOCK, timeout=LOCK_SECONDS, mode=FILE_MODE)
            try:
                lock.acquire()
            except Timeout:
                raise SignerBusy(f"{self.folder}: another process has been signing for {LOCK_SECONDS} s") from None
        try:
            with self._translated():
                self._check_folder()
                self._sweep()
            yield
        finally:
            lock.release()

    def replace_last(self, note: str) -> None:
        """Swap the last checkpoint; durable when it returns."""
        self._replace(LAST, note.encode("utf-8"))

    def make_coming_key(self) -> SigningKey:
        """Make a key that is going to sign; durable, and its public half noted, when it returns."""
        key = new_key(self.origin)
        self._replace(COMING_KEY, to_pem(key))
        self.note_vkey(key.verifier_key)
        return key

    def note_vkey(self, vkey: VerifierKey) -> None:
        """Note a public key; once."""
        known = self.vkeys()
        if vkey not in known:
            self._replace(VKEYS, "".join(f"{key}\n" for key in (*known, vkey)).encode("ascii"))

    def promote_coming_key(self) -> None:
        """The coming key is the key from now on. The one before it is destroyed: nothing needs it any more."""
        with self._translated():
            (self.folder / COMING_KEY).replace(self.folder / KEY)
            _sync_folder(self.folder)

    def discard(self) -> None:
        """Take away the folder of a ledger that was not made after all. Never one that has signed."""
        if self.last() is not None or (self.folder / KEY).exists():
            return
        with suppress(OSError):
            for name in (COMING_KEY, VKEYS, LOCK):
                (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()

    # --- files -----------------------------------------------------------------------------

    def _read_key(self, name: str) -> SigningKey | None:
        with self._translated():
            self._check_folder()
            return read_key(self.folder / name, self.origin)

    def _read(self, name: str) -> str | None:
        path = self.folder / name
        with self._translated():
            self._check_folder()
            try:
                with path.open("rb") as file:
                    return file.read(MAX_NOTE_BYTES + 1).decode("utf-8")
            except FileNotFoundError:
                return None
            except UnicodeDecodeError:
                raise KeyRefused(f"{path} is damaged: not UTF-8") from None

    def _replace(self, name: str, data: bytes) -> None:
        with self._translated():
            # mkstemp's files are the owner's alone.
            descriptor, part = tempfile.mkstemp(prefix=f".{name}.", suffix=_PART, dir=self.folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                Path(part).replace(self.folder / name)
            except BaseException:
                with suppress(OSError):
                    Path(part).unlink()
                raise
            _sync_folder(self.folder)

    def _sweep(self) -> None:
        """Take away what a process that died was writing: a half-made key is a key nobody should find."""
        for part in self.folder.glob(f".*{_PART}"):
            part.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        missing = [place for place in (self.folder, *self.folder.parents) if not place.exists()]
        for place in reversed(missing):
            place.mkdir(mode=FOLDER_MODE, exist_ok=True)
            _sync_folder(place.parent)

    def _check_folder(self) -> None:
        """Raise ``KeyRefused`` where others could put another checkpoint or key in place of ours."""
        with suppress(FileNotFoundError):
            refuse_shared(self.folder, self.folder.stat().st_mode, FOLDER_MODE)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            raise SignerUnreachable(f"the signer's folder {self.folder}: {reason}") from error


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder durable, where the system has folders that can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
