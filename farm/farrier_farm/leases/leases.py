"""The lease layer that jobs and measurement batches share: a queue whose items are leased.

Guarantees, which a single test class checks for every kind of item:

- An item that `put` has acknowledged is leased at least once, unless the item is cancelled first.
- At most one lease of an item is valid. A lease that is not renewed for `lease_s` is revoked: the
  item goes back to the queue, and changes with the fence (the number) of that lease are refused.
  Time in which Redis was stopped or unavailable, or by which its clock was changed, does not count.
- Each change by a holder names its fence, and is made by one script completely or not at all. A
  repeated call, after its answer was lost, changes nothing more.
- An item refers to the blobs and models that the fields in `LeasePolicy.refers` name, from the
  change that sets these fields (`references.py`).
- After `crashes` expired or crashed leases an item is dead, with the reason of the last crash.
- The only changes of state are the ones in `states.CHANGES`.
- Fair order: a worker leases the oldest item of the share (such as an owner) that has the fewest
  items running; among equal shares, of the share whose last lease is the oldest (`shares.lua`).
- If a limit of the policy is reached, `put` queues no new item, but still returns an existing one.
- `forget` removes all data of an item, and later changes by its holder are refused.

A queue is a Redis stream with a consumer group (`leases.lua` documents the keys): a pending entry
of the group is a leased item, and its idle time is the time since the last renewal of the lease."""

from __future__ import annotations

import dataclasses
import enum
import json
import secrets
import time
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from farrier.errors import ConflictError, NotFoundError, QueueFullError
from farrier_farm.errors import StaleLeaseError
from farrier_farm.events.farm_events import NEWS_KEPT
from farrier_farm.leases.states import CHANGES, State
from farrier_farm.redis.connection import Client
from farrier_farm.redis.scripts import read_scripts
from farrier_farm.settings import variable_of
from farrier_farm.storage.references import REFERENCES

# An expired lease sends no notification, so a waiting caller checks at this interval.
_LONGEST_BLOCK_S = 1.0
SCOPE = "\n"  # The separator between an idempotency key's scope, such as its owner, and the key.
_PARTS = ("curves", "throughput", "items", "shares", "leases")
NOTHING: Mapping[str, str] = types.MappingProxyType({})
# ARGV: the number of fields, their names, then the items. With 0 fields, all names and values of
# each item in turn.
_LOOK = """
local names, found = {}, {}
for i = 2, ARGV[1] + 1 do names[#names + 1] = ARGV[i] end
for i = #names + 2, #ARGV do
  local key = KEYS[1] .. ARGV[i]
  if #names > 0 then
    found[#found + 1] = redis.call('HMGET', key, unpack(names))
  else
    found[#found + 1] = redis.call('HGETALL', key)
  end
end
return cjson.encode(found)
"""
_QUIET_S = 3.0  # The least time without a call that shows that Redis stood still.


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on an item until the lease expires. `fence` increases with every
    attempt; each state change names its fence, and a change with the fence of an earlier attempt
    is refused."""

    item: str
    fence: int
    attempt: int
    owner: str


class Part(enum.StrEnum):
    """The place, other than the item's stream of events, in which `Leases.write` also stores an
    event. The stream keeps only the newest events."""

    EVENTS = ""  # nothing
    LOG = "log"
    CURVE = "curve"  # The curve of `best_ms` over `trials`, two fields that are set with the event.


@dataclasses.dataclass(frozen=True, slots=True)
class LeasePolicy:
    lease_s: float
    crashes: int  # An item is dead after this number of crashes.
    hint: str  # Advice to users about a dead item.
    events: int  # The approximate number of events kept for each item.
    events_s: float = 7 * 86400.0  # The time for which they are kept after the item's end.
    ttl_s: float = 0.0  # The item itself is forgotten this long after its end; 0 for never.
    # Fields, each set once or growing, that name blobs or models by their digests, separated by
    # blanks. An item with a `ttl_s` refers to them until its end, and drops the fields then.
    refers: tuple[str, ...] = ()
    share: str = ""  # The share of items of older versions; "" for a kind of item without shares.
    most_queued: int = 0  # The most queued items of this kind; 0 for any number.
    most_of_share: int = 0
    news: str = ""  # The key of a stream in which all changes of state are also announced.
    weighs: str = ""  # The field with the size of an ended item, in bytes.
    counts: str = ""  # The name under which an ended item counts in the farm's throughput.
    log: bool = False  # The item keeps a log in addition to its events.
    beside: tuple[str, ...] = ("events",)  # The keys that expire and are forgotten with an item.


RETRY_AFTER_S = 10.0
"""The time after which to try again when a queue is full: a constant, since the duration of jobs
cannot be predicted."""


def new_id() -> str:
    """Return 20 hex digits that sort by time of creation."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}"


