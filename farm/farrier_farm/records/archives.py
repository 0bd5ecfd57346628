"""Archives of tuning records, stored as blobs of JSON lines. Each added record is in exactly one
archive. An archive is rewritten only if some of its records are removed.

<store>archived-up-to   stream: an entry for each archive, under the id of the archive's last record
                        in the store's log; the archive starts after the last record of the previous
                        archive
<store>archives-by-id   hash: id → the SHA-256 of the archive's blob; a reference to the blob
<store>stale            set: ids of stale archives, which contain records that were removed
<store>waiting          the number of records that are not in an archive yet

A process that is killed after it has stored a blob and before it has added the blob to the index
leaves an unreferenced blob, which garbage collection removes. A stale archive stays marked until a
process rewrites it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from farrier_farm.records.entry import SHARED, STORES
from farrier_farm.redis.connection import Client
from farrier_farm.redis.scripts import read_scripts
from farrier_farm.storage.content import ContentStore
from farrier_farm.storage.references import REFERENCES

_PAGE = 500
ARCHIVED_AT_ONCE = 256  # The number of unarchived records for which an archive is written.
ARCHIVED_AT_MOST = 1000  # The most records in a blob.

# If records were removed while the blob was written, the archive is stale.
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

# Replaces an archive's blob by one with the remaining records, or by none if none remain.
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
    """Return an iterator over the archives of each store of records: the shared store and the
    private stores of users. Raises ServiceError if Redis is out of reach."""
    stores = {SHARED, *client.command("SMEMBERS", STORES)}
    return (RecordArchives(client, blobs, store) for store in sorted(stores))


class RecordArchives:
    """The archives of a store of records; `key` is the Redis key that refers to their blobs. Every
    method raises ServiceError if Redis is out of reach, StorageError if a blob does not fit on the
    disk."""

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
        """Return whether enough records are not yet archived to fill an archive."""
        return int(self._client.command("GET", self._store + "waiting") or 0) >= ARCHIVED_AT_ONCE

    def write(self) -> str | None:
        """Write the records that are not yet archived, at most the oldest `ARCHIVED_AT_MOST`, into
        one archive and return the SHA-256 of its blob; None if all records are archived. Two
        concurrent calls create a single archive."""
        last = self._neighbour("+")
        entries = self._client.command(
            "XRANGE", self._log, f"({last}", "+", "COUNT", ARCHIVED_AT_MOST
        )
        digest = self._stored([fields["digest"] for _, fields in entries])
        if digest is None:
            return None
        noted = self._note(
            [self.key, f"{REFERENCES}{digest}"],
            [last, entries[-1][0], digest, len(entries), self._store],
        )
        return digest if noted else None

    def renew(self, most: int) -> bool:
        """Rewrite up to `most` stale archives, from which records were removed; return whether
        stale archives remain."""
        for archive in self._client.command("SRANDMEMBER", self._stale, most):
            self._renew(archive)
        return bool(self._client.command("EXISTS", self._stale))

    def __iter__(self) -> Iterator[str]:
        """Yield the SHA-256 of the blob of every archive, in order. Together the archives contain
        every archived record once."""
        last = "-"
        while entries := self._client.command("XRANGE", self._ids, last, "+", "COUNT", _PAGE):
            yield from self._client.command("HMGET", self.key, *(archive for archive, _ in entries))
            last = f"({entries[-1][0]}"

    def _renew(self, archive: str) -> None:
        first = self._neighbour(f"({archive}")
        entries = self._client.command("XRANGE", self._log, f"({first}", archive)
        old = self._client.command("HGET", self.key, archive) or ""
        new = self._stored([fields["digest"] for _, fields in entries]) or ""
        keys = [self.key, f"{REFERENCES}{old}", f"{REFERENCES}{new}"]
        self._replace(keys, [archive, old, new, first, len(entries), self._store])

    def _stored(self, digests: Sequence[str]) -> str | None:
        """Store a blob with the JSON lines of these records and return its SHA-256; None for no
        records."""
        if not digests:
            return None
        lines = self._client.command("HMGET", self._store + "lines", *digests)
        return self._blobs.put("".join(f"{line}\n" for line in lines if line).encode())

    def _neighbour(self, end: str) -> str:
        """Return the greatest archive id that is at most `end`; "0-0" if there is none."""
        entries = self._client.command("XREVRANGE", self._ids, end, "-", "COUNT", 1)
        return str(entries[0][0]) if entries else "0-0"
