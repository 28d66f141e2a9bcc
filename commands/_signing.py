"""How a command that appends begins and ends: with the ledger's key, and with a signed checkpoint.

A command calls ``checkpoint_at_end`` once what it appended is durable. A host without the key signs
nothing, which is no failure (the next checkpoint of the host that has it covers these events too), and says
so in one line: whoever lost the key, or named another folder, would not learn of it otherwise.
"""

# ruff: noqa: PLC0415
# Cryptography takes longer to import than most commands to run, and most commands sign nothing.
from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import click

from commands._failures import OK, Refused, explain
from commands._ledger import open_for
from commands._output import say
from commands._session import Session, session
from ledger.events import LEDGER_RUN_ID, LedgerCreated, NewEvent, new_event
from ledger.store import LedgerError, Store
from ledger.store.envelope import FORMAT, check_origin
from ledger.store.errors import LedgerNotFound, OriginDiffers

if TYPE_CHECKING:
    from ledger.integrity.signer import Signer
    from ledger.integrity.signer_store import SignerStore

T = TypeVar("T")

PACKAGE: Final = "replay-ledger"
_RECORDED: Final = "What was appended is recorded, but it is not signed."


def signer_for(ctx: click.Context, store: Store) -> Signer | None:
    """The ledger's signer; None where its key is not at hand, and for a ledger in memory.

    The key itself is read when something is signed. Raises ``SignerUnreachable``, ``LedgerError``.
    """
    kept = signer_store(session(ctx), store.head().origin)
    if kept is None or not kept.holds_key():
        return None
    from ledger.integrity.signer import Signer

    return Signer(kept)


def checkpoint_at_end(ctx: click.Context, store: Store) -> None:
    """Sign the ledger as it stands and keep the checkpoint; where the key is not at hand, only say so.

    Raises ``ForkRefused`` (exit code 1) where the ledger does not extend the last checkpoint signed;
    other ``SignerError`` and ``LedgerError`` where it cannot be signed. It is told before it is raised
    that what was appended stays.
    """
    code_after(OK, _try_to_sign(ctx, store, 0))


# --- around a command's work ---------------------------------------------------------------


def signed(ctx: click.Context, store: Store, work: Callable[[], T]) -> tuple[T, Exception | None]:
    """Do the work and sign what it appended, however it ends; give its result, and why nothing was signed.

    Where the work raises, that goes on; a failure to sign is only told then.
    """
    before = store.head().size
    try:
        result = work()
    except BaseException as error:
        unsigned = _try_to_sign(ctx, store, before)
        if not isinstance(error, LedgerError) or not isinstance(unsigned, LedgerError):
            _tell(unsigned)
        raise
    return result, _try_to_sign(ctx, store, before)


def code_after(code: int, unsigned: Exception | None) -> int:
    """The command's own exit code; where that is 0 and nothing could be signed, the reason is raised."""
    if unsigned is None:
        return code
    if code == OK:
        say(_RECORDED)
        raise unsigned
    _tell(unsigned)
    return code


def _try_to_sign(ctx: click.Context, store: Store, before: int) -> Exception | None:
    try:
        signer = signer_for(ctx, store)
        if signer is not None:
            signer.sign(store)
        elif store.head().size > before and _has_key(store):
            say(
                f"Recorded, but not signed here: the ledger's key is not at hand ({where_looked(ctx, store)}). "
                "The next checkpoint by whoever holds it covers this as well."
            )
    except Exception as error:  # noqa: BLE001 - whoever asked tells or raises it
        return error
    return None


def _has_key(store: Store) -> bool:
    """Does the ledger say that it has a key? Also where what it says cannot be read."""
    from ledger.integrity.signer import ledger_keys
    from ledger.integrity.signing_errors import KeyRefused

    try:
        return any(ledger_keys(store))
    except KeyRefused:
        return True


def _tell(unsigned: Exception | None) -> None:
    if unsigned is not None:
        say(_RECORDED)
        say(explain(unsigned)[0] or f"Unexpected error: {type(unsigned).__name__}")


# --- where the key is ----------------------------------------------------------------------


