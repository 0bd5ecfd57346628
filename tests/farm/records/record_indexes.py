"""The expected indexes of records, computed from all lines."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TypeVar

from farrier_farm.farm import Farm
from farrier_farm.records.entry import RecordEntry, kind, place
from farrier_farm.records.records import Records

T = TypeVar("T")


def check_records(farm: Farm, records: Records | None = None) -> None:
    """Every record of a store, the shared one if none is given, is in each of its indexes, and
    nothing else is there; each archive that is not stale holds exactly its records."""
    command = farm.client.command
    records = records or farm.records
    store = records.store
    lines = _entries(farm, records, store + "log")
    entries = [RecordEntry.of_line(line) for line in lines.values()]
    assert set(command("HVALS", store + "lines")) == set(lines.values())
    assert len(entries) == records.count() == command("HLEN", store + "lines")
    on: dict[str, dict[str, str]] = defaultdict(dict)
    made_at: dict[str, dict[str, float]] = defaultdict(dict)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    targets: dict[str, set[str]] = defaultdict(set)
    failed: Counter[str] = Counter()
    for (digest, line), entry in zip(lines.items(), entries, strict=True):
        name = kind(entry.device_class, entry.rule)
        on[place(entry.task, entry.target)][digest] = line
        made_at[name][entry.words[0]] = entry.created
        counts[name][entry.task] += 1
        counts[json.dumps([entry.device_class])][entry.task] += 1
        targets[entry.task].add(entry.target)
        failed[name] += entry.failed
    assert _named(farm, store + "on:", lambda key: _entries(farm, records, key)) == on
    assert set(command("SMEMBERS", store + "kinds")) == set(made_at)
    assert _named(farm, store + "made:", lambda key: _scores(farm, key)) == made_at
    assert _named(farm, store + "counts:", lambda key: _numbers(farm, key)) == counts
    assert _named(farm, store + "targets:", lambda key: set(command("SMEMBERS", key))) == targets
    assert _numbers(farm, store + "failed") == +failed
    _check_archives(farm, store, lines)


def _check_archives(farm: Farm, store: str, lines: dict[str, str]) -> None:
    command = farm.client.command
    archives = [entry for entry, _ in command("XRANGE", store + "archived-up-to", "-", "+")]
    blobs = command("HGETALL", store + "archives-by-id")
    stale = set(command("SMEMBERS", store + "stale"))
    assert set(blobs) == set(archives)
    assert stale <= set(archives)
    waiting = dict(lines)
    for archive in archives:
        due = [waiting.pop(entry) for entry in list(waiting) if _order(entry) <= _order(archive)]
        archived = farm.blobs.verified(blobs[archive]).read_text().splitlines()
        assert archived == due or (archive in stale and set(archived) > set(due))
    assert int(command("GET", store + "waiting") or 0) == len(waiting)


def _named(farm: Farm, start: str, read: Callable[[str], T]) -> dict[str, T]:
    keys = farm.client.command("KEYS", f"{start}*")
    return {key.removeprefix(start): read(key) for key in keys}


def _entries(farm: Farm, records: Records, key: str) -> dict[str, str]:
    entries = farm.client.command("XRANGE", key, "-", "+")
    lines = records.lines([fields["digest"] for _, fields in entries])
    assert None not in lines
    return {entry_id: str(line) for (entry_id, _), line in zip(entries, lines, strict=True)}


def _scores(farm: Farm, key: str) -> dict[str, float]:
    pairs = iter(farm.client.command("ZRANGE", key, 0, -1, "WITHSCORES"))
    return {member: float(score) for member, score in zip(pairs, pairs, strict=True)}


def _numbers(farm: Farm, key: str) -> Counter[str]:
    fields = farm.client.command("HGETALL", key)
    return Counter({field: int(number) for field, number in fields.items()})


def _order(entry: str) -> tuple[int, ...]:
    return tuple(map(int, entry.split("-")))
