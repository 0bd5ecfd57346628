"""The representation of elements in WebGPU's memory, which consists of 32-bit words.

In private and workgroup memory, each element has a variable or array element of its own. A storage
buffer has the layout of the host: 64-bit elements in two words, 32-bit elements in one, and
narrower elements packed into words from the lowest bits up. f16 has a type of its own if the device
has the feature `shader-f16`.
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
    """Return the WGSL element type of a storage buffer for elements of `dtype`."""
    if dtype is DType.F16 and has_f16:
        return "f16"
    if dtype is DType.I64:
        return PAIR
    return "u32" if dtype in PACKED else TYPES[dtype]


def loaded(memory: str, at: str, dtype: DType, has_f16: bool) -> str:
    """Return a WGSL expression for the value of element `at` of a storage buffer."""
    if dtype is DType.F16 and has_f16:
        return f"f32({memory}[{at}])"
    if dtype is DType.I64:
        return f"narrow({memory}[{at}])"
    if dtype not in PACKED:
        return f"{memory}[{at}]"
    per = 4 // dtype.nbytes
    return _VALUES[dtype].format(f"{_PARTS[dtype.nbytes]}_of({memory}[({at}) / {per}], {at})")


def stored(memory: str, at: str, value: str, dtype: DType, has_f16: bool) -> list[str]:
    """Return the WGSL statements that store `value` as element `at` of the storage buffer `memory`,
    whose elements have the type `dtype`. Other threads must not write to the same 32-bit word at
    the same time."""
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
    """Return a WGSL expression for the 32-bit word that represents a value."""
    if dtype is DType.BOOL:
        return f"select(0u, 1u, {value})"
    return f"bitcast<u32>({value})"


def of_word(word: str, dtype: DType) -> str:
    """Return a WGSL expression for the value that a word from `as_word` represents."""
    return f"({word} != 0u)" if dtype is DType.BOOL else f"bitcast<{TYPES[dtype]}>({word})"


def rounded(value: str, dtype: DType) -> str:
    """Return a WGSL expression for an f32 rounded to the nearest number of a narrower float
    type."""
    if dtype in (DType.F16, DType.BF16):
        return _VALUES[dtype].format(_BITS[dtype].format(value))
    return value
