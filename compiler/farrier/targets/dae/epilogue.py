"""The translation of a kernel's epilogue (the stages after its anchor) to operations of the vector
unit.

The stages are elementwise expressions. Each becomes in-place operations on a tile in the scratchpad
of sums: the tile of the anchor's sums, or the tile of another tensor, which is loaded for the
epilogue.

    f32(sums + bias) · scale, rounded, + zero, within bounds
        →   sums = bias (before the product), SCALE by scale, QUANTIZE
"""

from __future__ import annotations

import dataclasses
import struct

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Select,
    Unary,
    UnaryOp,
    Var,
    dtype_of,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout
from farrier.targets.dae.anchor import Anchor, Method
from farrier.targets.dae.images import UnfitError, flat_image_of, linear, loaded_image_of, number_of
from farrier.targets.dae.instructions import (
    Alu,
    Form,
    Pad,
    quantizing,
)
from farrier.targets.dae.steps import Channels, Operand, Step, Sums, Tensor, Tile, fused


@dataclasses.dataclass(frozen=True, slots=True)
class Epilogue:
    """The initial value of the sums, the steps after the anchor, and the form in which the sums
    are stored."""

    first: Channels | int
    steps: tuple[Step, ...]
    form: Form
    operands: tuple[Tensor | Channels, ...]  # The operands that are loaded.


def epilogue_of(program: TensorProgram, anchor: Anchor, block: int) -> Epilogue:
    """Return the operations of the vector unit that compute the stages of a program after its
    anchor. Raises UnfitError if the vector unit cannot compute them."""
    return _Epilogue(program, anchor, block).made()


_INTEGERS = {
    BinaryOp.ADD: Alu.ADD,
    BinaryOp.MIN: Alu.MIN,
    BinaryOp.MAX: Alu.MAX,
    BinaryOp.MUL: Alu.MULTIPLY,
}
_FLOATS = {
    BinaryOp.ADD: Alu.FLOAT_ADD,
    BinaryOp.SUB: Alu.FLOAT_SUBTRACT,
    BinaryOp.MUL: Alu.FLOAT_MULTIPLY,
    BinaryOp.MIN: Alu.FLOAT_MIN,
    BinaryOp.MAX: Alu.FLOAT_MAX,
}
_BYTES = (DType.I8, DType.U8)