class Leases:
    """All items of a kind, in named queues. Every method raises ServiceError if Redis is out of
    reach."""

    def __init__(self, client: Client, kind: str, policy: LeasePolicy) -> None:
        self._client = client
        self._prefix = f"farrier:{kind}"
        self._kind = kind
        self._policy = policy
        self._script = client.script(script(policy))
        self._look = client.script(_LOOK)

    def put(
        self,
        item: str,
        queue: str,
        fields: Mapping[str, str],
        *,
        group: str = "all",
        share: str = "",
        once: str = "",
        digest: str = "",
        reason: str = "",
    ) -> str:
        """Queue an item and return its id. If an item was queued before under the idempotency key
        `once`, queue nothing and return the id of that item.

        `group` and `share` (such as the owner) name the lists in which `members` finds the item. If
        `reason` is set, it states why the item cannot be leased yet, and the event of the change
        contains it. Raises QueueFullError, and ConflictError if the earlier item has another
        `digest`.
        """
        words = [item, queue, group, share, once, digest, reason]
        word, *answer = self._call("put", *words, *flat(fields))
        if word == "full":
            raise self._full(*answer)
        return self._same(once, [word, *answer])

    def find(self, once: str, digest: str) -> str | None:
        """Return the id of the item that was queued under the idempotency key `once`; None for an
        unused or empty key. Raises ConflictError if the `digest` of that item differs."""
        answer = self._call("find", once, digest)
        return None if answer == ["unknown"] else self._same(once, answer)

    def _same(self, once: str, answer: list[Any]) -> str:
        word, item = answer
        if word == "conflict":
            key = once.rpartition(SCOPE)[2]
            raise ConflictError(
                f"the idempotency key {key!r} belongs to {self._kind} {item}, which has other "
                "contents",
                hint="use a new key for a new request",
            )
        return str(item)

    def take(self, owner: str, queues: Sequence[str], timeout_s: float) -> Lease | None:
        """Lease the next item of these queues in the fair order (see the module); return None if no
        item is available within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            word, *answer = self._call("take", owner, secrets.token_hex(8), *queues)
            if word == "granted":
                return Lease(str(answer[0]), int(answer[1]), int(answer[2]), owner)
            left = min(deadline - time.monotonic(), _LONGEST_BLOCK_S)
            if left <= 0:
                return None
            streams = {f"{self._prefix}:queue:{q}": n for q, n in zip(queues, answer, strict=True)}
            if streams:
                self._read(streams, 1, left)
            else:
                time.sleep(left)

    def renew(self, lease: Lease, fields: Mapping[str, str] | None = None) -> None:
        """Renew the lease, and set fields of its item. Raises StaleLeaseError if the lease has
        expired or was revoked."""
        if self._call("renew", lease.item, lease.fence, *flat(fields or {}))[0] == "stale":
            self._stale(lease)

    def renew_held(self, owner: str, items: Sequence[str]) -> list[str]:
        """Renew the leases of these items, held by `owner`, in one call; return the items whose
        leases were lost."""
        return [str(item) for item in self._call("renew_held", owner, *items)[1:]]

    def write(
        self,
        lease: Lease,
        number: int,
        event: str,
        fields: Mapping[str, str],
        part: Part = Part.EVENTS,
    ) -> None:
        """Append a JSON event to the item's stream of events and to the store `part`, and set
        `fields` of the item. `number` is the number of the event within the attempt, from 1; if an
        event with this number was stored already, nothing changes. Raises StaleLeaseError."""
        words = self._call("write", lease.item, lease.fence, number, event, part, *flat(fields))
        if words[0] == "stale":
            self._stale(lease)

    def finish(self, lease: Lease, state: State, fields: Mapping[str, str]) -> bool:
        """End the item in a final state. Return False, without any change, if a previous call with
        this lease has already ended it. Raises StaleLeaseError."""
        if not state.final:
            raise ValueError(f"{state} is not final")
        word = self._call("finish", lease.item, lease.fence, state, *flat(fields))[0]
        if word == "stale":
            self._stale(lease)
        return bool(word == "ok")

    def give_back(
        self, lease: Lease, *, crashed: bool, reason: str, fields: Mapping[str, str] = NOTHING
    ) -> State:
        """Put the item back into the queue (QUEUED), or end it as DEAD after too many crashes, and
        set these fields; return the new state. A repeated report of the same crash returns the same
        state without any change. Raises StaleLeaseError."""
        how = "01"[crashed], reason, *flat(fields)
        word = self._call("give_back", lease.item, lease.fence, *how)[0]
        if word == "stale":
            self._stale(lease)
        return State(word)

    def set(self, item: str, fields: Mapping[str, str], event: str) -> None:
        """Set fields of an item in any state; lease holders must never set the same fields. Also
        add a JSON event to the item's stream of events and log. If the item has ended, the event is
        added only to the log, if the log still exists. A repeated call changes nothing. Raises
        NotFoundError."""
        if self._call("set", item, event, *flat(fields))[0] == "unknown":
            raise self.unknown(item)

    def cancel(self, item: str) -> State:
        """Cancel the item and return CANCELLED, also for an item that was cancelled before. For an
        item in another final state, change nothing and return that state. Raises NotFoundError."""
        match self._call("cancel", item):
            case ["cancelled"]:
                return State.CANCELLED
            case ["final", state]:
                return State(state)
            case _:
                raise self.unknown(item)

    def forget(self, item: str) -> None:
        """Remove all data about an item; cancel the item first if it has not ended. Raises
        NotFoundError."""
        if self._call("forget", item, secrets.token_hex(8))[0] == "unknown":
            raise self.unknown(item)

    def expired(self, ended_before: float, most_bytes: int, limit: int) -> list[str]:
        """Return the ids of up to `limit` ended items to remove, the oldest first. These are the
        items that ended before `ended_before` (Unix seconds), and then the oldest items until the
        total size of the rest is at most `most_bytes` (0 for no limit)."""
        words = self._call("outlived", int(ended_before * 1000), most_bytes, limit)
        return [str(item) for item in words[1:]]

    def adopt(self, item: str, weight: int = 0) -> None:
        """Add an item of an older version, with its size `weight` in bytes, to the indexes that the
        older version did not have. A repeated call changes nothing."""
        self._call("adopt", item, weight)

    def adopt_keys(self) -> None:
        """Make the idempotency keys of older versions expire with their items."""
        cursor: str | int = 0
        while True:
            cursor, keys = self._client.command(
                "HSCAN", f"{self._prefix}:once", cursor, "COUNT", 100
            )
            if keys:
                self._call("adopt_keys", *keys)
            if int(cursor) == 0:
                return

    def reap(self, queues: Sequence[str]) -> int:
        """Revoke expired leases; return their number. `take` does the same, so this call matters
        only while no worker calls `take`."""
        return int(self._call("reap", *queues)[1])

    def queues(self) -> list[str]:
        """Return the names of all queues that were ever used, sorted."""
        return sorted(self._client.command("SMEMBERS", f"{self._prefix}:queues"))

    def length(self, queue: str) -> int:
        """Return the number of items of a queue that are queued or leased."""
        return int(self._client.command("XLEN", f"{self._prefix}:queue:{queue}"))

    def count(self, state: State) -> int:
        """Return the number of items in a state."""
        return int(self._client.command("ZCARD", f"{self._prefix}:state:{state}"))

    def counts(self, share: str = "") -> dict[State, int]:
        """Return the number of items in each state, of one share (owner) or of all, in one round
        trip to Redis."""
        of = share and f":{share}"
        keys = [("ZCARD", f"{self._prefix}:state:{state}{of}") for state in State]
        return dict(zip(State, map(int, self._client.commands(keys)), strict=True))

    def ended(self, limit: int) -> list[str]:
        """Return the ids of the items that ended last, the latest first, for a kind of item that is
        kept after its end."""
        key = f"{self._prefix}:finished"
        ids: list[str] = self._client.command("ZRANGE", key, 0, limit - 1, "REV")
        return ids

    def key(self, item: str) -> str:
        """Return the Redis key of an item. If the item refers to a blob, the blob's set of
        references contains this key."""
        return f"{self._prefix}:item:{item}"

    def fields(self, item: str) -> dict[str, str]:
        """Return all fields of an item. Raises NotFoundError."""
        values: dict[str, str] = self._client.command("HGETALL", self.key(item))
        if "state" not in values:
            raise self.unknown(item)
        return values

    def fields_of_many(self, items: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return all fields of each existing item among `items`. A single script that returns a
        single text is several times as fast as a command for each item."""
        ids = list(items)
        if not ids:
            return {}
        each = json.loads(self._look([self.key("")], [0, *ids]))
        rows = [words or [] for words in each]  # Lua encodes an empty list as an empty object.
        pairs = (dict(zip(words[::2], words[1::2], strict=True)) for words in rows)
        both = zip(ids, pairs, strict=True)
        return {item: fields for item, fields in both if "state" in fields}

    def read(self, item: str, *names: str) -> list[str]:
        """Return the values of these fields of an item, "" for a missing field. Raises
        NotFoundError."""
        values = self._client.command("HMGET", self.key(item), "state", *names)
        if values[0] is None:
            raise self.unknown(item)
        return [text or "" for text in values[1:]]

    def state(self, item: str) -> State | None:
        """Return the state of an item, or None for an unknown item."""
        text = self._client.command("HGET", self.key(item), "state")
        return State(text) if text else None

    def members(
        self,
        *,
        group: str = "all",
        share: str = "",
        state: State | None = None,
        after: str = "",
        limit: int,
        newest_first: bool = True,
    ) -> list[str]:
        """Return the ids of at most `limit` items, sorted by time of creation, that follow the id
        `after`. If `state` or `share` (such as an owner) is set, the items have that state and
        share. If neither is set, they are the items of `group`."""
        if state is not None:
            key = f"{self._prefix}:state:{state}{share and f':{share}'}"
        else:
            key = f"{self._prefix}:{f'share:{share}' if share else f'group:{group}'}"
        if newest_first:
            bounds = [f"({after}" if after else "+", "-", "BYLEX", "REV"]
        else:
            bounds = [f"({after}" if after else "-", "+", "BYLEX"]
        ids: list[str] = self._client.command("ZRANGE", key, *bounds, "LIMIT", 0, limit)
        return ids

    def look(self, items: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the values of these fields of each existing item, in the order of `items`; None
        for a missing field. A single script returns a single text, so thousands of items take
        milliseconds."""
        if not items:
            return {}
        words = ["state", *names]
        text = self._look([self.key("")], [len(words), *words, *items])
        both = zip(items, json.loads(text), strict=True)
        return {
            item: {name: field or None for name, field in zip(names, fields[1:], strict=True)}
            for item, fields in both
            if fields[0]
        }

    def events(self, item: str, after: str, wait_s: float, limit: int) -> list[tuple[str, str]]:
        """Return the ids and JSON texts of the item's events after the id `after`, waiting up to
        `wait_s` for the first."""
        key = f"{self._prefix}:events:{item}"
        deadline = time.monotonic() + wait_s
        while True:
            left = min(deadline - time.monotonic(), _LONGEST_BLOCK_S)
            streams = self._read({key: after or "0-0"}, limit, left)
            if streams:
                return [(entry, data["data"]) for entry, data in streams[0][1]]
            if left <= 0:
                return []

    def unknown(self, item: str) -> NotFoundError:
        return unknown(self._kind, item)

    def _full(self, share: str, queued: int) -> QueueFullError:
        whose = f" of {share}" if share else ""
        setting = variable_of("max_queued_jobs_of_owner" if share else "max_queued_jobs")
        return QueueFullError(
            f"the queue is full: {queued} {self._kind}s{whose} are waiting",
            hint=f"try again in {RETRY_AFTER_S:.0f} s, or cancel {self._kind}s that are not "
            f"needed; {setting} is the limit",
            retry_after_s=RETRY_AFTER_S,
        )

    def _stale(self, lease: Lease) -> NoReturn:
        raise stale(self._kind, lease, self.state(lease.item))

    def _read(self, streams: Mapping[str, str], limit: int, wait_s: float) -> list[Any]:
        """Return the new entries of several streams as `[[stream, [(id, fields), …]], …]`.
        `streams` maps each stream to the id of its last entry that was read. Wait up to `wait_s`
        for the first entry."""
        block: list[str | int] = ["BLOCK", max(1, int(wait_s * 1000))] if wait_s > 0 else []
        entries = self._client.command(
            "XREAD", "COUNT", limit, *block, "STREAMS", *streams, *streams.values()
        )
        return list(entries or [])

    def _call(self, operation: str, *args: str | int) -> list[Any]:
        answer: list[Any] = self._script([self._prefix, REFERENCES], [operation, *args])
        return answer


def unknown(kind: str, item: str) -> NotFoundError:
    hint = "`farrier jobs` lists the jobs" if kind == "job" else ""
    return NotFoundError(f"no {kind} {item!r}", hint=hint)


def stale(kind: str, lease: Lease, state: str | None) -> StaleLeaseError:
    """Return the error for a holder whose lease is not valid; `state` is the state of the item,
    None if the item was removed."""
    return StaleLeaseError(
        f"{lease.owner} no longer holds {kind} {lease.item} (attempt {lease.attempt}); its "
        f"state is now {state or 'forgotten'}"
    )


def flat(fields: Mapping[str, str]) -> list[str]:
    """Return the names and values of the fields as an alternating list, the form of script
    arguments."""
    return [text for pair in fields.items() for text in pair]


def _quoted(text: str) -> str:
    return f"'{text}'"


def script(policy: LeasePolicy) -> str:
    """Return the text of the Lua script `leases.lua`, with the values of a policy."""
    changes = ", ".join(
        f"{state} = {{{', '.join(f'{to} = true' for to in sorted(targets))}}}"
        for state, targets in CHANGES.items()
    )
    hint = policy.hint.replace("\\", "\\\\").replace("'", "\\'")
    constants = (
        f"lease_ms = {int(policy.lease_s * 1000)}, quiet_ms = {int(_QUIET_S * 1000)}, "
        f"crashes = {policy.crashes}, "
        f"ttl_s = {int(policy.ttl_s)}, events = {policy.events}, "
        f"events_s = {int(policy.events_s)}, hint = '{hint}', "
        f"news = '{policy.news}', news_kept = {NEWS_KEPT}, "
        f"refers = {{{', '.join(f'{field} = true' for field in policy.refers)}}}, "
        f"beside = {{{', '.join(map(_quoted, policy.beside))}}}, "
        f"counts = '{policy.counts}', log = {'true' if policy.log else 'false'}, "
        f"share = '{policy.share}', most_queued = {policy.most_queued}, "
        f"most_of_share = {policy.most_of_share}, weighs = '{policy.weighs}'"
    )
    return "\n".join(
        [f"local CHANGES = {{{changes}}}", f"local POLICY = {{{constants}}}", read_scripts(*_PARTS)]
    )
