"""Tuning records in the farm: the `RecordStore` that every worker shares, and those that are one
user's.

farrier:record-stores    set: what the keys of each store begin with, which is `<store>` here
<store>lines             hash: digest of a line → the JSON line
<store>log               stream: an entry a record, with its `digest`, in the order of addition
<store>on:<place>        stream: the same of one task on one target, under the same ids
<store>targets:<task>    set of the fingerprints of the targets for which there are some
<store>kinds             set of all pairs of device class, "" where none is told, and rule
<store>made:<kind>       sorted set: digests by when the records were made
<store>counts:<kind>     hash: task → how many records; the same of a <class>
<store>failed            hash: kind → how many of them have no time

A store is `farrier:records:`, which is shared, or `farrier:private-records:<user>:`. Places, kinds
and classes are JSON, for names may be any text. `archives.py` and `older.py` have
further keys."""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence

from farrier.records import ALL, RuleSummary, Selection, TuningRecord, malformed, record_of
from farrier_farm.jobs.trials import Trials
from farrier_farm.leases.leases import Lease, stale
from farrier_farm.records.archives import RecordArchives
from farrier_farm.records.entry import PRIVATE, SHARED, RecordEntry, kind, place
from farrier_farm.records.older import OlderRecords
from farrier_farm.redis.connection import Client
from farrier_farm.redis.scripts import read_scripts
from farrier_farm.storage.content import ContentStore

_PAGE = 500
_ADDED_AT_ONCE = 100
_LOOKED_AT = 2000  # records, for a page of some of them
_PAGE_CHARACTERS = 4 << 20

# Any number of entries; one alone with a job, its trial as well (`trials.py`). A record that is
# there was added before, and with it its trial. Of an attempt that holds the job no more none is
# added. An attempt that begins anew measures again what the one before had in hand, or had measured
# to compare: the n-th record of a candidate counts once, whichever attempt adds it.
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

local function counts_once(key, candidate, fence)
  local known = redis.call('HGET', key, candidate)
  local last, count, most = string.match(known or '', '^(%S+) (%d+) (%d+)$')
  count, most = tonumber(count or 0), tonumber(most or 0)
  count = last == fence and count + 1 or 1
  redis.call('HSET', key, candidate, string.format('%s %d %d', fence, count, math.max(count, most)))
  return count > most
end

if #KEYS > 0 then
  local fence, candidate = unpack(ARGV, WORDS + 5)
  if fence ~= '' then
    local state, holder = unpack(redis.call('HMGET', KEYS[1], 'state', 'fence'))
    if state ~= 'running' or holder ~= fence then return -1 end
    if redis.call('HEXISTS', STORE .. 'lines', ARGV[1]) == 1 then return 0 end
    if not counts_once(KEYS[6], candidate, fence) then return 0 end
  end
end
local added = 0
for first = 1, #ARGV - WORDS + 1, WORDS do added = added + add_record(ARGV, first) end
if #KEYS == 0 or added == 0 or redis.call('HGET', KEYS[1], 'state') ~= 'running' then
  return added
end
local task, context, ns_text, kept, status = ARGV[6], unpack(ARGV, WORDS + 1) -- `Trials.trial`
local id = redis.call('XADD', KEYS[2], '*', 'record', ARGV[1], 'task', task, 'context', context,
  'status', status, 'ns', ns_text)
local ns = tonumber(ns_text)
redis.call('ZADD', KEYS[5], 0, place('', ns, id), 0, place(task, ns, id))
trim(KEYS[2], KEYS[5], tonumber(kept))
count_in_minute('trials')
local count = redis.call('HINCRBY', KEYS[3], task .. ' trials', 1)
if not ns then
  redis.call('HINCRBY', KEYS[3], task .. ' failed', 1)
else
  local best = tonumber(redis.call('HGET', KEYS[3], task .. ' ' .. context))
  redis.call('HSETNX', KEYS[3], task .. ' first ' .. context, ns_text)
  if not best or ns < best then
    redis.call('HSET', KEYS[3], task .. ' ' .. context, ns_text)
    if context == 'alone' then
      add_point_to_field(KEYS[4], task, count, seconds_of(KEYS[1]), ns_text)
    end
  end
