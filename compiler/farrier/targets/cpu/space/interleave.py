"""Contractions whose points take turns with several weights: transposed convolutions.

An output that reads `w[…, o % 2]` and `x[…, o // 2]` has a product of its own for each remainder.
Taken apart, the remainders are products beside one another, the quotients the points of a tile.
"""

from __future__ import annotations

import collections
import dataclasses

from farrier.ir import expr as e
from farrier.ir.expr import Axis, Binary, BinaryOp, Const, Expr, Load, Var
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout
from farrier.ir.walk import rewrite, walk

INTERLEAVED = "interleaved"


@dataclasses.dataclass(frozen=True, slots=True)
class PhaseAxis:
    """An axis of the output, `step * stride + tap`, with the names of its two parts."""

    axis: str
    stride: int

    @property
    def step(self) -> str:
        return f"{self.axis}_step"

    @property
    def tap(self) -> str:
        return f"{self.axis}_tap"


def find_phase_axes(stage: Stage) -> tuple[PhaseAxis, ...]:
    """The axes that a stage reads as both quotient and remainder of one divisor, and not else."""
    uses: collections.Counter[str] = collections.Counter()
    parts_of: dict[str, list[tuple[BinaryOp, int]]] = collections.defaultdict(list)
    for node in walk(stage.body):
        if isinstance(node, Var):
            uses[node.name] += 1
        elif isinstance(node, Binary) and isinstance(node.left, Var):
            part = _part(node, node.left.name)
            parts_of[node.left.name] += [part] if part else []
    found = []
    for axis in stage.axes:
        parts = parts_of[axis.name]
        divisors = {divisor for _, divisor in parts}
        if len(parts) == uses[axis.name] and len(set(parts)) == 2 and len(divisors) == 1:
            (stride,) = divisors
            if stride > 1 and axis.extent % stride == 0:
                found.append(PhaseAxis(axis.name, stride))
    return tuple(found)


def take_apart(program: TensorProgram, stage: Stage, turns: tuple[PhaseAxis, ...]) -> TensorProgram:
    """The program with axes for quotients and remainders in `stage`, and a stage that puts its
    points together again for the others.

    before:  up[n, oc, o] = sum(x[n, ic, o // 2] * w[ic, oc, o % 2])
             y[n, oc, o] = max(up[n, oc, o], 0)
    after:   up[n, oc, o_tap, o_step] = sum(x[n, ic, o_step] * w[ic, oc, o_tap])
             interleaved[n, oc, o] = up[n, oc, o % 2, o // 2]
             y[n, oc, o] = max(interleaved[n, oc, o], 0)
    """
    by_axis = {turn.axis: turn for turn in turns}
    extents = {axis.name: axis.extent for axis in stage.axes}
    axes = [axis for axis in stage.axes if axis.name not in by_axis]
    at: list[Expr] = [Var(axis.name) for axis in axes]
    axes += [Axis(turn.tap, turn.stride) for turn in turns]
    at += [e.mod(Var(turn.axis), turn.stride) for turn in turns]
    axes += [Axis(turn.step, extents[turn.axis] // turn.stride) for turn in turns]
    at += [e.floordiv(Var(turn.axis), turn.stride) for turn in turns]

    def separate(node: object) -> object:
        for turn in turns:
            part = _part(node, turn.axis)
            if part:
                return Var(turn.step if part[0] is BinaryOp.DIV else turn.tap)
        return node

    old = stage.buffer
    shape = tuple(axis.extent for axis in axes)
    made = dataclasses.replace(old, shape=shape, layout=_with_axes(old.layout, len(axes)))
    whole = dataclasses.replace(old, name=INTERLEAVED)
    apart = Stage(made, tuple(axes), rewrite(stage.body, separate))
    together = Stage(whole, stage.axes, Load(made, tuple(at)))
    change = Substitution(buffers={old.name: whole})
    stages: list[Stage] = []
    for other in program.stages:
        read = dataclasses.replace(other, body=change.expr(other.body))
        stages += [apart, together] if other is stage else [read]
    return dataclasses.replace(program, stages=tuple(stages))


def _part(node: object, axis: str) -> tuple[BinaryOp, int] | None:
    """(DIV or MOD, divisor) where `node` is that part of the variable `axis`."""
    if not isinstance(node, Binary) or node.op not in (BinaryOp.DIV, BinaryOp.MOD):
        return None
    if node.left != Var(axis) or not isinstance(node.right, Const):
        return None
    return node.op, int(node.right.value)


def _with_axes(layout: Layout | None, rank: int) -> Layout | None:
    """The same innermost axis among more."""
    if layout is None or not layout.dims[-1].mod:
        return None
    lane = layout.dims[-1]
    return Layout.blocked(rank, lane.axis, lane.mod)
