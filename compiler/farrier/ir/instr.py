"""Instructions: the form that a final loop function takes before it becomes the text of a target.

    function    = Function(name, [argument], [statement] body, result?, is_exported)
    statement   = Instruction | Loop | While | Branch | Return | [statement]
    instruction = Instruction(operation, type, [operand], attribute, number)
    operation   = Operation(name, effect)
    loop        = Loop([carried], [statement] body, operand again, number)
    while       = While([carried], [statement] test, operand condition, [statement] body, number)
    branch      = Branch(operand condition, [statement] then, [statement] otherwise, [joined],
                         number)
    return      = Return(operand result, number)
    carried     = Carried(variable, operand first, operand next)
    joined      = Joined(variable, operand then, operand otherwise)
    operand     = Instruction | Variable | Constant | Lanes | Zero | Poison | Symbol
    variable    = Variable(type, name, attributes?)
                                             an argument, or a value of a loop or a branch (phi)
    constant    = Constant(type, number)                                 the same in every lane
    lanes       = Lanes(type, [number])                                  a number for each lane
    zero        = Zero(type)
    poison      = Poison(type)                                                        any value
    symbol      = Symbol(type, name, definition?)           the address of something in the module
    definition  = Data | Function | Text
    data        = Data(content, alignment)
    text        = Text(name)                        the content of a file in the target's language
    type        = Type(element, lanes, [part], space)
    effect      = pure | read | write | order | any

An instruction stands for its own result: other instructions use it as an operand. Instructions,
types and constants are compared by identity. A builder creates each pure instruction once, and the
functions that create types and constants cache them, so equal keys consist of identical objects.

A `Loop` runs its body until `again` is false after it; each `variable` of its `carried` has the
value `first` in the first iteration and the value `next` of the previous one afterwards. A `While`
tests its condition before the body. A `Branch` runs one of two bodies, and each `variable` of its
`joined` then has that side's operand as its value. A `Return` ends the function; statements after a
Return in its body do not run. A list within a body is the preheader of a loop: loop-invariant
instructions of the loop are added to that list.

The attribute of an instruction holds its other parameters: the predicate of a comparison, the lanes
of a shuffle, the alignment of an access, the name of a target function. The operation of an
instruction declares its effect on memory. Numbers name results and labels; a return has one label,
a loop two, a test and a branch three.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias


@dataclasses.dataclass(slots=True, eq=False)
class Type:
    """A vector of `lanes` elements (f32, i1, ptr); a "struct", an "array" or a "single" (a vector
    of one lane) has `parts` instead. Pointers differ by `space`, the number of an address space of
    the target."""

    element: str
    lanes: int = 1
    parts: tuple[Type, ...] = ()
    space: int = 0

    def of(self, lanes: int) -> Type:
        """Return the vector type with the same element and `lanes` lanes."""
        return vector(self.element, lanes)


@functools.cache
def vector(element: str, lanes: int = 1) -> Type:
    """Return the vector type of `lanes` elements, or the scalar type if `lanes` is 1."""
    return Type(element, lanes)


@functools.cache
def pointer(space: int = 0) -> Type:
    """Return the type of pointers into an address space."""
    return Type("ptr", space=space) if space else vector("ptr")


@functools.cache
def struct_of(*parts: Type) -> Type:
    """Return the type of a struct with fields of these types."""
    return Type("struct", 1, parts)


@functools.cache
def array_of(part: Type, count: int) -> Type:
    """Return the type of an array of `count` values of type `part`."""
    return Type("array", 1, (part,) * count)


@functools.cache
def single_of(part: Type) -> Type:
    """Return the type of a vector of one lane, which masked accesses of a single element
    require."""
    return Type("single", 1, (part,))


I1, I8, I16, I32, I64 = (vector(f"i{bits}") for bits in (1, 8, 16, 32, 64))
F16, BF16, F32, F64 = map(vector, ("f16", "bf16", "f32", "f64"))
PTR, VOID = pointer(), vector("void")


class Effect(enum.Enum):
    """The effect of an operation on memory: none (PURE), a read, a write, an ordering of other
    accesses, or any of these."""

    PURE = "pure"
    READ = "read"
    WRITE = "write"
    ORDER = "order"
    ANY = "any"


@dataclasses.dataclass(slots=True, eq=False)
class Operation:
    """The name of an operation, such as an addition, and its effect on memory."""

    name: str
    effect: Effect = Effect.PURE


@dataclasses.dataclass(slots=True, eq=False)
class Variable:
    """A value that is set by control flow: an argument of a function, or a value that a loop or a
    branch passes on (a phi node)."""

    type: Type
    name: str
    attributes: str | None = None  # Of an argument, if they are not those of all arguments.

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclasses.dataclass(slots=True, eq=False)
class Constant:
    """A number in every lane of a type; it is a bool for i1, and rounded to the type for a
    float."""

    type: Type
    number: int | float | bool

    def __str__(self) -> str:
        return str(self.number)


@dataclasses.dataclass(slots=True, eq=False)
class Lanes:
    """A vector constant with a number for each lane."""

    type: Type
    numbers: tuple[int | bool, ...]


@dataclasses.dataclass(slots=True, eq=False)
class Zero:
    """The zero of a type: 0 in every lane and part, or the null pointer."""

    type: Type


@dataclasses.dataclass(slots=True, eq=False)
class Poison:
    """A value of a type that may be anything, because nothing depends on it."""

    type: Type


@dataclasses.dataclass(slots=True, eq=False)
class Data:
    """Constant bytes in memory."""

    content: bytes
    alignment: int


@dataclasses.dataclass(slots=True, eq=False)
class Text:
    """The definition of a symbol by a file in the language of the target."""

    name: str


@dataclasses.dataclass(slots=True, eq=False)
class Symbol:
    """The address of a function or of data, with its definition unless another module defines
    it."""

    type: Type
    name: str
    definition: Data | Function | Text | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Instruction:
    """An operation applied to operands. Used as an operand of another instruction, it denotes its
    own result."""

    operation: Operation
    type: Type
    operands: tuple[Operand, ...]
    attribute: Any
    number: int

    def __str__(self) -> str:
        return f"%v{self.number}"


Operand: TypeAlias = Instruction | Variable | Constant | Lanes | Zero | Poison | Symbol


@dataclasses.dataclass(slots=True, eq=False)
class Carried:
    """A value that each iteration of a loop passes to the next."""

    variable: Variable
    first: Operand
    next: Operand


@dataclasses.dataclass(slots=True, eq=False)
class Joined:
    """A value that depends on which side of a branch ran (a phi node)."""

    variable: Variable
    then: Operand
    otherwise: Operand


@dataclasses.dataclass(slots=True, eq=False)
class Loop:
    """A loop that tests its condition after the body, so it runs at least once."""

    carried: Sequence[Carried]
    body: Sequence[Statement]
    again: Operand
    number: int


@dataclasses.dataclass(slots=True, eq=False)
class While:
    """A loop that tests its condition before the body, so it may not run at all."""

    carried: Sequence[Carried]
    test: Sequence[Statement]
    condition: Operand
    body: Sequence[Statement]
    number: int


@dataclasses.dataclass(slots=True, eq=False)
class Branch:
    """A choice of one of two bodies by a condition."""

    condition: Operand
    then: Sequence[Statement]
    otherwise: Sequence[Statement]
    joined: Sequence[Joined]
    number: int


@dataclasses.dataclass(slots=True, eq=False)
class Return:
    """A return from the function before the end of its body."""

    result: Operand
    number: int


# A list is the preheader of a loop. Its items are statements, but an alias cannot name itself.
Statement: TypeAlias = Instruction | Loop | While | Branch | Return | list[Any]


@dataclasses.dataclass(slots=True, eq=False)
class Function:
    """A function of the module, which returns `result`, or nothing if that is None."""

    name: str
    arguments: Sequence[Variable]
    body: Sequence[Statement]
    result: Operand | None
    is_exported: bool = False


ADD, SUB, MUL, UDIV, SDIV, UREM = map(Operation, ("add", "sub", "mul", "udiv", "sdiv", "urem"))
AND, OR, XOR, SHL, LSHR, ASHR = map(Operation, ("and", "or", "xor", "shl", "lshr", "ashr"))
FADD, FSUB, FMUL, FDIV, FNEG = map(Operation, ("fadd", "fsub", "fmul", "fdiv", "fneg"))
ICMP, FCMP, SELECT = map(Operation, ("icmp", "fcmp", "select"))  # The attribute is the predicate.
TRUNC, ZEXT, SEXT, BITCAST = map(Operation, ("trunc", "zext", "sext", "bitcast"))
FPTRUNC, FPEXT = map(Operation, ("fptrunc", "fpext"))
FPTOSI, SITOFP, UITOFP = map(Operation, ("fptosi", "sitofp", "uitofp"))
PTRTOINT = Operation("ptrtoint")
SATURATE = Operation(
    "saturate"
)  # A float to a signed (True) or an unsigned (False) integer, saturating.
MATH = Operation("math")  # A function on operands of one type, by name: fmuladd, sqrt, smin, …
REDUCE = Operation("reduce")  # Reduce all lanes to one; (name, fast-math flags).
EXTRACT, INSERT = map(Operation, ("extract", "insert"))  # The attribute is the number of a lane.
SHUFFLE = Operation("shuffle")  # The attribute lists lanes of two vectors, -1 for any lane.
EXTRACT_PART, INSERT_PART = map(Operation, ("extract_part", "insert_part"))
OFFSET = Operation("offset")  # The operands are a pointer and a number of bytes.
OPAQUE = Operation("opaque")  # Return the operand; later passes must not optimize across this.
STACK = Operation("stack")  # Stack memory of the function; (bytes, name).
LOAD = Operation("load", Effect.READ)  # The attribute is an alignment.
STORE = Operation("store", Effect.WRITE)
MASKED_LOAD = Operation("masked_load", Effect.READ)
MASKED_STORE = Operation("masked_store", Effect.WRITE)
PREFETCH = Operation("prefetch", Effect.ORDER)  # The attribute is how near, 3 the first level.
FENCE = Operation("fence", Effect.ORDER)
INTRINSIC = Operation("intrinsic")  # A pure function of the target; (name, what may be assumed).
# A function of the target or of another module; the attribute is its name.
INTRINSIC_EFFECT = Operation("intrinsic_effect", Effect.ANY)
ASSEMBLY = Operation("assembly", Effect.ANY)  # (text, constraints, attributes of the call)
CALL = Operation("call", Effect.ANY)  # The operands are a function and its arguments.


def number_of(type_: Type, value: int | float | bool) -> Constant:
    """Return the constant of a type that has `value` in each lane."""
    if isinstance(value, float):
        # By its bits, zeros of both signs are two constants, and a NaN is one.
        return _float(type_, struct.pack("<d", value))
    return _integer(type_, value)


@functools.cache
def index(value: int) -> Constant:
    """Return the constant of an offset or a count, as i64."""
    return _integer(I64, value)


@functools.cache
def _float(type_: Type, bits: bytes) -> Constant:
    return Constant(type_, struct.unpack("<d", bits)[0])


@functools.cache
def _integer(type_: Type, value: int | bool) -> Constant:
    return Constant(type_, value)


@functools.cache
def lanes_of(type_: Type, *numbers: int | bool) -> Lanes:
    """Return the vector constant with these numbers in its lanes."""
    return Lanes(type_, numbers)


@functools.cache
def zero(type_: Type) -> Zero:
    """Return the zero of a type."""
    return Zero(type_)


@functools.cache
def poison(type_: Type) -> Poison:
    """Return the operand that stands for an arbitrary value of a type."""
    return Poison(type_)


def symbol(name: str) -> Symbol:
    """Return the address of the function or data that this module, or another one, defines as
    `name`."""
    return Symbol(PTR, name)
