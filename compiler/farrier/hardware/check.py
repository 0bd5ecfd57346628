"""Comparison of a model's kernels in simulated hardware (RTL) and in the instruction simulator, on
the same data."""

from __future__ import annotations

import functools
from pathlib import Path

import farrier
from farrier.packaging.draws import random_inputs
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.device import Bound, observing
from farrier.targets.dae.machines import described
from farrier.targets.dae.rtl.lockstep import Comparison, Hardware, compare
from farrier.targets.names import to_text


def check_model(hardware: Hardware, model: Path | bytes) -> list[Comparison]:
    """Compile a model, run it with random inputs, and compare each kernel of the run. Raises
    FarrierError."""
    artifact = compiled(hardware.accelerator, model)
    comparisons: list[Comparison] = []
    with observing(functools.partial(_compared, hardware, comparisons)):
        artifact.run(random_inputs(artifact.manifest.asked))
    return comparisons


def compiled(accelerator: Accelerator, model: Path | bytes, trials: int = 0) -> farrier.Artifact:
    """Return the model compiled for an accelerator that this host drives. Raises FarrierError."""
    target = to_text(described(accelerator))
    return farrier.compile(model, target=target, trials=trials, verify=False)


def _compared(hardware: Hardware, comparisons: list[Comparison], bound: Bound) -> None:
    comparisons.append(compare(hardware, bound.program, bound.arguments))
