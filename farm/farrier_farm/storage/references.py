"""Who refers to a blob or a model: what anybody refers to is kept.

farrier:refs:<sha256>   set of the keys that refer to it: jobs (to their model and artifact), models
                        (to their blobs), batches until they end, the archives of records
farrier:hold:<random>   refers to a library that is being stored for a batch

A reference is added by the script that writes what refers, and removed by the one that ends it, so
it is as durable as that, and there is no moment at which one is without the other. It names its
holder, so a change that is repeated counts once; and one whose holder is gone is none: whoever asks
drops it. What a client has uploaded and not yet named is held by the time of its file instead
(`content.ContentStore.renew`)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence

from farrier_farm.redis.connection import Client

REFERENCES = "farrier:refs:"
_HOLDERS = "farrier:hold:"
_HELD_S = 3600  # far more than it takes to store a blob, Redis standing still meanwhile

# A few holders at a time: a model may have any number of jobs, and one that is there is enough.
_FIND = """
while true do
  local holders = redis.call('SRANDMEMBER', KEYS[1], 16)
  if #holders == 0 then return 0 end
  for _, holder in ipairs(holders) do
    if redis.call('EXISTS', holder) == 1 then return 1 end
    redis.call('SREM', KEYS[1], holder)
  end
end
"""

_ADOPT = """
for i = 2, #ARGV do
  local digests = redis.call('HGET', ARGV[1], ARGV[i])
  for digest in (digests or ''):gmatch('%x+') do
    redis.call('SADD', KEYS[1] .. digest, ARGV[1])
  end
end
"""


# A holder that dies ends by itself.
_HOLD = """
redis.call('SET', KEYS[2], '', 'EX', ARGV[1])
redis.call('SADD', KEYS[1], KEYS[2])
"""

_LET_GO = """
redis.call('SREM', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[2])
"""


class References:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._find = client.script(_FIND)
        self._adopt = client.script(_ADOPT)
        self._hold = client.script(_HOLD)
        self._let_go = client.script(_LET_GO)

    def are_there(self, sha256: str) -> bool:
        """Whether anything refers to a blob or model."""
        return bool(self._find([f"{REFERENCES}{sha256}"], []))

    @contextlib.contextmanager
    def held(self, sha256: str) -> Iterator[None]:
        """Refer to a blob that is stored within, until something else does. What is referred to
        before it is stored is removed by nobody who finds it there (`content.ContentStore`)."""
        keys = [f"{REFERENCES}{sha256}", f"{_HOLDERS}{secrets.token_hex(8)}"]
        self._hold(keys, [_HELD_S])
        try:
            yield
        finally:
            self._let_go(keys, [])

    def adopt(self, item: str, fields: Sequence[str]) -> None:
        """Add the references of an item that an older version wrote: the digests in these fields
        of its hash. Adding them again changes nothing."""
        self._adopt([REFERENCES], [item, *fields])
