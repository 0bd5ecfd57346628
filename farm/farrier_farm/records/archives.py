"""Records as blobs: each that was added is in one archive, which is written once and, where some of
its records are removed, once more.

<store>archived-up-to   stream: an entry an archive, under the id of its last record in the store's
                        log; it begins behind the archive before it
<store>archives-by-id   hash: id → the sha256 of the blob of JSON lines; refers to it
<store>stale            set: ids of archives that hold records which were removed
<store>waiting          how many records are in no archive

Who is killed between a blob and its note leaves a blob that nothing refers to. An archive that is
stale stays so until it is written anew, whoever does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from farrier_farm.records.entry import SHARED, STORES
from farrier_farm.redis.connection import Client
from farrier_farm.redis.scripts import read_scripts
from farrier_farm.storage.content import ContentStore
from farrier_farm.storage.references import REFERENCES

_PAGE = 500
ARCHIVED_AT_ONCE = 256  # records that wait before they become a blob
ARCHIVED_AT_MOST = 1000  # records in a blob

# What was removed while the blob was written makes it stale.
_NOTE = """
local last = redis.call('XREVRANGE', ARCHIVES, '+', '-', 'COUNT', 1)[1]
if (last and last[1] or '0-0') ~= ARGV[1] then return 0 end
local id, digest, written = ARGV[2], ARGV[3], tonumber(ARGV[4])
redis.call('XADD', ARCHIVES, id, 'records', written)
redis.call('HSET', KEYS[1], id, digest)
redis.call('SADD', KEYS[2], KEYS[1])
local there = #redis.call('XRANGE', key('log'), '(' .. ARGV[1], id)
redis.call('DECRBY', key('waiting'), there)
if there ~= written then redis.call('SADD', STALE, id) end
return 1
"""

# In the place of the old blob comes one with what is left, or none where nothing is.
_REPLACE = """
local id, old, new, first, written = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if (redis.call('HGET', KEYS[1], id) or '') ~= old then return 0 end
if #redis.call('XRANGE', key('log'), '(' .. first, id) ~= written then return 0 end
redis.call('SREM', STALE, id)
if old ~= '' then redis.call('SREM', KEYS[2], KEYS[1]) end
if written == 0 then
  redis.call('XDEL', ARCHIVES, id)
  redis.call('HDEL', KEYS[1], id)
else
  redis.call('HSET', KEYS[1], id, new)
  redis.call('SADD', KEYS[3], KEYS[1])
end
return 1
"""


def all_archives(client: Client, blobs: ContentStore) -> Iterator[RecordArchives]:
    """Those of each store: the shared one, and those of users. Raises ServiceError where Redis is
    out of reach."""
    stores = {SHARED, *client.command("SMEMBERS", STORES)}
    return (RecordArchives(client, blobs, store) for store in sorted(stores))


class RecordArchives:
    """Those of one store of records; `key` is what refers to their blobs. Every method raises
    ServiceError where Redis is out of reach, StorageError where there is no room for a blob."""

    def __init__(self, client: Client, blobs: ContentStore, store: str) -> None:
        self._client = client
        self._blobs = blobs
        self._store = store
        self._ids, self.key = store + "archived-up-to", store + "archives-by-id"
        self._log, self._stale = store + "log", store + "stale"
        shared = read_scripts("records")
        self._note = client.script(shared + _NOTE)
        self._replace = client.script(shared + _REPLACE)

    def are_due(self) -> bool:
        """Whether so many records wait that they are to become a blob."""
        return int(self._client.command("GET", self._store + "waiting") or 0) >= ARCHIVED_AT_ONCE

    def write(self) -> str | None:
        """Write records that wait, the oldest `ARCHIVED_AT_MOST`, into one blob and return its
        sha256; None where there are none. Two callers at once make one archive."""
        last = self._neighbour("+")
        found = self._client.command(
            "XRANGE", self._log, f"({last}", "+", "COUNT", ARCHIVED_AT_MOST
        )
        digest = self._stored([fields["digest"] for _, fields in found])
        if digest is None:
            return None
        noted = self._note(
            [self.key, f"{REFERENCES}{digest}"],
            [last, found[-1][0], digest, len(found), self._store],
        )
        return digest if noted else None

    def renew(self, most: int) -> bool:
        """Write so many stale archives anew; return whether any is left."""
        for one in self._client.command("SRANDMEMBER", self._stale, most):
            self._renew(one)
        return bool(self._client.command("EXISTS", self._stale))

    def __iter__(self) -> Iterator[str]:
        """The sha256 of every archive, in order; together they hold every archived record once."""
        last = "-"
        while found := self._client.command("XRANGE", self._ids, last, "+", "COUNT", _PAGE):
            yield from self._client.command("HMGET", self.key, *(one for one, _ in found))
            last = f"({found[-1][0]}"

    def _renew(self, archive: str) -> None:
        first = self._neighbour(f"({archive}")
        found = self._client.command("XRANGE", self._log, f"({first}", archive)
        old = self._client.command("HGET", self.key, archive) or ""
        new = self._stored([fields["digest"] for _, fields in found]) or ""
        keys = [self.key, f"{REFERENCES}{old}", f"{REFERENCES}{new}"]
        self._replace(keys, [archive, old, new, first, len(found), self._store])

    def _stored(self, digests: Sequence[str]) -> str | None:
        """The blob with the lines of these records; None where there are none."""
        if not digests:
            return None
        lines = self._client.command("HMGET", self._store + "lines", *digests)
        return self._blobs.put("".join(f"{line}\n" for line in lines if line).encode())

    def _neighbour(self, end: str) -> str:
        """The id of the last archive up to `end`; "0-0" where there is none."""
        found = self._client.command("XREVRANGE", self._ids, end, "-", "COUNT", 1)
        return str(found[0][0]) if found else "0-0"