def where_looked(ctx: click.Context, store: Store) -> str:
    """In words, the folder in which the ledger's key was looked for."""
    kept = signer_store(session(ctx), store.head().origin)
    return "this user has no home folder" if kept is None else f"looked in {kept.folder}"


def signer_store(state: Session, origin: object) -> SignerStore | None:
    """The signer's store of the ledger of that name; None where there cannot be one."""
    base = _base_folder(state)
    if base is None or not isinstance(origin, str):
        return None
    from ledger.integrity.signer_store import SignerStore

    return SignerStore(base, origin)


def _base_folder(state: Session) -> Path | None:
    if state.signer_dir:
        return Path(state.signer_dir).absolute()
    named = state.variable("XDG_STATE_HOME")
    if named and Path(named).is_absolute():  # a relative one is to be ignored (XDG Base Directory Specification)
        return Path(named) / PACKAGE
    try:
        return Path.home() / ".local" / "state" / PACKAGE
    except RuntimeError:  # no HOME, and a user whom the system does not know
        return None


# --- a ledger that is made -----------------------------------------------------------------


def open_to_append(
    ctx: click.Context,
    mode: Any,
    *,
    no_key: bool = False,
    before_making: Callable[[], None] | None = None,
    **options: Any,
) -> Store:
    """The ledger, to append to; ``create`` makes it where there is none, with a key unless ``no_key``.

    ``before_making``: called where there is none; no ledger and no key is made where it raises.
    Raises as ``checkpoint_at_end`` where the ledger could not be signed already now: nobody pays for
    a run whose record would be worth less than it should be.
    """
    if mode == "write":
        store = open_for(ctx, "write", **options)
    else:
        store = _open_or_create(ctx, no_key, before_making, options)
    signer = signer_for(ctx, store)
    if signer is not None:
        signer.check(store)
    return store


def _open_or_create(
    ctx: click.Context, no_key: bool, before_making: Callable[[], None] | None, options: dict[str, Any]
) -> Store:
    state = session(ctx)
    in_memory = state.place.dialect == "sqlite" and state.place.path is None
    if in_memory:
        return open_for(ctx, "create", **options)
    try:
        return open_for(ctx, "write", **options)
    except LedgerNotFound:
        pass
    if before_making is not None:
        before_making()
    if no_key:
        return open_for(ctx, "create", **options)
    beginning = Beginning(state, None)
    try:
        store = open_for(ctx, "create", origin=beginning.origin, created=beginning.created, **options)
    except OriginDiffers:  # another process made it in that moment
        beginning.forget()
        return open_for(ctx, "write", **options)
    except BaseException:
        beginning.forget()
        raise
    beginning.tell()
    return store


class Beginning:
    """The name, the key and the first event of a ledger that is about to be made; the key is durable already.

    ``origin``: None draws one. Raises ``InvalidEvent``, ``SignerError``, ``Refused``.
    """

    def __init__(self, state: Session, origin: str | None) -> None:
        from ledger.integrity.signer import key_for_new_ledger
        from ledger.integrity.signing_errors import SignerUnreachable

        self.origin = check_origin(f"replay-ledger.local/{uuid4()}" if origin is None else origin)
        kept = signer_store(state, self.origin)
        if kept is None:
            raise Refused("there is no home folder to keep the ledger's key in: give --signer-dir, or --no-key")
        self._kept, self._drawn = kept, origin is None
        try:
            vkey = str(key_for_new_ledger(kept))
        except SignerUnreachable as error:
            raise SignerUnreachable(f"{error}; no ledger was made: give --signer-dir, or --no-key") from None
        self.created: NewEvent = new_event(
            LedgerCreated(format=FORMAT, software_version=version(PACKAGE), vkey=vkey), run_id=LEDGER_RUN_ID
        )

    def forget(self) -> None:
        """The ledger was not made: take the key away, unless another attempt under this name may be using it."""
        if self._drawn:
            self._kept.discard()

    def tell(self) -> None:
        """Say where the key is: it has to be kept, and nobody would look there."""
        say(f"The ledger's signing key is in {self._kept.folder}; keep it, and keep it to yourself.")
