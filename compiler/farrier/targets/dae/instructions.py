"""The instruction set of an accelerator as tables of fields, with their widths and meanings.

An instruction is a word of `word_bits` bits, whatever its kind. These tables are the only
definition of the fields' positions; the encoder, the decoder, the simulator, the proof of ordering
and the RTL all read them:

    kind    module    meaning
    load    load      scratchpad[index + row · width + column] = DRAM[offset + row · stride + …],
                      where a padded element is `fill`
    gemm    compute   for all counts: sum[…] += input[…] × weight[…], each at its base and strides
    alu     compute   for all counts: sum[to…] = operation(sum[to…], sum[from…] or the immediate)
    store   store     DRAM[offset + row · stride + …] = sum[index + row · columns + column],
                      without the last `omitted` sums of each element
    finish  compute   the program ends

Addresses in DRAM are offsets from the start of a kernel argument. The modules run concurrently,
each of them executing its own instructions in order; tokens synchronize them (`tokens.py`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterable, Mapping, Sequence

from farrier.errors import CompilerError
from farrier.targets.dae.description import Accelerator

# The version of these tables. Instruction words of different versions are incompatible.
VERSION = 2
GEMM_LOOPS = 6
ALU_LOOPS = 4
_KIND_BITS = 3
_WORD = 64  # The width of an instruction word is a multiple of this number of bits.


class Module(enum.IntEnum):
    """The modules of an accelerator, in the order in which data passes through them."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Kind(enum.IntEnum):
    LOAD = 0
    STORE = 1
    GEMM = 2
    ALU = 3
    FINISH = 4


MODULE_OF = {
    Kind.LOAD: Module.LOAD,
    Kind.STORE: Module.STORE,
    Kind.GEMM: Module.COMPUTE,
    Kind.ALU: Module.COMPUTE,
    Kind.FINISH: Module.COMPUTE,
}


class Pad(enum.IntEnum):
    """The scratchpad that a load writes, together with the form that the elements have in DRAM."""

    INPUT = 0
    WEIGHT = 1
    SUM = 2  # Words of 32 bits.
    SIGNED = 3  # Bytes that are sign-extended to sums.
    UNSIGNED = 4  # Bytes that are zero-extended to sums.


class Form(enum.IntEnum):
    """The form in which a store writes sums to DRAM."""

    WORD = 0
    BYTE = 1  # The lowest byte of each sum.


class Alu(enum.IntEnum):
    """The operations of the vector unit on 32-bit sums. `a` is the sum that is replaced, `b` is the
    sum `from` or the immediate, `c` is the sum `by`. Floating-point operations interpret the bits
    as f32; results are rounded to nearest even, and every NaN is 0x7FC00000."""

    MOVE = 0  # b
    ADD = 1  # The sum of a and b, modulo 2³².
    MIN = 2
    MAX = 3
    MULTIPLY = 4  # The lower 32 bits of a · b.
    SHIFT = 5  # The sum a, shifted right arithmetically by b, or left by −b.
    TO_FLOAT = 6  # f32(a)
    SCALE = 7  # f32(a) · b, rounded twice
    FLOAT_ADD = 8
    FLOAT_SUBTRACT = 9
    FLOAT_MULTIPLY = 10
    FLOAT_MIN = 11
    FLOAT_MAX = 12
    QUANTIZE = 13  # The nearest integer to a, plus a zero point, within two bounds: `quantizing`.
    MULTIPLY_ADD = 14  # The product of a and the immediate, plus b, rounded once.
    SCALE_ADD = 15  # f32(a) · the immediate + b, the sum rounded once
    ACCUMULATE = 16  # The product of b and c, plus a, rounded once.


# The fields whose values are members of an enum.
_NAMED: Mapping[str, type[enum.IntEnum]] = {"operation": Alu, "pad": Pad, "form": Form}

# These operations take both an immediate and another sum.
WITH_BOTH = frozenset({Alu.MULTIPLY_ADD, Alu.SCALE_ADD})


