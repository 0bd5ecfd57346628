"""The lease layer that jobs and measurement batches share: a queue whose items are leased.

Guarantees, to which one test class holds every kind of item:

- An item that `put` has acknowledged is leased at least once, unless it is cancelled first.
- At most one lease of an item is valid. A lease that is not renewed for `lease_s` is taken away and
  the item goes back to the queue; its fence is refused from then on. Time in which Redis stood
  still or was away, or by which its clock was put forward or back, does not count.
- Each change by a holder names the fence and happens in one script, or not at all. Repeating a
  call whose answer was lost changes nothing more.
- An item refers to what its fields of `LeasePolicy.refers` name, from the very change that sets
  them (`references.py`).
- `crashes` expired or crashed leases make an item dead, with the reason of the last.
- Only the changes of `states.CHANGES` happen.
- Who leases gets the oldest item of the share that has the fewest items running, and of such shares
  the one served longest ago (`shares.lua`).
- Beyond a bound of the policy nothing is put; what was put before is found all the same.
- What is forgotten leaves nothing behind, and its holder is refused.

Streams with a consumer group are the queue (`leases.lua` has the keys): what is pending in the
group is leased, and its idle time is the time since the last renewal."""

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

_LONGEST_BLOCK_S = 1.0  # expired leases wake nobody, so a waiter looks for them this often
SCOPE = "\n"  # ends what an idempotency key is within, where it is within something
_PARTS = ("curves", "throughput", "items", "shares", "leases")
NOTHING: Mapping[str, str] = types.MappingProxyType({})
# Fields of items: how many fields, their names, then the items; of 0 all, names and values in turn.
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
_QUIET_S = 3.0  # without a call; less is no sign that Redis stood still


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one item until the lease expires. `fence` grows with every attempt; each
    state change names it, and one of an earlier attempt is refused."""

    item: str
    fence: int
    attempt: int
    owner: str


class Part(enum.StrEnum):
    """What an event is kept in beside the item's events, of which only the newest stay."""

    EVENTS = ""  # nothing
    LOG = "log"
    CURVE = "curve"  # of `best_ms` over `trials`, two fields that are set with the event


@dataclasses.dataclass(frozen=True, slots=True)
class LeasePolicy:
    lease_s: float
    crashes: int  # so many make an item dead
    hint: str  # what a user can do about a dead one
    events: int  # kept for each item, roughly
    events_s: float = 7 * 86400.0  # and for so long after the item's end
    ttl_s: float = 0.0  # the item itself is forgotten so long after its end; 0: never
    # Fields, each set once or growing, that name blobs or models by their digests, with blanks
    # between them.
    # What is forgotten after its end refers to them until its end, and drops the fields then.
    refers: tuple[str, ...] = ()
    share: str = ""  # of items of older versions; "" for a kind of item without shares
    most_queued: int = 0  # items of this kind; 0: any number
    most_of_share: int = 0
    news: str = ""  # key of a stream in which all changes of state are announced as well
    weighs: str = ""  # the field that says what an item that has ended weighs, in bytes
    counts: str = ""  # what an item that has ended counts as in the farm's throughput
    log: bool = False  # whether an item keeps a log beside its events
    beside: tuple[str, ...] = ("events",)  # keys that end, and are forgotten, with an item


RETRY_AFTER_S = 10.0
"""How long to wait where a queue is full: a plain constant, for nobody knows how long jobs take."""


