"""Run a loop function in Python, slowly and strictly: the semantics that schedules must preserve.

The function is translated to Python source over flat lists, packed as the layouts define.
Arithmetic on floats is that of float64, rounded when narrow floats are stored; integers wrap around
when they are stored. Every index is checked against the extent of its dimension of memory;
unwritten memory is NaN. Iterations of parallel loops, blocks and threads run in reverse or in
random order, so that a wrong `parallel` changes the result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.choices import with_usual_choices
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.special import FUNCTIONS, convert, mul_high, real_power, swish, whole_power
from farrier.ir.types import DType


def run_loops(
    function: Function,
    inputs: Mapping[str, npt.NDArray[Any]],
    *,
    initial: Mapping[str, npt.NDArray[Any]] | None = None,
    packed: bool = False,
    seed: int | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Run a function whose dims are numbers on logical arrays. Return, by name, the arrays of the
    parameters that are not among `inputs`: logical arrays or, with `packed`, their memory in its
    physical shape.

    `initial` holds contents of these arrays before the run. An array may have another shape of the
    same size as its parameter, because a schedule may merge adjacent axes. `seed` shuffles the
    iterations of loops that may run in any order; without a seed they run in reverse order. Raises
    CompilerError if the function accesses an element outside its buffer.
    """
    function = with_usual_choices(function)
    memory: dict[str, list[Any]] = {}
    contents = {**inputs, **(initial or {})}
    for buffer in function.params:
        if buffer.name in contents:
            array = contents[buffer.name].reshape(buffer.type.static_shape)
            memory[buffer.name] = buffer.element_layout.pack(array).reshape(-1).tolist()
        else:
            memory[buffer.name] = _fresh(buffer)
    namespace: dict[str, Any] = {**_RUNTIME, "memory": memory, "order": _order(seed)}
    source = "\n".join(["def run(memory):", *_Writer().function(function)])
    exec(compile(source, function.name, "exec"), namespace)
    try:
        with np.errstate(all="ignore"):
            namespace["run"](memory)
    except IndexError as error:
        raise CompilerError(f"{function.name}: {error}") from error
    outputs = {}
    for buffer in function.params:
        if buffer.name not in inputs:
            layout = buffer.element_layout
            flat = np.array(memory[buffer.name], buffer.dtype.numpy)
            shape = buffer.type.static_shape
            physical = flat.reshape(layout.physical_shape(shape))
            outputs[buffer.name] = physical if packed else layout.unpack(flat, shape)
    return outputs


def _order(seed: int | None) -> Callable[[range], Iterable[int]]:
    """Return the order in which a loop without a prescribed order runs: reversed, or shuffled by
    `seed`."""
    if seed is None:
        return reversed
    dice = random.Random(seed)
    return lambda iterations: dice.sample(iterations, len(iterations))


def _bits(op: str, dtype: str, left: int, right: int) -> int:
    kind = DType(dtype).numpy.type
    return int(_BITS[BinaryOp(op)](kind(left), kind(right)))


def _fresh(buffer: Buffer) -> list[Any]:
    size = math.prod(buffer.element_layout.physical_shape(buffer.type.static_shape))
    return [math.nan if buffer.dtype.is_float else 0] * size


def _at(index: int, extent: int, name: str) -> int:
    if not 0 <= index < extent:
        raise IndexError(f"index {index} of {name} outside its memory of {extent}")
    return index


def _wrap(value: int, bits: int, signed: bool) -> int:
    low = int(value) & ((1 << bits) - 1)
    return low - (1 << bits) if signed and low >> (bits - 1) else low


def _cast(dtype: DType, value: Any) -> Any:
    # Nearly all casts are one of these two, which need no array.
    if isinstance(value, float) and dtype is DType.F32:
        return float(np.float32(value))
    if type(value) is int and dtype.is_integer and dtype.bits >= 8:
        return _wrap(value, dtype.bits, dtype.is_signed)
    return convert(np.array(value), dtype).item()


def _divide(left: float, right: float) -> float:
    return float(np.float64(left) / np.float64(right))


def _nan_last(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: math.nan if a != a or b != b else pick(a, b)


def _power(left: float, right: float) -> float:
    if isinstance(left, int):
        return int(whole_power(np.array(left), np.array(right)))
    return float(real_power(np.array(left), np.array(right)))


def _swish(x: float, alpha: float) -> float:
    return float(swish(np.array(x), np.array(alpha)))


def _float_function(function: Callable[[Any], Any]) -> Callable[[float], float]:
    return lambda value: float(function(np.float64(value)))


_RUNTIME: dict[str, Any] = {
    "at": _at,
    "cast": _cast,
    "wrap": _wrap,
    "DType": DType,
    "nan": math.nan,
    "inf": math.inf,
    "divide": _divide,
    "power": _power,
    "least": _nan_last(min),
    "most": _nan_last(max),
    "u_abs": abs,
    "u_sqrt": _float_function(np.sqrt),
    "u_floor": _float_function(np.floor),
    "u_ceil": _float_function(np.ceil),
    "u_round": _float_function(np.rint),
    **{f"u_{name}": _float_function(function) for name, function in FUNCTIONS.items()},
    "swish": _swish,
    "fresh": _fresh,
    "bits": _bits,
}
_IN_ANY_ORDER = (
    LoopKind.PARALLEL,
    LoopKind.INDEPENDENT,
    LoopKind.BLOCK,
    LoopKind.THREAD,
    LoopKind.SUBGROUP,
    LoopKind.WARPGROUP,
)
_INFIX = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.LT: "<",
    BinaryOp.LE: "<=",
    BinaryOp.EQ: "==",
    BinaryOp.NE: "!=",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
}
_BITS: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.BIT_AND: np.bitwise_and,
    BinaryOp.BIT_OR: np.bitwise_or,
    BinaryOp.BIT_XOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
    BinaryOp.MUL_HIGH: mul_high,
}
_CALLS = {
    BinaryOp.MIN: "least",
    BinaryOp.MAX: "most",
    BinaryOp.POW: "power",
    BinaryOp.SWISH: "swish",
}


