"""Explorations: comparisons of models on shapes (accelerator descriptions) that `farrier explore`
runs as jobs, with the results so far.

farrier:exploration:<id>            hash: id, owner, name, private, created, changed (ms), and as
                                    JSON the shapes, their areas as described, and the models
farrier:exploration:<id>:areas      hash by shape: the results of its synthesis, JSON
farrier:exploration:<id>:jobs       hash by candidate: the id of the job
farrier:exploration:<id>:figures    hash by candidate: JSON
farrier:explorations:changed        sorted set of all ids by the time of the last change in ms
farrier:explorations:of:<owner>     sorted set of the ids of a user
farrier:explorations:public         sorted set of the ids that are not private
farrier:explorations:public:<owner>  those of a user

A candidate is a model on a shape; its field is the JSON list of their names. The members of the
last three sets have the score 0, and the ids sort by time of creation. A change of an exploration
that was removed meanwhile has no effect: each change is a script that checks first.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from farrier.errors import NotFoundError, QueueFullError
from farrier_farm.access.users import DEFAULT
from farrier_farm.leases.leases import Leases, new_id
from farrier_farm.redis.connection import Client

MOST_EXPLORATIONS = 500  # of a user
_KEY = "farrier:exploration:"
_SETS = "farrier:explorations"
_CHANGED = f"{_SETS}:changed"
_PARTS = ("areas", "jobs", "figures")

# KEYS: the exploration, the time index, the user's set; the public set and the user's public set
# follow unless the exploration is private. ARGV: id, now in ms, the most of a user, then fields
# and values.
_ADD = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
for i = 3, #KEYS do redis.call('ZADD', KEYS[i], 0, ARGV[1]) end
return 1
"""

# KEYS: the exploration, the time index, the hash to change. ARGV: id, now in ms, field, value.
_SET = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'changed', ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
return 1
"""

# KEYS: the exploration, its parts. ARGV: id.
_REMOVE = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then return 0 end
redis.call('DEL', unpack(KEYS))
for _, name in ipairs({'changed', 'public', 'public:' .. owner, 'of:' .. owner}) do
  redis.call('ZREM', 'farrier:explorations:' .. name, ARGV[1])
end
return 1
"""

