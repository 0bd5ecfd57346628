"""The kernels that WGSL can express with the values of the IR.

A kernel of f32, i32, u32 and booleans alone is one by its types. For another one the default
schedule is rendered, and the reason is that of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from farrier.ir.expr import Buffer, Cast, Const, Load, Var
from farrier.ir.loop import Alloc, Function, Store
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import DType
from farrier.ir.walk import children, walk
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.webgpu.wgsl import MOST_BUFFERS, render, why_not_type
from farrier_device.webgpu_library import MOST_BYTES

_SMALL = 1 << 31  # The numbers that 32 bits hold are smaller.
_PLAIN = frozenset({DType.F32, DType.I32, DType.U32, DType.BOOL})


def why_not(
    program: TensorProgram | Function, lowered: Callable[[], Function], has_f16: bool = False
) -> str:
    """Return the reason why WGSL cannot express a kernel, a clause; "" where it can. `lowered` are
    its loops by the default schedule, `has_f16` is that of `render`."""
    params, written = _params(program)
    reasons = (why_not_type(buffer, buffer.name in written) for buffer in params)
    if reason := next(filter(None, (*reasons, *map(_why_not_size, params))), ""):
        return reason
    roots = _roots(program)
    taken = params if isinstance(program, Function) else program.inputs
    copies = _copies(roots, {buffer.name for buffer in taken})
    if wide := next((b for b in _wide_values(roots) if b.name in copies), None):
        return f"{wide.name} is i64, of which a kernel of WebGPU reads 32 bits"
    if _dtypes(roots) <= _PLAIN and len(params) < MOST_BUFFERS - 1:  # Sizes and scratch are two.
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
    """The arguments of a kernel, and the names of its outputs."""
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


def _copies(nodes: Iterable[Any], inputs: set[str]) -> set[str]:
    """Return the names of inputs and of all buffers to which their elements are copied."""
    copies = set(inputs)
    stores = [node for root in nodes for node in walk(root) if isinstance(node, Store)]
    for _ in stores:
        copies |= {
            store.buffer.name
            for store in stores
            if isinstance(store.value, Load) and store.value.buffer.name in copies
        }
    return copies


def _wide_values(nodes: Iterable[Any], is_index: bool = False) -> Iterator[Buffer]:
    """Yield the buffers of i64 whose elements are read as values, and not only as indices, nor
    copied as they are."""
    for node in nodes:
        match node:
            case Load(buffer, indices):
                if buffer.dtype is DType.I64 and not is_index:
                    yield buffer
                yield from _wide_values(indices, True)
            case Store(Buffer(dtype=DType.I64), indices, Load(_, places)):
                yield from _wide_values((*indices, *places), True)
            case Store(_, indices, value):
                yield from _wide_values(indices, True)
                yield from _wide_values((value,), is_index)
            case _:
                yield from _wide_values(children(node), is_index)


def _dtypes(nodes: Iterable[Any]) -> set[DType]:
    """The types of all elements, conversions and constants. Small constants of i64 do not count:
    they are those of indices."""
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
