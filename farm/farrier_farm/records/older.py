"""Tuning records in the format of older versions, which added them to lists instead of a log.

<store>order               list of digests, in the order of addition
<store>of:<task>:<target>  the same for one task on one target fingerprint
<store>archived, archives, counted, classes, class:<class>, tasks:<class>
                           the archives and counts of these records

Such records are moved, the oldest first, to the log of the present format (`records.py`), from
which they are archived; their JSON lines stay in place. Processes of older versions may add more
while a farm is being updated. The older counts are removed together with the list.
"""

from __future__ import annotations

from collections.abc import Iterator

from farrier_farm.records.entry import RecordEntry
from farrier_farm.redis.connection import Client
from farrier_farm.redis.scripts import read_scripts

_ADOPTED_AT_ONCE = 100

# KEYS are the list and, for each entry, that of its task and target. Returns 0 if another process
# has taken the head of the list.
_ADOPT = """
local order, count = KEYS[1], #KEYS - 1
for i = 1, count do
  if redis.call('LINDEX', order, i - 1) ~= ARGV[1 + (i - 1) * WORDS] then return 0 end
end
for i = 1, count do
  local first = 1 + (i - 1) * WORDS
  enter_record(ARGV, first)
  redis.call('LREM', KEYS[1 + i], 1, ARGV[first])
end
redis.call('LTRIM', order, count, -1)
for _, name in ipairs({'archived', 'counted'}) do
  local number = tonumber(redis.call('GET', key(name)) or 0)
  redis.call('SET', key(name), math.max(number - count, 0))
end
if redis.call('EXISTS', order) == 0 then
  for _, class in ipairs(redis.call('SMEMBERS', key('classes'))) do
    redis.call('DEL', key('class', class), key('tasks', class))
  end
  redis.call('DEL', key('archived'), key('archives'), key('counted'), key('classes'))
end
return count
"""


class OlderRecords:
    """The records of a store that are still in the older format. Every method raises ServiceError
    if Redis is out of reach."""

    def __init__(self, client: Client, store: str) -> None:
        self._client = client
        self._store = store
        self._order = store + "order"
        shared = read_scripts("records")
        self._adopt = client.script(shared + _ADOPT)

    def count(self) -> int:
        """Return the number of records in the older format."""
        return int(self._client.command("LLEN", self._order))

    def lines(self, task: str, fingerprint: str) -> Iterator[str]:
        """Yield the JSON lines of the records of a task on a target that are still in the older
        format, in the order of addition. Two pairs of task and target can have the same key, so the
        lines are filtered by their names."""
        digests = self._client.command("LRANGE", f"{self._store}of:{task}:{fingerprint}", 0, -1)
        for line in self._lines(digests):
            entry = RecordEntry.of_line(line)
            if (entry.task, entry.target) == (task, fingerprint):
                yield line

    def adopt(self) -> bool:
        """Move the oldest `_ADOPTED_AT_ONCE` records to the log; return False if there were none to
        move."""
        digests = self._client.command("LRANGE", self._order, 0, _ADOPTED_AT_ONCE - 1)
        entries = [RecordEntry.of_line(line) for line in self._lines(digests)]
        if not entries:
            return False
        keys = [f"{self._store}of:{entry.task}:{entry.target}" for entry in entries]
        words = [word for entry in entries for word in entry.words]
        self._adopt([self._order, *keys], [*words, self._store])
        return True

    def _lines(self, digests: list[str]) -> list[str]:
        if not digests:
            return []
        lines: list[str] = self._client.command("HMGET", self._store + "lines", *digests)
        return lines