# Bits of the immediate of QUANTIZE: zero point, lower and upper bound, all signed.
QUANTIZE_BITS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A field of an instruction word. Signed fields are in two's complement."""

    name: str
    bits: int
    meaning: str
    signed: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value of the field."""
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


_TOKENS = (
    Field("pop_previous", 1, "wait for a token of the module before"),
    Field("pop_next", 1, "wait for a token of the module behind"),
    Field("push_previous", 1, "hand the module before a token, once done"),
    Field("push_next", 1, "hand the module behind a token, once done"),
)


@functools.cache
def formats(accelerator: Accelerator) -> Mapping[Kind, tuple[Field, ...]]:
    """Return the fields of each kind of instruction, starting with the lowest bits."""
    widths = accelerator.fields
    index, count = widths.index, widths.count
    place = (
        Field("argument", widths.argument, "the argument of the kernel in DRAM"),
        Field("offset", widths.offset, "bytes in it"),
        Field("index", index, "the first element in the scratchpad"),
        Field("rows", count, "rows in DRAM"),
        Field("columns", count, "elements of a row"),
        Field("stride", widths.offset, "bytes from row to row"),
    )
    loads = (
        Field("pad", 3, "`Pad`"),
        *place,
        Field("top", widths.padding, "rows of padding before"),
        Field("bottom", widths.padding, "and behind"),
        Field("left", widths.padding, "elements of padding before each row"),
        Field("right", widths.padding, "and behind"),
        Field("fill", 8, "the bytes of padding", signed=True),
    )
    sums = accelerator.matrix.batch * accelerator.matrix.outer
    omitted = max(1, (sums - 1).bit_length())
    stores = (
        Field("form", 1, "`Form`"),
        *place,
        Field("omitted", omitted, "sums at the end of each element that are not stored"),
    )
    gemm = (
        Field("sum", index, "the first sum"),
        Field("input", index, "the first input"),
        Field("weight", index, "the first weight"),
        *_loops(GEMM_LOOPS, count, index, ("sum", "input", "weight")),
    )
    alu = (
        Field("operation", 5, "`Alu`"),
        Field("is_immediate", 1, "the other operand is the immediate"),
        Field("immediate", 32, "an integer, or the bits of an f32", signed=True),
        Field("to", index, "the first sum that is replaced"),
        Field("from", index, "the first of the other sums"),
        Field("by", index, "the first of the factors"),
        *_loops(ALU_LOOPS, count, index, ("to", "from", "by")),
    )
    kinds = {Kind.LOAD: loads, Kind.STORE: stores, Kind.GEMM: gemm, Kind.ALU: alu, Kind.FINISH: ()}
    head = (Field("kind", _KIND_BITS, "`Kind`"), *_TOKENS)
    return {kind: (*head, *fields) for kind, fields in kinds.items()}


def _loops(loops: int, count: int, index: int, operands: Sequence[str]) -> Iterable[Field]:
    """Yield the fields of nested loops, outermost loop first."""
    for number in range(loops):
        yield Field(f"count{number}", count, "iterations of the loop, 1 at least")
        for operand in operands:
            yield Field(f"{operand}{number}", index, f"elements to the next {operand}")


@functools.cache
def word_bits(accelerator: Accelerator) -> int:
    """Return the width of an instruction in bits."""
    widest = max(sum(field.bits for field in each) for each in formats(accelerator).values())
    return -(-widest // _WORD) * _WORD


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: its kind, and the values of its other fields. A field without a value is
    0."""

    kind: Kind
    fields: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)

    @property
    def module(self) -> Module:
        return MODULE_OF[self.kind]

    def where(self, **fields: int) -> Instruction:
        """Return a copy of the instruction with some fields changed."""
        return Instruction(self.kind, {**self.fields, **fields})

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in self.fields.items() if value]
        return f"{self.kind.name.lower()} {' '.join(parts)}".rstrip()


def encode(instructions: Iterable[Instruction], accelerator: Accelerator) -> bytes:
    """Return instructions encoded as little-endian words. Raises CompilerError for a value that
    does not fit in its field."""
    nbytes = word_bits(accelerator) // 8
    table = formats(accelerator)
    return b"".join(
        _word(instruction, table[instruction.kind], accelerator).to_bytes(nbytes, "little")
        for instruction in instructions
    )


def _word(instruction: Instruction, fields: Sequence[Field], accelerator: Accelerator) -> int:
    word, at = 0, 0
    if unknown := set(instruction.fields) - {field.name for field in fields}:
        raise CompilerError(f"{instruction.kind.name} has no field {min(unknown)}")
    for field in fields:
        value = instruction.kind.value if field.name == "kind" else instruction[field.name]
        low, high = field.limits
        if not low <= value <= high:
            raise CompilerError(
                f"{field.name} of {instruction.kind.name} is {value}, and its {field.bits} bits on "
                f"{accelerator.name} hold {low} to {high}",
                hint="widen the field in the description of the accelerator",
            )
        word |= (value & ((1 << field.bits) - 1)) << at
        at += field.bits
    return word


def decode(words: bytes, accelerator: Accelerator) -> list[Instruction]:
    """Return the instructions that are encoded in `words`. Raises ValueError for invalid words."""
    nbytes = word_bits(accelerator) // 8
    if len(words) % nbytes:
        raise ValueError(f"{len(words)} bytes are no whole words of {nbytes}")
    table = formats(accelerator)
    return [
        _instruction(int.from_bytes(words[at : at + nbytes], "little"), table)
        for at in range(0, len(words), nbytes)
    ]


def _instruction(word: int, table: Mapping[Kind, Sequence[Field]]) -> Instruction:
    kind = Kind(word & ((1 << _KIND_BITS) - 1))
    fields, at = {}, 0
    for field in table[kind]:
        value = (word >> at) & ((1 << field.bits) - 1)
        if field.signed and value >> (field.bits - 1):
            value -= 1 << field.bits
        at += field.bits
        if field.name in _NAMED:
            _NAMED[field.name](value)  # Raises ValueError for a number without a name.
        if field.name != "kind" and value:
            fields[field.name] = value
    if word >> at:
        raise ValueError(f"a word of {kind.name} has bits beyond its fields")
    return Instruction(kind, fields)


def quantizing(zero: int, low: int, high: int) -> int:
    """Return the immediate of QUANTIZE that encodes a zero point, a lower bound and an upper
    bound."""
    mask = (1 << QUANTIZE_BITS) - 1
    return (zero & mask) | (low & mask) << QUANTIZE_BITS | (high & mask) << 2 * QUANTIZE_BITS


def quantized_by(immediate: int) -> tuple[int, int, int]:
    """Return the zero point, the lower and the upper bound that an immediate of QUANTIZE
    encodes."""
    half, whole = 1 << (QUANTIZE_BITS - 1), 1 << QUANTIZE_BITS
    parts = [(immediate >> QUANTIZE_BITS * at) & (whole - 1) for at in range(3)]
    zero, low, high = (part - whole if part >= half else part for part in parts)
    return zero, low, high
