"""Webhooks: the URLs that receive events, and the deliveries, each of which is an event that waits
to be sent to a URL.

farrier:webhooks               set of the ids
farrier:webhook:<id>           hash: id, owner, url, events, secret, created; counts: delivered,
                               failed; last_error: why the last try failed, "" after a success
farrier:webhooks:cursor        the id of the last event whose deliveries were created
farrier:deliveries             sorted set of deliveries; the score is the due time in ms
farrier:delivery:<id>          hash: hook, body, attempts
farrier:deliveries:<hook>      set of the waiting deliveries of a webhook
farrier:deliveries:user:<user>  set of the waiting deliveries of all webhooks of a user

An event causes one delivery for each webhook that selects its kind. The script that creates the
deliveries also moves the cursor, so each is created once. A user's deliveries occupy at most a
tenth of the queue, so they cannot displace deliveries of other users. A delivery that a process has
taken to send it is due again after `TAKEN_S`, unless the process settles it before. The id of a
delivery consists of the event and the webhook, so a receiver can recognise a delivery that arrives
twice, for example after a lost answer.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from farrier.errors import NotFoundError, QueueFullError, UsageError
from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings

JOB_EVENTS = ("job.succeeded", "job.failed", "job.dead", "job.cancelled")
DEVICE_EVENTS = ("device.enrolled", "device.quarantined", "device.offline", "device.unfit")
EVENTS = (*JOB_EVENTS, *DEVICE_EVENTS)
PING = "ping"
MOST_HOOKS = 20  # of a user
MOST_WAITING = 500  # The most deliveries of a webhook that wait.
# A user's deliveries occupy at most one of this number of equal shares of the queue.
SHARES = 10
TAKEN_S = 60.0  # Several times the longest duration of a try.
# A `take` examines at most this number of deliveries, which takes some milliseconds.
_LOOKED_AT = 2000
_HOOKS, _HOOK = "farrier:webhooks", "farrier:webhook:"
_CURSOR = "farrier:webhooks:cursor"
_DUE, _DELIVERY, _OF = "farrier:deliveries", "farrier:delivery:", "farrier:deliveries:"

_USERS = "local function of_user(user) return 'farrier:deliveries:user:' .. (user or '') end"
# KEYS: cursor, due. ARGV: event or "", now in ms, most of all, most of a user, most of a hook, then
# for each delivery its id, hook and body. Returns the number of deliveries dropped for lack of
# room.
_MAKE = f"""{_USERS}
if ARGV[1] ~= '' then
  local seen = redis.call('GET', KEYS[1]) or '0-0'
  local function parts(id) local a, b = id:match('(%d+)-(%d+)'); return tonumber(a), tonumber(b) end
  local a, b = parts(seen)
  local c, d = parts(ARGV[1])
  if c < a or (c == a and d <= b) then return 0 end
  redis.call('SET', KEYS[1], ARGV[1])
end
local dropped = 0
for i = 6, #ARGV, 3 do
  local id, hook, body = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local of = 'farrier:deliveries:' .. hook
  local owner = redis.call('HGET', 'farrier:webhook:' .. hook, 'owner')
  if owner then
    local is_full = redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3])
      or redis.call('SCARD', of_user(owner)) >= tonumber(ARGV[4])
    if is_full or redis.call('SCARD', of) >= tonumber(ARGV[5]) then
      dropped = dropped + 1
    else
      redis.call('HSET', 'farrier:delivery:' .. id, 'hook', hook, 'body', body, 'attempts', 0)
      redis.call('SADD', of, id)
      redis.call('SADD', of_user(owner), id)
      redis.call('ZADD', KEYS[2], ARGV[2], id)
    end
  end
