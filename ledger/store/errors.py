"""Everything that can go wrong with a ledger, as one small family of errors.

``exit_code`` is what the command line ends with (docs/errors.md): 1 the answer is no, 2 wrong use,
4 the database could not be reached, refused us, is full, read-only or newer.
"""

from __future__ import annotations


class LedgerError(Exception):
    """Base of all. Its text is meant for a person, holds no secret, and names the place."""

    exit_code = 4


class LedgerNotFound(LedgerError):
    """No ledger at that URL."""


class NotALedger(LedgerError):
    """A database, or a file, that is not a replay ledger; or no database URL at all."""


class BadLedgerUrl(NotALedger):
    """A text that is no ledger's URL: wrong use, where its parent is about what was found there."""

    exit_code = 2


class LedgerUnreachable(LedgerError):
    """The database does not answer, or refused the credentials."""


class ConnectionLost(LedgerUnreachable):
    """The connection broke under us. The append path opens another and settles what was done."""


class LedgerNewer(LedgerError):
    """The ledger's schema is newer than this program."""


class LedgerNotMigrated(LedgerError):
    """The ledger's schema is older than this program: ``db upgrade`` is due."""


class LedgerReadOnly(LedgerError):
    """The ledger cannot be written to."""


class LedgerFull(LedgerError):
    """The disk or the quota is full."""


class LedgerBusy(LedgerError):
    """Another writer held the ledger for longer than we wait."""


class LedgerMalformed(LedgerError):
    """The database says that its file is damaged, or a row cannot be decoded."""


class StatementRefused(LedgerError):
    """The database refused a statement: a trigger, a constraint, a missing right."""


class NotKept(LedgerError):
    """The database took what was written without an error, and does not hold it."""


class UnsafeFilesystem(LedgerError):
    """SQLite's write-ahead log needs shared memory that a network file system does not give."""


class OriginDiffers(LedgerError):
    """The ledger that is there bears another name than the one asked for."""

    exit_code = 2


class RunNotFound(LedgerError):
    """The ledger holds no such run."""

    exit_code = 2

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"no run {run_id}")


class InvalidEvent(LedgerError):
    """What was to be appended is no event that a ledger may hold. Always the caller's mistake."""

    exit_code = 2


class CopyRefused(LedgerError):
    """A copy would not be the same ledger: the target holds something, or the source is not whole."""

    exit_code = 1


class ClockWentBack(LedgerError):
    """The clock is more than five minutes behind the ledger's last event."""


class VersionConflict(LedgerError):
    """A stream is not at the version that the caller expected."""

    exit_code = 2

    def __init__(self, run_id: str, request_id: str | None, expected: int, actual: int) -> None:
        self.run_id, self.request_id = run_id, request_id
        self.expected, self.actual = expected, actual
        stream = run_id if request_id is None else f"{run_id}/{request_id}"
        super().__init__(f"{stream}: expected version {expected}, found {actual}")


class EventIdReused(LedgerError):
    """An event id is known already, with another event behind it."""

    exit_code = 1


class PartialBatch(LedgerError):
    """Of a batch, some event ids are known already and some are not."""

    exit_code = 1


class RunLocked(LedgerError):
    """Another process drives this run."""

    exit_code = 2

    def __init__(self, run_id: str, holder: str) -> None:
        self.run_id, self.holder = run_id, holder
        super().__init__(f"run {run_id} is being driven by {holder}")
