"""The LLVM functions that read an array element of any dtype, as a double or as raw bits, for
comparing outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farrier.ir import instr
from farrier.ir.instr import I64, PTR, Operand, Type, Variable, index, vector
from farrier.ir.types import DType
from farrier.targets.llvm.arithmetic import cast, from_memory
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.llvm_text import module_text
from farrier.targets.llvm.values import memory_type
from farrier_device.native import DTYPE_CODES

_ARRAY, _AT, _DTYPE = Variable(PTR, "array"), Variable(I64, "at"), Variable(I64, "dtype")


def element_functions() -> str:
    """Return the LLVM text of `double @element(ptr array, i64 at, i64 dtype)`, and of `i64 @bits`
    with the same arguments, which returns the element's bits, zero-extended. `dtype` is a dtype
    code; an unknown code is read as u8."""
    return module_text([_by_dtype("element", _as_double), _by_dtype("bits", _as_bits)])


def _by_dtype(name: str, read: Callable[[Builder, DType], Operand]) -> instr.Function:
    """Return the LLVM function `name`, which branches on the dtype code and reads the element by
    `read`."""
    b = Builder()
    with b.only_if(b.icmp("ult", _DTYPE, index(len(DTYPE_CODES)))):
        _leave(b, read, sorted(DTYPE_CODES, key=DTYPE_CODES.__getitem__))
    return instr.Function(name, (_ARRAY, _AT, _DTYPE), b.body, read(b, DType.U8))


def _leave(b: Builder, read: Callable[[Builder, DType], Operand], names: Sequence[str]) -> None:
    """Emit code that returns the element that `read` reads, for a dtype that is known only at run
    time. A binary search finds its code among those of `names`, which are in the order of their
    codes."""
    if len(names) == 1:
        b.leave(read(b, DType(names[0])))
        return
    half = len(names) // 2
    with b.only_if(b.icmp("ult", _DTYPE, index(DTYPE_CODES[names[half]]))):
        _leave(b, read, names[:half])
    _leave(b, read, names[half:])


def _as_double(b: Builder, dtype: DType) -> Operand:
    loaded = _load(b, memory_type(dtype), dtype.nbytes)
    return cast(b, DType.F64, from_memory(b, loaded, dtype, 1)).operand


def _as_bits(b: Builder, dtype: DType) -> Operand:
    loaded = _load(b, vector(f"i{8 * dtype.nbytes}"), dtype.nbytes)
    return loaded if loaded.type is I64 else b.convert(instr.ZEXT, loaded, I64)


def _load(b: Builder, type_: Type, nbytes: int) -> Operand:
    return b.load(type_, b.offset(_ARRAY, b.op(instr.MUL, _AT, index(nbytes))), nbytes)