end
return dropped
"""

# KEYS: due. ARGV, times in ms: now, when a taken delivery is due again, when one of a busy user is
# due again, the most deliveries, the most of a user; then users, each with the number of their
# deliveries in progress. Returns ids.
_TAKE = f"""
local under_way, taken = {{}}, {{}}
for i = 6, #ARGV, 2 do under_way[ARGV[i]] = tonumber(ARGV[i + 1]) end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, {_LOOKED_AT})
for _, id in ipairs(due) do
  if #taken >= tonumber(ARGV[4]) then break end
  local hook = redis.call('HGET', 'farrier:delivery:' .. id, 'hook') or ''
  local user = redis.call('HGET', 'farrier:webhook:' .. hook, 'owner') or ''
  local count = under_way[user] or 0
  if count < tonumber(ARGV[5]) then
    under_way[user] = count + 1
    taken[#taken + 1] = id
    redis.call('ZADD', KEYS[1], ARGV[2], id)
  else
    redis.call('ZADD', KEYS[1], ARGV[3], id)
  end
end
return taken
"""

# KEYS: due. ARGV: delivery, hook, error or "", when it is due again in ms or "" for never. A
# delivery that was removed meanwhile stays removed.
_SETTLE = f"""{_USERS}
local delivery, hook = 'farrier:delivery:' .. ARGV[1], 'farrier:webhook:' .. ARGV[2]
local known = redis.call('EXISTS', hook) == 1
if known then redis.call('HSET', hook, 'last_error', ARGV[3]) end
if known and ARGV[4] ~= '' and redis.call('EXISTS', delivery) == 1 then
  redis.call('HINCRBY', delivery, 'attempts', 1)
  redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
  return
end
if known then redis.call('HINCRBY', hook, ARGV[3] == '' and 'delivered' or 'failed', 1) end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('DEL', delivery)
redis.call('SREM', 'farrier:deliveries:' .. ARGV[2], ARGV[1])
if known then redis.call('SREM', of_user(redis.call('HGET', hook, 'owner')), ARGV[1]) end
"""

# KEYS: hooks, due. ARGV: hook.
_REMOVE = f"""{_USERS}
local of = 'farrier:deliveries:' .. ARGV[1]
local user = redis.call('HGET', 'farrier:webhook:' .. ARGV[1], 'owner')
for _, id in ipairs(redis.call('SMEMBERS', of)) do
  redis.call('SREM', of_user(user), id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('DEL', 'farrier:delivery:' .. id)
end
redis.call('DEL', of, 'farrier:webhook:' .. ARGV[1])
return redis.call('SREM', KEYS[1], ARGV[1])
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Webhook:
    """A URL of a user, and the events that it receives."""

    id: str
    owner: str
    url: str
    events: tuple[str, ...]
    created: float  # Unix seconds
    delivered: int
    failed: int  # Deliveries that were given up.
    last_error: str
    secret: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """An event that waits to be sent to a webhook."""

    id: str
    hook: str
    body: str
    attempts: int


class Webhooks:
    """The webhooks of all users. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._most = settings.webhook_queue
        self._make = client.script(_MAKE)
        self._take = client.script(_TAKE)
        self._settle = client.script(_SETTLE)
        self._remove = client.script(_REMOVE)

    def add(self, owner: str, url: str, events: Sequence[str]) -> Webhook:
        """Register a URL that the caller has checked. Raises UsageError for an unknown event,
        QueueFullError if the owner has too many webhooks."""
        unknown = [event for event in events if event not in EVENTS]
        if unknown or not events:
            raise UsageError(
                f"there is no event {unknown[0]!r}" if unknown else "the list of events is empty",
                hint=f"the events are {', '.join(EVENTS)}",
            )
        if len(self.list(owner)) >= MOST_HOOKS:
            raise QueueFullError(
                f"{owner} already has {MOST_HOOKS} webhooks, the maximum",
                hint="farrier webhooks remove ID",
            )
        hook_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        fields = {
            "id": hook_id,
            "owner": owner,
            "url": url,
            "events": ",".join(dict.fromkeys(events)),
            "secret": secret,
            "created": f"{time.time():.3f}",
        }
        words = [word for pair in fields.items() for word in pair]
        self._client.command("HSET", _HOOK + hook_id, *words)
        self._client.command("SADD", _HOOKS, hook_id)
        return self.get(hook_id)

    def get(self, hook_id: str) -> Webhook:
        """Return a webhook. Raises NotFoundError."""
        fields = self._client.command("HGETALL", _HOOK + hook_id)
        if not fields:
            raise no_webhook(hook_id)
        return _webhook(fields)

    def list(self, owner: str | None = None) -> list[Webhook]:
        """Return the webhooks of a user, or all webhooks, the oldest first."""
        ids = self._client.command("SMEMBERS", _HOOKS)
        rows = self._client.commands(["HGETALL", _HOOK + hook_id] for hook_id in ids)
        hooks = [_webhook(fields) for fields in rows if fields]
        return sorted(
            (hook for hook in hooks if owner in (None, hook.owner)),
            key=lambda hook: (hook.created, hook.id),
        )

    def remove(self, hook_id: str) -> None:
        """Remove a webhook and its waiting deliveries. Raises NotFoundError."""
        if not self._remove([_HOOKS, _DUE], [hook_id]):
            raise no_webhook(hook_id)

    # Deliveries

    def cursor(self) -> str | None:
        """Return the id of the last event whose deliveries were created; None before the first."""
        event: str | None = self._client.command("GET", _CURSOR)
        return event

    def make(self, event: str, deliveries: Iterable[tuple[Webhook, str]]) -> int:
        """Create a delivery for each pair of webhook and JSON body in `deliveries`. `event` is the
        id of the farm event that causes them: if its deliveries exist already, nothing changes.
        With "" for `event`, the deliveries do not belong to an event, as for a ping. Return the
        number of deliveries that were dropped because the queue was full."""
        share = max(1, self._most // SHARES)
        words: list[str | int] = [event, _ms(), self._most, share, MOST_WAITING]
        for hook, body in deliveries:
            words += [f"{event or secrets.token_hex(8)}-{hook.id}", hook.id, body]
        return int(self._make([_CURSOR, _DUE], words))

    def take(
        self,
        most: int,
        *,
        of_user: int,
        under_way: Mapping[str, int] = MappingProxyType({}),
        busy_s: float = 0.0,
    ) -> Sequence[Delivery]:
        """Take at most `most` due deliveries, which this process has to send now, and return them.

        A user has at most `of_user` deliveries in progress at a time. `under_way` is the number of
        deliveries that this process is already sending, by user. Due deliveries beyond the limit
        become due again in `busy_s` seconds.
        """
        now = _ms()
        words: list[str | int] = [now, now + int(TAKEN_S * 1000), now + int(busy_s * 1000), most]
        words += [of_user, *(word for pair in under_way.items() for word in pair)]
        ids = self._take([_DUE], words)
        rows = self._client.commands(["HGETALL", _DELIVERY + delivery_id] for delivery_id in ids)
        return [
            Delivery(delivery_id, fields["hook"], fields["body"], int(fields["attempts"]))
            for delivery_id, fields in zip(ids, rows, strict=True)
            if fields
        ]

    def settle(self, delivery: Delivery, error: str, again_s: float | None) -> None:
        """Store the result of an attempt to send a delivery. `error` is "" for a success. The next
        attempt follows in `again_s` seconds; if `again_s` is None, the delivery is removed."""
        due = "" if again_s is None else _ms() + int(again_s * 1000)
        self._settle([_DUE], [delivery.id, delivery.hook, error[:300], due])


def no_webhook(hook_id: str) -> NotFoundError:
    """Return the error for a webhook that does not exist."""
    return NotFoundError(
        f"there is no webhook {hook_id!r}", hint="farrier webhooks list shows your webhooks"
    )


def _ms() -> int:
    return int(time.time() * 1000)


def _webhook(fields: Mapping[str, str]) -> Webhook:
    return Webhook(
        id=fields["id"],
        owner=fields["owner"],
        url=fields["url"],
        events=tuple(fields["events"].split(",")),
        created=float(fields["created"]),
        delivered=int(fields.get("delivered", 0)),
        failed=int(fields.get("failed", 0)),
        last_error=fields.get("last_error", ""),
        secret=fields["secret"],
    )
