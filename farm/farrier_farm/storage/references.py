"""References to blobs and models: a blob or model is kept as long as anything refers to it.

farrier:refs:<sha256>   set of the keys that refer to it: jobs (to their model and artifact), models
                        (to their blobs), batches until they end, the archives of records
farrier:hold:<random>   the holder of a blob that is being stored for a batch

The script that creates or removes a holder, the Redis key of an object that refers to the blob or
model, also adds or removes the reference, so both are always consistent. A reference names its
holder, so a repeated change counts once, and a reference whose holder no longer exists is ignored
and removed when it is read. A file that a client has uploaded and no request has named yet is
protected by the time of its file instead (`content.ContentStore.renew`).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence

from farrier_farm.redis.connection import Client

REFERENCES = "farrier:refs:"
_HOLDERS = "farrier:hold:"
_HELD_S = 3600  # Far more than it takes to store a blob, even if Redis stands still meanwhile.

# Checks a few holders at a time: a model may have any number of jobs, and one existing holder is
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
        """Return whether any object refers to the blob or model `sha256`."""
        return bool(self._find([f"{REFERENCES}{sha256}"], []))

    @contextlib.contextmanager
    def held(self, sha256: str) -> Iterator[None]:
        """Return a context that holds a temporary reference to a blob, so that another object can
        refer to it meanwhile. The reference exists before the blob is stored, so no other process
        removes the blob (`content.ContentStore`)."""
        keys = [f"{REFERENCES}{sha256}", f"{_HOLDERS}{secrets.token_hex(8)}"]
        self._hold(keys, [_HELD_S])
        try:
            yield
        finally:
            self._let_go(keys, [])

    def adopt(self, item: str, fields: Sequence[str]) -> None:
        """Add the references of an item that an older version wrote. `fields` name the item's
        fields that contain digests of blobs or models. A repeated call changes nothing."""
        self._adopt([REFERENCES], [item, *fields])
