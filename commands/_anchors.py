"""What a verdict rests on: public keys, checkpoints that were kept, and the signer's store on this machine."""

# ruff: noqa: PLC0415
# Cryptography takes long to import, and most commands verify nothing.
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from commands._failures import Refused
from commands._in_files import read_in
from commands._output import say
from commands._signing import signer_for
from ledger.integrity.signing_errors import SignerError
from ledger.store import LedgerError, Store

if TYPE_CHECKING:
    from ledger.integrity.anchors import Anchor
    from ledger.integrity.note import VerifierKey

_MAX_KEY_FILE: Final = 64 * 1024


class Trusted(NamedTuple):
    """What there is to judge by: keys to trust, and anchors."""

    keys: tuple[VerifierKey, ...]
    anchors: tuple[Anchor, ...]


def signers(ctx: click.Context, store: Store) -> Trusted:
    """What the ledger's own signer on this machine vouches for; nothing where there is none, or it cannot be used.

    Read before the ledger is: a checkpoint that is signed meanwhile is not held against an earlier head.
    """
    from ledger.integrity.anchors import SIGNERS_STORE, Anchor, open_anchor
    from ledger.integrity.note import NoteError

    try:
        signer = signer_for(ctx, store)
        if signer is None:
            return Trusted((), ())
        keys, note = signer.vkeys(), signer.anchor()
        if note is None:
            return Trusted(keys, ())
        anchor = Anchor(note, SIGNERS_STORE)
        open_anchor(anchor)
    except NoteError as error:
        say(f"The last checkpoint in the signer's store is left out: {error}")
    except SignerError as error:
        say(f"The signer's store is left out: {error}")
    except LedgerError:  # so damaged that it has no name: the verdict says so
        pass
    else:
        return Trusted(keys, (anchor,))
    return Trusted((), ())


def given_keys(texts: Sequence[str]) -> tuple[VerifierKey, ...]:
    """Keys as ``--key`` gives them: a vkey, or the name of a file that holds one on each line. Raises ``Refused``."""
    from ledger.integrity.note import NoteError, parse_vkey

    keys = []
    for text in texts:
        try:
            keys.append(parse_vkey(text))
        except NoteError as error:
            keys += _keys_in(text, error)
    return tuple(keys)


def _keys_in(name: str, not_a_key: Exception) -> list[VerifierKey]:
    from ledger.integrity.note import NoteError, parse_vkey

    try:
        lines = read_in(name, _MAX_KEY_FILE).decode("ascii").split()
    except (FileNotFoundError, ValueError):
        raise Refused(f"--key: neither a key ({not_a_key}) nor a file that holds one") from None
    try:
        keys = [parse_vkey(line) for line in lines]
    except NoteError as error:
        raise Refused(f"--key: {name}: {error}") from None
    if not keys:
        raise Refused(f"--key: {name} is empty")
    return keys


def given_checkpoint(option: str, name: str) -> Anchor:
    """A checkpoint that was kept in a file. Raises ``Refused`` where the file holds none, and ``OSError``."""
    from ledger.integrity.anchors import Anchor, open_anchor
    from ledger.integrity.note import MAX_NOTE_BYTES, NoteError

    anchor = Anchor(read_in(name, MAX_NOTE_BYTES + 1), f"the file {name}")
    try:
        open_anchor(anchor)
    except NoteError as error:
        raise Refused(f"{option}: {name} is no checkpoint: {error}") from None
    return anchor
