"""The floor of a measurement: a lower bound of the time on any machine of a target's kind.

A device that reports less did not run the code: its clock is wrong, or it invents results. The
backend defines the floor of a kernel (`Backend.floor_ns`).
"""

from __future__ import annotations

from collections.abc import Mapping

from farrier.partition import DriverProgram
from farrier.partition.program import Call


def floor_of_run(program: DriverProgram, floors: Mapping[str, int]) -> int:
    """Return a lower bound of the time of a model run in nanoseconds: the sum of the `floors`, by
    task, of the kernels that every run calls, which are those outside of conditions and loops."""
    return sum(floors[step.task] for step in program.steps if isinstance(step, Call))
