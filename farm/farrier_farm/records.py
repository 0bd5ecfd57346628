"""Tuning records in the farm: the `RecordStore` that every worker shares.

farrier:records:lines               hash: digest of a line → the JSON line
farrier:records:order               list of all digests, in the order of addition
farrier:records:of:<task>:<target>  the same for one task on one target fingerprint
farrier:records:archived            how many of `order` are in the archives
farrier:records:archives            list of sha256: blobs of JSON lines, in order
farrier:records:counted             how many of `order` are counted in what follows
farrier:records:classes             set of the ids of all device classes; "" where none is told
farrier:records:class:<class>       hash: how many `records`, and when the `oldest` and `newest` of
                                    them were made
farrier:records:tasks:<class>       set of their tasks
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from farrier.errors import UsageError
from farrier.records import TuningRecord
from farrier_farm.connection import Client
from farrier_farm.content import ContentStore
from farrier_farm.references import REFERENCES
from farrier_farm.trials import Trials

_PREFIX = "farrier:records:"
ARCHIVES = _PREFIX + "archives"
_PAGE = 500
_COUNTED_AT_ONCE = 200
ARCHIVED_AT_ONCE = 256  # records that wait before they become a blob

# Records of a class are counted in the order of addition, up to a number: each when it is added,
# and those that an older version added by `_COUNT`, which goes through so many of them.
_COUNTING = """
local function counted() return tonumber(redis.call('GET', 'farrier:records:counted') or 0) end

local function count_record(class, task, created, number)
  local key = 'farrier:records:class:' .. class
  redis.call('SADD', 'farrier:records:classes', class)
  redis.call('SADD', 'farrier:records:tasks:' .. class, task)
  redis.call('HINCRBY', key, 'records', 1)
  local oldest, newest = unpack(redis.call('HMGET', key, 'oldest', 'newest'))
  local text = string.format('%.3f', created)
  if not oldest or created < tonumber(oldest) then redis.call('HSET', key, 'oldest', text) end
  if not newest or created > tonumber(newest) then redis.call('HSET', key, 'newest', text) end
  redis.call('SET', 'farrier:records:counted', number)
end
"""
_COUNT = """
local first, found = counted(), 0
for i, digest in ipairs(redis.call('LRANGE', KEYS[2], first, first + ARGV[1] - 1)) do
  local is_read, record = pcall(cjson.decode, redis.call('HGET', KEYS[1], digest))
  if not is_read then record = {} end
  count_record(record.device_class or '', record.task or '', record.created or 0, first + i)
  found = i
end
return found
"""

# With a job, its trial as well (`trials.py`). A record that is there was added before, and with it
# its trial.
_ADD = """
local TRIMMED = 100 -- trials beyond those kept, before they go together

local function place(task, ns, id) return string.format('%s %022.1f %s', task, ns or 1e18, id) end

local function trim(trials, fastest, kept)
  if redis.call('XLEN', trials) <= kept + TRIMMED then return end
  for _, entry in ipairs(redis.call('XRANGE', trials, '-', '+', 'COUNT', TRIMMED)) do
    local fields = {}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    for _, task in ipairs({'', fields.task}) do
      redis.call('ZREM', fastest, place(task, tonumber(fields.ns), entry[1]))
    end
    redis.call('XDEL', trials, entry[1])
  end
end

if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
local number, task = redis.call('RPUSH', KEYS[2], ARGV[1]), ARGV[4]
redis.call('RPUSH', KEYS[3], ARGV[1])
if number == counted() + 1 then count_record(ARGV[3], task, tonumber(ARGV[5]), number) end
if #KEYS == 3 or redis.call('HGET', KEYS[4], 'state') ~= 'running' then return 1 end
local context, ns, kept, status = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]  -- `Trials.trial`
local id = redis.call('XADD', KEYS[5], '*', 'record', ARGV[1], 'task', task, 'context', context,
  'status', status, 'ns', ns)
