"""The space of a kernel for a device whose threads come in blocks: the rules that know it."""

from __future__ import annotations

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.space import JoinedSpace, Space
from farrier.space.task_features import task_features
from farrier.targets.gpu import attention, direct, points, rows, tiles
from farrier.targets.gpu.device import USUAL, Device, Limits, features

RULES = frozenset({attention.RULE, direct.RULE, points.RULE, rows.RULE, tiles.RULE})


def space(program: TensorProgram | Function, limits: Limits, device: Device = USUAL) -> Space:
    """Return all schedules of a kernel: those of the special rules that take it, where the default
    is of the first, and those of `points`, which takes everything."""
    spaces = _special(program, limits, device)
    spaces.append(points.space(program, limits.packed))
    whole = spaces[0] if len(spaces) == 1 else JoinedSpace(spaces, spaces[0])
    for each in (whole, *spaces):
        each.describe = lambda: {**task_features(program), **features(device)}
    return whole


def _special(program: TensorProgram | Function, limits: Limits, device: Device) -> list[Space]:
    """Return the spaces of the special rules that take a kernel, the best one first."""
    tiled = [rule(program, limits, device) for rule in (attention.space, tiles.space)]
    spaces = [space for space in tiled if space is not None]
    shared = None if spaces else rows.space(program, limits, device)
    if shared is not None:
        return [shared]
    if not any(space.rule == attention.RULE for space in spaces):
        spaces += [space for space in [direct.space(program, limits, device)] if space is not None]
    return sorted(spaces, key=_seconds) if len(spaces) > 1 else spaces


def _seconds(space: Space) -> float:
    """The time that the model predicts for the default of a space; attention comes first."""
    return 0.0 if space.rule == attention.RULE else space.seconds(space.default())
