"""Collect the stages that the operators of one region declare.

Stages are named after their operation (`conv`, `conv_1`, …), deterministically, because schedules
refer to them by name. All indices are logical; layouts come from the types of the node's values.
"""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import CompilerError
from farrier.ir import dim
from farrier.ir import expr as e
from farrier.ir.dim import Extent
from farrier.ir.expr import Axis, Buffer, Expr, MemoryScope, Reduce, ReduceOp, UnaryOp, Var
from farrier.ir.graph import Node, Value
from farrier.ir.tensor import Stage
from farrier.ir.types import DType, Layout, Shape
from farrier.ops.operator import to_extents
from farrier.ops.scalar import Scalar, cast, number, unary

if TYPE_CHECKING:
    from farrier.ops.operator import Array, Buffers


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """A node's input as its `compute` rule sees it: a buffer, or a literal scalar."""

    shape: Shape
    dtype: DType
    buffer: Buffer | None
    literal: Scalar | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __call__(self, *indices: e.Index) -> Scalar:
        """Return the element at the given logical indices."""
        if self.literal is not None:
            return self.literal
        assert self.buffer is not None
        return Scalar(e.Load(self.buffer, tuple(e.index(i) for i in indices)), self.dtype)

    def broadcast(self, *indices: Expr) -> Scalar:
        """Return the element that numpy's broadcasting pairs with the output index `indices`."""
        skipped = len(indices) - self.rank
        return self(
            *(
                0 if extent == 1 else at
                for extent, at in zip(self.shape, indices[skipped:], strict=True)
            )
        )

    def halo(self, axis: int) -> tuple[int, int]:
        """Return the numbers of zeros in memory before and after `axis`."""
        layout = self.buffer.layout if self.buffer is not None else None
        return layout.halo_of(axis) if layout is not None else (0, 0)


