"""The figures by which shapes (accelerator descriptions) are compared, and their Pareto front."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.targets.dae.description import Accelerator


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """The measurements of a model on a shape (accelerator description). `share` is the fraction of
    the model's multiply-adds that run on the accelerator; `reason` explains why the largest kernel
    on the host does not run there. `latency_ms` includes the wall-clock time of the host's kernels,
    and is None if the model was not verified."""

    cycles: int
    device_ms: float
    latency_ms: float | None
    share: float
    kernels: int
    reason: str = ""


def area_of(accelerator: Accelerator) -> dict[str, int]:
    """Return the figures of area that follow from a description: byte multipliers, bytes of
    scratchpad memory, lanes of the unit that processes sums, and bytes of the memory port."""
    matrix, memory = accelerator.matrix, accelerator.memory
    return {
        "multipliers": matrix.batch * matrix.inner * matrix.outer,
        "scratchpad_bytes": memory.input + memory.weight + memory.sum,
        "lanes": accelerator.vector.lanes,
        "port_bytes": accelerator.port.bytes,
    }


def rows_of(
    figures: Mapping[tuple[str, str], Figures],
    areas: Mapping[str, Mapping[str, int]],
    clocks: Mapping[str, Sequence[float]],
) -> list[dict[str, Any]]:
    """Return the results of an exploration as JSON objects, model by model: the figures, the area
    of the shape, and whether the shape is on the Pareto front for the model.

    `figures` are by name of the model and of the shape, `areas` by name of the shape. `clocks` are
    the clock rates in MHz of the shapes that were placed; a row of such a shape has them as `mhz`,
    and its time in ms at their median as `placed_ms`. A figure of area that not all shapes have is
    left out, because it cannot be compared.
    """
    used = {shape: areas[shape] for _, shape in figures}
    common = [
        each
        for each in next(iter(used.values()), {})
        if all(each in area for area in used.values())
    ]
    used = {shape: {each: area[each] for each in common} for shape, area in used.items()}
    all_rows: list[dict[str, Any]] = []
    for model in dict.fromkeys(model for model, _ in figures):
        shapes = [shape for each, shape in figures if each == model]
        of_model = [figures[model, shape] for shape in shapes]
        mhz = [statistics.median(clocks[each]) if clocks.get(each) else None for each in shapes]
        on_front = front(of_model, [used[shape] for shape in shapes], mhz)
        for shape, each, clock, is_best in zip(shapes, of_model, mhz, on_front, strict=True):
            row = {"model": model, "shape": shape, **dataclasses.asdict(each)}
            if clock is not None:
                row |= {"mhz": list(clocks[shape]), "placed_ms": each.cycles / clock / 1e3}
            all_rows.append(row | {"area": dict(used[shape]), "on_front": is_best})
    return all_rows


def front(
    figures: Sequence[Figures],
    areas: Sequence[Mapping[str, int]],
    mhz: Sequence[float | None] | None = None,
) -> list[bool]:
    """Return, for each shape (accelerator description), whether it is on the Pareto front of one
    model. It is on the front if no other shape is at least as good in every figure and better in
    one. The figures are the cycles, the figures of the area, and the share of the model that runs
    on the accelerator. If `mhz` has the clocks of all shapes, times are compared instead of cycles.
    A shape on which nothing runs is never on the front."""
    clocks = [each for each in mhz or () if each is not None]
    times = [
        each.cycles / (clocks[n] if len(clocks) == len(figures) else 1)
        for n, each in enumerate(figures)
    ]
    points = [
        (time, -each.share, *area.values()) if each.kernels else None
        for time, each, area in zip(times, figures, areas, strict=True)
    ]
    able = [point for point in points if point is not None]
    return [
        point is not None and not any(_betters(other, point) for other in able) for point in points
    ]


def _betters(first: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return first != other and all(a <= b for a, b in zip(first, other, strict=True))
