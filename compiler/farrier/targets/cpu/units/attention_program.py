"""The preparation of an attention program for its kernel: it reorders the stages, rounds the
weights, and pads operands with zeros to whole groups."""

from __future__ import annotations

import dataclasses
import functools
import math

from farrier.ir import expr as e
from farrier.ir.expr import Axis, Buffer, Cast, Const, Load, Reduce, ReduceOp, Select, Var
from farrier.ir.substitute import Substitution, loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.walk import rewrite
from farrier.space.rewrites import accumulate
from farrier.targets.cpu.units.contraction import (
    Contraction,
    contraction_of,
    is_direct,
    is_elementwise,
    is_permuted,
    volume,
)
from farrier.targets.cpu.units.operands import PACKED, factor_out
from farrier.targets.cpu.units.program_kernel import ProgramKernel

VALUES = "packed_values"


@dataclasses.dataclass(frozen=True, slots=True)
class Stages:
    """The two products of an attention, each with its epilogue, and the softmax stages between
    them."""

    scores: Contraction
    context: Contraction
    row_stages: tuple[Stage, ...]

    @classmethod
    def of(cls, program: TensorProgram) -> Stages:
        """Divide the stages of a program, which come in this order: packed keys (optional), a
        product, its epilogue, the softmax stages, packed values (optional), a product, and its
        epilogue."""
        stages = program.stages
        first, last = (at for at, s in enumerate(stages) if contraction_of(s) is not None)
        high = next(
            at
            for at, s in enumerate(stages)
            if isinstance(s.body, Reduce) and s.body.op is ReduceOp.MAX
        )
        rows = (stage for stage in stages[high:last] if stage.buffer.name != VALUES)
        scores, context = stages[first + 1 : high], stages[last + 1 :]
        return cls(product(stages[first], scores), product(stages[last], context), tuple(rows))

    @property
    def heads(self) -> int:
        return volume(self.context.stage, self.context.batch)

    @property
    def queries(self) -> int:
        """The number of query rows of a head."""
        return volume(self.context.stage, self.context.points)


class RowsKernel(ProgramKernel):
    """The base class of attention kernels, in which threads share the query rows."""

    @functools.cached_property
    def stages(self) -> Stages:
        return Stages.of(self.program)

    @property
    def heads(self) -> int:
        return self.stages.heads

    @property
    def rows(self) -> int:
        """The number of query rows of a head."""
        return self.stages.queries


def prepared(program: TensorProgram) -> TensorProgram | None:
    """Return an attention in the form that its kernels need: scores first, rounded weights, and
    both sums separate from their epilogues. An attention is a product, a softmax along its rows,
    and a product with the result, each product optionally followed by elementwise stages. None for
    any other program."""
    products = [s for s in program.stages if contraction_of(s) is not None]
    rows = [s for s in program.stages if isinstance(s.body, Reduce) and s not in products]
    if len(products) != 2 or len(program.outputs) != 1:
        return None
    if [_operation(stage) for stage in rows] != [ReduceOp.MAX, ReduceOp.SUM]:
        return None
    program = _in_order(program, products[0], rows[0], products[1])
    scores, context = (product(stage, ()) for stage in products)
    if any(contraction.padded or len(contraction.points) != 1 for contraction in (scores, context)):
        return None
    if not is_permuted(scores.vector_load) or not is_direct(context):
        return None
    after = program.stages[program.stages.index(products[1]) + 1 :]
    between = program.stages[1 : program.stages.index(rows[0])]
    if not all(is_elementwise(stage, program) for stage in (*between, *after)):
        return None
    if not between:
        program = accumulate(program, 0)
    program = _with_rounded_weights(program, context)
    return accumulate(factor_out(program, second(program)))


def product(stage: Stage, epilogue: tuple[Stage, ...]) -> Contraction:
    """Return `stage`, which must be a contraction, as a Contraction with the given epilogue."""
    contraction = contraction_of(stage, epilogue)
    assert contraction is not None  # Rewrites of a contraction leave a contraction.
    return contraction


