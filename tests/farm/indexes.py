"""The expected indexes of leased items, computed from all items."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from farrier_farm.farm import Farm
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.states import State

_PRIORITIES = {"high": -(2**52), "low": 2**52}


def check_indexes(farm: Farm) -> None:
    """Every set, line and turn is what follows from the items themselves, and no other is there."""
    kinds = [(kind.items, "default", False) for kind in JobKind]
    _check_trials(farm)
    for kind, default, forgets in (*kinds, ("batch", "", True), ("build", "", True)):
        prefix = f"farrier:{kind}"
        due: dict[str, dict[str, float]] = defaultdict(dict)
        items = _items(farm, prefix)
        for item, fields in items.items():
            share, state = fields.get("share", default), State(fields["state"])
            if not (forgets and state.final):
                due[f"state:{state}"][item] = due[f"group:{fields['group']}"][item] = 0
                if share:
                    due[f"state:{state}:{share}"][item] = due[f"share:{share}"][item] = 0
            if state.final and not forgets:
                due["finished"][item] = float(fields["finished"])
                if int(fields.get("artifact_bytes", "0")):
                    due["weighty"][item] = float(fields["finished"])
            if state is State.QUEUED:
                ms, number = _entry(fields["entry"])
                if (ms, number) <= _sorted_up_to(farm, f"{prefix}:queue:{fields['queue']}"):
                    came = ms * 1000 + number + _PRIORITIES.get(fields.get("priority", ""), 0)
                    due[f"line:{share}:{fields['queue']}"][item] = came
        served = _hash(farm, f"{prefix}:served")
        for line in [name for name in due if name.startswith("line:")]:
            _, share, queue = line.split(":", 2)
            running = len(due.get(f"state:running:{share}", ()))
            turn = running * 2**36 + int(served.get(share, 0)) if share else 0
            due[f"turns:{queue}"][share] = turn
        assert {
            name: set(members_of) for name, members_of in _sorted_sets(farm, prefix).items()
        } == {name: set(members) for name, members in due.items()}
        assert _sorted_sets(farm, prefix) == due
        lines: dict[str, set[str]] = defaultdict(set)
        for line in (name for name in due if name.startswith("line:")):
            _, share, queue = line.split(":", 2)
            lines[f"lines:{share}"].add(queue)
        command = farm.client.command
        members_of = {
            key: set(command("SMEMBERS", key)) for key in command("KEYS", f"{prefix}:lines:*")
        }
        assert members_of == {f"{prefix}:{name}": queues for name, queues in lines.items()}
        assert set(served) <= {fields.get("share", default) for fields in items.values()}
        kept = sum(int(items[item]["artifact_bytes"]) for item in due.get("weighty", ()))
        assert int(command("GET", f"{prefix}:kept") or 0) == kept
        keys = {fields["once"]: item for item, fields in items.items() if "once" in fields}
        assert _hash(farm, f"{prefix}:once") == keys


def _check_trials(farm: Farm) -> None:
    """The trials of each job are in the index by time, each among all and among its task's."""
    command = farm.client.command
    for key in command("KEYS", "farrier:job:fastest:*"):
        trials = command("XRANGE", key.replace(":fastest:", ":trials:"), "-", "+")
        due = {
            f"{task} {float(fields['ns'] or 1e18):022.1f} {entry}"
            for entry, fields in trials
            for task in ("", fields["task"])
        }
        assert set(command("ZRANGE", key, 0, -1)) == due


def _sorted_up_to(farm: Farm, stream: str) -> tuple[int, int]:
    [group] = farm.client.command("XINFO", "GROUPS", stream)
    return _entry(dict(zip(group[::2], group[1::2], strict=True))["last-delivered-id"])


def _entry(text: str) -> tuple[int, int]:
    ms, number = text.split("-")
    return int(ms), int(number)


def _items(farm: Farm, prefix: str) -> dict[str, dict[str, str]]:
    keys = farm.client.command("KEYS", f"{prefix}:item:*")
    return {key.removeprefix(f"{prefix}:item:"): _hash(farm, key) for key in keys}


def _hash(farm: Farm, key: str) -> dict[str, str]:
    fields: dict[str, str] = farm.client.command("HGETALL", key)
    return fields


def _sorted_sets(farm: Farm, prefix: str) -> dict[str, dict[str, float]]:
    sets: dict[str, dict[str, float]] = {}
    for key in farm.client.command("KEYS", f"{prefix}:*"):
        is_index = not key.startswith("farrier:job:fastest:")
        if is_index and farm.client.command("TYPE", key) == "zset":
            pairs: list[Any] = farm.client.command("ZRANGE", key, 0, -1, "WITHSCORES")
            flat = [x for pair in pairs for x in (pair if isinstance(pair, tuple) else (pair,))]
            members = {flat[i]: float(flat[i + 1]) for i in range(0, len(flat), 2)}
            sets[key.removeprefix(f"{prefix}:")] = members
    return sets
