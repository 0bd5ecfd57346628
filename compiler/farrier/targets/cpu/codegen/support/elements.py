"""What an element of any dtype is, for the comparison: as a double, and bit by bit."""

from __future__ import annotations

from farrier.ir import instr
from farrier.ir.instr import I64, PTR, Variable
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.arithmetic import cast, from_memory
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.llvm_text import lines_of, operand_text
from farrier.targets.cpu.codegen.values import memory_type
from farrier_device.native import DTYPE_CODES


def element_function() -> str:
    """`double @element(ptr array, i64 at, i64 dtype)` as LLVM text, by code of the dtype; what has
    none is read as u8."""
    cases, blocks = [], []
    for name, code in DTYPE_CODES.items():
        cases.append(f"i64 {code}, label %{name}")
        blocks += [f"{name}:", *_read(DType(name))]
    return "\n".join(
        [
            "define internal double @element(ptr %array, i64 %at, i64 %dtype) nounwind {",
            "entry:",
            f"  switch i64 %dtype, label %u8 [ {'  '.join(cases)} ]",
            *blocks,
            "}",
        ]
    )


def bits_function() -> str:
    """`i64 @bits(ptr array, i64 at, i64 dtype)` as LLVM text: an element's bits, zeros above."""
    cases = [f"i64 {code}, label %bytes{DType(name).nbytes}" for name, code in DTYPE_CODES.items()]
    blocks = []
    for nbytes in (1, 2, 4, 8):
        kind = f"i{8 * nbytes}"
        blocks += [
            f"bytes{nbytes}:",
            f"  %at{nbytes} = getelementptr {kind}, ptr %array, i64 %at",
            f"  %bits{nbytes} = load {kind}, ptr %at{nbytes}, align {nbytes}",
        ]
        if nbytes < 8:
            blocks += [f"  %wide{nbytes} = zext {kind} %bits{nbytes} to i64"]
        blocks += [f"  ret i64 %{'wide' if nbytes < 8 else 'bits'}{nbytes}"]
    return "\n".join(
        [
            "define internal i64 @bits(ptr %array, i64 %at, i64 %dtype) nounwind {",
            "entry:",
            f"  switch i64 %dtype, label %bytes1 [ {'  '.join(cases)} ]",
            *blocks,
            "}",
        ]
    )


def _read(dtype: DType) -> list[str]:
    """The block of one dtype; its names begin with that of the dtype."""
    b, array, at = Builder(), Variable(PTR, "array"), Variable(I64, "at")
    offset = b.op(instr.MUL, at, instr.index(dtype.nbytes))
    loaded = b.load(memory_type(dtype), b.offset(array, offset), dtype.nbytes)
    value = cast(b, DType.F64, from_memory(b, loaded, dtype, 1))
    lines = [*lines_of(b.body), f"  ret double {operand_text(value.operand)}"]
    return [line.replace("%v", f"%{dtype}.v") for line in lines]
