"""The copy of an exploration on a farm's server, which the dashboard shows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import NotFoundError
from farrier.hardware.figures import Figures
from farrier.hardware.kept import Kept
from farrier.sdk.client import Client
from farrier.targets.dae.description import Accelerator, to_json


@dataclasses.dataclass(frozen=True, slots=True)
class Publication:
    """The name under which an exploration is stored on the server of `client`. A `private`
    exploration, and its jobs, can be read by their owner alone."""

    client: Client
    name: str
    private: bool = False


class Published:
    """An exploration on a server. Each method stores a part of its results there, and raises
    NotFoundError if the exploration was deleted meanwhile."""

    def __init__(self, client: Client, exploration_id: str) -> None:
        self._store = client.explorations
        self._id = exploration_id
        self.url = f"{client.url}/explorations/{exploration_id}"

    def add_area(self, shape: str, counted: Mapping[str, Any]) -> None:
        """Store the result of the synthesis of a shape: the number of each kind of cell, and after
        a placement the clock rates `mhz` and the `part`."""
        figures = dict(counted)
        mhz, part = figures.pop("mhz", ()), figures.pop("part", None)
        self._store.set_area(self._id, shape, figures, mhz=mhz, part=part)

    def add_job(self, model: str, shape: str, job_id: str) -> None:
        """Store the job of a model on a shape."""
        self._store.set_result(self._id, model, shape, job=job_id)

    def add_figures(self, model: str, shape: str, figures: Figures) -> None:
        """Store the figures of a model on a shape."""
        fields = dataclasses.asdict(figures)
        self._store.set_result(self._id, model, shape, figures=fields)


def publish(
    publication: Publication,
    shapes: Sequence[Accelerator],
    models: Sequence[str],
    candidates: Sequence[str],
    kept: Kept,
) -> Published:
    """Return the exploration on the server that an earlier run with the same keys of `candidates`
    created, or else create it. `kept` has the ids of earlier explorations. Raises FarrierError."""
    client = publication.client
    text = json.dumps([publication.private, *candidates])
    key = f"exploration {hashlib.sha256(text.encode()).hexdigest()}"
    earlier = kept.get(key)
    if earlier is not None and _can_continue(client, earlier["id"]):
        return Published(client, earlier["id"])
    exploration = client.explorations.create(
        publication.name,
        [to_json(shape) for shape in shapes],
        models,
        private=publication.private,
    )
    kept.add(key, {"id": exploration.id})
    return Published(client, exploration.id)


def _can_continue(client: Client, exploration_id: str) -> bool:
    """Return whether the exploration exists, and the user may store results in it."""
    try:
        return client.explorations.get(exploration_id).may_change
    except NotFoundError:
        return False