class _Epilogue:
    def __init__(self, program: TensorProgram, anchor: Anchor, block: int) -> None:
        self._program = program
        self._anchor = anchor
        self._block = block
        self._stages = {stage.buffer.name: stage for stage in program.stages}
        self._used: set[str] = set()
        self._steps: list[Step] = []
        self._operands: list[Tensor | Channels] = []

    def made(self) -> Epilogue:
        (output,) = self._program.outputs
        tile = self._stage(self._stages[output.name])
        stage = self._anchor.stage
        if stage is not None and stage.buffer.name not in self._used:
            raise UnfitError("what it stores is not computed from its sums")
        steps = fused(self._steps)
        if not isinstance(tile, Sums):
            # The result is moved to the tile of the sums, because loads for the next tile may
            # overwrite a tensor's tile while the store reads it.
            steps.append(Step(Alu.MOVE, Sums(), tile))
        first: Channels | int = self._anchor.initial
        match steps[:1]:
            case [Step(Alu.ADD, Sums(), Channels() | int() as operand)] if self._adds_up:
                first, steps = operand, steps[1:]
        if output.dtype.nbytes not in (1, 4):
            raise UnfitError(f"its results are {output.dtype.value}")
        form = Form.BYTE if output.dtype.nbytes == 1 else Form.WORD
        return Epilogue(first, tuple(steps), form, tuple(self._operands))

    @property
    def _adds_up(self) -> bool:
        """Check whether the sums of the anchor may start at any value, which is added to them."""
        return self._anchor.method not in (Method.MAXIMA, Method.NONE)

    # -- values

    def _stage(self, stage: Stage) -> Tile:
        """Emit the operations of a stage, which are in place: the result replaces the tile of one
        of its operands. Return that tile."""
        name = stage.buffer.name
        if name in self._used:
            raise UnfitError(f"the result of {name} is read twice")
        self._used.add(name)
        if stage is self._anchor.stage:
            return Sums()
        tile = self._value(stage.body, stage)
        if isinstance(tile, Channels | int):
            raise UnfitError("what it stores is not computed from its sums")
        return tile

    def _value(self, expr: Expr, stage: Stage) -> Operand:
        match expr:
            case Const():
                return _immediate(expr)
            case Load():
                return self._load(expr, stage)
            case Cast():
                return self._cast(expr, stage)
            case Binary():
                return self._binary(expr, stage)
            case Select():
                return self._select(expr, stage)
            case Unary(op=UnaryOp.ROUND):
                # Rounding occurs only in quantizations, which `_cast` handles as a whole.
                raise UnfitError("it rounds floats, and keeps them as floats")
        raise UnfitError(f"the vector unit has no operation for {_name(expr)}")

    def _load(self, load: Load, stage: Stage) -> Operand:
        buffer = load.buffer
        if buffer.name in self._stages:
            self._check_points(load, stage)
            return self._stage(self._stages[buffer.name])
        if buffer.scope is MemoryScope.CONSTANT:
            return self._channels(load, stage)
        self._check_points(load, stage)
        forms = {DType.I8: Pad.SIGNED, DType.U8: Pad.UNSIGNED, DType.I32: Pad.SUM}
        form = forms.get(buffer.dtype, Pad.SUM if buffer.dtype is DType.F32 else None)
        if form is None:
            raise UnfitError(f"it reads {buffer.dtype.value} beside its product")
        layout_of = flat_image_of if self._anchor.is_flat else loaded_image_of
        image = layout_of(self._program, buffer, self._block)
        if (image.height, image.width) != (self._anchor.out.height, self._anchor.out.width):
            raise UnfitError("it reads an image of another size beside its product")
        return self._operand(Tensor(image, form))

    def _operand(self, operand: Tensor | Channels) -> Tensor | Channels:
        if isinstance(operand, Tensor) and operand in self._operands:
            raise UnfitError("it reads a tensor beside its product twice")
        if operand not in self._operands:
            self._operands.append(operand)
        return operand

    def _channels(self, load: Load, stage: Stage) -> Operand:
        if self._anchor.is_flat:
            raise UnfitError("it reads a constant that is not one for each channel")
        channel = stage.axes[self._anchor.axes.channel].name
        places = [linear(index) for index in load.indices]
        for place, extent in zip(places, load.buffer.shape, strict=True):
            if place and (place != {channel: 1} or extent == 1):
                raise UnfitError("it reads a constant that is not one for each channel")
        axis = next((at for at, place in enumerate(places) if place), None)
        lies = load.buffer.element_layout
        rank, block = len(load.buffer.shape), self._block
        if axis is None or load.buffer.dtype.nbytes != 4:
            raise UnfitError("it reads a constant that is not one word for each channel")
        blocked = Layout.blocked(rank, axis, block)
        if not lies.is_plain and lies != blocked:
            raise UnfitError("it reads a constant that is not one word for each channel")
        is_partial = number_of(load.buffer.shape[axis]) % block != 0
        layout = blocked if lies.is_plain and is_partial else None
        return self._operand(Channels(self._program.inputs.index(load.buffer), layout))

    def _check_points(self, load: Load, stage: Stage) -> None:
        """Raise UnfitError if a load reads other points than the point that its stage computes."""
        shape = load.buffer.shape
        if len(shape) != len(stage.axes):
            raise UnfitError("it moves elements behind its product")
        for index, axis, extent in zip(load.indices, stage.axes, shape, strict=True):
            if extent != axis.extent:
                raise UnfitError("it reads an image of another size beside its product")
            if index != Var(axis.name) and not (extent == 1 and linear(index) == {}):
                raise UnfitError("it moves elements behind its product")

    # -- operations

    def _tile(self, expr: Expr, stage: Stage) -> Tile:
        value = self._value(expr, stage)
        if isinstance(value, Channels | int):
            raise UnfitError("it computes with constants alone")
        return value

    def _emit(self, operation: Alu, tile: Tile, operand: Operand) -> Tile:
        self._steps.append(Step(operation, tile, operand))
        return tile

    def _binary(self, expr: Binary, stage: Stage) -> Operand:
        kind = dtype_of(expr.left)
        if kind is DType.I32:
            table = _INTEGERS
        elif kind is DType.F32:
            table = _FLOATS
        else:
            raise UnfitError(f"it computes with {kind.value}")
        operation = table.get(expr.op)
        if operation is None:
            raise UnfitError(f"the vector unit has no operation {expr.op.value} of {kind.value}")
        left, right = self._value(expr.left, stage), self._value(expr.right, stage)
        if operation is Alu.FLOAT_ADD:
            # If both are products, processors round the later one with the sum: that of the anchor,
            # which takes more operations, or else the right one.
            is_right_later = self._anchor.stage is None or isinstance(right, Sums)
            pairs = (right, left), (left, right)
            for product, other in pairs if is_right_later else pairs[::-1]:
                if (factor := self._pop_multiplication(product)) is not None:
                    return self._multiply_add(product, factor, other)
        if isinstance(left, Channels | int):
            if expr.op is BinaryOp.SUB:
                raise UnfitError("it subtracts from a constant")
            left, right = right, left
        if isinstance(left, Channels | int):
            raise UnfitError("it computes with constants alone")
        return self._emit(operation, left, right)

    def _pop_multiplication(self, value: Operand) -> int | None:
        """If the last step so far on the tile `value` multiplies it by a constant, remove that step
        and return the constant; else return None. The caller then emits one step that multiplies
        and adds, which is rounded once, as on processors."""
        at = next((at for at, s in reversed([*enumerate(self._steps)]) if s.tile == value), None)
        last = None if at is None else self._steps[at]
        if at is None or last is None or last.operation is not Alu.FLOAT_MULTIPLY:
            return None
        if not isinstance(last.operand, int):
            return None
        del self._steps[at]
        return last.operand

    def _multiply_add(self, product: Operand, factor: int, other: Operand) -> Operand:
        if isinstance(product, Channels | int) or isinstance(other, int):
            # An instruction has a single immediate.
            raise UnfitError("it adds a constant to what it multiplies")
        self._steps.append(Step(Alu.MULTIPLY_ADD, product, other, factor))
        return product

    def _select(self, expr: Select, stage: Stage) -> Operand:
        """Return the operand for a Select that is a maximum or a minimum, written as a comparison
        and a choice."""
        condition = expr.condition
        if isinstance(condition, Binary) and condition.op in (BinaryOp.LT, BinaryOp.LE):
            low, high = condition.left, condition.right
            for op, larger, smaller in ((BinaryOp.MAX, high, low), (BinaryOp.MIN, low, high)):
                if (expr.then, expr.otherwise) == (larger, smaller):
                    return self._binary(Binary(op, larger, smaller), stage)
        raise UnfitError("it chooses between values")

    def _cast(self, cast: Cast, stage: Stage) -> Operand:
        source = dtype_of(cast.operand)
        if isinstance(cast.operand, Const):
            value = cast.operand.value
            return _immediate(Const(float(value) if cast.dtype.is_float else value, cast.dtype))
        if source is DType.F32 and cast.dtype in _BYTES:
            return self._quantized(cast, stage)
        if cast.dtype is DType.F32 and source in (DType.I32, *_BYTES):
            return self._emit(Alu.TO_FLOAT, self._tile(cast.operand, stage), 0)
        if cast.dtype is DType.I32 and source in _BYTES:
            return self._value(cast.operand, stage)
        if source is DType.I32 and cast.dtype in _BYTES:
            return self._narrowed(cast, stage)
        raise UnfitError(f"it converts {source.value} to {cast.dtype.value}")

    def _narrowed(self, cast: Cast, stage: Stage) -> Operand:
        """Return the operand for a conversion of integers to bytes, which is the identity on the
        maxima of such bytes."""
        tile, anchor = self._tile(cast.operand, stage), self._anchor
        is_changed = any(step.tile == tile for step in self._steps)
        if anchor.method is not Method.MAXIMA or not isinstance(tile, Sums) or is_changed:
            raise UnfitError(f"it converts {DType.I32.value} to {cast.dtype.value}")
        if anchor.image.dtype is not cast.dtype:
            raise UnfitError(f"it converts {DType.I32.value} to {cast.dtype.value}")
        return tile

    def _quantized(self, cast: Cast, stage: Stage) -> Operand:
        """Return the operand for a quantization: a float that is rounded, shifted by a zero point
        and clamped to bytes."""
        low, high = (int(bound) for bound in cast.dtype.limits)
        expr, zero = cast.operand, 0
        while True:
            match expr:
                case Select(
                    condition=Binary(op=BinaryOp.LT, left=Const() as bound, right=value),
                    then=then,
                    otherwise=Const() as other,
                ) if then == value and bound == other:
                    low, expr = max(low, _whole(bound)), value
                case Select(
                    condition=Binary(op=BinaryOp.LT, left=value, right=Const() as bound),
                    then=then,
                    otherwise=Const() as other,
                ) if then == value and bound == other:
                    high, expr = min(high, _whole(bound)), value
                case Binary(op=BinaryOp.MAX, left=value, right=Const() as bound):
                    low, expr = max(low, _whole(bound)), value
                case Binary(op=BinaryOp.MIN, left=value, right=Const() as bound):
                    high, expr = min(high, _whole(bound)), value
                case Binary(
                    op=BinaryOp.ADD,
                    left=Unary(op=UnaryOp.ROUND, operand=rounded),
                    right=Cast(operand=Const() as point) | (Const() as point),
                ):
                    zero, expr = _whole(point), rounded
                    break
                case Unary(op=UnaryOp.ROUND, operand=rounded):
                    expr = rounded
                    break
                case _:
                    raise UnfitError(f"it converts {DType.F32.value} to {cast.dtype.value}")
        tile = self._tile(expr, stage)
        return self._emit(Alu.QUANTIZE, tile, quantizing(zero, low, high))


def _whole(constant: Const) -> int:
    if float(constant.value) != int(constant.value):
        raise UnfitError("it bounds bytes by a fraction")
    return int(constant.value)


def _immediate(constant: Const) -> int:
    """Return the bits of a constant as a signed integer, for an instruction's immediate."""
    if constant.dtype is DType.F32:
        (bits,) = struct.unpack("<i", struct.pack("<f", constant.value))
        return int(bits)
    if constant.dtype.is_float or constant.dtype.bits > 32:
        raise UnfitError(f"it computes with a constant of {constant.dtype.value}")
    return int(constant.value)


def _name(expr: Expr) -> str:
    op = getattr(expr, "op", None)
    return str(op) if op is not None else type(expr).__name__.lower()
