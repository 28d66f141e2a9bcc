"""A caller's own HTTP client, for the programming interface: ``post``, ``raise_for_status``, ``json``.

Such a client tells less than ours. Its status is null where it has none, its body is the canonical
form of what ``json()`` gives, and its size is checked only once it is there; the deadline holds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ledger.integrity.canonical import CanonicalError, encode_keeping_integers
from runner.model_client import BODY_CEILING, KEPT_OF_LARGE_BODY
from runner.reply import Exchange, TransportFault
from runner.scrub import Scrubber


class CallerResponse(Protocol):
    """The little that is asked of a response. ``status_code`` and ``headers`` are used where there."""

    def raise_for_status(self) -> Any: ...
    def json(self) -> Any: ...


class CallerClient(Protocol):
    """The little that is asked of a client."""

    async def post(self, url: str, *, json: Any, headers: Mapping[str, str]) -> Any: ...


class AdaptedClient:
    """Makes a caller's client look like ours."""

    def __init__(
        self,
        client: CallerClient,
        url: str,
        headers: Mapping[str, str],
        scrubber: Scrubber,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._url = url
        self._headers = dict(headers)
        self._scrubber = scrubber
        self._clock = clock

    async def post(self, body: bytes, timeout: float) -> Exchange | TransportFault:
        began = self._clock()
        try:
            async with asyncio.timeout(timeout):
                response = await self._client.post(self._url, json=json.loads(body), headers=dict(self._headers))
        except TimeoutError as error:
            return self._fault("transport_timeout", error, began)
        except Exception as error:  # noqa: BLE001 - whatever a caller's client raises is a failed call
            timed_out = "timeout" in type(error).__name__.lower()
            return self._fault("transport_timeout" if timed_out else "transport_connect", error, began)
        try:
            response.raise_for_status()
        except Exception as error:  # noqa: BLE001 - likewise
            status = _status(response) or _status(getattr(error, "response", None))
            if status is None:
                return self._fault("transport_connect", error, began)
            return self._exchange(status, f"{type(error).__name__}: {error}".encode("utf-8", "replace"), began)
        return self._exchange(_status(response), _raw_body(response), began)

    def _fault(self, code: Any, error: BaseException, began: float) -> TransportFault:
        detail, scrubbed = self._scrubber.scrub(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        return TransportFault(
            code=code,
            outcome_unknown=code == "transport_timeout",
            detail=detail.decode("utf-8", "replace"),
            duration_us=self._elapsed(began),
            scrubbed=scrubbed,
        )

    def _exchange(self, status: int | None, raw: bytes, began: float) -> Exchange:
        # Scrubbed before it is cut: a key across the edge would be left in half.
        body, scrubbed = self._scrubber.scrub(raw)
        return Exchange(
            http_status=status,
            body=body[:KEPT_OF_LARGE_BODY] if len(raw) > BODY_CEILING else body,
            body_bytes=len(raw),
            truncated=len(raw) > BODY_CEILING,
            content_type=None,
            retry_after_ms=None,
            duration_us=self._elapsed(began),
            scrubbed=scrubbed,
        )

    def _elapsed(self, began: float) -> int:
        return max(0, round((self._clock() - began) * 1_000_000))


def _raw_body(response: Any) -> bytes:
    """The body as canonical JSON; where there is none, a text that reads as a bad envelope."""
    try:
        return encode_keeping_integers(response.json())
    except CanonicalError as error:
        return f"a body that JSON cannot hold: {error}".encode("utf-8", "replace")
    except Exception as error:  # noqa: BLE001 - a caller's response may raise anything
        return f"{type(error).__name__}: {error}".encode("utf-8", "replace")


def _status(response: Any) -> int | None:
    status = getattr(response, "status_code", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None
