"""What a broker does with leased items, on an event loop. The guarantees are those of `leases.py`:
the script is the same."""

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
    """The items of one kind. Raises ServiceError where Redis is out of reach."""

    def __init__(self, client: AsyncClient, kind: str, policy: LeasePolicy) -> None:
        self._client = client
        self._kind = kind
        self._prefix = f"farrier:{kind}"
        self._script = client.script(script(policy))

    async def take(self, owner: str, queues: Sequence[str]) -> Lease | None:
        """Leases the oldest item of these queues; None where there is none now."""
        word, *answer = await self._call("take", owner, secrets.token_hex(8), *queues)
        if word != "granted":
            return None
        return Lease(str(answer[0]), int(answer[1]), int(answer[2]), owner)

    async def renew_held(self, owner: str, items: Iterable[str]) -> list[str]:
        """Renew the owner's leases of these items; return those that it holds no more."""
        _, *gone = await self._call("renew_held", owner, *items)
        return list(map(str, gone))

    async def finish(self, lease: Lease, state: State, fields: Mapping[str, str]) -> None:
        """End the item in a final state, once. Raises StaleLeaseError."""
        word, *_ = await self._call("finish", lease.item, lease.fence, state, *flat(fields))
        if word == "stale":
            await self._stale(lease)

    async def give_back(
        self, lease: Lease, *, crashed: bool, reason: str, fields: Mapping[str, str] = NOTHING
    ) -> None:
        """Back to the queue, or dead after a crash too many. Raises StaleLeaseError."""
        how = "01"[crashed], reason, *flat(fields)
        word, *_ = await self._call("give_back", lease.item, lease.fence, *how)
        if word == "stale":
            await self._stale(lease)

    async def cancel(self, item: str) -> None:
        """Leave what has ended as it is."""
        await self._call("cancel", item)

    async def read(self, item: str, *names: str) -> list[str]:
        """These fields, "" for one that the item lacks; raises NotFoundError."""
        key = f"{self._prefix}:item:{item}"
        state, *found = await self._client.command("HMGET", key, "state", *names)
        if state is None:
            raise unknown(self._kind, item)
        return [text or "" for text in found]

    async def sweep(self) -> list[str]:
        """Take away expired leases; return the queues that hold an item which is not leased."""
        _, *queues = await self._call("sweep")
        return list(map(str, queues))

    async def newest(self) -> str:
        """Where `news` is to begin."""
        found = await self._client.command("XREVRANGE", self._news, "+", "-", "COUNT", 1)
        return str(found[0][0]) if found else "0-0"

    async def news(self, after: str, wait_s: float) -> tuple[list[str], str]:
        """The queue of each item that was queued after the id `after`, waiting up to `wait_s` for
        the first, and the id to go on from."""
        block = max(1, int(wait_s * 1000))
        found = await self._client.command(
            "XREAD", "COUNT", _NEWS_AT_ONCE, "BLOCK", block, "STREAMS", self._news, after
        )
        if not found:
            return [], after
        entries = found[0][1]
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
