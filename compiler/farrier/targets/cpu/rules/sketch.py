"""Rule: any program, by the sketches that are derived from its structure and ranked by a cost
estimate of its loop nests.

The rule takes every program that no other rule matches. The modules of `farrier.targets.cpu.sketch`
show the loops that each derivation produces.
"""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.tensor import TensorProgram
from farrier.schedule import Schedule
from farrier.space.joined import JoinedSpace
from farrier.space.space import Space
from farrier.targets.cpu.sketch import RULES, sketches
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.nests import share

# Sketches are measured if their estimate is within this factor of the best, the largest error seen
# between estimates.
_WORTH_MEASURING = 4.0

__all__ = ["RULES", "space", "spaces"]


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space:
    """Return the schedule space that joins all sketches of a program. There is one for every
    program."""
    first, *others = spaces(program, target, threads)
    if not others:
        return first
    return JoinedSpace([first, *others], first)


def spaces(program: TensorProgram, target: CpuTarget, threads: int) -> list[Space]:
    """Return the space of each sketch of a program, best estimate first."""
    machine = target.machine(threads)

    def on_threads(schedule: Schedule, loops: Sequence[str]) -> None:
        share(schedule, loops, machine.threads)

    ranked = sketches(program, machine, on_threads)
    most = _WORTH_MEASURING * ranked[0].seconds(ranked[0].default())
    return [each for each in ranked if each.seconds(each.default()) <= most]
