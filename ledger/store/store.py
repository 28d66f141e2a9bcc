"""A ledger that is open: append, read, lock. What each database does its own way is behind ``Backend``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from ledger.events import Event, NewEvent
from ledger.integrity import merkle
from ledger.store import read
from ledger.store.append import Appender, Clock
from ledger.store.backend import HEAD_SQL, NO_PARAMS, Backend, Params, Row
from ledger.store.changes import RowChange, TableFold
from ledger.store.errors import LedgerError, LedgerMalformed
from ledger.store.expected import Expected
from ledger.store.place import Dialect
from ledger.store.records import Batch, Checkpoint, Head, Receipt, Record, Rows, Unreadable


class Store:
    """An open ledger; made by ``open_store``. Safe to use from several threads.

    Every method raises ``LedgerError`` where the database cannot be reached or refuses.
    """

    def __init__(
        self, backend: Backend, fold: TableFold, *, clock: Clock | None = None, accept_clock: bool = False
    ) -> None:
        self._backend = backend
        self._appender = Appender(backend, fold=fold, clock=clock, accept_clock=accept_clock)

    @property
    def dialect(self) -> Dialect:
        """``sqlite`` or ``postgresql``."""
        return self._backend.dialect

    @property
    def shown(self) -> str:
        """The ledger's URL without its password."""
        return self._backend.place.shown

    @property
    def url(self) -> str | None:
        """For another process to open the same ledger; None for one in memory. Never shown: it may hold a password."""
        place = self._backend.place
        return None if place.dialect == "sqlite" and place.path is None else place.url

    # --- append ----------------------------------------------------------------------------

    def append(self, events: Sequence[NewEvent], expected: Sequence[Expected] = ()) -> list[Receipt]:
        """Append all of the events or none; durable when it returns. Receipts in the same order.

        Events that the ledger holds already under their ids give their first receipts again. An
        event ``ContentRedacted`` erases the contents it names in the same transaction.

        Raises ``VersionConflict``, ``EventIdReused``, ``PartialBatch``, ``InvalidEvent`` (nothing was
        appended, and the ledger is fine), ``ClockWentBack``, ``LedgerFull``, ``LedgerReadOnly``,
        ``LedgerBusy``, ``LedgerUnreachable``, ``StatementRefused``.
        """
        (outcome,) = self.append_group([Batch(events, expected)])
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome

    def append_group(self, batches: Sequence[Batch]) -> list[list[Receipt] | LedgerError]:
        """Append many callers' batches in one transaction, each whole or not at all.

        A batch sees the versions that those before it leave. What is wrong with one batch is its
        outcome and touches no other; what is wrong with the ledger is raised.
        """
        return self._appender.append_group(batches)

    # --- read ------------------------------------------------------------------------------

    def events(
        self,
        run_id: str | None = None,
        *,
        after: int = 0,
        upto: int | None = None,
        request_id: str | None = None,
        since_last_start: bool = False,
        of_no_request: bool = False,
    ) -> Iterator[Event | Unreadable]:
        """Events by position, ``after`` < position <= ``upto``: of the ledger, a run, or a request of it.

        Streamed in bounded memory, payloads brought to their present schema. What cannot be
        understood comes as ``Unreadable``. ``since_last_start``: from the run's last ``RunStarted``
        (at or below ``upto``) on; nothing where it has none. ``of_no_request``: the run's own alone.
        """
        if run_id is None and (request_id is not None or since_last_start or of_no_request):
            raise ValueError("a request, a last start, or what is no request's, is some run's")
        return read.events(
            self._backend,
            run_id,
            after=after,
            upto=upto,
            request_id=request_id,
            since_last_start=since_last_start,
            of_no_request=of_no_request,
        )

    def request_events(self, positions: Sequence[int], *, after: int, upto: int) -> Iterator[Event | Unreadable]:
        """By position, ``after`` < position <= ``upto``: every event of the requests that ``positions`` belong to.

        For a page of requests at a time: at most a few hundred positions, all read at once.
        """
        return read.request_events(self._backend, positions, after=after, upto=upto)

    def contents(self, positions: Iterable[int], undecodable: set[int] | None = None) -> dict[int, bytes]:
        """The exact bytes of contents, by position; those that are absent or erased are left out.

        Raises ``LedgerMalformed``, naming the position, for one that cannot be decoded; where a set is
        given, the position is added to it instead.
        """
        return read.contents(self._backend, positions, undecodable)

    def content(self, position: int) -> bytes | None:
        """The content of one event; None where there is none (any more)."""
        return self.contents([position]).get(position)

    def records(self, after: int = 0, upto: int | None = None) -> Iterator[Record]:
        """Whole rows as stored, ``after`` < position <= ``upto``, streamed; for verify and copy."""
        return read.records(self._backend, after, upto)

    def checkpoints(self) -> list[Checkpoint]:
        """Every signed checkpoint, smallest first."""
        rows = self._backend.fetch("SELECT size, root, note FROM checkpoints ORDER BY size")
        return [Checkpoint(size, root, note) for size, root, note in rows]

    def redactions(self) -> list[tuple[int, int]]:
        """(position of the erased content, position of its ``ContentRedacted`` event), by position."""
        rows = self._backend.fetch("SELECT position, event_position FROM redactions ORDER BY position")
        return [(position, by) for position, by in rows]

    def head(self) -> Head:
        """Where the log stands by its own account; whether that is true is for verify to say."""
        rows = self._backend.fetch(HEAD_SQL)
        if not rows:
            raise LedgerMalformed(f"{self.shown}: the ledger has no head")
        return Head(*rows[0])

    def root_at(self, size: int) -> bytes:
        """The root over the first ``size`` events, from stored nodes and leaf hashes.

        Raises ``ValueError`` where they are not all there.
        """
        return merkle.root_at(size, self.read_nodes, self.read_leaves)

    def read_nodes(self, level: int, first: int, count: int) -> list[bytes]:
        """Stored roots of complete subtrees of 256**level leaves, as ``ledger.integrity.merkle`` asks for them."""
        return read.tree_nodes(self._backend, level, first, count)

    def read_leaves(self, first: int, count: int) -> list[bytes]:
        """Leaf hashes from index ``first`` (position - 1) on."""
        return read.leaf_hashes(self._backend, first, count)

    def version(self, run_id: str, request_id: str | None = None) -> int:
        """The version of a run's, or a request's, last event; 0 where it has none."""
        return read.version(self._backend, run_id, request_id)

    def rows(self, sql: str, params: Params = NO_PARAMS) -> Iterator[Row]:
        """Rows of a SELECT of our own with ``:name`` parameters, streamed.

        The same text serves both databases. Times come as RFC 3339 text from both; flags as bools
        from Postgres and as 0 and 1 from SQLite, which are equal to them.
        """
        return self._backend.stream(sql, params)

    def plan(self, query: str) -> list[str]:
        """How Postgres would answer a SELECT of our own, in its words, without costs."""
        return [row[0] for row in self._backend.fetch(f"EXPLAIN (VERBOSE, COSTS OFF) {query}")]

    # --- the rest --------------------------------------------------------------------------

    def driver_lock(self, run_id: str, holder: str) -> AbstractContextManager[None]:
        """Be the run's one driver within the ``with``. ``holder`` tells others who.

        Raises ``RunLocked``, naming the holder, where somebody else drives it. A process that dies
        lets go at once.
        """
        return self._backend.driver_lock(run_id, holder)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a signed checkpoint. The same one again is no error; another at that size is ``StatementRefused``."""
        with self.exclusively() as transaction:
            sql = "SELECT size, root, note FROM checkpoints WHERE size = :size"
            if checkpoint not in self._backend.fetch(sql, {"size": checkpoint.size}):
                transaction.write_checkpoints([checkpoint])

    def erase_traces(self) -> Path | None:
        """After a redaction: drop the copies of erased content that the database keeps of its own.

        Gives the file that may still hold some, None where none does: on SQLite a reader, or too
        little room, can prevent it. On Postgres that is the administrator's (VACUUM).
        """
        return self._backend.erase_traces()

    @contextmanager
    def exclusively(self) -> Iterator[Transaction]:
        """One transaction in which nobody appends; commits at the end, or leaves no trace."""
        with self._backend.exclusive():
            try:
                head = self._backend.begin((), ()).head
                self._backend.allow_idle()
                yield Transaction(self._backend, head)
                self._backend.commit()
            except BaseException:
                self._backend.rollback()
                raise

    def close(self) -> None:
        """Close every connection. Closing twice is no error."""
        self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Transaction:
    """What may be changed besides the log, while its head is held. ``head``: where the log stands."""

    def __init__(self, backend: Backend, head: Head) -> None:
        self._backend = backend
        self.head = head

    def write_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Add signed checkpoints."""
        self._backend.write_checkpoints(checkpoints)

    def change(self, changes: Sequence[RowChange]) -> None:
        """Change rows of projection tables."""
        self._backend.write(Rows([], [], [], [], list(changes)))

    def execute(self, sql: str, params: Params = NO_PARAMS) -> None:
        """Run a statement of our own with ``:name`` parameters."""
        self._backend.execute(sql, params)
