"""Tuning records in the farm: the `RecordStore` that every worker shares, and the private records
of single users.

farrier:record-stores    set: the prefix of the keys of each store, which is `<store>` below
<store>lines             hash: digest of a line → the JSON line of the record
<store>log               stream: an entry for each record, with the `digest` of its line, in the
                         order of addition
<store>on:<place>        stream: the entries of the log for a task on a target, under the same ids
<store>targets:<task>    set of the fingerprints of the targets on which the task has records
<store>kinds             set of all kinds: pairs of device class ("" if unknown) and rule
<store>made:<kind>       sorted set: digests of the records; the score is the time of creation
<store>counts:<kind>     hash: task → number of records; also with a class in place of a kind
<store>failed            hash: kind → the number of records of failed trials

`<store>` is `farrier:records:` for the shared store, or `farrier:private-records:<user>:`. Places,
kinds and classes are written as JSON, since their names may contain any character. `archives.py`
and `older.py` document further keys."""

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
_LOOKED_AT = 2000  # The records that are examined for a page of a selection.
_PAGE_CHARACTERS = 4 << 20

# Adds any number of entries, or a single entry with a job, whose trial is added as well
# (`trials.py`). A record that already exists was added together with its trial. An attempt whose
# lease is no longer valid adds nothing. An attempt that starts again measures some candidates a
# second time: the n-th record of a candidate counts once, whichever attempt adds it.
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
    """The records of a device class ("" for records without a class): the number of records and of
    their tasks, the times of the oldest and the newest record in Unix seconds, and the same for
    each rule."""

    device_class: str
    records: int
    tasks: int
    oldest: float
    newest: float
    rules: tuple[RuleSummary, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of JSON lines of records, and the `after` of the next page; "" on the last page."""

    lines: list[str]
    next: str


@dataclasses.dataclass(frozen=True, slots=True)
class StoredRecord:
    """A JSON line of a record with its position in the log; `record` is None if this version cannot
    parse the line."""

    id: str
    line: str
    record: TuningRecord | None


class Records:
    """The tuning records of a farm: the store that all users share, or the private store of the
    user `owner`. Implements `farrier.records.RecordStore`. When `add` returns, the record is
    durable (it survives `kill -9`). Every method raises ServiceError if Redis is out of reach."""

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
        """Add a record; a repeated call adds it only once. If `job` is set, the record is also
        added as a trial of that job; `attempt` is the lease of the attempt that measured it. Raises
        StaleLeaseError if that lease is no longer valid."""
        fence = None if attempt is None else attempt.fence
        keys, words = self._trials.trial(job, record, fence) if job else ([], [])
        added = self._add_script(keys, [*RecordEntry.of(record).words, *words, self.store])
        if int(added) < 0 and attempt is not None:
            raise stale("job", attempt, self._client.command("HGET", keys[0], "state"))
        if self.archives.are_due():
            self.archives.write()

    def add_all(self, records: Iterable[TuningRecord]) -> int:
        """Add records without a job, which become no trials; return the number of new records."""
        return self._add_entries([RecordEntry.of(record) for record in records])

    def of_job(
        self, job: str, beside: Records | None = None, attempt: Lease | None = None
    ) -> TrialRecords:
        """Return a `RecordStore` that adds each record to this store and also, if `job` is set, as
        a trial of that job; `attempt` is the lease of the job's attempt. Searches read this store
        and the store `beside`."""
        return TrialRecords(self, job, beside, attempt)

    def lines(self, digests: Sequence[str]) -> list[str | None]:
        """Return the JSON lines of records by their digests; None for a record that does not
        exist."""
        if not digests:
            return []
        texts: list[str | None] = self._client.command("HMGET", self.store + "lines", *digests)
        return texts

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """Return all records of a task on a target, in the order of addition."""
        records = [_record(line) for line in self._older.lines(task, fingerprint)]
        records += [entry.record for entry in self.stored(task, fingerprint)]
        # A record that was moved to the log meanwhile is read twice.
        return list(dict.fromkeys(record for record in records if record is not None))

    def stored(self, task: str, fingerprint: str) -> list[StoredRecord]:
        """Return the records of a task on a target that are in the log, with their positions
        there."""
        name = f"{self.store}on:{place(task, fingerprint)}"
        return list(self._read_log(name))

    def of_task(self, task: str) -> Iterator[TuningRecord]:
        """Yield all records of a task, grouped by target."""
        self.adopt()
        for target in sorted(self._targets(task)):
            yield from self.find(task, target)

    def newest(self, task: str, fingerprint: str, limit: int) -> list[TuningRecord]:
        """Return the last `limit` records of a task on a target that are in the log, in the order
        of addition."""
        name = f"{self.store}on:{place(task, fingerprint)}"
        entries = self._client.command("XREVRANGE", name, "+", "-", "COUNT", limit)
        records = self._read_entries(
            [(entry, fields["digest"]) for entry, fields in reversed(entries)]
        )
        return [entry.record for entry in records if entry.record is not None]

    def __iter__(self) -> Iterator[TuningRecord]:
        return (entry.record for entry in self._all() if entry.record is not None)

    def count(self) -> int:
        return int(self._client.command("XLEN", self._log)) + self._older.count()

    def export(self) -> Iterator[str]:
        """Yield every record as one JSON line (without the newline), in the order of addition."""
        return (entry.line for entry in self._all())

    def page(self, selection: Selection, *, after: str = "", limit: int = 1000) -> RecordPage:
        """Return the records that a selection matches, after the id `after`, in the order of
        addition. At most 2,000 records are examined, so a page before the last may have fewer than
        `limit` records, or none. Records that only another version can parse do not match."""
        self.adopt()
        lines, size = [], 0
        looked_at, following = self.log(after, selection.task, _LOOKED_AT)
        for entry in looked_at:
            if selection == ALL or (entry.record is not None and selection.admits(entry.record)):
                lines.append(entry.line)
                size += len(entry.line)
            if len(lines) == limit or size > _PAGE_CHARACTERS:
                return RecordPage(lines, entry.id)
        return RecordPage(lines, following)

    def log(self, after: str, task: str | None, limit: int) -> tuple[list[StoredRecord], str]:
        """Return the next `limit` records of the log after the id `after`, only those of `task` if
        it is set, and the id of the last of them; "" if no more records follow."""
        names = [self._log]
        if task is not None:
            names = [f"{self.store}on:{place(task, target)}" for target in self._targets(task)]
        pages = [self._entries(name, after, limit) for name in names]
        entries = list(heapq.merge(*pages, key=lambda entry: _order(entry[0])))[:limit]
        return self._read_entries(entries), entries[-1][0] if len(entries) == limit else ""

    def load(self, lines: Iterable[bytes], first: int = 1) -> tuple[int, int]:
        """Add exported records; return the number of new records, and the number that existed
        before. Raises UsageError for a malformed line, with its number counted from `first`; the
        lines before it are added."""
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
        """Return the records of each device class, sorted by id."""
        self.adopt()
        kinds = sorted(map(json.loads, self._client.command("SMEMBERS", self.store + "kinds")))
        rules = self._rules(kinds)
        ids = sorted({class_id.device_class for class_id in rules})
        tasks = [("HLEN", f"{self.store}counts:{json.dumps([class_id])}") for class_id in ids]
        counts = self._client.commands(tasks) if ids else []
        return [
            _class(class_id, of_tasks, [rule for rule in rules if rule.device_class == class_id])
            for class_id, of_tasks in zip(ids, counts, strict=True)
        ]

    def adopt(self) -> None:
        """Move the records of older versions to the log; costs a single command if there are
        none."""
        while self._older.adopt():
            pass

    def _rules(self, kinds: Sequence[tuple[str, str]]) -> list[RuleSummary]:
        """Return a summary of the records of each pair of device class and rule in `kinds`. Pairs
        whose last record was removed meanwhile are skipped."""
        words: list[Sequence[str | int]] = []
        for name in (kind(*pair) for pair in kinds):
            made_key = f"{self.store}made:{name}"
            words += [("ZCARD", made_key), ("HLEN", f"{self.store}counts:{name}")]
            words += [("HGET", self.store + "failed", name)]
            words += [("ZRANGE", made_key, end, end, "WITHSCORES") for end in (0, -1)]
        answers = iter(self._client.commands(words) if words else ())
        five = zip(answers, answers, answers, answers, answers, strict=True)
        return [
            RuleSummary(*pair, records, tasks, int(failed or 0), float(oldest[1]), float(newest[1]))
            for pair, (records, tasks, failed, oldest, newest) in zip(kinds, five, strict=True)
            if oldest and newest
        ]

    def _add_entries(self, entries: Sequence[RecordEntry]) -> int:
        new = 0
        for start in range(0, len(entries), _ADDED_AT_ONCE):
            words = [
                word for entry in entries[start : start + _ADDED_AT_ONCE] for word in entry.words
            ]
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
        """Yield the records of a stream, reading it page by page."""
        after = ""
        while True:
            entries = self._entries(name, after, _PAGE)
            yield from self._read_entries(entries)
            if len(entries) < _PAGE:
                return
            after = entries[-1][0]

    def _entries(self, name: str, after: str, limit: int) -> list[tuple[str, str]]:
        """Return the (id, digest) of each entry of a stream after the id `after`."""
        start = f"({after}" if after else "-"
        entries = self._client.command("XRANGE", name, start, "+", "COUNT", limit)
        return [(entry_id, fields["digest"]) for entry_id, fields in entries]

    def _read_entries(self, entries: Sequence[tuple[str, str]]) -> list[StoredRecord]:
        """Return the records of these entries, except records that were removed meanwhile."""
        lines = self.lines([digest for _, digest in entries])
        pairs = zip(entries, lines, strict=True)
        return [
            StoredRecord(entry_id, line, _record(line))
            for (entry_id, _), line in pairs
            if line is not None
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class TrialRecords:
    """A record store that adds each record to `records` and as a trial of the job `job`. Searches
    read `records` and the store `beside`. Implements `RecordStore`."""

    records: Records
    job: str
    beside: Records | None = None
    attempt: Lease | None = None

    def add(self, record: TuningRecord) -> None:
        """Add a record, as `Records.add` does."""
        self.records.add(record, self.job, self.attempt)

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """Return all records of a task on a target. If there are two stores, the records of both
        are merged by time of creation."""
        records = self.records.find(task, fingerprint)
        if self.beside is not None:
            records += self.beside.find(task, fingerprint)
            records.sort(key=lambda record: record.created)
        return records

    def __iter__(self) -> Iterator[TuningRecord]:
        yield from self.records
        if self.beside is not None:
            yield from self.beside


def _record(line: str) -> TuningRecord | None:
    """Return the parsed record of a JSON line; None for a line of a newer version. Other lines can
    always be parsed, because they were checked when they were added."""
    try:
        return TuningRecord.from_line(line)
    except ValueError:
        return None


def _class(device_class: str, tasks: int, rules: Sequence[RuleSummary]) -> RecordClass:
    return RecordClass(
        device_class=device_class,
        records=sum(rule.records for rule in rules),
        tasks=tasks,
        oldest=min(rule.oldest for rule in rules),
        newest=max(rule.newest for rule in rules),
        rules=tuple(rules),
    )


def _order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)
