"""The lease layer that jobs and measurement batches share: a queue whose items are leased.

Guarantees, to which one test class holds every kind of item:

- An item that `put` has acknowledged is leased at least once, unless it is cancelled first.
- At most one lease of an item is valid. A lease that is not renewed for `lease_s` is taken away and
  the item goes back to the queue; its fence is refused from then on. Time in which Redis stood
  still or was away, or by which its clock was put forward or back, does not count.
- Each change names the fence and happens in one script, or not at all. Repeating a call whose
  answer was lost changes nothing more.
- An item refers to what its fields of `LeasePolicy.refers` name, from the very change that sets
  them (`references.py`).
- `crashes` expired or crashed leases make an item dead, with the reason of the last.
- Only the changes of `states.CHANGES` happen.

Streams with a consumer group are the queue (`leases.lua` has the keys): what is pending in the
group is leased, and its idle time is the time since the last renewal."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NoReturn

from farrier.errors import ConflictError, NotFoundError
from farrier_farm.connection import Client
from farrier_farm.errors import StaleLeaseError
from farrier_farm.references import REFERENCES
from farrier_farm.states import CHANGES, State

_LONGEST_BLOCK_S = 1.0  # expired leases wake nobody, so a waiter looks for them this often
_QUIET_S = 3.0  # without a call; less is no sign that Redis stood still


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one item until the lease expires. `fence` grows with every attempt; each
    state change names it, and one of an earlier attempt is refused."""

    item: str
    fence: int
    attempt: int
    owner: str


@dataclasses.dataclass(frozen=True, slots=True)
class LeasePolicy:
    lease_s: float
    crashes: int  # so many make an item dead
    hint: str  # what a user can do about a dead one
    events: int  # kept for each item, roughly
    events_s: float = 7 * 86400.0  # and for so long after the item's end
    ttl_s: float = 0.0  # the item itself is forgotten so long after its end; 0: never
    # Fields, each set once, that name blobs or models by their digests, with blanks between them.
    # What is forgotten after its end refers to them until its end, and drops the fields then.
    refers: tuple[str, ...] = ()


def new_id() -> str:
    """20 hex digits that sort by time of creation."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}"


class Leases:
    """All items of one kind, in named queues. Raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, kind: str, policy: LeasePolicy) -> None:
        self._client = client
        self._prefix = f"farrier:{kind}"
        self._kind = kind
        self._script = client.script(_script(policy))

    def put(
        self,
        item: str,
        queue: str,
        fields: Mapping[str, str],
        *,
        group: str = "all",
        once: str = "",
        digest: str = "",
        reason: str = "",
    ) -> str:
        """Queues an item and returns its id: `item`, or the one put before under the idempotency
        key `once`. Raises ConflictError where that one's `digest` differs. The event says the
        `reason` why nobody will lease it yet, where there is one."""
        words = [item, queue, group, once, digest, reason]
        return self._same(once, self._call("put", *words, *_flat(fields)))

    def find(self, once: str, digest: str) -> str | None:
        """The id of the item that was put under the idempotency key `once`; None where there is
        none, or `once` is empty. Raises ConflictError as `put` does."""
        answer = self._call("find", once, digest)
        return None if answer == ["unknown"] else self._same(once, answer)

    def _same(self, once: str, answer: list[Any]) -> str:
        word, item = answer
        if word == "conflict":
            raise ConflictError(
                f"the idempotency key {once!r} belongs to {self._kind} {item}, which differs",
                hint="use a new key for a new request",
            )
        return str(item)

    def take(self, owner: str, queues: Sequence[str], timeout_s: float) -> Lease | None:
        """Leases the oldest item of these queues; None after `timeout_s`."""
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

    def renew(self, lease: Lease) -> None:
        """Raises StaleLeaseError where the lease is not valid any more."""
        if self._call("renew", lease.item, lease.fence)[0] == "stale":
            self._stale(lease)

    def write(self, lease: Lease, number: int, event: str, fields: Mapping[str, str]) -> None:
        """Appends a JSON event and sets fields. `number` counts from 1 within the attempt: one that
        is not new is ignored. Raises StaleLeaseError."""
        words = self._call("write", lease.item, lease.fence, number, event, *_flat(fields))
        if words[0] == "stale":
            self._stale(lease)

    def finish(self, lease: Lease, state: State, fields: Mapping[str, str]) -> bool:
        """Ends the item in a final state; False where this lease has done so before (then nothing
        changes). Raises StaleLeaseError."""
        if not state.final:
            raise ValueError(f"{state} is not final")
        word = self._call("finish", lease.item, lease.fence, state, *_flat(fields))[0]
        if word == "stale":
            self._stale(lease)
        return bool(word == "ok")

    def give_back(self, lease: Lease, *, crashed: bool, reason: str) -> State:
        """Back to the queue (QUEUED), or DEAD after a crash too many; the same again for a crash
        that this lease has told before (then nothing changes). Raises StaleLeaseError."""
        word = self._call("give_back", lease.item, lease.fence, "01"[crashed], reason)[0]
        if word == "stale":
            self._stale(lease)
        return State(word)

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

    def reap(self, queues: Sequence[str]) -> int:
        """Takes away expired leases, where nobody calls `take`; returns how many."""
        return int(self._call("reap", *queues)[1])

    def queues(self) -> list[str]:
        """The names of all queues that were ever used, sorted."""
        return sorted(self._client.command("SMEMBERS", f"{self._prefix}:queues"))

    def length(self, queue: str) -> int:
        """How many items of a queue are queued or leased."""
        return int(self._client.command("XLEN", f"{self._prefix}:queue:{queue}"))

    def key(self, item: str) -> str:
        """What refers to the blobs that an item names."""
        return f"{self._prefix}:item:{item}"

    def fields(self, item: str) -> dict[str, str]:
        """All fields; raises NotFoundError."""
        found: dict[str, str] = self._client.command("HGETALL", self.key(item))
        if "state" not in found:
            raise self.unknown(item)
        return found

    def state(self, item: str) -> State | None:
        """None for an unknown item."""
        found = self._client.command("HGET", self.key(item), "state")
        return State(found) if found else None

    def members(
        self, *, group: str = "all", state: State | None = None, after: str = "", limit: int
    ) -> list[str]:
        """Ids of a group, or of all items in a state, newest first, from the one before `after`."""
        key = f"{self._prefix}:group:{group}" if state is None else f"{self._prefix}:state:{state}"
        newest = f"({after}" if after else "+"
        ids: list[str] = self._client.command(
            "ZRANGE", key, newest, "-", "BYLEX", "REV", "LIMIT", 0, limit
        )
        return ids

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
        return NotFoundError(f"no {self._kind} {item!r}")

    def _stale(self, lease: Lease) -> NoReturn:
        state = self.state(lease.item) or "forgotten"
        raise StaleLeaseError(
            f"{lease.owner} no longer holds {self._kind} {lease.item} (attempt {lease.attempt}); "
            f"it is {state} now"
        )

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


def _flat(fields: Mapping[str, str]) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def _script(policy: LeasePolicy) -> str:
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
        f"refers = {{{', '.join(f'{field} = true' for field in policy.refers)}}}"
    )
    text = resources.files(__package__).joinpath("leases.lua").read_text()
    return f"local CHANGES = {{{changes}}}\nlocal POLICY = {{{constants}}}\n{text}"