ns = tonumber(ns)
redis.call('ZADD', KEYS[8], 0, place('', ns, id), 0, place(task, ns, id))
trim(KEYS[5], KEYS[8], kept)
count_in_minute('trials')
local count = redis.call('HINCRBY', KEYS[6], task .. ' trials', 1)
if not ns then
  redis.call('HINCRBY', KEYS[6], task .. ' failed', 1)
else
  local best = tonumber(redis.call('HGET', KEYS[6], task .. ' ' .. context))
  if not best or ns < best then
    redis.call('HSET', KEYS[6], task .. ' ' .. context, ARGV[7])
    if context == 'alone' then
      add_point_to_field(KEYS[7], task, count, seconds_of(KEYS[4]), ARGV[7])
    end
  end
end
return 1
"""

_NOTE_ARCHIVE = """
if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[3])
redis.call('SADD', KEYS[3], KEYS[2])
return 1
"""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordClass:
    """The records of a device class, "" for those that tell none: how many, of how many tasks, and
    when the oldest and the newest were made, in Unix seconds."""

    device_class: str
    records: int
    tasks: int
    oldest: float
    newest: float


class Records:
    """Implements `farrier.records.RecordStore`: what `add` returned from survives `kill -9`. Raises
    ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, blobs: ContentStore, trials: Trials) -> None:
        self._client = client
        self._blobs = blobs
        self._trials = trials
        files = resources.files(__package__)
        parts = [files.joinpath(name).read_text() for name in ("curves.lua", "throughput.lua")]
        self._add_script = client.script("\n".join([*parts, _COUNTING, _ADD]))
        self._count = client.script(_COUNTING + _COUNT)
        self._note_archive = client.script(_NOTE_ARCHIVE)

    def add(self, record: TuningRecord, job: str = "") -> None:
        """Once, however often it is added, as a trial of the `job` that measured it. Every
        `ARCHIVED_AT_ONCE` records become a blob."""
        trial = self._trials.trial(job, record) if job else ((), ())
        self._add(record, trial)
        if self._waiting() >= ARCHIVED_AT_ONCE:
            self.archive()

    def of_job(self, job: str) -> TrialRecords:
        """The same store, what is added to which are trials of a job; "" is none."""
        return TrialRecords(self, job)

    def lines(self, digests: Sequence[str]) -> list[str | None]:
        """The JSON lines of records by their digests; None for one that is not there."""
        if not digests:
            return []
        found: list[str | None] = self._client.command("HMGET", _PREFIX + "lines", *digests)
        return found

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """All records of a task on a target, in the order of addition."""
        found = _read(self._lines(f"of:{task}:{fingerprint}", 0))
        # Two pairs of names may join to one key.
        return [r for r in found if (r.task, r.fingerprint) == (task, fingerprint)]

    def newest(self, task: str, fingerprint: str, limit: int) -> list[TuningRecord]:
        """The last so many of those that `find` gives, in the same order."""
        found = _read(self._last_lines(f"of:{task}:{fingerprint}", limit))
        return [r for r in found if (r.task, r.fingerprint) == (task, fingerprint)]

    def __iter__(self) -> Iterator[TuningRecord]:
        return _read(self.export())

    def count(self) -> int:
        return int(self._client.command("LLEN", _PREFIX + "order"))

    def export(self) -> Iterator[str]:
        """Every record as one JSON line (without the newline), in the order of addition."""
        return self._lines("order", 0)

    def load(self, lines: Iterable[str]) -> int:
        """Adds exported records; returns how many were new. UsageError names a malformed line
        (those before it are added)."""
        new = 0
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = TuningRecord.from_line(line)
            except ValueError as error:
                raise UsageError(f"line {number} is no tuning record: {error}") from None
            new += self._add(record)
        self.archive()
        return new

    def archive(self) -> str | None:
        """Writes the records since the last archive into one blob and returns its sha256; None
        where there are none. Two callers at once make one archive."""
        start = int(self._client.command("GET", _PREFIX + "archived") or 0)
        lines = list(self._lines("order", start))
        if not lines:
            return None
        digest = self._blobs.put("".join(f"{line}\n" for line in lines).encode())
        keys = [_PREFIX + "archived", ARCHIVES, f"{REFERENCES}{digest}"]
        noted = self._note_archive(keys, [start, start + len(lines), digest])
        return digest if noted else None

    def archives(self) -> list[str]:
        """The sha256 of every archive, in order; together they hold every archived record once."""
        digests: list[str] = self._client.command("LRANGE", ARCHIVES, 0, -1)
        return digests

    def classes(self) -> Sequence[RecordClass]:
        """How many records there are of each device class, by its id."""
        ids = sorted(self._client.command("SMEMBERS", _PREFIX + "classes"))
        names = ("records", "oldest", "newest")
        words = [("HMGET", f"{_PREFIX}class:{one}", *names) for one in ids]
        tasks = [("SCARD", f"{_PREFIX}tasks:{one}") for one in ids]
        found = self._client.commands([*words, *tasks]) if ids else []
        each = zip(ids, found[: len(ids)], found[len(ids) :], strict=True)
        return [
            RecordClass(one, int(count), int(of_tasks), float(oldest), float(newest))
            for one, (count, oldest, newest), of_tasks in each
        ]

    def count_classes(self) -> None:
        """Counts what an older version added, and nobody has counted."""
        while self._count([_PREFIX + "lines", _PREFIX + "order"], [_COUNTED_AT_ONCE]):
            pass

    def _add(
        self, record: TuningRecord, trial: tuple[Sequence[str], Sequence[str | int]] = ((), ())
    ) -> int:
        words = (record.task, record.fingerprint, record.to_line())
        return self._add_line(*words, record.device_class, record.created, trial)

    def _add_line(
        self,
        task: str,
        fingerprint: str,
        line: str,
        device_class: str = "",
        created: float = 0.0,
        trial: tuple[Sequence[str], Sequence[str | int]] = ((), ()),
    ) -> int:
        digest = hashlib.sha256(line.encode()).hexdigest()[:32]
        keys = [_PREFIX + "lines", _PREFIX + "order", f"{_PREFIX}of:{task}:{fingerprint}"]
        of_trial, words = trial
        of_class = [device_class, task, repr(created)]
        return int(self._add_script([*keys, *of_trial], [digest, line, *of_class, *words]))

    def _waiting(self) -> int:
        return self.count() - int(self._client.command("GET", _PREFIX + "archived") or 0)

    def _lines(self, name: str, start: int) -> Iterator[str]:
        while True:
            digests = self._client.command("LRANGE", _PREFIX + name, start, start + _PAGE - 1)
            if not digests:
                return
            yield from self._client.command("HMGET", _PREFIX + "lines", *digests)
            start += len(digests)

    def _last_lines(self, name: str, limit: int) -> Iterator[str]:
        digests = self._client.command("LRANGE", _PREFIX + name, -limit, -1)
        for start in range(0, len(digests), _PAGE):
            page = digests[start : start + _PAGE]
            yield from self._client.command("HMGET", _PREFIX + "lines", *page)


@dataclasses.dataclass(frozen=True, slots=True)
class TrialRecords:
    """All records; what is added is a trial of one job as well. Implements `RecordStore`."""

    records: Records
    job: str

    def add(self, record: TuningRecord) -> None:
        """As `Records.add`."""
        self.records.add(record, self.job)

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """As `Records.find`."""
        return self.records.find(task, fingerprint)

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(self.records)


def _read(lines: Iterable[str]) -> Iterator[TuningRecord]:
    """The records of lines that were checked when they were added: what cannot be read is a newer
    worker's, and says nothing to this one."""
    for line in lines:
        with contextlib.suppress(ValueError):
            yield TuningRecord.from_line(line)
