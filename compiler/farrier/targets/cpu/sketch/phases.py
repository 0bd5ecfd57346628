"""Rewrite: restrict a sum to the terms that a guard on a remainder lets through, and split its
points by that remainder (the phases of a transposed convolution).

A guard `(a·x + b) mod s == t` lets one of `s` terms through. The sum is rewritten to iterate over
these terms only. If the terms, or the elements they read, depend on the remainder of a point's
coordinate, the points are computed separately for each remainder: neighbouring points then read
neighbouring elements, and no guard remains.

before:
    @program
    def up(x: f32[6], w: f32[4]):
        y: f32[8]
        for o in axes(8):
            y[o] = sum(
                x[(o + 4 - k) // 2] * w[k] if (o + 4 - k) % 2 == 0 else 0.0
                for k in axes(4)
            )
        return y
after:
    @program
    def up(x: f32[6], w: f32[4]):
        y_sum: f32[2, 4] in workspace
        for o_tap, o_step in axes(2, 4):
            y_sum[o_tap, o_step] = sum(
                x[o_step + 2 - k_step] * w[k_step * 2 + o_tap]
                for k_step in axes(2)
            )
        y_whole: f32[8] in workspace
        for o in axes(8):
            y_whole[o] = y_sum[o % 2, o // 2]
        y: f32[8]
        for o in axes(8):
            y[o] = y_whole[o]
        return y

Transposed convolutions with constant weights are not affected, since the graph pass
`recast-convolutions` packs the weights of each phase at compile time. What this rewrite covers are
transposed convolutions with computed weights, with strides larger than the kernel, or with
dilation, and any other sum under such a guard. A stage without a reduction keeps its guard:
separate phases would store every s-th element individually, which costs as much as the loads save.
"""

from __future__ import annotations

import dataclasses
import functools
from math import gcd

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import ceildiv, typical
from farrier.ir.expr import Axis, Binary, BinaryOp, Const, Expr, Reduce, Select, Var
from farrier.ir.linear import Linear, to_expr
from farrier.ir.substitute import Substitution, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.walk import rewrite, walk
from farrier.space.rewrites import accumulate, conjuncts, replaced
from farrier.targets.cpu.units.phase_axes import PhaseAxis, take_apart

# The largest stride: decoders use strides of 2 to 8, and with larger ones too few points remain to
# fill lanes.
_MOST = 8


def phases(program: TensorProgram) -> TensorProgram | None:
    """Return the program with all guards on remainders removed from its sums; None if there are
    none."""
    changed = program
    for stage in program.stages:
        if not isinstance(stage.body, Reduce):
            continue
        thinned = one_residue(stage)
        changed = replaced(changed, stage, thinned)
        turns = _phase_axes(thinned)
        if turns:
            at = changed.stages.index(thinned)
            changed = accumulate(changed, at)
            total = changed.stages[at]
            changed = take_apart(changed, total, turns, f"{stage.buffer.name}_whole")
    return None if changed.stages == program.stages else changed


def has_residues(program: TensorProgram) -> bool:
    """Check whether some sum of the program has a guard on a remainder."""
    return any(_without_residue(stage) is not None for stage in program.stages)


@dataclasses.dataclass(frozen=True)
class _Residue:
    """The terms that a guard on a remainder lets through: those whose index along `axis` is
    congruent to `offset` modulo `stride`, under the remaining condition `left`."""

    axis: Axis
    stride: int
    offset: Expr
    left: Expr | None


def one_residue(stage: Stage) -> Stage:
    """Return a stage whose reduction skips the terms that a guard on a remainder replaces by the
    identity of the reduction; a stage without such a guard is returned unchanged.

    before:  sum(x[(o - k) // 2] if (o - k) % 2 == 0 else 0 for k in axes(4))
    after:   sum(x[o // 2 - k_step] for k_step in axes(2))        k is 2 * k_step + o % 2
    """
    while (thinner := _without_residue(stage)) is not None:
        stage = thinner
    return stage


def _without_residue(stage: Stage) -> Stage | None:
    body = stage.body
    if not isinstance(body, Reduce) or not isinstance(body.body, Select):
        return None
    guarded = body.body
    if guarded.otherwise != body.op.identity(e.dtype_of(guarded)):
        return None
    simplifier = Simplifier({axis.name: axis.extent for axis in stage.all_axes})
    conditions = list(conjuncts(guarded.condition))
    for condition in conditions:
        residue = _residue(condition, body.axes, simplifier)
        if residue is not None:
            kept = [other for other in conditions if other is not condition]
            if residue.left is not None:
                kept.append(residue.left)
            return _thinned(stage, residue, kept, guarded)
    return None


