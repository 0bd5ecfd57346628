"""The device classes that are connected, and how many devices of each, kept where that changes
(`history.lua`): to ask costs as much as there are classes, and not devices that were ever known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings

# A script, so that Redis's clock decides and one answer has it all: how far from now a device may
# have been seen, in ms. What was seen in the future, because the clock was put back, is not there.
# An older broker keeps no `present`; of the devices that get work it keeps `connected`.
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
# Of one class, the devices seen last; ARGV[2] at most.
_DEVICES = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local from, to = string.format('%d', now - ARGV[1]), string.format('%d', now + ARGV[1])
return redis.call('ZREVRANGEBYSCORE', KEYS[1], to, from, 'LIMIT', 0, ARGV[2])
"""
_PRESENT = "farrier:present"


@dataclasses.dataclass(frozen=True, slots=True)
class ClassPresence:
    """The number of connected devices of a class, and the number of these that may get work."""

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
        """The classes of which a device is connected, by id."""
        keys = ["farrier:classes", "farrier:connected", _PRESENT]
        found = self._classes(keys, [self._expiry_ms])
        return {one: ClassPresence(int(all_), int(some)) for one, all_, some in sorted(found)}

    def devices(self, class_id: str, limit: int) -> Sequence[str]:
        """The ids of the connected devices of a class that were seen last, `limit` at most."""
        found: Sequence[str] = self._devices([f"{_PRESENT}:{class_id}"], [self._expiry_ms, limit])
        return found