Candidate = tuple[str, str]
"""The names of a model and of a shape."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExplorationSummary:
    """An exploration without its content. Times are Unix seconds."""

    id: str
    owner: str
    name: str
    private: bool
    created: float
    changed: float  # The time of the latest result.
    shape_count: int
    model_count: int
    result_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeArea:
    """The area of a shape: figures by name, the clock rates in MHz of its placements, and the FPGA
    on which it was placed: "" if it fits on none, None if it was not placed."""

    area: Mapping[str, int]
    mhz: Sequence[float] = ()
    part: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Exploration:
    """An exploration with all results so far. `shapes` are the descriptions as JSON objects, by
    name, and `areas` their areas; `figures` are the fields of
    `farrier.hardware.figures.Figures`."""

    about: ExplorationSummary
    shapes: Mapping[str, Mapping[str, Any]]
    models: Sequence[str]
    areas: Mapping[str, ShapeArea]
    jobs: Mapping[Candidate, str]
    figures: Mapping[Candidate, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class ExplorationReader:
    """A filter for the explorations that a user may read: all of the user's own, all explorations
    of the owners in `mates` that are not private, and with `public` every exploration that is not
    private."""

    name: str
    mates: Collection[str]
    public: bool

    def sets(self) -> list[str]:
        """Return the keys of the sets that together contain these explorations."""
        own = f"{_SETS}:of:{self.name}"
        if self.public:
            return [own, f"{_SETS}:public"]
        return [own, *(f"{_SETS}:public:{mate}" for mate in sorted({*self.mates} - {self.name}))]


@dataclasses.dataclass(frozen=True, slots=True)
class JobStanding:
    """The state of a compilation job, and the facts that decide who may see the job."""

    state: str
    owner: str
    private: bool


class Explorations:
    """The explorations of a farm. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, jobs: Leases) -> None:
        """Prepare the access to the explorations; `jobs` are the leases of compilations."""
        self._client = client
        self._jobs = jobs
        self._add = client.script(_ADD)
        self._set = client.script(_SET)
        self._remove = client.script(_REMOVE)

    def add(
        self,
        name: str,
        shapes: Mapping[str, Mapping[str, Any]],
        areas: Mapping[str, Mapping[str, int]],
        models: Sequence[str],
        *,
        owner: str = DEFAULT,
        private: bool = False,
    ) -> Exploration:
        """Store a new exploration durably, and return it. `shapes` are the descriptions as JSON
        objects, by name, and `areas` the figures of area that follow from them. Raises
        QueueFullError if the owner has too many explorations."""
        exploration_id, now = new_id(), _ms()
        sets = [f"{_SETS}:of:{owner}"]
        if not private:
            sets += [f"{_SETS}:public", f"{_SETS}:public:{owner}"]
        fields: dict[str, str | int] = {
            "id": exploration_id,
            "owner": owner,
            "name": name,
            "private": "01"[private],
            "created": now,
            "changed": now,
            "shapes": json.dumps(shapes),
            "areas": json.dumps(areas),
            "models": json.dumps(list(models)),
            "shape_count": len(shapes),
            "model_count": len(models),
        }
        words = [word for pair in fields.items() for word in pair]
        keys = [_KEY + exploration_id, _CHANGED, *sets]
        if not self._add(keys, [exploration_id, now, MOST_EXPLORATIONS, *words]):
            raise QueueFullError(
                f"{owner} already has {MOST_EXPLORATIONS} explorations, the maximum",
                hint="delete some of them on the dashboard's page of explorations",
            )
        return self.get(exploration_id)

    def get(self, exploration_id: str) -> Exploration:
        """Return an exploration. Raises NotFoundError."""
        key = _KEY + exploration_id
        about, *parts = self._client.commands(
            ["HGETALL", each] for each in (key, *_part_keys(exploration_id))
        )
        if not about:
            raise no_exploration(exploration_id)
        synthesized, jobs, figures = parts
        areas = {name: ShapeArea(area) for name, area in json.loads(about["areas"]).items()}
        for shape, text in synthesized.items():
            area = ShapeArea(**json.loads(text))
            areas[shape] = dataclasses.replace(area, area={**areas[shape].area, **area.area})
        return Exploration(
            about=_summary(about, len(figures)),
            shapes=json.loads(about["shapes"]),
            models=json.loads(about["models"]),
            areas=areas,
            jobs={_candidate(field): job for field, job in jobs.items()},
            figures={_candidate(field): json.loads(text) for field, text in figures.items()},
        )

    def owner(self, exploration_id: str) -> tuple[str, bool]:
        """Return the owner of an exploration, and whether it is private. Raises NotFoundError."""
        key = _KEY + exploration_id
        owner, private = self._client.command("HMGET", key, "owner", "private")
        if owner is None:
            raise no_exploration(exploration_id)
        return owner, private == "1"

    def page(
        self, reader: ExplorationReader, *, limit: int, after: str = ""
    ) -> tuple[list[ExplorationSummary], str]:
        """Return a page of the explorations that a user may read, the newest first, and the `after`
        of the next page, "" on the last page."""
        start = f"({after}" if after else "+"
        pages = self._client.commands(
            ["ZRANGE", key, start, "-", "BYLEX", "REV", "LIMIT", 0, limit + 1]
            for key in reader.sets()
        )
        ids = sorted({each for page in pages for each in page}, reverse=True)
        more = len(ids) > limit
        ids = ids[:limit]
        return self._summaries(ids), ids[-1] if more else ""

    def _summaries(self, ids: Sequence[str]) -> list[ExplorationSummary]:
        names = [field.name for field in dataclasses.fields(ExplorationSummary)]
        names.remove("result_count")
        rows = self._client.commands(["HMGET", _KEY + each, *names] for each in ids)
        counts = self._client.commands(["HLEN", f"{_KEY}{each}:figures"] for each in ids)
        return [
            _summary(dict(zip(names, row, strict=True)), count)
            for row, count in zip(rows, counts, strict=True)
            if row[0] is not None  # The exploration may have been removed meanwhile.
        ]

    def set_area(self, exploration_id: str, shape: str, area: ShapeArea) -> None:
        """Store the result of the synthesis of a shape; its figures are added to the described
        figures of area. Raises NotFoundError."""
        self._change(exploration_id, "areas", shape, json.dumps(dataclasses.asdict(area)))

    def set_job(self, exploration_id: str, candidate: Candidate, job_id: str) -> None:
        """Store the job of a candidate of an exploration. Raises NotFoundError."""
        self._change(exploration_id, "jobs", json.dumps(candidate), job_id)

    def set_figures(
        self, exploration_id: str, candidate: Candidate, figures: Mapping[str, Any]
    ) -> None:
        """Store the figures of a candidate of an exploration. Raises NotFoundError."""
        self._change(exploration_id, "figures", json.dumps(candidate), json.dumps(figures))

    def _change(self, exploration_id: str, part: str, field: str, value: str) -> None:
        keys = [_KEY + exploration_id, _CHANGED, f"{_KEY}{exploration_id}:{part}"]
        if not self._set(keys, [exploration_id, _ms(), field, value]):
            raise no_exploration(exploration_id)

    def remove(self, exploration_id: str) -> None:
        """Remove an exploration with its results; its jobs stay. Raises NotFoundError."""
        keys = [_KEY + exploration_id, *_part_keys(exploration_id)]
        if not self._remove(keys, [exploration_id]):
            raise no_exploration(exploration_id)

    def expired(self, changed_before: float, limit: int) -> list[str]:
        """Return the ids of at most `limit` explorations whose latest result is older than a time
        in Unix seconds, the oldest first."""
        before = f"({int(changed_before * 1000)}"
        words = ("ZRANGE", _CHANGED, "-inf", before, "BYSCORE", "LIMIT", 0, limit)
        ids: list[str] = self._client.command(*words)
        return ids

    def job_standings(self, ids: Iterable[str]) -> dict[str, JobStanding]:
        """Return the standings of the existing compilation jobs with these ids, in one round trip
        to Redis. The other fields of a job, such as its report, may be large and are not read."""
        ids = list(ids)
        names = ("state", "share", "private")
        rows = self._client.commands(["HMGET", self._jobs.key(each), *names] for each in ids)
        return {
            each: JobStanding(state, owner or DEFAULT, private == "1")
            for each, (state, owner, private) in zip(ids, rows, strict=True)
            if state is not None
        }


def no_exploration(exploration_id: str) -> NotFoundError:
    """Return the error for an exploration that does not exist."""
    return NotFoundError(
        f"there is no exploration {exploration_id!r}",
        hint="it may have been deleted; the dashboard lists the explorations",
    )


def _summary(fields: Mapping[str, str], result_count: int) -> ExplorationSummary:
    return ExplorationSummary(
        id=fields["id"],
        owner=fields["owner"],
        name=fields["name"],
        private=fields["private"] == "1",
        created=int(fields["created"]) / 1000,
        changed=int(fields["changed"]) / 1000,
        shape_count=int(fields["shape_count"]),
        model_count=int(fields["model_count"]),
        result_count=result_count,
    )


def _candidate(field: str) -> Candidate:
    model, shape = json.loads(field)
    return model, shape


def _part_keys(exploration_id: str) -> list[str]:
    return [f"{_KEY}{exploration_id}:{part}" for part in _PARTS]


def _ms() -> int:
    return int(time.time() * 1000)
