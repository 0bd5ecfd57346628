"""The rewrite of programs that alternate between different products by the remainder of an index:
transposed convolutions.

An output that reads `w[…, o % 2]` and `x[…, o // 2]` is a separate product (a phase) for each
remainder of `o`. The rewrite splits the axis into remainder and quotient; the remainders become
separate products, and the quotients the points of a tile. The rule `register_tile` and the sketches
use it.
"""

from __future__ import annotations

import collections
import dataclasses

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Axis, Binary, BinaryOp, Const, Expr, Load, Reduce, Select, Var
from farrier.ir.substitute import Substitution, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout
from farrier.ir.walk import rewrite, walk
from farrier.space.rewrites import replaced, stays_within

INTERLEAVED = "interleaved"


@dataclasses.dataclass(frozen=True, slots=True)
class PhaseAxis:
    """An axis of the output, `step * stride + tap`, that is split into the axes `tap` (remainder)
    and `step` (quotient)."""

    axis: str
    stride: int

    @property
    def step(self) -> str:
        return f"{self.axis}_step"

    @property
    def tap(self) -> str:
        return f"{self.axis}_tap"


def find_phase_axes(stage: Stage) -> tuple[PhaseAxis, ...]:
    """Return the axes that a stage reads both as quotient and as remainder of the same divisor, and
    in no other form."""
    uses: collections.Counter[str] = collections.Counter()
    parts_of: dict[str, list[tuple[BinaryOp, int]]] = collections.defaultdict(list)
    for node in walk(stage.body):
        if isinstance(node, Var):
            uses[node.name] += 1
        elif isinstance(node, Binary) and isinstance(node.left, Var):
            part = _part(node, node.left.name)
            parts_of[node.left.name] += [part] if part else []
    turns = []
    for axis in stage.axes:
        parts = parts_of[axis.name]
        divisors = {divisor for _, divisor in parts}
        if len(parts) == uses[axis.name] and len(set(parts)) == 2 and len(divisors) == 1:
            (stride,) = divisors
            if stride > 1 and axis.extent % stride == 0:
                turns.append(PhaseAxis(axis.name, stride))
    return tuple(turns)


def take_apart(
    program: TensorProgram, stage: Stage, turns: tuple[PhaseAxis, ...], whole: str = INTERLEAVED
) -> TensorProgram:
    """Return the program with each axis of `turns` in `stage` split into quotient and remainder. An
    additional stage writes the points in their original order to the buffer `whole`, which all
    other stages read instead of the original buffer.

    before:  up[n, oc, o] = sum(x[n, ic, o // 2] * w[ic, oc, o % 2])
             y[n, oc, o] = max(up[n, oc, o], 0)
    after:   up[n, oc, o_tap, o_step] = sum(x[n, ic, o_step] * w[ic, oc, o_tap])
             interleaved[n, oc, o] = up[n, oc, o % 2, o // 2]
             y[n, oc, o] = max(interleaved[n, oc, o], 0)

    If the stride does not divide the extent, the last phases have one point fewer. For the missing
    point, they compute a value that is not read, or an empty reduction if the operands are too
    small.
    """
    by_axis = {turn.axis: turn for turn in turns}
    extents = {axis.name: axis.extent for axis in stage.axes}
    axes = [axis for axis in stage.axes if axis.name not in by_axis]
    at: list[Expr] = [Var(axis.name) for axis in axes]
    axes += [Axis(turn.tap, turn.stride) for turn in turns]
    at += [e.mod(Var(turn.axis), turn.stride) for turn in turns]
    axes += [Axis(turn.step, ceildiv(extents[turn.axis], turn.stride)) for turn in turns]
    at += [e.floordiv(Var(turn.axis), turn.stride) for turn in turns]
    old = stage.buffer
    shape = tuple(axis.extent for axis in axes)
    buffer = dataclasses.replace(old, shape=shape, layout=_with_axes(old.layout, stage, axes))
    together = dataclasses.replace(old, name=whole)
    apart = Stage(buffer, tuple(axes), _by_parts(stage, turns, extents))
    change = Substitution(buffers={old.name: together})
    stages = [
        other if other is stage else dataclasses.replace(other, body=change.expr(other.body))
        for other in program.stages
    ]
    changed = dataclasses.replace(program, stages=tuple(stages))
    return replaced(changed, stage, apart, Stage(together, stage.axes, Load(buffer, tuple(at))))


def _by_parts(stage: Stage, turns: tuple[PhaseAxis, ...], extents: dict[str, Extent]) -> Expr:
    """Return the body of a stage with each axis of `turns` replaced by an expression of step and
    tap."""
    points: dict[str, Expr] = {
        turn.axis: e.add(e.mul(Var(turn.step), turn.stride), Var(turn.tap)) for turn in turns
    }
    ranges = {axis.name: axis.extent for axis in stage.all_axes}
    for turn in turns:
        ranges[turn.tap] = turn.stride
        ranges[turn.step] = ceildiv(extents[turn.axis], turn.stride)
    simplifier = Simplifier(ranges)
    parts = {part for turn in turns for part in (turn.step, turn.tap)}

    def separate(node: object) -> object:
        if not isinstance(node, Binary) or node.op not in (BinaryOp.DIV, BinaryOp.MOD):
            return node
        return simplifier.simplify(node) if variables(node.left) & parts else node

    body: Expr = rewrite(Substitution(points).expr(stage.body), separate)
    if isinstance(body, Reduce):
        inner = simplifier.over({axis.name: axis.extent for axis in body.axes})
        if stays_within(body.body, inner):
            return body
    for turn in turns:
        if extents[turn.axis] % turn.stride != 0:
            body = _guarded(body, e.less(points[turn.axis], extents[turn.axis]))
    return body


def _guarded(body: Expr, condition: Expr) -> Expr:
    """Return `body`, a reduction, with each term replaced by the identity of the reduction unless
    `condition` holds."""
    assert isinstance(body, Reduce)
    identity = body.op.identity(e.dtype_of(body.body))
    return Reduce(body.op, body.axes, Select(condition, body.body, identity))


def _part(node: object, axis: str) -> tuple[BinaryOp, int] | None:
    """Return (DIV or MOD, divisor) if `node` is the quotient or the remainder of the variable
    `axis`, else None."""
    if not isinstance(node, Binary) or node.op not in (BinaryOp.DIV, BinaryOp.MOD):
        return None
    if node.left != Var(axis) or not isinstance(node.right, Const):
        return None
    return node.op, int(node.right.value)


def _with_axes(layout: Layout | None, stage: Stage, axes: list[Axis]) -> Layout | None:
    """Return the blocked layout of a stage's buffer for its new `axes`, with the same innermost
    axis. None if the layout is not blocked, or if its innermost axis is split."""
    if layout is None or not layout.dims[-1].mod:
        return None
    lane = layout.dims[-1]
    inner = stage.axes[lane.axis]
    if inner not in axes:
        return None
    return Layout.blocked(len(axes), axes.index(inner), lane.mod)