def second(program: TensorProgram) -> Contraction:
    """Return the contraction of the weights with the values."""
    *_, last = (
        contraction
        for contraction in map(contraction_of, program.stages)
        if contraction is not None
    )
    return last


def _with_rounded_weights(program: TensorProgram, context: Contraction) -> TensorProgram:
    """Return the program with the exponentials rounded to the dtype of the second product's
    factors, if that is not f32. The total is the sum of the rounded values.

    before:  weight[m, k] = exp(score[m, k] - high[m])
             total[m] = sum(weight[m, k])
             share[m, k] = weight[m, k] * scale[m]
             narrow[m, k] = cast(bf16, share[m, k])
             context[m, n] = sum(cast(f32, narrow[m, k]) * cast(f32, v[k, n]))
    after:   weight[m, k] = cast(bf16, exp(score[m, k] - high[m]))
             total[m] = sum(cast(f32, weight[m, k]))
             share[m, k] = cast(f32, weight[m, k]) * scale[m]
             context[m, n] = sum(share[m, k] * cast(f32, v[k, n]))
    """
    by_name = {stage.buffer.name: stage for stage in program.stages}
    narrow = by_name[context.broadcast_load.buffer.name]
    if not isinstance(narrow.body, Cast) or not isinstance(narrow.body.operand, Load):
        return program
    share, dtype = by_name[narrow.body.operand.buffer.name], narrow.buffer.dtype
    rank = len(share.axes)
    weights = [load.buffer for load in loads(share.body) if len(load.indices) == rank]
    old = weights[0]
    narrow_buffer = dataclasses.replace(old, dtype=dtype)

    def narrowed(node: object) -> object:
        if isinstance(node, Load) and node.buffer == old:
            return Cast(old.dtype, Load(narrow_buffer, node.indices))
        read = node.operand if isinstance(node, Cast) else None
        if isinstance(read, Load) and read.buffer == narrow.buffer:
            return Load(share.buffer, read.indices)
        return node

    stages = []
    for stage in program.stages:
        body = rewrite(stage.body, narrowed)
        if stage.buffer == old:
            stages.append(Stage(narrow_buffer, stage.axes, Cast(dtype, body)))
        elif stage is not narrow:
            stages.append(dataclasses.replace(stage, body=body))
    return dataclasses.replace(program, stages=tuple(stages))


