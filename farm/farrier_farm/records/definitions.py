"""The definitions of tasks, to which records refer by hash. This is the `TaskStore` that all
workers share.

farrier:definitions:texts   hash: digest of task, target and threads → a definition's JSON line,
                            compressed, in base64
farrier:definitions:order   sorted set of the digests; the score is the last definition, in ms

The definition of a program takes 0.2 to 2 KB when compressed. If there are more than `MOST`, the
definitions that were not stored for the longest time are removed; the next job that tunes such a
task stores its definition again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import zlib
from collections.abc import Iterator, Sequence

from farrier.records import TaskDefinition
from farrier_farm.redis.connection import Client

MOST = 200_000
_PAGE = 200
_TEXTS, _ORDER = "farrier:definitions:texts", "farrier:definitions:order"

_DEFINE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[2], now, ARGV[i])
end
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[1])
if surplus > 0 then
  local oldest = redis.call('ZPOPMIN', KEYS[2], surplus)
  for i = 1, #oldest, 2 do redis.call('HDEL', KEYS[1], oldest[i]) end
end
"""


class Definitions:
    """The definitions of a farm; implements `farrier.records.TaskStore`. Every method raises
    ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, most: int = MOST) -> None:
        self._client = client
        self._most = most
        self._define = client.script(_DEFINE)

    def define(self, definitions: Sequence[TaskDefinition]) -> None:
        """Store definitions, as `TaskStore.define` does."""
        for start in range(0, len(definitions), _PAGE):
            part = definitions[start : start + _PAGE]
            words = [(_digest(definition), _packed(definition.to_line())) for definition in part]
            self._define([_TEXTS, _ORDER], [self._most, *itertools.chain(*words)])

    def newest(self, limit: int) -> Iterator[TaskDefinition]:
        """Yield up to `limit` definitions, the latest first. A definition that cannot be parsed,
        for example one of a newer version, is skipped."""
        for start in range(0, limit, _PAGE):
            end = min(start + _PAGE, limit) - 1
            digests = self._client.command("ZREVRANGE", _ORDER, start, end)
            if not digests:
                return
            for packed in self._client.command("HMGET", _TEXTS, *digests):
                if packed is not None:  # The definition was removed meanwhile.
                    with contextlib.suppress(ValueError, zlib.error):
                        yield TaskDefinition.from_line(_unpacked(packed))

    def count(self) -> int:
        return int(self._client.command("ZCARD", _ORDER))


def _digest(definition: TaskDefinition) -> str:
    text = f"{definition.task}\n{definition.fingerprint}\n{definition.threads}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _packed(line: str) -> str:
    return base64.b64encode(zlib.compress(line.encode(), 9)).decode()


def _unpacked(text: str) -> str:
    return zlib.decompress(base64.b64decode(text)).decode()
