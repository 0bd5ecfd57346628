"""The space of a kernel for a device whose threads come in blocks: the rules that know it."""

from __future__ import annotations

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.space import JoinedSpace, Space
from farrier.space.task_features import task_features
from farrier.targets.gpu import points, rows, tiles
from farrier.targets.gpu.device import USUAL, Device, Limits, features

RULES = frozenset({points.RULE, rows.RULE, tiles.RULE})


def space(program: TensorProgram | Function, limits: Limits, device: Device = USUAL) -> Space:
    """Return all schedules of a kernel: those of the special rule that takes it, which the default
    is among, and those of `points`, which takes everything."""
    special = tiles.space(program, limits, device) or rows.space(program, limits, device)
    general = points.space(program)
    spaces = [general] if special is None else [special, general]
    whole = general if special is None else JoinedSpace(spaces, special)
    for each in (whole, *spaces):
        each.describe = lambda: {**task_features(program), **features(device)}
    return whole