def _residue(condition: Expr, reduced: tuple[Axis, ...], simplifier: Simplifier) -> _Residue | None:
    """Solve a condition of the form `(c·k + rest) mod s == t` for a reduced axis k. Return the
    solution as a residue of k, or None for a condition of another form."""
    if not isinstance(condition, Binary) or condition.op is not BinaryOp.EQ:
        return None
    remainder, wanted = condition.left, condition.right
    if not isinstance(remainder, Binary) or remainder.op is not BinaryOp.MOD:
        return None
    if not isinstance(remainder.right, Const) or not isinstance(wanted, Const):
        return None
    form, modulus = simplifier.linear(remainder.left), int(remainder.right.value)
    for axis in reduced:
        factor = form.terms.get(Var(axis.name))
        rest = {atom: k for atom, k in form.terms.items() if atom != Var(axis.name)}
        if isinstance(factor, int) and not any(axis.name in variables(atom) for atom in rest):
            common = gcd(factor, modulus)
            if common < modulus and typical(axis.extent) > 1:
                missing = Linear(rest, form.const - int(wanted.value))
                return _solved(axis, factor, modulus, common, missing)
    return None


def _solved(axis: Axis, factor: int, modulus: int, common: int, missing: Linear) -> _Residue:
    """Return the residue of k (the index along `axis`) for which `factor` · k + `missing` is a
    multiple of `modulus`. `common` is the gcd of `factor` and `modulus`."""
    step = modulus // common
    inverse = pow(-(factor // common), -1, step)
    if 2 * inverse > step:  # The inverse nearest to zero results in the simplest expression.
        inverse -= step
    left = None
    if common > 1:
        left = Binary(BinaryOp.EQ, e.mod(to_expr(missing), common), e.index(0))
    offset = e.mul(e.floordiv(to_expr(missing), common), inverse)
    return _Residue(axis, step, offset, left)


def _thinned(stage: Stage, residue: _Residue, kept: list[Expr], guarded: Select) -> Stage:
    body, old = stage.body, residue.axis
    assert isinstance(body, Reduce)
    axis = Axis(f"{old.name}_step", ceildiv(old.extent, residue.stride))
    axes = tuple(axis if other is old else other for other in body.axes)
    summand = guarded.then
    if old.extent % residue.stride != 0:
        kept = [e.less(Var(old.name), old.extent), *kept]
    if kept:
        summand = Select(functools.reduce(e.both, kept), summand, guarded.otherwise)
    simplifier = Simplifier({each.name: each.extent for each in (*stage.axes, *axes)})
    summand = _at_residue(summand, axis, residue, simplifier)
    return dataclasses.replace(stage, body=Reduce(body.op, axes, simplifier.simplify(summand)))


def _at_residue(expr: Expr, axis: Axis, residue: _Residue, simplifier: Simplifier) -> Expr:
    """Return the expression with the reduced index replaced by stride * step + remainder, where
    `axis` is the axis of the new index step.

    In quotients by the stride, the residue is written as a difference, which simplifies best: (o -
    k) // 2 at k = 2 * step + o - 2 * (o // 2) is o // 2 - step.
    """
    name, stride, offset = residue.axis.name, residue.stride, residue.offset
    steps = e.mul(Var(axis.name), stride)
    apart = e.sub(offset, e.mul(e.floordiv(offset, stride), stride))
    by_difference = Substitution({name: e.add(steps, apart)})
    by_remainder = Substitution({name: e.add(steps, e.mod(offset, stride))})

    def separate(node: object) -> object:
        if not isinstance(node, Binary) or node.op not in (BinaryOp.DIV, BinaryOp.MOD):
            return node
        return simplifier.simplify(by_difference.expr(node)) if name in variables(node) else node

    return by_remainder.expr(rewrite(expr, separate))


def _phase_axes(stage: Stage) -> tuple[PhaseAxis, ...]:
    """Return the axes to split into phases, with their strides: axes of a reduction's result whose
    index the reduction reads only after division by a constant, or modulo a constant."""
    simplifier = Simplifier({axis.name: axis.extent for axis in stage.all_axes})
    strides: dict[str, set[int]] = {}
    for node in walk(stage.body):
        if isinstance(node, Binary) and node.op in (BinaryOp.DIV, BinaryOp.MOD):
            divisor = e.extent_of(node.right)
            for atom, factor in simplifier.linear(node.left).terms.items():
                if isinstance(divisor, int) and isinstance(factor, int) and isinstance(atom, Var):
                    strides.setdefault(atom.name, set()).add(divisor // gcd(divisor, factor))
    turns = []
    for axis in stage.axes:
        stride = max(strides.get(axis.name, {1}))
        if 1 < stride <= _MOST and typical(axis.extent) > stride:
            turns.append(PhaseAxis(axis.name, stride))
    return tuple(turns)
