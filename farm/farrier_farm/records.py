"""Tuning records in the farm: the `RecordStore` that every worker shares.

farrier:records:lines             hash: digest of a line → the JSON line
farrier:records:log               stream: an entry a record, with its `digest`, in the order of
                                  addition
farrier:records:on:<place>        stream: the same of one task on one target, under the same ids
farrier:records:targets:<task>    set of the fingerprints of the targets for which there are some
farrier:records:kinds             set of all pairs of device class, "" where none is told, and rule
farrier:records:made:<kind>       sorted set: digests by when the records were made
farrier:records:counts:<kind>     hash: task → how many records; the same of a <class>
farrier:records:failed            hash: kind → how many of them have no time

Places, kinds and classes are JSON, for names may be any text. `record_archives.py` and
`older_records.py` have further keys."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from farrier.records import ALL, RuleSummary, Selection, TuningRecord, malformed, record_of
from farrier_farm.connection import Client
from farrier_farm.content import ContentStore
from farrier_farm.older_records import OlderRecords
from farrier_farm.record_archives import RecordArchives
from farrier_farm.record_entry import RecordEntry, kind, place
from farrier_farm.trials import Trials

_PREFIX = "farrier:records:"
_LOG = _PREFIX + "log"
_PAGE = 500
_ADDED_AT_ONCE = 100
_LOOKED_AT = 2000  # records, for a page of some of them
_PAGE_CHARACTERS = 4 << 20

# Any number of entries; one alone with a job, its trial as well (`trials.py`). A record that is
# there was added before, and with it its trial.
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

local added = 0
for first = 1, #ARGV - WORDS + 1, WORDS do added = added + add_record(ARGV, first) end
if #KEYS == 0 or added == 0 or redis.call('HGET', KEYS[1], 'state') ~= 'running' then
  return added
end
local task, context, ns, kept, status = ARGV[6], unpack(ARGV, WORDS + 1) -- `Trials.trial`
kept = tonumber(kept)
local id = redis.call('XADD', KEYS[2], '*', 'record', ARGV[1], 'task', task, 'context', context,
  'status', status, 'ns', ns)
local ns_text = ns
ns = tonumber(ns)
redis.call('ZADD', KEYS[5], 0, place('', ns, id), 0, place(task, ns, id))
trim(KEYS[2], KEYS[5], kept)
count_in_minute('trials')
local count = redis.call('HINCRBY', KEYS[3], task .. ' trials', 1)
if not ns then
  redis.call('HINCRBY', KEYS[3], task .. ' failed', 1)
else
  local best = tonumber(redis.call('HGET', KEYS[3], task .. ' ' .. context))
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
    ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, blobs: ContentStore, trials: Trials) -> None:
        self._client = client
        self._trials = trials
        self.archives = RecordArchives(client, blobs)
        self._older = OlderRecords(client)
        files = resources.files(__package__)
        names = ("curves.lua", "throughput.lua", "records.lua")
        parts = [files.joinpath(name).read_text() for name in names]
        self._add_script = client.script("\n".join([*parts, _ADD]))

    def add(self, record: TuningRecord, job: str = "") -> None:
        """Once, however often it is added, as a trial of the `job` that measured it."""
        keys, words = self._trials.trial(job, record) if job else ([], [])
        self._add_script(keys, [*RecordEntry.of(record).words, *words])
        if self.archives.are_due():
            self.archives.write()

    def add_all(self, records: Iterable[TuningRecord]) -> int:
        """Adds them as of no job; returns how many were new."""
        return self._add_entries([RecordEntry.of(record) for record in records])

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
        found = list(_read(self._older.lines(task, fingerprint)))
        found += [one.record for one in self.stored(task, fingerprint) if one.record is not None]
        return list(dict.fromkeys(found))  # one that was taken in meanwhile was read twice

    def stored(self, task: str, fingerprint: str) -> list[StoredRecord]:
        """Those of the log, with their places in it."""
        name = f"{_PREFIX}on:{place(task, fingerprint)}"
        return [one for page in self._pages(name) for one in page]

    def of_task(self, task: str) -> Iterator[TuningRecord]:
        """All records of a task, target by target."""
        self.adopt()
        for target in sorted(self._targets(task)):
            yield from self.find(task, target)

    def newest(self, task: str, fingerprint: str, limit: int) -> list[TuningRecord]:
        """The last so many of a task on a target, in the order of addition, of those that are in
        the log."""
        name = f"{_PREFIX}on:{place(task, fingerprint)}"
        entries = self._client.command("XREVRANGE", name, "+", "-", "COUNT", limit)
        digests = [fields["digest"] for _, fields in reversed(entries)]
        return [*_read(line for line in self.lines(digests) if line is not None)]

    def __iter__(self) -> Iterator[TuningRecord]:
        return _read(self.export())

    def count(self) -> int:
        return int(self._client.command("XLEN", _LOG)) + self._older.count()

    def export(self) -> Iterator[str]:
        """Every record as one JSON line (without the newline), in the order of addition."""
        self.adopt()
        for page in self._pages(_LOG):
            yield from (one.line for one in page)

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
        names = [_LOG]
        if task is not None:
            names = [f"{_PREFIX}on:{place(task, target)}" for target in self._targets(task)]
        pages = [self._entries(name, after, limit) for name in names]
        found = list(heapq.merge(*pages, key=lambda entry: _order(entry[0])))[:limit]
        return self._read_entries(found), found[-1][0] if len(found) == limit else ""

    def load(self, lines: Iterable[bytes], first: int = 1) -> tuple[int, int]:
        """Adds exported records; returns how many were new, and how many there already. UsageError
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
        kinds = sorted(map(json.loads, self._client.command("SMEMBERS", _PREFIX + "kinds")))
        rules = self._rules(kinds)
        ids = sorted({one.device_class for one in rules})
        tasks = [("HLEN", f"{_PREFIX}counts:{json.dumps([one])}") for one in ids]
        counts = self._client.commands(tasks) if ids else []
        return [
            _class(one, of_tasks, [rule for rule in rules if rule.device_class == one])
            for one, of_tasks in zip(ids, counts, strict=True)
        ]

    def adopt(self) -> None:
        """Takes in what an older version added; costs one command where there is none of it."""
        while self._older.adopt():
            pass

    def _rules(self, kinds: Sequence[tuple[str, str]]) -> list[RuleSummary]:
        """Of each pair of class and rule, but those whose last record has just been removed."""
        words: list[Sequence[str | int]] = []
        for name in (kind(*one) for one in kinds):
            made = f"{_PREFIX}made:{name}"
            words += [("ZCARD", made), ("HLEN", f"{_PREFIX}counts:{name}")]
            words += [("HGET", _PREFIX + "failed", name)]
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
            new += int(self._add_script([], words))
        while self.archives.are_due() and self.archives.write():
            pass
        return new

    def _targets(self, task: str) -> set[str]:
        return set(self._client.command("SMEMBERS", f"{_PREFIX}targets:{task}"))

    def _pages(self, name: str) -> Iterator[list[StoredRecord]]:
        after = ""
        while entries := self._entries(name, after, _PAGE):
            yield self._read_entries(entries)
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
            StoredRecord(one, line, next(_read([line]), None))
            for (one, _), line in known
            if line is not None
        ]


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
