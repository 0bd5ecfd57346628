"""The connected devices, counted and listed by device class. Each change of a device updates the
sets in Redis (`history.lua`), so the cost of a query depends on the number of classes and not on
the number of devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings

# A script, so that all times are by Redis's clock and one answer contains everything. ARGV[1] is
# the time in ms after its last heartbeat for which a device counts as connected. Times in the
# future, after the clock was put back, do not count. An older broker maintains the set `connected`
# of the devices that may get batches, but not the set `present`.
_CLASSES = """
local time, found = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local from, to = string.format('%d', now - ARGV[1]), string.format('%d', now + ARGV[1])
for _, class in ipairs(redis.call('HKEYS', KEYS[1])) do
  local serving = redis.call('ZCOUNT', KEYS[2] .. ':' .. class, from, to)
  local present = redis.call('ZCOUNT', KEYS[3] .. ':' .. class, from, to)
  if present + serving > 0 then
    found[#found + 1] = {class, math.max(present, serving), serving}
  end
end
return found
"""
# Returns the devices of a class with the latest heartbeats, at most ARGV[2].
_DEVICES = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local from, to = string.format('%d', now - ARGV[1]), string.format('%d', now + ARGV[1])
return redis.call('ZREVRANGEBYSCORE', KEYS[1], to, from, 'LIMIT', 0, ARGV[2])
"""
_PRESENT = "farrier:present"


@dataclasses.dataclass(frozen=True, slots=True)
class ClassPresence:
    """The number of connected devices of a class, and the number of these devices that may get
    batches."""

    connected: int
    serving: int


class Presence:
    """The connected devices by class. Every method runs one script in Redis, and raises
    ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._classes = client.script(_CLASSES)
        self._devices = client.script(_DEVICES)
        self._expiry_ms = int(settings.device_expiry_s * 1000)

    def classes(self) -> Mapping[str, ClassPresence]:
        """Return the classes that have a connected device: a `ClassPresence` by class id."""
        keys = ["farrier:classes", "farrier:connected", _PRESENT]
        rows = self._classes(keys, [self._expiry_ms])
        return {
            class_id: ClassPresence(int(all_), int(some)) for class_id, all_, some in sorted(rows)
        }

    def devices(self, class_id: str, limit: int) -> Sequence[str]:
        """Return the ids of connected devices of a class, at most `limit`, the device with the
        latest heartbeat first."""
        names: Sequence[str] = self._devices([f"{_PRESENT}:{class_id}"], [self._expiry_ms, limit])
        return names