class Builder:
    """The stages of one region, in order.

    `constants` are the region's own constants by value name: static operands and literal scalars.
    A node's input that is one of them has no buffer (None among the `inputs` of `compute`).
    `outputs` names the values that leave the region: their buffers are parameters, all other stages
    write to the workspace. `taken` are names that stages must not have (the input buffers').
    """

    def __init__(
        self,
        constants: Mapping[str, Array] | None = None,
        outputs: Collection[str] = (),
        taken: Collection[str] = (),
    ) -> None:
        self.stages: list[Stage] = []
        self._constants = dict(constants or {})
        self._outputs = frozenset(outputs)
        self._taken = set(taken)

    def constant(self, value: Value | None) -> Array | None:
        """Return the data of an operand. Return None if the operand is omitted or known only at run
        time."""
        return self._constants.get(value.name) if value is not None else None

    def static(self, node: Node, position: int) -> tuple[int, ...] | None:
        """Return a static operand (a constant when compiling) as integers; None if the node omits
        it.
        """
        extents = self.extents(node, position)
        return None if extents is None else tuple(map(dim.number, extents))

    def extents(self, node: Node, position: int) -> tuple[Extent, ...] | None:
        """Return a static operand as numbers and symbolic dims; None if the node omits it."""
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is None:
            return None
        data = self.constant(value)
        if data is None:
            raise CompilerError(
                f"{node.op} ({node.origin or node.outputs[0].name}): input {position} must be a "
                "constant of the region, and is a buffer"
            )
        return to_extents(data)

    def operand(self, node: Node, inputs: Buffers, position: int) -> Operand:
        """Return an input; raises CompilerError if the node omits it."""
        operand = self.optional(node, inputs, position)
        if operand is None:
            raise CompilerError(f"{node.op} ({node.origin}): input {position} is omitted")
        return operand

    def optional(self, node: Node, inputs: Buffers, position: int) -> Operand | None:
        """Return the operand at the given position, or None if the node omits it."""
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is None:
            return None
        kind = value.type
        buffer = inputs[position]
        if buffer is not None:
            return Operand(kind.shape, kind.dtype, buffer)
        data = self.constant(value)
        if data is None or data.size != 1:
            raise CompilerError(
                f"{node.op} ({node.origin}): input {position} ({value.name}) has neither a buffer "
                "nor one literal value"
            )
        (value,) = data.reshape(-1).tolist()
        literal = number(value, kind.dtype)
        return Operand(kind.shape, kind.dtype, None, literal)

    def stage(
        self,
        hint: str,
        shape: Sequence[Extent],
        dtype: DType,
        body: Callable[..., Scalar | Reduce],
        *,
        axes: Sequence[str] = (),
        layout: Layout | None = None,
        scope: MemoryScope = MemoryScope.WORKSPACE,
    ) -> Buffer:
        """Declare a stage that computes `buffer[axes] = body(*axes)` for all elements, and return
        its buffer. The buffer has the given shape, dtype, layout and memory scope, and a name
        derived from `hint`. `axes` are the names of its dimensions."""
        buffer = Buffer(self._unique(hint), dtype, tuple(shape), layout, scope)
        ranges = tuple(
            Axis(name, extent)
            for name, extent in zip(axes or axis_names(len(shape)), shape, strict=True)
        )
        body_value = body(*(Var(axis.name) for axis in ranges))
        self.stages.append(
            Stage(buffer, ranges, body_value.expr if isinstance(body_value, Scalar) else body_value)
        )
        return buffer

    def local(
        self,
        hint: str,
        shape: Sequence[Extent],
        dtype: DType,
        body: Callable[..., Scalar | Reduce],
        *,
        axes: Sequence[str] = (),
        layout: Layout | None = None,
    ) -> Operand:
        """Declare a stage that only other stages of the same node read. Return it as an operand,
        with which these stages can compute. The parameters are those of `stage`."""
        buffer = self.stage(hint, shape, dtype, body, axes=axes, layout=layout)
        return Operand(tuple(shape), dtype, buffer)

    def output(
        self,
        node: Node,
        body: Callable[..., Scalar | Reduce],
        *,
        hint: str = "",
        axes: Sequence[str] = (),
        index: int = 0,
    ) -> Buffer:
        """Declare the stage that computes output `index` of a node by `body`, with the shape, dtype
        and layout of the output's type. Return its buffer."""
        value = node.outputs[index]
        return self.stage(
            hint or node.op.lower(),
            value.type.shape,
            value.type.dtype,
            body,
            axes=axes,
            layout=value.type.layout,
            scope=MemoryScope.PARAM if value.name in self._outputs else MemoryScope.WORKSPACE,
        )

    def _unique(self, hint: str) -> str:
        name, count = hint, 0
        # Names must be identifiers of Python, whose parser reads the text of the IR.
        while name in self._taken or keyword.iskeyword(name):
            count += 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return name


def reduce(op: ReduceOp, ranges: Mapping[str, Extent], body: Callable[..., Scalar]) -> Reduce:
    """Return the reduction by `op` of `body(*axes)` over `ranges`, which maps the names of axes to
    extents."""
    axes = tuple(Axis(name, extent) for name, extent in ranges.items())
    return Reduce(op, axes, body(*(Var(axis.name) for axis in axes)).expr)


def total(ranges: Mapping[str, Extent], body: Callable[..., Scalar]) -> Reduce:
    """Return the sum of `body(*axes)` over `ranges`, which maps the names of axes to extents."""
    return reduce(ReduceOp.SUM, ranges, body)


def factor(node: Node, x: Scalar, dtype: DType) -> Scalar:
    """Return an operand of a contraction as the node multiplies it, in the dtype of its sums."""
    wide = cast(x, dtype)
    return unary(UnaryOp.ROUND_TF32, wide) if node.attr("factors") else wide


def axis_names(rank: int) -> tuple[str, ...]:
    """Return default names for the axes of a tensor; those of an image are n, c, y, x."""
    return ("n", "c", "y", "x") if rank == 4 else tuple(f"i{axis}" for axis in range(rank))


def without_halo(layout: Layout | None) -> Layout | None:
    """Return the layout with the same blocks but without zeros around the image, for a value that
    only its own kernel reads.
    """
    return None if layout is None else dataclasses.replace(layout, halo=())


def attributes_of(node: Node) -> dict[str, Any]:
    """Return a node's attributes as the rules of operators take them."""
    return dict(node.attrs)
