"""Explorations of a farm: comparisons of models on shapes (accelerator descriptions) by jobs.

The classes describe the answers of the REST API: the server's views are derived from them,
including the description of each field (`farrier_server.views`).
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from farrier.sdk.job import DESCRIPTION
from farrier.sdk.models import from_json
from farrier.sdk.uploads import Call

_EXPLORATIONS = "/v1/explorations"
_PAGE = 100


def _about(description: str) -> dict[str, str]:
    return {DESCRIPTION: description}


@dataclasses.dataclass(frozen=True, slots=True)
class ExploredShape:
    """A shape of an exploration, and its area."""

    name: str
    description: Mapping[str, Any] = field(
        metadata=_about("The description of the accelerator as a JSON object.")
    )
    area: Mapping[str, int] = field(
        metadata=_about(
            "The figures of area: multipliers, scratchpad_bytes, lanes and port_bytes as "
            "described; after synthesis also lut, ff, dsp and ram."
        )
    )
    mhz: tuple[float, ...] = field(
        metadata=_about("The clock rates in MHz of the shape's placements; empty if there is none.")
    )
    part: str | None = field(
        metadata=_about(
            "The FPGA on which the shape was placed; empty if it fits on none, null if it was not "
            "placed."
        )
    )


@dataclasses.dataclass(frozen=True, slots=True)
class CandidateResult:
    """The result of a model on a shape. All figures are None until the result is stored."""

    model: str = field(metadata=_about("The name of the model."))
    shape: str = field(metadata=_about("The name of the shape."))
    job: str | None = field(
        metadata=_about(
            "The id of the job that compiles the model for the shape; null if there is none yet, "
            "if it was deleted, or if the caller may not see it."
        )
    )
    state: str | None = field(metadata=_about("The state of that job."))
    cycles: int | None = field(metadata=_about("The cycles of the accelerator."))
    device_ms: float | None = field(
        metadata=_about("The time of the accelerator in ms, at the clock of its description.")
    )
    latency_ms: float | None = field(
        metadata=_about(
            "The time of the whole model in ms, with the kernels of the host; null if the model "
            "was not verified."
        )
    )
    share: float | None = field(
        metadata=_about("The fraction of the multiply-adds that run on the accelerator.")
    )
    kernels: int | None = field(metadata=_about("The number of kernels on the accelerator."))
    reason: str | None = field(
        metadata=_about("The reason why the largest kernel on the host does not run there.")
    )
    placed_ms: float | None = field(
        metadata=_about(
            "The time of the accelerator in ms at the median clock of the shape's placements."
        )
    )
    on_front: bool = field(
        metadata=_about("True if the shape is on the Pareto front of the model's results so far.")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ExplorationSummary:
    """An exploration without its results. Times are Unix seconds."""

    id: str
    owner: str = field(metadata=_about("The name of the user who started the exploration."))
    name: str
    private: bool = field(metadata=_about("True if only the owner may read the exploration."))
    created: float
    changed: float = field(metadata=_about("The time of the latest result."))
    shape_count: int = field(metadata=_about("The number of shapes."))
    model_count: int = field(metadata=_about("The number of models."))
    result_count: int = field(
        metadata=_about("The number of pairs of a model and a shape whose figures are stored.")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Exploration(ExplorationSummary):
    """An exploration with all results so far."""

    shapes: tuple[ExploredShape, ...] = field(metadata=_about("The shapes in their order."))
    models: tuple[str, ...] = field(metadata=_about("The names of the models."))
    results: tuple[CandidateResult, ...] = field(
        metadata=_about("A result for each pair of a model and a shape, model by model.")
    )
    may_change: bool = field(
        metadata=_about("True if the caller may store results, and delete the exploration.")
    )


class FarmExplorations:
    """The explorations of the farm to which `call` sends requests; `repeat` sends requests that are
    safe to repeat. Methods that name an exploration raise NotFoundError if there is none that the
    client's user may read, and ForbiddenError for a change that the user may not make."""

    def __init__(self, call: Call, repeat: Call) -> None:
        self._call = call
        self._repeat = repeat

    def create(
        self,
        name: str,
        shapes: Sequence[Mapping[str, Any]],
        models: Sequence[str],
        *,
        private: bool = False,
    ) -> Exploration:
        """Store a new exploration without results, and return it. `shapes` are descriptions of
        accelerators as JSON objects, `models` are names. A `private` exploration is readable by its
        owner alone. Raises UsageError for a malformed description or name, or too many of them;
        QueueFullError if the user has too many explorations."""
        body = {"name": name, "shapes": list(shapes), "models": list(models), "private": private}
        return _exploration(self._call("POST", _EXPLORATIONS, json=body))

    def list(self) -> Iterator[ExplorationSummary]:
        """Iterate over the explorations that the user may read, the newest first."""
        after = ""
        while True:
            params = {"limit": _PAGE, "after": after}
            page = self._repeat("GET", _EXPLORATIONS, params=params)
            yield from (from_json(ExplorationSummary, raw) for raw in page["explorations"])
            after = page["next"]
            if not after:
                return

    def get(self, exploration_id: str) -> Exploration:
        """Return an exploration with all results so far."""
        return _exploration(self._repeat("GET", _path(exploration_id)))

    def set_area(
        self,
        exploration_id: str,
        shape: str,
        cells: Mapping[str, int],
        *,
        mhz: Sequence[float] = (),
        part: str | None = None,
    ) -> None:
        """Store the result of the synthesis of a shape: the numbers of `cells` (lut, ff, dsp, ram),
        the clock rates in MHz of its placements, and the FPGA on which it was placed ("" if it fits
        on none, None if it was not placed). Raises UsageError for an unknown shape."""
        body = {"shape": shape, "cells": dict(cells), "mhz": list(mhz), "part": part}
        self._repeat("PUT", f"{_path(exploration_id)}/area", json=body)

    def set_result(
        self,
        exploration_id: str,
        model: str,
        shape: str,
        *,
        job: str | None = None,
        figures: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the id of the job of a model on a shape, or its figures, or both. `figures` are the
        fields of `farrier.hardware.figures.Figures`. Raises UsageError for an unknown model or
        shape."""
        body = {"model": model, "shape": shape, "job": job, "figures": figures}
        self._repeat("PUT", f"{_path(exploration_id)}/result", json=body)

    def remove(self, exploration_id: str) -> None:
        """Delete an exploration; its jobs stay."""
        self._call("DELETE", _path(exploration_id))


def _path(exploration_id: str) -> str:
    return f"{_EXPLORATIONS}/{urllib.parse.quote(exploration_id, safe='')}"


def _exploration(raw: Any) -> Exploration:
    exploration: Exploration = from_json(Exploration, raw)
    return exploration
