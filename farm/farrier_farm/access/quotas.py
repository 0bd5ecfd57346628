"""Quotas of users: the bytes that they store and the device time that they use, counted in Redis
for all API processes together.

farrier:kept:<user>            hash: upload → "<bytes> <sha256>", of files that the user has
                               uploaded or announced; a job or model may refer to some of them
farrier:kept-bytes             hash: user → the sum of these bytes
farrier:device-ms:<day>        hash: user → ms for which devices measured for the user's jobs on
                               this day (UTC, counted from 1970-01-01, `history.lua`); kept for
                               three days

Entries of files that a job or model now refers to, or that were removed, are dropped only when the
user's sum reaches the limit. Therefore the announcement of a file takes a single script, and no
other module has to maintain these keys.

The user `DEFAULT` has no quota: only the limits of the whole farm bound it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from farrier.errors import TooManyRequestsError
from farrier_farm.access.users import DEFAULT
from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings, variable_of
from farrier_farm.storage.blobs import BlobStore, Upload
from farrier_farm.storage.references import REFERENCES

MOST_KEPT = 20_000  # The most files of a user; a model has at most 4,000.
UPLOADS = "upload-bytes"
DEVICES = "device-seconds"
"""The names of the limits in metrics and log messages."""
_RETRY_S = 60.0  # Within this time a job may refer to the files that were sent.
_SETTLED_S = 10.0  # The least time between two removals of obsolete entries by one process.
_DAY_MS = 86_400_000
_KEPT_BYTES = "farrier:kept-bytes"

# KEYS: the user's entries, all sums. ARGV: user, upload, bytes, sha256, limit of bytes, of entries.
# Returns the user's sum if there is not enough room, else -1.
_KEEP = """
local sum = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
local is_full = tonumber(ARGV[5]) > 0 and sum + ARGV[3] > tonumber(ARGV[5])
if is_full or redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[6]) then return sum end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
redis.call('HINCRBY', KEYS[2], ARGV[1], ARGV[3])
return -1
"""
# KEYS as above. ARGV: the user, then the uploads whose entries are removed.
_DROP = """
for i = 2, #ARGV do
  local bytes = string.match(redis.call('HGET', KEYS[1], ARGV[i]) or '', '^%d+')
  if bytes then
    redis.call('HDEL', KEYS[1], ARGV[i])
    redis.call('HINCRBY', KEYS[2], ARGV[1], -bytes)
  end
end
"""


class Quotas:
    """The counted bytes and device times of all users. Every method raises ServiceError if Redis is
    out of reach."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        blobs: BlobStore,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._settings = settings
        self._blobs = blobs
        self._now = now
        self._keep = client.script(_KEEP)
        self._drop = client.script(_DROP)
        self._settled: dict[str, float] = {}

    def keep(self, user: str, upload: Upload) -> None:
        """Count a new upload towards the user's quota. Raises TooManyRequestsError if the user's
        uploads to which no job or model refers have too many bytes."""
        limit = self._settings.upload_bytes_of_user
        if user == DEFAULT or not limit:
            return
        words: list[str | int] = [
            user,
            upload.id,
            upload.size,
            upload.sha256 or "",
            limit,
            MOST_KEPT,
        ]
        kept = int(self._keep(_keys(user), words))
        if kept >= 0 and self._settle(user):
            kept = int(self._keep(_keys(user), words))
        if kept >= 0:
            raise TooManyRequestsError(
                f"{user} keeps {kept} bytes in uploads that no job or model refers to; "
                f"{upload.size} more would exceed the limit",
                hint="submit jobs for them; unused uploads are deleted after "
                f"FARRIER_BLOB_AGE_S; {variable_of('upload_bytes_of_user')} is the limit",
                retry_after_s=_RETRY_S,
                limit=UPLOADS,
            )

    def kept_bytes(self, user: str) -> int:
        """Return the number of bytes of the user's uploads that no job or model referred to at the
        last update."""
        return int(self._client.command("HGET", _KEPT_BYTES, user) or 0)

    def check_device_time(self, user: str) -> None:
        """Raise TooManyRequestsError if devices have measured for the user for longer than a user
        is allowed per day."""
        budget_s = self._settings.device_seconds_of_user
        if user == DEFAULT or not budget_s:
            return
        now_ms = int(self._now() * 1000)
        used_ms = int(self._client.command("HGET", _of_day(now_ms), user) or 0)
        if used_ms >= budget_s * 1000:
            left_s = (_DAY_MS - now_ms % _DAY_MS) / 1000
            raise TooManyRequestsError(
                f"devices have already measured for {user} for {used_ms / 1000:.0f} s today",
                hint="try again after midnight (UTC), or compile without trials and verification; "
                f"{variable_of('device_seconds_of_user')} is the limit",
                retry_after_s=left_s,
                limit=DEVICES,
            )

    def device_seconds(self) -> Mapping[str, float]:
        """Return, for each user, the seconds for which devices have measured today."""
        seconds = self._client.command("HGETALL", _of_day(int(self._now() * 1000)))
        return {user: int(ms) / 1000 for user, ms in seconds.items()}

    def _settle(self, user: str) -> bool:
        """Drop the entries of the user's files to which a job or model now refers, and of removed
        files. Return whether an entry was dropped. Return False without reading from Redis if this
        process checked the user less than `_SETTLED_S` seconds ago."""
        now = time.monotonic()
        if now < self._settled.get(user, 0.0):
            return False
        entries: dict[str, str] = self._client.command("HGETALL", f"farrier:kept:{user}")
        digests = {upload: entry.partition(" ")[2] for upload, entry in entries.items()}
        names = sorted(set(digests.values()))
        exists = self._client.commands(("EXISTS", f"{REFERENCES}{name}") for name in names)
        refers = dict(zip(names, map(bool, exists), strict=True))
        over = [
            upload_id
            for upload_id, digest in digests.items()
            if not self._counts(upload_id, digest, refers)
        ]
        if over:
            self._drop(_keys(user), [user, *over])
        self._settled[user] = now + _SETTLED_S
        return bool(over)

    def _counts(self, upload: str, digest: str, refers: Mapping[str, bool]) -> bool:
        if self._blobs.has_upload(upload):
            return True
        return not refers[digest] and self._blobs.has(digest)


def _keys(user: str) -> list[str]:
    return [f"farrier:kept:{user}", _KEPT_BYTES]


def _of_day(now_ms: int) -> str:
    return f"farrier:device-ms:{now_ms // _DAY_MS}"