def in_whole_groups(program: TensorProgram, group: int) -> TensorProgram:
    """Return the program with the last keys padded such that dot products of `group` terms cover
    all weights and values; the padding is zero. Return the program unchanged if it needs no
    padding.

    before:  packed[k, n] = v[k, n]                             for 3 k
             context[m, n] = sum(weight[m, k] * packed[k, n])
    after:   packed[k, n] = v[k, n] if k < 3 else 0             for 4 k, and so the weights
             context[m, n] = sum(weight[m, k] * packed[k, n])
    """
    context = second(program)
    assert isinstance(context.stage.body, Reduce)
    (axis,) = context.stage.body.axes
    extent, reduced = axis.extent, axis.name
    whole = -(-extent // group) * group
    if whole == extent:
        return program
    wider: dict[str, Stage] = {}
    for load in (context.broadcast_load, context.vector_load):
        stage, at = program.stage(load.buffer.name), load.indices.index(Var(reduced))
        axes = [*stage.axes]
        axes[at] = dataclasses.replace(axes[at], extent=whole)
        buffer = dataclasses.replace(load.buffer, shape=tuple(axis.extent for axis in axes))
        is_given, zero = e.less(Var(axes[at].name), extent), Const(0.0, buffer.dtype)
        assert not isinstance(stage.body, Reduce)
        wider[buffer.name] = Stage(buffer, tuple(axes), Select(is_given, stage.body, zero))
    change = Substitution(buffers={name: stage.buffer for name, stage in wider.items()})
    stages = []
    for stage in program.stages:
        stage = wider.get(stage.buffer.name, stage)
        body = change.expr(stage.body)
        if stage.buffer == context.stage.buffer:
            assert isinstance(body, Reduce)
            body = dataclasses.replace(body, axes=(dataclasses.replace(axis, extent=whole),))
        stages.append(dataclasses.replace(stage, body=body))
    return dataclasses.replace(program, stages=tuple(stages))


def in_whole_keys(program: TensorProgram, keys: int) -> TensorProgram:
    """Return the program with packed keys and values padded to `keys` keys. The padding has scores
    of -inf and therefore weights of 0. Return the program unchanged if it needs no padding.

    before:  packed[k, n] = key[n, k]                           for 5 n
             sums[m, n] = sum(query[m, k] * packed[k, n])
             copy[m, n] = sums[m, n]
             scores[m, n] = copy[m, n] * 0.125
    after:   packed[k, n] = key[n, k] if n < 5 else 0           for 16 n, and so both after it
             scores[m, n] = copy[m, n] * 0.125 if n < 5 else -inf
    """
    sums, context = (s for s in program.stages if contraction_of(s) is not None)
    lane, (reduced,) = product(sums, ()).lane, product(context, ()).reduction
    actual_keys = next(axis.extent for axis in sums.axes if axis.name == lane)
    if actual_keys == keys:
        return program
    high = next(s for s in program.stages if isinstance(s.body, Reduce) and s is not sums)
    first, (scores,) = program.stages.index(sums), (load.buffer.name for load in loads(high.body))
    fills = {PACKED: 0.0, VALUES: 0.0}
    fills |= {s.buffer.name: 0.0 for s in program.stages[first + 2 : program.stages.index(high)]}
    fills[scores] = -math.inf
    axes = {PACKED: lane, sums.buffer.name: lane, VALUES: reduced, context.buffer.name: reduced}
    wide: dict[str, Buffer] = {}
    stages = []
    for stage in program.stages:
        name = stage.buffer.name
        along = [load.indices[-1] for load in loads(stage.body) if load.buffer.name in wide]
        axis = axes.get(name) or next((at.name for at in along if isinstance(at, Var)), "")
        widened_stage = _widened(stage, axis, keys)
        body = Substitution(buffers=wide).expr(widened_stage.body)
        if widened_stage.buffer != stage.buffer:
            wide[name] = widened_stage.buffer
            if name in fills:
                dtype = widened_stage.buffer.dtype
                fill = Const(fills[name] if dtype.is_float else 0, dtype)
                body = Select(e.less(Var(axis), actual_keys), body, fill)
        stages.append(dataclasses.replace(widened_stage, body=body))
    return dataclasses.replace(program, stages=tuple(stages))


def _widened(stage: Stage, name: str, extent: int) -> Stage:
    """Return `stage` with its axis `name`, which may be a reduced axis, extended to `extent`."""

    def widened(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(
            dataclasses.replace(axis, extent=extent) if axis.name == name else axis for axis in axes
        )

    axes, body = widened(stage.axes), stage.body
    if isinstance(body, Reduce):
        body = dataclasses.replace(body, axes=widened(body.axes))
    shape = tuple(axis.extent for axis in axes)
    return Stage(dataclasses.replace(stage.buffer, shape=shape), axes, body)


def _operation(stage: Stage) -> ReduceOp:
    assert isinstance(stage.body, Reduce)
    return stage.body.op


def _in_order(program: TensorProgram, scores: Stage, high: Stage, context: Stage) -> TensorProgram:
    """Return the program with its stages reordered: the scores, then the other stages needed for
    the maximum of each row, then those needed for the context."""
    first = [s for s in _sources(program, high) if s is not scores and s is not high]
    second = [s for s in _sources(program, context) if s is not scores and s not in first]
    rest = [s for s in program.stages if s is not scores and s not in first and s not in second]
    return dataclasses.replace(program, stages=(scores, *first, *second, *rest))


def _sources(program: TensorProgram, stage: Stage) -> list[Stage]:
    """Return `stage` and all stages on which it depends, in the order of the program."""
    needed = {stage.buffer.name}
    for earlier in reversed(program.stages):
        if earlier.buffer.name in needed:
            needed |= {load.buffer.name for load in loads(earlier.body)}
    return [s for s in program.stages if s.buffer.name in needed]
