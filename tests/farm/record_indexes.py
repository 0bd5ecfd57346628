"""What the indexes of records are to be, found by going through all lines."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from farrier_farm.farm import Farm
from farrier_farm.record_entry import RecordEntry, kind, place

_PREFIX = "farrier:records:"


def check_records(farm: Farm) -> None:
    """Every record is in each of its indexes, and nothing else is there; each archive that is not
    stale holds exactly its records."""
    command = farm.client.command
    lines = _entries(farm, "log")
    entries = [RecordEntry.of_line(line) for line in lines.values()]
    assert set(command("HVALS", _PREFIX + "lines")) == set(lines.values())
    assert len(entries) == farm.records.count() == command("HLEN", _PREFIX + "lines")
    on: dict[str, dict[str, str]] = defaultdict(dict)
    made: dict[str, dict[str, float]] = defaultdict(dict)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    targets: dict[str, set[str]] = defaultdict(set)
    failed: Counter[str] = Counter()
    for (one, line), entry in zip(lines.items(), entries, strict=True):
        name = kind(entry.device_class, entry.rule)
        on[place(entry.task, entry.target)][one] = line
        made[name][entry.words[0]] = entry.created
        counts[name][entry.task] += 1
        counts[json.dumps([entry.device_class])][entry.task] += 1
        targets[entry.task].add(entry.target)
        failed[name] += entry.failed
    assert _named(farm, "on", lambda key: _entries(farm, key)) == on
    assert set(command("SMEMBERS", _PREFIX + "kinds")) == set(made)
    assert _named(farm, "made", lambda key: _scores(farm, key)) == made
    assert _named(farm, "counts", lambda key: _numbers(farm, key)) == counts
    assert _named(farm, "targets", lambda key: set(command("SMEMBERS", _PREFIX + key))) == targets
    assert _numbers(farm, "failed") == +failed
    _check_archives(farm, lines)


def _check_archives(farm: Farm, lines: dict[str, str]) -> None:
    command = farm.client.command
    archives = [one for one, _ in command("XRANGE", _PREFIX + "archived-up-to", "-", "+")]
    blobs = command("HGETALL", _PREFIX + "archives-by-id")
    stale = set(command("SMEMBERS", _PREFIX + "stale"))
    assert set(blobs) == set(archives)
    assert stale <= set(archives)
    waiting = dict(lines)
    for archive in archives:
        due = [waiting.pop(one) for one in list(waiting) if _order(one) <= _order(archive)]
        found = farm.blobs.verified(blobs[archive]).read_text().splitlines()
        assert found == due or (archive in stale and set(found) > set(due))
    assert int(command("GET", _PREFIX + "waiting") or 0) == len(waiting)


def _named(farm: Farm, name: str, read: Any) -> dict[str, Any]:
    keys = farm.client.command("KEYS", f"{_PREFIX}{name}:*")
    names = [key.removeprefix(_PREFIX) for key in keys]
    return {one.partition(":")[2]: read(one) for one in names}


def _entries(farm: Farm, key: str) -> dict[str, str]:
    found = farm.client.command("XRANGE", _PREFIX + key, "-", "+")
    lines = farm.records.lines([fields["digest"] for _, fields in found])
    assert None not in lines
    return {one: str(line) for (one, _), line in zip(found, lines, strict=True)}


def _scores(farm: Farm, key: str) -> dict[str, float]:
    found = iter(farm.client.command("ZRANGE", _PREFIX + key, 0, -1, "WITHSCORES"))
    return {one: float(score) for one, score in zip(found, found, strict=True)}


def _numbers(farm: Farm, key: str) -> Counter[str]:
    found = farm.client.command("HGETALL", _PREFIX + key)
    return Counter({field: int(number) for field, number in found.items()})


def _order(entry: str) -> tuple[int, ...]:
    return tuple(map(int, entry.split("-")))
