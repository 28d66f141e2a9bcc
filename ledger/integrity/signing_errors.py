"""Why nothing was signed, as one small family of errors; ``exit_code`` is what the command line ends with."""

from __future__ import annotations


class SignerError(Exception):
    """Base of all. Its text is meant for a person, holds no secret, and names the place."""

    exit_code = 4


class ForkRefused(SignerError):
    """The ledger does not extend the last checkpoint signed: a restored backup, or its history was rewritten."""

    exit_code = 1


class StoreLost(ForkRefused):
    """The key has signed before, but the last checkpoint it signed is gone, so a fork could not be told."""


class RotatedUnsigned(StoreLost):
    """The ledger has its new key, but with the old one the last checkpoint was lost: nothing can be signed yet."""


class KeyNotAtHand(SignerError):
    """The ledger's private key is not here."""

    exit_code = 2


class KeyRefused(SignerError):
    """A key file that others can read, that is damaged, or that is another ledger's."""

    exit_code = 2


class NoteRefused(SignerError):
    """A checkpoint that was brought is malformed, or is not signed by a key of this ledger."""

    exit_code = 2


class SignerUnreachable(SignerError):
    """The signer's folder cannot be read or written."""


class SignerBusy(SignerError):
    """Another process held the signer's lock for longer than we wait."""
