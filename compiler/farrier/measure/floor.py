"""The floor of a measurement: a time that no machine of a target's kind can beat.

A device that answers less did not run the code: its clock is wrong, or it invents results. That of
a kernel is the backend's (`Backend.floor_ns`).
"""

from __future__ import annotations

from collections.abc import Mapping

from farrier.partition import DriverProgram
from farrier.partition.program import Call


def floor_of_run(program: DriverProgram, floors: Mapping[str, int]) -> int:
    """Return the nanoseconds that no run of a model can beat: the kernels that every run calls,
    which are those outside of conditions and loops, by their tasks' `floors`."""
    return sum(floors[step.task] for step in program.steps if isinstance(step, Call))