class _Writer:
    def function(self, function: Function) -> list[str]:
        names = [f"    b_{buffer.name} = memory[{buffer.name!r}]" for buffer in function.params]
        return names + self.stmt(function.body, "    ")

    def stmt(self, stmt: Stmt, indent: str) -> list[str]:
        deeper = indent + "    "
        match stmt:
            case Block(statements):
                lines = [line for s in statements for line in self.stmt(s, indent)]
                return lines or [f"{indent}pass"]
            case For(var, extent, kind, body):
                order = "order" if kind in _IN_ANY_ORDER else ""
                return [f"{indent}for {var} in {order}(range({extent})):", *self.stmt(body, deeper)]
            case Alloc(buffer, body):
                size = len(_fresh(buffer))
                start = "nan" if buffer.dtype.is_float else "0"
                line = f"{indent}b_{buffer.name} = [{start}] * {size}"
                return [line, *self.stmt(body, indent)]
            case Store(buffer, indices, value):
                where = self.offset(buffer, indices)
                text = self.expr(value)
                if buffer.dtype.is_narrow_float:
                    text = f"cast(DType({buffer.dtype.value!r}), {text})"
                elif buffer.dtype.is_integer:
                    text = f"wrap({text}, {buffer.dtype.bits}, {buffer.dtype.is_signed})"
                return [f"{indent}b_{buffer.name}[{where}] = {text}"]
            case If(condition, then, otherwise):
                lines = [f"{indent}if {self.expr(condition)}:", *self.stmt(then, deeper)]
                if otherwise is not None:
                    lines += [f"{indent}else:", *self.stmt(otherwise, deeper)]
                return lines
            case While(condition, body):
                return [f"{indent}while {self.expr(condition)}:", *self.stmt(body, deeper)]
            case Prefetch():
                return [f"{indent}pass"]
            case Barrier(_, copies) if copies is not None:
                return [f"{indent}pass"]  # Asynchronous copies are executed where they start.
            case Barrier():
                raise CompilerError("threads that meet at barriers are run by `run_threads`")
            case Intrinsic(name, _):
                raise CompilerError(f"the intrinsic {name} must be expanded before it is run")
        assert_never(stmt)

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        layout = buffer.element_layout
        shape = layout.physical_shape(buffer.type.static_shape)
        parts = []
        for dim in layout.dims:
            part = f"({self.expr(indices[dim.axis])} + {layout.halo_of(dim.axis)[0]}) // {dim.div}"
            parts.append(f"{part} % {dim.mod}" if dim.mod else part)
        if (swizzle := layout.swizzle) is not None:
            chunk, turn = swizzle.chunk, f"{parts[-2]} // {swizzle.rows} % {swizzle.count}"
            parts[-1] = f"({parts[-1]} // {chunk} ^ {turn}) * {chunk} + {parts[-1]} % {chunk}"
        terms = []
        stride = math.prod(shape)
        for part, extent in zip(parts, shape, strict=True):
            stride //= extent or 1
            terms.append(f"at({part}, {extent}, {buffer.name!r}) * {stride}")
        return " + ".join(terms) or "0"

    def expr(self, expr: Expr) -> str:
        match expr:
            case Const(value, _):
                return f"({value!r})"
            case Var(name):
                return name
            case Size(extent):
                raise CompilerError(f"{extent} is not bound")
            case Load(buffer, indices):
                return f"b_{buffer.name}[{self.offset(buffer, indices)}]"
            case Unary(UnaryOp.NEG, operand):
                return f"(-{self.expr(operand)})"
            case Unary(UnaryOp.NOT, operand):
                return f"(not {self.expr(operand)})"
            case Unary(op, operand):
                return f"u_{op.value}({self.expr(operand)})"
            case Binary(op, left, right):
                return self.binary(op, left, right)
            case Select(condition, then, otherwise):
                chosen = f"{self.expr(then)} if {self.expr(condition)}"
                return f"({chosen} else {self.expr(otherwise)})"
            case Cast(dtype, operand):
                return f"cast(DType({dtype.value!r}), {self.expr(operand)})"
            case ByteTable(_, _, operand):
                return f"{expr.values()}[{self.expr(operand)} & 255]"
            case Reduce():
                raise CompilerError("a loop function holds no Reduce")
        assert_never(expr)

    def binary(self, op: BinaryOp, left: Expr, right: Expr) -> str:
        a, b = self.expr(left), self.expr(right)
        if op in _INFIX:
            return f"({a} {_INFIX[op]} {b})"
        if op in _BITS:
            return f"bits({op.value!r}, {e.dtype_of(left).value!r}, {a}, {b})"
        if op in _CALLS:
            return f"{_CALLS[op]}({a}, {b})"
        if e.dtype_of(left).is_float:
            return f"divide({a}, {b})" if op is BinaryOp.DIV else f"({a} % {b})"
        return f"({a} // {b})" if op is BinaryOp.DIV else f"({a} % {b})"
