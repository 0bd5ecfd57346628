"""The versions of the cost model that was trained on the farm's records, and the version that is in
use.

farrier:cost-model:state         hash: `turn`, the number of changes; `newest`, the number of the
                                 newest version; `in_use`, the number of the version in use, 0 for
                                 none; of the last training `decided` (ms), `outcome` and `records`,
                                 the number of records that the farm had
farrier:cost-model:versions      list of the numbers of the stored versions, the oldest first
farrier:cost-model:version:<n>   hash: `blob`, `created` (ms), `outcome`

A change passes the `turn` that its author had read, and is refused if the turn has advanced since:
of two trainers, or of a trainer and a user who rolls back, only the first succeeds.

An outcome is the JSON text of `farrier.records.outcome`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

from farrier.errors import ConflictError, NotFoundError
from farrier.records.outcome import Outcome
from farrier_farm.redis.connection import Client
from farrier_farm.storage.content import ContentStore
from farrier_farm.storage.references import REFERENCES, References

_BEATEN = 16  # Versions; an outcome has the figures of 20 rankings.
_PREFIX = "farrier:cost-model:"
_STATE, _VERSIONS, _VERSION = _PREFIX + "state", _PREFIX + "versions", _PREFIX + "version:"

_DECIDE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state, versions, version, refers = unpack(KEYS)
local turn, records, outcome, kept, blob = unpack(ARGV)
if (redis.call('HGET', state, 'turn') or '0') ~= turn then return -1 end
redis.call('HINCRBY', state, 'turn', 1)
redis.call('HSET', state, 'decided', now, 'records', records, 'outcome', outcome)
if blob == '' then return 0 end
local number = redis.call('HINCRBY', state, 'newest', 1)
local key = version .. number
redis.call('HSET', key, 'blob', blob, 'created', now, 'outcome', outcome)
redis.call('SADD', refers .. blob, key)
redis.call('RPUSH', versions, number)
redis.call('HSET', state, 'in_use', number)
while redis.call('LLEN', versions) > tonumber(kept) do
  local old = version .. redis.call('LPOP', versions)
  redis.call('SREM', refers .. redis.call('HGET', old, 'blob'), old)
  redis.call('DEL', old)
end
return number
"""
_USE = """
if (redis.call('HGET', KEYS[1], 'turn') or '0') ~= ARGV[1] then return 0 end
redis.call('HINCRBY', KEYS[1], 'turn', 1)
redis.call('HSET', KEYS[1], 'in_use', ARGV[2])
return 1
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelVersion:
    """A published version of the cost model: `blob` is the SHA-256 of its bytes, `created` is in
    Unix seconds."""

    number: int
    blob: str
    created: float
    outcome: Outcome


@dataclasses.dataclass(frozen=True, slots=True)
class CostModelState:
    """The state of the cost models. `in_use` is the version in use, or None; `versions` are the
    stored versions, the oldest first. `decided`, `outcome` and `records` describe the last
    training: its time in Unix seconds, its outcome, and the number of records that the farm had;
    None, None and 0 before the first training."""

    turn: int
    in_use: ModelVersion | None
    versions: tuple[ModelVersion, ...]
    decided: float | None
    outcome: Outcome | None
    records: int

    @property
    def to_beat(self) -> tuple[ModelVersion, ...]:
        """The versions that a new version has to surpass in accuracy: the one in use, and at most
        `_BEATEN` newer versions that users have rolled back, so that a rejected model does not
        return."""
        used = () if self.in_use is None else (self.in_use,)
        first = 0 if self.in_use is None else self.in_use.number
        return (*used, *[version for version in self.versions if version.number > first][-_BEATEN:])


class CostModels:
    """The cost models of a farm. Every method raises ServiceError if Redis is out of reach."""

    def __init__(
        self, client: Client, blobs: ContentStore, references: References, kept: int
    ) -> None:
        self._client = client
        self._blobs = blobs
        self._references = references
        self._kept = kept
        self._decide = client.script(_DECIDE)
        self._use = client.script(_USE)

    def state(self) -> CostModelState:
        names = ("turn", "in_use", "decided", "outcome", "records")
        words = [("HMGET", _STATE, *names), ("LRANGE", _VERSIONS, 0, -1)]
        (turn, in_use, decided, outcome, records), numbers = self._client.commands(words)
        versions = self._read(numbers)
        return CostModelState(
            turn=int(turn or 0),
            in_use=next(
                (version for version in versions if version.number == int(in_use or 0)), None
            ),
            versions=versions,
            decided=None if decided is None else int(decided) / 1000,
            outcome=None if outcome is None else _outcome(outcome),
            records=int(records or 0),
        )

    def in_use(self) -> ModelVersion | None:
        """Return the version of the cost model that new jobs use, or None."""
        number = self._client.command("HGET", _STATE, "in_use")
        versions = self._read([] if number in (None, "0") else [number])
        return versions[0] if versions else None

    def decide(
        self, turn: int, records: int, outcome: Outcome, model: bytes | None = None
    ) -> int | None:
        """Store the outcome of a training on `records` records, and publish the trained `model` as
        a new version unless it is None. Return the number of the new version, or 0 if `model` is
        None. If the state has changed since the caller read `turn`, change nothing and return None.
        Raises StorageError."""
        words: list[str | int] = [turn, records, json.dumps(outcome.to_dict()), self._kept]
        keys = [_STATE, _VERSIONS, _VERSION, REFERENCES]
        if model is None:
            number = int(self._decide(keys, [*words, ""]))
        else:
            digest = hashlib.sha256(model).hexdigest()
            with self._references.held(digest):
                self._blobs.put(model)
                number = int(self._decide(keys, [*words, digest]))
        return None if number < 0 else number

    def roll_back(self, number: int | None = None) -> CostModelState:
        """Use the stored version `number` from the next job on, or no cost model for 0. For None,
        use the newest version that is older than the one in use, or no cost model. Raises
        NotFoundError for a version that is not stored, ConflictError if no version is in use to
        roll back from, or if another change was made meanwhile."""
        state = self.state()
        if number is None:
            if state.in_use is None:
                raise ConflictError(
                    "no version of the cost model is in use", hint="name the version to use"
                )
            older = [
                version.number for version in state.versions if version.number < state.in_use.number
            ]
            number = max(older, default=0)
        elif number and all(version.number != number for version in state.versions):
            kept = ", ".join(str(version.number) for version in state.versions)
            raise NotFoundError(
                f"there is no version {number} of the cost model",
                hint=f"the versions are {kept}; 0 uses none"
                if kept
                else "no version has been published",
            )
        if not self._use([_STATE], [state.turn, number]):
            raise ConflictError(
                "the cost model was changed at the same time",
                hint="check the version in use, and repeat the rollback",
            )
        return self.state()

    def _read(self, numbers: list[str]) -> tuple[ModelVersion, ...]:
        words = [("HMGET", f"{_VERSION}{n}", "blob", "created", "outcome") for n in numbers]
        versions = []
        for number, (blob, created, outcome) in zip(
            numbers, self._client.commands(words) if words else [], strict=True
        ):
            if blob is not None:  # The version was removed meanwhile.
                at = int(created) / 1000
                versions.append(ModelVersion(int(number), blob, at, _outcome(outcome)))
        return tuple(versions)


def _outcome(text: str) -> Outcome:
    return Outcome.from_dict(json.loads(text))
