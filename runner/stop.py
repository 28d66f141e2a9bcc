"""A polite stop, and an impolite one.

The first request means: send nothing more, wait for the replies in flight, record them. The
second means: at once. Calls that are then still open stay open in the ledger until a resume or an
abandon closes them.
"""

from __future__ import annotations

import asyncio
from typing import Literal

Signal = Literal["SIGINT", "SIGTERM"]


class StopSignal:
    """Asked from a signal handler or another task of the same event loop."""

    def __init__(self) -> None:
        self.reason: Signal | None = None
        self._draining = asyncio.Event()
        self._now = asyncio.Event()

    def request(self, reason: Signal = "SIGINT") -> None:
        if self._draining.is_set():
            self._now.set()
            return
        self.reason = reason
        self._draining.set()

    @property
    def requested(self) -> bool:
        return self._draining.is_set()

    @property
    def at_once(self) -> bool:
        return self._now.is_set()

    async def wait_at_once(self) -> None:
        await self._now.wait()

    async def sleep(self, seconds: float) -> bool:
        """Sleep, but no longer than until a stop is requested. True if the sleep ran its length."""
        if seconds <= 0:
            return not self.requested
        try:
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        except TimeoutError:
            return True
        return False
