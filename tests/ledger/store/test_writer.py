"""Appending from asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ledger.store import Batch, Expected, Receipt, Store, Writer, open_store
from ledger.store.errors import InvalidEvent, LedgerError, LedgerFull, VersionConflict
from tests.ledger.store.making import Clock, accepted, redaction, some


def test_many_callers_share_their_transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    append_group = store.append_group

    def counted(batches: list[Batch]) -> list[list[Receipt] | LedgerError]:
        sizes.append(sum(len(batch.events) for batch in batches))
        return append_group(batches)

    monkeypatch.setattr(store, "append_group", counted)

    async def main() -> list[list[Receipt]]:
        async with Writer(store, group_events=50) as writer:
            return await asyncio.gather(*(writer.append(some(2, first=2 * n + 1)) for n in range(300)))

    receipts = asyncio.run(main())
    assert sorted(r.position for each in receipts for r in each) == list(range(2, 602))
    assert all(second.position == first.position + 1 for first, second in receipts)
    assert sum(sizes) == 600
    assert max(sizes) == 50
    assert len(sizes) < 30
    assert store.root_at(601) == store.head().root


def test_a_batch_larger_than_a_group_is_still_one_transaction(store: Store) -> None:
    async def main() -> list[Receipt]:
        async with Writer(store, group_events=10) as writer:
            one, many, other = await asyncio.gather(
                writer.append(some(1)), writer.append(some(30, first=2)), writer.append(some(1, first=32))
            )
            return [*one, *many, *other]

    assert [r.position for r in asyncio.run(main())] == list(range(2, 34))


def test_one_callers_mistake_is_that_callers_alone(store: Store) -> None:
    async def main() -> list[object]:
        async with Writer(store) as writer:
            return await asyncio.gather(
                writer.append(some(1)),
                writer.append(some(1, first=2), [Expected("run", None, 77)]),
                writer.append([redaction(1)]),
                writer.append(some(1, first=3)),
                return_exceptions=True,
            )

    first, conflict, invalid, last = asyncio.run(main())
    assert isinstance(first, list)
    assert isinstance(conflict, VersionConflict)
    assert isinstance(invalid, InvalidEvent)
    assert isinstance(last, list)
    assert store.head().size == 3


def test_closing_appends_what_waits(store: Store) -> None:
    async def main() -> list[list[Receipt]]:
        writer = Writer(store)
        waiting = [asyncio.ensure_future(writer.append(some(1, first=n))) for n in range(1, 21)]
        await asyncio.sleep(0)
        await writer.close()
        await writer.close()
        with pytest.raises(RuntimeError, match="closed"):
            await writer.append(some(1, first=99))
        return await asyncio.gather(*waiting)

    assert len(asyncio.run(main())) == 20
    assert store.head().size == 21


def test_a_cancelled_caller_disturbs_nobody(store: Store) -> None:
    async def main() -> None:
        async with Writer(store) as writer:
            impatient = asyncio.ensure_future(writer.append(some(1)))
            other = asyncio.ensure_future(writer.append(some(1, first=2)))
            await asyncio.sleep(0)
            impatient.cancel()
            assert len(await other) == 1
            with pytest.raises(asyncio.CancelledError):
                await impatient

    asyncio.run(main())
    assert store.head().size == 3


@pytest.mark.parametrize("begun_url", ["sqlite"], indirect=True)
def test_a_full_disk_fails_all_who_wait_and_all_who_come_later(begun_url: str) -> None:
    async def main(store: Store) -> None:
        async with Writer(store) as writer:
            await writer.append(some(1))
            limit = store._backend.connection.execute("PRAGMA max_page_count = 1")  # type: ignore[attr-defined]
            assert limit.fetchone()[0] > 1  # SQLite takes the present size as the least
            waiting = [writer.append([accepted(f"big{n}", content=b"x" * 100_000)]) for n in range(10)]
            failures = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(failure) for failure in failures} == {LedgerFull}
            with pytest.raises(LedgerFull):
                await writer.append(some(1, first=5))

    with open_store(begun_url, "write", clock=Clock()) as store:
        asyncio.run(main(store))
        assert store.head().size == 2
        assert store.root_at(2) == store.head().root


def test_an_unforeseen_error_leaves_nobody_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with Writer(store) as writer:
            monkeypatch.setattr(store, "append_group", broken)
            for _ in range(2):
                with pytest.raises(LedgerError, match="ZeroDivisionError"):
                    await asyncio.wait_for(writer.append(some(1)), 10)

    asyncio.run(main())


def test_the_loop_is_free_while_the_database_works(store: Store) -> None:
    """The database's lock is held by another; meanwhile the loop goes on."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with store.exclusively():
            held.set()
            release.wait(10)

    async def main() -> None:
        async with Writer(store) as writer:
            holder = threading.Thread(target=hold)
            holder.start()
            await asyncio.to_thread(held.wait)
            appending = asyncio.ensure_future(writer.append(some(1)))
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert not appending.done()
            release.set()
            assert len(await appending) == 1
            holder.join()

    asyncio.run(main())
