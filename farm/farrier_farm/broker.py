"""The part of the farm that brokers use: sessions and batches of devices, on an event loop."""

from __future__ import annotations

import dataclasses

from farrier_farm.devices.sessions import Sessions
from farrier_farm.farm import Farm
from farrier_farm.measurements.async_batches import Batches
from farrier_farm.redis.async_connection import AsyncClient


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceSide:
    """The part of a farm that brokers use, the sessions and batches of its devices, for the tasks
    of one event loop."""

    client: AsyncClient
    sessions: Sessions
    batches: Batches

    @classmethod
    def of(cls, farm: Farm) -> DeviceSide:
        """Return an instance for an open farm, with connections to Redis of its own."""
        client = AsyncClient(farm.client.url)
        sessions = Sessions(client, farm.settings)
        return cls(client, sessions, Batches(client, farm.settings, sessions, farm.blobs))

    async def close(self) -> None:
        await self.client.close()
