"""The figures by which shapes (accelerator descriptions) are compared, and their Pareto front."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.runtime.artifact import Artifact
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.program import Program
from farrier.targets.dae.simulator.timed import simulate
from farrier_device.program import HOST

_PROGRAM = "dae"


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


def figures_of(artifact: Artifact) -> Figures:
    """Return the figures of a model that was compiled for an accelerator."""
    manifest = artifact.manifest
    objects = [each for each in artifact.code.objects if each.kind == _PROGRAM]
    programs = [Program.of_text(each.content.decode()) for each in objects]
    cycles = {each.name: simulate(each.instructions, each.accelerator).cycles for each in programs}
    total = sum(call.runs * cycles.get(call.function, 0) for call in artifact.calls)
    mhz = programs[0].accelerator.mhz if programs else 1
    work = {each.task: each.calls * each.multiply_adds for each in manifest.kernels}
    others = [each for each in manifest.kernels if each.space == HOST]
    left = sum(work[each.task] for each in others)
    largest = max(others, key=lambda each: (work[each.task], each.operations), default=None)
    verification = artifact.report["verification"]
    return Figures(
        cycles=total,
        device_ms=total / mhz / 1e3,
        latency_ms=verification and verification["latency_ms"]["median"],
        share=1 - left / (sum(work.values()) or 1) if programs else 0.0,
        kernels=len(programs),
        reason=largest.reason if largest is not None else "",
    )


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
