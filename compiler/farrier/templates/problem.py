"""The problem that a template solves: one kernel on one machine."""

from __future__ import annotations

import dataclasses
import functools

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.targets import Target
from farrier.templates.product import Product


@dataclasses.dataclass(frozen=True)
class Problem:
    """A kernel to schedule: its program, its target, and the number of threads that run it.
    `machine` has the parameters of the target: vector lanes and registers, cache sizes,
    throughputs."""

    program: TensorProgram
    target: Target
    threads: int
    machine: Machine

    @functools.cached_property
    def product(self) -> Product | None:
        """Return the kernel as a product of two matrices; None if it computes anything else."""
        return Product.of(self.program)

    @functools.cached_property
    def loops(self) -> Function:
        """Return the naive loop nests, one for each stage; loops are named `<stage>_<axis>`."""
        return to_loops(self.program)

    def schedule(self) -> Schedule:
        """Return a new schedule of the naive loop nests, without any steps."""
        return Schedule(self.loops)
