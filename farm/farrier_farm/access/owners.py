"""The claims on stored files and models: the right of users to use a file or model because they
have uploaded it, or because a job of theirs uses it.

farrier:owners:<sha256>   sorted set of the users who have uploaded this file, or have created this
                          model from files that they had claims on; the score is the end of the
                          claim, in ms

A file is stored once, whoever uploads it, so its presence does not determine who may use it. The
claim of an upload lasts for the time for which an unreferenced blob is kept, from the user's last
request that names the file. The owner of a job has a claim on the job's model, unless the model was
lent: that is, the owner could use the model only as a member of a group, or as an admin, when they
submitted the job. A job with a lent model is not a claim, so a model stays usable only as long as
the user who lent it has a claim. A claim never outlives its blob, and the owner of a job keeps the
right to the job's model, also in homes of versions that stored no claims.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from farrier_farm.access.users import DEFAULT
from farrier_farm.redis.connection import Client
from farrier_farm.storage.references import REFERENCES

_OWNERS = "farrier:owners:"

# KEYS: the claims, the references. ARGV: the model, the user who owns the jobs of versions without
# users, the asking user. Returns `1 <user>` for a claim that is that user's alone, `0 <user>` for
# one by a public job, and `1 ` for a job with a lent model, which is in use but not claimed. If the
# asking user has a claim, the script does not search the jobs.
_CLAIMS = """
local time = redis.call('TIME')
local found = {}
local now = string.format('%d', time[1] * 1000)
local till = redis.call('ZSCORE', KEYS[1], ARGV[3])
if till and tonumber(till) >= tonumber(now) then return {'1 ' .. ARGV[3]} end
for _, user in ipairs(redis.call('ZRANGE', KEYS[1], now, '+inf', 'BYSCORE')) do
  found['1 ' .. user] = true
end
for _, holder in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local kind = holder:match('^farrier:(%a+):item:')
  if kind == 'job' or kind == 'inspection' then
    local model, user, private, lent =
      unpack(redis.call('HMGET', holder, 'model', 'share', 'private', 'lent'))
    if model == ARGV[1] and lent == '1' then
      found['1 '] = true
    elseif model == ARGV[1] then
      local alone = (private == '1' or kind == 'inspection') and '1 ' or '0 '
      found[alone .. (user or ARGV[2])] = true
    end
  end
end
local claims = {}
for claim in pairs(found) do claims[#claims + 1] = claim end
return claims
"""

_NOTE = """
local time = redis.call('TIME')
local till = time[1] * 1000 + ARGV[2]
for i = 1, #KEYS do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('(%d', time[1] * 1000))
  redis.call('ZADD', KEYS[i], string.format('%d', till), ARGV[1])
  local last = redis.call('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', KEYS[i], string.format('%d', last))
end
"""
_AT_ONCE = 1000  # The most keys for one script; a model may have several thousand files.


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """The right of a user to use a file or model. `private` is false if the claim comes from a job
    that is not private, and true otherwise. `owner` is "" for a job with a lent model: the model is
    in use, but the job is not a claim."""

    owner: str
    private: bool


class Owners:
    """The claims on files and models. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, age_s: float) -> None:
        self._age_ms = int(age_s * 1000)
        self._claims = client.script(_CLAIMS)
        self._note = client.script(_NOTE)

    def claims(self, sha256: str, asker: str = "") -> Sequence[Claim]:
        """Return the claims on the file or model with this SHA-256. If `asker` is a user who has
        uploaded it, return only that user's claim, which is enough to permit the use. The list is
        empty for a file that a version without claims stored and that no job uses."""
        keys = [f"{_OWNERS}{sha256}", f"{REFERENCES}{sha256}"]
        lines: list[str] = self._claims(keys, [sha256, DEFAULT, asker])
        return [Claim(text[2:], text[0] == "1") for text in lines]

    def note(self, owner: str, sha256s: Iterable[str]) -> None:
        """Store the user's claims on these files and models durably."""
        keys = [f"{_OWNERS}{sha256}" for sha256 in sha256s]
        for first in range(0, len(keys), _AT_ONCE):
            self._note(keys[first : first + _AT_ONCE], [owner, self._age_ms])