end
return 1
"""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordClass:
    """The records of a device class, "" for those that tell none: how many, of how many tasks, and
    when the oldest and the newest were made, in Unix seconds; the same by rule."""

    device_class: str
    records: int
    tasks: int
    oldest: float
    newest: float
    rules: tuple[RuleSummary, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordPage:
    """Lines, and the `after` of the next page; "" on the last one."""

    lines: list[str]
    next: str


@dataclasses.dataclass(frozen=True, slots=True)
class StoredRecord:
    """A line where it stands in the log; `record` is None where this version cannot read it."""

    id: str
    line: str
    record: TuningRecord | None


class Records:
    """Implements `farrier.records.RecordStore`: what `add` returned from survives `kill -9`. Raises
    ServiceError where Redis is out of reach.

    They are those that all share, or the private ones of the user `owner`."""

    def __init__(
        self, client: Client, blobs: ContentStore, trials: Trials, owner: str = ""
    ) -> None:
        self._client = client
        self._trials = trials
        self.store = f"{PRIVATE}{owner}:" if owner else SHARED
        self._log = self.store + "log"
        self.archives = RecordArchives(client, blobs, self.store)
        self._older = OlderRecords(client, self.store)
        shared = read_scripts("curves", "throughput", "records")
        self._add_script = client.script(f"{shared}\n{_ADD}")

    def add(self, record: TuningRecord, job: str = "", attempt: Lease | None = None) -> None:
        """Once, however often it is added, as a trial of the `job` that measured it, and by the
        `attempt` that holds the job, where it is given. Raises StaleLeaseError for one that does so
        no more."""
        fence = None if attempt is None else attempt.fence
        keys, words = self._trials.trial(job, record, fence) if job else ([], [])
        added = self._add_script(keys, [*RecordEntry.of(record).words, *words, self.store])
        if int(added) < 0 and attempt is not None:
            raise stale("job", attempt, self._client.command("HGET", keys[0], "state"))
        if self.archives.are_due():
            self.archives.write()

    def add_all(self, records: Iterable[TuningRecord]) -> int:
        """Add them as of no job; return how many were new."""
        return self._add_entries([RecordEntry.of(record) for record in records])

    def of_job(
        self, job: str, beside: Records | None = None, attempt: Lease | None = None
    ) -> TrialRecords:
        """The same store, what is added to which are trials of a job, by the `attempt` at it; "" is
        none. What is `beside` it is found as well."""
        return TrialRecords(self, job, beside, attempt)

    def lines(self, digests: Sequence[str]) -> list[str | None]:
        """The JSON lines of records by their digests; None for one that is not there."""
        if not digests:
            return []
        found: list[str | None] = self._client.command("HMGET", self.store + "lines", *digests)
        return found

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """All records of a task on a target, in the order of addition."""
        found = [_record(line) for line in self._older.lines(task, fingerprint)]
        found += [one.record for one in self.stored(task, fingerprint)]
        # One that was taken in meanwhile was read twice.
        return list(dict.fromkeys(record for record in found if record is not None))

    def stored(self, task: str, fingerprint: str) -> list[StoredRecord]:
        """Those of the log, with their places in it."""
        name = f"{self.store}on:{place(task, fingerprint)}"
        return list(self._read_log(name))

    def of_task(self, task: str) -> Iterator[TuningRecord]:
        """All records of a task, target by target."""
        self.adopt()
        for target in sorted(self._targets(task)):
            yield from self.find(task, target)

    def newest(self, task: str, fingerprint: str, limit: int) -> list[TuningRecord]:
        """The last so many of a task on a target, in the order of addition, of those that are in
        the log."""
        name = f"{self.store}on:{place(task, fingerprint)}"
        entries = self._client.command("XREVRANGE", name, "+", "-", "COUNT", limit)
        found = self._read_entries([(one, fields["digest"]) for one, fields in reversed(entries)])
        return [one.record for one in found if one.record is not None]

    def __iter__(self) -> Iterator[TuningRecord]:
        return (one.record for one in self._all() if one.record is not None)

    def count(self) -> int:
        return int(self._client.command("XLEN", self._log)) + self._older.count()

    def export(self) -> Iterator[str]:
        """Every record as one JSON line (without the newline), in the order of addition."""
        return (one.line for one in self._all())

    def page(self, selection: Selection, *, after: str = "", limit: int = 1000) -> RecordPage:
        """The records of a selection behind the one with the id `after`, in the order of addition:
        those of the next 2,000 records at most, so a page that is not the last may have fewer than
        `limit`, or none. What only another version can read is not selected by anything."""
        self.adopt()
        found, size = [], 0
        looked_at, following = self.log(after, selection.task, _LOOKED_AT)
        for one in looked_at:
            if selection == ALL or (one.record is not None and selection.admits(one.record)):
                found.append(one.line)
                size += len(one.line)
            if len(found) == limit or size > _PAGE_CHARACTERS:
                return RecordPage(found, one.id)
        return RecordPage(found, following)

    def log(self, after: str, task: str | None, limit: int) -> tuple[list[StoredRecord], str]:
        """The next so many records behind an id, of one task where it is given, and the id of the
        last of them; "" where there are no others."""
        names = [self._log]
        if task is not None:
            names = [f"{self.store}on:{place(task, target)}" for target in self._targets(task)]
        pages = [self._entries(name, after, limit) for name in names]
        found = list(heapq.merge(*pages, key=lambda entry: _order(entry[0])))[:limit]
        return self._read_entries(found), found[-1][0] if len(found) == limit else ""

    def load(self, lines: Iterable[bytes], first: int = 1) -> tuple[int, int]:
        """Add exported records; return how many were new, and how many there already. UsageError
        names a malformed line, counted from `first`; those before it are added."""
        records, problem = [], None
        for number, line in enumerate(lines, start=first):
            try:
                if line.strip():
                    records.append(record_of(line))
            except ValueError as error:
                problem = malformed(f"line {number}", error)
                break
        new = self.add_all(records)
        if problem is not None:
            raise problem
        return new, len(records) - new

    def classes(self) -> Sequence[RecordClass]:
        """How many records there are of each device class, by its id."""
        self.adopt()
        kinds = sorted(map(json.loads, self._client.command("SMEMBERS", self.store + "kinds")))
        rules = self._rules(kinds)
        ids = sorted({one.device_class for one in rules})
        tasks = [("HLEN", f"{self.store}counts:{json.dumps([one])}") for one in ids]
        counts = self._client.commands(tasks) if ids else []
        return [
            _class(one, of_tasks, [rule for rule in rules if rule.device_class == one])
            for one, of_tasks in zip(ids, counts, strict=True)
        ]

    def adopt(self) -> None:
        """Take in what an older version added; costs one command where there is none of it."""
        while self._older.adopt():
            pass

    def _rules(self, kinds: Sequence[tuple[str, str]]) -> list[RuleSummary]:
        """Of each pair of class and rule, but those whose last record has just been removed."""
        words: list[Sequence[str | int]] = []
        for name in (kind(*one) for one in kinds):
            made = f"{self.store}made:{name}"
            words += [("ZCARD", made), ("HLEN", f"{self.store}counts:{name}")]
            words += [("HGET", self.store + "failed", name)]
            words += [("ZRANGE", made, end, end, "WITHSCORES") for end in (0, -1)]
        found = iter(self._client.commands(words) if words else ())
        five = zip(found, found, found, found, found, strict=True)
        return [
            RuleSummary(*one, records, tasks, int(failed or 0), float(oldest[1]), float(newest[1]))
            for one, (records, tasks, failed, oldest, newest) in zip(kinds, five, strict=True)
            if oldest and newest
        ]

    def _add_entries(self, entries: Sequence[RecordEntry]) -> int:
        new = 0
        for start in range(0, len(entries), _ADDED_AT_ONCE):
            words = [word for one in entries[start : start + _ADDED_AT_ONCE] for word in one.words]
            new += int(self._add_script([], [*words, self.store]))
        while self.archives.are_due() and self.archives.write():
            pass
        return new

    def _targets(self, task: str) -> set[str]:
        return set(self._client.command("SMEMBERS", f"{self.store}targets:{task}"))

    def _all(self) -> Iterator[StoredRecord]:
        self.adopt()
        yield from self._read_log(self._log)

    def _read_log(self, name: str) -> Iterator[StoredRecord]:
        """Those of one stream, page by page."""
        after = ""
        while True:
            entries = self._entries(name, after, _PAGE)
            yield from self._read_entries(entries)
            if len(entries) < _PAGE:
                return
            after = entries[-1][0]

    def _entries(self, name: str, after: str, limit: int) -> list[tuple[str, str]]:
        """(id, digest) of those behind an id."""
        start = f"({after}" if after else "-"
        found = self._client.command("XRANGE", name, start, "+", "COUNT", limit)
        return [(one, fields["digest"]) for one, fields in found]

    def _read_entries(self, entries: Sequence[tuple[str, str]]) -> list[StoredRecord]:
        """Those that nobody has removed meanwhile."""
        lines = self.lines([digest for _, digest in entries])
        known = zip(entries, lines, strict=True)
        return [
            StoredRecord(one, line, _record(line)) for (one, _), line in known if line is not None
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class TrialRecords:
    """The records of a store, and those `beside` it; what is added is a trial of one job as well.
    Implements `RecordStore`."""

    records: Records
    job: str
    beside: Records | None = None
    attempt: Lease | None = None

    def add(self, record: TuningRecord) -> None:
        """As `Records.add`."""
        self.records.add(record, self.job, self.attempt)

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """As `Records.find`; those of two stores by when they were made."""
        found = self.records.find(task, fingerprint)
        if self.beside is not None:
            found += self.beside.find(task, fingerprint)
            found.sort(key=lambda record: record.created)
        return found

    def __iter__(self) -> Iterator[TuningRecord]:
        yield from self.records
        if self.beside is not None:
            yield from self.beside


def _record(line: str) -> TuningRecord | None:
    """None for a newer worker's, which says nothing to this one: lines were checked when they were
    added."""
    try:
        return TuningRecord.from_line(line)
    except ValueError:
        return None


def _class(device_class: str, tasks: int, rules: Sequence[RuleSummary]) -> RecordClass:
    return RecordClass(
        device_class=device_class,
        records=sum(one.records for one in rules),
        tasks=tasks,
        oldest=min(one.oldest for one in rules),
        newest=max(one.newest for one in rules),
        rules=tuple(rules),
    )


def _order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)