def new_id() -> str:
    """20 hex digits that sort by time of creation."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}"


class Leases:
    """All items of one kind, in named queues. Raises ServiceError where Redis is out of reach."""

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
        """Queue an item and return its id: `item`, or the one put before under the idempotency
        key `once`. Raises ConflictError where that one's `digest` differs, QueueFullError. The
        event says the `reason` why nobody will lease it yet, where there is one."""
        words = [item, queue, group, share, once, digest, reason]
        word, *answer = self._call("put", *words, *flat(fields))
        if word == "full":
            raise self._full(*answer)
        return self._same(once, [word, *answer])

    def find(self, once: str, digest: str) -> str | None:
        """The id of the item that was put under the idempotency key `once`; None where there is
        none, or `once` is empty. Raises ConflictError as `put` does."""
        answer = self._call("find", once, digest)
        return None if answer == ["unknown"] else self._same(once, answer)

    def _same(self, once: str, answer: list[Any]) -> str:
        word, item = answer
        if word == "conflict":
            key = once.rpartition(SCOPE)[2]
            raise ConflictError(
                f"the idempotency key {key!r} belongs to {self._kind} {item}, which differs",
                hint="use a new key for a new request",
            )
        return str(item)

    def take(self, owner: str, queues: Sequence[str], timeout_s: float) -> Lease | None:
        """Leases the item of these queues whose turn it is; None after `timeout_s`."""
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
        """Sets fields, too. Raises StaleLeaseError where the lease is not valid any more."""
        if self._call("renew", lease.item, lease.fence, *flat(fields or {}))[0] == "stale":
            self._stale(lease)

    def renew_held(self, owner: str, items: Sequence[str]) -> list[str]:
        """Renew the owner's leases of these items together; return the items that it holds no
        more."""
        return [str(item) for item in self._call("renew_held", owner, *items)[1:]]

    def write(
        self,
        lease: Lease,
        number: int,
        event: str,
        fields: Mapping[str, str],
        part: Part = Part.EVENTS,
    ) -> None:
        """Append a JSON event, to a `part` of what is kept as well, and set fields. `number`
        counts from 1 within the attempt: one that is not new is ignored. Raises
        StaleLeaseError."""
        words = self._call("write", lease.item, lease.fence, number, event, part, *flat(fields))
        if words[0] == "stale":
            self._stale(lease)

    def finish(self, lease: Lease, state: State, fields: Mapping[str, str]) -> bool:
        """End the item in a final state; False where this lease has done so before (then nothing
        changes). Raises StaleLeaseError."""
        if not state.final:
            raise ValueError(f"{state} is not final")
        word = self._call("finish", lease.item, lease.fence, state, *flat(fields))[0]
        if word == "stale":
            self._stale(lease)
        return bool(word == "ok")

    def give_back(
        self, lease: Lease, *, crashed: bool, reason: str, fields: Mapping[str, str] = NOTHING
    ) -> State:
        """Back to the queue (QUEUED), or DEAD after a crash too many, with these fields set; the
        same again for a crash that this lease has told before (then nothing changes). Raises
        StaleLeaseError."""
        how = "01"[crashed], reason, *flat(fields)
        word = self._call("give_back", lease.item, lease.fence, *how)[0]
        if word == "stale":
            self._stale(lease)
        return State(word)

    def set(self, item: str, fields: Mapping[str, str], event: str) -> None:
        """Sets fields that no holder of a lease sets, in any state, and tells of it by a JSON event
        in the item's log; of one that has ended in the log alone, where it is kept still. Doing so
        again changes nothing. Raises NotFoundError."""
        if self._call("set", item, event, *flat(fields))[0] == "unknown":
            raise self.unknown(item)

    def cancel(self, item: str) -> State:
        """CANCELLED, also where it was already; another final state is returned and left as it is.
        Raises NotFoundError."""
        match self._call("cancel", item):
            case ["cancelled"]:
                return State.CANCELLED
            case ["final", state]:
                return State(state)
            case _:
                raise self.unknown(item)

    def forget(self, item: str) -> None:
        """Remove all that is known of an item; one that has not ended is cancelled first. Raises
        NotFoundError."""
        if self._call("forget", item, secrets.token_hex(8))[0] == "unknown":
            raise self.unknown(item)

    def expired(self, ended_before: float, most_bytes: int, limit: int) -> list[str]:
        """Up to `limit` items, the oldest first, that ended before that time (Unix seconds), or
        without which the others weigh `most_bytes` at most (0: they may weigh anything)."""
        words = self._call("outlived", int(ended_before * 1000), most_bytes, limit)
        return [str(item) for item in words[1:]]

    def adopt(self, item: str, weight: int = 0) -> None:
        """Enter an item of an older version, which weighs so many bytes once it has ended, in the
        indexes that such a version did not have. Doing so again changes nothing."""
        self._call("adopt", item, weight)

    def adopt_keys(self) -> None:
        """The same for idempotency keys: they end with their items."""
        cursor: str | int = 0
        while True:
            cursor, found = self._client.command(
                "HSCAN", f"{self._prefix}:once", cursor, "COUNT", 100
            )
            if found:
                self._call("adopt_keys", *found)
            if int(cursor) == 0:
                return

    def reap(self, queues: Sequence[str]) -> int:
        """Take away expired leases, where nobody calls `take`; return how many."""
        return int(self._call("reap", *queues)[1])

    def queues(self) -> list[str]:
        """The names of all queues that were ever used, sorted."""
        return sorted(self._client.command("SMEMBERS", f"{self._prefix}:queues"))

    def length(self, queue: str) -> int:
        """How many items of a queue are queued or leased."""
        return int(self._client.command("XLEN", f"{self._prefix}:queue:{queue}"))

    def count(self, state: State) -> int:
        """How many items are in a state."""
        return int(self._client.command("ZCARD", f"{self._prefix}:state:{state}"))

    def counts(self, share: str = "") -> dict[State, int]:
        """The same of all states, of one share or all, in one round trip."""
        of = share and f":{share}"
        keys = [("ZCARD", f"{self._prefix}:state:{state}{of}") for state in State]
        return dict(zip(State, map(int, self._client.commands(keys)), strict=True))

    def ended(self, limit: int) -> list[str]:
        """The items that ended last, of a kind that is not forgotten by itself; the last first."""
        key = f"{self._prefix}:finished"
        ids: list[str] = self._client.command("ZRANGE", key, 0, limit - 1, "REV")
        return ids

    def key(self, item: str) -> str:
        """What refers to the blobs that an item names."""
        return f"{self._prefix}:item:{item}"

    def fields(self, item: str) -> dict[str, str]:
        """All fields; raises NotFoundError."""
        found: dict[str, str] = self._client.command("HGETALL", self.key(item))
        if "state" not in found:
            raise self.unknown(item)
        return found

    def fields_of_many(self, items: Iterable[str]) -> dict[str, dict[str, str]]:
        """The fields of those of the items that are known. One script, whose answer is one text, is
        several times as fast as a command for each."""
        ids = list(items)
        if not ids:
            return {}
        each = json.loads(self._look([self.key("")], [0, *ids]))
        rows = [words or [] for words in each]  # nothing is an empty object to Lua
        pairs = (dict(zip(words[::2], words[1::2], strict=True)) for words in rows)
        both = zip(ids, pairs, strict=True)
        return {item: fields for item, fields in both if "state" in fields}

    def read(self, item: str, *names: str) -> list[str]:
        """These fields, "" for one that the item lacks; raises NotFoundError."""
        found = self._client.command("HMGET", self.key(item), "state", *names)
        if found[0] is None:
            raise self.unknown(item)
        return [text or "" for text in found[1:]]

    def state(self, item: str) -> State | None:
        """None for an unknown item."""
        found = self._client.command("HGET", self.key(item), "state")
        return State(found) if found else None

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
        """Ids of a group, or of all items in a state, of a share, or both, by creation, from the
        one next to `after`."""
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
        """These fields of the items that are known, in their order; None for one that an item
        lacks. One script, whose answer is one text: thousands of items take milliseconds."""
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
        """Ids and JSON texts of the events after an id, waiting up to `wait_s` for the first."""
        key = f"{self._prefix}:events:{item}"
        deadline = time.monotonic() + wait_s
        while True:
            left = min(deadline - time.monotonic(), _LONGEST_BLOCK_S)
            found = self._read({key: after or "0-0"}, limit, left)
            if found:
                return [(entry, data["data"]) for entry, data in found[0][1]]
            if left <= 0:
                return []

    def unknown(self, item: str) -> NotFoundError:
        return unknown(self._kind, item)

    def _full(self, share: str, queued: int) -> QueueFullError:
        whose = f" of {share}" if share else ""
        setting = variable_of("max_queued_jobs_of_owner" if share else "max_queued_jobs")
        return QueueFullError(
            f"the queue is full: {queued} {self._kind}s{whose} wait in it",
            hint=f"try again in {RETRY_AFTER_S:.0f} s, or cancel {self._kind}s that are not "
            f"needed; {setting} is the limit",
            retry_after_s=RETRY_AFTER_S,
        )

    def _stale(self, lease: Lease) -> NoReturn:
        raise stale(self._kind, lease, self.state(lease.item))

    def _read(self, streams: Mapping[str, str], limit: int, wait_s: float) -> list[Any]:
        """Entries after the given ids: `[[stream, [(id, fields), …]], …]`."""
        block: list[str | int] = ["BLOCK", max(1, int(wait_s * 1000))] if wait_s > 0 else []
        found = self._client.command(
            "XREAD", "COUNT", limit, *block, "STREAMS", *streams, *streams.values()
        )
        return list(found or [])

    def _call(self, operation: str, *args: str | int) -> list[Any]:
        answer: list[Any] = self._script([self._prefix, REFERENCES], [operation, *args])
        return answer


def unknown(kind: str, item: str) -> NotFoundError:
    hint = "`farrier jobs` lists those that are kept" if kind == "job" else ""
    return NotFoundError(f"no {kind} {item!r}", hint=hint)


def stale(kind: str, lease: Lease, state: str | None) -> StaleLeaseError:
    """What a holder is told whose lease is not valid; `state` is the item's, None without one."""
    return StaleLeaseError(
        f"{lease.owner} no longer holds {kind} {lease.item} (attempt {lease.attempt}); "
        f"it is {state or 'forgotten'} now"
    )


def flat(fields: Mapping[str, str]) -> list[str]:
    """Names and values in turns, as scripts take them."""
    return [text for pair in fields.items() for text in pair]


def _quoted(text: str) -> str:
    return f"'{text}'"


def script(policy: LeasePolicy) -> str:
    """The text of `leases.lua` under a policy."""
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
