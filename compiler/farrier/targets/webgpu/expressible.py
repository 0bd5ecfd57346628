"""The decision whether WGSL can express a kernel with the exact values of the IR.

A kernel that uses only f32, i32, u32 and booleans is always expressible. Any other kernel is
rendered with its default schedule; if that fails, the reason is that of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from farrier.ir.dim import is_less
from farrier.ir.expr import Buffer, Cast, Const, Load, Var
from farrier.ir.loop import Alloc, Function, Store
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import DType
from farrier.ir.walk import walk
from farrier.targets.gpu import points
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.webgpu.wgsl import MOST_BUFFERS, has_wide_values, render, why_not_type
from farrier_device.webgpu_library import MOST_BYTES

_MOST_SIZES = 8  # Few tensors have more axes.
_SMALL = 1 << 31  # The numbers that 32 bits hold are smaller.
_PLAIN = frozenset({DType.F32, DType.I32, DType.U32, DType.BOOL})


def why_not(
    program: TensorProgram | Function, lowered: Callable[[], Function], has_f16: bool = False
) -> str:
    """Return the reason why WGSL cannot express a kernel, as a clause; "" if it can. `lowered`
    returns the kernel's loops as lowered with the default schedule; `has_f16` is the argument of
    `render`."""
    params, written = _params(program)
    reasons = (why_not_type(buffer, buffer.name in written) for buffer in params)
    if reason := next(filter(None, (*reasons, *map(_why_not_size, params))), ""):
        return reason
    if _computes_sizes(params):
        return "it computes a few integers, which are mostly sizes that the host reads"
    is_plain = _dtypes(_roots(program)) <= _PLAIN
    if is_plain and len(params) < MOST_BUFFERS - 1:  # Sizes and scratch are two.
        return ""
    try:
        render(lowered(), has_f16)
    except InexpressibleError as error:
        return error.reason
    return ""


def _why_not_size(buffer: Buffer) -> str:
    nbytes = buffer.nbytes
    if not isinstance(nbytes, int) or nbytes <= MOST_BYTES:
        return ""
    most = f"a kernel of WebGPU reaches {MOST_BYTES >> 20}"
    return f"{buffer.name} has {nbytes >> 20} MiB, and {most}"


def _params(program: TensorProgram | Function) -> tuple[tuple[Buffer, ...], frozenset[str]]:
    """Return the arguments of a kernel, and the names of its outputs."""
    if isinstance(program, TensorProgram):
        written = frozenset(buffer.name for buffer in program.outputs)
        return (*program.inputs, *program.outputs), written
    stores = (node for node in walk(program.body) if isinstance(node, Store))
    return program.params, frozenset(store.buffer.name for store in stores)


def _roots(program: TensorProgram | Function) -> list[Any]:
    if isinstance(program, TensorProgram):
        return [
            Store(stage.buffer, tuple(Var(axis.name) for axis in stage.axes), stage.body)
            for stage in program.stages
        ]
    return [program.body]


def _computes_sizes(params: Sequence[Buffer]) -> bool:
    """Check whether a kernel computes only a few i64 or booleans from each other, as shape
    computations do."""
    types = {buffer.dtype for buffer in params}
    is_of_integers = DType.I64 in types and types <= {DType.I64, DType.BOOL}
    most = _MOST_SIZES * DType.I64.nbytes
    return is_of_integers and all(is_less(buffer.nbytes, most + 1) for buffer in params)


def why_slow(program: TensorProgram | Function) -> str:
    """Return the reason why a kernel that computes in i64 would be slow on a GPU and should run on
    the host, as a clause; "" if it should run on the GPU."""
    if all(buffer.dtype is not DType.I64 for buffer in _params(program)[0]):
        return ""
    space = points.space(program)
    is_slow = space.slow_reason and has_wide_values(space.schedule(space.default()).function)
    return f"{space.slow_reason}, on integers of 64 bits" if is_slow else ""


def _dtypes(nodes: Iterable[Any]) -> set[DType]:
    """Return the dtypes of all elements, conversions and constants. Small i64 constants do not
    count, as they occur in indices."""
    dtypes = set()
    for root in nodes:
        for node in walk(root):
            match node:
                case Load(buffer) | Store(buffer) | Alloc(buffer):
                    dtypes.add(buffer.dtype)
                case Const(value, DType.I64) if -_SMALL <= value < _SMALL:
                    pass
                case Cast(dtype) | Const(_, dtype):
                    dtypes.add(dtype)
    return dtypes
