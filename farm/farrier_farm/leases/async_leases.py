"""The interface of the lease layer for brokers, on an event loop. `AsyncLeases` guarantees the same
as `leases.Leases`, because both use the same script."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from farrier_farm.leases.leases import NOTHING, Lease, LeasePolicy, flat, script, stale, unknown
from farrier_farm.leases.states import State
from farrier_farm.redis.async_connection import AsyncClient
from farrier_farm.storage.references import REFERENCES

_NEWS_AT_ONCE = 1000


class AsyncLeases:
    """The leased items of one kind. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: AsyncClient, kind: str, policy: LeasePolicy) -> None:
        self._client = client
        self._kind = kind
        self._prefix = f"farrier:{kind}"
        self._script = client.script(script(policy))

    async def take(self, owner: str, queues: Sequence[str]) -> Lease | None:
        """Lease the oldest item of these queues; return None if no item is queued."""
        word, *answer = await self._call("take", owner, secrets.token_hex(8), *queues)
        if word != "granted":
            return None
        return Lease(str(answer[0]), int(answer[1]), int(answer[2]), owner)

    async def renew_held(self, owner: str, items: Iterable[str]) -> list[str]:
        """Renew the owner's leases of these items; return the items whose leases were lost."""
        _, *gone = await self._call("renew_held", owner, *items)
        return list(map(str, gone))

    async def finish(self, lease: Lease, state: State, fields: Mapping[str, str]) -> None:
        """End the leased item in a final state, once. Raises StaleLeaseError."""
        word, *_ = await self._call("finish", lease.item, lease.fence, state, *flat(fields))
        if word == "stale":
            await self._stale(lease)

    async def give_back(
        self, lease: Lease, *, crashed: bool, reason: str, fields: Mapping[str, str] = NOTHING
    ) -> None:
        """Put the leased item back into the queue, or end it as dead after too many crashes. Raises
        StaleLeaseError."""
        how = "01"[crashed], reason, *flat(fields)
        word, *_ = await self._call("give_back", lease.item, lease.fence, *how)
        if word == "stale":
            await self._stale(lease)

    async def cancel(self, item: str) -> None:
        """Cancel the item, unless it has ended."""
        await self._call("cancel", item)

    async def read(self, item: str, *names: str) -> list[str]:
        """Return the values of these fields of an item, "" for a missing field. Raises
        NotFoundError."""
        key = f"{self._prefix}:item:{item}"
        state, *values = await self._client.command("HMGET", key, "state", *names)
        if state is None:
            raise unknown(self._kind, item)
        return [text or "" for text in values]

    async def sweep(self) -> list[str]:
        """Revoke expired leases. Return the names of the queues that contain an item which is not
        leased."""
        _, *queues = await self._call("sweep")
        return list(map(str, queues))

    async def newest(self) -> str:
        """Return the id of the newest entry in the stream of queued items, with which a call of
        `news` can start."""
        entries = await self._client.command("XREVRANGE", self._news, "+", "-", "COUNT", 1)
        return str(entries[0][0]) if entries else "0-0"

    async def news(self, after: str, wait_s: float) -> tuple[list[str], str]:
        """Return the queue of each item that was queued after the stream id `after`, and the id to
        pass to the next call. Wait up to `wait_s` for the first item."""
        block = max(1, int(wait_s * 1000))
        streams = await self._client.command(
            "XREAD", "COUNT", _NEWS_AT_ONCE, "BLOCK", block, "STREAMS", self._news, after
        )
        if not streams:
            return [], after
        entries = streams[0][1]
        return [data["queue"] for _, data in entries], str(entries[-1][0])

    @property
    def _news(self) -> str:
        return f"{self._prefix}:news"

    async def _stale(self, lease: Lease) -> NoReturn:
        state = await self._client.command("HGET", f"{self._prefix}:item:{lease.item}", "state")
        raise stale(self._kind, lease, state)

    async def _call(self, operation: str, *args: str | int) -> list[Any]:
        answer: list[Any] = await self._script([self._prefix, REFERENCES], [operation, *args])
        return answer
