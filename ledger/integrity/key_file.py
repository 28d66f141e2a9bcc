"""A ledger's private key in a file: Ed25519, PKCS8 PEM without a password (RFC 8410), for its owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ledger.integrity.note import SigningKey
from ledger.integrity.signing_errors import KeyRefused

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_LARGEST: Final = 16 * 1024


def new_key(origin: str) -> SigningKey:
    """A fresh key for the ledger of this name, from the operating system's randomness."""
    return SigningKey(origin, Ed25519PrivateKey.generate())


def to_pem(key: SigningKey) -> bytes:
    """The key as its file holds it."""
    return key.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(path: Path, origin: str) -> SigningKey | None:
    """The key in the file, to sign under the ledger's name; None where there is no file.

    Raises ``KeyRefused`` where others may read it or it holds something else, ``OSError``.
    """
    try:
        with path.open("rb") as file:
            # Asked of the open file: between a look at its name and a read of it, another can take its place.
            refuse_shared(path, os.fstat(file.fileno()).st_mode, FILE_MODE)
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    # None of the file's bytes enter a message.
    try:
        key = load_pem_private_key(data, password=None) if len(data) <= _LARGEST else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyRefused(f"{path} holds no Ed25519 key as PKCS8 PEM without a password")
    return SigningKey(origin, key)


def refuse_shared(path: Path, mode: int, allowed: int) -> None:
    """Raise ``KeyRefused`` where anyone but the owner may read, write or enter; ``allowed`` is what to set."""
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyRefused(f"{path} is open to other users (mode {stat.S_IMODE(mode):04o}): chmod {allowed:o} it first")
