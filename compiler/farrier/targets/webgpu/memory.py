"""The places of elements of each type in the memory of WebGPU, which consists of words.

Registers and the memory of a block have a place for each element. A storage buffer has elements as
the host has them: of 64 bits in two words, of 32 bits in one, and narrower ones packed from the
lowest bits of a word on. f16 has a type of its own where the device has the feature `shader-f16`.
"""

from __future__ import annotations

from farrier.ir.types import DType
from farrier.targets.webgpu.wide import PAIR

# The types of values. An index of 64 bits has 32 here, and other values of 64 bits that need them
# have two words (`targets/webgpu/wide.py`); a float of 16 bits is computed as one of 32.
TYPES = {
    DType.F32: "f32",
    DType.F16: "f32",
    DType.BF16: "f32",
    DType.I32: "i32",
    DType.U32: "u32",
    DType.BOOL: "bool",
    DType.I64: "i32",
    DType.I8: "i32",
    DType.I16: "i32",
    DType.U8: "u32",
    DType.U16: "u32",
}
# The bits of an element that shares its word with others, from a value, and back.
_BITS = {
    DType.F16: "f16_bits({0})",
    DType.BF16: "bf16_bits({0})",
    DType.BOOL: "select(0u, 1u, {0})",
    DType.I8: "bitcast<u32>({0})",
    DType.I16: "bitcast<u32>({0})",
    DType.U8: "{0}",
    DType.U16: "{0}",
}
_VALUES = {
    DType.F16: "f16_value({0})",
    DType.BF16: "bf16_value({0})",
    DType.BOOL: "({0} != 0u)",
    DType.I8: "signed_byte({0})",
    DType.I16: "signed_half({0})",
    DType.U8: "{0}",
    DType.U16: "{0}",
}
PACKED = frozenset(_BITS)
STORED = PACKED | {DType.F32, DType.I32, DType.U32, DType.I64}
_PARTS = {1: "byte", 2: "half"}  # By the bytes of an element.


def element_type(dtype: DType, has_f16: bool) -> str:
    """Return the type of the elements of a storage buffer."""
    if dtype is DType.F16 and has_f16:
        return "f16"
    if dtype is DType.I64:
        return PAIR
    return "u32" if dtype in PACKED else TYPES[dtype]


def loaded(memory: str, at: str, dtype: DType, has_f16: bool) -> str:
    """Return the value of element `at` of a storage buffer."""
    if dtype is DType.F16 and has_f16:
        return f"f32({memory}[{at}])"
    if dtype is DType.I64:
        return f"narrow({memory}[{at}])"
    if dtype not in PACKED:
        return f"{memory}[{at}]"
    per = 4 // dtype.nbytes
    return _VALUES[dtype].format(f"{_PARTS[dtype.nbytes]}_of({memory}[({at}) / {per}], {at})")


def stored(memory: str, at: str, value: str, dtype: DType, has_f16: bool) -> list[str]:
    """Return the statements that store a value as element `at` of a storage buffer. No other
    thread may write a part of the same word."""
    if dtype is DType.F16 and has_f16:
        return [f"{memory}[{at}] = f16({value});"]
    if dtype is DType.I64:
        return [f"{memory}[{at}] = wide({value});"]
    if dtype not in PACKED:
        return [f"{memory}[{at}] = {value};"]
    word = f"{memory}[at_ / {4 // dtype.nbytes}]"
    bits = _BITS[dtype].format(value)
    return [
        f"{{ let at_ = {at};",
        f"  {word} = with_{_PARTS[dtype.nbytes]}({word}, at_, {bits}); }}",
    ]


def as_word(value: str, dtype: DType) -> str:
    """Return the bits of a value that has a word of its own."""
    if dtype is DType.BOOL:
        return f"select(0u, 1u, {value})"
    return f"bitcast<u32>({value})"


def of_word(word: str, dtype: DType) -> str:
    """Return the value of a word that `as_word` made."""
    return f"({word} != 0u)" if dtype is DType.BOOL else f"bitcast<{TYPES[dtype]}>({word})"


def rounded(value: str, dtype: DType) -> str:
    """Return an f32 as the nearest number that a narrower float has."""
    if dtype in (DType.F16, DType.BF16):
        return _VALUES[dtype].format(_BITS[dtype].format(value))
    return value
