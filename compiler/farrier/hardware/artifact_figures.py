"""The figures of a model that was compiled for an accelerator, by which shapes are compared."""

from __future__ import annotations

from farrier.hardware.figures import Figures
from farrier.runtime.artifact import Artifact
from farrier.targets.dae.program import Program
from farrier.targets.dae.simulator.timed import simulate
from farrier_device.program import HOST

_PROGRAM = "dae"


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
