"""The history of a device as a stream of events: connected, lost, back, draining, leased, measured,
faulted, acquitted, unfit, quarantined, released. The Lua scripts that make these changes add the
events (`history.lua`)."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from farrier_farm.redis.connection import Client

HISTORY = "farrier:history"
HISTORY_KEPT = 1000  # The approximate number of events kept of a device.


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An event of a device. `id` grows with time ("<ms>-<n>"); `data["what"]` is the kind of event,
    which determines the other fields of `data`."""

    id: str
    data: dict[str, Any]

    @property
    def at(self) -> float:
        """Return the time of the event in Unix seconds."""
        return int(self.id.partition("-")[0]) / 1000


def history(
    client: Client, device_id: str, *, limit: int, after: str = "", newest_first: bool = True
) -> tuple[list[DeviceEvent], str]:
    """Return at most `limit` events of a device after the id `after`, and the `after` to pass for
    the next page; "" on the last page. Raises ServiceError if Redis is out of reach."""
    verb = "XREVRANGE" if newest_first else "XRANGE"
    bounds = (
        [f"({after}" if after else "+", "-"]
        if newest_first
        else [f"({after}" if after else "-", "+"]
    )
    entries = client.command(verb, f"{HISTORY}:{device_id}", *bounds, "COUNT", limit + 1)
    page = [DeviceEvent(entry, json.loads(fields["data"])) for entry, fields in entries[:limit]]
    return page, page[-1].id if len(entries) > limit else ""
