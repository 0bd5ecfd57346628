"""References to blobs and models: a blob or model is kept as long as anything refers to it.

farrier:refs:<sha256>   set of the keys that refer to it: jobs (to their model and artifact), models
                        (to their blobs), batches until they end, the archives of records
farrier:hold:<random>   refers to a library that is being stored for a batch

A reference is added by the script that writes its holder, and removed by the script that ends the
holder, so the two are always in step. It names its holder, so a repeated change counts once, and a
reference whose holder is gone does not count and is dropped when it is seen. A file that a client
has uploaded and not yet named is kept by the time of its file instead
(`content.ContentStore.renew`)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence

from farrier_farm.redis.connection import Client

REFERENCES = "farrier:refs:"
_HOLDERS = "farrier:hold:"
_HELD_S = 3600  # Far more than it takes to store a blob, even if Redis stands still meanwhile.

# Looks at a few holders at a time: a model may have any number of jobs, and one existing holder is
# enough.
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


# A holder that dies expires by itself.
_HOLD = """
redis.call('SET', KEYS[2], '', 'EX', ARGV[1])
redis.call('SADD', KEYS[1], KEYS[2])
"""

_LET_GO = """
redis.call('SREM', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[2])
"""


class References:
    """The references of a farm. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._find = client.script(_FIND)
        self._adopt = client.script(_ADOPT)
        self._hold = client.script(_HOLD)
        self._let_go = client.script(_LET_GO)

    def are_there(self, sha256: str) -> bool:
        """Return whether anything refers to a blob or model."""
        return bool(self._find([f"{REFERENCES}{sha256}"], []))

    @contextlib.contextmanager
    def held(self, sha256: str) -> Iterator[None]:
        """Return a context that refers to a blob until something else does. Because the reference
        exists before the blob is stored, no other process removes the blob
        (`content.ContentStore`)."""
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
